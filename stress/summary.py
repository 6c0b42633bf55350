"""What a campaign did: counts, verdicts, reach, and the exit code they amount to."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from onearena.stress.reach import VACUITY_SCHEDULES, count_of
from onearena.stress.run import RunResult
from onearena.stress.strategies.portfolio import PctCount

FAILURES_KEPT_MAX: Final = 100
EXIT_PASS: Final = 0
EXIT_RULE: Final = 1
EXIT_NONDETERMINISM: Final = 3
EXIT_LIVENESS: Final = 4
EXIT_VACUITY: Final = 5
EXIT_NOTHING: Final = 6
EXIT_INTERRUPTED: Final = 130


class Histogram:
    """Exact counts of small integers: minimum, median and maximum without keeping the values."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0

    def add(self, value: int) -> None:
        """One more value."""
        self.counts[value] = self.counts.get(value, 0) + 1
        self.total += 1

    @property
    def lowest(self) -> int:
        """The least value, 0 when empty."""
        return min(self.counts, default=0)

    @property
    def highest(self) -> int:
        """The greatest value, 0 when empty."""
        return max(self.counts, default=0)

    @property
    def median(self) -> int:
        """The lower median, 0 when empty."""
        seen = 0
        for value in sorted(self.counts):
            seen += self.counts[value]
            if 2 * seen >= self.total:
                return value
        return 0


