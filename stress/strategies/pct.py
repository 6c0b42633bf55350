"""Priority-based probabilistic testing (PCT) of the device's side of a schedule.

Every device actor (a stream, or a transfer by its rank) has a random priority; the runnable one of
highest priority takes the next device step. At `depth - 1` device steps, drawn beforehand, the
actor that would run falls below all others: the i-th point drawn gives the i-th lowest priority,
whichever comes first in time. With n actors and points drawn among the
first K steps, one run hits any given bug that takes `depth` ordering constraints between device
steps with probability at least 1 / (n * K ** (depth - 1)) (Burckhardt, Kothari, Musuvathi,
Nagarakatti, ASPLOS 2010), given the host's program. Host steps are no actor here: they come by
weight, as in `RandomWalk`, or the highest priority would be theirs all through a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.modeled import Step
from onearena.stress.choices import Choices
from onearena.stress.strategies.base import RandomWalk

POINTS_AMONG: Final = 256
"""K: change points are drawn among the first so many device steps; a schedule has fewer steps."""
DEPTHS: Final = (1, 2, 3, 4)
_HIGH: Final = 1 << 24


class Pct(RandomWalk):
    """See the module. `actors` and `taken` are n and k of this run."""

    def __init__(self, choices: Choices, depth: int) -> None:
        assert depth in DEPTHS, f"depth {depth} is not among {DEPTHS}"
        super().__init__(choices)
        self.name = f"pct-{depth}"
        self.depth = depth
        self.taken = 0
        self._priority: dict[str, int] = {}
        # (device step, priority it gives): all below the first priorities, which start at 1.
        self._points = sorted(
            (choices.draw("pct.point", POINTS_AMONG), order - depth) for order in range(1, depth)
        )

    @property
    def actors(self) -> int:
        """Device actors seen so far."""
        return len(self._priority)

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """The runnable actor of highest priority, after a change if one is due."""
        for name in names:
            if name not in self._priority:
                # Equal draws are ordered by when they were seen, which is fixed too.
                self._priority[name] = 1 + self._choices.draw("pct.priority", _HIGH)
        chosen = self._highest(names)
        while self._points and self._points[0][0] <= self.taken:
            self._priority[names[chosen]] = self._points.pop(0)[1]
            chosen = self._highest(names)
        self.taken += 1
        return chosen

    def _highest(self, names: Sequence[str]) -> int:
        return max(range(len(names)), key=lambda index: self._priority[names[index]])


def least_probability(actors: int, depth: int, among: int = POINTS_AMONG) -> float:
    """The bound: 1 / (n * K ** (depth - 1)); 0 without an actor."""
    return 1 / (actors * among ** (depth - 1)) if actors else 0.0
