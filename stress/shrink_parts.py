"""What shrinking measures: the size of a failing schedule, what must stay, what a candidate did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onearena.stress.calls import Call
from onearena.stress.choices import StepRecord
from onearena.stress.run import RunResult
from onearena.stress.world import World

CALLS_MAX: Final = 1 << 40
"""More host calls than any schedule makes."""
PURE_CALLS: Final = frozenset(("fits", "snapshot"))
NO: Final = 999
"""A chance decision of this value says no whatever its rate."""


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """How large a failing schedule is; compared field by field, the first one first.

    `host_calls` are calls of the world after set-up that may change the system's state;
    `host_steps` the world's steps they belong to; `values` how far all decisions are from their
    simplest, 0 (of chances: `NO`).
    """

    host_calls: int
    host_steps: int
    device_steps: int
    values: int

    def same_steps(self, other: Size) -> bool:
        """Equal but for the values."""
        return (self.host_calls, self.host_steps, self.device_steps) == (
            other.host_calls,
            other.host_steps,
            other.device_steps,
        )

    def words(self) -> str:
        """For people."""
        return (
            f"{self.host_calls} host calls in {self.host_steps} host steps, "
            f"{self.device_steps} device steps"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A candidate that fails the same way: its whole recording, its size, and the places of the
    steps that could not be taken.
    """

    steps: tuple[StepRecord, ...]
    size: Size
    skipped: frozenset[int]


@dataclass(frozen=True, slots=True)
class Target:
    """What must stay: verdict, the first report's oracle and rule, the order oracle's rule if it
    spoke, the last line of a crash.
    """

    verdict: str
    first: tuple[str, str]
    order_rule: str
    crash: str

    @classmethod
    def of(cls, result: RunResult) -> Target:
        """The failure of a run."""
        first = result.violations[0] if result.violations else None
        order = [v.rule for v in result.violations if v.oracle == "order"]
        crash = result.crash.strip().splitlines()[-1] if result.verdict == "crash" else ""
        return cls(
            result.verdict,
            ("", "") if first is None else (first.oracle, first.rule),
            order[0] if order else "",
            # Numbers in a message change with every candidate: the type of the error counts.
            crash.partition(":")[0],
        )

    def met(self, result: RunResult) -> bool:
        """Whether a run fails the same way; the order oracle may speak where it was silent."""
        now = Target.of(result)
        same = (now.verdict, now.first, now.crash) == (self.verdict, self.first, self.crash)
        return same and self.order_rule in ("", now.order_rule)


class TooLongError(Exception):
    """A candidate made more host calls than the schedule it was meant to replace."""


class Tally:
    """A probe: host calls, and the steps that could not be taken. Ends a run that makes more than
    `most` host calls: most candidates that pass would go on for long.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.calls = 0
        self.skipped: set[int] = set()
        self._world: World | None = None

    def begin(self, world: World) -> None:
        """A schedule starts."""
        self._world = world
        world.sut.follow(self._call)

    def _call(self, call: Call) -> None:
        if self._world is None:
            return  # the end of the run: it frees and retires what is left, which nobody chose
        if call.name not in PURE_CALLS and self._world.choices.step:
            self.calls += 1
            if self.calls > self.most:
                raise TooLongError(f"more than {self.most} host calls")

    def tick(self) -> None:
        """A step of the world is over."""
        assert self._world is not None, "ticks come after begin"
        choices = self._world.choices
        gone = choices.divergence
        # A step that is not possible is named by its label, which has no dot; a decision has one.
        if gone is not None and "." not in gone.name:
            self.skipped.add(choices.step)
        choices.divergence = None

    def end(self) -> None:
        """The schedule is over."""
        self._world = None


def is_device(step: StepRecord) -> bool:
    """Whether a step is the device's; the others are the host's."""
    return step.label.startswith("dev:")


def weight(value: int) -> int:
    """How far a value is from the simplest: 0, or, of a chance, `NO`."""
    return NO - value if NO // 2 < value <= NO else value


def size_of(steps: tuple[StepRecord, ...], host_calls: int) -> Size:
    """The size of a recording (set-up first) that made so many host calls."""
    devices = sum(1 for step in steps[1:] if is_device(step))
    values = sum(weight(v) for step in steps for vs in step.decisions.values() for v in vs)
    return Size(host_calls, len(steps) - 1 - devices, devices, values)
