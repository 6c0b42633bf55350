"""The modeled device: streams, events and transfers in virtual time, one chosen step after the
other.

Nothing happens by itself. `enabled` lists the steps that real streams and peers could take next,
`step` takes one; whoever chooses makes the schedule, so every order that streams, events and
one-sided transfers allow can be had, and no other. The same calls and the same choices give the
same trace, byte for byte.

Steps of a stream: start the op at its head, one effect of the running op, end it, pass a wait
whose event is complete, complete an event. Streams have at most one next step; they interleave.
Steps of a transfer: begin to run, one effect, end, acknowledge a cancel; and, as faults, fail
half-way or lose the peer.
"""

from __future__ import annotations

from typing import Final

from onearena.core.device.interface import (
    EventId,
    OpId,
    StreamId,
    TransferId,
    TransferStatus,
    Work,
)
from onearena.core.device.modeled_effects import Job, run_effect, spoil
from onearena.core.device.modeled_memory import Grids, Memory
from onearena.core.device.modeled_parts import (
    OP,
    RECORD,
    WAIT,
    Chooser,
    Event,
    Gate,
    Step,
    StepKind,
    Stream,
    join_clocks,
    named,
)
from onearena.core.device.modeled_transfers import Transfers
from onearena.core.device.trace import (
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    Trace,
    WaitEvent,
)
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.rules import TRANSFER_KINDS

__all__ = ["Chooser", "Gate", "ModeledDevice", "Step", "StepKind"]

EVENTS_MAX: Final = 1 << 16

# Plain numbers for the hot path: an enum member costs an attribute look-up.
_START, _EFFECT, _END, _PASS, _COMPLETE = (int(kind) for kind in list(StepKind)[:5])


