"""Campaigns: many schedules on all cores, results streamed and kept, no seed lost.

An engine runs the schedules; the campaign hands out seeds, keeps the account of them and adds the
results up. A seed counts when its result comes in for the first time, whatever the engine repeats;
seeds that an engine lost go back to the queue. A sample of the schedules is run a second time, in
another process where there is one: unequal digests are nondeterminism.

With a store every result is kept before it counts. A campaign on a store that holds results goes
on with the seeds it lacks, so it comes to the same summary as one that was never stopped.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onearena.stress.campaign_plan import Plan, arrivals_window
from onearena.stress.engine import Engine, Event, HereEngine, LocalEngine, Lost, Task
from onearena.stress.reach import judged_from
from onearena.stress.run import RunResult, run_schedule
from onearena.stress.summary import Summary

if TYPE_CHECKING:
    from onearena.stress.live import Live
    from onearena.stress.run_store import RunStore

CHUNK_SEEDS: Final = 8
RECHECK_EVERY: Final = 64
POLL_S: Final = 0.2

OnResult = Callable[[Summary, RunResult | None], None]
"""Called after each result, and with None now and then so that a progress line can move."""

__all__ = [
    "CHUNK_SEEDS",
    "RECHECK_EVERY",
    "Campaign",
    "OnResult",
    "Plan",
    "arrivals_window",
    "run_here",
    "warm_up",
]


class Campaign:
    """Runs a plan. `run` returns the summary; results go to `on_result` as they come.

    With `live` it is watched; then a single job runs in this process, where its arena can be seen.
    `store` keeps the results, and its results count already. `engine` replaces the processes of
    this machine. A campaign runs once, on one thread.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        planned: tuple[str, ...] = (),
        live: Live | None = None,
        store: RunStore | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.plan = plan
        self.live = live
        self.store = store
        self.engine = _engine(plan, live) if engine is None else engine
        self.jobs = self.engine.jobs
        self.summary = Summary(
            plan.system,
            self.jobs,
            plan.first,
            planned_names=planned,
            next_seed=plan.first,
            default_profile=plan.default_profile,
            judged_from=judged_from(plan.system, plan.models),
        )
        self._tasks: deque[Task] = deque()
        self._open: set[tuple[int, bool]] = set()  # handed out, without a result
        self._digests: dict[int, str] = {}  # of schedules that are due a second run
        self._seconds_before = 0.0
        if store is not None:
            self._restore(store)

    def run(self, on_result: OnResult | None = None) -> Summary:
        """Run until the seeds, the budget or the patience of the user end; or at a failure."""
        started = time.monotonic()
        summary = self.summary
        try:
            if not self._stops():
                self._run(started, on_result)
        except KeyboardInterrupt:
            summary.interrupted = True
        finally:
            summary.seconds = self._seconds_before + time.monotonic() - started
            self.engine.stop()
            if self.live is not None:
                self.live.publish(summary, now=True)
            summary.next_seed = self._resume_seed()
            if self.store is not None:
                self.store.end(summary, self._ended())
        return summary

    def _run(self, started: float, on_result: OnResult | None) -> None:
        """Feed the engine and take what comes."""
        summary, engine, budget = self.summary, self.engine, self.plan.budget_s
        for due in self._recheck_due():
            self._tasks.append(due)
        engine.start()
        while True:
            spent = time.monotonic() - started
            if budget is not None and spent >= budget:
                return
            while engine.has_room() and (task := self._next_task()) is not None:
                self._open.update((seed, task.second) for seed in range(task.first, task.last))
                engine.submit(task)
            if not engine.busy():
                return
            events = engine.poll(POLL_S)
            for event in events or (None,):
                summary.seconds = self._seconds_before + time.monotonic() - started
                result = None if event is None else self._take(event)
                if self.live is not None:
                    self.live.publish(summary)
                if on_result is not None:
                    on_result(summary, result)
                if result is not None and self._stops():
                    return

    def _stops(self) -> bool:
        """Whether a failure ends the campaign."""
        summary = self.summary
        return not self.plan.keep_going and bool(summary.failures or summary.nondeterministic)

    def _take(self, event: Event) -> RunResult | None:
        """Account for an event; the result if it is one that counts."""
        if isinstance(event, Lost):
            self._requeue(event.task)
            return None
        result, second = event.result, event.second
        if (result.seed, second) not in self._open:
            return None  # an engine ran a lost seed twice: the first result counts
        if self.store is not None:
            # First of all: what is interrupted from here on finds it there.
            self.store.add(result, second=second, seconds=self.summary.seconds)
        self._open.discard((result.seed, second))
        summary = self.summary
        if second:
            summary.rechecked += 1
            if self._digests.pop(result.seed) != result.digest:
                summary.note_difference(result.seed)
            return result
        summary.add(result)
        if self.live is not None:
            self.live.note(result)
        if self.plan.recheck and is_sample(result):
            self._digests[result.seed] = result.digest
            self._tasks.append(Task(result.seed, result.seed + 1, second=True))
        return result

    def _requeue(self, task: Task) -> None:
        """Seeds of a lost task that have no result go first, in runs."""
        left = [s for s in range(task.first, task.last) if (s, task.second) in self._open]
        self._open.difference_update((seed, task.second) for seed in left)
        for first, last in reversed(runs_of(left)):
            self._tasks.appendleft(Task(first, last, task.second))

    def _next_task(self) -> Task | None:
        if self._tasks:
            task = self._tasks.popleft()
            if task.last - task.first > CHUNK_SEEDS:
                cut = task.first + CHUNK_SEEDS
                self._tasks.appendleft(Task(cut, task.last, task.second))
                task = Task(task.first, cut, task.second)
            return task
        first = self.summary.next_seed
        last = first + CHUNK_SEEDS
        if self.plan.last is not None:
            last = min(last, self.plan.last)
        if first >= last:
            return None
        self.summary.next_seed = last
        return Task(first, last)

    def _resume_seed(self) -> int:
        """The first seed that was handed out and has no result, or the next one."""
        left = [task.first for task in self._tasks if not task.second]
        left += [seed for seed, second in self._open if not second]
        return min(left, default=self.summary.next_seed)

    def _ended(self) -> str:
        """Why the campaign is over, in the store's words."""
        last = self.plan.last
        if self.summary.interrupted:
            return "interrupted"
        if last is not None and self._resume_seed() >= last and not self._digests:
            return "complete"
        return "failed" if self._stops() else "budget"

    def _restore(self, store: RunStore) -> None:
        """Count what the store holds, and queue the seeds between that it lacks."""
        summary = self.summary
        gaps, self._digests = restore(store, summary, recheck=self.plan.recheck)
        self._tasks.extend(gaps)
        self._seconds_before = summary.seconds

    def _recheck_due(self) -> list[Task]:
        """Second runs that a stopped campaign still owed."""
        return [Task(seed, seed + 1, second=True) for seed in sorted(self._digests)]


