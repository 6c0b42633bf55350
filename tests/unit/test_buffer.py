"""Bytes: layer views against raw bytes, for every dtype, at both ends and in the sink; guards."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from onearena.core.buffer import TORCH_DTYPES, Buffer
from onearena.core.errors import UsageError
from onearena.core.geometry import ArenaGeometry, chain_geometry
from onearena.core.layout import CONTEXT, Dtype, EntryLayout, Lane, Part
from onearena.core.store import Store

# Value written through the view, and its bytes in memory, little-endian, by hand.
KNOWN_BYTES = {
    Dtype.BF16: (-1.5, bytes.fromhex("c0bf")),
    Dtype.FP16: (-1.5, bytes.fromhex("00be")),
    Dtype.FP32: (-1.5, struct.pack("<f", -1.5)),
    Dtype.FP8_E4M3: (-1.5, bytes.fromhex("bc")),  # sign 1, exponent 7 (bias 7), mantissa 100
    Dtype.FP8_E5M2: (-1.5, bytes.fromhex("be")),  # sign 1, exponent 15 (bias 15), mantissa 10
    Dtype.INT8: (-3, bytes.fromhex("fd")),
    Dtype.UINT8: (201, bytes.fromhex("c9")),
    Dtype.FP4X2: (0x5A, bytes.fromhex("5a")),
}
PAGE = 4


def _layout() -> EntryLayout:
    """All dtypes in one entry; odd sizes, so that lanes need padding."""
    parts = [
        (layer, Part(name=dtype.value, shape=(3, layer + 1), dtype=dtype, lifetime=CONTEXT), False)
        for layer, dtype in enumerate(Dtype)
    ]
    return EntryLayout.of_parts(parts)


def _arena(arena_bytes: int) -> tuple[ArenaGeometry, EntryLayout]:
    layout = _layout()
    unit = PAGE * layout.entry_bytes
    geometry = chain_geometry(
        arena_bytes,
        [("low", unit), ("float", 48), ("high", unit)],
        float_anchor_bytes=[16],
    )
    return geometry, layout


def _buffer(geometry: ArenaGeometry, layout: EntryLayout, device: str = "cpu") -> Buffer:
    sizes = [layout.entry_bytes, 48, layout.entry_bytes]
    return Buffer(geometry, entry_bytes=sizes, device=device)


@pytest.mark.parametrize("dtype", list(Dtype), ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("band", [0, 2])
def test_view_writes_the_bytes_that_the_layout_says(dtype: Dtype, band: int) -> None:
    geometry, layout = _arena(50_000)
    buffer = _buffer(geometry, layout)
    lane = next(lane for lane in layout.lanes if lane.dtype is dtype)
    view = buffer.layer_view(band, lane)
    grid = geometry.bands[band].grid
    assert view.dtype == TORCH_DTYPES[dtype]
    assert view.shape == (grid.end_unit * PAGE, *lane.shape)
    value, pattern = KNOWN_BYTES[dtype]
    size = len(pattern)
    # The sink's first and last entry, the first and last entry of the arena.
    for unit, entry in [(0, 0), (0, PAGE - 1), (grid.first_unit, 0), (grid.end_unit - 1, PAGE - 1)]:
        before = buffer.tensor.clone()
        last = tuple(extent - 1 for extent in lane.shape)
        view[(unit * PAGE + entry, *last)] = value
        # The element's address from the layout, without torch strides.
        element = lane.shape[0] * lane.shape[1] - 1
        address = grid.start(unit) + entry * layout.entry_bytes + lane.offset_bytes
        at = geometry.prefix_bytes + address + element * size
        changed = torch.nonzero(buffer.tensor != before).flatten().tolist()
        assert set(changed) <= set(range(at, at + size))
        assert bytes(buffer.tensor[at : at + size].tolist()) == pattern
        assert view[(unit * PAGE + entry, *last)].to(torch.float32) == value
    assert buffer.check_guards() == ()


def test_ends_of_the_arena_are_the_ends_of_the_views() -> None:
    geometry, layout = _arena(50_000)
    buffer = _buffer(geometry, layout)
    low, high = (buffer.units_view(band) for band in (0, 2))
    low[geometry.bands[0].grid.first_unit] = 0x1111111111111111
    assert bytes(buffer.at(0, 16).tolist()) == b"\x11" * 16
    high[-1] = 0x2222222222222222
    assert (
        bytes(buffer.at(geometry.arena_bytes - 16, geometry.arena_bytes).tolist()) == b"\x22" * 16
    )
    assert buffer.check_guards() == ()
    assert buffer.check_sinks() == ()


def test_one_view_serves_before_and_after_a_move() -> None:
    geometry, layout = _arena(50_000)
    store, buffer = Store(geometry), _buffer(geometry, layout)
    lane = layout.lanes[2]
    view = buffer.layer_view(0, lane)
    handout = store.allocate((5, 0, 0))
    assert handout is not None
    store.free(handout.ids[1:2])
    moved = handout.ids[4:]
    (source,) = store.resolve(moved)
    view[int(source) * PAGE] = 7.0
    target = handout.units[1]
    store.move([0], [source], [target])
    buffer.copy_units(0, np.array([source]), np.array([target]))
    (unit,) = store.resolve(moved)
    assert unit == target
    assert bool((view[int(unit) * PAGE] == 7.0).all())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_copies_and_zeroing_touch_their_units_only(share: float) -> None:
    geometry, layout = _arena(50_000)
    buffer = _buffer(geometry, layout)
    draw = np.random.default_rng(3)
    buffer.at(0, geometry.arena_bytes).copy_(
        torch.from_numpy(draw.integers(0, 256, geometry.arena_bytes, dtype=np.uint8))
    )
    if share:
        buffer.words = None  # the path of a device that numba cannot reach
    expected = buffer.tensor.clone()
    prefix, unit = geometry.prefix_bytes, geometry.bands[1].grid
    sources, targets = np.array([3, 9, 20]), np.array([400, 4, 21])
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        expected[prefix + unit.start(target) : prefix + unit.end(target)] = buffer.unit(1, source)
    expected[prefix + unit.start(50) : prefix + unit.end(50)] = 0
    buffer.copy_units(1, sources, targets)
    buffer.zero_units(1, np.array([50]))
    assert torch.equal(buffer.tensor, expected)


def test_a_batch_never_reads_what_it_writes() -> None:
    geometry, layout = _arena(50_000)
    buffer = _buffer(geometry, layout)
    for sources, targets in [([3, 4], [4, 5]), ([3, 4], [6, 6])]:
        with pytest.raises(AssertionError, match=r"reads a unit|named twice"):
            buffer.copy_units(1, np.array(sources), np.array(targets))


def test_units_of_the_prefix_are_refused() -> None:
    geometry, layout = _arena(50_000)
    buffer = _buffer(geometry, layout)
    grid = geometry.bands[1].grid
    assert grid.first_unit > 1, "the float's sink is not next to the arena here"
    for unit in (-1, 1, grid.first_unit - 1, grid.end_unit):
        with pytest.raises(AssertionError, match="not the sink"):
            buffer.zero_units(1, np.array([unit]))
    buffer.zero_units(1, np.array([0, grid.first_unit, grid.end_unit - 1]))
    with pytest.raises(UsageError, match="entries of band float have 48 bytes"):
        buffer.layer_view(1, layout.lanes[-1])


def test_every_guard_byte_is_checked() -> None:
    geometry, layout = _arena(4_096)
    buffer = _buffer(geometry, layout)
    assert len(geometry.guard_ranges()) >= 4
    for start, end in geometry.guard_ranges():
        for address in range(start, end):
            byte = buffer.at(address, address + 1)
            old = int(byte)
            byte.fill_(old ^ 1)
            (damage,) = buffer.check_guards()
            assert (damage.address, damage.found, damage.bytes_damaged) == (address, old ^ 1, 1)
            byte.fill_(old)
    assert buffer.check_guards() == ()


def test_sinks_start_zeroed_and_a_write_to_one_shows() -> None:
    geometry, layout = _arena(4_096)
    buffer = _buffer(geometry, layout)
    assert buffer.check_sinks() == ()
    buffer.layer_view(2, layout.lanes[0])[0] = 1.0
    assert buffer.check_sinks() == (2,)


@pytest.mark.parametrize("power", [31, 33, 40])
def test_views_reach_past_32_bit_addresses_on_a_virtual_arena(power: int) -> None:
    """No memory: torch's own strides and offsets against integers computed without torch."""
    geometry, layout = _arena((1 << power) + 4_096 * 16)
    buffer = _buffer(geometry, layout, device="meta")
    assert buffer.is_virtual
    for band in (0, 2):
        grid = geometry.bands[band].grid
        for lane in layout.lanes:
            view = buffer.layer_view(band, lane)
            size = lane.dtype.size_bytes
            offset = view.storage_offset() + sum(
                (extent - 1) * stride
                for extent, stride in zip(view.shape, view.stride(), strict=True)
            )
            last_entry = grid.end(grid.end_unit - 1) - layout.entry_bytes
            end = geometry.prefix_bytes + last_entry + lane.offset_bytes + lane.size_bytes
            assert (offset + 1) * size == end
            assert end > 1 << power
    _check_lane_bounds(buffer, layout.lanes[0])


def _check_lane_bounds(buffer: Buffer, lane: Lane) -> None:
    view = buffer.layer_view(2, lane)
    size = lane.dtype.size_bytes
    assert 0 <= view.storage_offset() * size < buffer.geometry.prefix_bytes
