"""The interval formulation of relayout, computed without any cleverness: a test oracle.

A layout is one interval of each band's own grid, in chain order, over all of [0, S). Band i needs
``need`` cells in its interval and its fixed units inside; the live units outside move in.

``least_bytes`` sweeps every cell of every band once, O(cells), for arenas of any size.
``least_cost`` tries every interval of every band, for small arenas: it also counts waits and holes.
Neither bounds how far an edge may go, and neither looks at today's frontiers to find one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from cases import COUNTED, FIXED, FREED_SENDING, PENDING, VACATED, Case
from numpy.typing import NDArray

FREE, MOVABLE, HELD, HELD_FREE, UNSETTLED = range(5)
"""A cell: free, a live unit, a fixed live unit, a fixed freed unit, a pending or vacated one."""

IMPOSSIBLE = 1 << 60


@dataclass(frozen=True, slots=True)
class SweepBand:
    """One band: unit bytes, address of its first cell, and what each cell in [0, S) holds."""

    unit: int
    first: int
    cells: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class SweepArena:
    """S and the bands in chain order; the first is the low end, the last of several the high."""

    size: int
    bands: tuple[SweepBand, ...]


def arena_of(case: Case) -> SweepArena:
    bands = []
    for band in case.bands:
        cells = np.zeros(max(0, (case.size - band.anchor) // band.unit), dtype=np.int8)
        for start, letter in band.cells:
            code = FREE
            if letter in COUNTED:
                code = HELD if letter in FIXED else MOVABLE
            elif letter == FREED_SENDING:
                code = HELD_FREE
            elif letter in (PENDING, VACATED):
                code = UNSETTLED
            cells[(start - band.anchor) // band.unit] = code
        bands.append(SweepBand(band.unit, band.anchor, cells))
    return SweepArena(case.size, tuple(bands))


def least_bytes(arena: SweepArena, demand: tuple[int, ...], *, moves: tuple[bool, ...]) -> int:
    """Least bytes of live units outside their intervals; -1 if no layout serves the demand.

    ``moves[i]``: whether the live units of band i may lie outside.
    """
    # best[k]: least bytes so far with all bands below address reached[k].
    reached = np.zeros(1, dtype=np.int64)
    best = np.zeros(1, dtype=np.int64)
    last = len(arena.bands) - 1
    for index, band in enumerate(arena.bands):
        cells = len(band.cells)
        held = (band.cells == HELD) | (band.cells == HELD_FREE)
        live = (band.cells == HELD) | (band.cells == MOVABLE)
        need = int(live.sum() + (band.cells == HELD_FREE).sum() + demand[index])
        if need == 0:
            continue
        stays = held if moves[index] else live | held
        below = np.concatenate(([0], np.cumsum(live))) * band.unit
        low_cost = np.where(np.concatenate(([0], np.cumsum(stays))) > 0, IMPOSSIBLE, below)
        above = below[-1] - below
        stays_above = stays.sum() - np.concatenate(([0], np.cumsum(stays)))
        high_cost = np.where(stays_above > 0, IMPOSSIBLE, above)
        edges = band.first + band.unit * np.arange(cells + 1, dtype=np.int64)
        at = np.searchsorted(reached, edges, side="right") - 1
        low_cost = low_cost + np.where(at >= 0, best[np.maximum(at, 0)], IMPOSSIBLE)
        if index == 0:
            low_cost[1:] = IMPOSSIBLE
        if index == last and last > 0:
            high_cost[:-1] = IMPOSSIBLE
        if need > cells:
            return -1
        cheapest = np.minimum.accumulate(low_cost)[: cells + 1 - need]
        reached = edges[need:]
        best = np.minimum.accumulate(cheapest + high_cost[need:])
    return int(best[-1]) if best[-1] < IMPOSSIBLE else -1


Cost = tuple[int, int, int]
"""Bytes copied, waits, holes left."""


def least_cost(
    arena: SweepArena, demand: tuple[int, ...], *, moves: tuple[bool, ...]
) -> Cost | None:
    """The least (bytes, waits, holes left) over every choice of intervals; None: there is none.

    Waits: every pending or vacated unit that is written again (clean cells are used first), or
    left outside its band's interval. Holes left: cells inside that hold nothing live or fixed.
    """
    last = len(arena.bands) - 1

    @cache
    def rest(index: int, cursor: int) -> Cost | None:
        if index > last:
            return 0, 0, 0
        band = arena.bands[index]
        letters = band.cells.tolist()
        count = len(letters)
        need = demand[index] + sum(letter in (MOVABLE, HELD, HELD_FREE) for letter in letters)
        found: list[Cost] = []
        if need == 0:
            after = rest(index + 1, cursor)
            if after is not None:
                found.append((after[0], after[1] + letters.count(UNSETTLED), after[2]))
        lows = [0] if index == 0 else range(count + 1)
        for low in lows:
            if band.first + band.unit * low < cursor:
                continue
            highs = [count] if index == last > 0 else range(low + max(need, 1), count + 1)
            for high in highs:
                if high - low < max(need, 1):
                    continue
                outside = letters[:low] + letters[high:]
                if HELD in outside or HELD_FREE in outside:
                    continue
                if not moves[index] and MOVABLE in outside:
                    continue
                after = rest(index + 1, band.first + band.unit * high)
                if after is None:
                    continue
                inside = letters[low:high]
                moved = outside.count(MOVABLE)
                clean = inside.count(FREE)
                rewritten = max(0, moved + demand[index] - clean)
                waits = rewritten + outside.count(UNSETTLED)
                holes = high - low - need
                found.append((after[0] + moved * band.unit, after[1] + waits, after[2] + holes))
        return min(found, default=None)

    return rest(0, 0)