@dataclass(slots=True)
class Summary:
    """What a campaign did; `to_json` is the machine's form."""

    system: str = "arena"
    jobs: int = 1
    first: int = 0
    schedules: int = 0
    seconds: float = 0.0
    steps: Histogram = field(default_factory=Histogram)
    step_total: int = 0
    crowded_steps: int = 0
    busy_steps: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    reach: dict[str, int] = field(default_factory=dict)
    failures: list[RunResult] = field(default_factory=list)
    failures_by_oracle: dict[str, int] = field(default_factory=dict)
    rechecked: int = 0
    nondeterministic: list[int] = field(default_factory=list)
    real_accesses: int = 0
    overlapping: int = 0  # schedules in which accesses of two threads overlapped in time
    strategies: dict[str, int] = field(default_factory=dict)
    pct: PctCount = field(default_factory=PctCount)
    planned_names: tuple[str, ...] = ()
    next_seed: int = 0
    interrupted: bool = False
    default_profile: bool = True  # whether the reach is judged
    judged_from: dict[str, int] = field(default_factory=dict)  # planned name -> schedules

    @property
    def schedules_per_s(self) -> float:
        """Schedules a second of wall time, all jobs together."""
        return self.schedules / self.seconds if self.seconds else 0.0

    @property
    def steps_per_s(self) -> float:
        """World steps a second of wall time."""
        return self.step_total / self.seconds if self.seconds else 0.0

    @property
    def crowded_share(self) -> float:
        """Share of steps above 90% occupancy."""
        return self.crowded_steps / self.step_total if self.step_total else 0.0

    @property
    def busy_share(self) -> float:
        """Share of steps with three or more forwards in flight."""
        return self.busy_steps / self.step_total if self.step_total else 0.0

    @property
    def planned(self) -> dict[str, int]:
        """How often each planned situation was reached."""
        return {name: count_of(self.reach, name) for name in self.planned_names}

    @property
    def missing(self) -> list[str]:
        """Planned situations that were never reached."""
        return [name for name, count in self.planned.items() if not count]

    @property
    def vacuous(self) -> list[str]:
        """Those that so many schedules of the default profile should have reached."""
        if not self.default_profile or self.schedules < VACUITY_SCHEDULES:
            return []
        late = self.judged_from
        return [name for name in self.missing if self.schedules >= late.get(name, 0)]

    def vacuity_text(self) -> str:
        """Whether what was never reached counts, and why not; empty if all was reached."""
        missing, vacuous = self.missing, self.vacuous
        if not missing:
            return ""
        if vacuous:
            return f"VACUITY: so many schedules should have reached {len(vacuous)} of these"
        if not self.default_profile:
            return "not judged: these are no schedules of the default profile"
        if self.schedules < VACUITY_SCHEDULES:
            return f"not judged: that takes {VACUITY_SCHEDULES} schedules"
        needed = max(self.judged_from.get(name, 0) for name in missing)
        return f"not judged: they are rare, and judged from {needed} schedules on"

    def add(self, result: RunResult, *, strategy: str | None = None) -> None:
        """Take one result. `strategy` is that of a stored one, whose options were not kept.

        The sums do not depend on the order of the calls: of more than `FAILURES_KEPT_MAX` failures
        those of the lowest seeds stay.
        """
        self.schedules += 1
        self.steps.add(result.steps)
        self.real_accesses += result.real_accesses
        self.overlapping += result.real_overlaps > 0
        self.step_total += result.steps
        self.crowded_steps += result.crowded_steps
        self.busy_steps += result.busy_steps
        self.verdicts[result.verdict] = self.verdicts.get(result.verdict, 0) + 1
        self.models[result.model] = self.models.get(result.model, 0) + 1
        name = strategy or ("" if result.options is None else result.options.strategy)
        if name:
            self.strategies[name] = self.strategies.get(name, 0) + 1
        if result.pct[0]:
            self.pct.add(*result.pct)
        for name, count in result.reach.items():
            self.reach[name] = self.reach.get(name, 0) + count
        if result.verdict != "pass":
            oracle = result.violations[0].oracle if result.violations else result.verdict
            self.failures_by_oracle[oracle] = self.failures_by_oracle.get(oracle, 0) + 1
            insort(self.failures, result, key=lambda failure: failure.seed)
            del self.failures[FAILURES_KEPT_MAX:]

    def note_difference(self, seed: int) -> None:
        """Two runs of a seed differ."""
        insort(self.nondeterministic, seed)

    def exit_code(self) -> int:
        """The code of a finished campaign."""
        if self.nondeterministic:
            return EXIT_NONDETERMINISM
        if any(name in self.verdicts for name in ("violation", "crash")):
            return EXIT_RULE
        if "stuck" in self.verdicts:
            return EXIT_LIVENESS
        if self.interrupted:
            return EXIT_INTERRUPTED
        if not self.schedules:
            return EXIT_NOTHING
        if self.vacuous:
            return EXIT_VACUITY
        return EXIT_PASS

    def to_json(self) -> dict[str, object]:
        """Plain, versioned."""
        return {
            "version": 1,
            "system": self.system,
            "jobs": self.jobs,
            "first_seed": self.first,
            "next_seed": self.next_seed,
            "schedules": self.schedules,
            "seconds": round(self.seconds, 3),
            "schedules_per_second": round(self.schedules_per_s, 2),
            "steps_per_second": round(self.steps_per_s, 1),
            "steps": {
                "total": self.step_total,
                "min": self.steps.lowest,
                "median": self.steps.median,
                "max": self.steps.highest,
            },
            "share_above_90_percent": round(self.crowded_share, 4),
            "share_three_forwards": round(self.busy_share, 4),
            "verdicts": dict(sorted(self.verdicts.items())),
            "models": dict(sorted(self.models.items())),
            "strategies": dict(sorted(self.strategies.items())),
            "pct": self.pct.to_json(),
            "reach": dict(sorted(self.reach.items())),
            "planned": dict(sorted(self.planned.items())),
            "never_reached": self.missing,
            "vacuous": self.vacuous,
            "rechecked": self.rechecked,
            "real_accesses": self.real_accesses,
            "overlapping_schedules": self.overlapping,
            "nondeterministic_seeds": self.nondeterministic,
            "failures": [
                {
                    "seed": failure.seed,
                    "model": failure.model,
                    "verdict": failure.verdict,
                    "step": failure.steps,
                    "violations": [violation.to_json() for violation in failure.violations],
                    "crash": failure.crash,
                }
                for failure in self.failures
            ],
            "interrupted": self.interrupted,
            "exit_code": self.exit_code(),
        }
