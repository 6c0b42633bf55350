"""The threads device: every stream is a worker thread, and the bytes are real.

A worker is one long kernel call without the GIL (`kernels.thread_stream`): it takes commands from
its ring, runs programs over the arena's memory, sets event flags with release and waits for those
of other streams with acquire. A transfer runs on a lane, a thread that no stream orders. Nothing
but these waits orders anything, so a missing wait is a real race on real bytes.

Every wait is bounded. A stream that waits longer for an event, or a host callable that raises,
fails the device: every later call raises `DeviceError` and says which stream stood where.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device.interface import (
    EventId,
    OpId,
    StreamId,
    TransferId,
    TransferStatus,
    Work,
)
from onearena.core.device.threads_log import AccessLog
from onearena.core.device.threads_memory import DeviceMemory
from onearena.core.device.threads_programs import Pacing, Program, RowFailure, compile_work
from onearena.core.device.threads_worker import Worker, give_back, take_worker
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
from onearena.core.rules import TRANSFER_KINDS

EVENTS: Final = 1 << 14
LANES_MAX: Final = 256
FAILURES_KEPT_MAX: Final = 64
GATE_NS_MAX: Final = 2_000_000_000
ENDED: Final = 1 << 40
"""Value of a gate that lets everything through."""

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
_abandoned: list[object] = []  # what a thread that never came back may still touch


class ThreadsDevice:
    """A `Device` on real bytes. One control thread calls; `close` ends the threads.

    `trace` gets the same records as any device's, host calls at once and execution when the host
    next looks. `log` has every access with the moments it began and ended.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        *,
        trace: Trace | None = None,
        pacing: Callable[[int], Pacing] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """`pacing` says how program `number` is slowed down; `timeout_s` bounds every wait."""
        self.memory = memory
        self.trace = Trace() if trace is None else trace
        self.timeout_s = timeout_s
        self.failures: list[RowFailure] = []
        self.failure_count = 0
        self._pacing = pacing or (lambda _number: Pacing())
        self._futex = _FUTEX.get(platform.machine(), -1) if platform.system() == "Linux" else -1
        self._shared = np.zeros(64, np.int64)
        self._shared[kernels.S_PREFIX] = memory.layout.prefix_bytes
        self._shared[kernels.S_FUTEX] = self._futex
        self._shared[kernels.S_WAIT_NS] = self._timeout_ns()
        self._shared[kernels.S_GATE_NS] = min(self._timeout_ns() // 2, GATE_NS_MAX)
        self._flags: NDArray[np.int64] = np.zeros(EVENTS, np.int64)
        self._streams: list[Worker] = []
        self._by_name: dict[str, Worker] = {}
        self._lanes: list[Worker] = []
        self._events: dict[EventId, bool] = {}  # named events: whether the host has seen them
        self._event_streams: dict[EventId, int] = {}
        self._next_event = 0
        self._next_number = 0
        self._open: dict[TransferId, Program] = {}
        self._ended: dict[TransferId, TransferStatus] = {}
        self._running: dict[int, Program] = {}  # not yet collected, by number
        self._error: str | None = None
        self._closed = False
        self.log = AccessLog(self.trace)

    # -- calls of the host -------------------------------------------------------------------------

    def stream(self, name: str) -> StreamId:
        """The stream of that name; its thread starts at the first call."""
        self._check()
        known = self._by_name.get(name)
        if known is None:
            known = take_worker(len(self._streams), name)
            self._streams.append(known)
            self._by_name[name] = known
            self.trace.stream_names.append(name)
            self._start(known)
        return known.number

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """Enqueue `work`: a program over real bytes, or its host callable. O(rows)."""
        target = self._stream(stream)
        if work.kind in TRANSFER_KINDS:
            raise MisuseError(
                f"work.kind: {work.kind!r} is a transfer; use begin_transfer", argument="work"
            )
        number = self._number()
        program = self._compile(number, work)
        self.trace.emit(Enqueue(number, stream, int(work.kind), work.label, work.accesses))
        if work.body is not None:
            target.bodies[target.put] = (work.body, program)
        self._enqueue(target, program)
        return number

    def record(self, stream: StreamId) -> EventId:
        """An event after everything enqueued on `stream` so far."""
        source = self._stream(stream)
        number = self._next_event
        before = number - EVENTS
        if before >= 0 and int(self._flags[number % EVENTS]) <= before:
            raise DeviceError(f"{EVENTS} events are not complete; let the device catch up")
        self._next_event += 1
        self._events[number] = False
        self._event_streams[number] = stream
        self.trace.emit(Record(number, stream))
        self._put(source, kernels.DO_RECORD, number)
        return number

    def wait(self, stream: StreamId, event: EventId) -> None:
        """What `stream` gets from now on runs after `event`."""
        target = self._stream(stream)
        self._event(event)
        self.trace.emit(WaitEvent(stream, event))
        self._put(target, kernels.DO_WAIT, event)

    def query(self, event: EventId) -> bool:
        """Whether `event` is complete now; the first True is logged."""
        self._check()
        if self._event(event):
            return True
        if int(self._flags[event % EVENTS]) <= event:
            return False
        self._seen(event)
        return True

    def release(self, event: EventId) -> None:
        """No use names `event` any more."""
        self._event(event)
        del self._events[event]

    def begin_transfer(self, work: Work) -> TransferId:
        """Run the transfer on a lane of its own from now on."""
        self._check()
        if work.kind not in TRANSFER_KINDS:
            raise MisuseError(f"work.kind: {work.kind!r} runs on a stream", argument="work")
        number = self._number()
        program = self._compile(number, work)
        self._open[number] = program
        self.trace.emit(TransferBegin(number, int(work.kind), work.accesses))
        self._enqueue(self._lane(), program)
        return number

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """DONE, or CANCELLED if it was stopped before its end; RUNNING until then."""
        self._check()
        ended = self._ended.get(transfer)
        if ended is not None:
            return ended
        program = self._transfer(transfer)
        if not program.done:
            return TransferStatus.RUNNING
        status = TransferStatus.DONE if program.whole else TransferStatus.CANCELLED
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
        return [number for number, p in self._open.items() if p.work.peer == peer]

    # -- for whoever runs this device beside a model -----------------------------------------------

    def open_gate(self, number: int, value: int) -> None:
        """Let program `number` go on to its effect `value` - 1. O(1)."""
        program = self._running.get(number)
        if program is not None:
            at = program.address + 8 * kernels.H_GATE
            kernels.thread_signal(at, value, self._futex)

    def open_all_gates(self) -> None:
        """Let every program run to its end. O(programs)."""
        for number in self._running:
            self.open_gate(number, ENDED)

    def stop_transfer(self, number: TransferId) -> None:
        """The peer stops before its next access, and leaves what it was to write undefined."""
        program = self._open.get(number)
        if program is not None:
            kernels.thread_signal(program.address + 8 * kernels.H_STOP, 1, self._futex)
            kernels.thread_signal(program.address + 8 * kernels.H_GATE, ENDED, self._futex)

    def finish_event(self, event: EventId) -> None:
        """Wait, at most `timeout_s`, until `event` is complete, and see it. The host blocks."""
        self._check()
        if self._event(event):
            return
        at = self._flags.ctypes.data + 8 * (event % EVENTS)
        self._host_wait(at, event + 1, f"event {event} of {self._stream_name(event)}")
        self._seen(event)

    def finish_transfer(self, number: TransferId, status: TransferStatus) -> None:
        """Wait, bounded, until the transfer touches nothing; the host then sees `status`."""
        self._check()
        program = self._transfer(number)
        at = program.address + 8 * kernels.H_DONE
        self._host_wait(at, 1, f"transfer {number}")
        self._end_transfer(number, status)

    def finish(self) -> None:
        """Wait, bounded, until every stream and lane has run all it got; then collect."""
        self._check()
        for worker in (*self._streams, *self._lanes):
            at = worker.state.ctypes.data + 8 * kernels.Q_TAKEN
            # A taken command is over; only `thread_signal` wakes, so this wait naps.
            self._host_wait(at, worker.put, f"stream {worker.name!r}")
        self.collect()

    def collect(self) -> None:
        """Log what has ended since the last call. O(streams + what ended)."""
        ended: list[Program] = []
        for worker in (*self._streams, *self._lanes):
            programs = worker.programs
            while programs and programs[0].done:
                ended.append(programs.popleft())
        if not ended:
            return
        ended.sort(key=lambda program: int(program.rows[0, kernels.H_FIRST]))
        for program in ended:
            del self._running[program.number]
            self.log.add(program)
            if program.rows[0, kernels.H_WRONG]:
                for failure in program.failures():
                    self.failure_count += 1
                    if len(self.failures) < FAILURES_KEPT_MAX:
                        self.failures.append(failure)

    @property
    def wrong_accesses(self) -> int:
        """How many accesses have found wrong bytes so far, collected or not. O(1)."""
        return int(self._shared[kernels.S_WRONG])

    def close(self) -> None:
        """Stop and join every thread. A thread that does not come back within `timeout_s` raises
        `DeviceError`; it is a daemon and ends with the process.
        """
        if self._closed:
            return
        self._closed = True
        self._stop()
        for program in self._running.values():
            kernels.thread_signal(program.address + 8 * kernels.H_STOP, 1, self._futex)
            kernels.thread_signal(program.address + 8 * kernels.H_GATE, ENDED, self._futex)
        workers = (*self._streams, *self._lanes)
        for worker in workers:
            worker.end(self._futex)
        left = []
        for worker in workers:
            assert worker.thread is not None, worker.name
            worker.thread.join(self.timeout_s)
            if worker.thread.is_alive():
                left.append(worker.name)
        if left:
            _abandoned.append(self)  # its memory is still in use
            raise DeviceError(f"streams {', '.join(left)} did not end within {self.timeout_s} s")
        self.collect()
        self.memory.give_back()
        for worker in workers:
            give_back(worker)
        self._streams, self._lanes = [], []

    # -- inside ------------------------------------------------------------------------------------

    def _timeout_ns(self) -> int:
        return int(self.timeout_s * 1e9)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _compile(self, number: int, work: Work) -> Program:
        if work.body is not None:
            return compile_work(number, Work(work.kind, (), label=work.label), self.memory.layout)
        return compile_work(number, work, self.memory.layout, self._pacing(number))

    def _start(self, worker: Worker) -> None:
        name = f"onearena {worker.name}"
        worker.thread = threading.Thread(target=self._serve, args=(worker,), name=name, daemon=True)
        worker.thread.start()

    def _serve(self, worker: Worker) -> None:
        """The worker's thread."""
        memory = self.memory
        while True:
            why = kernels.thread_stream(
                worker.state,
                worker.ring,
                self._shared,
                self._flags,
                memory.words,
                memory.host,
                memory.table,
                memory.buffers,
            )
            if why == kernels.STREAM_STUCK:
                worker.stuck = int(worker.state[kernels.Q_AWAITED]) - 1
                self._fail(
                    f"stream {worker.name!r} is stuck: it has waited {self.timeout_s} s on event "
                    f"{worker.stuck} of {self._stream_name(worker.stuck)}"
                )
            if why != kernels.STREAM_BODY or not self._run_body(worker):
                return

    def _run_body(self, worker: Worker) -> bool:
        """Run the host callable that is due; False when it raised."""
        taken = int(worker.state[kernels.Q_TAKEN])
        body, program = worker.bodies.pop(taken)
        try:
            body()
        except Exception as error:  # noqa: BLE001 - whatever a forward raises fails the device
            self._fail(f"{program.work.label or 'a host callable'} on {worker.name!r}: {error!r}")
            return False
        memory = self.memory
        kernels.run_program(
            program.address,
            len(program.rows),
            self._shared,
            memory.words,
            memory.host,
            memory.table,
            memory.buffers,
        )
        at = worker.state.ctypes.data + 8 * kernels.Q_TAKEN
        kernels.thread_signal(at, taken + 1, self._futex)
        return True

    def _fail(self, message: str) -> None:
        if self._error is None:
            self._error = message
        self._stop()

    def _stop(self) -> None:
        at = self._shared.ctypes.data + 8 * kernels.S_STOP
        kernels.thread_signal(at, 1, self._futex)

    def _check(self) -> None:
        if self._error is not None:
            raise DeviceError(f"the device broke down: {self._error}")
        if self._closed:
            raise DeviceError("the device was closed")

    def _host_wait(self, address: int, value: int, what: str) -> None:
        stop = self._shared.ctypes.data + 8 * kernels.S_STOP
        got = kernels.thread_wait(address, value, stop, self._futex, self._timeout_ns())
        self._check()
        if got < 1:
            raise DeviceError(f"{what} is stuck: the host has waited {self.timeout_s} s for it")

    def _stream_name(self, event: EventId) -> str:
        stream = self._event_streams.get(event, -1)
        return repr(self._streams[stream].name) if stream >= 0 else "an unknown stream"

    def _stream(self, stream: StreamId) -> Worker:
        self._check()
        if not 0 <= stream < len(self._streams):
            raise MisuseError(f"stream {stream} is not a stream of this device", argument="stream")
        return self._streams[stream]

    def _event(self, event: EventId) -> bool:
        """Whether a named event was seen."""
        seen = self._events.get(event)
        if seen is None:
            what = "was released" if 0 <= event < self._next_event else "was never recorded"
            raise MisuseError(f"event {event} {what}", argument="event")
        return seen

    def _transfer(self, number: TransferId) -> Program:
        program = self._open.get(number)
        if program is None:
            message = f"transfer {number} is not a transfer of this device, or has ended"
            raise MisuseError(message, argument="transfer")
        return program

    def _lane(self) -> Worker:
        """A lane with nothing to do."""
        for lane in self._lanes:
            if lane.idle:
                return lane
        if len(self._lanes) >= LANES_MAX:
            raise DeviceError(f"{LANES_MAX} transfers run at once; end some first")
        lane = take_worker(-1 - len(self._lanes), f"peer{len(self._lanes)}")
        self._lanes.append(lane)
        self._start(lane)
        return lane

    def _enqueue(self, worker: Worker, program: Program) -> None:
        program.lane = worker.number
        worker.programs.append(program)
        self._running[program.number] = program
        if worker.bodies and worker.put in worker.bodies:
            self._put(worker, kernels.DO_BODY, program.number)
        else:
            self._put(worker, kernels.DO_PROGRAM, program.address, len(program.rows))

    def _put(self, worker: Worker, command: int, argument: int, count: int = 0) -> None:
        worker.put_command(command, argument, count, self._futex)

    def _seen(self, event: EventId) -> None:
        self._events[event] = True
        self.collect()
        self.trace.emit(Observe(event))

    def _end_transfer(self, number: TransferId, status: TransferStatus) -> None:
        del self._open[number]
        self._ended[number] = status
        self.collect()
        self.trace.emit(TransferEnd(number, int(status)))
