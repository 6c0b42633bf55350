"""Adapters that put a small allocator under the harness: page pools without moves, one or several.

Most allocators that people bring hand out pages, take them back, and know which events to wait for.
`PagePool` is that much and no more. `PoolsAdapter` makes a `SystemUnderTest` of several pools,
`OnePoolAdapter` of one; they count references, name lives, resolve addresses, record uses and take
snapshots, and leave every decision about reuse and waits to the pools. `docs/your-allocator.md`
shows one from start to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from onearena.core.answers import Answer, Blocked, Blocker, Fits, Infeasible, Rung
from onearena.core.device.interface import Device, EventId, StreamId, TransferId, Work
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind
from onearena.core.snapshot import BandSnapshot, GapSnapshot, Snapshot, UseSnapshot
from onearena.stress.sut import Capabilities, Grant, Use
from onearena.stress.toy_parts import (
    BAND_MASK,
    BAND_SHIFT,
    HOLE,
    LIFE_SHIFT,
    LIVE,
    PENDING,
    UNIT_MASK,
    ToyBand,
    ToyUnit,
    accesses_of,
    gap_of,
    toy_facts,
)

WITHOUT: Final = "this allocator cannot do that: its capabilities say so"


class PagePool(Protocol):
    """What an allocator of equal pages decides. Pages count from 0; events are the device's.

    One control thread calls; nothing may block. `before` is asked when work is recorded, `after`
    tells of it once it is on its stream, `seen` when the host has seen an event complete. A page's
    last reference is gone when `release` names it; work on it may still be running.
    """

    def available(self) -> int:
        """How many pages `take` could hand out now."""

    def is_reusable(self, page: int) -> bool:
        """Whether `take` could hand out this page now."""

    def take(self, count: int) -> list[int]:
        """Hand out `count` pages, which is at most `available()`."""

    def release(self, pages: Sequence[int]) -> None:
        """Nobody holds these pages any more."""

    def before(
        self, stream: StreamId, reads: Sequence[int], writes: Sequence[int]
    ) -> Sequence[EventId]:
        """Events that `stream` has to wait for before work that touches these pages."""

    def after(
        self, stream: StreamId, reads: Sequence[int], writes: Sequence[int], event: EventId
    ) -> None:
        """That work is on `stream` now, and `event` marks its end."""

    def seen(self, event: EventId) -> None:
        """The host has seen `event` complete. Events are not named after that."""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool: its pages, their size, and what one page is for.

    `lifetime` is 'context', 'window' (of `span` entries), 'chunk' or 'request';
    `entries_per_page` how many tokens a page holds.
    """

    name: str
    pool: PagePool
    page_bytes: int
    pages: int
    lifetime: str = "context"
    span: int = 0
    entries_per_page: int = 1


@dataclass(slots=True, eq=False)
class _Open:
    """One unfinished use."""

    use: Use
    reads: list[ToyUnit]
    writes: list[ToyUnit]
    event: EventId = -1
    processed: bool = False
    own: bool = False
    ticket: int = field(default=0)


