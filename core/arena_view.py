"""The frozen view of a store that `fit` and `relayout` decide on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onearena.core.store import Store
from onearena.core.view import ArenaView, BandView
from onearena.core.words import (
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_STATE_MASK,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    UnitState,
)


def arena_view(store: Store) -> ArenaView:
    """Every unit's state and facts at this epoch. O(units between the frontiers)."""
    return ArenaView(
        epoch=store.epoch,
        geometry=store.geometry,
        bands=tuple(_band_view(store, index) for index in range(len(store.bands))),
    )


def _band_view(store: Store, index: int) -> BandView:
    band = store.bands[index]
    words = band.unit_words()
    states = words & UNIT_STATE_MASK
    low = band.low_unit

    def units(mask: NDArray[np.bool_]) -> frozenset[int]:
        return frozenset((np.flatnonzero(mask) + low).tolist())

    occupied = states >= UnitState.LIVE
    transfers = words >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK
    return BandView(
        geometry=store.geometry.bands[index],
        low_unit=low,
        high_unit=band.high_unit,
        live=units(states == UnitState.LIVE),
        pending=units(states == UnitState.PENDING),
        vacated=units(states == UnitState.VACATED),
        transfer=units(occupied & (transfers > 0)),
        quarantined=units(occupied & (words & UNIT_QUARANTINED != 0)),
        pinned=units(occupied & (words & UNIT_PINNED != 0)),
    )
