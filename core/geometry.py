"""Grids of bands and the packing inequality: integers only, no state, no other module.

Addresses are arena-relative bytes: byte 0 is the first arena byte, ``arena_bytes`` (S) the end.
Sinks and guards lie at negative addresses, in the *prefix*; one more guard follows S.

The argument that packing from the left is exact is in ``docs/geometry.md`` (tested against a
breadth-first search over all single-unit moves).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

ALIGN_BYTES = 16
"""Arena bytes, grid origins, units and entries are multiples of this."""

GUARD_BYTES = 64
"""Bytes of one guard: below address 0, around every sink, and after the arena."""

PREFIX_ALIGN_BYTES = 256
"""The prefix is rounded up to this, so address 0 is as well aligned as the buffer is."""


class Placement(enum.Enum):
    """Where a band sits in the chain. Members name the growth rule, not a position."""

    LOW_END = "low_end"
    FLOATING = "floating"
    HIGH_END = "high_end"


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of ``multiple`` (> 0) that is at least ``value`` (any sign)."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The fixed points of one band: ``start(unit) = origin_bytes + unit * unit_bytes``.

    ``origin_bytes`` is negative: physical unit 0 is the band's sink. Units inside the arena are
    ``first_unit <= unit < end_unit``; ``end_unit = first_unit + capacity_units``.
    """

    unit_bytes: int
    origin_bytes: int
    first_unit: int
    capacity_units: int

    def __post_init__(self) -> None:
        assert self.unit_bytes > 0, f"unit_bytes {self.unit_bytes} is not positive"
        assert self.unit_bytes % ALIGN_BYTES == 0, f"unit_bytes {self.unit_bytes} % 16"
        assert self.origin_bytes % ALIGN_BYTES == 0, f"origin_bytes {self.origin_bytes} % 16"
        assert self.first_unit >= 1, f"first_unit {self.first_unit} < 1: unit 0 is the sink"
        assert self.capacity_units >= 0, f"capacity_units {self.capacity_units} < 0"
        assert self.end(0) <= 0, f"sink ends at {self.end(0)}, inside the arena"
        lowest = self.start(self.first_unit)
        assert 0 <= lowest < self.unit_bytes, f"first unit starts at {lowest}, not the first >= 0"

    @property
    def end_unit(self) -> int:
        """One past the last unit inside the arena."""
        return self.first_unit + self.capacity_units

    def start(self, unit: int) -> int:
        """Address of the unit's first byte."""
        return self.origin_bytes + unit * self.unit_bytes

    def end(self, unit: int) -> int:
        """Address one past the unit's last byte."""
        return self.origin_bytes + (unit + 1) * self.unit_bytes

    def first_at_or_after(self, address: int) -> int:
        """Smallest unit that starts at ``address`` or later; may lie beyond ``end_unit``."""
        return -((self.origin_bytes - address) // self.unit_bytes)

    def last_ending_by(self, address: int) -> int:
        """Exclusive end: the largest ``e`` such that every unit below ``e`` ends by ``address``."""
        return (address - self.origin_bytes) // self.unit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BandGeometry:
    """One band: its name, where it sits in the chain, and its grid."""

    name: str
    placement: Placement
    grid: Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaGeometry:
    """The bytes of one arena: S, the bands in chain order low to high, and the prefix.

    The buffer holds ``prefix_bytes`` (sinks and guards), ``arena_bytes``, and one guard, so
    address a lies at buffer byte ``prefix_bytes + a``.
    """

    arena_bytes: int
    bands: tuple[BandGeometry, ...]
    prefix_bytes: int

    def __post_init__(self) -> None:
        size, count = self.arena_bytes, len(self.bands)
        assert count >= 1, "an arena needs at least one band"
        assert size >= 0, f"arena_bytes {size} is negative"
        assert size % ALIGN_BYTES == 0, f"arena_bytes {size} is not 16-aligned"
        for index, band in enumerate(self.bands):
            expected = placement_of(index, count)
            assert band.placement is expected, f"band {index} is {band.placement}, not {expected}"
            grid = band.grid
            assert grid.capacity_units == 0 or grid.end(grid.end_unit - 1) <= size, (
                f"band {band.name} ends after arena byte {size}"
            )
        low = self.bands[0].grid
        assert low.start(low.first_unit) == 0, "the low end is anchored at 0"
        if count > 1:
            high = self.bands[-1].grid
            assert (size - high.origin_bytes) % high.unit_bytes == 0, "high grid must end at S"
        sinks = sorted(self.sink_range(index) for index in range(count))
        for (_, left_end), (right_start, _) in pairwise(sinks):
            assert left_end + GUARD_BYTES <= right_start, f"sinks too close at {right_start}"
        assert sinks[-1][1] + GUARD_BYTES <= 0, f"no guard between sink and arena: {sinks[-1]}"
        assert sinks[0][0] - GUARD_BYTES >= -self.prefix_bytes, "prefix does not cover the sinks"
        assert self.prefix_bytes % ALIGN_BYTES == 0, f"prefix_bytes {self.prefix_bytes} % 16"

    @property
    def suffix_bytes(self) -> int:
        """Bytes of the guard after the arena."""
        return GUARD_BYTES

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the whole buffer: prefix, arena, last guard."""
        return self.prefix_bytes + self.arena_bytes + self.suffix_bytes

    def sink_range(self, band: int) -> tuple[int, int]:
        """``[start, end)`` addresses of the band's sink, both negative or ``end`` <= 0."""
        grid = self.bands[band].grid
        return grid.start(0), grid.end(0)

    def guard_ranges(self) -> tuple[tuple[int, int], ...]:
        """``[start, end)`` addresses of all guards, ascending and disjoint.

        64 bytes on each side of every sink, below address 0 and after S; touching ones merged.
        """
        ranges = [(-GUARD_BYTES, 0), (self.arena_bytes, self.arena_bytes + GUARD_BYTES)]
        for band in range(len(self.bands)):
            start, end = self.sink_range(band)
            ranges += [(start - GUARD_BYTES, start), (end, end + GUARD_BYTES)]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            # Never merge across address 0: an empty arena still has two guards.
            if merged and start <= merged[-1][1] and start != self.arena_bytes:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return tuple(merged)


def placement_of(index: int, count: int) -> Placement:
    """Placement of band ``index`` in a chain of ``count``: one band alone is the low end."""
    if index == 0:
        return Placement.LOW_END
    return Placement.HIGH_END if index == count - 1 else Placement.FLOATING


def chain_geometry(
    arena_bytes: int,
    units: Sequence[tuple[str, int]],
    *,
    float_anchor_bytes: Sequence[int] = (),
) -> ArenaGeometry:
    """Lay out a chain of bands over ``arena_bytes``.

    ``units`` holds ``(name, unit_bytes)`` in chain order. ``float_anchor_bytes`` gives, per
    floating band in chain order, any 16-aligned address of its grid (default 0).
    Sinks take the highest free place below the arena that their grid allows, largest unit first,
    so each band's ``first_unit`` is minimal given the larger ones. Cost O(bands^2).
    """
    count = len(units)
    floats = max(0, count - 2)
    anchors = tuple(float_anchor_bytes) or (0,) * floats
    assert len(anchors) == floats, f"{len(anchors)} float anchors for {floats} floating bands"
    assert all(anchor % ALIGN_BYTES == 0 for anchor in anchors), f"anchors {anchors} % 16"
    lowest: list[int] = []
    for index, (_, unit_bytes) in enumerate(units):
        assert unit_bytes > 0, f"band {index}: unit_bytes {unit_bytes} is not positive"
        placement = placement_of(index, count)
        if placement is Placement.LOW_END:
            lowest.append(0)
        elif placement is Placement.HIGH_END:
            lowest.append(arena_bytes % unit_bytes)
        else:
            lowest.append(anchors[index - 1] % unit_bytes)
    first_units = _place_sinks([unit_bytes for _, unit_bytes in units], lowest)
    bands = tuple(
        BandGeometry(
            name=name,
            placement=placement_of(index, count),
            grid=Grid(
                unit_bytes=unit_bytes,
                origin_bytes=lowest[index] - first_units[index] * unit_bytes,
                first_unit=first_units[index],
                capacity_units=max(0, arena_bytes - lowest[index]) // unit_bytes,
            ),
        )
        for index, (name, unit_bytes) in enumerate(units)
    )
    deepest = min(band.grid.origin_bytes for band in bands)
    prefix_bytes = round_up(GUARD_BYTES - deepest, PREFIX_ALIGN_BYTES)
    return ArenaGeometry(arena_bytes=arena_bytes, bands=bands, prefix_bytes=prefix_bytes)


def packed_bytes(
    units: Sequence[tuple[str, int]],
    counts: Sequence[int],
    *,
    float_anchor_bytes: Sequence[int] = (),
) -> int:
    """Fewest arena bytes in which ``pack`` finds ``counts`` units of that chain feasible.

    Takes the same ``units`` and ``float_anchor_bytes`` as ``chain_geometry``. O(bands).
    """
    assert len(counts) == len(units), f"{len(counts)} counts for {len(units)} bands"
    anchors = tuple(float_anchor_bytes) or (0,) * max(0, len(units) - 2)
    end = 0
    for index, ((_, unit_bytes), count) in enumerate(zip(units, counts, strict=True)):
        if count and placement_of(index, len(units)) is Placement.FLOATING:
            phase = anchors[index - 1] % unit_bytes
            end = phase + max(0, round_up(end - phase, unit_bytes))
        end += count * unit_bytes
    return end


def _place_sinks(unit_bytes: Sequence[int], lowest: Sequence[int]) -> list[int]:
    """First unit of every band; ``lowest`` is the address of each band's first arena unit."""
    order = sorted(range(len(unit_bytes)), key=lambda index: (-unit_bytes[index], index))
    first_units = [0] * len(unit_bytes)
    placed: list[tuple[int, int]] = []
    for index in order:
        size = unit_bytes[index]
        ceiling = -GUARD_BYTES
        while True:
            # Sink end is lowest - (first - 1) * size: the smallest first that ends by ceiling.
            first = 1 + -(-(lowest[index] - ceiling) // size)
            start = lowest[index] - first * size
            blocking = [
                other
                for other in placed
                if start < other[1] + GUARD_BYTES and other[0] < start + size + GUARD_BYTES
            ]
            if not blocking:
                break
            ceiling = min(other[0] for other in blocking) - GUARD_BYTES
        first_units[index] = first
        placed.append((start, start + size))
    return first_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Bands packed from the left; what the packing inequality says about ``counts``.

    ``starts`` and ``ends`` are the packed byte ranges (equal for a band without units). When
    infeasible they may overlap or leave the arena, and ``binding_band`` is the first band in
    chain order that does not fit beside the high end (else -1).

    ``missing_bytes``: bytes by which the demand does not fit, 0 when feasible.
    ``gap_bytes``: bytes between the last packed band and the high end, 0 when infeasible.
    ``grid_slack_bytes``: bytes before floats that their grids cannot use, in this packing.
    ``remainder_bytes``: the part of the gap below the smallest unit.
    """

    feasible: bool
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    missing_bytes: int
    binding_band: int
    gap_bytes: int
    grid_slack_bytes: int
    remainder_bytes: int

    @property
    def slack_bytes(self) -> int:
        """Bytes no layout of these counts can use: grid slack and remainder."""
        return self.grid_slack_bytes + self.remainder_bytes


def pack(geometry: ArenaGeometry, counts: Sequence[int]) -> Packing:
    """The packing inequality: can ``counts`` units per band (chain order) lie in the arena?

    Exact: feasible here if and only if some layout holds them. O(bands), pure.
    """
    bands = geometry.bands
    assert len(counts) == len(bands), f"{len(counts)} counts for {len(bands)} bands"
    assert all(count >= 0 for count in counts), f"negative count in {tuple(counts)}"
    size = geometry.arena_bytes
    has_high = len(bands) > 1
    high_start = size - (counts[-1] * bands[-1].grid.unit_bytes if has_high else 0)
    starts: list[int] = []
    ends: list[int] = []
    cursor = grid_slack = 0
    binding = -1
    for index, (band, count) in enumerate(zip(bands, counts, strict=True)):
        if has_high and index == len(bands) - 1:
            starts.append(high_start)
            ends.append(size)
            break
        grid = band.grid
        start = cursor
        if count and band.placement is Placement.FLOATING:
            start = grid.start(grid.first_at_or_after(cursor))
            grid_slack += start - cursor
        cursor = start + count * grid.unit_bytes
        starts.append(start)
        ends.append(cursor)
        if count and cursor > high_start and binding < 0:
            binding = index
    missing = max(0, cursor - high_start)
    if missing and binding < 0:
        binding = len(bands) - 1
    gap = max(0, high_start - cursor)
    smallest = min(band.grid.unit_bytes for band in bands)
    return Packing(
        feasible=missing == 0,
        starts=tuple(starts),
        ends=tuple(ends),
        missing_bytes=missing,
        binding_band=binding,
        gap_bytes=gap,
        grid_slack_bytes=grid_slack,
        remainder_bytes=gap % smallest,
    )
