"""Campaigns on a Ray cluster (`--engine ray`, extra `ray`): an actor for each processor.

A worker that goes away (a machine lost, a process killed) takes its task with it; the campaign
queues the task's seeds again, and other actors run them. A seed whose worker goes away
`SEED_TRIES` times, in the end alone in its task, is a crash of that seed: it kills its process.
A schedule that takes longer than the plan's limit ends its worker too; Ray's log of the worker has
where it was.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from typing import Any, Final

from onearena.core.errors import DeviceError, UsageError
from onearena.stress.campaign_plan import Plan
from onearena.stress.engine import DEATHS_MAX, Event, Finished, Lost, Task, crash_of
from onearena.stress.run import RunResult, run_schedule
from onearena.stress.schedule_limit import limited

SEED_TRIES: Final = 3
OBJECT_STORE_BYTES: Final = 100_000_000
"""For results on their way; only where this process starts the cluster."""


class _Runner:
    """The actor. It has the plan once; a task is two numbers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def run(self, first: int, last: int) -> list[RunResult]:
        """The results of seeds [first, last)."""
        results: list[RunResult] = []
        for seed in range(first, last):
            with limited(self._plan.schedule_limit_s):
                results.append(run_schedule(self._plan.spec(seed)))
        return results


class RayEngine:
    """Actors on the cluster of `address`, or on one of this machine that lives as long as it.

    Every actor has another hash seed. A task's results come together, at its end. Tasks whose
    worker was lost come back as `Lost`, seed by seed once they were lost before.
    """

    def __init__(self, plan: Plan, jobs: int = 0, address: str | None = None) -> None:
        self.jobs = jobs or 1
        self._asked = jobs
        self._plan = plan
        self._address = address
        self._ray: Any = None
        self._own = False  # whether `stop` ends the cluster
        self._idle: list[Any] = []
        self._running: dict[Any, tuple[Task, Any]] = {}  # reference -> task, actor
        self._lost: Counter[int] = Counter()  # seed -> how often its worker went away
        self._split: list[Task] = []
        self._hash_seed = 1
        self._deaths = 0  # since the last result

    def start(self) -> None:
        """Join or start the cluster, and make an actor for each job."""
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--engine", "ray", "install onearena[ray], or give local")
        ray: Any = importlib.import_module("ray")
        self._ray = ray
        if not ray.is_initialized():
            self._own = True
            local = {"num_cpus": self._asked or None, "object_store_memory": OBJECT_STORE_BYTES}
            try:
                ray.init(
                    address=self._address,
                    include_dashboard=None if self._address else False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    **({} if self._address else local),
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise DeviceError(f"--engine ray: no cluster ({error}); give local") from None
        self.jobs = self._asked or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._idle = [self._actor() for _ in range(self.jobs)]

    def has_room(self) -> bool:
        """Whether an actor is idle."""
        return bool(self._idle)

    def busy(self) -> bool:
        """Whether a task is out."""
        return bool(self._running)

    def submit(self, task: Task) -> None:
        """Give it to an idle actor. Seeds that lost a worker before go one by one."""
        actor = self._idle.pop()
        if task.last - task.first > 1 and any(
            self._lost[seed] for seed in range(task.first, task.last)
        ):
            self._split += [
                Task(seed, seed + 1, task.second) for seed in range(task.first + 1, task.last)
            ]
            task = Task(task.first, task.first + 1, task.second)
        self._running[actor.run.remote(task.first, task.last)] = task, actor

    def poll(self, timeout_s: float) -> list[Event]:
        """Results of the tasks that ended, and the tasks of lost workers."""
        events: list[Event] = [Lost(task, "its worker was lost before") for task in self._split]
        self._split.clear()
        if events or not self._running:
            return events
        ready, _ = self._ray.wait(
            list(self._running), num_returns=len(self._running), timeout=timeout_s
        )
        for reference in ready:
            task, actor = self._running.pop(reference)
            try:
                results = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                events += self._died(task, type(error).__name__)
                continue
            self._deaths = 0
            self._idle.append(actor)
            events += [Finished(result, task.second) for result in results]
        return events

    def stop(self) -> None:
        """End the actors, and the cluster if this started it."""
        if self._ray is None:
            return
        for actor in self._actors():
            self._ray.kill(actor)
        self._idle.clear()
        self._running.clear()
        if self._own:
            self._ray.shutdown()
        self._ray = None

    def _actors(self) -> list[Any]:
        return [*self._idle, *(actor for _, actor in self._running.values())]

    def _actor(self) -> Any:
        """Another actor; Ray starts its process with a hash seed of its own."""
        environment = {"PYTHONHASHSEED": str(self._hash_seed), "OMP_NUM_THREADS": "1"}
        self._hash_seed += 1
        made = self._ray.remote(num_cpus=1, max_restarts=0)(_Runner)
        return made.options(runtime_env={"env_vars": environment}).remote(self._plan)

    def _died(self, task: Task, why: str) -> list[Event]:
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            raise DeviceError(
                f"{self._deaths} Ray workers went away one after the other without a result "
                f"({why}); run one seed with --seed, or --engine local, to see why"
            )
        self._idle.append(self._actor())
        for seed in range(task.first, task.last):
            self._lost[seed] += 1
        seed = task.first
        if task.last - seed == 1 and self._lost[seed] >= SEED_TRIES:
            reason = f"the process that ran this seed went away {SEED_TRIES} times ({why})"
            return [Finished(crash_of(self._plan, seed, reason), task.second)]
        return [Lost(task, why)]
