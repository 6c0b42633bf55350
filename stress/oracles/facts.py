"""What the calls and the device trace say happened, kept once for all call-level oracles.

Nothing here judges. `Facts` follows clocks, uses, ids, transfers, and which bytes each of them
touches, from `Call` records and the device's trace alone, and hands the oracles that run after it
one `CallFacts` a call. Words are those of lifecycle section 5: a use is *over* once processed,
retired or settled on the schedule stream; a transfer once the host has seen its end.

Feed order: the device records of a call, then the call (as the harness logs them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from onearena.core.answers import Blocked, Infeasible
from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import TRANSFER_KINDS
from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import UnitName
from onearena.stress.oracles.touches import Touch, TouchMap
from onearena.stress.sut import Grant, PlanFacts, Use

ARENA: Final = int(Space.ARENA)
HOST: Final = int(Space.HOST)
TRANSFERS: Final = frozenset(int(kind) for kind in TRANSFER_KINDS)
MOVING: Final = frozenset(("allocate", "fork", "move", "compact"))
"""Calls inside which the system may move units."""
EVENTS_KEPT: Final = 256

BEYOND, HOLE, LIVE, PENDING, VACATED = range(5)

Clock = list[int]
Change = tuple[int, int, int, int, int, int]
"""Band, unit, old state, new state, old id, new id."""


class Op(NamedTuple):
    """One `Enqueue` seen, with its position on its stream (1, 2, 3, ... counted here).

    `clock` holds the positions ordered before it, its own included.
    """

    op: int
    stream: int
    position: int
    kind: int
    accesses: tuple[Access, ...]
    clock: tuple[int, ...]


class WaitSeen(NamedTuple):
    """One `WaitEvent` seen: the waiting stream's clock before it, and the event's clock."""

    stream: int
    event: int
    before: tuple[int, ...]
    brings: tuple[int, ...]


@dataclass(slots=True, eq=False)
class UseFact:
    """One recorded use. `op` is its operation or transfer once launched, else -1.

    `outcome` of a transfer: '' while it runs, then what `end_transfer` said, or 'disconnected'.
    `units` are the (band, unit) it named when it was recorded.
    """

    use: Use
    kind: int
    stream: int
    call: int
    peer: int = -1
    op: int = -1
    position: int = 0
    event: int = -1
    processed: bool = False
    retired: bool = False
    outcome: str = ""
    units: tuple[tuple[int, int], ...] = ()

    @property
    def serial(self) -> int:
        """The serial the system gave the use."""
        return self.use.serial

    @property
    def is_transfer(self) -> bool:
        """Whether a peer makes the accesses."""
        return self.kind in TRANSFERS


@dataclass(slots=True, eq=False)
class IdFact:
    """One virtual id, from hand-out to its last free. `unit` is its unit as last seen, None before.

    `undefined` marks content of a failed load or receive.
    """

    id: int
    band: int
    call: int
    references: int = 1
    unit: int | None = None
    written: bool = False
    undefined: bool = False
    pins: bool = False
    transfers: int = 0
    seen: int = 0  # call that last showed where it is
    pin_floor: int = 0  # last call before its pin that may have moved it


@dataclass(slots=True, eq=False)
class Limbo:
    """A unit logically freed ('pending') or moved away from ('vacated'), not yet seen reused."""

    state: str
    call: int


@dataclass(slots=True, eq=False)
class CallFacts:
    """One call with what it enqueued, and what followed from it.

    `changes` of a snapshot: the units that differ from the last one.
    """

    call: Call
    ops: list[Op] = field(default_factory=list)
    waits: list[WaitSeen] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    begun: list[TransferBegin] = field(default_factory=list)
    use: UseFact | None = None
    refused: bool = False
    freed: list[IdFact] = field(default_factory=list)
    granted: list[IdFact] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class _Pending:
    """Device records since the last call."""

    ops: list[Op] = field(default_factory=list)
    waits: list[WaitSeen] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    begun: list[TransferBegin] = field(default_factory=list)


class Relocation(NamedTuple):
    """An id seen at another unit than before. `call` is the call that showed it.

    `under_transfer`, `pinned`, `written`: it was so at the unit it left.
    """

    fact: IdFact
    old: int
    new: int
    call: int
    under_transfer: bool
    pinned: bool
    written: bool


class Facts:
    """Clocks, uses, ids and touches of one run. Feed everything; ask after each call.

    Cost of a record: the streams of a clock, plus the ranges it names. Memory: what is
    outstanding, plus one set entry for each id ever handed out in the run.
    """

    def __init__(self, plan: PlanFacts) -> None:
        self.plan = plan
        self.bands = plan.bands
        self.schedule = plan.schedule_stream
        self.last: CallFacts | None = None
        self.calls = 0
        # clocks: position of each stream that is ordered before what is enqueued next
        self._clock: list[Clock] = []
        self._waited: list[Clock] = []  # the same by waits alone, whatever the host has seen
        self._host: Clock = []  # what the host has seen, transitively
        self._host_version = 0
        self._seen_version: list[int] = []
        self.retired: Clock = []  # what `retire` calls, and events of the system's own, imply
        self.processed: Clock = []
        self._events: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        self._use_events: set[int] = set()
        self._open = _Pending()
        # uses and transfers
        self.uses: dict[int, UseFact] = {}
        self.transfers: dict[int, UseFact] = {}
        self.use_of_op: dict[int, UseFact] = {}
        # ids
        self.ids: dict[int, IdFact] = {}
        self.ever: set[int] = set()
        self.live = [0] * len(plan.bands)
        self.pinned: dict[int, None] = {}  # ids, in the order they were pinned
        self._moving_call = 0
        self.placed = 0  # call of the last snapshot that showed the place of every live id
        self.at: list[dict[int, IdFact]] = [{} for _ in plan.bands]
        self.limbo: list[dict[int, Limbo]] = [{} for _ in plan.bands]
        self.host_ids: dict[int, int] = {}
        # touches
        self.arena = TouchMap()
        self.host = TouchMap()
        self.relocations: list[Relocation] = []  # of the latest call
        self._trace_handlers: dict[type[Any], Callable[[Any], None]] = {
            Enqueue: self._enqueue,
            Record: self._record_event,
            WaitEvent: self._wait,
            Observe: self._observe,
            TransferBegin: self._transfer_begin,
            TransferEnd: self._transfer_end,
        }
        self._call_handlers: dict[str, Callable[[CallFacts], None]] = {
            "allocate": self._allocate,
            "free": self._free,
            "share": self._share,
            "fork": self._fork,
            "record": self._record_use,
            "publish": self._publish,
            "launch": self._launch,
            "process": self._process,
            "settle": self._settle,
            "retire": self._retire,
            "end_transfer": self._end_transfer,
            "disconnect": self._disconnect,
            "pin": self._pin,
            "reserve_host": self._reserve_host,
            "free_host": self._free_host,
            "snapshot": self._snapshot,
        }
        self._shown: Snapshot | None = None
        self._grow(self.schedule)

    # -- feeding ---------------------------------------------------------------------------------
    def feed(self, record: object) -> CallFacts | None:
        """Take the next record; for a `Call` the facts of it, else None."""
        if type(record) is Call:
            return self._call(record)
        handler = self._trace_handlers.get(type(record))
        if handler is not None:
            handler(record)
        return None

    def _call(self, call: Call) -> CallFacts:
        self.calls += 1
        pending, self._open = self._open, _Pending()
        facts = CallFacts(
            call, pending.ops, pending.waits, pending.events, pending.observed, pending.begun
        )
        self.relocations.clear()
        facts.refused = call.error is not None or isinstance(call.answer, Blocked | Infeasible)
        handler = self._call_handlers.get(call.name)
        if handler is not None and not facts.refused:
            handler(facts)
        if call.name in MOVING and not facts.refused:
            self._moving_call = call.serial
        # Operations the system enqueued on its own account are uses of their bytes as well. Side
        # work of a use is joined before the use's event, so the use's own touches stand for it.
        use = facts.use if call.name == "launch" else None
        joined = self.event_clock(use.event) if use is not None else ()
        for op in facts.ops:
            if use is None or (op.op != use.op and not _reaches(joined, op)):
                self._touch_accesses(op, call.serial)
        self.last = facts
        return facts

    # -- clocks ----------------------------------------------------------------------------------
    def _grow(self, stream: int) -> None:
        while len(self._clock) <= stream:
            told = (self._host, self.retired, self.processed)
            for clock in (*self._clock, *self._waited, *told):
                clock.append(0)
            self._clock.append([0] * (len(self._clock) + 1))
            self._waited.append([0] * len(self._clock))
            self._seen_version.append(0)

    def _enqueue(self, record: Enqueue) -> None:
        op, stream, kind, _, accesses = record
        if stream >= len(self._clock):
            self._grow(stream)
        clock = self._clock[stream]
        if self._seen_version[stream] != self._host_version:
            _join(clock, self._host)
            self._seen_version[stream] = self._host_version
        clock[stream] += 1
        self._waited[stream][stream] += 1
        self._open.ops.append(Op(op, stream, clock[stream], kind, accesses, tuple(clock)))

    def _record_event(self, record: Record) -> None:
        event, stream = record
        if stream >= len(self._clock):
            self._grow(stream)
        if len(self._events) > EVENTS_KEPT:
            self._forget_events()
        self._events[event] = (stream, tuple(self._clock[stream]), tuple(self._waited[stream]))
        self._open.events.append(event)

    def _forget_events(self) -> None:
        host, named = self._host, {use.event for use in self.uses.values()}
        for event, (stream, clock, _) in list(self._events.items()):
            if clock[stream] <= host[stream] and event not in named:
                del self._events[event]

    def _wait(self, record: WaitEvent) -> None:
        stream, event = record
        if stream >= len(self._clock):
            self._grow(stream)
        known = self._events.get(event)
        if known is None:
            return
        clock = self._clock[stream]
        self._open.waits.append(WaitSeen(stream, event, tuple(clock), known[1]))
        _join(clock, known[1])
        _join(self._waited[stream], known[2])

    def _observe(self, record: Observe) -> None:
        known = self._events.get(record.event)
        self._open.observed.append(record.event)
        if known is None:
            return
        if _join(self._host, known[1]):
            self._host_version += 1
        # Of a use's event the system may know only what `retire` tells it (rule 10); that of a
        # move, a fork or a zeroing is its own, and so is all that it implies.
        if record.event not in self._use_events:
            _join(self.retired, known[1])

    def _transfer_begin(self, record: TransferBegin) -> None:
        self._open.begun.append(record)

    def _transfer_end(self, record: TransferEnd) -> None:
        """The `end_transfer` call says what it means; the device's own record adds no fact here."""

    def clock_of(self, stream: int) -> Sequence[int]:
        """Positions ordered before what `stream` is given next (the host's knowledge included)."""
        if stream >= len(self._clock):
            self._grow(stream)
        clock = self._clock[stream]
        if self._seen_version[stream] != self._host_version:
            _join(clock, self._host)
            self._seen_version[stream] = self._host_version
        return clock

    def is_placed(self, fact: IdFact) -> bool:
        """Whether `fact.unit` is where the id is now: no call since may have moved it."""
        return fact.unit is not None and max(fact.seen, self.placed) >= self._moving_call

    @property
    def host_clock(self) -> Sequence[int]:
        """Positions the host has seen end, by any observation."""
        return self._host

    def event_clock(self, event: int) -> Sequence[int]:
        """Clock of a recorded event; empty when unknown or long over."""
        known = self._events.get(event)
        return known[1] if known is not None else ()

    # -- over or not -----------------------------------------------------------------------------
    def is_over(self, touch: Touch) -> bool:
        """Processed, retired or settled on the schedule stream; a transfer: its end was seen.

        By calls and waits alone: that an event was seen complete ends nothing by itself.
        """
        stream, position = touch.stream, touch.position
        if stream < 0:
            return self._transfer_over(position)
        return (
            position <= self.processed[stream]
            or position <= self.retired[stream]
            or position <= self._waited[self.schedule][stream]
        )

    def is_retired(self, touch: Touch) -> bool:
        """The host has seen it end."""
        stream, position = touch.stream, touch.position
        if stream < 0:
            return self._transfer_over(position)
        return position <= self.retired[stream] or position <= self._host[stream]

    def _is_told(self, touch: Touch) -> bool:
        """Retired by what the system was told: nobody asks for the touch again."""
        stream, position = touch.stream, touch.position
        return position <= self.retired[stream] if stream >= 0 else self._transfer_over(position)

    def _transfer_over(self, serial: int) -> bool:
        # After `disconnect` the peer writes no more, whether or not the end was called yet.
        fact = self.transfers.get(serial)
        return fact is None or fact.outcome == "disconnected"

    def unit_range(self, band: int, unit: int) -> tuple[int, int]:
        """Arena bytes of a unit."""
        facts = self.bands[band]
        start = facts.origin_bytes + unit * facts.unit_bytes
        return start, start + facts.unit_bytes

    def blocking(self, band: int, unit: int, *, before: int) -> Touch | None:
        """A touch of the unit's bytes that is not over and belongs to a call before `before`."""
        start, end = self.unit_range(band, unit)
        for _, _, touch in self.arena.find(start, end):
            if touch.call < before and not self.is_over(touch):
                return touch
        return None

    def unretired(self, band: int, unit: int) -> Touch | None:
        """A touch of the unit's bytes whose end the host has not seen."""
        start, end = self.unit_range(band, unit)
        for _, _, touch in self.arena.find(start, end):
            if not self.is_retired(touch):
                return touch
        return None

    def under_transfer(self, start: int, end: int, *, before: int) -> UseFact | None:
        """A transfer not ended that names bytes of [start, end), of a call before `before`."""
        if not self.transfers:
            return None
        for _, _, touch in self.arena.find(start, end):
            if touch.stream < 0 and touch.call < before:
                fact = self.transfers.get(touch.position)
                if fact is not None and fact.outcome != "disconnected":
                    return fact
        return None

    def name(self, band: int, unit: int) -> UnitName:
        """A unit as people name it."""
        return UnitName(self.bands[band].name, unit)

    def bands_of(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(band, unit) of every located live id that overlaps [start, end)."""
        for band, facts in enumerate(self.bands):
            first = (start - facts.origin_bytes) // facts.unit_bytes
            after = -((facts.origin_bytes - end) // facts.unit_bytes)
            located = self.at[band]
            for unit in range(first, after):
                if unit in located:
                    yield band, unit

    # -- calls -----------------------------------------------------------------------------------
    def _grant(self, facts: CallFacts, grant: Grant) -> None:
        for band, ids in enumerate(grant.ids):
            for name in ids:
                fact = IdFact(name, band, facts.call.serial)
                facts.granted.append(fact)
                # A repeated id is the mapping oracle's to report; the first life stays as it was.
                if name not in self.ever:
                    self.ever.add(name)
                    self.ids[name] = fact
                    self.live[band] += 1

    def _allocate(self, facts: CallFacts) -> None:
        if isinstance(facts.call.answer, Grant):
            self._grant(facts, facts.call.answer)

    def _free_ids(self, facts: CallFacts, ids: Sequence[int]) -> None:
        for name in ids:
            fact = self.ids.get(name)
            if fact is None:
                continue
            fact.references -= 1
            if fact.references <= 0:
                del self.ids[name]
                self.live[fact.band] -= 1
                self.pinned.pop(name, None)
                facts.freed.append(fact)
                self._leave(fact, "pending", facts.call.serial)

    def _leave(self, fact: IdFact, state: str, call: int) -> None:
        """`fact` no longer holds its unit (freed, or moved away)."""
        unit = fact.unit
        if unit is None:
            return
        located = self.at[fact.band]
        if located.get(unit) is fact:
            del located[unit]
            self.limbo[fact.band][unit] = Limbo(state, call)

    def locate(self, fact: IdFact, unit: int, call: int) -> bool:
        """The system says `fact` lives at `unit` now; True when that is news."""
        # Pinned at `fact.unit` only if it was seen there after the last call that may have moved
        # it.
        pinned = fact.pins and max(fact.seen, self.placed) >= fact.pin_floor
        fact.seen = call
        if fact.unit == unit:
            return False
        if fact.unit is not None:
            self.relocations.append(
                Relocation(fact, fact.unit, unit, call, fact.transfers > 0, pinned, fact.written)
            )
            self._leave(fact, "vacated", call)
        fact.unit = unit
        self.at[fact.band][unit] = fact
        return True

    def _free(self, facts: CallFacts) -> None:
        self._free_ids(facts, facts.call.args[0])  # type: ignore[arg-type]

    def _share(self, facts: CallFacts) -> None:
        for name in facts.call.args[0]:  # type: ignore[attr-defined]
            fact = self.ids.get(name)
            if fact is not None:
                fact.references += 1

    def _fork(self, facts: CallFacts) -> None:
        grant = facts.call.answer
        if not isinstance(grant, Grant):
            return
        self._grant(facts, grant)
        for fact in facts.granted:
            fact.written = True
        self._free_ids(facts, facts.call.args[0])  # type: ignore[arg-type]

    def _record_use(self, facts: CallFacts) -> None:
        use = facts.call.answer
        if isinstance(use, Use):
            facts.use = UseFact(use, int(use.kind), use.stream, facts.call.serial)
            self.uses[use.serial] = facts.use
            facts.use.units = self._locate_ranges(use, facts.call.serial)

    def _locate_ranges(self, use: Use, call: int) -> tuple[tuple[int, int], ...]:
        units = []
        for ranges in (use.reads, use.writes):
            for name, start, _ in ranges:
                fact = self.ids.get(name)
                if fact is not None:
                    band = self.bands[fact.band]
                    unit = (start - band.origin_bytes) // band.unit_bytes
                    self.locate(fact, unit, call)
                    units.append((fact.band, unit))
        return tuple(units)

    def _publish(self, facts: CallFacts) -> None:
        use = facts.call.answer
        if not isinstance(use, Use):
            return
        peer = facts.call.args[2]
        assert isinstance(peer, int)
        fact = UseFact(use, int(use.kind), -1, facts.call.serial, peer)
        facts.use = fact
        self.uses[use.serial] = self.transfers[use.serial] = fact
        fact.units = self._locate_ranges(use, facts.call.serial)
        for ranges, writes in ((use.reads, False), (use.writes, True)):
            for name, start, end in ranges:
                touch = Touch(-1, use.serial, writes, fact.kind, facts.call.serial)
                self.arena.add(start, end, -1 - use.serial, touch)
                held = self.ids.get(name)
                if held is not None:
                    held.transfers += 1
                    held.written |= writes

    def _launch(self, facts: CallFacts) -> None:
        use = facts.call.args[0]
        assert isinstance(use, Use)
        fact = self.uses.get(use.serial)
        facts.use = fact
        if fact is None:
            return
        if fact.is_transfer:
            if facts.begun:
                fact.op = facts.begun[-1].transfer
                self.use_of_op[fact.op] = fact
            return
        answer = facts.call.answer
        fact.event = answer if isinstance(answer, int) else -1
        self._use_events.add(fact.event)
        mine = [op for op in facts.ops if op.stream == use.stream and op.kind == fact.kind]
        if not mine:
            return
        fact.op, fact.position = mine[-1].op, mine[-1].position
        self.use_of_op[fact.op] = fact
        self._touch_use(fact, facts.call.serial)

    def _touch_use(self, fact: UseFact, call: int) -> None:
        use, stream, position = fact.use, fact.stream, fact.position
        for space, reads, writes in (
            (self.arena, use.reads, use.writes),
            (self.host, use.host_reads, use.host_writes),
        ):
            if reads:
                touch = Touch(stream, position, False, fact.kind, call)
                for _, start, end in reads:
                    space.add(start, end, stream << 2, touch)
            if writes:
                touch = Touch(stream, position, True, fact.kind, call)
                for _, start, end in writes:
                    space.add(start, end, stream << 2 | 2, touch)
        for name, _, _ in use.writes:
            held = self.ids.get(name)
            if held is not None:
                held.written = True
        self.arena.sweep_if_large(self._is_told)
        self.host.sweep_if_large(self._is_told)

    def _touch_accesses(self, op: Op, call: int) -> None:
        for space, start, end, writes in op.accesses:
            if space > HOST or end <= 0:
                continue
            touch = Touch(op.stream, op.position, writes, op.kind, call)
            where = self.arena if space == ARENA else self.host
            where.add(start, end, op.stream << 2 | (2 if writes else 0) | 1, touch)

    def _process(self, facts: CallFacts) -> None:
        fact = facts.use = self._known(facts)
        if fact is not None and not fact.is_transfer:
            fact.processed = True
            self.processed[fact.stream] = max(self.processed[fact.stream], fact.position)

    def _settle(self, facts: CallFacts) -> None:
        facts.use = self._known(facts)

    def _retire(self, facts: CallFacts) -> None:
        fact = facts.use = self._known(facts)
        if fact is None:
            return
        fact.retired = True
        self._use_events.discard(fact.event)
        self.uses.pop(fact.serial, None)
        clock = self.event_clock(fact.event)
        if clock:
            _join(self.retired, clock)
        elif not fact.is_transfer and fact.position > self.retired[fact.stream]:
            self.retired[fact.stream] = fact.position
        if len(facts.call.args) > 1 and facts.call.args[1]:
            for name, _, _ in fact.use.writes:
                held = self.ids.get(name)
                if held is not None:
                    held.undefined = True

    def _end_transfer(self, facts: CallFacts) -> None:
        fact = facts.use = self._known(facts)
        outcome = facts.call.args[1]
        if fact is None:
            return
        assert isinstance(outcome, str)
        fact.outcome = outcome
        if outcome != "lost":
            self._over(fact)
        if outcome != "done":
            for name, _, _ in fact.use.writes:
                held = self.ids.get(name)
                if held is not None:
                    held.undefined = True

    def _over(self, fact: UseFact) -> None:
        self.uses.pop(fact.serial, None)
        self.transfers.pop(fact.serial, None)
        for ranges in (fact.use.reads, fact.use.writes):
            for name, start, end in ranges:
                self.arena.drop(start, end, -1 - fact.serial)
                held = self.ids.get(name)
                if held is not None:
                    held.transfers -= 1

    def _disconnect(self, facts: CallFacts) -> None:
        peer = facts.call.args[0]
        for fact in [f for f in self.transfers.values() if f.peer == peer]:
            if fact.outcome == "lost":
                self._over(fact)
            else:
                fact.outcome = "disconnected"

    def _snapshot(self, facts: CallFacts) -> None:
        """A snapshot with units shows where every live id is."""
        now = facts.call.answer
        assert isinstance(now, Snapshot)
        if not shows_units(now):
            return
        facts.changes = changes_between(self._shown, now)
        for band, unit, _, state, _, name in facts.changes:
            fact = self.ids.get(name) if state == LIVE and name else None
            if fact is not None and fact.band == band:
                self.locate(fact, unit, facts.call.serial)
        self._shown, self.placed = now, facts.call.serial

    def _pin(self, facts: CallFacts) -> None:
        ids, pinned = facts.call.args
        for name in ids:  # type: ignore[attr-defined]
            fact = self.ids.get(name)
            if fact is not None:
                fact.pins = bool(pinned)
                fact.pin_floor = self._moving_call
                if pinned:
                    self.pinned[name] = None
                else:
                    self.pinned.pop(name, None)

    def _reserve_host(self, facts: CallFacts) -> None:
        band, names = facts.call.args[0], facts.call.answer
        assert isinstance(band, int)
        assert isinstance(names, tuple)
        for name in names:
            self.host_ids[name] = band

    def _free_host(self, facts: CallFacts) -> None:
        for name in facts.call.args[0]:  # type: ignore[attr-defined]
            self.host_ids.pop(name, None)

    def _known(self, facts: CallFacts) -> UseFact | None:
        use = facts.call.args[0]
        assert isinstance(use, Use)
        return self.uses.get(use.serial)

    # -- recounts --------------------------------------------------------------------------------
    def handed_out(self) -> list[int]:
        """Units each band handed out: live ids, and quarantined units that have none."""
        counts = list(self.live)
        for band, unit in self.quarantined():
            if unit not in self.at[band]:
                counts[band] += 1
        return counts

    def quarantined(self) -> list[tuple[int, int]]:
        """(band, unit) under a transfer whose end cannot be confirmed, in order."""
        return self._transfer_units(lost=True)

    def fixed(self) -> list[tuple[int, int]]:
        """(band, unit) of every unit under a transfer, quarantined ones included, in order."""
        return self._transfer_units(lost=False)

    def _transfer_units(self, *, lost: bool) -> list[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        for fact in self.transfers.values():
            if fact.outcome == "lost" or not lost:
                found.update(fact.units)
        return sorted(found)


def shows_units(snapshot: Snapshot) -> bool:
    """Whether it was taken with the state of each unit."""
    return any(b.states for b in snapshot.bands) or not any(b.has_units for b in snapshot.bands)


def changes_between(before: Snapshot | None, now: Snapshot, *, full: bool = False) -> list[Change]:
    """Units whose state or id differs (all with `full`); O(units) of the bands that differ."""
    found: list[Change] = []
    for band, snap in enumerate(now.bands):
        old = before.bands[band] if before is not None else None
        found += _band_changes(band, old, snap, full=full)
    return found


def _band_changes(
    band: int, old: BandSnapshot | None, new: BandSnapshot, *, full: bool
) -> list[Change]:
    """The units that differ, or all with `full`."""
    if (
        not full
        and old is not None
        and old.states == new.states
        and old.low_unit == new.low_unit
        and old.ids == new.ids
    ):
        return []
    found: list[Change] = []
    low, high = new.low_unit, new.high_unit
    states, ids = new.states, new.ids
    if old is None or not old.has_units:
        return [(band, low + i, BEYOND, states[i], 0, ids[i]) for i in range(high - low)]
    old_low, old_high, old_states, old_ids = old.low_unit, old.high_unit, old.states, old.ids
    if new.has_units:
        first, after = min(low, old_low), max(high, old_high)
    else:
        first, after = old_low, old_high
    for unit in range(first, after):
        inside, was_inside = low <= unit < high, old_low <= unit < old_high
        state = states[unit - low] if inside else BEYOND
        name = ids[unit - low] if inside else 0
        old_state = old_states[unit - old_low] if was_inside else BEYOND
        old_name = old_ids[unit - old_low] if was_inside else 0
        if full or state != old_state or name != old_name:
            found.append((band, unit, old_state, state, old_name, name))
    return found


def _reaches(clock: Sequence[int], op: Op) -> bool:
    return op.stream < len(clock) and op.position <= clock[op.stream]


def _join(target: Clock, source: Sequence[int]) -> bool:
    """Raise each position of `target` to at least that of `source`; whether anything rose."""
    rose = False
    for stream, position in enumerate(source):
        if position > target[stream]:
            target[stream] = position
            rose = True
    return rose
