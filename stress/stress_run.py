"""What `onearena stress` does once its arguments are understood: run, show, keep, sum up."""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import note_compiling

if TYPE_CHECKING:
    from onearena.stress.campaign_plan import Plan
    from onearena.stress.engine import Engine
    from onearena.stress.live import Live
    from onearena.stress.run import RunResult
    from onearena.stress.run_store import RunStore
    from onearena.stress.summary import Summary

FILES_MAX: Final = 64
"""Choices files of failures that a campaign writes; a seed makes any other again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """How a plan is run this time. `alone`: its one seed, in this process. `store`: of the run that
    goes on. `folder`: where files go; None chooses one.
    """

    folder: Path | None = None
    store: RunStore | None = None
    as_json: bool = False
    alone: bool = False
    live: Live | None = None
    junit: str | None = None
    shrinks: bool = True
    engine: str = "local"


def resume(run: str, asked: Plan, *, extends: bool) -> tuple[RunStore, Plan]:
    """The store of a run, open for writing, and the plan to go on with.

    Of `asked` count jobs, budget, whether to keep going, and, if `extends`, the seeds: the same
    first one, and an end that is not before the old one.
    """
    from onearena.stress.run_folders import find_run, sources_hash
    from onearena.stress.run_store import RunStore
    from onearena.stress.user_systems import check_trusted, is_user_system

    folder = find_run("--resume", run)
    store = RunStore.open(folder, writes=True)
    try:
        plan = store.plan()
        if is_user_system(plan.system):
            check_trusted(plan.system, "--resume")  # a file names it, the user has not
        _check_sources(run, store.meta("sources"), sources_hash(plan.system))
        if extends:
            _check_end(plan, asked)
            plan = replace(plan, last=asked.last)
        plan = replace(plan, keep_going=plan.keep_going or asked.keep_going)
        store.set_plan(plan)
        left = plan.budget_s
        if asked.budget_s is not None:
            left = asked.budget_s
        elif left is not None:
            left = max(0.0, left - store.seconds())
        limit_s = asked.schedule_limit_s
        return store, replace(plan, budget_s=left, jobs=asked.jobs, schedule_limit_s=limit_s)
    except BaseException:
        store.close()
        raise


def _check_sources(run: str, were: str, are: str) -> None:
    if were != are:
        raise UsageError(
            "--resume",
            run,
            "the sources have changed since, and results of two versions do not add up; "
            "start another run",
        )


def _check_end(plan: Plan, asked: Plan) -> None:
    shown = f"{asked.first}:{'' if asked.last is None else asked.last}"
    if asked.first != plan.first:
        raise UsageError("--seeds", shown, f"a resumed run begins at seed {plan.first}, as it did")
    if asked.last is not None and (plan.last is None or asked.last < plan.last):
        raise UsageError("--seeds", shown, "a resumed run may end later, and no earlier")


def run_plan(plan: Plan, session: Session) -> int:
    """Run, show progress on a terminal, print the failures and the end block, write the files."""
    if plan.system == "arena":
        note_compiling()
    if session.alone:
        return _run_alone(plan, session)
    from onearena.stress.campaign import Campaign, warm_up
    from onearena.stress.reach import planned
    from onearena.stress.report import failure_text, summary_text
    from onearena.stress.run_folders import new_run, sources_hash
    from onearena.stress.run_store import RunStore

    warm_up(plan)
    store, resumed = session.store, session.store is not None
    if store is None:
        folder = new_run() if session.folder is None else session.folder
        store = RunStore.create(folder, plan, sources_hash(plan.system))
    folder = store.path.parent
    with store:
        names = planned(plan.system, plan.models)
        campaign = Campaign(
            plan, planned=names, live=session.live, store=store, engine=_engine(plan, session)
        )
        files = _Files(plan, folder, campaign.summary.failures)
        store.begin(campaign.jobs, dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
        if resumed and not session.as_json:
            click.echo(f"going on with {folder}: {campaign.summary.schedules} schedules are there")
        progress = _Progress(enabled=not session.as_json and sys.stderr.isatty())

        def on_result(summary: Summary, result: RunResult | None) -> None:
            if result is not None and result.verdict != "pass":
                path = files.save(result)
                if not session.as_json:
                    with progress.paused():
                        click.echo(failure_text(result, path=path, arrivals=plan.arrivals_path))
            progress.show(summary)

        try:
            summary = campaign.run(on_result)
        finally:
            progress.close()
        text = summary_text(summary) + "\n" + _where(plan, folder, store.meta("status"))
        small: list[dict[str, Any]] = []
        if session.shrinks and not summary.interrupted:
            from onearena.stress.auto_shrink import shrink_distinct

            small = shrink_distinct(
                plan, summary.failures, files.path_of, store=store, quiet=session.as_json
            )
    return _end(summary, text, folder, session, small)


def _engine(plan: Plan, session: Session) -> Engine | None:
    """None: the processes of this machine."""
    if session.engine == "local":
        return None
    if session.live is not None:
        raise UsageError("--engine", session.engine, "leave out --metrics-port: no arena is here")
    from onearena.stress.engine_ray import RayEngine

    return RayEngine(plan, plan.jobs, os.environ.get("RAY_ADDRESS"))


def _where(plan: Plan, folder: Path, status: str) -> str:
    """Where the results are, and how to go on."""
    from onearena.stress.user_systems import trusting

    shown = shlex.quote(str(folder))
    if status == "complete":
        return f"kept in {shown}; see onearena runs show {shown}"
    line = f"resume: {trusting(plan.system)}onearena stress --resume {shown}"
    if status == "failed":
        line += " --keep-going"
    elif status == "budget":
        line += " --budget TIME"
    return f"kept in {shown}\n{line}"


def _run_alone(plan: Plan, session: Session) -> int:
    """One seed in this process; nothing is kept but files that --out asked for."""
    from onearena.stress.auto_shrink import shrink_distinct
    from onearena.stress.campaign import run_here
    from onearena.stress.reach import planned
    from onearena.stress.report import failure_text, summary_text
    from onearena.stress.summary import Summary

    names = planned(plan.system, plan.models)
    summary = Summary(plan.system, 1, plan.first, planned_names=names, next_seed=plan.first)
    started = time.monotonic()
    result = run_here(plan, plan.first, session.live)
    summary.add(result)
    summary.seconds = time.monotonic() - started
    summary.next_seed += 1
    files = _Files(plan, session.folder, ())
    path = files.save(result)
    if result.verdict != "pass" and not session.as_json:
        click.echo(failure_text(result, path=path, arrivals=plan.arrivals_path))
    small = []
    if session.shrinks:
        small = shrink_distinct(plan, summary.failures, files.path_of, quiet=session.as_json)
    return _end(summary, summary_text(summary), session.folder, session, small)


def _end(
    summary: Summary,
    text: str,
    folder: Path | None,
    session: Session,
    small: list[dict[str, Any]],
) -> int:
    if session.live is not None:
        session.live.note_small(small)
    run = {} if folder is None or session.alone else {"run": str(folder)}
    document = json.dumps({**summary.to_json(), **run, "shrunk": small}, indent=1)
    if session.junit is not None:
        from onearena.stress.auto_shrink import write_file
        from onearena.stress.junit import junit_xml

        write_file("--junit", session.junit, junit_xml(summary))
    if folder is not None:
        (folder / "summary.json").write_text(document + "\n", encoding="utf-8")
    click.echo(document if session.as_json else text)
    if summary.nondeterministic and not session.as_json:
        seeds = ", ".join(str(seed) for seed in summary.nondeterministic)
        click.echo(f"NONDETERMINISM: two runs of these seeds differ: {seeds}")
    return summary.exit_code()


class _Files:
    """Choices files of a run: at most `FILES_MAX` failures, those of a resumed run included."""

    def __init__(
        self, plan: Plan, folder: Path | None, earlier: tuple[RunResult, ...] | list[RunResult]
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._paths: dict[int, str] = {}
        for result in earlier:
            self.save(result)

    def path_of(self, seed: int) -> str:
        """The file of a seed; empty where none was written."""
        return self._paths.get(seed, "")

    def save(self, result: RunResult) -> str:
        """Write a result's choices file, if it has a recording and there is a folder."""
        if self._folder is None or not result.recording or len(self._paths) >= FILES_MAX:
            return ""
        from onearena.stress.recordings import dump_recording

        path = self._folder / f"seed-{result.seed}.choices.json"
        text = dump_recording(self._plan.spec(result.seed), result)
        path.write_text(text, encoding="utf-8")
        self._paths[result.seed] = str(path)
        return str(path)


class _Progress:
    """One line on a terminal's standard error, rewritten at most five times a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._status = None
        self._last = -1.0
        if enabled:
            from onearena.stress.terminal import console

            self._status = console(sys.stderr).status("starting")
            self._status.start()

    def show(self, summary: Summary) -> None:
        """Say how far it is."""
        if self._status is None or 0 <= summary.seconds - self._last < 0.2:
            return
        self._last = summary.seconds
        reached = sum(1 for count in summary.planned.values() if count)
        self._status.update(
            f"{summary.schedules} schedules, {summary.schedules_per_s:.1f}/s, "
            f"{summary.steps_per_s:.0f} steps/s, reached {reached}/{len(summary.planned_names)}, "
            f">90% full {summary.crowded_share:.0%}, 3+ forwards {summary.busy_share:.0%}, "
            f"failures {len(summary.failures)}"
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No line while something else is printed."""
        if self._status is not None:
            self._status.stop()
        yield
        if self._status is not None:
            self._status.start()

    def close(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()
