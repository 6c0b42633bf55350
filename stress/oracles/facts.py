"""What the calls and the device trace say happened, kept once for all call-level oracles.

Nothing here judges. `Facts` follows clocks, uses, ids, transfers, and which bytes each of them
touches, from `Call` records and the device's trace alone, and hands the oracles that run after it
one `CallFacts` a call. Words are those of lifecycle section 5: a use is *over* once processed,
retired or settled on the schedule stream; a transfer once the host has seen its end.

Feed order: the device records of a call, then the call (as the harness logs them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onearena.core.answers import Blocked, Infeasible
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.snapshot import Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import UnitName
from onearena.stress.oracles.fact_types import (
    ARENA,
    HOST,
    LIVE,
    MOVING,
    CallFacts,
    IdFact,
    Limbo,
    Op,
    Pending,
    Relocation,
    UseFact,
    changes_between,
    shows_units,
)
from onearena.stress.oracles.progress import Progress, join
from onearena.stress.oracles.touches import Touch, TouchMap
from onearena.stress.sut import Grant, PlanFacts, Use


class Facts(Progress):
    """Clocks, uses, ids and touches of one run. Feed everything; ask after each call.

    Cost of a record: the streams of a clock, plus the ranges it names. Memory: what is
    outstanding, plus one set entry for each id ever handed out in the run.
    """

    def __init__(self, plan: PlanFacts) -> None:
        super().__init__()
        self.plan = plan
        self.bands = plan.bands
        # uses and transfers
        self.uses: dict[int, UseFact] = {}
        self.transfers: dict[int, UseFact] = {}
        self.use_of_op: dict[int, UseFact] = {}
        self.ids: dict[int, IdFact] = {}
        self.ever: set[int] = set()
        self._strays: list[IdFact] = []  # relocated since the last snapshot with units
        self.live = [0] * len(plan.bands)
        self.pinned: dict[int, None] = {}  # ids, in the order they were pinned
        self._moving_call = 0
        self.latest_call = 0
        self.placed = 0  # call of the last snapshot that showed the place of every live id
        self.at: list[dict[int, IdFact]] = [{} for _ in plan.bands]
        self.limbo: list[dict[int, Limbo]] = [{} for _ in plan.bands]
        self.host_ids: dict[int, int] = {}
        self.arena = TouchMap()
        self.host = TouchMap()
        self.relocations: list[Relocation] = []  # of the latest call
        self.trace_handlers: dict[type[Any], Callable[[Any], None]] = {
            Enqueue: self.enqueue,
            Record: self.record_event,
            WaitEvent: self.wait,
            Observe: self.observe,
            TransferBegin: self.transfer_begin,
            TransferEnd: self.transfer_end,
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
        self.grow(plan.schedule_stream)

    # -- feeding ---------------------------------------------------------------------------------
    def feed(self, record: object) -> CallFacts | None:
        """Take the next record; for a `Call` the facts of it, else None."""
        if type(record) is Call:
            return self._call(record)
        handler = self.trace_handlers.get(type(record))
        if handler is not None:
            handler(record)
        return None

    def _call(self, call: Call) -> CallFacts:
        facts = CallFacts(call)
        if not self.since.is_empty:
            since, self.since = self.since, Pending()
            facts.ops, facts.waits, facts.events = since.ops, since.waits, since.events
            facts.observed, facts.begun = since.observed, since.begun
        self.relocations.clear()
        self.latest_call = call.serial
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
            if use is None or (op.op != use.op and not op.is_within(joined)):
                self._touch_accesses(op, call.serial)
        return facts

    def is_placed(self, fact: IdFact) -> bool:
        """Whether `fact.unit` is where the id is now: no call since may have moved it."""
        return fact.unit is not None and max(fact.seen, self.placed) >= self._moving_call

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
            or position <= self._waited[self.plan.schedule_stream][stream]
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

    # -- calls -----------------------------------------------------------------------------------
    def _grant(self, facts: CallFacts, grant: Grant) -> None:
        granted = []
        for band, ids in enumerate(grant.ids):
            for name in ids:
                fact = IdFact(name, band, facts.call.serial)
                granted.append(fact)
                # A repeated id is the mapping oracle's to report; the first life stays as it was.
                if name not in self.ever:
                    self.ever.add(name)
                    self.ids[name] = fact
                    self.live[band] += 1
        facts.granted = granted

    def _allocate(self, facts: CallFacts) -> None:
        if isinstance(facts.call.answer, Grant):
            self._grant(facts, facts.call.answer)

    def _free_ids(self, facts: CallFacts, ids: Sequence[int]) -> None:
        freed = []
        for name in ids:
            fact = self.ids.get(name)
            if fact is None:
                continue
            fact.references -= 1
            if fact.references <= 0:
                del self.ids[name]
                self.live[fact.band] -= 1
                self.pinned.pop(name, None)
                freed.append(fact)
                self._leave(fact, "pending", facts.call.serial)
        facts.freed = freed

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
            self._strays.append(fact)
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
            self._mark_written(fact, facts.call.serial)
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
                    if writes:
                        self._mark_written(held, facts.call.serial)

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
        self.use_events.add(fact.event)
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
                self._mark_written(held, call)
        self.arena.sweep_if_large(self._is_told)
        self.host.sweep_if_large(self._is_told)

    @staticmethod
    def _mark_written(fact: IdFact, call: int) -> None:
        if not fact.written:
            fact.written, fact.written_call = True, call

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
        self.use_events.discard(fact.event)
        self.uses.pop(fact.serial, None)
        clock = self.event_clock(fact.event)
        if clock:
            join(self.retired, clock)
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
            self._over(fact)
            # One that had ended well and was not looked at is defined; nobody told the harness.
            for name, _, _ in fact.use.writes:
                held = self.ids.get(name)
                if held is not None:
                    held.undefined = True

    def _snapshot(self, facts: CallFacts) -> None:
        """A snapshot with units shows where every live id is."""
        now = facts.call.answer
        assert isinstance(now, Snapshot)
        if not shows_units(now):
            return
        facts.changes = changes_between(self._shown, now)
        call = facts.call.serial
        for band, unit, _, state, _, name in facts.changes:
            fact = self.ids.get(name) if state == LIVE and name else None
            if fact is not None and fact.band == band:
                self.locate(fact, unit, facts.call.serial)
        # One that moved away and came back between two snapshots shows no change in them.
        strays, self._strays = self._strays, []
        for fact in strays:
            ids = now.bands[fact.band].ids
            if fact.id in self.ids and fact.id in ids:
                self.locate(fact, now.bands[fact.band].low_unit + ids.index(fact.id), call)
        self._strays.clear()
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
            counts[band] += unit not in self.at[band]
        return counts

    def quarantined(self) -> list[tuple[int, int]]:
        """(band, unit) under a transfer whose end cannot be confirmed, in order."""
        facts = self.transfers.values()
        return sorted({place for fact in facts if fact.outcome == "lost" for place in fact.units})
