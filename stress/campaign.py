"""Campaigns: many schedules on all cores, results streamed, no seed lost.

Worker processes take chunks of seeds and send each schedule's result at once. A worker that dies
is a reported crash of the seed it was running; the rest of its chunk goes back to the queue. Every
process gets another hash seed, and a sample of the schedules is run a second time in another
process: unequal digests are nondeterminism.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final

from onearena.core.errors import DeviceError
from onearena.stress.arrivals import Arrival
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.strategies.portfolio import DEFAULT
from onearena.stress.summary import Summary

if TYPE_CHECKING:
    from onearena.metrics.source import Published
    from onearena.stress.live import Live

CHUNK_SEEDS: Final = 8
RECHECK_EVERY: Final = 64
ARRIVALS_WINDOW: Final = 256
PREFIX_IDS_KEPT: Final = 64
DEATHS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign runs. `last` None: until interrupted or out of budget. `models` take turns
    by seed.
    """

    first: int = 0
    last: int | None = None
    system: str = "arena"
    models: tuple[str, ...] = ("any",)
    budget_s: float | None = None
    jobs: int = 0
    arrivals: tuple[Arrival, ...] = ()
    keep_going: bool = False
    recheck: bool = True
    device: str = "modeled"
    keep_recording: bool = False
    strategy: str = DEFAULT

    def spec(self, seed: int) -> RunSpec:
        """The schedule of one seed; pure."""
        model = self.models[seed % len(self.models)]
        return RunSpec(
            seed,
            self.system,
            model,
            arrivals=arrivals_window(self.arrivals, seed),
            device=self.device,
            state_digests=self.keep_recording,
            strategy=self.strategy,
        )


def arrivals_window(arrivals: tuple[Arrival, ...], seed: int) -> tuple[Arrival, ...]:
    """The part of a trace that a seed uses: bounded, and another one for each seed."""
    if not arrivals:
        return ()
    first = seed * 97 % len(arrivals)
    rows = (arrivals[first:] + arrivals[:first])[:ARRIVALS_WINDOW]
    return tuple(
        Arrival(row.at_us, row.prompt_tokens, row.output_tokens, row.prefix[:PREFIX_IDS_KEPT])
        for row in rows
    )


OnResult = Callable[[Summary, RunResult | None], None]
"""Called after each result, and with None now and then so that a progress line can move."""

Task = tuple[int, int, bool]
"""Seeds [first, last), and whether this is the second run of them."""


class _Worker:
    __slots__ = ("at", "connection", "name", "process", "task")

    def __init__(self, process: BaseProcess, connection: Connection, name: str) -> None:
        self.name = name
        self.process = process
        self.connection = connection
        self.task: Task | None = None
        self.at = 0


