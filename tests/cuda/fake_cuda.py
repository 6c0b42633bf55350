"""A strict fake of the calls that the cuda device makes into torch.cuda and numba.cuda.

Streams are queues; nothing runs when it is enqueued. Each call lets a few steps happen, of streams
drawn from a seed, so every order that streams and events allow can come up, and the host never
knows more than a query has shown. Bytes are real: kernels run as `fake_kernels` says.

It is stricter than a GPU: what CUDA or torch answer with an error, and what they silently accept
although it means nothing or races, raises `Misuse` and names the documented rule. `log` is the
account of what was really called and what was really touched, for the order oracle; it knows
nothing of the device's own trace.
"""

from __future__ import annotations

import contextlib
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import fake_kernels
import numpy as np
import torch
from fake_kernels import Touched, Words
from numpy.typing import NDArray

from onearena.core.device.cuda_api import CudaApi
from onearena.core.device.cuda_kernels import SIGNATURES
from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import Effect, End, Enqueue, Observe, Record, Trace, WaitEvent

ALLOCATION_SHIFT = 40
STREAMS_OF_TORCH = 32
INSISTS = 30
"""Queries of one event in a row after which it completes: the host does nothing else but wait."""

JUNK_BYTES = 1 << 16
"""Fresh memory holds anything; so much of it at least holds something odd."""

OP_KERNEL, OP_COPY, OP_FILL, OP_REPLAY = 100, 101, 102, 103


class Misuse(AssertionError):  # noqa: N818 - not an error of the device: a wrong use of it
    """A call that a documented rule forbids, or that means something else than it seems to. `seen`
    has all since the latest GPU was made: an end that comes after the first may raise another.
    """

    seen: ClassVar[list[str]] = []

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.seen.append(rule)


class FakeCudaError(RuntimeError):
    """What a failed call raises on a GPU."""


# Memory of tensors that were freed: fresh pages cost more than all that a short run does to them.
_spare: dict[int, list[NDArray[np.uint8]]] = {}


def _memory(nbytes: int) -> NDArray[np.uint8]:
    size = 1 << (nbytes - 1).bit_length()
    spare = _spare.get(size)
    return spare.pop() if spare else np.empty(size, np.uint8)


class Allocation:
    """Bytes of one tensor's storage. `pending` queued pieces of work use them."""

    def __init__(self, number: int, kind: str, nbytes: int) -> None:
        self.number = number
        self.kind = kind
        # 16-byte aligned, as every allocator of torch's makes it.
        self.raw = _memory(nbytes + 64)
        skip = -self.raw.ctypes.data % 64
        self.data = self.raw[skip : skip + nbytes]
        self.data[:JUNK_BYTES] = 0xA5
        self.pending = 0
        self.freed = False
        self.device_writes = 0


class _Owner:
    """What tensors of one storage share; when it dies, the storage is freed."""


class FakeTensor:
    """A contiguous one-dimensional tensor; exactly the methods that are used."""

    def __init__(
        self,
        gpu: FakeGpu,
        allocation: Allocation,
        owner: _Owner,
        start: int,
        nbytes: int,
        dtype: torch.dtype,
    ) -> None:
        self._gpu = gpu
        self.allocation = allocation
        self._owner = owner
        self.start = start
        self.nbytes = nbytes
        self.dtype = dtype
        self.device = SimpleNamespace(type="cuda" if allocation.kind == "device" else "cpu")

    @property
    def data(self) -> Any:
        return self.allocation.data[self.start : self.start + self.nbytes]

    def numel(self) -> int:
        return self.nbytes // self.dtype.itemsize

    def __getitem__(self, item: slice) -> FakeTensor:
        low, high, step = item.indices(self.numel())
        assert step == 1
        assert low <= high
        size = self.dtype.itemsize
        return self._at(self.start + low * size, (high - low) * size, self.dtype)

    def view(self, dtype: torch.dtype) -> FakeTensor:
        assert self.start % dtype.itemsize == 0
        assert self.nbytes % dtype.itemsize == 0
        return self._at(self.start, self.nbytes, dtype)

    def _at(self, start: int, nbytes: int, dtype: torch.dtype) -> FakeTensor:
        return FakeTensor(self._gpu, self.allocation, self._owner, start, nbytes, dtype)

    def numpy(self) -> Any:
        if self.allocation.kind == "device":
            raise TypeError("can't convert a cuda tensor to numpy")
        return self.data.view({torch.uint8: np.uint8, torch.int64: np.int64}[self.dtype])

    def cpu(self) -> torch.Tensor:
        self._gpu.wait_for_copy(self)
        return torch.from_numpy(self.data.copy())

    def zero_(self) -> FakeTensor:
        self._gpu.fill(self, 0)
        return self

    def fill_(self, value: int) -> FakeTensor:
        self._gpu.fill(self, value)
        return self

    def copy_(self, source: Any, *, non_blocking: bool = False) -> FakeTensor:
        self._gpu.copy(self, source, non_blocking=non_blocking)
        return self


