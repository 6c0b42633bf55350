"""Taking a `Snapshot` of an arena: numbers copied out on the control thread."""

from __future__ import annotations

import numpy as np

from onearena.core.arena_state import ArenaState
from onearena.core.geometry import pack
from onearena.core.ledger import Touch, UseRecord
from onearena.core.snapshot import (
    BandSnapshot,
    FenceSnapshot,
    GapSnapshot,
    Snapshot,
    UseSnapshot,
)
from onearena.core.words import B_HIGH, B_LOW, B_P2V, B_PINNED, B_UNIT_WORD, band_header


def take_snapshot(state: ArenaState, *, units: bool) -> Snapshot:
    """Everything a reader may know. O(bands + uses + fences); with `units` also O(units)."""
    bands = tuple([_band(state, index, units=units) for index in range(state.band_count)])
    fences = tuple(_fences(state))
    counts = [band.handed_out_units for band in state.store.bands]
    return Snapshot(
        epoch=state.store.epoch,
        arena_bytes=state.geometry.arena_bytes,
        bands=bands,
        gaps=_gaps(state.geometry.arena_bytes, bands, fences),
        fences=fences,
        uses=tuple([_use(state, use) for use in state.uses.values()]),
        slack_bytes=_slack(state, counts),
        counters=dict(state.counters),
    )


def _slack(state: ArenaState, counts: list[int]) -> int:
    """Slack of these counts: packed again only when they changed."""
    if state.seen_slack is None or state.seen_slack[0] != counts:
        state.seen_slack = (counts, pack(state.geometry, counts).slack_bytes)
    return state.seen_slack[1]


def _band(state: ArenaState, index: int, *, units: bool) -> BandSnapshot:
    """The band as plain data; the last one again if the words it shows are still the same."""
    band = state.store.bands[index]
    words = state.store.words
    head = band_header(index)
    header = words[head : head + B_PINNED + 1].tobytes()
    numbers = words[head : head + B_P2V + 1].tolist()
    low, high = numbers[B_LOW], numbers[B_HIGH]
    under_transfer = 0
    if state.ledger.transfer_units:
        for domain, _ in state.ledger.transfer_units:
            under_transfer += domain == index
    unit_words = words[numbers[B_UNIT_WORD] + low : numbers[B_UNIT_WORD] + high]
    ids = words[numbers[B_P2V] + low : numbers[B_P2V] + high]
    content = (header, under_transfer, *((unit_words.tobytes(), ids.tobytes()) if units else ()))
    last = state.seen_bands[index]
    if last is not None and last[0] == content:
        return last[1]
    grid = band.grid
    seen = BandSnapshot(
        name=band.name,
        placement=band.placement.value,
        unit_bytes=grid.unit_bytes,
        origin_bytes=grid.origin_bytes,
        first_unit=grid.first_unit,
        capacity_units=grid.capacity_units,
        low_unit=band.low_unit,
        high_unit=band.high_unit,
        live_units=band.live_units,
        pending_units=band.pending_units,
        vacated_units=band.vacated_units,
        hole_units=band.hole_units,
        transfer_units=under_transfer,
        pinned_units=band.pinned_units,
        quarantined_units=band.quarantined_units,
        states=band.states().astype(np.uint8).tobytes() if units else b"",
        ids=tuple(band.ids().tolist()) if units else (),
    )
    state.seen_bands[index] = (content, seen)
    return seen


def _fences(state: ArenaState) -> list[FenceSnapshot]:
    found = []
    for fence in state.ledger.fences:
        uses = tuple(
            (int(word) & 7, column >> 1, int(word) >> 3, bool(column & 1))
            for column, word in enumerate(fence.words.tolist())
            if word and word >> 3 > state.ledger.retired[column >> 1]
        )
        found.append(FenceSnapshot(fence.start_bytes, fence.end_bytes, uses))
    return found


def _gaps(
    arena_bytes: int, bands: tuple[BandSnapshot, ...], fences: tuple[FenceSnapshot, ...]
) -> tuple[GapSnapshot, ...]:
    """Bytes between bands that have units, arena ends included; empty gaps are left out."""
    gaps = []
    start = 0
    edges = [(band.start_bytes, band.end_bytes) for band in bands if band.has_units]
    for low, high in [*edges, (arena_bytes, arena_bytes)]:
        if low > start:
            fenced = sum(
                min(fence.end_bytes, low) - max(fence.start_bytes, start)
                for fence in fences
                if fence.start_bytes < low and fence.end_bytes > start
            )
            gaps.append(GapSnapshot(start, low, low - start - fenced, fenced))
        start = max(start, high)
    return tuple(gaps)


def _use(state: ArenaState, use: UseRecord) -> UseSnapshot:
    """The use as plain data; made once, and again when the forward is processed."""
    seen = use.seen
    if seen is None or seen.processed != use.processed:
        seen = use.seen = UseSnapshot(
            use.serial,
            int(use.kind),
            use.stream,
            use.ticket,
            use.processed,
            _device_units(state, use.reads),
            _device_units(state, use.writes),
        )
    return seen


def _device_units(state: ArenaState, touches: tuple[Touch, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (domain, unit)
        for domain, units in touches
        if domain < state.band_count
        for unit in units.tolist()
    )
