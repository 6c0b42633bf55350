"""Capacity by first principles: the packing inequality, with fixed units, and the least cost.

Pure functions on plain numbers, written from sections 4 and 6 and used as oracles; slow where that
is simpler. A layout is one interval of each band's own grid, in chain order, low to high, each
holding its band's units; the low end's starts at 0, the high end's ends at S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from onearena.stress.sut import BandFacts

LOW_END: Final = "low_end"
HIGH_END: Final = "high_end"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Units of one band that may not move now: `held` count as handed out, `freed` do not."""

    held: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()


def shortfall(bands: Sequence[BandFacts], arena_bytes: int, counts: Sequence[int]) -> int:
    """By how many bytes `counts` units a band do not fit, whatever moves; 0 if they fit.

    Section 4: the low end takes n0*u0, each non-empty float starts at the next point of its grid,
    and the last end is at most S - nk*uk.
    """
    cursor, high = 0, arena_bytes
    for band, count in zip(bands, counts, strict=True):
        if band.placement == HIGH_END:
            high -= count * band.unit_bytes
        elif band.placement == LOW_END:
            cursor = count * band.unit_bytes
        elif count:
            cursor += (band.origin_bytes - cursor) % band.unit_bytes + count * band.unit_bytes
    return max(0, cursor - high)


def fits_around(
    bands: Sequence[BandFacts],
    arena_bytes: int,
    counts: Sequence[int],
    fixed: Sequence[Fixed],
) -> bool:
    """Whether a layout holds `counts` with the fixed units where they are.

    A band's interval holds all its fixed units, and cells enough besides the freed ones. Taking
    every interval as low as it goes is best: that gives each its lowest end.
    """
    cursor = 0
    for band, count, stay in zip(bands, counts, fixed, strict=True):
        units = (*stay.held, *stay.freed)
        cells = count + len(stay.freed)
        if not cells and not units:
            continue
        if band.placement == HIGH_END:
            end = band.first_unit + band.capacity_units
            low = min([end - cells, *units])
            if low < band.first_unit or _start(band, low) < cursor:
                return False
            continue
        low = band.first_unit
        if band.placement != LOW_END:
            low = -((band.origin_bytes - cursor) // band.unit_bytes)
        if units and low > min(units):
            return False
        cursor = _start(band, max([low + cells, *(unit + 1 for unit in units)]))
        if cursor > arena_bytes:
            return False
    return cursor <= arena_bytes


def least_cost(
    bands: Sequence[BandFacts],
    arena_bytes: int,
    counts: Sequence[int],
    fixed: Sequence[Fixed],
    live: Sequence[Sequence[int]],
) -> int | None:
    """Least bytes of `live` units outside their band's interval, over all layouts; None: none.

    Tries every interval of every band: O(bands * units^2). For tiny arenas.
    """
    edges = {0, arena_bytes}
    for band in bands:
        units = range(band.first_unit, band.first_unit + band.capacity_units + 1)
        edges.update(_start(band, unit) for unit in units)
    points = {edge: index for index, edge in enumerate(sorted(edges))}
    best: list[float] = [0.0] * len(points)  # least cost of the bands so far, ending by each edge
    for band, count, stay, units_live in zip(bands, counts, fixed, live, strict=True):
        best = _with_band(band, count, stay, frozenset(units_live), best, points)
    return None if best[-1] == inf else int(best[-1])


def _with_band(
    band: BandFacts,
    count: int,
    stay: Fixed,
    live: frozenset[int],
    before: list[float],
    points: dict[int, int],
) -> list[float]:
    """`before` extended by one more band of the chain."""
    first, end = band.first_unit, band.first_unit + band.capacity_units
    total = len(live) * band.unit_bytes
    after: list[float] = [inf] * len(before)
    freed = frozenset(stay.freed)
    fixed = (*stay.held, *stay.freed)
    if not count and not fixed:
        after = [cost + total for cost in before]
    last = max(fixed, default=first - 1)
    lows = [first] if band.placement == LOW_END else range(first, end + 1)
    for low in lows:
        base = before[points[_start(band, low)]]
        if base == inf or (fixed and low > min(fixed)):
            continue
        inside = usable = 0
        for high in range(low, end + 1):
            enough = usable >= count and high > last
            if enough and (band.placement != HIGH_END or high == end):
                point = points[_start(band, high)]
                cost = base + total - inside * band.unit_bytes
                after[point] = min(after[point], cost)
            if high < end:
                inside += high in live
                usable += high not in freed
    for point in range(1, len(after)):  # ending earlier is ending by here as well
        after[point] = min(after[point], after[point - 1])
    return after


def _start(band: BandFacts, unit: int) -> int:
    return band.origin_bytes + unit * band.unit_bytes
