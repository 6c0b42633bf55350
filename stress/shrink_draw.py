"""Candidates that shrinking draws: set-ups near the simplest, schedules near the one at hand.

Removing steps one or two at a time ends in the nearest small schedule. The least one is often
somewhere else: in an arena with one band, where a call that concerns each band is one call; in an
arena just large enough, where no step is needed to fill it. A change of the arena alone mostly
makes the failure vanish, since the lengths of requests and which unit is touched have to change
with it. So several things change at once, and what is left open is drawn by the candidate's own
seed. Pure in `rng`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from onearena.stress.choices import StepRecord
from onearena.stress.shrink_parts import NO, is_device
from onearena.stress.workload import STEP_KINDS

Steps = tuple[StepRecord, ...]
Setup = dict[str, Sequence[int]]

CHANCE_LEAST: Final = 100
"""Decisions that were ever this large are taken for chances, and `NO` is tried for them too."""
MODEL: Final = "arena.model"
MODELS: Final = 9
"""As many as there are; a value beyond the last one would be taken again from the first."""
ONE_BAND: Final = 7
"""The model that has one band only."""
OFF: Final = "swarm.off"
DROPPED: Final = (0, 0, 1, 1, 1, 2, 2, 3)
"""How many steps of `DROPPED_OF` a varied schedule loses, drawn evenly; of long ones more."""
DROPPED_OF: Final = 16
KINDS: Final = tuple(kind for kind in STEP_KINDS if kind != "device")


def simplest(value: int) -> int:
    """0, or `NO` for what looks like a chance."""
    return NO if value >= CHANCE_LEAST else 0


def drawn_setup(steps: Steps, rng: random.Random) -> Setup:
    """For a schedule drawn anew: each name of the set-up as it is or at its simplest; the model is
    often another one, and kinds of step that `steps` do without are mostly left out.
    """
    setup: Setup = {}
    for name, values in steps[0].decisions.items():
        simple = [simplest(value) for value in values]
        setup[name] = simple if rng.random() < 0.5 else list(values)
    if MODEL in setup and rng.random() < 0.7:
        # A call that concerns each band counts once a band: one band makes short schedules.
        setup[MODEL] = [ONE_BAND if rng.random() < 0.5 else rng.randrange(MODELS)]
    if OFF in setup:
        used = {step.label for step in steps[1:]}
        optional = [kind for kind, (_, off) in STEP_KINDS.items() if off]
        setup[OFF] = [
            NO if kind in used or rng.random() < 0.2 else 0 for kind in optional[: len(setup[OFF])]
        ]
    return setup


def varied(steps: Steps, rng: random.Random) -> Steps:
    """`steps` with another set-up, fewer steps, now and then one of another kind, and part of
    their decisions left open.
    """
    kept = list(steps[1:])
    for _ in range(rng.choice(DROPPED) * -(-len(kept) // DROPPED_OF)):
        if kept:
            del kept[rng.randrange(len(kept))]
    change = rng.random()
    if change < 0.2:
        kept.insert(rng.randint(0, len(kept)), StepRecord(rng.choice(KINDS)))
    elif change < 0.35 and kept:
        kept[rng.randrange(len(kept))] = StepRecord(rng.choice(KINDS))
    elif change < 0.5 and kept:
        step = kept.pop(rng.randrange(len(kept)))
        kept.insert(rng.randint(0, len(kept)), step)
    opened = rng.choice((0.0, 0.2, 0.5))
    loose = [
        step
        if is_device(step)
        else StepRecord(
            step.label, {n: v for n, v in step.decisions.items() if rng.random() >= opened}
        )
        for step in kept
    ]
    return (StepRecord("setup", _near(steps[0].decisions, rng)), *loose)


def _near(setup: Mapping[str, Sequence[int]], rng: random.Random) -> Setup:
    """The set-up as it is, or with part of its names at their simplest or left open."""
    near = dict(setup)
    if rng.random() < 0.25:
        return near
    for name, values in setup.items():
        point = rng.random()
        if point < 0.15:
            near[name] = [simplest(value) for value in values]
        elif point < 0.35 and name != OFF:
            del near[name]
    if MODEL in setup:
        point = rng.random()
        if point < 0.5:
            near[MODEL] = [ONE_BAND]
        else:
            near[MODEL] = [rng.randrange(MODELS)] if point < 0.6 else setup[MODEL]
    return near
