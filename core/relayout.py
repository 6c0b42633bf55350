"""The cheapest plan of moves that serves a demand: pure, from a frozen view to plain data.

A layout is one interval of each band's own grid, in chain order; every live unit outside its
band's new interval moves in, once. Plans are ordered by bytes copied, then rung, waits, holes
left, and lowest address; none touches a unit under a transfer. ``docs/relayout.md`` defines each
term and proves that an interval choice of least bytes is a cheapest sequence of moves.

The choice is a shortest path along the chain: a state is the address up to which the bands so far
reach, and each band adds the cost of the interval it takes. Only edges within ``reach_bytes`` of
today's are tried, so the work follows the demand and never the pool.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onearena.core.answers import Blocked, Demand, Fits, Infeasible, Rung
from onearena.core.fit import check_demand, fits
from onearena.core.geometry import Placement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onearena.core.view import ArenaView, BandView

Units = NDArray[np.int64]
Interval = tuple[int, int]
"""``[low, high)`` in units of a band's own grid; ``(0, 0)``: the band has no unit."""

CLOSED: Interval = (0, 0)


class Waits(enum.IntEnum):
    """What the writes of a batch wait for, beyond earlier writers of its sources."""

    NOTHING = 0
    """Every target is a hole, or lay beyond every frontier before this plan."""
    SETTLE = 1
    """Some target is pending or vacated, or its bytes are a fence that this plan leaves."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Copies inside one band: ``sources[k]`` to ``targets[k]``, int64 unit numbers.

    No source is a target, so one batch never reads bytes it writes.
    """

    band: int
    sources: Units
    targets: Units
    waits: Waits


@dataclass(frozen=True, slots=True)
class FrontierChange:
    """New frontiers ``[low_unit, high_unit)`` of a band; equal ones: it has no unit."""

    band: int
    low_unit: int
    high_unit: int


@dataclass(frozen=True, slots=True)
class FencedRange:
    """Bytes that a retreating frontier leaves behind with a use outstanding or a copy reading."""

    band: int
    start_bytes: int
    end_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves that make room for ``demand``, and the cells that then serve it.

    ``frontiers`` and ``batches`` are in the order of execution, at most one of each per band; the
    frontier of a band grows before its batch and retreats after it. ``grants`` holds, per band,
    the units for the demand: holes and new cells first, pending and vacated ones (which need a
    settle wait) last. ``waits`` counts pending and vacated units that are written again or left
    beyond a frontier. ``holes_left`` counts free cells inside all bands once the demand is
    handed out, unsettled ones included.
    """

    epoch: int
    demand: Demand
    rung: Rung
    frontiers: tuple[FrontierChange, ...]
    batches: tuple[Batch, ...]
    fenced: tuple[FencedRange, ...]
    grants: tuple[Units, ...]
    copied_bytes: int
    waits: int
    holes_left: int


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What a layout costs, most important first; layouts of one rung are compared."""

    copied_bytes: int = 0
    waits: int = 0
    holes_left: int = 0
    address: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.copied_bytes + other.copied_bytes,
            self.waits + other.waits,
            self.holes_left + other.holes_left,
            self.address + other.address,
        )


@dataclass(frozen=True, slots=True)
class _State:
    """The bands so far reach up to ``end_bytes``, at this cost, with these intervals."""

    end_bytes: int
    cost: Cost
    intervals: tuple[Interval, ...]


def plan(view: ArenaView, demand: Demand) -> Plan | Blocked | Infeasible:
    """The first plan in the order of plans, or why there is none now.

    Pure; any thread. A plan holds for the view's epoch only. O(units) here to read the sets; the
    search itself costs O(bands * (reach / unit)^2).
    """
    check_demand(view, demand)
    answer = fits(view, demand)
    if not isinstance(answer, Fits):
        return answer
    rung, state = _cheapest(view, demand, answer.rung)
    intervals = _spread_opened(view, state.intervals)
    return _as_plan(view, demand, rung, state.cost, intervals)


