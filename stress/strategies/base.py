"""What a strategy is: it chooses the kind of the next world step and the next step of the device.

A strategy sees names and counts, never the system under test. It draws from the run's choices with
`draw`: what it chose is recorded as the label of the step, so a replay needs no strategy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

from onearena.core.device.modeled import Step
from onearena.stress.choices import Choices


class Strategy(Protocol):
    """Chooses. One object a run."""

    name: str

    def kind(self, kinds: Sequence[str], weights: Sequence[int], can: Callable[[int], bool]) -> int:
        """Index of the kind of the next world step, one that `can` be taken now; -1 when none can.

        `kinds` and `weights` (positive) are the same lists all through a run. A guard may be
        costly: ask only for the kinds you would take.
        """

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """Index of the next device step."""


REJECTIONS_MAX: Final = 24

Make = Callable[[Choices], Strategy]


class RandomWalk:
    """Kinds by their weights, device steps evenly."""

    name = "random"

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._cumulative: list[int] = []

    def kind(self, kinds: Sequence[str], weights: Sequence[int], can: Callable[[int], bool]) -> int:
        """By weight among those possible: rejection sampling, which asks few guards."""
        cumulative = self._cumulative
        if not cumulative:
            cumulative += accumulate(weights)
        draw, total = self._choices.draw, cumulative[-1]
        for _ in range(REJECTIONS_MAX):
            index = bisect_right(cumulative, draw("strategy.kind", total))
            if can(index):
                return index
        able = [index for index in range(len(kinds)) if can(index)]
        if not able:
            return -1
        point = draw("strategy.kind", sum(weights[index] for index in able))
        for index in able:
            point -= weights[index]
            if point < 0:
                break
        # The guard of the chosen kind is asked last, as every guard's caller may rely on.
        assert can(index), f"{kinds[index]} was possible a moment ago"
        return index

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """Evenly."""
        return self._choices.draw("strategy.device", len(steps))


STALL_STEPS_MAX: Final = 60


class SlowReader(RandomWalk):
    """Stalls one stream (or the transfers) at a time for as long as other work exists, up to a
    drawn length.

    What a late reader or writer does to units freed, moved or overgrown meanwhile is where most
    pending, vacated and fenced mistakes show.
    """

    name = "slow-reader"

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._victim = ""
        self._left = 0

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """Anything but the victim, while there is anything else."""
        if not self._left:
            self._victim = names[self._choices.draw("strategy.victim", len(names))]
            self._left = 1 + self._choices.draw("strategy.stall", STALL_STEPS_MAX)
        self._left -= 1
        able = [index for index, name in enumerate(names) if name != self._victim]
        if not able:
            return self._choices.draw("strategy.device", len(steps))
        return able[self._choices.draw("strategy.device", len(able))]


class DelayBounded(RandomWalk):
    """Device steps first come first served, except for a few delays: most real device work is
    FIFO.
    """

    name = "delay-bounded"

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.delays = choices.draw("strategy.delays", 4)

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """The first one; one time in 16, while delays are left, another."""
        if self.delays and len(steps) > 1 and not self._choices.draw("strategy.delay", 16):
            self.delays -= 1
            return 1 + self._choices.draw("strategy.device", len(steps) - 1)
        return 0
