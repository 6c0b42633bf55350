"""A small allocator behind the harness's interface: fixed pools, physical ids, no moves.

It is what a newcomer may bring: every band has its own fixed share of the arena, an id names a
physical unit (and the life of that unit), and a unit remembers the uses that touched it. In its
correct form it obeys the waits of lifecycle rules 1, 2, 6, 7, 8, 11 and 12. `bug` plants one
mistake that people really make:

* `free-at-once`: a free puts the unit straight back on the hole list and forgets its uses,
although a forward on another stream may still read it.
* `last-use-only`: a unit keeps one event, the latest; the uses before it are forgotten.
* `read-fast-path`: reads are not recorded at all ("nobody waits for a read").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.answers import Answer, Blocked, Blocker, Fits, Infeasible, Rung
from onearena.core.device.interface import (
    Device,
    EventId,
    Space,
    StreamId,
    TransferId,
    Work,
)
from onearena.core.errors import MisuseError
from onearena.core.rules import READER_WAITS, WRITER_WAITS, UseKind, Wait
from onearena.core.snapshot import BandSnapshot, FenceSnapshot, GapSnapshot, Snapshot
from onearena.stress.sut import Capabilities, Grant, Use
from onearena.stress.toy_parts import (
    BAND_MASK,
    BAND_SHIFT,
    HOLE,
    LIFE_SHIFT,
    LIVE,
    PENDING,
    UNIT_MASK,
    OpenToyUse,
    ToyBand,
    ToyUnit,
    accesses_of,
    gap_of,
    toy_facts,
    use_snapshot_of,
)

BUGS: Final = ("free-at-once", "last-use-only", "read-fast-path")


class Toy:
    """The toy allocator. One control thread; costs are linear in the units of a call."""

    def __init__(
        self, device: Device, bands: Sequence[ToyBand], *, host_units: int = 8, bug: str = ""
    ) -> None:
        """`bug` is empty (correct) or one of `BUGS`."""
        assert bug in ("", *BUGS), f"bug {bug!r} is not one of {BUGS}"
        self.capabilities = Capabilities(moves=False, virtual_ids=False, sub_pools=len(bands) > 1)
        self.device = device
        self.bug = bug
        self._schedule = device.stream("schedule")
        self.plan, self._geometry, self._lows = toy_facts(
            bands, schedule_stream=self._schedule, host_units=host_units
        )
        self._bands: list[list[ToyUnit]] = []
        self._units: list[dict[int, ToyUnit]] = []
        self._hosts: list[list[ToyUnit]] = []
        offset = 0
        for index, (band, low) in enumerate(zip(bands, self._lows, strict=True)):
            grid = self._geometry.bands[index].grid
            units = [
                ToyUnit(index, n, grid.start(n), grid.end(n)) for n in range(low, low + band.units)
            ]
            self._bands.append(units)
            self._units.append({unit.number: unit for unit in units})
            size = band.unit_bytes
            hosts = [
                ToyUnit(-1 - index, n + 1, offset + n * size, offset + (n + 1) * size)
                for n in range(host_units)
            ]
            offset += host_units * size
            self._hosts.append(hosts)
        self._open: dict[int, OpenToyUse] = {}
        self._tickets: dict[int, int] = {}
        self._serial = 0
        self._epoch = 0

    # -- capacity
    def fits(self, demand: Sequence[int]) -> Answer:
        """Whether the fixed pools hold it; a unit under a transfer blocks."""
        blockers: list[Blocker] = []
        for band, count in enumerate(demand):
            free = [unit for unit in self._bands[band] if unit.state != LIVE]
            if count > len(free):
                return Infeasible(band, (count - len(free)) * self.plan.bands[band].unit_bytes)
            fixed = [unit for unit in free if self._transferring(unit)]
            if count > len(free) - len(fixed):
                blockers += [Blocker(band, unit.number, "transfer") for unit in fixed]
        return Blocked(tuple(blockers)) if blockers else Fits(Rung.NONE)

    def allocate(
        self, demand: Sequence[int], *, writer: UseKind, stream: StreamId, caller: str
    ) -> Grant | Blocked | Infeasible:
        """Holes first, then pending units, whose uses the schedule stream waits for."""
        answer = self.fits(demand)
        if not isinstance(answer, Fits):
            return answer
        self._epoch += 1
        taken: list[tuple[int, ...]] = []
        for band, count in enumerate(demand):
            ids: list[int] = []
            free = [unit for unit in self._bands[band] if unit.state == HOLE]
            if len(free) < count:
                free += [
                    unit
                    for unit in self._bands[band]
                    if unit.state == PENDING and not self._transferring(unit)
                ]
            for unit in free[:count]:
                if unit.state == PENDING:
                    for use, _ in unit.uses:
                        self._wait(self._schedule, use)
                ids.append(self._hand_out(unit))
            taken.append(tuple(ids))
        return Grant(tuple(taken))

    def free(self, ids: Sequence[int]) -> None:
        """Drop one reference each; the last one frees logically."""
        units = self._find_all(ids, "ids")
        self._check_references(units)
        self._epoch += 1
        for unit in units:
            unit.references -= 1
            if unit.references:
                continue
            if self.bug == "free-at-once" and not self._transferring(unit):
                unit.uses.clear()  # the planted mistake: a launched forward may still read it
            unit.state = PENDING if unit.uses else HOLE

    def share(self, ids: Sequence[int]) -> None:
        """One more reference each."""
        units = self._find_all(ids, "ids")
        self._epoch += 1
        for unit in units:
            unit.references += 1

    def fork(self, ids: Sequence[int], *, stream: StreamId) -> Grant | Blocked | Infeasible:
        """Copies under new ids, on `stream`; the old ids lose one reference."""
        sources = self._find_all(ids, "ids")
        demand = [0] * len(self._bands)
        for unit in sources:
            demand[unit.band] += 1
        for unit in sources:
            blockers = self._host_waits(UseKind.FORK, [unit], [])
            if blockers:
                return Blocked(tuple(blockers))
        grant = self.allocate(demand, writer=UseKind.FORK, stream=stream, caller="fork")
        if not isinstance(grant, Grant):
            return grant
        rest = [list(band) for band in grant.ids]
        copies = [rest[unit.band].pop(0) for unit in sources]
        if sources:
            use = self.record(UseKind.FORK, stream, reads=ids, writes=copies)
            assert isinstance(use, Use), f"fork of {ids} was blocked after the check"
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
        """Waits of rule 6 on `stream`, then the record."""
        read = self._find_all(reads, "reads")
        written = self._find_all(writes, "writes")
        host_read = [self._find_host(name, "host_reads") for name in host_reads]
        host_written = [self._find_host(name, "host_writes") for name in host_writes]
        blockers = self._host_waits(kind, read + host_read, written + host_written)
        if blockers:
            return Blocked(tuple(blockers))
        for unit in read + host_read:
            for use, writes_it in unit.uses:
                if writes_it:
                    self._wait(stream, use)
        for unit in written + host_written:
            for use, _ in unit.uses:
                self._wait(stream, use)
        made = Use(
            self._next_serial(),
            kind,
            stream,
            reads=tuple((unit.name, unit.start, unit.end) for unit in read),
            writes=tuple((unit.name, unit.start, unit.end) for unit in written),
            host_reads=tuple((unit.name, unit.start, unit.end) for unit in host_read),
            host_writes=tuple((unit.name, unit.start, unit.end) for unit in host_written),
            accesses=accesses_of(read, written) + accesses_of(host_read, host_written, Space.HOST),
        )
        self._enter(made, read + host_read, written + host_written)
        return made

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int) -> Use | Blocked:
        """A send once every write was seen to end, a receive once every use was."""
        units = self._find_all(ids, "ids")
        sends = kind is UseKind.SEND
        blockers = self._host_waits(kind, units if sends else [], [] if sends else units)
        if blockers:
            return Blocked(tuple(blockers))
        ranges = tuple((unit.name, unit.start, unit.end) for unit in units)
        made = Use(
            self._next_serial(),
            kind,
            -1,
            reads=ranges if sends else (),
            writes=() if sends else ranges,
            accesses=accesses_of(units, []) if sends else accesses_of([], units),
            peer=peer,
        )
        self._enter(made, units if sends else [], [] if sends else units)
        return made

    def launch(self, use: Use, work: Work) -> EventId | TransferId:
        """Enqueue, then record the event; a transfer begins."""
        opened = self._open_use(use)
        assert not opened.launched, f"use {use.serial} was launched before"
        opened.launched = True
        if use.kind in (UseKind.SEND, UseKind.RECEIVE):
            opened.end = self.device.begin_transfer(work)
        else:
            self.device.launch(use.stream, work)
            opened.end = self.device.record(use.stream)
            opened.ticket = self._tickets[use.stream] = self._tickets.get(use.stream, 0) + 1
        return opened.end

    def process(self, use: Use) -> None:
        """Retires nothing."""
        self._open_use(use).processed = True

    def settle(self, use: Use) -> None:
        """The schedule stream waits on the use's event."""
        self._epoch += 1
        self._wait(self._schedule, self._open_use(use))

    def retire(self, use: Use, *, failed: bool = False) -> None:
        """The use is over for everybody."""
        opened = self._open_use(use)
        self._close(opened)
        self.device.release(opened.end)

    def outstanding(self) -> tuple[tuple[Use, EventId], ...]:
        """The toy's own copies that are not over."""
        return tuple(
            (opened.use, opened.end)
            for opened in self._open.values()
            if opened.use.kind is UseKind.FORK
        )

    def end_transfer(self, use: Use, *, outcome: str) -> None:
        """`lost` quarantines; anything else ends the use."""
        opened = self._open_use(use)
        if outcome == "lost":
            self._epoch += 1
            opened.lost = True
            for unit in opened.units:
                unit.quarantined = True
            return
        self._close(opened)

    def disconnect(self, peer: int) -> None:
        """The peer can write no more: its quarantined units return."""
        self.device.disconnect(peer)
        for opened in list(self._open.values()):
            if opened.use.peer == peer:
                self._close(opened)

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
        """Host units for a backup; all or none."""
        free = [unit for unit in self._hosts[band] if unit.state == HOLE]
        free += [unit for unit in self._hosts[band] if unit.state == PENDING]
        if len(free) < count:
            return ()
        return tuple(self._hand_out(unit) for unit in free[:count])

    def free_host(self, ids: Sequence[int]) -> None:
        """Give host units back."""
        units = [self._find_host(name, "ids") for name in ids]
        for unit in units:
            unit.references = 0
            unit.state = PENDING if unit.uses else HOLE

    # -- facts
    def resolve(self, ids: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """(id, start, end) bytes."""
        return tuple((unit.name, unit.start, unit.end) for unit in self._find_all(ids, "ids"))

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Fixed bands: everything that is not handed out is a hole."""
        bands: list[BandSnapshot] = []
        gaps: list[GapSnapshot] = []
        cursor = 0
        for facts, members in zip(self.plan.bands, self._bands, strict=True):
            gaps.append(gap_of(cursor, members[0].start))
            cursor = members[-1].end
            states = [unit.state for unit in members]
            bands.append(
                BandSnapshot(
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
                    transfer_units=sum(self._transferring(unit) for unit in members),
                    quarantined_units=sum(unit.quarantined for unit in members),
                    states=bytes(states) if units else b"",
                    ids=tuple(unit.name if unit.state == LIVE else 0 for unit in members)
                    if units
                    else (),
                )
            )
        gaps.append(gap_of(cursor, self.plan.arena_bytes))
        fences: tuple[FenceSnapshot, ...] = ()
        return Snapshot(
            self._epoch,
            self.plan.arena_bytes,
            tuple(bands),
            tuple(gap for gap in gaps if gap.end_bytes > gap.start_bytes),
            fences,
            tuple(use_snapshot_of(opened) for opened in self._open.values()),
        )

    # -- inside
    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _hand_out(self, unit: ToyUnit) -> int:
        unit.state = LIVE
        unit.life += 1
        unit.references = 1
        return unit.name

    def _transferring(self, unit: ToyUnit) -> bool:
        return any(use.use.stream < 0 for use, _ in unit.uses)

    def _find_all(self, ids: Sequence[int], argument: str) -> list[ToyUnit]:
        return [self._find(name, argument) for name in ids]

    def _find(self, name: int, argument: str) -> ToyUnit:
        band = name >> BAND_SHIFT & BAND_MASK if name > 0 else -1
        unit = self._units[band].get(name & UNIT_MASK) if 0 <= band < len(self._units) else None
        if unit is None:
            raise MisuseError(f"{argument}: {name} is no id", argument=argument, unit=name)
        if unit.life != name >> LIFE_SHIFT or unit.state != LIVE:
            raise MisuseError(f"{argument}: id {name} is not live", argument=argument, unit=name)
        return unit

    def _find_host(self, name: int, argument: str) -> ToyUnit:
        band = name >> BAND_SHIFT & BAND_MASK if name > 0 else -1
        number = name & UNIT_MASK
        if 0 <= band < len(self._hosts) and 1 <= number <= len(self._hosts[band]):
            unit = self._hosts[band][number - 1]
            if unit.life == name >> LIFE_SHIFT and unit.state == LIVE:
                return unit
        raise MisuseError(f"{argument}: host id {name} is not live", argument=argument, unit=name)

    def _check_references(self, units: Sequence[ToyUnit]) -> None:
        """A call that names a unit more often than it has references is refused whole."""
        counts: dict[int, int] = {}
        for unit in units:
            counts[unit.name] = counts.get(unit.name, 0) + 1
            if counts[unit.name] > unit.references:
                raise MisuseError(
                    f"ids: {unit.name} is freed more often than it is held",
                    argument="ids",
                    unit=unit.name,
                )

    def _open_use(self, use: Use) -> OpenToyUse:
        opened = self._open.get(use.serial)
        if opened is None:
            raise MisuseError(f"use {use.serial} is over", argument="use", unit=None)
        return opened

    def _host_waits(
        self, kind: UseKind, read: Sequence[ToyUnit], written: Sequence[ToyUnit]
    ) -> list[Blocker]:
        """Units whose earlier uses the host must have seen end first."""
        blockers: list[Blocker] = []
        for units, writing in ((read, False), (written, True)):
            for unit in units:
                for use, writes_it in unit.uses:
                    if not writing and not writes_it:
                        continue
                    table = WRITER_WAITS if writing else READER_WAITS
                    if table[kind][use.use.kind] is Wait.HOST:
                        moving = use.use.stream < 0
                        blockers.append(
                            Blocker(unit.band, unit.number, "transfer" if moving else "use")
                        )
                        break
        return blockers

    def _wait(self, stream: StreamId, use: OpenToyUse) -> None:
        """`stream` comes after `use`; nothing to do on its own stream, or a second time."""
        if use.use.stream in (stream, -1) or stream in use.waited:
            return
        self.device.wait(stream, use.end)
        use.waited.add(stream)

    def _enter(self, use: Use, read: Sequence[ToyUnit], written: Sequence[ToyUnit]) -> None:
        self._epoch += 1
        opened = self._open[use.serial] = OpenToyUse(use)
        for units, writing in ((read, False), (written, True)):
            if self.bug == "read-fast-path" and not writing and use.kind is UseKind.FORWARD:
                continue
            for unit in units:
                if self.bug == "last-use-only" and use.stream >= 0:
                    unit.uses = [pair for pair in unit.uses if pair[0].use.stream < 0]
                unit.uses.append((opened, writing))
                opened.units.append(unit)

    def _close(self, opened: OpenToyUse) -> None:
        """Forget a use that is over; pending units without a use become holes."""
        self._epoch += 1
        del self._open[opened.use.serial]
        for unit in opened.units:
            unit.uses = [pair for pair in unit.uses if pair[0] is not opened]
            unit.quarantined = any(use.lost for use, _ in unit.uses)
            if unit.state == PENDING and not unit.uses:
                unit.state = HOLE