def reach_bytes(view: ArenaView, demand: Demand) -> int:
    """How far any edge may have to retreat: the demand's bytes plus one unit of every band."""
    return sum(
        (more + 1) * band.grid.unit_bytes for band, more in zip(view.bands, demand, strict=True)
    )


def _cheapest(view: ArenaView, demand: Demand, lowest: Rung) -> tuple[Rung, _State]:
    """The rung and layout of least bytes, then least rung, then least cost.

    A higher rung allows all that a lower one does, so its least bytes are no more; it is taken
    only where they are fewer.
    """
    best: tuple[Rung, _State] | None = None
    for rung in Rung:
        if rung < lowest:
            continue
        state = _search(view, demand, rung)
        if state is None:
            continue
        if best is None or state.cost.copied_bytes < best[1].cost.copied_bytes:
            best = rung, state
        if state.cost.copied_bytes == 0:
            break
    assert best is not None, f"demand {demand} fits on {lowest!r} and no layout was found"
    return best


def _search(view: ArenaView, demand: Demand, rung: Rung) -> _State | None:
    """Least-cost layout in which only the units that ``rung`` lets move lie outside."""
    reach = reach_bytes(view, demand)
    states = [_State(0, Cost(), ())]
    for band, more in zip(view.bands, demand, strict=True):
        stays = rung is Rung.NONE or (rung is Rung.COMPACT and band.is_float)
        states = _extend(band, more, states, reach, stays=stays)
        if not states:
            return None
    inside = [state for state in states if state.end_bytes <= view.geometry.arena_bytes]
    return min(inside, key=lambda state: state.cost, default=None)


def _extend(
    band: BandView, more: int, states: Sequence[_State], reach: int, *, stays: bool
) -> list[_State]:
    """All undominated states after ``band``, by ascending end."""
    edges = _Edges(band, more, reach, stays=stays)
    found: list[_State] = []
    if edges.need == 0:
        # A band that needs no cell is transparent; what it still has unsettled becomes fences.
        away = Cost(waits=len(band.unsettled))
        empty = _empty_interval(band)
        found = [
            _State(state.end_bytes, state.cost + away, (*state.intervals, empty))
            for state in states
        ]
        if not band.unsettled:
            return found
    ends = [state.end_bytes for state in states]
    # Undominated states get cheaper as they reach further, so the last one below is the cheapest.
    for low, high in edges.choices(ends):
        at = bisect_right(ends, band.grid.start(low)) - 1
        if at >= 0:
            before = states[at]
            found.append(
                _State(
                    band.grid.start(high),
                    before.cost + edges.cost(low, high),
                    (*before.intervals, (low, high)),
                )
            )
    return _undominated(found)


def _empty_interval(band: BandView) -> Interval:
    """The interval of a band without units: where it will grow from; a float has no such place."""
    at = {
        Placement.LOW_END: band.grid.first_unit,
        Placement.FLOATING: CLOSED[0],
        Placement.HIGH_END: band.grid.end_unit,
    }[band.geometry.placement]
    return at, at


def _undominated(states: Iterable[_State]) -> list[_State]:
    """The states that no other one beats on both end and cost, by ascending end."""
    kept: list[_State] = []
    for state in sorted(states, key=lambda state: (state.end_bytes, state.cost)):
        if not kept or state.cost < kept[-1].cost:
            kept.append(state)
    return kept


