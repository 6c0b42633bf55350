"""Work that writes is left half done for as long as possible.

The counterpart of `SlowReader`: an operation that has begun, on a stream whose work writes units
(not one that copies to the host), gets no further step while anything else can run. Whoever reads
or takes over its bytes without waiting sees them torn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.modeled import Step, StepKind
from onearena.stress.choices import Choices
from onearena.stress.strategies.base import STALL_STEPS_MAX, RandomWalk

_BEGUN: Final = frozenset(
    (StepKind.EFFECT, StepKind.END, StepKind.TRANSFER_EFFECT, StepKind.TRANSFER_END)
)
_READERS: Final = "dev:d2h"


class SlowWriter(RandomWalk):
    """See the module."""

    name = "slow-writer"

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._victim = ""
        self._left = 0

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """Anything but the victim, while there is anything else."""
        if not self._left:
            begun = [
                name
                for step, name in zip(steps, names, strict=True)
                if step.kind in _BEGUN and not name.startswith(_READERS)
            ]
            if not begun:
                return self._choices.draw("strategy.device", len(steps))
            self._victim = begun[self._choices.draw("strategy.victim", len(begun))]
            self._left = 1 + self._choices.draw("strategy.stall", STALL_STEPS_MAX)
        self._left -= 1
        able = [index for index, name in enumerate(names) if name != self._victim]
        if not able:
            return self._choices.draw("strategy.device", len(steps))
        return able[self._choices.draw("strategy.device", len(able))]
