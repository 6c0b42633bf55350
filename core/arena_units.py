"""Looks at single units, for maps and lists: copies made on the control thread, on request only.

`unit_rows` is for lists of a few units; `unit_columns` gives the same facts as arrays, for maps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """One unit of a band as it is now. `id` and `holders`, the references to the id, are 0 unless
    it is live.
    """

    unit: int
    state: str
    id: int
    transfers: int
    pinned: bool
    quarantined: bool
    written: bool
    holders: int = 0


@dataclass(frozen=True, slots=True)
class UnitColumns:
    """Units `[first, first + n)` of one band, one entry a unit, as little-endian bytes.

    ids: int64, 0 unless live; holders: int32 references to the id; flags: uint8, a sum of `PINNED`,
    `QUARANTINED`, `WRITTEN` and `TRANSFERS`.
    """

    band: int
    first: int
    ids: bytes
    holders: bytes
    flags: bytes


PINNED, QUARANTINED, WRITTEN, TRANSFERS = 1, 2, 4, 8
"""Bits of `UnitColumns.flags`."""


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
    vector = state.store.ids_of(band, units)
    ids = vector.tolist()
    holders = _holders(state, vector).tolist()
    return tuple(
        UnitRow(
            unit,
            UnitState(word & UNIT_STATE_MASK).name.lower(),
            vid if word & UNIT_STATE_MASK == UnitState.LIVE else 0,
            word >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK,
            bool(word & UNIT_PINNED),
            bool(word & UNIT_QUARANTINED),
            bool(word & UNIT_WRITTEN),
            held if word & UNIT_STATE_MASK == UnitState.LIVE else 0,
        )
        for unit, word, vid, held in zip(units.tolist(), words, ids, holders, strict=True)
    )


def unit_columns(state: ArenaState, band: int, first: int, count: int) -> UnitColumns:
    """Units `[first, first + count)` of `band` that lie between its frontiers. O(count)."""
    here = state.store.bands[band]
    low, high = max(first, here.low_unit), min(first + count, here.high_unit)
    units = np.arange(low, max(low, high), dtype=np.int64)
    words = state.store.unit_words(band, units)
    ids = np.where(words & UNIT_STATE_MASK == UnitState.LIVE, state.store.ids_of(band, units), 0)
    transfers = words >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK
    flags = (
        PINNED * (words & UNIT_PINNED != 0)
        + QUARANTINED * (words & UNIT_QUARANTINED != 0)
        + WRITTEN * (words & UNIT_WRITTEN != 0)
        + TRANSFERS * (transfers != 0)
    )
    return UnitColumns(
        band,
        low,
        ids.astype("<i8").tobytes(),
        _holders(state, ids).astype("<i4").tobytes(),
        flags.astype(np.uint8).tobytes(),
    )


def _holders(state: ArenaState, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """References to each id; 0 where there is none."""
    held = np.zeros(len(ids), np.int64)
    live = np.flatnonzero(ids)
    if len(live):
        held[live] = state.store.references(ids[live])
    return held
