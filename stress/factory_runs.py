"""Schedules against a factory that is at hand: what the pytest plugin and Hypothesis share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onearena.stress.user_systems import Factory, given

if TYPE_CHECKING:
    from onearena.stress.run import RunResult, RunSpec


class BrokenRuleError(AssertionError):
    """A schedule broke a rule, crashed, or did not come to an end; the message explains it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing schedule. `small` is its smallest form, `path` its choices file ("": none)."""

    result: RunResult
    small: RunResult
    text: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """What came of some schedules. `reach` counts situations, as `onearena stress` does."""

    system: str
    schedules: int
    steps: int
    reach: Mapping[str, int]
    failures: tuple[Failure, ...] = ()

    def check(self) -> None:
        """Raise `BrokenRuleError` with the first failure's text, if there is one."""
        if self.failures:
            raise BrokenRuleError(self.failures[0].text)


def run_factory(
    factory: Factory,
    *,
    seeds: int,
    first: int = 0,
    steps: int = 0,
    shrink_s: float = 10.0,
    folder: Path | None = None,
) -> CampaignResult:
    """Run `seeds` schedules from seed `first` in this process, up to the first that fails.

    `steps` 0 draws the length of each. A failure is shrunk for at most `shrink_s` seconds of
    processor time and, with `folder`, kept there as choices files. Cost: about 20 ms a schedule
    for an allocator of a few dozen units.
    """
    from onearena.stress.run import RunSpec, run_schedule

    reach: Counter[str] = Counter()
    taken = 0
    with given(factory) as system:
        for seed in range(first, first + seeds):
            spec = RunSpec(seed, system, steps=steps)
            result = run_schedule(spec)
            reach.update(result.reach)
            taken += result.steps
            if result.verdict != "pass":
                failure = _failure(spec, result, shrink_s, folder)
                return CampaignResult(
                    system, seed - first + 1, taken, dict(sorted(reach.items())), (failure,)
                )
    return CampaignResult(system, seeds, taken, dict(sorted(reach.items())))


def _failure(spec: RunSpec, result: RunResult, shrink_s: float, folder: Path | None) -> Failure:
    from onearena.core.errors import UsageError
    from onearena.stress.recordings import dump_recording
    from onearena.stress.report import failure_text
    from onearena.stress.shrink import shrink
    from onearena.stress.shrink_cli import steps_text

    small, said = result, "it was not shrunk"
    if shrink_s > 0 and result.recording:
        try:
            shrunk = shrink(replace(spec, recording=result.recording), budget_s=shrink_s)
        except UsageError as error:
            said = f"it was not shrunk: {error.message}"
        else:
            small = shrunk.result
            said = f"shrunk: {shrunk.after.words()} (was {shrunk.before.words()})"
    path = ""
    if folder is not None and small.recording:
        file = folder / f"seed-{spec.seed}.choices.json"
        file.write_text(dump_recording(spec, small), encoding="utf-8")
        path = str(file)
    lines = [failure_text(small, path=path), said, *steps_text(small.recording)]
    return Failure(result, small, "\n".join(lines), path)
