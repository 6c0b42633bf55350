"""Partial-order sampling (POS): random priorities for steps, drawn anew where steps conflict.

The next device step of each actor has a random priority, and the highest one runs. Steps that may
conflict with it then get new ones, so that which of two conflicting steps comes first is a fair
draw each time, while independent steps add nothing to the number of outcomes (Yuan, Yang, Gu, CAV
2018). A strategy sees no bytes: two effects may touch the same ones, and a stream's waiting
conflicts with whatever completes an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.modeled import Step, StepKind
from onearena.stress.choices import Choices
from onearena.stress.strategies.base import RandomWalk

_EFFECTS: Final = frozenset((StepKind.EFFECT, StepKind.TRANSFER_EFFECT))
_EVENTS: Final = frozenset((StepKind.PASS, StepKind.COMPLETE))
_HIGH: Final = 1 << 24


class PartialOrder(RandomWalk):
    """See the module."""

    name = "pos"

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._priority: dict[str, tuple[StepKind, int]] = {}

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """The step of highest priority; those in conflict with it draw again."""
        known = self._priority
        for step, name in zip(steps, names, strict=True):
            # An actor whose next step is another one now has a new step: it draws.
            if name not in known or known[name][0] is not step.kind:
                known[name] = (step.kind, self._choices.draw("pos.priority", _HIGH))
        chosen = max(range(len(names)), key=lambda index: known[names[index]][1])
        ran = steps[chosen].kind
        del known[names[chosen]]
        for step, name in zip(steps, names, strict=True):
            if name in known and conflict(ran, step.kind):
                del known[name]
        return chosen


def conflict(one: StepKind, other: StepKind) -> bool:
    """Whether the order of two steps of different actors may matter."""
    return (one in _EFFECTS and other in _EFFECTS) or (one in _EVENTS and other in _EVENTS)
