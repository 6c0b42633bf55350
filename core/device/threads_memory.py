"""The real memory of a threads device: arena buffer, host tier, id table, buffer slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core.buffer import Buffer
from onearena.core.device.threads_programs import WORD_BYTES, DeviceLayout
from onearena.core.geometry import ArenaGeometry
from onearena.core.words import SPARE_IDS

ARENA_BYTES_MAX: Final = 64 << 20
"""Largest arena, sinks included, that schedules put on this device."""

SLOT_ENTRIES: Final = 4096
NOWHERE: Final = -(1 << 60)
"""What an unfilled buffer slot holds: an address outside everything."""


class DeviceMemory:
    """Bytes that work really touches. Everything starts zeroed; buffer slots name no address.

    The host tier and the arena cost pages only as they are touched.
    """

    __slots__ = ("buffer", "buffers", "host", "layout", "table", "words")

    def __init__(
        self,
        geometry: ArenaGeometry,
        *,
        host_bytes: int = 0,
        buffer_slots: int = 16,
        entry_bytes: Sequence[int] | None = None,
    ) -> None:
        """`host_bytes` of the host tier; `buffer_slots` forwards may have addresses at a time."""
        self.buffer = Buffer(geometry, entry_bytes=entry_bytes)
        words = self.buffer.words
        assert words is not None, "a threads device works on CPU memory"
        self.words: NDArray[np.int64] = words
        self.host = np.zeros(-(-host_bytes // WORD_BYTES), np.int64)
        # One entry more than a band has ids: index 0 is the sink's.
        ids = [band.grid.capacity_units + SPARE_IDS for band in geometry.bands]
        starts = [sum(ids[:band]) + band for band in range(len(ids))]
        self.table = np.zeros(sum(ids) + len(ids), np.int64)
        self.buffers = np.full(buffer_slots * SLOT_ENTRIES, NOWHERE, np.int64)
        self.layout = DeviceLayout(
            prefix_bytes=geometry.prefix_bytes,
            grids=tuple((band.grid.origin_bytes, band.grid.unit_bytes) for band in geometry.bands),
            table_starts=tuple(starts),
            table_ids=tuple(ids),
            slots=buffer_slots,
            slot_entries=SLOT_ENTRIES,
        )
