"""`Buffer`: the bytes of one arena, its sinks and guards, and strided views over all of it.

One uint8 tensor: ``prefix_bytes`` of sinks and guards, the arena, a last guard. Address a (arena
relative, sinks negative) is buffer byte ``prefix_bytes + a``. The buffer knows no unit states:
who owns which bytes only the ledger says, and views of different bands overlap.

On the CPU units are copied by memcpy, called from a kernel for a whole batch. A
*virtual* buffer has addresses and views but no memory (torch's meta device), so arithmetic can be
tried at any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.errors import UsageError
from onearena.core.geometry import ArenaGeometry
from onearena.core.layout import Dtype, Lane

TORCH_DTYPES: dict[Dtype, torch.dtype] = {
    Dtype.BF16: torch.bfloat16,
    Dtype.FP16: torch.float16,
    Dtype.FP32: torch.float32,
    Dtype.FP8_E4M3: torch.float8_e4m3fn,
    Dtype.FP8_E5M2: torch.float8_e5m2,
    Dtype.INT8: torch.int8,
    Dtype.UINT8: torch.uint8,
    # Two values a byte; torch has no arithmetic on them, kernels unpack.
    Dtype.FP4X2: torch.uint8,
}

WORD_BYTES = 8
_GUARD_STEP, _GUARD_SHIFT = 167, 13


class GuardDamage(NamedTuple):
    """First byte of a guard that somebody wrote, and how many bytes of that guard differ."""

    address: int
    expected: int
    found: int
    bytes_damaged: int


def guard_bytes(start: int, end: int) -> NDArray[np.uint8]:
    """uint8[end - start]: what guard bytes at these addresses hold.

    It varies with the address (period 256), so a copy to the wrong place shows.
    """
    addresses = np.arange(start, end, dtype=np.int64)
    return ((addresses * _GUARD_STEP + _GUARD_SHIFT) & 0xFF).astype(np.uint8)


class Buffer:
    """Memory of one arena. Calls touch bytes on the calling thread and current stream only.

    Args:
        geometry: bands and prefix; fixes every address for good.
        entry_bytes: bytes of one entry per band, chain order; default one entry a unit.
        device: where the bytes are. ``"meta"`` makes a virtual buffer.
        storage: uint8 memory to lie in, at least as long as the buffer, in place of fresh memory;
            the buffer takes its first bytes. Nobody else may use it meanwhile.

    The whole buffer starts zeroed (sinks have to, and a run is repeatable so); guards get their
    pattern.
    """

    __slots__ = ("entry_bytes", "geometry", "tensor", "words")

    def __init__(
        self,
        geometry: ArenaGeometry,
        *,
        entry_bytes: Sequence[int] | None = None,
        device: str | torch.device = "cpu",
        storage: torch.Tensor | None = None,
    ) -> None:
        sizes = entry_bytes or [band.grid.unit_bytes for band in geometry.bands]
        for band, size in zip(geometry.bands, sizes, strict=True):
            assert size > 0, f"band {band.name}: entry of {size} bytes"
            assert band.grid.unit_bytes % size == 0, (
                f"band {band.name}: unit of {band.grid.unit_bytes} bytes, entry of {size}"
            )
            assert size % WORD_BYTES == 0, f"band {band.name}: entry of {size} bytes"
        self.geometry = geometry
        self.entry_bytes = tuple(sizes)
        if storage is None:
            self.tensor = torch.zeros(geometry.buffer_bytes, dtype=torch.uint8, device=device)
        else:
            assert storage.dtype is torch.uint8, f"storage of {storage.dtype}"
            assert storage.numel() >= geometry.buffer_bytes, (
                f"storage of {storage.numel()} bytes for a buffer of {geometry.buffer_bytes}"
            )
            self.tensor = storage[: geometry.buffer_bytes].zero_()
        self.words: NDArray[np.int64] | None = None
        """The same CPU bytes as int64; None on another device."""
        if self.tensor.device.type == "cpu":
            self.words = self.tensor.numpy().view(np.int64)
        if not self.is_virtual:
            for start, end in geometry.guard_ranges():
                self.at(start, end).copy_(torch.from_numpy(guard_bytes(start, end)))

    @property
    def is_virtual(self) -> bool:
        """Whether there are addresses but no memory."""
        return self.tensor.device.type == "meta"

    def at(self, start: int, end: int) -> torch.Tensor:
        """uint8[end - start] view of the bytes at arena addresses ``[start, end)``."""
        prefix = self.geometry.prefix_bytes
        assert -prefix <= start <= end <= self.geometry.arena_bytes + self.geometry.suffix_bytes, (
            f"[{start}, {end}) leaves the buffer"
        )
        return self.tensor[prefix + start : prefix + end]

    def unit(self, band: int, unit: int) -> torch.Tensor:
        """uint8[unit_bytes] view of one unit; unit 0 is the sink."""
        grid = self.geometry.bands[band].grid
        self._check_units(band, np.array([unit], dtype=np.int64))
        return self.at(grid.start(unit), grid.end(unit))

    def page_size(self, band: int) -> int:
        """Entries in one unit of the band."""
        return self.geometry.bands[band].grid.unit_bytes // self.entry_bytes[band]

    def layer_view(self, band: int, lane: Lane) -> torch.Tensor:
        """The lane of every entry of the band's grid: ONE strided view, ``[entries, *shape]``.

        Indexed by physical entry number ``unit * page_size + k``; index 0 is the sink's first
        entry. Moving a unit or a band never rebuilds it. Entries between the sink and
        ``first_unit`` lie in the prefix (other sinks, guards): no id resolves to them.
        """
        grid = self.geometry.bands[band].grid
        entry_bytes = self.entry_bytes[band]
        end = lane.offset_bytes + lane.size_bytes
        if end > entry_bytes:
            raise UsageError(
                "lane",
                f"{lane.name} (ends at byte {end})",
                f"entries of band {self.geometry.bands[band].name} have {entry_bytes} bytes",
            )
        dtype = TORCH_DTYPES[lane.dtype]
        size = dtype.itemsize
        strides = [1] * len(lane.shape)
        for axis in range(len(lane.shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * lane.shape[axis + 1]
        first_byte = self.geometry.prefix_bytes + grid.origin_bytes + lane.offset_bytes
        assert first_byte % size == 0, f"lane {lane.name} starts at buffer byte {first_byte}"
        assert entry_bytes % size == 0, f"entry of {entry_bytes} bytes holds {lane.dtype}"
        return self.tensor.view(dtype).as_strided(
            (grid.end_unit * self.page_size(band), *lane.shape),
            (entry_bytes // size, *strides),
            first_byte // size,
        )

    def units_view(self, band: int) -> torch.Tensor:
        """int64[end_unit, unit_bytes / 8]: all units of the grid, by physical unit number."""
        grid = self.geometry.bands[band].grid
        row = grid.unit_bytes // WORD_BYTES
        first_byte = self.geometry.prefix_bytes + grid.origin_bytes
        return self.tensor.view(torch.int64).as_strided(
            (grid.end_unit, row), (row, 1), first_byte // WORD_BYTES
        )

    def copy_units(self, band: int, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copy the bytes of unit ``sources[k]`` to ``targets[k]``, for all k, in any order.

        No unit may be both read and written, nor written twice. O(bytes).
        """
        self._check_units(band, sources)
        self._check_units(band, targets)
        assert sources.size == targets.size, f"{sources.size} sources, {targets.size} targets"
        assert np.unique(targets).size == targets.size, "a target is named twice"
        assert not np.isin(sources, targets).any(), "the batch reads a unit that it writes"
        if self.words is None:
            units = self.units_view(band)
            index = torch.from_numpy(np.stack((sources, targets))).to(units.device)
            units[index[1]] = units[index[0]]
            return
        row = self.geometry.bands[band].grid.unit_bytes
        origin = self.geometry.prefix_bytes + self.geometry.bands[band].grid.origin_bytes
        memory = self.tensor.numpy()
        kernels.copy_pages(memory, origin + targets * row, memory, origin + sources * row, row)

    def zero_units(self, band: int, units: NDArray[np.int64]) -> None:
        """Zero the bytes of units. O(bytes)."""
        self._check_units(band, units)
        if self.words is None:
            view = self.units_view(band)
            view[torch.from_numpy(units).to(view.device)] = 0
            return
        kernels.zero_units(self.words, *self._word_grid(band), units)

    def check_guards(self) -> tuple[GuardDamage, ...]:
        """Guards that are no longer as they were made; empty if all are whole. O(guards)."""
        damaged = []
        for start, end in self.geometry.guard_ranges():
            expected = guard_bytes(start, end)
            found = self.at(start, end).cpu().numpy()
            wrong = np.flatnonzero(found != expected)
            if wrong.size:
                first = int(wrong[0])
                damaged.append(
                    GuardDamage(start + first, int(expected[first]), int(found[first]), wrong.size)
                )
        return tuple(damaged)

    def check_sinks(self) -> tuple[int, ...]:
        """Bands whose sink holds anything but zeros. Legal once forwards have run."""
        return tuple(
            band
            for band in range(len(self.geometry.bands))
            if bool(self.at(*self.geometry.sink_range(band)).any())
        )

    def _word_grid(self, band: int) -> tuple[int, int]:
        grid = self.geometry.bands[band].grid
        origin = self.geometry.prefix_bytes + grid.origin_bytes
        return origin // WORD_BYTES, grid.unit_bytes // WORD_BYTES

    def _check_units(self, band: int, units: NDArray[np.int64]) -> None:
        """Units of the arena or the sink; nothing else in the prefix may be touched."""
        grid = self.geometry.bands[band].grid
        assert units.dtype == np.int64, f"units are {units.dtype}, not int64"
        inside = (units >= grid.first_unit) & (units < grid.end_unit) | (units == 0)
        assert inside.all(), (
            f"unit {units[~inside][0]} of band {band}: not the sink and not in "
            f"[{grid.first_unit}, {grid.end_unit})"
        )
