"""Seeded arenas to look at: hand-made snapshots whose every number the tests know."""

from __future__ import annotations

import random

from onearena.core.rules import UseKind
from onearena.core.snapshot import (
    BandSnapshot,
    FenceSnapshot,
    GapSnapshot,
    Snapshot,
    UseSnapshot,
)

HOLE, LIVE, PENDING, VACATED = 1, 2, 3, 4


def seeded_band(draw, name, placement, index, *, unit_bytes, start, count, capacity_units):
    """A band of `count` units from address `start` on, states drawn, the outermost live."""
    states = draw.choices((HOLE, LIVE, PENDING, VACATED), weights=(2, 5, 2, 2), k=count)
    states[0] = states[-1] = LIVE
    low = 1 + draw.randrange(3)
    ids = tuple(
        (7 + at % 3) << 36 | index << 26 | at + 1 if state == LIVE else 0
        for at, state in enumerate(states)
    )
    return BandSnapshot(
        name=name,
        placement=placement,
        unit_bytes=unit_bytes,
        origin_bytes=start - low * unit_bytes,
        first_unit=1,
        capacity_units=capacity_units,
        low_unit=low,
        high_unit=low + count,
        live_units=states.count(LIVE),
        pending_units=states.count(PENDING),
        vacated_units=states.count(VACATED),
        hole_units=states.count(HOLE),
        states=bytes(states),
        ids=ids,
    )


def seeded_snapshot(seed, *, units=1000, unit_bytes=(64, 128, 32), epoch=1):
    """Three bands with `units` units in all, two gaps with a fence in each, every state."""
    draw = random.Random(seed)
    counts = (units // 5, units * 3 // 10, units - units // 5 - units * 3 // 10)
    sizes = [count * size for count, size in zip(counts, unit_bytes, strict=True)]
    gap = max(256, sum(sizes) // 20 // 128 * 128)
    starts = (0, sizes[0] + gap, sizes[0] + gap + sizes[1] + gap)
    arena_bytes = starts[2] + sizes[2]
    shapes = (("state", "low_end"), ("window_4096", "floating"), ("full", "high_end"))
    bands = tuple(
        seeded_band(
            draw,
            *shapes[index],
            index,
            unit_bytes=unit_bytes[index],
            start=starts[index],
            count=counts[index],
            capacity_units=arena_bytes // unit_bytes[index],
        )
        for index in range(3)
    )
    edges = ((sizes[0], starts[1]), (starts[1] + sizes[1], starts[2]))
    fences = tuple(
        FenceSnapshot(low, low + 128 * (1 + at), ((int(UseKind.FORWARD), at, 9, bool(at)),))
        for at, (low, _) in enumerate(edges)
    )
    gaps = tuple(
        GapSnapshot(low, high, high - low - 128 * (1 + at), 128 * (1 + at))
        for at, (low, high) in enumerate(edges)
    )
    uses = (
        UseSnapshot(11, int(UseKind.FORWARD), 0, 9, False, reads=((0, 3), (0, 4), (2, 5))),
        UseSnapshot(12, int(UseKind.MOVE), 2, 4, False, reads=((1, 6),), writes=((1, 9),)),
        UseSnapshot(13, int(UseKind.SEND), -1, 0, False, reads=((2, 8),)),
    )
    return Snapshot(
        epoch=epoch,
        arena_bytes=arena_bytes,
        bands=bands,
        gaps=gaps,
        fences=fences,
        uses=uses,
        slack_bytes=16,
        counters={"demands/decode/none/fits": 5, "demands/decode/none/blocked": 2},
    )