class Campaign:
    """Runs a plan. `run` returns the summary; results go to `on_result` as they come.

    With `live` it is watched; then a single job runs in this process, where its arena can be seen.
    """

    def __init__(
        self, plan: Plan, *, planned: tuple[str, ...] = (), live: Live | None = None
    ) -> None:
        self.plan = plan
        self.live = live
        jobs = plan.jobs or os.cpu_count() or 1
        if plan.last is not None:
            jobs = max(1, min(jobs, math.ceil((plan.last - plan.first) / CHUNK_SEEDS)))
        self.jobs = jobs
        self.summary = Summary(
            plan.system, jobs, plan.first, planned_names=planned, next_seed=plan.first
        )
        self._tasks: deque[Task] = deque()
        self._digests: dict[int, str] = {}
        self._workers: list[_Worker] = []
        self._hash_seed = 1
        self._here: int | None = None  # the seed that runs in this process
        self._deaths = 0  # of workers, since the last result

    def run(self, on_result: OnResult | None = None) -> Summary:
        """Run until the seeds, the budget or the patience of the user end; or at a failure."""
        started = time.monotonic()
        summary = self.summary
        try:
            here = self.live is not None and self.jobs == 1
            for _ in range(0 if here else self.jobs):
                self._start()
            for result in self._results_here(started) if here else self._results(started):
                summary.seconds = time.monotonic() - started
                if result is not None:
                    self._take(result)
                if self.live is not None:
                    self.live.publish(summary)
                if on_result is not None:
                    on_result(summary, result[0] if result is not None else None)
                if not self.plan.keep_going and (summary.failures or summary.nondeterministic):
                    break
        except KeyboardInterrupt:
            summary.interrupted = True
        finally:
            summary.seconds = time.monotonic() - started
            self._stop()
            if self.live is not None:
                self.live.publish(summary, now=True)
        summary.next_seed = self._resume_seed()
        return summary

    def _take(self, pair: tuple[RunResult, bool]) -> None:
        result, second = pair
        summary = self.summary
        if second:
            summary.rechecked += 1
            if self._digests.pop(result.seed) != result.digest:
                summary.nondeterministic.append(result.seed)
            return
        summary.add(result)
        if self.live is not None:
            self.live.note(result)
        due = self.plan.recheck and result.seed % RECHECK_EVERY == 0 and result.verdict == "pass"
        if due:
            self._digests[result.seed] = result.digest
            self._tasks.append((result.seed, result.seed + 1, True))

    def _results(self, started: float) -> Iterator[tuple[RunResult, bool] | None]:
        budget = self.plan.budget_s
        while True:
            over = budget is not None and time.monotonic() - started >= budget
            if not over:
                self._feed()
            busy = [worker for worker in self._workers if worker.task is not None]
            if not busy or over:
                return
            ready = wait([worker.connection for worker in busy], timeout=0.2)
            if not ready:
                yield None
            for worker in busy:
                if worker.connection in ready:
                    found = self._receive(worker)
                    if found is not None:
                        yield found

    def _results_here(self, started: float) -> Iterator[tuple[RunResult, bool] | None]:
        """Results of schedules that run in this process, under the eyes of `live`."""
        assert self.live is not None, "only a watched campaign runs here"
        probe, budget = self.live.probe_here(), self.plan.budget_s
        while (task := self._next_task()) is not None:
            for seed in range(task[0], task[1]):
                self._here = None if task[2] else seed
                if budget is not None and time.monotonic() - started >= budget:
                    return
                yield run_schedule(self.plan.spec(seed), probe), task[2]
            self._here = None

    def _feed(self) -> None:
        for worker in self._workers:
            if worker.task is not None:
                continue
            task = self._next_task()
            if task is None:
                return
            worker.task, worker.at = task, task[0]
            worker.connection.send(task)

    def _next_task(self) -> Task | None:
        if self._tasks:
            return self._tasks.popleft()
        first = self.summary.next_seed
        last = first + CHUNK_SEEDS
        if self.plan.last is not None:
            last = min(last, self.plan.last)
        if first >= last:
            return None
        self.summary.next_seed = last
        return first, last, False

    def _receive(self, worker: _Worker) -> tuple[RunResult, bool] | None:
        task = worker.task
        assert task is not None
        try:
            result: RunResult | Published = worker.connection.recv()
        except (EOFError, OSError):
            return self._died(worker, task)
        if not isinstance(result, RunResult):
            assert self.live is not None, "nobody asked for snapshots"
            self.live.receive(worker.name, result)
            return None
        self._deaths = 0
        worker.at = result.seed + 1
        if worker.at >= task[1]:
            worker.task = None
        return result, task[2]

    def _died(self, worker: _Worker, task: Task) -> tuple[RunResult, bool]:
        """The process ended in the middle of seed `worker.at`: a crash of that seed, and of no
        other.
        """
        worker.process.join()
        self._workers.remove(worker)
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            raise DeviceError(
                f"{self._deaths} worker processes ended one after the other without a result; "
                "run one seed with --seed to see why"
            )
        seed = worker.at
        if seed + 1 < task[1]:
            self._tasks.appendleft((seed + 1, task[1], task[2]))
        self._start()
        message = f"the process that ran this seed ended with exit code {worker.process.exitcode}"
        spec = self.plan.spec(seed)
        return RunResult(
            seed, spec.system, spec.model, "crash", 0, "", {}, 0, 0, crash=message
        ), task[2]

    def _resume_seed(self) -> int:
        """The first seed that was handed out and has no result, or the next one."""
        left = [task[0] for task in self._tasks if not task[2]]
        left += [w.at for w in self._workers if w.task is not None and not w.task[2]]
        left += [] if self._here is None else [self._here]
        return min(left, default=self.summary.next_seed)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        before = os.environ.get("PYTHONHASHSEED")
        # Children read it at start: equal digests then prove that no hash order enters a decision.
        os.environ["PYTHONHASHSEED"] = str(self._hash_seed)
        self._hash_seed += 1
        try:
            name = self._free_name()
            watched = "" if self.live is None else name
            process = context.Process(target=work, args=(theirs, self.plan, watched), daemon=True)
            process.start()
        finally:
            if before is None:
                del os.environ["PYTHONHASHSEED"]
            else:
                os.environ["PYTHONHASHSEED"] = before
        theirs.close()
        self._workers.append(_Worker(process, ours, name))

    def _free_name(self) -> str:
        taken = {worker.name for worker in self._workers}
        return next(name for name in map(str, range(len(taken) + 1)) if name not in taken)

    def _stop(self) -> None:
        for worker in self._workers:
            worker.connection.close()
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def work(connection: Connection, plan: Plan, watched: str = "") -> None:
    """A worker process: tasks in, results out, until the parent goes away.

    With a name to be watched under it sends its arena's snapshots too, between the results.
    """
    probe = None
    if watched:
        from onearena.stress.live import worker_probe

        probe = worker_probe(watched, connection.send)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    # A schedule makes few cycles (its rig, once); collecting between schedules costs a tenth.
    gc.disable()
    frozen = False
    try:
        while True:
            first, last, _ = connection.recv()
            for seed in range(first, last):
                connection.send(run_schedule(plan.spec(seed), probe))
            gc.collect()
            if not frozen:
                # Modules and compiled kernels stay for good: no later collection looks at them.
                gc.freeze()
                frozen = True
    except (EOFError, OSError):
        return


def warm_up(plan: Plan) -> None:
    """Run one schedule here: kernels are compiled once then, not by every worker at a time."""
    if plan.system == "arena":
        run_schedule(plan.spec(plan.first))


def run_here(plan: Plan, seed: int, live: Live | None = None) -> RunResult:
    """One schedule in this process."""
    return run_schedule(plan.spec(seed), None if live is None else live.probe_here())


def as_json(summary: Summary) -> dict[str, Any]:
    """`Summary.to_json`, typed for `json.dumps`."""
    return dict(summary.to_json())