class _Edges:
    """The intervals that one band may take, and what each costs."""

    def __init__(self, band: BandView, more: int, reach: int, *, stays: bool) -> None:
        self.band = band
        self.need = len(band.handed_out) + len(band.freed_fixed) + more
        self._core = band.core_range
        self._steps = reach // band.grid.unit_bytes + 1
        inside = (band.handed_out | band.freed_fixed) if stays else band.fixed
        self._lowest = min(inside, default=None)
        self._highest = max(inside, default=None)

    def choices(self, ends: Sequence[int]) -> Iterable[Interval]:
        """Intervals with enough cells, all fixed units, and edges within reach of today's.

        ``ends`` are the addresses that the bands below may reach up to: a float that has no
        unit today opens just above one of them.
        """
        grid, placement = self.band.grid, self.band.geometry.placement
        first, last, steps = grid.first_unit, grid.end_unit, self._steps
        low, high = self._core
        if placement is Placement.FLOATING and low == high:
            lows = sorted({max(first, grid.first_at_or_after(end)) for end in ends})
            return [(at, at + self.need) for at in lows if at + self.need <= last]
        lows_range = range(max(first, low - steps), min(last, low + steps) + 1)
        highs_range = range(max(first, high - steps), min(last, high + steps) + 1)
        if placement is Placement.LOW_END:
            lows_range = range(first, first + 1)
        if placement is Placement.HIGH_END:
            highs_range = range(last, last + 1)
        return [
            (at, to)
            for at in lows_range
            if self._lowest is None or at <= self._lowest
            for to in highs_range
            if to - at >= max(1, self.need) and (self._highest is None or to > self._highest)
        ]

    def cost(self, low: int, high: int) -> Cost:
        """Bytes of live units outside ``[low, high)``, and the lesser terms."""
        outside = sum(not low <= unit < high for unit in self.band.handed_out)
        left_behind = sum(not low <= unit < high for unit in self.band.unsettled)
        unsettled = len(self.band.unsettled)
        spare = high - low - self.need
        grid = self.band.grid
        return Cost(
            outside * grid.unit_bytes,
            # Clean cells are used first: of the unsettled ones inside, ``spare`` stay unwritten.
            max(left_behind, unsettled - spare),
            spare,
            grid.start(low),
        )


def _spread_opened(view: ArenaView, intervals: Sequence[Interval]) -> list[Interval]:
    """Move floats that open from nothing to the middle of the bytes that no one else takes.

    Next to one neighbour they would stand in the way of its next growth; the middle hinders
    both sides least. Several in a row share the free bytes evenly.
    """
    placed = list(intervals)
    opens = [
        band.is_float and band.core_range == CLOSED and interval != CLOSED
        for band, interval in zip(view.bands, intervals, strict=True)
    ]
    at = 0
    while at < len(placed):
        run = [at]
        if not opens[at]:
            at += 1
            continue
        while run[-1] + 1 < len(placed) and (opens[run[-1] + 1] or placed[run[-1] + 1] == CLOSED):
            run.append(run[-1] + 1)
        at = run[-1] + 1
        _spread_run(view, placed, [index for index in run if opens[index]], at)
    return placed


def _spread_run(view: ArenaView, placed: list[Interval], run: Sequence[int], above: int) -> None:
    """Spread the opened floats ``run`` over the bytes between their neighbours, evenly."""
    below = max(
        (
            view.bands[index].grid.start(placed[index][1])
            for index in range(run[0])
            if placed[index][1] > placed[index][0]
        ),
        default=0,
    )
    ceiling = view.geometry.arena_bytes
    if above < len(placed):
        ceiling = view.bands[above].grid.start(placed[above][0])
    taken = sum(
        (placed[index][1] - placed[index][0]) * view.bands[index].grid.unit_bytes for index in run
    )
    share = (ceiling - below - taken) // (len(run) + 1)
    # From the top down: each stays at or above where the search put it, so all still fit.
    for index in reversed(run):
        grid = view.bands[index].grid
        need = placed[index][1] - placed[index][0]
        high = grid.last_ending_by(ceiling - share)
        low = max(placed[index][0], high - need)
        placed[index] = (low, low + need)
        ceiling = grid.start(low)


