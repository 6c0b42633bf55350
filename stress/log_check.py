"""Judges a log of a live engine line by line: order of accesses, states of units, recorded uses.

The same oracles that judge schedules, behind an adapter:

* the order oracle gets the lines as the device records they stand for;
* the legality automaton gets each unit's changes, and the facts it needs from `LogFacts`;
* the recorded-use oracle gets what work really touched, where the engine logs it.

What a unit may not do at all (handed out while live, freed twice, used while nobody holds it) is
reported here, under the name `units`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from onearena.core.device.interface import Access, Space, TransferStatus
from onearena.core.device.trace import (
    Effect,
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.device.trace import End as OpEnd
from onearena.core.errors import UsageError
from onearena.core.rules import UseKind
from onearena.stress import log_lines as lines
from onearena.stress.calls import Call
from onearena.stress.log_facts import LogFacts, OpenUse, plan_of
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.clocks import IdSet
from onearena.stress.oracles.fact_types import BEYOND, HOLE, LIVE, PENDING, VACATED
from onearena.stress.oracles.legality import FOREVER, WORLD_KINDS, LegalityOracle
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.recorded import RecordedOracle
from onearena.stress.oracles.table_reach import TableReach
from onearena.stress.sut import Use

STREAMS_MAX: Final = 256
RUNS_MAX: Final = 1 << 16
OUTCOMES: Final = {
    "done": TransferStatus.DONE,
    "failed": TransferStatus.FAILED,
    "cancelled": TransferStatus.CANCELLED,
}


class LogChecker:
    """Feed it the lines of one log, in order; it answers with what each line breaks.

    `feed` raises `UsageError` for a line that contradicts the log itself (an unknown band, `end`
    without `begin`). Cost of a line: the streams, plus for each access the units and the cells it
    covers. Memory: live and unfinished units, unfinished work, open uses, streams; see `sizes`.
    """

    def __init__(self, header: lines.LogHeader, *, name: str = "LOG") -> None:
        self.number = 1
        self.counts: dict[str, int] = {}
        self.reach = TableReach()
        self._name = name
        self._has_uses = header.has_uses
        self._streams: dict[str, int] = {header.schedule_stream: 0}
        self.facts = LogFacts(plan_of(header, 0))
        self.order = OrderOracle(multiple=True, locate=self._locate, reach=self.reach)
        self.legality = LegalityOracle(self.facts)
        self.recorded = RecordedOracle(self.facts.plan, locate=self._locate)
        self._bands = {band.name: index for index, band in enumerate(header.bands)}
        self._serial = 0
        self._in_call = False
        self._uses: dict[int, OpenUse] = {}
        self._use_serial = 0
        self._transfers: dict[int, Use] = {}
        self._unfinished: list[deque[tuple[int, int, int | None]]] = [deque()]
        self._seen_uses, self._seen_events, self._seen_ops = IdSet(), IdSet(), IdSet()
        self._found: list[Violation] = []
        self._forked: list[Access] = []
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            lines.Begin: self._begin,
            lines.End: self._end,
            lines.HandOut: self._hand_out,
            lines.Free: self._free,
            lines.Move: self._move,
            lines.Reusable: self._reusable,
            lines.Retreat: self._retreat,
            lines.UseLine: self._use,
            lines.EnqueueLine: self._enqueue,
            lines.TouchLine: self._touch,
            lines.RecordLine: self._record,
            lines.WaitLine: self._wait,
            lines.ObserveLine: self._observe,
            lines.ProcessLine: self._process,
            lines.TransferLine: self._transfer,
            lines.TransferEndLine: self._transfer_end,
            lines.DisconnectLine: self._disconnect,
        }

    def feed(self, line: lines.LogLine) -> tuple[Violation, ...]:
        """Take the next line."""
        self.number += 1
        do = type(line).__name__
        self.counts[do] = self.counts.get(do, 0) + 1
        self._handlers[type(line)](line)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    @property
    def is_in_call(self) -> bool:
        """Whether a `begin` is still without its `end`: what it changed was not judged yet."""
        return self._in_call

    @property
    def works(self) -> int:
        """Operations and transfers so far; 0: nothing was put to the test."""
        return self.counts.get("EnqueueLine", 0) + self.counts.get("TransferLine", 0)

    def sizes(self) -> dict[str, int]:
        """What is kept now, by count."""
        return {
            **self.facts.sizes(),
            "order_cells": self.order.cells,
            "order_events": self.order.events_kept,
            "open_uses": len(self._uses),
            "open_transfers": len(self._transfers),
            "declared_works": self.recorded.open_works,
            "unfinished_ops": sum(map(len, self._unfinished)),
            "runs_of_numbers": len(self._seen_uses) + len(self._seen_events),
            "streams": len(self._streams),
        }

    # -- calls of the allocator
    def _begin(self, _: lines.Begin) -> None:
        if self._in_call:
            raise self._bad("do", "begin", "end the call before the next begins")
        self._in_call = True
        self._serial += 1

    def _end(self, _: lines.End) -> None:
        if not self._in_call:
            raise self._bad("do", "end", "begin a call before it ends")
        self._judge_units()
        self._in_call = False

    def _step(self) -> None:
        """The serial of what happens now: its own, or its call's."""
        if not self._in_call:
            self._serial += 1

    def _call_record(self, name: str, args: tuple[object, ...] = (), answer: object = None) -> Call:
        return Call(self._serial, self.number, name, args, answer)

    def _judge_units(self) -> None:
        """The automaton takes all changes since the last time, as those of one call."""
        call = self._call_record("units")
        facts = self.facts.feed(call)
        assert facts is not None
        changes = self.facts.take_changes()
        self.facts.written(self._forked, self._serial)
        self._forked.clear()
        self._found += self.legality.feed(facts)
        self._found += self.legality.judge_units(changes, call)
        self.facts.forget()

    def _done(self) -> None:
        if not self._in_call:
            self._judge_units()

    # -- units
    def _each(
        self, line: Any, states: Sequence[int], what: str, rule: str
    ) -> list[tuple[int, int]]:
        """(band, unit) of those that are in one of `states`; the others are reported."""
        band = self._band(line.band)
        good: list[tuple[int, int]] = []
        for unit in line.units:
            self._inside(band, unit, "units")
            if self.facts.state(band, unit) in states:
                good.append((band, unit))
            else:
                self._report(rule, what, self.facts.name(band, unit))
        return good

    def _hand_out(self, line: lines.HandOut) -> None:
        self._step()
        free = (HOLE, PENDING, VACATED)
        band = self._band(line.band)
        for unit in line.units:
            # One after the other: a unit named twice is handed out twice.
            single = lines.HandOut(line.band, (unit,))
            for _ in self._each(single, free, "a live unit is handed out again.", "1"):
                self.facts.hand_out(band, unit, self._serial)
        self._done()

    def _free(self, line: lines.Free) -> None:
        self._step()
        for unit in line.units:
            single = lines.Free(line.band, (unit,))
            for place in self._each(single, (LIVE,), "a unit is freed that is not live.", "13"):
                self.facts.free_unit(*place, self._serial)
        self._done()

    def _move(self, line: lines.Move) -> None:
        if not self._in_call:
            raise self._bad("do", "move", "put moves and their copies between begin and end")
        band = self._band(line.band)
        good: list[tuple[int, int]] = []
        sources = {source for source, _ in line.moves}
        for source, target in line.moves:
            self._inside(band, source, "moves")
            self._inside(band, target, "moves")
            taken = target not in sources and self.facts.state(band, target) == LIVE
            if self.facts.state(band, source) != LIVE or source in {pair[0] for pair in good}:
                self._report("13", "a unit moves that is not live.", self.facts.name(band, source))
            elif taken or target in {pair[1] for pair in good}:
                self._report("3", "a unit moves onto a live one.", self.facts.name(band, target))
            else:
                good.append((source, target))
        self.facts.move_units(band, good, self._serial)
        self._done()

    def _reusable(self, line: lines.Reusable) -> None:
        self._step()
        states = (PENDING, VACATED, HOLE)
        for place in self._each(line, states, "a live unit is taken for a hole.", "1"):
            self.facts.leave(*place, HOLE)
        self._done()

    def _retreat(self, line: lines.Retreat) -> None:
        self._step()
        states = (PENDING, VACATED, HOLE)
        for place in self._each(line, states, "a frontier passes a live unit.", "5"):
            start, end = self.facts.unit_range(*place)
            if self.facts.under_transfer(start, end, before=FOREVER) is not None:
                name = self.facts.name(*place)
                self._report("5", "a frontier passes a unit under a transfer.", name)
            self.facts.leave(*place, BEYOND)
        self._done()

    # -- uses and streams
    def _use(self, line: lines.UseLine) -> None:
        if not self._has_uses:
            raise self._bad("do", "use", "leave it out, or say has_uses: true in the header")
        if line.use in self._seen_uses:
            raise self._bad("use", line.use, "give each use a number of its own, counted up")
        self._note(self._seen_uses, "use", line.use)
        stream = self._stream(line.stream)
        self._uses[line.use] = OpenUse(line.use, line.kind, stream, line.accesses)

    def _enqueue(self, line: lines.EnqueueLine) -> None:
        self._step()
        if line.op in self._seen_ops:
            raise self._bad("op", line.op, "give each operation a number of its own, counted up")
        self._note(self._seen_ops, "op", line.op)
        stream = self._stream(line.stream)
        record = Enqueue(line.op, stream, line.kind, line.label, line.accesses)
        self._found += self.order.feed(record)
        self.recorded.feed(record)
        use = None if line.use is None else self._uses.get(line.use)
        if line.kind in WORLD_KINDS:
            self._judge_held(f"op {line.op}", line.accesses)
        self._work(record, use)
        if line.kind == UseKind.FORK:
            self._forked += [access for access in line.accesses if access.writes]
        if use is not None:
            use.unfinished += 1
        position = self.facts.clock_of(stream)[stream]
        self._unfinished[stream].append((position, line.op, None if use is None else use.number))
        self._done()

    def _work(self, record: Enqueue, use: OpenUse | None) -> None:
        """The facts of an operation, and what the automaton says of its record."""
        facts = self.facts
        facts.feed(record)
        if use is not None and use.stream != record.stream:
            # Side work is joined before the use's event, whose touches stand for it.
            facts.since.ops.pop()
            self._covered(record, use)
            return
        if use is None or record.kind not in WORLD_KINDS:
            of_call = facts.feed(self._call_record("enqueue"))
            assert of_call is not None
            if record.kind in WORLD_KINDS:
                facts.written([a for a in record.accesses if a.writes], self._serial)
            if self._has_uses or record.kind not in WORLD_KINDS:
                self._found += self.legality.feed(of_call)
            return
        # The record comes before its work: the facts must not see the work at the first call.
        work, facts.since.ops = facts.since.ops, []
        made = self._made(use.kind, record.stream, use.accesses)
        facts.feed(self._call_record("record", answer=made))
        self._drop(use.launched)
        use.launched = made
        facts.since.ops = work
        of_call = facts.feed(self._call_record("launch", (made, None)))
        assert of_call is not None
        self._found += self.legality.feed(of_call)

    def _drop(self, made: Use | None) -> None:
        if made is not None:
            self.facts.uses.pop(made.serial, None)

    def _made(self, kind: int, stream: int, accesses: Sequence[Access], peer: int = -1) -> Use:
        """A use as the oracles know it, its ranges cut at the units that hold them."""
        self._use_serial += 1
        arena = [access for access in accesses if access.space is Space.ARENA]
        host = [access for access in accesses if access.space is Space.HOST]
        pieces = self.facts.pieces
        return Use(
            self._use_serial,
            UseKind(kind),
            stream,
            reads=tuple(p for access in arena if not access.writes for p in pieces(access)),
            writes=tuple(p for access in arena if access.writes for p in pieces(access)),
            host_reads=tuple((0, a.start, a.end) for a in host if not a.writes),
            host_writes=tuple((0, a.start, a.end) for a in host if a.writes),
            peer=peer,
        )

    def _covered(self, record: Enqueue, use: OpenUse) -> None:
        """Side work touches what its use recorded."""
        self.recorded.feed(Enqueue(-1, use.stream, use.kind, "", use.accesses))
        inside = tuple(a for a in record.accesses if a.space in (Space.ARENA, Space.HOST))
        for found in self.recorded.feed(Effect(-1, 0, inside)):
            self._report("8", f"side work of use {use.number}: {found.message}", found.unit)
        self.recorded.feed(OpEnd(-1))

    def _judge_held(self, who: str, accesses: Sequence[Access]) -> None:
        """Work names bytes of live units only."""
        for access in accesses:
            if access.space is not Space.ARENA:
                continue
            for name, start, end in self.facts.pieces(access):
                if name:
                    continue
                verb = "writes" if access.writes else "reads"
                extent = ByteRange("arena", start, end)
                unit = self.facts.unit_at(start, end)
                message = f"{who} {verb} {extent}, which no live unit holds."
                self._report("13", message, unit, extent)

    def _touch(self, line: lines.TouchLine) -> None:
        self._found += self.recorded.feed(Effect(line.op, 0, line.accesses))

    def _record(self, line: lines.RecordLine) -> None:
        self._note(self._seen_events, "event", line.event)
        self._trace(Record(line.event, self._stream(line.stream)))

    def _wait(self, line: lines.WaitLine) -> None:
        self._trace(WaitEvent(self._stream(line.stream), line.event))

    def _observe(self, line: lines.ObserveLine) -> None:
        self._trace(Observe(line.event))
        for stream, ops in enumerate(self._unfinished):
            while ops and ops[0][0] <= self.facts.host_clock[stream]:
                _, op, number = ops.popleft()
                self.recorded.feed(OpEnd(op))
                use = self._uses.get(number) if number is not None else None
                if use is None:
                    continue
                use.unfinished -= 1
                if not use.unfinished:
                    del self._uses[use.number]
                    self._drop(use.launched)

    def _trace(self, record: object) -> None:
        self._found += self.order.feed(record)
        self.facts.feed(record)
        self.facts.drop_events()

    def _process(self, line: lines.ProcessLine) -> None:
        if line.use not in self._seen_uses:
            raise self._bad("use", line.use, "record the use before its result is processed")
        use = self._uses.get(line.use)
        if use is not None and use.launched is not None:
            self.facts.feed(self._call_record("process", (use.launched,)))

    # -- transfers
    def _transfer(self, line: lines.TransferLine) -> None:
        if line.transfer in self._transfers:
            raise self._bad("transfer", line.transfer, "give a number that no open transfer has")
        self._step()
        begun = TransferBegin(line.transfer, line.kind, line.accesses)
        self._found += self.order.feed(begun)
        self._judge_held(f"transfer {line.transfer}", line.accesses)
        made = self._made(line.kind, -1, line.accesses, line.peer)
        self._transfers[line.transfer] = made
        kind = UseKind(line.kind)
        self.facts.feed(self._call_record("publish", (kind, (), line.peer), made))
        self.facts.feed(begun)
        of_call = self.facts.feed(self._call_record("launch", (made, None)))
        assert of_call is not None
        self._found += self.legality.feed(of_call)
        self._done()

    def _transfer_end(self, line: lines.TransferEndLine) -> None:
        if line.transfer not in self._transfers:
            raise self._bad("transfer", line.transfer, "give the number of an open transfer")
        self._end_transfer(line.transfer, line.outcome)

    def _disconnect(self, line: lines.DisconnectLine) -> None:
        mine = [number for number, use in self._transfers.items() if use.peer == line.peer]
        for number in mine:
            self._end_transfer(number, "failed")

    def _end_transfer(self, number: int, outcome: str) -> None:
        made = self._transfers[number]
        if outcome != "lost":
            del self._transfers[number]
            self._found += self.order.feed(TransferEnd(number, OUTCOMES[outcome]))
        self.facts.feed(self._call_record("end_transfer", (made, outcome)))

    # -- names
    def _band(self, name: str) -> int:
        band = self._bands.get(name)
        if band is None:
            raise self._bad("band", name, f"give one of {', '.join(self._bands)}, as line 1 says")
        return band

    def _inside(self, band: int, unit: int, field: str) -> None:
        facts = self.facts.bands[band]
        first, last = facts.first_unit, facts.first_unit + facts.capacity_units - 1
        if not first <= unit <= last:
            raise self._bad(field, unit, f"give units from {first} to {last} of {facts.name}")

    def _stream(self, name: str) -> int:
        stream = self._streams.get(name)
        if stream is None:
            if len(self._streams) >= STREAMS_MAX:
                raise self._bad("stream", name, f"use at most {STREAMS_MAX} streams")
            stream = self._streams[name] = len(self._streams)
            self._unfinished.append(deque())
            self.facts.grow(stream)
        return stream

    def stream_names(self) -> list[str]:
        """Streams by their number in reports."""
        return list(self._streams)

    def _note(self, seen: IdSet, field: str, number: int) -> None:
        seen.add(number)
        if len(seen) > RUNS_MAX:
            raise self._bad(field, number, "count these numbers up, or take them from a pool")

    def _locate(self, space: Space, start: int, end: int) -> UnitName | None:
        return self.facts.unit_at(start, end) if space is Space.ARENA else None

    def _bad(self, field: str, value: object, fix: str) -> UsageError:
        return UsageError(f"{self._name} line {self.number}, {field}", value, fix)

    def _report(
        self, rule: str, message: str, unit: UnitName | None, extent: ByteRange | None = None
    ) -> None:
        self._found.append(
            Violation(
                "units", rule, message, unit=unit, bytes=extent, details={"line": self.number}
            )
        )
