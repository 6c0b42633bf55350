"""One band: a typed, read-only window on its header and tables in the words.

`Store` changes bands; a `Band` only looks. All numbers are live: they change with the store.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.geometry import BandGeometry, Grid, Placement
from onearena.core.words import (
    B_FRESH,
    B_HIGH,
    B_HOLE,
    B_ID_WORD,
    B_IDS,
    B_LIVE,
    B_LOW,
    B_P2V,
    B_PENDING,
    B_PINNED,
    B_QUARANTINED,
    B_QUARANTINED_FREED,
    B_RETIRED,
    B_RING,
    B_RING_COUNT,
    B_RING_HEAD,
    B_UNIT_WORD,
    B_V2P,
    B_VACATED,
    UnitState,
    Words,
    band_header,
)

Int64s = NDArray[np.int64]

READ_STATE, READ_WORD, READ_ID = 0, 1, 2


class Band:
    """Read access to band `index` (chain order) of a store. Control thread only.

    Every property is one load, O(1). Units are physical unit numbers of the band's grid.
    """

    __slots__ = ("_at", "_cells", "_words", "geometry", "grid", "index")

    def __init__(self, words: Words, geometry: BandGeometry, index: int) -> None:
        self._words = words
        self._cells = words.data
        self._at = band_header(index)
        self.index = index
        self.geometry = geometry
        self.grid: Grid = geometry.grid

    def __repr__(self) -> str:
        return (
            f"Band({self.index} {self.name!r}: units [{self.low_unit}, {self.high_unit}), "
            f"{self.live_units} live, {self.pending_units} pending, "
            f"{self.vacated_units} vacated, {self.hole_units} holes)"
        )

    def _get(self, field: int) -> int:
        return int(self._cells[self._at + field])

    @property
    def name(self) -> str:
        """Name of the sub-pool."""
        return self.geometry.name

    @property
    def placement(self) -> Placement:
        """Low end, floating or high end."""
        return self.geometry.placement

    @property
    def low_unit(self) -> int:
        """First unit of the band; of an empty floating band 0."""
        return self._get(B_LOW)

    @property
    def high_unit(self) -> int:
        """One past the last unit of the band; equal to `low_unit` if it has none."""
        return self._get(B_HIGH)

    @property
    def has_units(self) -> bool:
        """Whether the band occupies any byte."""
        return self._get(B_LOW) < self._get(B_HIGH)

    @property
    def start_bytes(self) -> int:
        """Address of the low frontier; 0 without units."""
        return self.grid.start(self.low_unit) if self.has_units else 0

    @property
    def end_bytes(self) -> int:
        """Address of the high frontier; 0 without units."""
        return self.grid.start(self.high_unit) if self.has_units else 0

    @property
    def live_units(self) -> int:
        """Units that hold a request's data."""
        return self._get(B_LIVE)

    @property
    def pending_units(self) -> int:
        """Freed units that still have a blocker."""
        return self._get(B_PENDING)

    @property
    def vacated_units(self) -> int:
        """Moved sources that still have a blocker."""
        return self._get(B_VACATED)

    @property
    def hole_units(self) -> int:
        """Reusable units between the frontiers."""
        return self._get(B_HOLE)

    @property
    def pinned_units(self) -> int:
        """Live units that may not move now."""
        return self._get(B_PINNED)

    @property
    def quarantined_units(self) -> int:
        """Units out of capacity until a connection is torn down, freed or not."""
        return self._get(B_QUARANTINED)

    @property
    def handed_out_units(self) -> int:
        """n_i of the packing inequality: live units and freed ones under quarantine."""
        return self._get(B_LIVE) + self._get(B_QUARANTINED_FREED)

    @property
    def retired_ids(self) -> int:
        """Id indices whose generations are used up."""
        return self._get(B_RETIRED)

    @property
    def v2p(self) -> Int64s:
        """int64[ids + 1], read-only and live: physical unit by id index, 0 (the sink) if none."""
        return self._table(B_V2P, self._get(B_IDS) + 1)

    def _table(self, field: int, size: int) -> Int64s:
        at = self._get(field)
        view = self._words[at : at + size]
        view.flags.writeable = False
        return view

    @property
    def id_words(self) -> Int64s:
        """int64[ids + 1], read-only and live: ``generation << 36 | references`` by id index."""
        return self._table(B_ID_WORD, self._get(B_IDS) + 1)

    def state(self, unit: int) -> UnitState:
        """State of one unit of the grid."""
        if not self.low_unit <= unit < self.high_unit:
            return UnitState.BEYOND
        return UnitState(self._cells[self._get(B_UNIT_WORD) + unit] & 7)

    def unit_word(self, unit: int) -> int:
        """State, flags and counts of one unit (`words.UNIT_*`); 0 beyond the frontiers."""
        if not self.low_unit <= unit < self.high_unit:
            return 0
        return int(self._cells[self._get(B_UNIT_WORD) + unit])

    def id_of(self, unit: int) -> int:
        """Virtual id of a live unit, else 0."""
        if self.state(unit) is not UnitState.LIVE:
            return 0
        return int(self._cells[self._get(B_P2V) + unit])

    def states(self) -> Int64s:
        """int64 per unit of ``[low_unit, high_unit)``: its state. A copy, O(band)."""
        return self._range(READ_STATE)

    def unit_words(self) -> Int64s:
        """int64 per unit of ``[low_unit, high_unit)``: its word. A copy, O(band)."""
        return self._range(READ_WORD)

    def ids(self) -> Int64s:
        """int64 per unit of ``[low_unit, high_unit)``: its id or 0. A copy, O(band)."""
        return self._range(READ_ID)

    def state_words(self) -> Int64s:
        """int64[...]: frontiers, unit words, ids, id words and the ring in order. O(band)."""
        count = self._get(B_RING_COUNT)
        ring = self._table(B_RING, self._get(B_IDS))
        order = (self._get(B_RING_HEAD) + np.arange(count)) % max(1, ring.size)
        heads = [self.low_unit, self.high_unit, self._get(B_FRESH), count]
        return np.concatenate(
            (
                np.array(heads, dtype=np.int64),
                self.unit_words(),
                self.ids(),
                self.id_words[: self._get(B_FRESH)],
                ring[order],
            )
        )

    def _range(self, which: int) -> Int64s:
        out = np.empty(self.high_unit - self.low_unit, dtype=np.int64)
        kernels.read_range(self._words, self.index, which, out)
        return out