def _as_plan(
    view: ArenaView, demand: Demand, rung: Rung, cost: Cost, intervals: Sequence[Interval]
) -> Plan:
    """Turn the chosen intervals into batches, frontier changes, fences and grants."""
    order = _order(view, intervals)
    fenced: list[FencedRange] = []
    batches: list[Batch] = []
    frontiers: list[FrontierChange] = []
    grants: dict[int, Units] = {}
    for index in order:
        band, (low, high) = view.bands[index], intervals[index]
        inside = range(low, high)
        sources = sorted(unit for unit in band.handed_out if unit not in inside)
        targets = _cells(band, inside, len(sources) + demand[index])
        moved = targets[: len(sources)]
        grants[index] = _as_units(targets[len(sources) :])
        if (low, high) != (band.low_unit, band.high_unit):
            frontiers.append(FrontierChange(index, low, high))
        if sources:
            waits = _waits(band, moved, fenced)
            batches.append(Batch(index, _as_units(sources), _as_units(moved), waits))
        left = sorted(unit for unit in band.unsettled if unit not in inside)
        fenced.extend(_byte_runs(index, band, sorted((*left, *sources))))
    return Plan(
        epoch=view.epoch,
        demand=demand,
        rung=rung,
        frontiers=tuple(frontiers),
        batches=tuple(batches),
        fenced=tuple(fenced),
        grants=tuple(grants[index] for index in range(len(view.bands))),
        copied_bytes=cost.copied_bytes,
        waits=cost.waits,
        holes_left=cost.holes_left,
    )


def _as_units(units: Sequence[int]) -> Units:
    return np.array(units, dtype=np.int64)


def _order(view: ArenaView, intervals: Sequence[Interval]) -> list[int]:
    """Bands in the order that frees before it fills; ties low to high.

    Band j goes before band i where i's new bytes meet j's old ones. Both layouts keep the chain
    order, so these pairs cannot form a cycle.
    """
    count = len(view.bands)

    def after(index: int, other: int) -> bool:
        low, high = intervals[index]
        band, grid = view.bands[other], view.bands[index].grid
        if index == other or low == high or band.low_unit == band.high_unit:
            return False
        old_start = band.grid.start(band.low_unit)
        old_end = band.grid.start(band.high_unit)
        return grid.start(low) < old_end and old_start < grid.start(high)

    waiting = list(range(count))
    order: list[int] = []
    while waiting:
        free = [i for i in waiting if not any(after(i, other) for other in waiting)]
        assert free, f"no band of {waiting} can go first towards {intervals}"
        order.append(free[0])
        waiting.remove(free[0])
    return order


def _cells(band: BandView, inside: range, count: int) -> list[int]:
    """``count`` cells of the new interval, in the order in which they are taken.

    Holes first, then cells beyond today's frontiers, then pending and vacated units; each group
    from the band's origin end (a float's is its low one) outwards.
    """
    old = range(band.low_unit, band.high_unit)
    held = band.handed_out | band.freed_fixed | band.unsettled
    outwards = reversed if band.geometry.placement is Placement.HIGH_END else iter
    cells = list(outwards(inside))
    holes = [unit for unit in cells if unit in old and unit not in held]
    beyond = [unit for unit in cells if unit not in old]
    unsettled = [unit for unit in cells if unit in band.unsettled]
    taken = (holes + beyond + unsettled)[:count]
    assert len(taken) == count, f"{len(taken)} cells in {inside}, {count} needed"
    return taken


def _waits(band: BandView, targets: Sequence[int], fenced: Sequence[FencedRange]) -> Waits:
    """Whether a copy to ``targets`` waits for a settle: an unsettled unit, or a new fence."""
    grid = band.grid
    for unit in targets:
        if unit in band.unsettled:
            return Waits.SETTLE
        start, end = grid.start(unit), grid.end(unit)
        if any(start < fence.end_bytes and fence.start_bytes < end for fence in fenced):
            return Waits.SETTLE
    return Waits.NOTHING


def _byte_runs(index: int, band: BandView, units: Sequence[int]) -> list[FencedRange]:
    """The byte ranges of ascending ``units``, neighbours joined."""
    runs: list[FencedRange] = []
    for unit in units:
        start, end = band.grid.start(unit), band.grid.end(unit)
        if runs and runs[-1].end_bytes == start:
            start = runs.pop().start_bytes
        runs.append(FencedRange(index, start, end))
    return runs
