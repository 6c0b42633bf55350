"""What moving pages, launching and the ledger cost on a GPU. Prints one JSON line of raw samples.

`copy`: page copy by our kernel against one plain device-to-device copy of as many bytes. `launch`:
the host's time for one launch. `forward`: steps of about a millisecond, launched eagerly and as
replays of a captured graph, with the ledger (record, launch, process, retire) and without. With
`--device fake` the same code runs over the strict fake at tiny sizes: that shows that it runs, and
its figures mean nothing. Exit codes: 0 measured, 1 a result was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu_check_common import DEVICES, device

STREAM = "forwards"
IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much: of a real GPU, or just enough to run every line."""

    page_bytes: tuple[int, ...]
    batch_bytes: int
    samples: int
    launches: int
    forwards: int
    matrix: int


REAL = Sizes((1 << 16, 1 << 20, 1 << 23), 1 << 29, 30, 2000, 200, 6144)
TINY = Sizes((1 << 12,), 1 << 16, 2, 20, 12, 0)


class Bench:
    """A cuda device with one arena."""

    def __init__(self, sizes: Sizes, *, real: bool) -> None:
        from onearena.core.device import cuda_api
        from onearena.core.device.cuda import CudaDevice
        from onearena.core.device.cuda_memory import CudaMemory
        from onearena.core.geometry import chain_geometry

        self.sizes, self.real = sizes, real
        self.api = cuda_api.open_api()
        self.torch = self.api.torch
        geometry = chain_geometry(2 * sizes.batch_bytes, [("pages", sizes.page_bytes[0])])
        self.geometry = geometry
        checked = cuda_api.Checked(self.api.errors)
        self.memory = CudaMemory(self.api, checked, geometry, buffer_slots=16)
        self.device = CudaDevice(self.api, self.memory, checked)
        self.number = self.device.stream(STREAM)

    def seconds(self, call: Callable[[], None]) -> float:
        """Time of what `call` enqueues, from an idle device to an idle one."""
        self.torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        self.torch.cuda.synchronize()
        return time.perf_counter() - began

    def copy(self) -> list[dict[str, Any]]:
        """Batches of pages from the lower to the upper half of the arena."""
        from onearena.core.device.interface import Work
        from onearena.core.rules import UseKind

        found = []
        half = self.sizes.batch_bytes
        low, high = self.memory.arena_bytes(0, half), self.memory.arena_bytes(half, 2 * half)
        for page in self.sizes.page_bytes:
            count = half // page
            # Every second page backwards: no batch is one contiguous copy.
            order = [*range(0, count, 2), *range(count - 1 - count % 2, 0, -2)]
            pairs = tuple((page * k, half + page * order[k], page) for k in range(count))
            work = Work(UseKind.MOVE, (), label="bench", pairs=pairs, pieces=1)
            stream = self.api.torch.cuda.Stream()

            def plain(stream: Any = stream) -> None:
                with self.torch.cuda.stream(stream):
                    high.copy_(low, non_blocking=True)

            run = self._kernel_of(work)
            for warm in (run, plain):
                self.seconds(warm)
            rows = [(self.seconds(run), self.seconds(plain)) for _ in range(self.sizes.samples)]
            found.append(
                {
                    "page_bytes": page,
                    "batch_bytes": half,
                    "ours_s": [ours for ours, _ in rows],
                    "plain_s": [theirs for _, theirs in rows],
                }
            )
        return found

    def _kernel_of(self, work: Any) -> Callable[[], None]:
        """One launch of the page copy of `work`, its rows uploaded beforehand."""
        from onearena.core.device.cuda_launches import Lane
        from onearena.core.device.cuda_programs import fill_block, groups_of
        from onearena.core.device.threads_programs import compile_work

        launcher, checked = self.device._launcher, self.device._checked  # noqa: SLF001
        program = compile_work(0, work, self.memory.layout)
        groups = groups_of(program.rows, stoppable=False)
        copies = next(k for k, group in enumerate(groups) if group.kernel == "page_copy")
        block = self.memory.take_rows(program.rows.size + 2 * len(groups))
        words = fill_block(block.host, program.rows, groups)
        lane = Lane(self.api, checked, 0, "bench")
        launcher._upload(lane, block, words)  # noqa: SLF001
        return lambda: launcher._kernel(lane, groups[copies], copies, block)  # noqa: SLF001

    def launch(self) -> dict[str, Any]:
        """The host's time for launches of the smallest kernel."""
        launcher, lane = self.device._launcher, self.device._control  # noqa: SLF001
        count = self.sizes.launches
        samples = []
        for _ in range(self.sizes.samples):
            self.torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                launcher.signal(lane, 0, 0)
            samples.append((time.perf_counter() - began) / count)
        return {"launches": count, "host_s_a_launch": samples}

    def forward(self) -> list[dict[str, Any]]:
        """Steps with and without the ledger, eager and as graph replays."""
        found = []
        for name, body in self._bodies():
            rows = []
            for _ in range(max(2, self.sizes.samples // 3)):
                bare = self.seconds(lambda body=body: self._bare(body))  # type: ignore[misc]
                kept = self.seconds(lambda body=body: self._kept(body))  # type: ignore[misc]
                rows.append((bare / self.sizes.forwards, kept / self.sizes.forwards))
            found.append(
                {
                    "forward": name,
                    "forwards": self.sizes.forwards,
                    "without_ledger_s": [bare for bare, _ in rows],
                    "with_ledger_s": [kept for _, kept in rows],
                }
            )
        return found

    def _bodies(self) -> list[tuple[str, Callable[[], None]]]:
        if not self.real:
            return [("eager", lambda: None), ("graph", lambda: None)]
        torch, size = self.torch, self.sizes.matrix
        left = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(left)

        def multiply() -> None:
            torch.mm(left, left, out=out)

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            multiply()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            multiply()
        return [("eager", multiply), ("graph", graph.replay)]

    def _bare(self, body: Callable[[], None]) -> None:
        stream = self.device._streams[self.number].stream  # noqa: SLF001
        pool = self.device._launcher.events  # noqa: SLF001
        flying: deque[Any] = deque()
        for _ in range(self.sizes.forwards):
            with self.torch.cuda.stream(stream):
                body()
            flying.append(pool.record(stream))
            if len(flying) > IN_FLIGHT:
                self._await(pool, flying.popleft())
        while flying:
            self._await(pool, flying.popleft())

    def _await(self, pool: Any, event: Any) -> None:
        while not pool.complete(event):
            time.sleep(0)
        pool.give(event)

    def _kept(self, body: Callable[[], None]) -> None:
        from onearena.core.arena import Arena
        from onearena.core.device.interface import Work
        from onearena.core.rules import UseKind

        arena = Arena(self.geometry, self.device)
        grant = arena.allocate((8,), writer=UseKind.FORWARD, stream=self.number, caller="bench")
        ids = [int(k) for k in grant.ids[0]]  # type: ignore[union-attr]
        flying: deque[tuple[Any, int]] = deque()

        def end() -> None:
            use, event = flying.popleft()
            self.device.finish_event(event)
            arena.retire(use)

        for _ in range(self.sizes.forwards):
            use: Any = arena.record(UseKind.FORWARD, self.number, reads=ids[:7], writes=ids[7:])
            work = Work(
                UseKind.FORWARD, use.accesses, label="forward", buffer=use.buffer, body=body
            )
            flying.append((use, arena.launch(use, work)))
            arena.process(use)
            if len(flying) > IN_FLIGHT:
                end()
        while flying:
            end()


def main() -> int:
    """All three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=DEVICES, required=True)
    chosen = parser.parse_args()
    real = chosen.device == "cuda"
    with device(chosen.device):
        bench = Bench(REAL if real else TINY, real=real)
        document: dict[str, Any] = {
            "device": chosen.device,
            "copy": bench.copy(),
            "launch": bench.launch(),
            "forward": bench.forward(),
        }
        if real:
            document["card"] = bench.torch.cuda.get_device_name(0)
        bench.device.finish()
        failures = bench.device.failure_count
        bench.device.close()
    document["failures"] = failures
    print(json.dumps(document))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
