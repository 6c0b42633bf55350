"""Where a campaign's schedules run: the interface of an engine, and the two of one machine.

An engine takes tasks (runs of seeds) and answers with events: a schedule's result, or seeds that
were lost because what ran them went away. It decides nothing about a campaign. The campaign keeps
the account of seeds: it queues lost ones again and drops a result it did not wait for, so that no
seed is lost and none counts twice, whatever an engine does.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Final, Protocol

from onearena.core.errors import DeviceError
from onearena.stress import interrupts
from onearena.stress.campaign_plan import Plan
from onearena.stress.run import Probe, RunResult, run_schedule
from onearena.stress.schedule_limit import limited, where_it_was

if TYPE_CHECKING:
    from onearena.metrics.source import Published

DEATHS_MAX: Final = 8

Watched = Callable[[str, "Published"], None]
"""Gets a worker's name and what its arena looks like."""


@dataclass(frozen=True, slots=True)
class Task:
    """Seeds [first, last) to run, in order; `second` if they ran before and are compared."""

    first: int
    last: int
    second: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A schedule is over."""

    result: RunResult
    second: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """What ran these seeds went away before it had results of them. `why` is for people."""

    task: Task
    why: str


Event = Finished | Lost


class Engine(Protocol):
    """Runs tasks. One thread calls it, in the order start, any of the others, stop."""

    jobs: int

    def start(self) -> None:
        """Make the workers."""

    def has_room(self) -> bool:
        """Whether a task submitted now would start at once."""

    def busy(self) -> bool:
        """Whether a submitted task has not answered for all of its seeds."""

    def submit(self, task: Task) -> None:
        """Take a task; only with room."""

    def poll(self, timeout_s: float) -> list[Event]:
        """What happened since the last call; waits at most about `timeout_s` for something to.

        Raises `DeviceError` when workers cannot be kept alive.
        """

    def stop(self) -> None:
        """End the workers, whatever they do. May be called before `start` and twice."""


class HereEngine:
    """Runs schedules in this process, one a poll. For one job that is watched, and for tests."""

    jobs = 1

    def __init__(self, plan: Plan, probe: Probe | None = None) -> None:
        self._plan = plan
        self._probe = probe
        self._task: Task | None = None

    def start(self) -> None:
        """Nothing to do."""

    def has_room(self) -> bool:
        """One task at a time."""
        return self._task is None

    def busy(self) -> bool:
        """Whether the task has seeds left."""
        return self._task is not None

    def submit(self, task: Task) -> None:
        """Keep it for the next polls."""
        assert self._task is None, f"{task} while {self._task} runs"
        self._task = task

    def poll(self, timeout_s: float) -> list[Event]:
        """Run the next seed."""
        task = self._task
        if task is None:
            return []
        result = run_schedule(self._plan.spec(task.first), self._probe)
        rest = Task(task.first + 1, task.last, task.second)
        self._task = rest if rest.first < rest.last else None
        return [Finished(result, task.second)]

    def stop(self) -> None:
        """Drop what is left of the task."""
        self._task = None


class _Worker:
    __slots__ = ("at", "connection", "name", "process", "report", "task")

    def __init__(
        self, process: BaseProcess, connection: Connection, report: Connection, name: str
    ) -> None:
        self.name = name
        self.process = process
        self.connection = connection
        self.report = report  # gets where a schedule was that came to no end
        self.task: Task | None = None
        self.at = 0


class LocalEngine:
    """Worker processes of this machine. Each has another hash seed, and sends every result at once.

    A worker that dies is a crash of the seed it ran, and the rest of its task is lost. So is a
    worker whose schedule takes longer than `plan.schedule_limit_s`, at the second time.
    With `watched` the workers also send what their arenas look like.
    """

    def __init__(self, plan: Plan, jobs: int, watched: Watched | None = None) -> None:
        assert jobs > 0, f"{jobs} jobs"
        self.jobs = jobs
        self.workers: list[_Worker] = []
        self._plan = plan
        self._watched = watched
        self._hash_seed = 1
        self._deaths = 0  # since the last result
        self._late: set[int] = set()  # seeds that took too long once

    def start(self) -> None:
        """Start all workers."""
        for _ in range(self.jobs):
            self._start_one()

    def has_room(self) -> bool:
        """Whether a worker is idle."""
        return any(worker.task is None for worker in self.workers)

    def busy(self) -> bool:
        """Whether a worker is not idle."""
        return any(worker.task is not None for worker in self.workers)

    def submit(self, task: Task) -> None:
        """Give it to an idle worker; a worker found dead leaves the task to the next poll."""
        worker = next(one for one in self.workers if one.task is None)
        worker.task, worker.at = task, task.first
        try:
            worker.connection.send(task)
        except OSError:
            return  # its end of the pipe is closed: `poll` meets that too, and reports the death

    def poll(self, timeout_s: float) -> list[Event]:
        """Results that have arrived."""
        busy = [worker for worker in self.workers if worker.task is not None]
        ready = wait([worker.connection for worker in busy], timeout=timeout_s)
        events: list[Event] = []
        for worker in busy:
            if worker.connection in ready:
                events += self._receive(worker)
        return events

    def stop(self) -> None:
        """Close the pipes, at which workers end; kill those that do not within two seconds."""
        for worker in self.workers:
            worker.connection.close()
            worker.report.close()
        deadline = time.monotonic() + 2.0
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.workers.clear()

    def _receive(self, worker: _Worker) -> list[Event]:
        task = worker.task
        assert task is not None, worker.name
        try:
            result: RunResult | Published = worker.connection.recv()
        except (EOFError, OSError):
            return self._died(worker, task)
        if not isinstance(result, RunResult):
            assert self._watched is not None, "nobody asked for snapshots"
            self._watched(worker.name, result)
            return []
        self._deaths = 0
        worker.at = result.seed + 1
        if worker.at >= task.last:
            worker.task = None
        return [Finished(result, task.second)]

    def _died(self, worker: _Worker, task: Task) -> list[Event]:
        """The process ended in the middle of seed `worker.at`: a crash of that seed, and of no
        other.
        """
        worker.process.join()
        worker.connection.close()
        where = where_it_was(worker.report)
        worker.report.close()
        self.workers.remove(worker)
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            raise DeviceError(
                f"{self._deaths} worker processes ended one after the other without a result; "
                "run one seed with --seed to see why"
            )
        self._start_one()
        seed = worker.at
        why = f"the process that ran this seed ended with exit code {worker.process.exitcode}"
        if where:
            limit = f"{self._plan.schedule_limit_s:g} s"
            if seed not in self._late:
                # It may have been stopped, and not stuck: once is no result.
                self._late.add(seed)
                return [Lost(Task(seed, task.last, task.second), f"no result within {limit}")]
            why = f"{where}\nthis seed had no result within {limit}, twice; it was there"
        events: list[Event] = [Finished(crash_of(self._plan, seed, why), task.second)]
        if seed + 1 < task.last:
            events.append(Lost(Task(seed + 1, task.last, task.second), why))
        return events

    def _start_one(self) -> None:
        context = multiprocessing.get_context("spawn")
        name = self._free_name()
        shown = "" if self._watched is None else name
        ours, theirs = context.Pipe()
        report, ending = context.Pipe(duplex=False)
        args = (theirs, self._plan, shown, ending)
        process = context.Process(target=work, args=args, daemon=True)
        with interrupts.held():
            # Children read it at start: equal digests prove that no hash order enters a decision.
            with _variable("PYTHONHASHSEED", str(self._hash_seed)):
                process.start()
            self._hash_seed += 1
            self.workers.append(_Worker(process, ours, report, name))
            theirs.close()
            ending.close()

    def _free_name(self) -> str:
        taken = {worker.name for worker in self.workers}
        return next(name for name in map(str, range(len(taken) + 1)) if name not in taken)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """The environment with a variable that children are to see."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def crash_of(plan: Plan, seed: int, why: str) -> RunResult:
    """The result of a schedule that took its process with it."""
    spec = plan.spec(seed)
    return RunResult(
        seed,
        spec.system,
        spec.model,
        "crash",
        0,
        "",
        {},
        0,
        0,
        crash=why,
        model_asked=spec.model,
        device=spec.device,
        strategy_asked=spec.strategy,
    )


def work(
    connection: Connection, plan: Plan, watched: str = "", report: Connection | None = None
) -> None:
    """A worker process: tasks in, results out, until the parent goes away.

    With a name to be watched under it sends its arena's snapshots too, between the results.
    `report` gets where a schedule was that came to no end.
    """
    probe = None
    if watched:
        from onearena.stress.live import worker_probe

        probe = worker_probe(watched, connection.send)
    interrupts.leave_to_parent()
    # A schedule makes few cycles (its rig, once); collecting between schedules costs a tenth.
    gc.disable()
    frozen = False
    try:
        while True:
            task = connection.recv()
            for seed in range(task.first, task.last):
                with limited(plan.schedule_limit_s, report):
                    result = run_schedule(plan.spec(seed), probe)
                connection.send(result)
            gc.collect()
            if not frozen:
                # Modules and compiled kernels stay for good: no later collection looks at them.
                gc.freeze()
                frozen = True
    except (EOFError, OSError):
        return
