"""Feasibility: does a whole demand fit, on which rung, and if not, why. Pure, on a frozen view.

Two inequalities answer (``docs/relayout.md`` derives both):

* Every unit movable: the packing inequality of ``geometry.pack``. If it fails, nothing that ends
  or moves can help: ``Infeasible``.
* Some units fixed: one interval of each band's own grid, in chain order, that holds the band's
  fixed units and has a cell for each unit it needs. Packed from the left, each band takes the
  lowest interval it can, so one sweep over the bands decides. ``Blocked`` if only this one fails.

A rung is decided by the same sweep with more units held fixed: all units (``NONE``) or those of
the floating bands (``COMPACT``).

These functions read Python sets and cost O(units) to build their input; ``fit_words`` answers the
same from an arena's words in O(bands + fixed units).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onearena.core.answers import (
    Answer,
    Blocked,
    Blocker,
    BlockReason,
    Demand,
    Fits,
    Infeasible,
    Rung,
)
from onearena.core.geometry import Placement, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onearena.core.view import ArenaView, BandView

_REASONS: tuple[BlockReason, ...] = ("quarantined", "transfer", "pinned")
"""In the order in which fixed units are kept fixed when there is a choice of blockers: what is
likely to last longest is never named where something shorter will do."""


@dataclass(slots=True)
class _Span:
    """What one band asks of its interval: ``need`` cells, and its fixed units inside."""

    need: int
    lowest: int | None = None
    highest: int | None = None

    def hold(self, unit: int) -> None:
        """The interval has to contain ``unit`` as well."""
        self.lowest = unit if self.lowest is None else min(self.lowest, unit)
        self.highest = unit if self.highest is None else max(self.highest, unit)


def fits(view: ArenaView, demand: Demand) -> Answer:
    """Whether some layout serves ``demand``: see ``Fits``, ``Blocked``, ``Infeasible``.

    Pure: waits for nothing, changes nothing, any thread. O(units) here (see the module).
    """
    check_demand(view, demand)
    counts = [len(band.handed_out) + more for band, more in zip(view.bands, demand, strict=True)]
    packing = pack(view.geometry, counts)
    if not packing.feasible:
        return Infeasible(_binding_band(view, demand), packing.missing_bytes)
    for rung in Rung:
        if _packs(view, _spans(view, demand, rung)):
            return Fits(rung)
    return Blocked(_blockers(view, counts))


def more_units(view: ArenaView, band: int, *, honour_fixed: bool = False) -> int:
    """How many more units of ``band`` fit while every other band keeps its count.

    Every unit counts as movable unless ``honour_fixed``. Pure; O(bands) after the counts.
    """
    spans = [_Span(len(each.handed_out)) for each in view.bands]
    if honour_fixed:
        spans = _spans(view, (0,) * len(spans), Rung.RELAYOUT)
    below = _pack_low(view, spans[:band])
    above = _pack_high(view, spans[band + 1 :], first=band + 1)
    assert below is not None, f"bands below {band} do not fit as they are"
    assert above is not None, f"bands above {band} do not fit as they are"
    grid, placement = view.bands[band].grid, view.bands[band].geometry.placement
    low = grid.first_unit if placement is Placement.LOW_END else grid.first_at_or_after(below)
    high = grid.end_unit if placement is Placement.HIGH_END else grid.last_ending_by(above)
    return max(0, high - low - spans[band].need)


def largest_multiple(view: ArenaView, demand: Demand, *, honour_fixed: bool = False) -> int:
    """The largest k such that k times ``demand`` fits (0: not even once).

    Every unit counts as movable unless ``honour_fixed``. Binary search on the joint test:
    O(bands * log(S)) after the counts. ``demand`` asks for at least one unit.
    """
    check_demand(view, demand)
    step_bytes = sum(
        more * each.grid.unit_bytes for more, each in zip(demand, view.bands, strict=True)
    )
    assert step_bytes > 0, f"demand {demand} asks for nothing: every multiple of it fits"

    def fits_times(times: int) -> bool:
        wanted = tuple(more * times for more in demand)
        if honour_fixed:
            return _packs(view, _spans(view, wanted, Rung.RELAYOUT))
        counts = [
            len(each.handed_out) + more for each, more in zip(view.bands, wanted, strict=True)
        ]
        return pack(view.geometry, counts).feasible

    low, high = 0, view.geometry.arena_bytes // step_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if fits_times(middle):
            low = middle
        else:
            high = middle - 1
    return low


def check_demand(view: ArenaView, demand: Demand) -> None:
    """Assert that ``demand`` has one count >= 0 per band."""
    assert len(demand) == len(view.bands), f"{len(demand)} counts for {len(view.bands)} bands"
    assert all(more >= 0 for more in demand), f"negative count in demand {demand}"


def _binding_band(view: ArenaView, demand: Demand) -> int:
    """The first band whose demand no longer fits on top of the demands of the bands before it."""
    counts = [len(band.handed_out) for band in view.bands]
    for index, more in enumerate(demand):
        counts[index] += more
        if more and not pack(view.geometry, counts).feasible:
            return index
    raise AssertionError(f"demand {demand} was to be infeasible")


def _spans(view: ArenaView, demand: Demand, rung: Rung) -> list[_Span]:
    """Spans when only the units that ``rung`` lets move may move."""
    spans = []
    for band, more in zip(view.bands, demand, strict=True):
        span = _Span(len(band.handed_out) + len(band.freed_fixed) + more)
        stays = rung is Rung.NONE or (rung is Rung.COMPACT and band.is_float)
        for unit in (band.handed_out | band.freed_fixed) if stays else band.fixed:
            span.hold(unit)
        spans.append(span)
    return spans


def _pack_low(view: ArenaView, spans: Sequence[_Span]) -> int | None:
    """End address of the first ``len(spans)`` bands packed towards address 0; None: impossible.

    Each band takes the lowest interval above the one before: any other choice ends no lower.
    The high end is not among them unless it is packed as the last band, then against S.
    """
    cursor = 0
    for band, span in zip(view.bands, spans, strict=False):
        if span.need == 0:
            continue
        grid, placement = band.grid, band.geometry.placement
        if placement is Placement.HIGH_END:
            low = grid.end_unit - span.need
            if span.lowest is not None:
                low = min(low, span.lowest)
            return view.geometry.arena_bytes if grid.start(low) >= cursor else None
        low = grid.first_at_or_after(cursor)
        if span.lowest is not None and span.lowest < low:
            return None
        high = low + span.need
        if span.highest is not None:
            high = max(high, span.highest + 1)
        cursor = grid.start(high)
    return cursor if cursor <= view.geometry.arena_bytes else None


def _pack_high(view: ArenaView, spans: Sequence[_Span], *, first: int) -> int | None:
    """Start address of the bands from chain index ``first`` on, packed towards S."""
    cursor = view.geometry.arena_bytes
    for band, span in zip(reversed(view.bands[first:]), reversed(spans), strict=True):
        if span.need == 0:
            continue
        grid, placement = band.grid, band.geometry.placement
        high = grid.end_unit if placement is Placement.HIGH_END else grid.last_ending_by(cursor)
        if span.highest is not None and span.highest >= high:
            return None
        low = high - span.need
        if span.lowest is not None:
            low = min(low, span.lowest)
        cursor = grid.start(low)
    return cursor if cursor >= 0 else None


def _packs(view: ArenaView, spans: Sequence[_Span]) -> bool:
    """Whether all bands have an interval, in chain order, that satisfies its span."""
    return _pack_low(view, spans) is not None


def _blockers(view: ArenaView, counts: Sequence[int]) -> tuple[Blocker, ...]:
    """Units whose end of being fixed makes the demand fit, none of them superfluous.

    Fix the fixed units one by one, nearest the band's middle first, and name each one that
    makes the demand stop fitting; it then stays movable. O(fixed units * bands).
    """
    spans = [_Span(count) for count in counts]
    found: list[Blocker] = []
    for index, unit, reason in _fixed_units(view):
        band, span = view.bands[index], spans[index]
        before = _Span(span.need, span.lowest, span.highest)
        span.hold(unit)
        span.need += unit in band.freed_fixed
        if not _packs(view, spans):
            spans[index] = before
            found.append(Blocker(index, unit, reason))
    return tuple(sorted(found, key=lambda blocker: (blocker.band, blocker.unit)))


def _fixed_units(view: ArenaView) -> Iterable[tuple[int, int, BlockReason]]:
    """All fixed units with why they are: by reason, then band, then unit."""
    for reason in _REASONS:
        for index, band in enumerate(view.bands):
            for unit in sorted(band.fixed):
                if reason_of(band, unit) == reason:
                    yield index, unit, reason


def reason_of(band: BandView, unit: int) -> BlockReason:
    """Why ``unit`` of ``band.fixed`` may not move."""
    if unit in band.quarantined:
        return "quarantined"
    return "transfer" if unit in band.transfer else "pinned"
