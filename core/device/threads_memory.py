"""The real memory of a threads device: arena buffer, host tier, id table, buffer slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from onearena.core.buffer import Buffer
from onearena.core.device.threads_programs import WORD_BYTES, DeviceLayout
from onearena.core.geometry import ArenaGeometry
from onearena.core.words import SPARE_IDS

ARENA_BYTES_MAX: Final = 64 << 20
"""Largest arena, sinks included, that schedules put on this device."""

SLOT_ENTRIES: Final = 4096
PAGE_BYTES: Final = 1 << 21
NOWHERE: Final = -(1 << 60)
"""What an unfilled buffer slot holds: an address outside everything."""


# Memory of devices that were closed: fresh pages cost more than all that a short run does to them.
_spare: dict[str, torch.Tensor] = {}


def _memory(purpose: str, nbytes: int) -> torch.Tensor:
    """uint8 memory of at least `nbytes` for one device; its content is whatever it is."""
    spare = _spare.pop(purpose, None)
    if spare is None or spare.numel() < nbytes:
        return torch.empty(-(-nbytes // PAGE_BYTES) * PAGE_BYTES, dtype=torch.uint8)
    return spare


class DeviceMemory:
    """Bytes that work really touches. The arena and the id table start zeroed, buffer slots name
    no address, the host tier holds anything.

    `salt` goes into every pattern, so that bytes left by an earlier device in the same memory are
    nobody's. One device at a time; `give_back` when its threads have ended.
    """

    __slots__ = (
        "_host_memory",
        "_storage",
        "buffer",
        "buffers",
        "host",
        "layout",
        "table",
        "words",
    )

    def __init__(
        self,
        geometry: ArenaGeometry,
        *,
        host_bytes: int = 0,
        buffer_slots: int = 16,
        entry_bytes: Sequence[int] | None = None,
        salt: int = 0,
    ) -> None:
        """`host_bytes` of the host tier; `buffer_slots` forwards may have addresses at a time."""
        self._storage = _memory("arena", geometry.buffer_bytes)
        self.buffer = Buffer(geometry, entry_bytes=entry_bytes, storage=self._storage)
        words = self.buffer.words
        assert words is not None, "a threads device works on CPU memory"
        self.words: NDArray[np.int64] = words
        self._host_memory = _memory("host", max(host_bytes, WORD_BYTES))
        host_words = -(-host_bytes // WORD_BYTES)
        self.host: NDArray[np.int64] = self._host_memory.numpy().view(np.int64)[:host_words]
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
            salt=salt,
        )

    def give_back(self) -> None:
        """The memory may serve the next device. Nothing may touch it through this object again."""
        _spare["arena"], _spare["host"] = self._storage, self._host_memory
