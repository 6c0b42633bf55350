"""Shrinking: from a recording that fails to a small one that breaks the same rule.

Host steps go first (delta debugging over the recording), then device steps, then the values of the
decisions, set-up included: small arenas, short requests, one piece a copy. A candidate is kept if
it breaks the same rule by the same oracle's report and is smaller; `Size` says what smaller means,
host calls before everything else. Steps that a candidate could not take are dropped, and decisions
it had to draw anew are written down, so every recording kept is complete.

That ends where no single step and no pair of host steps can go, which may be far from the least: a
schedule that fills a large arena cannot lose a step, and a smaller arena alone makes it pass. So
short schedules are drawn anew in simpler set-ups, and whatever fails the same way is shrunk in its
turn. Nothing here depends on a clock unless the budget ends: equal files shrink to equal files.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onearena.core.errors import UsageError
from onearena.stress.choices import StepRecord
from onearena.stress.recordings import dump_recording, parse_recording, same_failure
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.shrink_parts import (
    CALLS_MAX,
    NO,
    Size,
    Tally,
    Target,
    is_device,
    size_of,
    weight,
)
from onearena.stress.workload import STEP_KINDS

BUDGET_S: Final = 30.0
REPLAYS_MAX: Final = 4000
KINDS_FROM_STEPS: Final = 60
"""In schedules longer than this whole kinds of step are tried first."""
PAIRS_MAX: Final = 26
"""Most host steps of which all pairs are tried."""
CHANCE_LEAST: Final = 100
"""Decisions that were ever this large are taken for chances, and `NO` is tried for them too."""

SMALL_CALLS: Final = 6
"""With so few host calls nothing smaller is looked for."""
SAMPLES: Final = 150
"""Short schedules drawn in one round."""
SAMPLE_STEPS_MAX: Final = 60
MODEL: Final = "arena.model"
MODELS: Final = 9
"""As many as there are; a value beyond the last one would be taken again from the first."""
ONE_BAND: Final = 7
"""The model that has one band only."""
OFF: Final = "swarm.off"
ROUNDS_MAX: Final = 4
"""Rounds without a gain after which the search ends."""

Steps = tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What came of it. `spec` replays the small schedule, `result` is that replay.

    `finished`: no budget cut it short. `verified`: the file's text, read back, fails the same way
    with the same trace and without a divergence. `seconds` are the processor's.
    """

    spec: RunSpec
    result: RunResult
    text: str
    before: Size
    after: Size
    replays: int
    seconds: float
    finished: bool
    verified: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    steps: Steps
    size: Size
    skipped: frozenset[int]


class _SpentError(Exception):
    """Time or replays are used up."""


