"""Frozen statistics of one arena: what metrics, dashboard, oracles and error texts all read.

A snapshot is plain data: building one copies numbers out of the arena on the control thread;
afterwards it never changes and may be read from any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True)
class BandSnapshot:
    """One band. Units are physical unit numbers; bytes are arena-relative.

    `states` holds one byte a unit for `[low_unit, high_unit)` (1 hole, 2 live, 3 pending, 4
    vacated), and is empty when the snapshot was taken without units. `ids` are the virtual ids of
    live units in the same order (0 where a unit has none).
    """

    name: str
    placement: str
    unit_bytes: int
    origin_bytes: int
    first_unit: int
    capacity_units: int
    low_unit: int
    high_unit: int
    live_units: int
    pending_units: int
    vacated_units: int
    hole_units: int
    transfer_units: int = 0
    pinned_units: int = 0
    quarantined_units: int = 0
    states: bytes = b""
    ids: tuple[int, ...] = ()

    @property
    def start_bytes(self) -> int:
        """Low end of the band, arena-relative; 0 when the band has no unit."""
        return self.origin_bytes + self.low_unit * self.unit_bytes if self.has_units else 0

    @property
    def end_bytes(self) -> int:
        """High end of the band, arena-relative; 0 when the band has no unit."""
        return self.origin_bytes + self.high_unit * self.unit_bytes if self.has_units else 0

    @property
    def has_units(self) -> bool:
        """Whether the band occupies any byte."""
        return self.high_unit > self.low_unit


@dataclass(frozen=True, slots=True)
class FenceSnapshot:
    """Bytes beyond a retreated frontier with unfinished uses: (kind, stream, ticket, writes)
    each.
    """

    start_bytes: int
    end_bytes: int
    uses: tuple[tuple[int, int, int, bool], ...]


@dataclass(frozen=True, slots=True)
class GapSnapshot:
    """Bytes between two neighbouring bands (or an arena end)."""

    start_bytes: int
    end_bytes: int
    free_bytes: int
    fenced_bytes: int


@dataclass(frozen=True, slots=True)
class UseSnapshot:
    """One unfinished use. `stream` is -1 for a transfer."""

    serial: int
    kind: int
    stream: int
    ticket: int
    processed: bool
    reads: tuple[tuple[int, int], ...] = ()  # (band, unit)
    writes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole arena at one moment; sums add up to `arena_bytes`."""

    epoch: int
    arena_bytes: int
    bands: tuple[BandSnapshot, ...]
    gaps: tuple[GapSnapshot, ...]
    fences: tuple[FenceSnapshot, ...]
    uses: tuple[UseSnapshot, ...]
    slack_bytes: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    version: int = SNAPSHOT_VERSION
