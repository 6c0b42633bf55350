"""The cuda device: torch's streams and events, numba's kernels, bytes on a GPU.

Work becomes the same programs as on the threads device, run by kernels (`cuda_launches`). Each
named stream is a CUDA stream, a record a CUDA event, a wait `Stream.wait_event`; a transfer runs
on a lane, a CUDA stream that no other one waits for. No call waits for the device, except the
constructor, `finish...`, `disconnect` and `close`, and those for a bounded time.

Every call into torch and numba is checked. The first that fails fails the device: CUDA errors can
be sticky and come from other work than the call that reports them.
"""

from __future__ import annotations

import time
from typing import Any, Final

from onearena.core.device.cuda_api import Checked, CudaApi
from onearena.core.device.cuda_launches import Lane, Launched, Launcher
from onearena.core.device.cuda_memory import CONTROL_WORDS, CudaMemory
from onearena.core.device.cuda_programs import fill_block, groups_of, without_pauses
from onearena.core.device.interface import EventId, OpId, StreamId, TransferId, TransferStatus, Work
from onearena.core.device.threads_log import AccessLog
from onearena.core.device.threads_programs import Pacing, RowFailure, compile_work
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    Trace,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.rules import TRANSFER_KINDS, UseKind

LANES_MAX: Final = 8
"""torch hands out 32 streams by turns, so a device keeps below that."""

STREAMS_MAX: Final = 20
FAILURES_KEPT_MAX: Final = 64
POLLS_MAX: Final = 64
NAP_S: Final = 0.0002