class Shrinker:
    """Shrinks one recording. Memory: a few copies of it."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        budget_s: float,
        replays_max: int = REPLAYS_MAX,
        rounds_max: int = ROUNDS_MAX,
    ) -> None:
        """`rounds_max` 0: no schedules are drawn anew."""
        assert spec.recording, "a spec without a recording has nothing to shrink"
        self.spec = spec
        self.replays = 0
        self.replays_max = replays_max
        self.rounds_max = rounds_max
        self.started = time.process_time()
        self.end = self.started + budget_s
        first = run_schedule(spec)
        if first.verdict == "pass":
            raise UsageError("FILE", first.verdict, "give a schedule that fails on replay")
        self.first = first
        self.target = Target.of(first)
        # Where the failure shows before the end of the run, no candidate needs its end.
        self.to_end = first.recording[-1].label == "drain" or first.verdict == "stuck"
        outcome = self._judge(replace(spec, recording=first.recording), CALLS_MAX)
        assert outcome is not None, f"{first.verdict} came once and not twice: {self.target}"
        self.steps, self.size = outcome.steps, outcome.size
        self.before = outcome.size
        self._prune(outcome)

    def run(self) -> Shrunk:
        """Shrink until nothing helps, or until the budget ends."""
        finished = True
        best = (self.size, self.steps)
        try:
            # A simpler set-up may fail earlier: that drops whole ends of the schedule.
            self._simplify_names(setup=True)
            self._vary_model()
            best = (self.size, self.steps)
            if self.rounds_max:
                self._sample(0, below=self.size.host_calls)
            self._descend()
            best = min(best, (self.size, self.steps), key=lambda pair: pair[0])
            rounds = 0
            while best[0].host_calls > SMALL_CALLS and rounds < self.rounds_max:
                rounds += 1
                self.size, self.steps = best
                if not self._sample(rounds, below=2 * best[0].host_calls):
                    continue
                self._descend()
                if self.size.host_calls < best[0].host_calls:
                    rounds = 0
                best = min(best, (self.size, self.steps), key=lambda pair: pair[0])
        except _SpentError:
            finished = False
        self.size, self.steps = min(best, (self.size, self.steps), key=lambda pair: pair[0])
        return self._finish(finished=finished)

    def _descend(self) -> None:
        """Down to where no candidate is smaller."""
        while True:
            before = self.size
            self._try(tuple(s for s in self.steps if not is_device(s)))
            self._remove_kinds()
            self._remove(device=False)
            self._remove(device=True)
            self._simplify_decisions()
            self._remove_pairs()
            if self.size == before:
                return

    def _sample(self, round_: int, *, below: int) -> bool:
        """Draw short schedules in set-ups between this one and the simplest; take the smallest that
        fails the same way with fewer than `below` host calls. Whether there is one.
        """
        rng = random.Random(f"{self.spec.seed} {round_} {len(self.steps)}")
        found: _Outcome | None = None
        for _ in range(SAMPLES):
            spec = replace(
                self.spec,
                seed=rng.getrandbits(63),
                recording=None,
                setup=self._drawn_setup(rng),
                steps=rng.randint(8, SAMPLE_STEPS_MAX),
            )
            outcome = self._judge(spec, below - 1)
            if outcome is not None and outcome.size.host_calls < below:
                below, found = outcome.size.host_calls, outcome
        if found is None:
            return False
        self.steps, self.size = found.steps, found.size
        self._prune(found)
        return True

    def _drawn_setup(self, rng: random.Random) -> dict[str, list[int]]:
        """Each name of the set-up as it is or at its simplest; the model is often another one, and
        kinds of step that the schedule does without are mostly left out.
        """
        setup: dict[str, list[int]] = {}
        for name, values in self.steps[0].decisions.items():
            simple = [_simplest(value) for value in values]
            setup[name] = simple if rng.random() < 0.5 else list(values)
        if MODEL in setup and rng.random() < 0.7:
            # A call that concerns each band counts once a band: one band makes short schedules.
            setup[MODEL] = [ONE_BAND if rng.random() < 0.5 else rng.randrange(MODELS)]
        if OFF in setup:
            used = {step.label for step in self.steps[1:]}
            optional = [kind for kind, (_, off) in STEP_KINDS.items() if off]
            setup[OFF] = [
                NO if kind in used or rng.random() < 0.2 else 0
                for kind in optional[: len(setup[OFF])]
            ]
        return setup

    def _finish(self, *, finished: bool) -> Shrunk:
        spec = replace(self.spec, recording=self.steps, to_end=True)
        result = run_schedule(spec)
        text = dump_recording(spec, result)
        read, head = parse_recording(text)
        again = run_schedule(read)
        verified = (
            self.target.met(again)
            and same_failure(head, again)
            and again.digest == result.digest
            and again.divergence is None
        )
        return Shrunk(
            spec=read,
            result=again,
            text=text,
            before=self.before,
            after=self.size,
            replays=self.replays,
            seconds=time.process_time() - self.started,
            finished=finished,
            verified=verified,
        )

    # -- one candidate
    def _replay(self, steps: Sequence[StepRecord]) -> _Outcome | None:
        """Run a candidate; None if it does not fail the same way, or takes more host calls."""
        return self._judge(replace(self.spec, recording=tuple(steps)), self.size.host_calls)

    def _judge(self, spec: RunSpec, most: int) -> _Outcome | None:
        """Run it; None if it does not fail the same way within `most` host calls."""
        if self.replays >= self.replays_max or time.process_time() >= self.end:
            raise _SpentError
        self.replays += 1
        tally = Tally(most)
        result = run_schedule(replace(spec, to_end=self.to_end), tally)
        if not self.target.met(result):
            return None
        kept = tuple(step for step in result.recording if step.label != "drain")
        return _Outcome(kept, size_of(kept, tally.calls), frozenset(tally.skipped))

    def _try(self, steps: Sequence[StepRecord]) -> bool:
        """Keep a candidate if it fails the same way and is smaller."""
        outcome = self._replay(steps)
        if outcome is None or outcome.size >= self.size:
            return False
        self.steps, self.size = outcome.steps, outcome.size
        self._prune(outcome)
        return True

    def _prune(self, outcome: _Outcome) -> None:
        """Drop the steps that were skipped; looks of the world then fall on other steps, so run
        it.
        """
        if not outcome.skipped:
            return
        kept = [s for i, s in enumerate(outcome.steps) if i not in outcome.skipped]
        again = self._replay(kept)
        if again is not None and again.size < self.size:
            self.steps, self.size = again.steps, again.size

    # -- steps
    def _places(self, *, device: bool) -> list[int]:
        return [i for i, s in enumerate(self.steps) if i and is_device(s) == device]

    def _without(self, gone: set[int]) -> Steps:
        return tuple(step for i, step in enumerate(self.steps) if i not in gone)

    def _remove_kinds(self) -> None:
        """All steps of a kind at once, as long as there are many."""
        for label in sorted({step.label for step in self.steps[1:]}):
            if len(self.steps) > KINDS_FROM_STEPS:
                self._try(tuple(s for i, s in enumerate(self.steps) if not i or s.label != label))

    def _remove(self, *, device: bool) -> None:
        """Delta debugging: runs of half of them, a quarter, ..., one; from the end backwards, since
        late steps have nothing after them that they could disturb.
        """
        chunk = max(1, len(self._places(device=device)) // 2)
        while True:
            changed = False
            at = len(self._places(device=device))
            while at > 0:
                places = self._places(device=device)
                at = min(at, len(places))
                first = max(0, at - chunk)
                changed |= first < at and self._try(self._without(set(places[first:at])))
                at = first
            if chunk > 1:
                chunk //= 2
            elif not changed:
                return

    def _remove_pairs(self) -> None:
        """Two host steps that only go together: a request and its end, a pin and its end."""
        if len(self._places(device=False)) > PAIRS_MAX:
            return
        for a, b in self._pairs():
            self._try(self._without({a, b}))

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of places; begins again whenever steps went."""
        seen: set[tuple[int, int]] = set()
        length = 0
        while length != len(self.steps):
            length = len(self.steps)
            seen.clear()
            places = self._places(device=False)
            for index, a in enumerate(places):
                for b in places[index + 1 :]:
                    if length == len(self.steps) and (a, b) not in seen:
                        seen.add((a, b))
                        yield a, b

    # -- values
    def _simplify_decisions(self) -> None:
        """All decisions of a name at once, then one by one."""
        for setup in (False, True):
            self._simplify_names(setup=setup)
            for name in self._names(setup=setup):
                self._simplify_each(name, setup=setup)

    def _vary_model(self) -> None:
        """Another model may need fewer calls: those that concern each band count once a band."""
        if MODEL in self.steps[0].decisions:
            for value in range(MODELS):
                self._try_all(MODEL, value, setup=True)

    def _simplify_names(self, *, setup: bool) -> None:
        for name in self._names(setup=setup):
            chance = self._largest(name) >= CHANCE_LEAST
            for value in (NO, 0) if chance else (0,):
                self._try_all(name, value, setup=setup)

    def _names(self, *, setup: bool) -> list[str]:
        steps = self.steps[:1] if setup else self.steps[1:]
        return list(dict.fromkeys(name for step in steps for name in step.decisions))

    def _largest(self, name: str) -> int:
        return max((v for step in self.steps for v in step.decisions.get(name, ())), default=0)

    def _try_all(self, name: str, value: int, *, setup: bool) -> bool:
        changed = tuple(
            _with(step, name, lambda values: [value] * len(values))
            if (not i) == setup and name in step.decisions
            else step
            for i, step in enumerate(self.steps)
        )
        return changed != self.steps and self._try(changed)

    def _simplify_each(self, name: str, *, setup: bool) -> None:
        chance = self._largest(name) >= CHANCE_LEAST
        place = 0
        # A kept candidate may have other decisions: look anew after each.
        while place < len(found := self._where(name, setup=setup)):
            at, index = found[place]
            value = self.steps[at].decisions[name][index]
            for wanted in (NO, 0) if chance else (0, value // 2, value - 1):
                if weight(wanted) < weight(value) and self._try_one(at, name, index, wanted):
                    break
            place += 1

    def _where(self, name: str, *, setup: bool) -> list[tuple[int, int]]:
        return [
            (i, index)
            for i, step in enumerate(self.steps)
            if (not i) == setup
            for index, value in enumerate(step.decisions.get(name, ()))
            if weight(value)
        ]

    def _try_one(self, at: int, name: str, index: int, value: int) -> bool:
        step = _with(
            self.steps[at], name, lambda values: [*values[:index], value, *values[index + 1 :]]
        )
        return self._try((*self.steps[:at], step, *self.steps[at + 1 :]))


def _simplest(value: int) -> int:
    """0, or `NO` for what looks like a chance."""
    return NO if value >= CHANCE_LEAST else 0


def _with(
    step: StepRecord, name: str, change: Callable[[Sequence[int]], Sequence[int]]
) -> StepRecord:
    return StepRecord(step.label, {**step.decisions, name: change(step.decisions[name])})


def shrink(spec: RunSpec, *, budget_s: float = BUDGET_S, replays_max: int = REPLAYS_MAX) -> Shrunk:
    """Shrink the recording of `spec`; at most `budget_s` seconds of processor time and
    `replays_max` replays, and two more replays at the end.

    Raises `UsageError` if the recording does not fail. Cost: replays; one takes from a millisecond
    to as long as the recording's schedule.
    """
    return Shrinker(spec, budget_s=budget_s, replays_max=replays_max).run()
