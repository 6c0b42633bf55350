"""Random traces for the order oracle: mostly well ordered, with edges left out at a drawn rate.

Wholly random accesses would race at once. So the generator knows who is ordered before whom, as
sets of operations (bits of an integer), and puts in the edge that each new operation lacks: in
different ways, or wrongly, or not at all. It shares no code with the oracle or the reference; on a
trace whose rate of left-out edges is 0, both have to find nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from onearena.core.device.interface import Access, OpKind, Space, TransferStatus
from onearena.core.device.trace import (
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    TraceRecord,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import UseKind

OP_KINDS = (
    UseKind.FORWARD,
    UseKind.FORWARD,
    UseKind.FORWARD,
    UseKind.BACKUP,
    UseKind.LOAD,
    UseKind.MOVE,
    UseKind.FORK,
    UseKind.ZEROING,
    OpKind.TABLE_UPDATE,
    OpKind.TRANSLATE,
)
ENTRY_BYTES = 8
BUFFER_BYTES = 64


@dataclass(frozen=True)
class RandomTrace:
    """A trace, and how it was made. `leak` is the rate at which needed edges are left out."""

    seed: int
    leak: float
    streams: int
    accesses: int
    records: list[TraceRecord]


@dataclass
class _Past:
    number: int
    stream: int | None
    accesses: tuple[Access, ...]


@dataclass
class _State:
    """Who is ordered before whom, as the generator sees it: bit n stands for operation n."""

    known: list[int]
    host: int = 0
    events: dict[int, int] = field(default_factory=dict)
    running: list[int] = field(default_factory=list)
    past: list[_Past] = field(default_factory=list)
    records: list[TraceRecord] = field(default_factory=list)
    accesses: int = 0


def random_trace(seed: int) -> RandomTrace:
    """The trace of one seed: at least 100 accesses, 2 to 5 streams, all spaces, transfers."""
    rng = random.Random(seed)
    leak = rng.choice((0.0, 0.0, 0.0, 0.01, 0.03, 0.05, 0.1, 0.3))
    streams = rng.randint(2, 5)
    maker = _Maker(rng, leak=leak, streams=streams)
    wanted = rng.randint(100, 240)
    while maker.state.accesses < wanted:
        maker.step()
    state = maker.state
    return RandomTrace(
        seed=seed,
        leak=leak,
        streams=streams,
        accesses=state.accesses,
        records=state.records,
    )


class _Maker:
    def __init__(self, rng: random.Random, *, leak: float, streams: int) -> None:
        self.rng = rng
        self.leak = leak
        self.streams = streams
        self.state = _State(known=[0] * streams)
        self.units = _units(rng)
        self.host_units = [(unit * 96, unit * 96 + 96) for unit in range(4)]
        self.table_entries = rng.randint(4, 24)
        self.buffers = rng.randint(1, 4)
        self.observes = rng.choice((0.0, 0.02, 0.1, 0.3))
        self.reuses_events = rng.choice((0.0, 0.3, 0.9))
        self.unrecorded = 0.05 if leak and rng.random() < 0.2 else 0.0
        self.next_event = 0

    # -- one step ---------------------------------------------------------------------------------

    def step(self) -> None:
        rng, state = self.rng, self.state
        draw = rng.random()
        if draw < 0.62:
            self.operation(rng.randrange(self.streams))
        elif draw < 0.70:
            self.transfer()
        elif draw < 0.76 and state.running:
            self.end_transfer(rng.choice(state.running))
        elif draw < 0.84:
            self.record(rng.randrange(self.streams))
        elif draw < 0.90 and state.events:
            self.wait(rng.randrange(self.streams), rng.choice(list(state.events)))
        elif rng.random() < self.observes and state.events:
            self.observe(rng.choice(list(state.events)))
        elif rng.random() < self.unrecorded:
            state.records.append(WaitEvent(rng.randrange(self.streams), 1_000_000))
        elif state.past:
            self.execution_noise()

    def operation(self, stream: int) -> None:
        kind = self.rng.choice(OP_KINDS)
        accesses = self.op_accesses(kind)
        self.order(stream, accesses)
        state = self.state
        number = len(state.past)
        state.records.append(
            Enqueue(number, stream, int(kind), f"{kind.name.lower()} {number}", accesses)
        )
        state.known[stream] |= state.host | 1 << number
        state.past.append(_Past(number, stream, accesses))
        state.accesses += len(accesses)
        if self.rng.random() < self.leak:
            self.late_edge(stream)

    def transfer(self) -> None:
        sends = self.rng.random() < 0.5
        count = self.rng.randint(1, 4)
        accesses = tuple(self.unit_access(writes=not sends) for _ in range(count))
        if self.rng.random() < 0.3:
            accesses = (*accesses, self.host_access(writes=not sends))
        self.order(None, accesses)
        state = self.state
        number = len(state.past)
        kind = UseKind.SEND if sends else UseKind.RECEIVE
        state.records.append(TransferBegin(number, int(kind), accesses))
        state.running.append(number)
        state.past.append(_Past(number, None, accesses))
        state.accesses += len(accesses)

    # -- edges ------------------------------------------------------------------------------------

    def order(self, stream: int | None, accesses: tuple[Access, ...]) -> None:
        """Put in the edges that `accesses` on `stream` (None: a transfer) lack, but for leaks."""
        state = self.state
        for past in reversed(state.past):
            before = state.host if stream is None else state.host | state.known[stream]
            if before >> past.number & 1 or not _conflict(past.accesses, accesses):
                continue
            if self.rng.random() < self.leak:
                self.decoy(past, stream)
            else:
                self.edge(past, stream)

    def edge(self, past: _Past, stream: int | None) -> None:
        if past.stream is None:
            self.end_transfer(past.number)
            return
        covering = [e for e, mask in self.state.events.items() if mask >> past.number & 1]
        if covering and self.rng.random() < 0.5:
            event = self.rng.choice(covering)
        elif self.rng.random() < 0.3:
            middle = self.rng.randrange(self.streams)
            self.wait(middle, self.record(past.stream))
            event = self.record(middle)
        else:
            event = self.record(past.stream)
        if stream is None or self.rng.random() < self.observes / 2:
            self.observe(event)
        else:
            self.wait(stream, event)

    def decoy(self, past: _Past, stream: int | None) -> None:
        """Something that looks like the edge and is not, or nothing."""
        draw = self.rng.random()
        useless = [e for e, mask in self.state.events.items() if not mask >> past.number & 1]
        if draw < 0.3 and useless and stream is not None:
            self.wait(stream, self.rng.choice(useless))
        elif draw < 0.4 and useless:
            self.observe(self.rng.choice(useless))
        elif draw < 0.6 and past.stream is not None:
            event = self.record(past.stream)
            others = [other for other in range(self.streams) if other != stream]
            self.wait(self.rng.choice(others), event)
        elif draw < 0.8 and past.stream is not None:
            self.record(past.stream)

    def late_edge(self, stream: int) -> None:
        """A wait put on the stream after the operation that needed it."""
        if self.state.events:
            self.wait(stream, self.rng.choice(list(self.state.events)))

    def record(self, stream: int) -> int:
        state = self.state
        if state.events and self.rng.random() < self.reuses_events:
            event = self.rng.choice(list(state.events))
        else:
            event = self.next_event
            self.next_event += 1
        state.records.append(Record(event, stream))
        state.events[event] = state.known[stream] | state.host
        return event

    def wait(self, stream: int, event: int) -> None:
        self.state.records.append(WaitEvent(stream, event))
        self.state.known[stream] |= self.state.events[event]

    def observe(self, event: int) -> None:
        self.state.records.append(Observe(event))
        self.state.host |= self.state.events[event]

    def end_transfer(self, number: int) -> None:
        state = self.state
        state.running.remove(number)
        status = self.rng.choice(
            (TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED)
        )
        state.records.append(TransferEnd(number, int(status)))
        state.host |= 1 << number

    def execution_noise(self) -> None:
        past = self.rng.choice(self.state.past)
        self.state.records += [Start(past.number), Effect(past.number, 0, ()), End(past.number)]

    # -- accesses ---------------------------------------------------------------------------------

    def op_accesses(self, kind: UseKind | OpKind) -> tuple[Access, ...]:
        rng = self.rng
        if kind is UseKind.FORWARD:
            reads = [self.unit_access(writes=False) for _ in range(rng.randint(0, 5))]
            writes = [self.unit_access(writes=True) for _ in range(rng.randint(0, 2))]
            sink = [Access(Space.ARENA, -64, rng.choice((-48, -1, 0)), True)]
            buffer = [self.buffer_access(writes=False)]
            accesses = reads + writes + sink * (rng.random() < 0.4) + buffer
            rng.shuffle(accesses)
            return tuple(accesses)
        if kind is UseKind.BACKUP:
            return self.unit_access(writes=False), self.host_access(writes=True)
        if kind is UseKind.LOAD:
            return self.host_access(writes=False), self.unit_access(writes=True)
        if kind in (UseKind.MOVE, UseKind.FORK):
            return self.unit_access(writes=False), self.unit_access(writes=True)
        if kind is UseKind.ZEROING:
            return (self.unit_access(writes=True),)
        entries = tuple(
            self.table_access(writes=kind is OpKind.TABLE_UPDATE) for _ in range(rng.randint(1, 3))
        )
        if kind is OpKind.TABLE_UPDATE:
            return entries
        return (*entries, self.buffer_access(writes=True))

    def unit_access(self, *, writes: bool) -> Access:
        """A unit, a run of neighbours (of two bands at times), a part, or one off by a byte."""
        rng = self.rng
        first = rng.randrange(len(self.units))
        start, end = self.units[first]
        draw = rng.random()
        if draw < 0.15:
            last = min(first + rng.randint(1, 3), len(self.units) - 1)
            end = max(end, self.units[last][1])
        elif draw < 0.30:
            start = rng.randrange(start, end)
            end = rng.randint(start + 1, end)
        elif draw < 0.36:
            end += 1
        elif draw < 0.42:
            start -= 1  # for the first unit this is a byte of a sink
        elif draw < 0.44:
            end = start
        return Access(Space.ARENA, start, end, writes)

    def host_access(self, *, writes: bool) -> Access:
        return Access(Space.HOST, *self.rng.choice(self.host_units), writes)

    def table_access(self, *, writes: bool) -> Access:
        start = self.rng.randrange(self.table_entries) * ENTRY_BYTES
        return Access(Space.TABLE, start, start + ENTRY_BYTES, writes)

    def buffer_access(self, *, writes: bool) -> Access:
        start = self.rng.randrange(self.buffers) * BUFFER_BYTES
        return Access(Space.BUFFER, start, start + BUFFER_BYTES, writes)


def _units(rng: random.Random) -> list[tuple[int, int]]:
    """Units of 2 to 4 bands of unequal unit sizes, low to high, with gaps between the bands."""
    units = []
    at = 0
    for _ in range(rng.randint(2, 4)):
        size = rng.choice((16, 48, 80, 112, 208))
        for _ in range(rng.randint(2, 9)):
            units.append((at, at + size))
            at += size
        at += rng.choice((0, 0, 16, 40))
    # Two bands may have held the same bytes one after the other: units of another grid over them.
    size = rng.choice((64, 96, 144))
    units += [(start, start + size) for start in range(rng.choice((0, 8)), at - size, size)]
    return units


def _conflict(one: tuple[Access, ...], other: tuple[Access, ...]) -> bool:
    for space, start, end, writes in one:
        for other_space, other_start, other_end, other_writes in other:
            if space != other_space or not (writes or other_writes):
                continue
            low, high = max(start, other_start), min(end, other_end)
            if space == Space.ARENA:
                low = max(low, 0)  # sinks are exempt
            if low < high:
                return True
    return False


def steady_trace(
    *, ops: int, reads: int, units: int, unit_bytes: int = 65_536, seed: int = 1
) -> list[TraceRecord]:
    """A long well-ordered run of overlapped decoding, to measure the oracle on; no race in it.

    Two forward streams take turns; each forward waits for the one before it, reads `reads` random
    units and its buffer slot, and writes a part of two. The host sees a forward's event four
    forwards later. In between, a schedule stream translates, and moves and copies to the host run.
    """
    rng = random.Random(seed)
    records: list[TraceRecord] = []
    pending: list[int] = []
    event = -1
    for number in range(0, 2 * ops, 2):
        forward, schedule = number // 2 % 2, 2
        slot = number // 2 % 8
        buffer = (slot * BUFFER_BYTES, (slot + 1) * BUFFER_BYTES)
        if event >= 0:
            records.append(WaitEvent(schedule, event))
        chosen = [rng.randrange(units) * unit_bytes for _ in range(reads)]
        translate = [Access(Space.TABLE, s // 8_192, s // 8_192 + 8, False) for s in chosen[:4]]
        move = rng.randrange(units) * unit_bytes
        extra: list[Access] = []
        if number % 8 == 0:
            extra = [
                Access(Space.ARENA, chosen[0], chosen[0] + unit_bytes, False),
                Access(Space.ARENA, move, move + unit_bytes, True),
                Access(Space.TABLE, move // 8_192, move // 8_192 + 8, True),
            ]
        accesses = (*translate, Access(Space.BUFFER, *buffer, True), *extra)
        records.append(Enqueue(number, schedule, int(OpKind.TRANSLATE), "", accesses))
        records += [Record(number, schedule), WaitEvent(forward, number)]
        if event >= 0:
            records.append(WaitEvent(forward, event))
        accesses = (
            *(Access(Space.ARENA, start, start + unit_bytes, False) for start in chosen),
            Access(Space.ARENA, chosen[0] + 1_024, chosen[0] + 2_048, True),
            Access(Space.ARENA, chosen[-1] + 1_024 * (slot + 1), chosen[-1] + 16_384, True),
            Access(Space.ARENA, -4_096, -2_048, True),
            Access(Space.BUFFER, *buffer, False),
        )
        event = number + 1
        records += [Enqueue(number + 1, forward, 0, "", accesses), Record(event, forward)]
        pending.append(event)
        if len(pending) > 4:
            records.append(Observe(pending.pop(0)))
    return records