class CudaDevice:
    """A `Device` on a GPU. One control thread calls; `close` when nothing is needed any more.

    `trace` gets the same records as any device's, host calls at once and execution when the host
    next looks. `failures` are accesses that found other bytes than they should.
    """

    def __init__(
        self,
        api: CudaApi,
        memory: CudaMemory,
        checked: Checked,
        *,
        trace: Trace | None = None,
        seed: int = 0,
        timeout_s: float = 30.0,
        graphs: bool = True,
    ) -> None:
        """`seed` draws pauses inside accesses (0: none); no decision depends on it. `timeout_s`
        bounds every wait of the host. `graphs`: every second forward is a replay of a graph.
        """
        self.memory = memory
        self.trace = Trace() if trace is None else trace
        self.timeout_s = timeout_s
        self.failures: list[RowFailure] = []
        self.failure_count = 0
        self._api = api
        self._checked = checked
        self._seed = seed
        self._graphs = graphs
        self._streams: list[Lane] = []
        self._by_name: dict[str, Lane] = {}
        self._lanes: list[Lane] = []
        self._control = Lane(api, checked, -2, "control")
        self._launcher = Launcher(api, checked, memory)
        self._events: dict[EventId, Any] = {}
        self._seen_events: set[EventId] = set()
        self._next_event = 0
        self._next_number = 0
        self._forwards = 0
        self._open: dict[TransferId, Launched] = {}
        self._ended: dict[TransferId, TransferStatus] = {}
        self._free_control = list(range(CONTROL_WORDS - 1, -1, -1))
        self._closed = False
        self.log = AccessLog(self.trace)
        self._launcher.warm_up(self._control)

    # -- calls of the host -------------------------------------------------------------------------

    def stream(self, name: str) -> StreamId:
        """The stream of that name; made at the first call."""
        self._check()
        known = self._by_name.get(name)
        if known is None:
            if len(self._streams) >= STREAMS_MAX:
                raise DeviceError(f"stream {name!r}: {STREAMS_MAX} streams are all there are")
            known = Lane(self._api, self._checked, len(self._streams), name)
            self._streams.append(known)
            self._by_name[name] = known
            self.trace.stream_names.append(name)
        return known.number

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """Enqueue `work`: kernels and copies, or its host callable, which is called now and
        enqueues on the stream. O(rows).
        """
        target = self._stream(stream)
        if work.kind in TRANSFER_KINDS:
            raise MisuseError(
                f"work.kind: {work.kind!r} is a transfer; use begin_transfer", argument="work"
            )
        number = self._number()
        self.trace.emit(Enqueue(number, stream, int(work.kind), work.label, work.accesses))
        if work.body is not None:
            self._body(target, work)
            work = Work(work.kind, (), label=work.label)
        self._run(target, number, work, control=-1)
        return number

    def record(self, stream: StreamId) -> EventId:
        """An event after everything enqueued on `stream` so far."""
        source = self._stream(stream)
        event = self._launcher.events.record(source.stream)
        number = self._next_event
        self._next_event += 1
        self._events[number] = event
        self.trace.emit(Record(number, stream))
        return number

    def wait(self, stream: StreamId, event: EventId) -> None:
        """What `stream` gets from now on runs after `event`."""
        target = self._stream(stream)
        awaited = self._event(event)
        self._checked.call("Stream.wait_event", target.stream.wait_event, awaited)
        self.trace.emit(WaitEvent(stream, event))

    def query(self, event: EventId) -> bool:
        """Whether `event` is complete now; the first True is logged."""
        self._check()
        awaited = self._event(event)
        if event in self._seen_events:
            return True
        if not self._launcher.events.complete(awaited):
            return False
        self._seen(event)
        return True

    def release(self, event: EventId) -> None:
        """No use names `event` any more."""
        self._launcher.events.give(self._event(event))
        del self._events[event]
        self._seen_events.discard(event)

    def begin_transfer(self, work: Work) -> TransferId:
        """Run the transfer on a lane from now on."""
        self._check()
        if work.kind not in TRANSFER_KINDS:
            raise MisuseError(f"work.kind: {work.kind!r} runs on a stream", argument="work")
        if not self._free_control:
            raise DeviceError(f"{CONTROL_WORDS} transfers run at once; end some first")
        number = self._number()
        self.trace.emit(TransferBegin(number, int(work.kind), work.accesses))
        self._open[number] = self._run(self._lane(), number, work, control=self._free_control.pop())
        return number

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """DONE, or CANCELLED if it was stopped before its end; RUNNING until then."""
        self._check()
        ended = self._ended.get(transfer)
        if ended is not None:
            return ended
        launched = self._transfer(transfer)
        if not self._launcher.events.complete(launched.ended):
            return TransferStatus.RUNNING
        status = TransferStatus.DONE if launched.program.whole else TransferStatus.CANCELLED
        self._end_transfer(transfer, status)
        return status

    def cancel_transfer(self, transfer: TransferId) -> None:
        """Ask the peer to stop; it goes on to the end of its present access."""
        self._check()
        if transfer in self._ended:
            message = f"transfer {transfer}: the host has seen its end"
            raise MisuseError(message, argument="transfer")
        self._transfer(transfer)
        self.stop_transfer(transfer)

    def disconnect(self, peer: int) -> None:
        """Stop every transfer of `peer` and wait, bounded, until it touches nothing."""
        self._check()
        mine = self.transfers_of(peer)
        for number in mine:
            self.stop_transfer(number)
        for number in mine:
            self.finish_transfer(number, TransferStatus.FAILED)

    def transfers_of(self, peer: int) -> list[TransferId]:
        """Transfers of `peer` whose end the host has not seen. O(open transfers)."""
        return [number for number, one in self._open.items() if one.program.work.peer == peer]

    # -- for whoever runs this device beside a model -----------------------------------------------

    def open_gate(self, number: int, value: int) -> None:
        """Nothing: no program on a GPU waits for the model."""

    def open_all_gates(self) -> None:
        """Nothing: see `open_gate`."""

    def stop_transfer(self, number: TransferId) -> None:
        """The peer stops before its next access, and leaves what it was to write undefined."""
        launched = self._open.get(number)
        if launched is not None:
            launched.stopped = True
            self._launcher.signal(self._control, launched.control, number + 1)

    def finish_event(self, event: EventId) -> None:
        """Wait, at most `timeout_s`, until `event` is complete, and see it. The host blocks."""
        self._check()
        awaited = self._event(event)
        if event not in self._seen_events:
            self._host_wait(awaited, f"event {event}")
            self._seen(event)

    def finish_transfer(self, number: TransferId, status: TransferStatus) -> None:
        """Wait, bounded, until the transfer touches nothing; the host then sees `status`."""
        self._check()
        self._host_wait(self._transfer(number).ended, f"transfer {number}")
        self._end_transfer(number, status)

    def finish(self) -> None:
        """Wait, bounded, until every stream and lane has run all it got; then collect."""
        self._check()
        for lane in (*self._streams, *self._lanes, self._control):
            last = self._launcher.events.record(lane.stream)
            self._host_wait(last, f"stream {lane.name!r}")
            self._launcher.events.give(last)
        self.collect()

    def collect(self) -> None:
        """Log what has ended since the last call. O(streams + what ended)."""
        events = self._launcher.events
        ended: list[Launched] = []
        for lane in (*self._streams, *self._lanes):
            while lane.programs and events.complete(lane.programs[0].ended):
                ended.append(lane.programs.popleft())
        ended.sort(key=lambda launched: launched.program.number)
        for launched in ended:
            missing = launched.without_verdict()
            if missing:
                name = launched.program.work.label or launched.program.number
                raise self._checked.fail(f"{missing} rows of {name} came back without a verdict")
            self.log.add(launched.program)
            for failure in launched.program.failures():
                self.failure_count += 1
                if len(self.failures) < FAILURES_KEPT_MAX:
                    self.failures.append(failure)
            if launched.program.number not in self._open:
                self._retire(launched)

    @property
    def wrong_accesses(self) -> int:
        """How many accesses have found wrong bytes in programs that have ended. O(streams)."""
        self.collect()
        return self.failure_count

    @property
    def replays(self) -> int:
        """How many forwards ran as replays of a captured graph."""
        return self._launcher.replays

    def close(self) -> None:
        """Wait, bounded, for all that runs; afterwards every call is refused."""
        if self._closed:
            return
        try:
            if self._checked.error is None:
                self.finish()
        finally:
            self._closed = True

    # -- inside ------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _run(self, lane: Lane, number: int, work: Work, *, control: int) -> Launched:
        memory = self.memory
        program = compile_work(number, work, memory.layout, Pacing(0, self._seed))
        program.rows = without_pauses(program.rows)
        groups = groups_of(program.rows, stoppable=control >= 0)
        block = memory.take_rows(program.rows.size + 2 * len(groups))
        words = fill_block(block.host, program.rows, groups, control=control, number=number + 1)
        program.rows = block.host[: program.rows.size].reshape(program.rows.shape)
        program.lane = lane.number
        # Every second forward, so that both ways of running one meet each other.
        self._forwards += work.kind == UseKind.FORWARD
        as_graph = self._graphs and work.kind == UseKind.FORWARD and self._forwards % 2 == 0
        return self._launcher.run(
            lane, program, groups, block, words, control=control, as_graph=as_graph
        )

    def _body(self, lane: Lane, work: Work) -> None:
        """Let a host callable enqueue its kernels on the stream."""
        assert work.body is not None
        try:
            with self._api.torch.cuda.stream(lane.stream):
                work.body()
        except Exception as error:
            message = f"{work.label or 'a host callable'} on {lane.name!r}: {error!r}"
            raise self._checked.fail(message) from error

    def _check(self) -> None:
        self._checked.check()
        if self._closed:
            raise DeviceError("the device was closed")

    def _host_wait(self, event: Any, what: str) -> None:
        complete = self._launcher.events.complete
        ends = time.monotonic() + self.timeout_s
        polls = 0
        while not complete(event):
            if time.monotonic() > ends:
                raise DeviceError(f"{what} is stuck: the host has waited {self.timeout_s} s for it")
            polls += 1
            time.sleep(0 if polls < POLLS_MAX else NAP_S)

    def _stream(self, stream: StreamId) -> Lane:
        self._check()
        if not 0 <= stream < len(self._streams):
            raise MisuseError(f"stream {stream} is not a stream of this device", argument="stream")
        return self._streams[stream]

    def _event(self, event: EventId) -> Any:
        known = self._events.get(event)
        if known is None:
            what = "was released" if 0 <= event < self._next_event else "was never recorded"
            raise MisuseError(f"event {event} {what}", argument="event")
        return known

    def _transfer(self, number: TransferId) -> Launched:
        launched = self._open.get(number)
        if launched is None:
            message = f"transfer {number} is not a transfer of this device, or has ended"
            raise MisuseError(message, argument="transfer")
        return launched

    def _lane(self) -> Lane:
        """A lane with nothing to do, a new one, or the one with the least before it."""
        idle = next((lane for lane in self._lanes if not lane.programs), None)
        if idle is None and len(self._lanes) < LANES_MAX:
            number = len(self._lanes)
            idle = Lane(self._api, self._checked, -3 - number, f"peer{number}")
            self._lanes.append(idle)
        return idle or min(self._lanes, key=lambda lane: (len(lane.programs), lane.name))

    def _retire(self, launched: Launched) -> None:
        """Its rows were read, and nobody asks for its end any more."""
        self._launcher.events.give(launched.ended)
        self.memory.give_rows(launched.block)

    def _seen(self, event: EventId) -> None:
        self._seen_events.add(event)
        self.collect()
        self.trace.emit(Observe(event))

    def _end_transfer(self, number: TransferId, status: TransferStatus) -> None:
        launched = self._open[number]
        self.collect()
        del self._open[number]
        self._ended[number] = status
        self._free_control.append(launched.control)
        self._retire(launched)
        self.trace.emit(TransferEnd(number, int(status)))