class ModeledDevice:
    """A `Device` whose every step somebody chooses. One thread calls everything.

    `memory` holds the bytes as stamps, and the hooks that see each access; `trace` is the account
    of all that happened; `gate`, when set, delays what the host sees of events and transfers that
    are over (never of an event that must be over because of something the host saw already).

    With `eager`, waits are passed and events completed as soon as they can be, a start is one
    step with the first effect and an end one with the last: about half the steps, and the same
    orders of effects and observations, because the merged steps touch nothing.
    """

    def __init__(
        self,
        *,
        grids: Grids | None = None,
        trace: Trace | None = None,
        gate: Gate | None = None,
        eager: bool = False,
    ) -> None:
        """`grids` gives, for each band that translations meet, where unit 0 starts and a unit's
        bytes.
        """
        self.trace = Trace() if trace is None else trace
        self.memory = Memory({} if grids is None else grids)
        self.gate = gate
        self.steps = 0
        self._eager = eager
        self._emit = self.trace.emit
        self._error: str | None = None
        self._streams: list[Stream] = []
        self._by_name: dict[str, Stream] = {}
        self._events: dict[EventId, Event] = {}
        self._next_event = 0
        self._next_number = 0  # ops and transfers
        self._transfers = Transfers(self.memory, self._emit)
        self._host_clock: list[int] = []

    # -- calls of the host -------------------------------------------------------------------------

    def stream(self, name: str) -> StreamId:
        """The stream of that name; made at the first call. O(1)."""
        self._check_error()
        known = self._by_name.get(name)
        if known is None:
            known = Stream(len(self._streams), name)
            self._streams.append(known)
            self._by_name[name] = known
            self.trace.stream_names.append(name)
            self._host_clock.append(0)
        return known.number

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """Enqueue `work` on `stream`. O(accesses of the work)."""
        target = self._stream(stream)
        if work.kind in TRANSFER_KINDS:
            raise MisuseError(
                f"work.kind: {work.kind!r} is a transfer; use begin_transfer", argument="work"
            )
        number = self._next_number
        job = Job(number, work)
        self._next_number += 1
        self._emit(Enqueue(number, stream, job.kind, work.label, work.accesses))
        self._append(target, (OP, job))
        return number

    def record(self, stream: StreamId) -> EventId:
        """An event after everything enqueued on `stream` so far. O(streams)."""
        source = self._stream(stream)
        if len(self._events) >= EVENTS_MAX:
            raise DeviceError(f"{EVENTS_MAX} events are named; release those whose uses are over")
        source.recorded += 1
        clock = source.clock
        clock.extend([0] * (len(self._streams) - len(clock)))
        clock[stream] = source.recorded
        number = self._next_event
        self._next_event += 1
        event = Event(number, stream, source.recorded, tuple(clock))
        self._events[number] = event
        self._emit(Record(number, stream))
        self._append(source, (RECORD, event))
        return number

    def wait(self, stream: StreamId, event: EventId) -> None:
        """What `stream` gets from now on runs after `event`. O(streams)."""
        target = self._stream(stream)
        awaited = self._event(event)
        self._emit(WaitEvent(stream, event))
        join_clocks(target.clock, awaited.clock)
        self._append(target, (WAIT, awaited))

    def query(self, event: EventId) -> bool:
        """Whether the host sees `event` complete; the first True is logged as `Observe`.
        O(streams).
        """
        self._check_error()
        state = self._event(event)
        if state.observed:
            return True
        if not state.complete:
            return False
        implied = self._host_clock[state.stream] >= state.position
        if not implied and self.gate is not None and not self.gate("event", event):
            return False
        state.observed = True
        join_clocks(self._host_clock, state.clock)
        self._emit(Observe(event))
        return True

    def release(self, event: EventId) -> None:
        """No use names `event` any more: it is unknown from now on. O(1)."""
        assert event in self._events, f"event {event} is not named by anyone: released twice?"
        del self._events[event]

    def begin_transfer(self, work: Work) -> TransferId:
        """The peer may touch the bytes from now on. O(accesses of the work)."""
        self._check_error()
        if work.kind not in TRANSFER_KINDS:
            raise MisuseError(f"work.kind: {work.kind!r} runs on a stream", argument="work")
        number = self._next_number
        job = Job(number, work)
        self._next_number += 1
        self._transfers.begin(job)
        return number

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """What the host sees; a first DONE, FAILED or CANCELLED is logged: `TransferEnd`. O(1)."""
        self._check_error()
        return self._transfers.status(transfer, self.gate)

    def cancel_transfer(self, transfer: TransferId) -> None:
        """Ask the peer to stop. It may still finish, or acknowledge. O(1)."""
        self._check_error()
        self._transfers.cancel(transfer)

    def disconnect(self, peer: int) -> None:
        """Tear down the connection: no transfer of `peer` touches anything from now on.
        O(transfers).
        """
        self._check_error()
        self._transfers.disconnect(peer)

    # -- the schedule ------------------------------------------------------------------------------

    def enabled(self, *, faults: bool = False) -> list[Step]:
        """Every step possible now: streams by number, then transfers by id; with `faults`, then
        the failing of each running transfer and the death of each peer with one. O(streams +
        transfers).
        """
        if self._error is not None:
            return []
        steps = [stream.token for stream in self._streams if stream.token is not None]
        return steps + self._transfers.enabled(faults=faults)

    def step(self, step: Step) -> None:
        """Take one enabled step. O(accesses of the effect)."""
        kind, number = step
        self.steps += 1
        if kind <= _COMPLETE:
            stream = self._streams[number]
            assert stream.token == step, f"{step} is not enabled; next of {number}: {stream.token}"
            self._step_stream(stream, kind)
        else:
            self._transfers.step(step)

    def complete(self, event: EventId) -> bool:
        """Whether `event` is complete, seen by the host or not. For the schedule, not for the
        host. O(1).
        """
        return self._event(event).complete

    def run_until_idle(self, chooser: Chooser | None = None) -> int:
        """Take steps, without faults, until none is left; answers how many. Default: the first
        enabled.

        Raises `DeviceError` naming stream and event when work is left that can never run.
        """
        taken = 0
        while steps := self.enabled():
            self.step(steps[0 if chooser is None else chooser(steps)])
            taken += 1
        self._check_error()
        stuck = [self._stuck(s) for s in self._streams if s.queue or s.running is not None]
        if stuck:
            raise DeviceError("; ".join(stuck))
        return taken

    def stall(self, stream: StreamId, *, stalled: bool = True) -> None:
        """Fault: `stream` takes no step until it is called again with `stalled=False`."""
        target = self._stream(stream)
        target.stalled = stalled
        self._refresh(target)

    def break_down(self, message: str) -> None:
        """Fault: a device error that may have hit any work. Every later host call raises
        `DeviceError`.
        """
        self._error = message

    def busy(self) -> bool:
        """Whether any stream has work, or any transfer is running. O(streams + transfers)."""
        if any(stream.queue or stream.running is not None for stream in self._streams):
            return True
        return self._transfers.running()

    def describe(self, step: Step) -> str:
        """One step in words: what, where, and the op's label."""
        kind, number = step
        words = kind.name.lower().replace("_", " ")
        if kind == StepKind.PEER_DIES:
            return f"peer {number} dies"
        if kind > StepKind.COMPLETE:
            job = self._transfers.job(number)
            return f"{words} of transfer {number}{named(job)}"
        stream = self._streams[number]
        if stream.running is not None:
            return f"{stream.name}: {words} of op {stream.running.number}{named(stream.running)}"
        payload = stream.queue[0][1]
        if isinstance(payload, Job):
            return f"{stream.name}: {words} of op {payload.number}{named(payload)}"
        return f"{stream.name}: {words} event {payload.number}"

    # -- inside ------------------------------------------------------------------------------------

    def _check_error(self) -> None:
        if self._error is not None:
            raise DeviceError(f"the device broke down: {self._error}")

    def _stream(self, stream: StreamId) -> Stream:
        self._check_error()
        if not 0 <= stream < len(self._streams):
            raise MisuseError(f"stream {stream} is not a stream of this device", argument="stream")
        return self._streams[stream]

    def _event(self, event: EventId) -> Event:
        state = self._events.get(event)
        if state is None:
            made = 0 <= event < self._next_event
            what = "was released" if made else "was never recorded"
            raise MisuseError(f"event {event} {what}", argument="event")
        return state

    def _append(self, stream: Stream, item: tuple[int, Job | Event]) -> None:
        stream.queue.append(item)
        if stream.token is None and stream.running is None and len(stream.queue) == 1:
            self._refresh(stream)

    def _refresh(self, stream: Stream) -> None:
        """Find the stream's next step. With `eager`, first take those that touch nothing, on
        every stream that this sets free.
        """
        if self._eager:
            pending = [stream]
            for each in pending:  # grows while it runs; each event completes once, so it ends
                self._take_quiet_steps(each, pending)
                each.token = self._next_step(each)
        else:
            stream.token = self._next_step(stream)

    def _take_quiet_steps(self, stream: Stream, freed: list[Stream]) -> None:
        queue = stream.queue
        while queue and stream.running is None and not stream.stalled:
            code, payload = queue[0]
            if code == OP:
                return
            assert isinstance(payload, Event)
            if code == RECORD:
                payload.complete = True
                freed += payload.waiters
                payload.waiters.clear()
            elif not payload.complete:
                return
            queue.popleft()

    def _next_step(self, stream: Stream) -> Step | None:
        if stream.stalled:
            return None
        job = stream.running
        if job is not None:
            return stream.tokens[_EFFECT if job.next < job.length else _END]
        if not stream.queue:
            return None
        code, payload = stream.queue[0]
        if code == OP:
            return stream.tokens[_START]
        if code == RECORD:
            return stream.tokens[_COMPLETE]
        assert isinstance(payload, Event)
        if payload.complete:
            return stream.tokens[_PASS]
        if stream not in payload.waiters:
            payload.waiters.append(stream)
        return None

    def _step_stream(self, stream: Stream, kind: StepKind) -> None:
        job = stream.running
        if job is None:
            code, payload = stream.queue.popleft()
            if isinstance(payload, Event):
                if code == RECORD:
                    payload.complete = True
                    waiters, payload.waiters = payload.waiters, []
                    for waiter in waiters:
                        self._refresh(waiter)
                self._refresh(stream)
                return
            job = stream.running = payload
            self._emit(Start(job.number))
            stream.token = stream.tokens[_EFFECT if job.next < job.length else _END]
            if not self._eager:
                return
        if kind != _END and job.next < job.length:
            self._effect(job)
            if job.next < job.length:
                return  # another effect; the token stays
            if not self._eager:
                stream.token = stream.tokens[_END]
                return
        self._end(job)
        stream.running = None
        self._refresh(stream)

    def _effect(self, job: Job) -> None:
        piece = job.next
        self._emit(Effect(job.number, piece, run_effect(self.memory, job)))

    def _end(self, job: Job) -> None:
        if job.fails:
            self._emit(Effect(job.number, job.next, spoil(self.memory, job)))
        self._emit(End(job.number))

    def _stuck(self, stream: Stream) -> str:
        if stream.stalled:
            return f"stream {stream.name!r} is stuck: it takes no step"
        awaited = stream.queue[0][1]
        assert isinstance(awaited, Event), f"stream {stream.name!r} has an op and no step"
        source = self._streams[awaited.stream].name
        return f"stream {stream.name!r} is stuck: it waits on event {awaited.number} of {source!r}"