class FakeStream:
    """A stream: what is enqueued, in order."""

    def __init__(self, gpu: FakeGpu, number: int) -> None:
        self._gpu = gpu
        self.number = number
        self.queue: deque[tuple[str, Any]] = deque()
        self.cuda_stream = 0 if number == 0 else 0x7F0000000000 + 256 * number
        self.capture: FakeGraph | None = None

    def wait_event(self, event: FakeEvent) -> None:
        """torch.cuda.Stream.wait_event, cudaStreamWaitEvent."""
        self._gpu.enter("Stream.wait_event")
        mark = event.mark
        if mark is None:
            raise Misuse(
                "cudaStreamWaitEvent: an event that was never recorded makes the wait an empty one"
            )
        if self.capture is not None:
            raise Misuse(
                "CUDA Graphs, stream capture: waiting inside a capture on an event recorded "
                "outside is cudaErrorStreamCaptureIsolation"
            )
        self._gpu.log.emit(WaitEvent(self.number, mark.number))
        self.queue.append(("wait", mark))


class Mark:
    """One record of an event."""

    def __init__(self, number: int, stream: int) -> None:
        self.number = number
        self.stream = stream
        self.complete = False
        self.observed = False


class FakeEvent:
    """torch.cuda.Event: made at the first record; each record overwrites the one before."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.mark: Mark | None = None

    def record(self, stream: FakeStream) -> None:
        """torch.cuda.Event.record, cudaEventRecord."""
        self._gpu.enter("Event.record")
        if self.mark is not None and not self.mark.complete:
            raise Misuse(
                "cudaEventRecord overwrites what the event captured before: this one is still in "
                "use, its last record is not complete"
            )
        if stream.capture is not None:
            raise Misuse(
                "CUDA Graphs, stream capture: an event recorded in a capture stands for no work "
                "outside it"
            )
        self.mark = self._gpu.mark(stream)

    def query(self) -> bool:
        """torch.cuda.Event.query, cudaEventQuery."""
        self._gpu.enter("Event.query")
        self._gpu.refuse_in_capture("cudaEventQuery")
        if self.mark is None:
            raise Misuse("cudaEventQuery: an event that was never recorded answers success")
        if self._gpu.insists(self):
            self._gpu.run_until(self.mark)
        if self.mark.complete:
            self._gpu.observe(self.mark)
        return self.mark.complete


class FakeGraph:
    """torch.cuda.CUDAGraph, with its low-level pair of calls."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.nodes: list[tuple[str, tuple[Any, ...]]] = []
        self.state = "new"
        self._stream: FakeStream | None = None

    def capture_begin(self, *, capture_error_mode: str = "global") -> None:
        """torch.cuda.CUDAGraph.capture_begin, cudaStreamBeginCapture."""
        self._gpu.enter("capture_begin")
        stream = self._gpu.current
        if stream.number == 0:
            raise Misuse("cudaStreamBeginCapture: not on the legacy default stream")
        if self.state != "new" or self._gpu.capturing is not None:
            raise Misuse("cudaStreamBeginCapture: one capture at a time, once a graph")
        if capture_error_mode != "thread_local":
            raise Misuse(
                "torch.cuda.graph, capture_error_mode: 'global' lets a call of another thread "
                "break the capture"
            )
        self.state, self._stream = "capturing", stream
        stream.capture = self._gpu.capturing = self

    def capture_end(self) -> None:
        """torch.cuda.CUDAGraph.capture_end, cudaStreamEndCapture."""
        self._gpu.enter("capture_end")
        if self.state != "capturing" or self._stream is not self._gpu.current:
            raise Misuse("cudaStreamEndCapture: on the stream where the capture began")
        self._stream.capture = self._gpu.capturing = None
        self.state = "ready"

    def replay(self) -> None:
        """torch.cuda.CUDAGraph.replay, cudaGraphLaunch."""
        self._gpu.enter("replay")
        if self.state != "ready":
            raise Misuse("cudaGraphLaunch: the capture has not ended, there is nothing to launch")
        nodes = list(self.nodes)
        for name, arguments in nodes:
            self._gpu.check_arguments(name, arguments)

        def run() -> list[Touched]:
            return [each for node in nodes for each in fake_kernels.run(*node)]

        used = [a.allocation for _, arguments in nodes for a in arguments if isinstance(a, Words)]
        self._gpu.enqueue(self._gpu.current, OP_REPLAY, "graph", run, used)


