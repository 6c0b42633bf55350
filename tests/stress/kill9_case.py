"""Campaigns that are killed while they run and while they write, and what is left of them.

Schedules are run once and remembered; the campaigns under test get them from an engine that
answers in a drawn order, loses tasks and repeats results. So a hundred campaigns cost seconds, and
all their time goes where the question is: the account of seeds and the file.

A session is a fork of this process that goes on with a run, and is killed at a drawn moment:

statement     SIGKILL before the n-th SQL statement, so also between two of one transaction
instruction   SIGKILL within a statement, COMMIT included, at the n-th step of SQLite's machine
torn          the kernel ends it in the middle of a write: the file may not grow past n bytes
clock         SIGKILL from outside after a drawn time
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onearena.stress import run_store
from onearena.stress.campaign import RECHECK_EVERY, Campaign
from onearena.stress.campaign_plan import Plan
from onearena.stress.engine import Event, Finished, Lost, Task
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunResult, run_schedule
from onearena.stress.run_file import STORE_NAME, holds_run
from onearena.stress.run_store import RunStore

MODES: Final = ("statement", "instruction", "torn", "clock")
TIMES: Final = ("seconds", "schedules_per_second", "steps_per_second", "jobs")
SOURCES: Final = "sources of a test"


def remember(plan: Plan) -> dict[int, RunResult]:
    """Every schedule of a plan, run here."""
    assert plan.last is not None
    return {seed: run_schedule(plan.spec(seed)) for seed in range(plan.first, plan.last)}


class MemoEngine:
    """Answers from memory, in an order drawn from a seed; loses tasks and repeats results."""

    def __init__(self, memo: dict[int, RunResult], seed: int, *, jobs: int = 3) -> None:
        self.jobs = jobs
        self._memo = memo
        self._rng = random.Random(seed)
        self._tasks: list[Task] = []

    def start(self) -> None:
        pass

    def has_room(self) -> bool:
        return len(self._tasks) < self.jobs

    def busy(self) -> bool:
        return bool(self._tasks)

    def submit(self, task: Task) -> None:
        assert self.has_room()
        self._tasks.append(task)

    def poll(self, timeout_s: float) -> list[Event]:
        rng = self._rng
        task = self._tasks.pop(rng.randrange(len(self._tasks)))
        if rng.random() < 0.05:
            return [Lost(task, "drawn")]
        done = Finished(self._memo[task.first], task.second)
        if task.first + 1 < task.last:
            self._tasks.append(Task(task.first + 1, task.last, task.second))
        return [done, done] if rng.random() < 0.05 else [done]

    def stop(self) -> None:
        self._tasks.clear()


@dataclass(frozen=True, slots=True)
class Kill:
    """How a session ends: `at` counts statements, instructions, bytes or microseconds."""

    mode: str
    at: int


def draw_kill(rng: random.Random) -> Kill:
    mode = rng.choice(MODES)
    highest = {"statement": 400, "instruction": 3000, "torn": 160_000, "clock": 120_000}[mode]
    return Kill(mode, rng.randrange(1, highest))


def open_run(folder: Path, plan: Plan) -> RunStore:
    """As `onearena stress` does it: the run that is there, or a new one."""
    if holds_run(folder / STORE_NAME):
        return RunStore.open(folder, writes=True)
    return RunStore.create(folder, plan, SOURCES)


def finish(folder: Path, plan: Plan, memo: dict[int, RunResult], seed: int) -> Campaign:
    """A session to the end of the plan."""
    with open_run(folder, plan) as store:
        campaign = Campaign(plan, store=store, engine=MemoEngine(memo, seed))
        store.begin(campaign.jobs, "")
        campaign.run()
    return campaign


def session(folder: Path, plan: Plan, memo: dict[int, RunResult], seed: int, kill: Kill) -> bool:
    """A session in a fork, killed as drawn. True if it was killed, False if it ended before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _arm(kill, batch=random.Random(seed).choice((1, 3, 64)))
            finish(folder, plan, memo, seed)
            code = 0
        finally:
            os._exit(code)
    if kill.mode == "clock":
        time.sleep(kill.at / 1e6)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXFSZ), status
        return True
    assert os.WEXITSTATUS(status) == 0, f"{kill} of {folder}: exit {os.WEXITSTATUS(status)}"
    return False


def _arm(kill: Kill, *, batch: int) -> None:
    """In the child: arrange the end."""
    run_store.BATCH_RESULTS = batch  # type: ignore[misc]
    if kill.mode == "torn":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (kill.at, kill.at))
        return
    left = [kill.at]

    def tick(_: str = "") -> int:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    connect = run_store.connect

    def armed(path: Path, *, writes: bool) -> sqlite3.Connection:
        connection = connect(path, writes=writes)
        if kill.mode == "statement":
            connection.set_trace_callback(tick)
        elif kill.mode == "instruction":
            connection.set_progress_handler(tick, 7)
        return connection

    run_store.connect = armed


def check(campaign: Campaign, plan: Plan, memo: dict[int, RunResult], folder: Path) -> None:
    """The run holds every seed once, and its sums are those of the remembered schedules.

    The sums are made here, from the results alone.
    """
    with RunStore.open(folder, writes=True) as store:  # looks at every page
        assert store.meta("status") == "complete"
        held = list(store.digests())
        rechecks = store.rechecks()
        restored = [result for result, _ in store.results()]
    assert held == [(seed, one.verdict, one.digest) for seed, one in sorted(memo.items())]
    due = [s for s, one in memo.items() if s % RECHECK_EVERY == 0 and one.verdict == "pass"]
    assert rechecks == {seed: memo[seed].digest for seed in due}
    for one in restored:
        assert (one.violations, one.crash) == (memo[one.seed].violations, memo[one.seed].crash)
        spec = plan.spec(one.seed)
        assert dump_recording(spec, one) == dump_recording(spec, memo[one.seed])
    reach: Counter[str] = Counter()
    for one in memo.values():
        reach.update(one.reach)
    summary = campaign.summary
    assert summary.reach == dict(reach)
    assert summary.schedules == len(memo)
    assert summary.step_total == sum(one.steps for one in memo.values())
    assert summary.verdicts == dict(Counter(one.verdict for one in memo.values()))
    failed = [one for one in memo.values() if one.verdict != "pass"]
    assert [one.seed for one in summary.failures] == [one.seed for one in failed]
    whole = Campaign(plan, engine=MemoEngine(memo, 0)).run()
    assert comparable(summary.to_json()) == comparable(whole.to_json())


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    """A summary without what depends on the clock and the machine."""
    return {name: value for name, value in document.items() if name not in TIMES}


def killed_campaigns(
    top: Path, plans: list[tuple[Plan, dict[int, RunResult]]], *, seed: int, kills: int
) -> Counter[str]:
    """Campaigns, one after the other, until `kills` sessions were killed; each is resumed to its
    end and checked. Returns the kills by mode, and under "campaigns" and "sessions" how many.
    """
    rng = random.Random(seed)
    done: Counter[str] = Counter()
    while sum(done[mode] for mode in MODES) < kills:
        plan, memo = plans[done["campaigns"] % len(plans)]
        folder = top / str(done["campaigns"])
        folder.mkdir()
        for _ in range(rng.randrange(1, 6)):
            kill = draw_kill(rng)
            done["sessions"] += 1
            if not session(folder, plan, memo, rng.randrange(1 << 30), kill):
                break
            done[kill.mode] += 1
        check(finish(folder, plan, memo, rng.randrange(1 << 30)), plan, memo, folder)
        done["campaigns"] += 1
    return done
