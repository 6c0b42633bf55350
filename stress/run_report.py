"""What a kept run amounts to: a line of a list, and the whole summary with distinct failures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.stress.auto_shrink import Broken, broken
from onearena.stress.campaign import restore
from onearena.stress.reach import judged_from, planned
from onearena.stress.run_file import BESIDE, STORE_NAME, is_locked
from onearena.stress.run_store import Minimal, RunStore
from onearena.stress.strategies.portfolio import DEFAULT
from onearena.stress.summary import Summary

DAMAGED: Final = "damaged"
RUNNING: Final = "running"
KILLED: Final = "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run at a glance. `status` as `onearena runs list` explains it; `began` is ISO 8601 UTC of
    the first session.
    """

    folder: Path
    status: str
    began: str = ""
    system: str = ""
    seeds: str = ""
    sources: str = ""
    schedules: int = 0
    failures: int = 0
    seconds: float = 0.0
    sessions: int = 0
    size_bytes: int = 0
    plan: dict[str, Any] | None = None
    damage: str = ""

    @property
    def name(self) -> str:
        """What `--resume` and the other commands take, below the folder of runs."""
        return self.folder.name

    @property
    def schedules_per_s(self) -> float:
        """Schedules a second of all sessions."""
        return self.schedules / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        return {**asdict(self), "version": 1, "folder": str(self.folder), "name": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Failures that broke one rule, with a minimal schedule of theirs if one was made."""

    verdict: str
    oracle: str
    rule: str
    schedules: int
    first_seed: int
    form: str = ""
    host_calls: int | None = None
    file: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        return asdict(self)


def look(folder: Path) -> Kept:
    """A run at a glance; a damaged one says so and raises nothing."""
    store = folder / STORE_NAME
    size = 0
    for suffix in BESIDE:
        path = store.with_name(store.name + suffix)
        size += path.stat().st_size if path.is_file() else 0
    try:
        with RunStore.open(folder) as opened:
            return _look(folder, opened, size)
    except UsageError as error:
        return Kept(folder=folder, status=DAMAGED, size_bytes=size, damage=error.message)


def _look(folder: Path, store: RunStore, size: int) -> Kept:
    plan = store.plan_document()
    status = store.meta("status")
    if is_locked(store.path):
        status = RUNNING
    elif status == RUNNING:
        status = KILLED
    sessions = store.sessions()
    verdicts = store.verdicts()
    schedules = sum(verdicts.values())
    last = plan.get("last")
    return Kept(
        folder=folder,
        status=status,
        began=sessions[0][0] if sessions else "",
        system=str(plan.get("system")),
        seeds=f"{plan.get('first')}:{'' if last is None else last}",
        sources=store.meta("sources"),
        schedules=schedules,
        failures=schedules - verdicts.get("pass", 0),
        seconds=store.seconds(),
        sessions=len(sessions),
        size_bytes=size,
        plan=plan,
    )


def read_run(folder: Path) -> tuple[Kept, Summary, list[Distinct]]:
    """A run in full; one pass over its results. `UsageError` if it is damaged."""
    kept = look(folder)
    if kept.plan is None:
        raise UsageError("RUN", str(folder), kept.damage)
    with RunStore.open(folder) as store:
        summary = summary_of(store)
        return kept, summary, distinct_failures(store)


def summary_of(store: RunStore) -> Summary:
    """The summary that a campaign over these results comes to."""
    plan = store.plan_document()
    sessions = store.sessions()
    models = tuple(str(model) for model in plan["models"])
    system, first = str(plan["system"]), int(plan["first"])
    summary = Summary(
        system,
        sessions[-1][1] if sessions else 1,
        first,
        planned_names=planned(system, models),
        next_seed=first,
        default_profile=plan["strategy"] == DEFAULT and not plan["arrivals_path"],
        judged_from=judged_from(system, models),
    )
    gaps, _ = restore(store, summary, recheck=plan["recheck"] is True)
    if gaps:
        summary.next_seed = gaps[0].first
    summary.interrupted = store.meta("status") == "interrupted"
    return summary


def distinct_failures(store: RunStore) -> list[Distinct]:
    """Failures by what they broke; each minimal schedule of another form has a line of its own.

    The first line of a kind counts all its failures that have no minimal schedule.
    """
    counts: Counter[Broken] = Counter()
    first: dict[Broken, int] = {}
    for result, _ in store.results():
        if result.verdict != "pass":
            kind = broken(result)
            counts[kind] += 1
            first.setdefault(kind, result.seed)
    small: dict[Broken, list[Minimal]] = {}
    for one in store.minimal():
        small.setdefault((one.verdict, one.oracle, one.rule), []).append(one)
    found: list[Distinct] = []
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        verdict, oracle, rule = kind
        forms = small.get(kind, [])
        rest = count - max(0, len(forms) - 1)
        if not forms:
            found.append(
                Distinct(
                    verdict=verdict,
                    oracle=oracle,
                    rule=rule,
                    schedules=count,
                    first_seed=first[kind],
                )
            )
        for at, one in enumerate(forms):
            document = json.loads(one.document)
            found.append(
                Distinct(
                    verdict=verdict,
                    oracle=oracle,
                    rule=rule,
                    schedules=1 if at else rest,
                    first_seed=one.seed if at else first[kind],
                    form=one.form,
                    host_calls=int(document["after"]["host_calls"]),
                    file=str(document["file"]),
                )
            )
    return found