class PoolsAdapter:
    """A `SystemUnderTest` over fixed pools: no moves, no transfers, no host tier.

    `unjudged` names oracles whose reports are not counted. Waiting more than one must is no
    mistake of such an allocator, so `economy` is among them. An allocator that hands out pages
    while work on them runs, and has the next user wait on its own stream instead, adds
    `legality`: races are the order oracle's to find. Costs are linear in the pages of a call; a
    snapshot's in all pages.
    """

    unjudged: frozenset[str] = frozenset(("economy",))

    def __init__(self, device: Device, pools: Sequence[PoolSpec]) -> None:
        assert pools, "an adapter has at least one pool"
        self.device = device
        self.capabilities = Capabilities(
            moves=False,
            virtual_ids=False,
            sub_pools=len(pools) > 1,
            transfers=False,
            host_tier=False,
        )
        self._schedule = device.stream("schedule")
        bands = [
            ToyBand(p.name, p.page_bytes, p.pages, p.lifetime, p.span, p.entries_per_page)
            for p in pools
        ]
        self.plan, geometry, self._lows = toy_facts(
            bands, schedule_stream=self._schedule, host_units=0, model="pools"
        )
        self._pools = [spec.pool for spec in pools]
        self._units: list[list[ToyUnit]] = []
        for index, (spec, low) in enumerate(zip(pools, self._lows, strict=True)):
            grid = geometry.bands[index].grid
            numbers = range(low, low + spec.pages)
            self._units.append([ToyUnit(index, n, grid.start(n), grid.end(n)) for n in numbers])
        self._open: dict[int, _Open] = {}
        self._tickets: dict[int, int] = {}
        self._serial = 0
        self._epoch = 0

    # -- capacity
    def fits(self, demand: Sequence[int]) -> Answer:
        """What the pools say they could hand out now."""
        blockers: list[Blocker] = []
        for band, count in enumerate(demand):
            pool, units = self._pools[band], self._units[band]
            if count <= pool.available():
                continue
            free = [unit for unit in units if not unit.references]
            if count > len(free):
                return Infeasible(band, (count - len(free)) * self.plan.bands[band].unit_bytes)
            waiting = [u for u in free if not pool.is_reusable(self._page(u))]
            blockers += [Blocker(band, unit.number, "use") for unit in waiting]
        return Blocked(tuple(blockers)) if blockers else Fits(Rung.NONE)

    def allocate(
        self, demand: Sequence[int], *, writer: UseKind, stream: StreamId, caller: str
    ) -> Grant | Blocked | Infeasible:
        """All of the demand, or none."""
        answer = self.fits(demand)
        if not isinstance(answer, Fits):
            return answer
        self._epoch += 1
        taken: list[tuple[int, ...]] = []
        for band, count in enumerate(demand):
            pages = self._pools[band].take(count) if count else []
            assert len(pages) == count, f"pool {band} took {pages} where {count} were asked for"
            names: list[int] = []
            for page in pages:
                unit = self._units[band][page]
                unit.state, unit.references, unit.life = LIVE, 1, unit.life + 1
                names.append(unit.name)
            taken.append(tuple(names))
        return Grant(tuple(taken))

    def free(self, ids: Sequence[int]) -> None:
        """Drop one reference each; pages without one go back to their pools."""
        units = self._find_all(ids, "ids")
        for name, unit in zip(ids, units, strict=True):
            if list(ids).count(name) > unit.references:
                message = f"ids: {name} is freed more often than it is held"
                raise MisuseError(message, argument="ids", unit=name)
        self._epoch += 1
        for unit in units:
            unit.references -= 1
            if not unit.references:
                unit.state = PENDING
                self._pools[unit.band].release([self._page(unit)])

    def share(self, ids: Sequence[int]) -> None:
        """One more reference each."""
        self._epoch += 1
        for unit in self._find_all(ids, "ids"):
            unit.references += 1

    def fork(self, ids: Sequence[int], *, stream: StreamId) -> Grant | Blocked | Infeasible:
        """Copies under new ids; the copies wait for whatever the pools say."""
        sources = self._find_all(ids, "ids")
        demand = [0] * len(self._pools)
        for unit in sources:
            demand[unit.band] += 1
        grant = self.allocate(demand, writer=UseKind.FORK, stream=stream, caller="fork")
        if not isinstance(grant, Grant) or not sources:
            return grant
        rest = [list(band) for band in grant.ids]
        copies = [rest[unit.band].pop(0) for unit in sources]
        use = self.record(UseKind.FORK, stream, reads=ids, writes=copies)
        assert isinstance(use, Use), "these pools never refuse a use"
        self._open[use.serial].own = True
        pairs = tuple(
            (unit.start, target[1], unit.end - unit.start)
            for unit, target in zip(sources, use.writes, strict=True)
        )
        self.launch(use, Work(UseKind.FORK, use.accesses, label="fork", pairs=pairs))
        self.free(ids)
        return grant

    # -- uses
    def record(
        self,
        kind: UseKind,
        stream: StreamId,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        host_reads: Sequence[int] = (),
        host_writes: Sequence[int] = (),
    ) -> Use | Blocked:
        """Make `stream` wait for what the pools name, and remember the use."""
        assert not (*host_reads, *host_writes), WITHOUT
        read = self._find_all(reads, "reads")
        written = self._find_all(writes, "writes")
        wanted: dict[EventId, None] = {}
        for band, pool in enumerate(self._pools):
            pages = self._pages(band, read), self._pages(band, written)
            if any(pages):
                wanted |= dict.fromkeys(pool.before(stream, *pages))
        # What the host has seen orders nothing any more, and its events are gone.
        unseen = {opened.event for opened in self._open.values()}
        for event in wanted:
            if event in unseen:
                self.device.wait(stream, event)
        self._serial += 1
        self._epoch += 1
        use = Use(
            self._serial,
            kind,
            stream,
            reads=tuple((unit.name, unit.start, unit.end) for unit in read),
            writes=tuple((unit.name, unit.start, unit.end) for unit in written),
            accesses=accesses_of(read, written),
        )
        self._open[use.serial] = _Open(use, read, written)
        return use

    def launch(self, use: Use, work: Work) -> EventId | TransferId:
        """Enqueue the work, record its event, and tell the pools."""
        opened = self._opened(use)
        assert opened.event < 0, f"use {use.serial} was launched before"
        self.device.launch(use.stream, work)
        opened.event = self.device.record(use.stream)
        opened.ticket = self._tickets[use.stream] = self._tickets.get(use.stream, 0) + 1
        for band, pool in enumerate(self._pools):
            pages = self._pages(band, opened.reads), self._pages(band, opened.writes)
            if any(pages):
                pool.after(use.stream, *pages, opened.event)
        return opened.event

    def process(self, use: Use) -> None:
        """Told to nobody: these pools go by events."""
        self._opened(use).processed = True

    def settle(self, use: Use) -> None:
        """The schedule stream waits on the use's event."""
        self._epoch += 1
        opened = self._opened(use)
        if use.stream != self._schedule:
            self.device.wait(self._schedule, opened.event)

    def retire(self, use: Use, *, failed: bool = False) -> None:
        """The host has seen the event: the pools are told, then it is given back."""
        opened = self._opened(use)
        self._epoch += 1
        del self._open[use.serial]
        for band, pool in enumerate(self._pools):
            if any(unit.band == band for unit in (*opened.reads, *opened.writes)):
                pool.seen(opened.event)
        self.device.release(opened.event)

    def outstanding(self) -> tuple[tuple[Use, EventId], ...]:
        """The forks that are not over."""
        mine = [opened for opened in self._open.values() if opened.own]
        return tuple((opened.use, opened.event) for opened in mine)

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int) -> Use | Blocked:
        """Never called: the capabilities exclude transfers."""
        raise MisuseError(WITHOUT, argument="kind")

    def end_transfer(self, use: Use, *, outcome: str) -> None:
        """Never called: the capabilities exclude transfers."""
        raise MisuseError(WITHOUT, argument="use")

    def disconnect(self, peer: int) -> None:
        """Nothing is connected."""

    # -- moves and host tier
    def compact(self, *, budget_units: int) -> int:
        """Nothing moves here."""
        return 0

    def move(self, band: int, ids: Sequence[int]) -> int | Blocked:
        """Nothing moves here."""
        self._find_all(ids, "ids")
        return 0

    def pin(self, ids: Sequence[int], *, pinned: bool) -> None:
        """Nothing moves here, so nothing needs a pin."""
        self._find_all(ids, "ids")

    def reserve_host(self, band: int, count: int) -> tuple[int, ...]:
        """There is no host tier."""
        return ()

    def free_host(self, ids: Sequence[int]) -> None:
        """There is no host tier."""

    # -- facts
    def resolve(self, ids: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """(id, start, end) bytes."""
        return tuple((unit.name, unit.start, unit.end) for unit in self._find_all(ids, "ids"))

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Pages that nobody holds are holes as soon as their pool would hand them out."""
        bands: list[BandSnapshot] = []
        gaps: list[GapSnapshot] = []
        cursor = 0
        for band, members in enumerate(self._units):
            gaps.append(gap_of(cursor, members[0].start))
            cursor = members[-1].end
            bands.append(self._band_snapshot(band, members, units=units))
        gaps.append(gap_of(cursor, self.plan.arena_bytes))
        return Snapshot(
            self._epoch,
            self.plan.arena_bytes,
            tuple(bands),
            tuple(gap for gap in gaps if gap.end_bytes > gap.start_bytes),
            (),
            tuple(_use_snapshot(opened) for opened in self._open.values()),
        )

    def _band_snapshot(self, band: int, members: list[ToyUnit], *, units: bool) -> BandSnapshot:
        facts, pool = self.plan.bands[band], self._pools[band]
        states = [
            LIVE if unit.references else HOLE if pool.is_reusable(self._page(unit)) else PENDING
            for unit in members
        ]
        names = tuple(unit.name if unit.references else 0 for unit in members)
        return BandSnapshot(
            name=facts.name,
            placement=facts.placement,
            unit_bytes=facts.unit_bytes,
            origin_bytes=facts.origin_bytes,
            first_unit=facts.first_unit,
            capacity_units=facts.capacity_units,
            low_unit=members[0].number,
            high_unit=members[-1].number + 1,
            live_units=states.count(LIVE),
            pending_units=states.count(PENDING),
            vacated_units=0,
            hole_units=states.count(HOLE),
            states=bytes(states) if units else b"",
            ids=names if units else (),
        )

    # -- inside
    def _page(self, unit: ToyUnit) -> int:
        return unit.number - self._lows[unit.band]

    def _pages(self, band: int, units: Sequence[ToyUnit]) -> list[int]:
        return [self._page(unit) for unit in units if unit.band == band]

    def _find_all(self, ids: Sequence[int], argument: str) -> list[ToyUnit]:
        return [self._find(name, argument) for name in ids]

    def _find(self, name: int, argument: str) -> ToyUnit:
        band = name >> BAND_SHIFT & BAND_MASK if name > 0 else -1
        if 0 <= band < len(self._units):
            place = (name & UNIT_MASK) - self._lows[band]
            if 0 <= place < len(self._units[band]):
                unit = self._units[band][place]
                if unit.references and unit.life == name >> LIFE_SHIFT:
                    return unit
        raise MisuseError(f"{argument}: id {name} is not live", argument=argument, unit=name)

    def _opened(self, use: Use) -> _Open:
        opened = self._open.get(use.serial)
        if opened is None:
            raise MisuseError(f"use {use.serial} is over", argument="use")
        return opened


class OnePoolAdapter(PoolsAdapter):
    """A `SystemUnderTest` over one pool of equal pages."""

    def __init__(
        self,
        device: Device,
        pool: PagePool,
        *,
        page_bytes: int,
        pages: int,
        entries_per_page: int = 1,
        name: str = "pages",
    ) -> None:
        spec = PoolSpec(name, pool, page_bytes, pages, entries_per_page=entries_per_page)
        super().__init__(device, [spec])


def _use_snapshot(opened: _Open) -> UseSnapshot:
    use = opened.use
    return UseSnapshot(
        use.serial,
        int(use.kind),
        use.stream,
        opened.ticket,
        opened.processed,
        tuple((unit.band, unit.number) for unit in opened.reads),
        tuple((unit.band, unit.number) for unit in opened.writes),
    )
