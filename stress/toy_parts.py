"""Plain parts of the toy allocator: what its user declares, its units, its open uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from onearena.core.device.interface import Access, Space, StreamId
from onearena.core.geometry import ArenaGeometry, chain_geometry
from onearena.core.snapshot import GapSnapshot, UseSnapshot
from onearena.stress.sut import BandFacts, PlanFacts, Use

BAND_SHIFT: Final = 26
LIFE_SHIFT: Final = 36
UNIT_MASK: Final = (1 << BAND_SHIFT) - 1
BAND_MASK: Final = (1 << (LIFE_SHIFT - BAND_SHIFT)) - 1
HOLE: Final = 1
LIVE: Final = 2
PENDING: Final = 3


@dataclass(slots=True, eq=False)
class OpenToyUse:
    """One unfinished use: its end is `event` (streams) or `transfer`; `waited` streams are after
    it.
    """

    use: Use
    ticket: int = 0
    end: int = -1
    waited: set[int] = field(default_factory=set)
    units: list[ToyUnit] = field(default_factory=list)
    processed: bool = False
    launched: bool = False
    lost: bool = False


@dataclass(slots=True, eq=False)
class ToyUnit:
    """One physical unit of the arena (`band` >= 0) or of the host tier (`band` = -1 - band of the
    arena).
    """

    band: int
    number: int
    start: int
    end: int
    state: int = HOLE
    life: int = 0
    references: int = 0
    quarantined: bool = False
    # (use, writes), oldest first
    uses: list[tuple[OpenToyUse, bool]] = field(default_factory=list)

    @property
    def name(self) -> int:
        """The id of this life of the unit."""
        band = self.band if self.band >= 0 else -1 - self.band
        return self.life << LIFE_SHIFT | band << BAND_SHIFT | self.number


@dataclass(frozen=True, slots=True)
class ToyBand:
    """What the toy's user declares for one band; `units` is its fixed share."""

    name: str
    unit_bytes: int
    units: int
    lifetime: str = "context"
    span: int = 0
    entries_per_unit: int = 1


def toy_facts(
    bands: Sequence[ToyBand], *, schedule_stream: StreamId, host_units: int, model: str = "toy"
) -> tuple[PlanFacts, ArenaGeometry, tuple[int, ...]]:
    """The plan facts of a toy, its geometry, and the first unit of each band's fixed share."""
    arena_bytes = sum(band.unit_bytes * (band.units + 1) for band in bands)
    geometry = chain_geometry(arena_bytes, [(band.name, band.unit_bytes) for band in bands])
    lows: list[int] = []
    address = 0
    facts: list[BandFacts] = []
    for index, band in enumerate(bands):
        shape = geometry.bands[index]
        grid = shape.grid
        last = index == len(bands) - 1 and index > 0
        low = grid.end_unit - band.units if last else grid.first_at_or_after(address)
        lows.append(low)
        address = grid.end(low + band.units - 1)
        facts.append(
            BandFacts(
                name=band.name,
                placement=shape.placement.value,
                unit_bytes=band.unit_bytes,
                entries_per_unit=band.entries_per_unit,
                origin_bytes=grid.origin_bytes,
                first_unit=grid.first_unit,
                capacity_units=grid.capacity_units,
                lifetime=band.lifetime,
                span=band.span,
            )
        )
    plan = PlanFacts(
        arena_bytes=arena_bytes,
        bands=tuple(facts),
        host_units=tuple(host_units for _ in bands),
        schedule_stream=schedule_stream,
        model=model,
        page_size=max(band.entries_per_unit for band in bands),
    )
    return plan, geometry, tuple(lows)


def accesses_of(
    read: Sequence[ToyUnit], written: Sequence[ToyUnit], space: Space = Space.ARENA
) -> tuple[Access, ...]:
    """What the device trace is told: whole units, reads first."""
    return tuple(Access(space, unit.start, unit.end, False) for unit in read) + tuple(
        Access(space, unit.start, unit.end, True) for unit in written
    )


def gap_of(start: int, end: int) -> GapSnapshot:
    """A gap of a toy is free for ever: its bands never move."""
    return GapSnapshot(start, end, end - start, 0)


def use_snapshot_of(opened: OpenToyUse) -> UseSnapshot:
    """An open use as a snapshot shows it; units already forgotten are left out."""
    use = opened.use
    names = {unit.name: (unit.band, unit.number) for unit in opened.units}
    return UseSnapshot(
        use.serial,
        int(use.kind),
        use.stream,
        opened.ticket,
        opened.processed,
        tuple(names[name] for name, _, _ in use.reads if name in names),
        tuple(names[name] for name, _, _ in use.writes if name in names),
    )