class FakeKernel:
    """A numba kernel: `kernel[blocks, threads, stream](*arguments)`."""

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self._gpu = gpu
        self._name = name
        self.loaded = False

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        blocks, threads, stream = configuration
        x, y = blocks if isinstance(blocks, tuple) else (blocks, 1)
        if not (0 < x <= 2**31 - 1 and 0 < y <= 65535 and 0 < threads <= 1024):
            raise Misuse(
                f"CUDA C++ Programming Guide, compute capabilities: a grid of {(x, y)} blocks of "
                f"{threads} threads fails to launch"
            )
        if not isinstance(stream, FakeStream):
            raise Misuse("numba.cuda: without a stream the launch goes to the default stream")

        def launch(*arguments: Any) -> None:
            self._gpu.launch(self, self._name, stream, arguments)

        return launch


class FakeGpu:
    """One GPU, one process. `seed` draws the order of what is unordered; `lazy` is how rarely
    anything runs before somebody asks (0: often).
    """

    def __init__(self, *, seed: int = 0, lazy: int = 3) -> None:
        Misuse.seen.clear()
        self.log = Trace(keep=True)
        self._random = random.Random(seed)
        self._lazy = lazy
        self._allocations: list[Allocation] = []
        self._streams: list[FakeStream] = [FakeStream(self, 0)]
        self.current = self._streams[0]
        self.capturing: FakeGraph | None = None
        self._marks = 0
        self._ops = 0
        self._broken: str | None = None
        self._fail_at: tuple[str, str] | None = None
        self.calls: dict[str, int] = {}
        self.found: list[str] = []
        self._asked: tuple[FakeEvent | None, int] = (None, 0)
        self._kernels = {name: FakeKernel(self, name) for name in SIGNATURES}

    def api(self) -> CudaApi:
        """What the device gets in place of torch and numba.cuda."""
        cuda = SimpleNamespace(
            Stream=self._make_stream,
            Event=lambda: FakeEvent(self),
            CUDAGraph=lambda: FakeGraph(self),
            stream=self._on_stream,
            synchronize=self._synchronize,
        )
        fake_torch = SimpleNamespace(
            empty=self._empty, cuda=cuda, uint8=torch.uint8, int64=torch.int64
        )
        numba_cuda = SimpleNamespace(
            as_cuda_array=self._as_cuda_array, external_stream=self._external_stream
        )
        return CudaApi(fake_torch, numba_cuda, self._kernels, (FakeCudaError,))

    # -- faults ------------------------------------------------------------------------------------

    def fail_next(self, call: str, error: str) -> None:
        """The next call of that name fails, and after it every other one: sticky."""
        self._fail_at = (call, error)

    def enter(self, call: str) -> None:
        """Every call begins here: errors come up, and some queued work may run."""
        self.calls[call] = self.calls.get(call, 0) + 1
        if call != "Event.query":
            self._asked = (None, 0)
        if self.found:
            raise Misuse("; ".join(self.found))
        if self._fail_at is not None and self._fail_at[0] == call:
            self._broken, self._fail_at = self._fail_at[1], None
        if self._broken is not None:
            raise FakeCudaError(self._broken)
        if not self._random.randrange(self._lazy + 1):
            self.step()

    def refuse_in_capture(self, call: str) -> None:
        """Unsafe calls during a capture."""
        if self.capturing is not None:
            raise Misuse(
                f"CUDA Graphs, prohibited and unhandled operations: {call} while a stream is "
                "captured is cudaErrorStreamCaptureUnsupported"
            )

    # -- memory ------------------------------------------------------------------------------------

    def _empty(
        self,
        count: int,
        *,
        dtype: torch.dtype,
        device: str | None = None,
        pin_memory: bool = False,
    ) -> FakeTensor:
        self.enter("empty")
        self.refuse_in_capture("cudaMalloc")
        if (device == "cuda") == pin_memory:
            raise Misuse("torch.empty: either device='cuda' or pin_memory=True")
        nbytes = count * dtype.itemsize
        kind = "pinned" if pin_memory else "device"
        allocation = Allocation(len(self._allocations), kind, nbytes)
        self._allocations.append(allocation)
        owner = _Owner()
        weakref.finalize(owner, self._freed, allocation)
        return FakeTensor(self, allocation, owner, 0, nbytes, dtype)

    def _freed(self, allocation: Allocation) -> None:
        allocation.freed = True
        if not allocation.pending:
            _spare.setdefault(allocation.raw.size, []).append(allocation.raw)
        if allocation.pending:
            where = "cudaFreeHost" if allocation.kind == "pinned" else "torch, memory management"
            self.found.append(
                f"{where}: {allocation.kind} memory was freed under {allocation.pending} queued "
                "pieces of work that use it"
            )

    def _as_cuda_array(self, tensor: FakeTensor) -> Words:
        self.enter("as_cuda_array")
        if tensor.allocation.kind != "device":
            raise Misuse("numba.cuda.as_cuda_array: the tensor is on the CPU")
        if tensor.dtype is not torch.int64 or tensor.start % 16:
            raise Misuse("numba.cuda.as_cuda_array: kernels take int64 words on 16 bytes")
        return Words(tensor.allocation, tensor.start // 8, tensor.data.view(np.int64))

    def fill(self, target: FakeTensor, value: int) -> None:
        """Tensor.zero_ and Tensor.fill_ run on the current stream."""
        self.enter("fill")
        allocation, low, high = target.allocation, target.start, target.start + target.nbytes
        if allocation.kind != "device":
            raise Misuse("torch: only device memory is filled")
        kind = np.int64 if target.dtype is torch.int64 else np.uint8

        def run() -> list[Touched]:
            allocation.data[low:high].view(kind)[:] = value
            return [(allocation, low, high, True)]

        self.enqueue(self.current, OP_FILL, "fill", run, [allocation])

    def copy(self, target: FakeTensor, source: Any, *, non_blocking: bool) -> None:
        """Tensor.copy_ runs on the current stream; from or to pageable memory it blocks."""
        self.enter("copy_")
        if not isinstance(source, FakeTensor):
            if non_blocking:
                raise Misuse(
                    "torch, use pinned memory buffers: a non_blocking copy of pageable memory "
                    "waits all the same"
                )
            content = source.numpy().view(np.uint8).reshape(-1).copy()
            self._wait_for(self.current)
            target.data[:] = content
            return
        if self.current.capture is not None:
            raise Misuse("the device captures kernels only: a captured copy keeps its addresses")
        if target.nbytes != source.nbytes:
            raise Misuse(f"Tensor.copy_: {source.nbytes} bytes into {target.nbytes}")
        if not non_blocking:
            raise Misuse("Tensor.copy_ without non_blocking waits for the stream")
        self._queue_copy(target, source)

    def _queue_copy(self, target: FakeTensor, source: FakeTensor) -> None:
        to, low, high = target.allocation, target.start, target.start + target.nbytes
        out, at, end = source.allocation, source.start, source.start + source.nbytes
        before = out.data[at:end].copy() if out.kind == "pinned" else None
        writes = out.device_writes

        def run() -> list[Touched]:
            content = out.data[at:end]
            untouched = before is not None and out.device_writes == writes
            if untouched and not np.array_equal(before, content):
                self.found.append(
                    "torch, use pinned memory buffers: the host changed pinned memory under a copy "
                    "that reads it"
                )
            to.data[low:high] = content
            to.device_writes += 1
            return [(out, at, end, False), (to, low, high, True)]

        self.enqueue(self.current, OP_COPY, "copy", run, [to, out])

    def wait_for_copy(self, source: FakeTensor) -> None:
        """Tensor.cpu: on the current stream, and the host waits."""
        self.enter("cpu")
        self.refuse_in_capture("cudaMemcpy")
        allocation, low, high = source.allocation, source.start, source.start + source.nbytes

        def run() -> list[Touched]:
            return [(allocation, low, high, False)]

        self.enqueue(self.current, OP_COPY, "to pageable memory", run, [allocation])
        self._wait_for(self.current)

    # -- streams -----------------------------------------------------------------------------------

    def _make_stream(self) -> FakeStream:
        self.enter("Stream")
        if len(self._streams) > STREAMS_OF_TORCH:
            raise Misuse(
                f"torch.cuda.Stream: {STREAMS_OF_TORCH} streams a device are handed out by turns; "
                "this one would be another stream of yours"
            )
        stream = FakeStream(self, len(self._streams))
        self._streams.append(stream)
        return stream

    @contextlib.contextmanager
    def _on_stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def _external_stream(self, pointer: int) -> FakeStream:
        self.enter("external_stream")
        for stream in self._streams[1:]:
            if stream.cuda_stream == pointer:
                return stream
        raise Misuse(f"numba.cuda.external_stream: {pointer:#x} is no stream's handle")

    def launch(
        self, kernel: FakeKernel, name: str, stream: FakeStream, arguments: tuple[Any, ...]
    ) -> None:
        """A launch of numba's."""
        self.enter("launch")
        self.check_arguments(name, arguments)
        if stream.capture is not None:
            if not kernel.loaded:
                raise Misuse(
                    "CUDA Graphs: the first launch of a kernel loads its module, which a capture "
                    "does not allow"
                )
            stream.capture.nodes.append((name, arguments))
            return
        kernel.loaded = True
        used = [a.allocation for a in arguments if isinstance(a, Words)]
        self.enqueue(stream, OP_KERNEL, name, lambda: fake_kernels.run(name, arguments), used)

    def check_arguments(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Types as the kernel is compiled for; memory that is still there."""
        wanted = SIGNATURES[name]
        if len(arguments) != len(wanted):
            raise Misuse(f"numba.cuda: {name} takes {len(wanted)} arguments")
        for argument, kind in zip(arguments, wanted, strict=True):
            if isinstance(argument, Words) != hasattr(kind, "ndim"):
                raise Misuse(
                    f"numba.cuda, data transfer: {type(argument).__name__} for {kind} of {name}; a "
                    "host array is copied there and back, and waits"
                )
            if isinstance(argument, Words) and argument.allocation.freed:
                raise Misuse(f"{name} gets memory that was freed")

    def mark(self, stream: FakeStream) -> Mark:
        """A record on a stream."""
        made = Mark(self._marks, stream.number)
        self._marks += 1
        self.log.emit(Record(made.number, stream.number))
        stream.queue.append(("record", made))
        return made

    def insists(self, event: FakeEvent) -> bool:
        """Whether the host asks for this event and nothing else: then time may pass."""
        last, count = self._asked
        self._asked = (event, count + 1 if last is event else 1)
        return self._asked[1] > INSISTS

    def observe(self, mark: Mark) -> None:
        """The host has seen it."""
        if not mark.observed:
            mark.observed = True
            self.log.emit(Observe(mark.number))

    def enqueue(
        self,
        stream: FakeStream,
        kind: int,
        label: str,
        run: Callable[[], list[Touched]],
        used: list[Allocation],
    ) -> None:
        """Work on a stream. It touches nothing before its turn."""
        for allocation in used:
            if allocation.freed:
                raise Misuse(f"{label} gets memory that was freed")
            allocation.pending += 1
        number = self._ops
        self._ops += 1
        self.log.emit(Enqueue(number, stream.number, kind, label, ()))
        stream.queue.append(("op", (number, run, used)))

    def _wait_for(self, stream: FakeStream) -> None:
        mark = self.mark(stream)
        self.run_until(mark)
        self.observe(mark)

    def _synchronize(self) -> None:
        """torch.cuda.synchronize, cudaDeviceSynchronize."""
        self.enter("synchronize")
        self.refuse_in_capture("cudaDeviceSynchronize")
        for stream in self._streams:
            self._wait_for(stream)

    # -- what happens by itself --------------------------------------------------------------------

    def run_until(self, mark: Mark) -> None:
        """Steps until the record is complete."""
        while not mark.complete:
            if not self.step():
                raise FakeCudaError(f"event {mark.number} never completes: nothing is left to run")

    def step(self) -> bool:
        """One step of a stream that has one, drawn; False if none has."""
        ready = [stream for stream in self._streams if _can_run(stream)]
        if not ready:
            return False
        stream = ready[self._random.randrange(len(ready))]
        what, item = stream.queue.popleft()
        if what == "op":
            number, run, used = item
            try:
                touched = run()
            except fake_kernels.IllegalAddressError as error:
                self._broken, touched = f"CUDA error: {error}", error.touched
            for allocation in used:
                allocation.pending -= 1
            self.log.emit(Effect(number, 0, tuple(_access(each) for each in touched)))
            self.log.emit(End(number))
        elif what == "record":
            item.complete = True
        return True


def _can_run(stream: FakeStream) -> bool:
    if not stream.queue:
        return False
    what, item = stream.queue[0]
    return what != "wait" or item.complete


def _access(touched: Touched) -> Access:
    allocation, low, high, writes = touched
    base = allocation.number << ALLOCATION_SHIFT
    return Access(Space.ARENA, base + low, base + high, writes)
