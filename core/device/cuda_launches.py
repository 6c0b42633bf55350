"""Programs on CUDA streams: upload of the rows, one launch a group, download of the verdicts.

A forward may also run as a replay of a captured graph. A graph knows kernels and the addresses of
their arguments, so one graph serves every forward with the same sequence of kernels: its rows lie
in the graph's own device buffer, which is filled anew before each replay, and after everything
that an earlier replay did with it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from onearena.core import kernels
from onearena.core.device.cuda_api import Checked, CudaApi
from onearena.core.device.cuda_memory import CudaMemory, RowsBlock
from onearena.core.device.cuda_programs import H_CONTROL, HOST_COPY, Group
from onearena.core.device.threads_programs import Program

THREADS: Final = 256
BLOCKS_X_MAX: Final = 64
BLOCKS_Y_MAX: Final = 1024
WORDS_A_THREAD: Final = 8
GRAPHS_MAX: Final = 64
GRAPH_WORDS: Final = 1 << 16
"""Rows of a forward that runs as a graph; one with more is launched kernel by kernel."""

EVENTS_FREE_MAX: Final = 1 << 12


class EventPool:
    """CUDA events by turns. An event that was given back is taken again only once it is complete,
    so no record ever overwrites one that a stream or the host may still wait for.
    """

    __slots__ = ("_api", "_checked", "_free", "_given", "made")

    def __init__(self, api: CudaApi, checked: Checked) -> None:
        self._api = api
        self._checked = checked
        self._free: list[Any] = []
        self._given: deque[Any] = deque()
        self.made = 0

    def record(self, stream: Any) -> Any:
        """An event after everything that `stream` has got so far."""
        while self._given and self.complete(self._given[0]):
            event = self._given.popleft()
            if len(self._free) < EVENTS_FREE_MAX:
                self._free.append(event)
        if self._free:
            event = self._free.pop()
        else:
            event = self._checked.call("Event", self._api.torch.cuda.Event)
            self.made += 1
        self._checked.call("Event.record", event.record, stream)
        return event

    def complete(self, event: Any) -> bool:
        """Whether the event is complete now."""
        return bool(self._checked.call("Event.query", event.query))

    def give(self, event: Any) -> None:
        """Nobody names the event any more."""
        self._given.append(event)


class Lane:
    """A CUDA stream: one of the host's by name, or one that transfers run on."""

    __slots__ = ("external", "name", "number", "programs", "stream")

    def __init__(self, api: CudaApi, checked: Checked, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.stream = checked.call("Stream", api.torch.cuda.Stream)
        pointer = self.stream.cuda_stream
        self.external = checked.call("external_stream", api.numba_cuda.external_stream, pointer)
        self.programs: deque[Launched] = deque()


class Launched:
    """A program on its stream: `ended` completes when its rows are back in `block`. `stopped`: the
    host has asked for its end.
    """

    __slots__ = ("block", "control", "ended", "groups", "program", "stopped")

    def __init__(
        self,
        program: Program,
        groups: tuple[Group, ...],
        block: RowsBlock,
        ended: Any,
        control: int,
    ) -> None:
        self.program = program
        self.groups = groups
        self.block = block
        self.ended = ended
        self.control = control
        self.stopped = False

    def without_verdict(self) -> int:
        """Rows that should have run and say nothing: a launch was lost, or its verdict."""
        if self.stopped:
            return 0
        results = self.program.rows[:, kernels.C_RESULT]
        return sum(
            int((results[group.first : group.first + group.rows] == 0).sum())
            for group in self.groups
            if group.when == 0
        )


class Graph:
    """A captured sequence of kernels over rows in a device buffer of its own."""

    __slots__ = ("block", "graph", "last", "last_lane")

    def __init__(self, graph: Any, block: RowsBlock) -> None:
        self.graph = graph
        self.block = block
        self.last: Any = None  # event after the latest replay and its download
        self.last_lane = -1


class Launcher:
    """Puts programs on streams. One control thread; no call waits for the device, but for the first
    launches that `warm_up` makes.
    """

    def __init__(self, api: CudaApi, checked: Checked, memory: CudaMemory) -> None:
        self._api = api
        self._checked = checked
        self._memory = memory
        self.events = EventPool(api, checked)
        self._capture = Lane(api, checked, -1, "capture")
        self._graphs: dict[tuple[tuple[str, int], ...], Graph] = {}
        self.replays = self.launches = 0

    def warm_up(self, lane: Lane) -> None:
        """Launch every kernel once, over nothing: compiling and loading must not happen later,
        least of all during a capture.
        """
        block = self._memory.take_rows(1)
        block.host[:] = 0
        block.host[H_CONTROL] = -1
        self._upload(lane, block, block.words)
        for name in self._api.kernels:
            if name != "signal":
                self._kernel(lane, Group(name, 0, 0, 0), 0, block)
        self.signal(lane, 0, 0)
        self._checked.call("synchronize", self._api.torch.cuda.synchronize)
        self._memory.give_rows(block)

    def run(
        self,
        lane: Lane,
        program: Program,
        groups: tuple[Group, ...],
        block: RowsBlock,
        words: int,
        *,
        control: int,
        as_graph: bool,
    ) -> Launched:
        """Enqueue a whole program, whose `words` words are in `block`."""
        graph = self._graph(groups, words) if as_graph and groups else None
        if not groups:
            pass  # a host callable, or nothing: there is no verdict to wait for
        elif graph is None:
            self._upload(lane, block, words)
            for index, group in enumerate(groups):
                self._group(lane, group, index, block, program)
            self._download(lane, block, block, words)
        else:
            self._replay(lane, graph, block, words)
        ended = self.events.record(lane.stream)
        if graph is not None:
            if graph.last is not None:
                self.events.give(graph.last)
            graph.last = self.events.record(lane.stream)
            graph.last_lane = lane.number
        launched = Launched(program, groups, block, ended, control)
        lane.programs.append(launched)
        return launched

    def signal(self, lane: Lane, k: int, value: int) -> None:
        """Store control word `k`."""
        self._launch("signal", lane, 1, 1, self._memory.control, k, value)

    def _upload(self, lane: Lane, block: RowsBlock, words: int) -> None:
        self._copy(lane, block.device[:words], block.pinned[:words])

    def _download(self, lane: Lane, block: RowsBlock, source: RowsBlock, words: int) -> None:
        self._copy(lane, block.pinned[:words], source.device[:words])

    def _copy(self, lane: Lane, target: Any, source: Any) -> None:
        def copy() -> None:
            with self._api.torch.cuda.stream(lane.stream):
                target.copy_(source, non_blocking=True)

        self._checked.call(f"copy on {lane.name}", copy)

    def _group(
        self, lane: Lane, group: Group, index: int, block: RowsBlock, program: Program
    ) -> None:
        if group.kernel != HOST_COPY:
            self._kernel(lane, group, index, block)
            return
        memory = self._memory
        for row in range(group.first, group.first + group.rows):
            _, entry, source, nbytes, target, _, _, *_ = program.rows[row].tolist()
            if entry:  # the source is the host tier
                into = memory.arena_bytes(target, target + nbytes)
                out_of = memory.host_bytes(source, source + nbytes)
            else:
                into = memory.host_bytes(target, target + nbytes)
                out_of = memory.arena_bytes(source, source + nbytes)
            self._copy(lane, into, out_of)

    def _kernel(self, lane: Lane, group: Group, index: int, block: RowsBlock) -> None:
        memory = self._memory
        rows, prefix = block.array, memory.layout.prefix_bytes
        name = group.kernel
        arguments: tuple[Any, ...]
        if name == "stamp_write":
            arguments = (memory.arena, memory.slots, memory.control, prefix, group.when)
        elif name == "stamp_check":
            arguments = (memory.arena, memory.slots, memory.control, prefix)
        elif name in ("page_copy", "page_compare"):
            arguments = (memory.arena, prefix)
        elif name == "zero":
            arguments = (memory.arena, memory.control, prefix)
        elif name == "table_update":
            arguments = (memory.table,)
        else:
            assert name == "resolve", f"no kernel {name}"
            arguments = (memory.table, memory.slots)
        x = max(1, min(BLOCKS_X_MAX, -(-group.words // (THREADS * WORDS_A_THREAD))))
        y = max(1, min(BLOCKS_Y_MAX, group.rows))
        if name in ("table_update", "resolve"):
            x, y = max(1, min(BLOCKS_X_MAX, -(-group.rows // THREADS))), 1
        self._launch(name, lane, x, y, rows, index, *arguments)

    def _launch(self, name: str, lane: Lane, x: int, y: int, *arguments: Any) -> None:
        def launch() -> None:
            self._api.kernels[name][(x, y), THREADS, lane.external](*arguments)

        self._checked.call(f"launch of {name} on {lane.name}", launch)
        self.launches += 1

    # -- graphs ------------------------------------------------------------------------------------

    def _graph(self, groups: tuple[Group, ...], words: int) -> Graph | None:
        """The graph of this sequence of kernels, captured when new; None if there is none."""
        if words > GRAPH_WORDS or any(group.kernel == HOST_COPY for group in groups):
            return None
        key = tuple((group.kernel, group.when) for group in groups)
        known = self._graphs.get(key)
        if known is None and len(self._graphs) < GRAPHS_MAX:
            known = self._graphs[key] = self._captured(key)
        return known

    def _captured(self, key: tuple[tuple[str, int], ...]) -> Graph:
        block = self._memory.take_rows(GRAPH_WORDS)
        cuda = self._api.torch.cuda
        # Wide enough for any forward: where there is less, blocks have nothing to do.
        wide = [
            Group(kernel, 0, BLOCKS_X_MAX, BLOCKS_X_MAX * THREADS * WORDS_A_THREAD, when)
            for kernel, when in key
        ]

        def capture() -> Any:
            graph = cuda.CUDAGraph()
            with cuda.stream(self._capture.stream):
                # Not `torch.cuda.graph`: that waits for the device before it begins.
                graph.capture_begin(capture_error_mode="thread_local")
                for index, group in enumerate(wide):
                    self._kernel(self._capture, group, index, block)
                graph.capture_end()
            return graph

        return Graph(self._checked.call("capture of a graph", capture), block)

    def _replay(self, lane: Lane, graph: Graph, block: RowsBlock, words: int) -> None:
        if graph.last is not None and graph.last_lane != lane.number:
            self._checked.call("Stream.wait_event", lane.stream.wait_event, graph.last)
        self._copy(lane, graph.block.device[:words], block.pinned[:words])

        def replay() -> None:
            with self._api.torch.cuda.stream(lane.stream):
                graph.graph.replay()

        self._checked.call(f"replay of a graph on {lane.name}", replay)
        self.replays += 1
        self._download(lane, block, graph.block, words)
