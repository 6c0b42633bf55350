"""The memory of a cuda device: arena, host tier, id table, buffer slots, control words, rows.

Everything that kernels touch is allocated once, except rows, which are pooled. A block of rows is
a pinned and a device buffer of one size; whoever takes one gives it back when the host has seen
the event behind its last copy, so pinned memory is never reused or freed under a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onearena.core.buffer import Buffer
from onearena.core.device.cuda_api import Checked, CudaApi
from onearena.core.device.threads_memory import NOWHERE, SLOT_ENTRIES
from onearena.core.device.threads_programs import WORD_BYTES, DeviceLayout
from onearena.core.geometry import ArenaGeometry
from onearena.core.words import SPARE_IDS

CONTROL_WORDS: Final = 256
"""One each for the transfers whose end the host has not seen."""

ROWS_WORDS_MIN: Final = 1 << 10


class RowsBlock:
    """Pinned and device memory of `words` int64 for one program. `host` is the pinned side."""

    __slots__ = ("array", "device", "host", "pinned", "words")

    def __init__(self, api: CudaApi, checked: Checked, words: int) -> None:
        torch = api.torch
        self.words = words
        self.pinned = checked.call(
            f"pinned memory for {words} words", _empty, torch, words, None, "int64"
        )
        self.host: NDArray[np.int64] = self.pinned.numpy()
        self.device = checked.call(
            f"device memory for {words} words", _empty, torch, words, "cuda", "int64"
        )
        self.array = checked.call("as_cuda_array", api.numba_cuda.as_cuda_array, self.device)


class CudaMemory:
    """Bytes that work really touches. Arena and id table start zeroed, buffer slots name no
    address, the host tier holds anything. The constructor waits for the device once.
    """

    __slots__ = (
        "_api",
        "_checked",
        "_free_rows",
        "_kept",
        "arena",
        "buffer",
        "control",
        "host",
        "layout",
        "slots",
        "table",
    )

    def __init__(
        self,
        api: CudaApi,
        checked: Checked,
        geometry: ArenaGeometry,
        *,
        host_bytes: int = 0,
        buffer_slots: int = 16,
        entry_bytes: Sequence[int] | None = None,
        salt: int = 0,
    ) -> None:
        """`host_bytes` of the host tier; `buffer_slots` forwards may have addresses at a time."""
        self._api = api
        self._checked = checked
        self._free_rows: dict[int, list[RowsBlock]] = {}
        self._kept: list[Any] = []  # tensors whose bytes kernels reach through arrays
        torch = api.torch
        ids = [band.grid.capacity_units + SPARE_IDS for band in geometry.bands]
        starts = [sum(ids[:band]) + band for band in range(len(ids))]
        storage = self._device(geometry.buffer_bytes, "uint8")
        self.buffer = Buffer(geometry, entry_bytes=entry_bytes, storage=storage)
        self.arena = self._array(self.buffer.tensor.view(torch.int64))
        self.host = checked.call(
            f"pinned memory of {host_bytes} bytes",
            _empty,
            torch,
            max(host_bytes, WORD_BYTES),
            None,
            "uint8",
        )
        self.table = self._array(self._device(sum(ids) + len(ids), "int64").zero_())
        slots = self._device(buffer_slots * SLOT_ENTRIES, "int64")
        self.slots = self._array(slots.fill_(NOWHERE))
        self.control = self._array(self._device(CONTROL_WORDS, "int64").zero_())
        self.layout = DeviceLayout(
            prefix_bytes=geometry.prefix_bytes,
            grids=tuple((band.grid.origin_bytes, band.grid.unit_bytes) for band in geometry.bands),
            table_starts=tuple(starts),
            table_ids=tuple(ids),
            slots=buffer_slots,
            slot_entries=SLOT_ENTRIES,
            salt=salt,
        )
        # What was done so far ran on the default stream, which orders no other one.
        checked.call("synchronize", torch.cuda.synchronize)

    def take_rows(self, words: int) -> RowsBlock:
        """A block of at least `words` words, nobody else's until it is given back."""
        size = max(ROWS_WORDS_MIN, 1 << (words - 1).bit_length())
        free = self._free_rows.get(size)
        return free.pop() if free else RowsBlock(self._api, self._checked, size)

    def give_rows(self, block: RowsBlock) -> None:
        """Nothing copies from or to the block any more, and the host has seen that."""
        self._free_rows.setdefault(block.words, []).append(block)

    def arena_bytes(self, start: int, end: int) -> Any:
        """uint8 device tensor of arena addresses [start, end)."""
        return self.buffer.at(start, end)

    def host_bytes(self, start: int, end: int) -> Any:
        """uint8 pinned tensor of host-tier bytes [start, end)."""
        assert 0 <= start <= end <= self.host.numel(), f"[{start}, {end}) leaves the host tier"
        return self.host[start:end]

    def _device(self, count: int, dtype: str) -> Any:
        what = f"device memory of {count} {dtype}"
        return self._checked.call(what, _empty, self._api.torch, count, "cuda", dtype)

    def _array(self, tensor: Any) -> Any:
        self._kept.append(tensor)
        return self._checked.call("as_cuda_array", self._api.numba_cuda.as_cuda_array, tensor)


def _empty(torch: Any, count: int, device: str | None, dtype: str) -> Any:
    """`count` elements of device memory, or (device None) of pinned host memory."""
    kind = getattr(torch, dtype)
    if device is None:
        return torch.empty(count, dtype=kind, pin_memory=True)
    return torch.empty(count, dtype=kind, device=device)
