"""Random arenas of a thousand to a hundred thousand units, as cells for the sweep and as words."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from cases import SCALE
from numpy.typing import NDArray
from relayout_sweep import FREE, HELD, HELD_FREE, MOVABLE, UNSETTLED, SweepArena, SweepBand
from words_case import TRANSFER, USE

from onearena.core import words as layout
from onearena.core.geometry import ArenaGeometry, chain_geometry
from onearena.core.words import Words, band_header, create_words

CELL_WORDS = {
    FREE: layout.HOLE,
    MOVABLE: layout.LIVE,
    HELD: layout.LIVE | layout.UNIT_PINNED,
    HELD_FREE: layout.PENDING | TRANSFER,
    UNSETTLED: layout.PENDING | USE,
}


@dataclass(frozen=True, slots=True)
class BigCase:
    """An arena in small bytes (the product's is 16 times as large), frontiers, and a demand.

    ``frontiers[i]`` counts cells from the band's first one; equal ones: it has no unit.
    """

    arena: SweepArena
    frontiers: tuple[tuple[int, int], ...]
    demand: tuple[int, ...]


def big_case(rng: random.Random) -> BigCase:
    """A valid layout with narrow gaps, so that a demand of some dozen units has to move others."""
    units_wanted = int(10 ** rng.uniform(3, 5))
    count = rng.choice((2, 3, 3, 4, 5))
    units = [rng.randint(1, rng.choice((3, 9, 40))) for _ in range(count)]
    shares = [rng.uniform(0.2, 1) for _ in range(count)]
    bytes_of = [
        share / sum(shares) * units_wanted * unit for share, unit in zip(shares, units, strict=True)
    ]
    size = int(sum(bytes_of))
    generator = np.random.default_rng(rng.getrandbits(32))
    pending = rng.choice((0.0, 0.3))
    fixing = rng.choice((0.0, 0.0, 1e-4, 1e-2))
    bands, frontiers = [], []
    cursor = 0.0
    edge = 0
    for index, unit in enumerate(units):
        first = 0
        if index == count - 1:
            first = size % unit
        elif index:
            first = rng.randrange(unit)
        cells = max(0, (size - first) // unit)
        cursor += bytes_of[index]
        low = max(0, -((first - edge) // unit)) + (rng.randint(0, 6) if index else 0)
        high = min(cells, (int(cursor) - first) // unit - rng.randint(0, 3))
        if index == count - 1:
            high = cells
        if rng.random() < 0.08 and 0 < index < count - 1:
            high = low
        low = min(low, cells)
        high = max(low, high)
        fullness = rng.choice((0.5, 0.9, 0.99, 1.0, 1.0))
        draw = generator.random(high - low)
        inside = np.where(generator.random(high - low) < pending, UNSETTLED, FREE)
        inside = np.where(draw < fullness, MOVABLE, inside)
        held = generator.random(high - low) < fixing
        inside = np.where(held, np.where(inside == MOVABLE, HELD, HELD_FREE), inside)
        letters = np.zeros(cells, dtype=np.int8)
        letters[low:high] = inside
        bands.append(SweepBand(unit, first, letters))
        frontiers.append((low, high))
        if high > low:
            edge = first + unit * high
    demand = [0] * count
    for index in rng.sample(range(count), rng.randint(1, min(3, count))):
        demand[index] = rng.randint(1, rng.choice((4, 40, 300)))
    return BigCase(SweepArena(size, tuple(bands)), tuple(frontiers), tuple(demand))


def geometry_of_big(case: BigCase) -> ArenaGeometry:
    bands = case.arena.bands
    return chain_geometry(
        case.arena.size * SCALE,
        [(f"band{index}", band.unit * SCALE) for index, band in enumerate(bands)],
        float_anchor_bytes=[band.first * SCALE for band in bands[1:-1]],
    )


def words_of_big(case: BigCase) -> Words:
    words = create_words(geometry_of_big(case), arena=0)
    for index, (band, (low, high)) in enumerate(zip(case.arena.bands, case.frontiers, strict=True)):
        head = band_header(index)
        first = int(words[head + layout.B_FIRST])
        if low == high:
            continue
        words[head + layout.B_LOW], words[head + layout.B_HIGH] = first + low, first + high
        table = int(words[head + layout.B_UNIT_WORD]) + first
        cells = band.cells
        lookup = np.array([CELL_WORDS[code] for code in range(5)], dtype=np.int64)
        words[table + low : table + high] = lookup[cells[low:high]]
        inside = np.zeros(len(cells), dtype=bool)
        inside[low:high] = True
        live = (cells == MOVABLE) | (cells == HELD)
        released = (cells == UNSETTLED) | (cells == HELD_FREE)
        words[head + layout.B_LIVE] = live.sum()
        words[head + layout.B_PENDING] = released.sum()
        words[head + layout.B_FREED_FIXED] = (cells == HELD_FREE).sum()
        words[head + layout.B_HOLE] = (inside & (cells == FREE)).sum()
        put_map(words, head + layout.B_HOLE_MAP, inside & (cells == FREE))
        put_map(words, head + layout.B_OCCUPIED_MAP, live | released)
        put_map(words, head + layout.B_FIXED_MAP, (cells == HELD) | (cells == HELD_FREE))
        put_map(words, head + layout.B_RELEASED_MAP, released)
    return words


def put_map(words: Words, at: int, bits: NDArray[np.bool_]) -> None:
    """Write a hierarchical bitmap level by level."""
    level = 0
    while True:
        blocks = -(-len(bits) // 64)
        padded = np.zeros(blocks * 64, dtype=bool)
        padded[: len(bits)] = bits
        packed = np.packbits(padded, bitorder="little").view(np.int64)
        start = int(words[at + level])
        words[start : start + blocks] = packed
        if blocks == 1:
            return
        bits = packed != 0
        level += 1
