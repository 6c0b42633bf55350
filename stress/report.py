"""What a person reads: one failure explained, and a campaign summed up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from onearena.stress.run import RunResult
from onearena.stress.strategies.portfolio import DEFAULT, shares_text
from onearena.stress.user_systems import trusting

if TYPE_CHECKING:
    from onearena.stress.summary import Summary

NAMED_MAX: Final = 12

RULES: Final[dict[str, str]] = {
    "1": "a free is logical at once; the bytes wait until every recorded use is over",
    "2": "a freed unit stays pending until every use is over that was not cancelled",
    "3": "a moved unit's old readers keep the source, and new readers come after the copy",
    "4": "an old writer is ordered before a move's copy; a unit under a transfer never moves",
    "5": "bytes beyond a retreated frontier stay fenced while a use of them is outstanding",
    "6": "a writer waits for every earlier use of its bytes, a reader for every write it reads",
    "7": "publish for a receive after every use retired, for a send after every write ended",
    "8": "users are recorded before their work is enqueued; nobody waits on an unrecorded event",
    "9": "a forward resolves its ids once, in the step that records and launches it",
    "10": "decisions follow the sequence of calls, never timing",
    "11": "a unit with more than one reference is never written: the writer forks it",
    "12": "content that a failed load or receive left behind is read by nobody",
    "13": "misuse is refused with a typed error and nothing changed",
    "14": "nothing on the allocate, free or move path makes the host wait for the device",
}


def repro_lines(result: RunResult, *, path: str = "", arrivals: str = "") -> list[str]:
    """The lines that reproduce a failure: the file, and the seed."""
    seed = f"onearena stress --system {result.system} --seed {result.seed}"
    if result.model_asked != "any":
        seed += f" --model {result.model_asked}"
    if result.strategy_asked != DEFAULT:
        seed += f" --strategy {result.strategy_asked}"
    if result.device != "modeled":
        seed += f" --device {result.device}"
    if arrivals:
        seed += f" --arrivals {arrivals}"
    trusted = trusting(result.system)
    return ([f"reproduce: {trusted}onearena replay {path}"] if path else []) + [
        f"{'or' if path else 'reproduce'}: {seed}"
    ]


def failure_text(
    result: RunResult, *, path: str = "", arrivals: str = "", seeded: bool = True
) -> str:
    """Several lines: what broke, the events, the rule in words, how to see it again (unless it was
    not `seeded`: a seed says nothing of it).
    """
    lines = [
        (
            f"FAILED seed {result.seed} ({result.system}, {result.model}) "
            f"at step {result.steps}: {result.verdict}"
        )
    ]
    if result.violations:
        # The order oracle's report names both events and the missing edge: it explains best.
        first = min(result.violations, key=lambda violation: violation.oracle != "order")
        lines.append(first.text())
        if first.rule in RULES:
            lines.append(f"  rule {first.rule}: {RULES[first.rule]}")
        others = [v.oracle for v in result.violations if v.oracle != first.oracle]
        if others:
            lines.append(f"  also reported by: {', '.join(dict.fromkeys(others))}")
    if result.crash:
        lines.append(result.crash.rstrip())
    if result.divergence is not None:
        lines.append(f"  replay diverged at {result.divergence}")
    if result.options is not None:
        options = result.options
        on = ",".join(f"{name}={w}" for name, w in options.weights.items() if w)
        lines.append(f"  drawn: strategy {options.strategy}; weights {on}")
    if seeded:
        lines += repro_lines(result, path=path, arrivals=arrivals)
    return "\n".join(lines)


def summary_text(summary: Summary) -> str:
    """The end block of a campaign."""
    steps = summary.steps
    missing = summary.missing
    lines = [
        (
            f"{summary.schedules} schedule{'s'[: summary.schedules != 1]} of "
            f"{summary.system} in {summary.seconds:.1f} s on "
            f"{summary.jobs} jobs: {summary.schedules_per_s:.1f} schedules/s, "
            f"{summary.steps_per_s:.0f} steps/s"
        ),
        f"steps a schedule: min {steps.lowest}, median {steps.median}, max {steps.highest}",
        (
            f"steps above 90% occupancy: {summary.crowded_share:.1%}; with three or more "
            f"forwards in flight: {summary.busy_share:.1%}"
        ),
        "verdicts: " + (_pairs(summary.verdicts) or "none"),
        f"models: {_pairs(summary.models) or 'none'}",
        f"strategies (of the portfolio): {shares_text(summary.strategies) or 'none'}",
        *summary.pct.lines(),
        (
            f"reached {len(summary.planned) - len(missing)} of {len(summary.planned)} "
            f"planned situations; determinism checked on {summary.rechecked} schedules"
        ),
    ]
    if summary.real_accesses:
        share = summary.overlapping / summary.schedules
        lines.append(
            f"real accesses: {summary.real_accesses}; schedules in which accesses of two threads "
            f"overlapped in time: {summary.overlapping} ({share:.1%})"
        )
    if missing:
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        lines.append("never reached: " + ", ".join(missing[:NAMED_MAX]) + more)
        lines.append(summary.vacuity_text())
    if summary.failures:
        by = _pairs(summary.failures_by_oracle)
        lines.append(f"failures by oracle: {by}")
    return "\n".join(lines)


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
