"""Looks at single units, for maps and lists: copies made on the control thread, on request only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onearena.core.arena_state import ArenaState
from onearena.core.words import (
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_STATE_MASK,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    UNIT_WRITTEN,
    UnitState,
)


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One unit of a band as it is now. `id` is 0 unless it is live."""

    unit: int
    state: str
    id: int
    transfers: int
    pinned: bool
    quarantined: bool
    written: bool


def unit_states(state: ArenaState) -> tuple[bytes, ...]:
    """Per band one byte a unit, as in `BandSnapshot.states`. O(units)."""
    return tuple(band.states().astype(np.uint8).tobytes() for band in state.store.bands)


def unit_rows(state: ArenaState, band: int, first: int, count: int) -> tuple[UnitRow, ...]:
    """Units `[first, first + count)` of `band` that lie between its frontiers. O(count)."""
    here = state.store.bands[band]
    units = np.arange(max(first, here.low_unit), min(first + count, here.high_unit), dtype=np.int64)
    if not len(units):
        return ()
    words = state.store.unit_words(band, units).tolist()
    ids = state.store.ids_of(band, units).tolist()
    return tuple(
        UnitRow(
            unit,
            UnitState(word & UNIT_STATE_MASK).name.lower(),
            vid if word & UNIT_STATE_MASK == UnitState.LIVE else 0,
            word >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK,
            bool(word & UNIT_PINNED),
            bool(word & UNIT_QUARANTINED),
            bool(word & UNIT_WRITTEN),
        )
        for unit, word, vid in zip(units.tolist(), words, ids, strict=True)
    )