def is_sample(result: RunResult) -> bool:
    """Whether a schedule is one of those that run a second time."""
    return result.seed % RECHECK_EVERY == 0 and result.verdict == "pass"


def restore(
    store: RunStore, summary: Summary, *, recheck: bool
) -> tuple[list[Task], dict[int, str]]:
    """Add up what a store holds. `summary.next_seed` is the plan's first seed before, and the one
    after the last stored result afterwards. Returns the runs of seeds between that have no result,
    and the digests of schedules whose second run is due. Cost: one pass over the store.
    """
    gaps: list[Task] = []
    due: dict[int, str] = {}
    checked = store.rechecks()
    for result, strategy in store.results():
        summary.add(result, strategy=strategy)
        if summary.next_seed < result.seed:
            gaps.append(Task(summary.next_seed, result.seed))
        summary.next_seed = result.seed + 1
        if not recheck or not is_sample(result):
            continue
        if result.seed not in checked:
            due[result.seed] = result.digest
            continue
        summary.rechecked += 1
        if checked[result.seed] != result.digest:
            summary.note_difference(result.seed)
    summary.seconds = store.seconds()
    return gaps, due


def runs_of(seeds: list[int]) -> list[tuple[int, int]]:
    """Ascending seeds as runs [first, last)."""
    runs: list[tuple[int, int]] = []
    for seed in seeds:
        if runs and runs[-1][1] == seed:
            runs[-1] = (runs[-1][0], seed + 1)
        else:
            runs.append((seed, seed + 1))
    return runs


def _engine(plan: Plan, live: Live | None) -> Engine:
    """All cores of this machine, but no more processes than there are chunks."""
    jobs = plan.jobs or os.cpu_count() or 1
    if plan.last is not None:
        jobs = max(1, min(jobs, math.ceil((plan.last - plan.first) / CHUNK_SEEDS)))
    if live is None:
        return LocalEngine(plan, jobs)
    if jobs == 1:
        return HereEngine(plan, live.probe_here())
    return LocalEngine(plan, jobs, live.receive)


def warm_up(plan: Plan) -> None:
    """Run one schedule here: kernels are compiled once then, not by every worker at a time."""
    if plan.system == "arena":
        run_schedule(plan.spec(plan.first))


def run_here(plan: Plan, seed: int, live: Live | None = None) -> RunResult:
    """One schedule in this process."""
    return run_schedule(plan.spec(seed), None if live is None else live.probe_here())
