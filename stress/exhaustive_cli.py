"""`onearena stress --strategy exhaustive`: the search at small scope, in parts, on all cores."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click

from onearena.core.errors import UsageError
from onearena.stress import interrupts
from onearena.stress.exhaustive import (
    CALLS_MAX,
    FAILURES_KEPT_MAX,
    SCOPES,
    UNITS,
    Count,
    Item,
    items,
    small_system,
)
from onearena.stress.exhaustive_world import CALLS

CALLS_DEFAULT: Final = 3
FAILURES_SHOWN: Final = 2
UNUSED: Final = ("out", "junit", "seed", "arrivals", "resume", "schedule_limit")
"""Options of `onearena stress` that say nothing of this search."""


@dataclass(slots=True)
class Outcome:
    """What a range of parts came to; `done` parts from `first` on, of `total` in the whole."""

    system: str
    calls_max: int
    first: int
    last: int
    total: int
    done: int = 0
    seconds: float = 0.0
    count: Count = field(default_factory=Count)
    named: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every part of the whole search was run to its end."""
        return self.first == 0 and self.done == self.total and not self.count.failed

    def add(self, item: Item, count: Count) -> None:
        """The next part is over."""
        self.done += 1
        if item.name:
            self.named[item.name] = sum(count.runs.values())
        self.count.add(count, lengths=not item.name)

    def to_json(self) -> dict[str, Any]:
        """Plain form, version 1."""
        count = self.count
        return {
            "version": 1,
            "strategy": "exhaustive",
            "system": self.system,
            "complete": self.complete,
            "calls_max": self.calls_max,
            "units": UNITS,
            "streams": 2,
            "scopes": {name: [list(band) for band in bands] for name, bands in SCOPES.items()},
            "parts": {"first": self.first, "done": self.done, "total": self.total},
            "programs": {str(n): count.programs[n] for n in sorted(count.programs)},
            "runs": {str(n): count.runs[n] for n in sorted(count.runs)},
            "named_runs": self.named,
            "calls": {name: count.calls[name] for name in CALLS},
            "ends_seen": count.ends,
            "calls_refused": count.refused,
            "device_steps": count.steps,
            "table_cells": dict(sorted(count.cells.items())),
            "failed": count.failed,
            "failures": [program.to_json() for program in count.failures],
            "seconds": round(self.seconds, 3),
        }

    def text(self) -> str:
        """For people."""
        count = self.count
        lines = [program.text() for program in count.failures[:FAILURES_SHOWN]]
        lines += [
            f"{length} calls: {count.programs.get(length, 0):,} programs, "
            f"{count.runs[length]:,} orders of their ends"
            for length in sorted(count.runs)
        ]
        if self.named:
            runs = sum(self.named.values())
            lines.append(f"{len(self.named)} named programs of 8 calls: {runs:,} orders")
        lines.append(
            f"parts {self.first}:{self.first + self.done} of {self.total}, "
            f"{count.steps:,} device steps, {count.refused:,} refusals, "
            f"{len(count.cells)} table cells met, {self.seconds:.1f} s"
        )
        if self.complete:
            lines.append(
                f"complete: true; up to {self.calls_max} calls on {UNITS} units and 2 streams, "
                "no rule broken"
            )
        elif count.failed:
            lines.append(f"complete: false; {count.failed:,} programs broke a rule")
        elif self.first + self.done == self.last:
            lines.append("complete: false; these are not all parts")
        else:
            rest = f"--seeds {self.first + self.done}:{self.last}"
            command = "onearena stress --strategy exhaustive"
            lines.append(f"complete: false; resume: {command} --calls {self.calls_max} {rest}")
        return "\n".join(lines)


def search_part(system: str, item: Item) -> Count:
    """One part; what a worker process runs."""
    return item.search(system)


def run_parts(
    system: str, wanted: Sequence[Item], *, jobs: int, end: float | None
) -> Iterator[tuple[Item, Count]]:
    """The parts in order, on so many processes, until all are over or the clock says `end`."""
    if jobs <= 1 or len(wanted) <= 1:
        for item in wanted:
            if end is not None and time.monotonic() >= end:
                return
            yield item, search_part(system, item)
        return
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(wanted))
    with ProcessPoolExecutor(workers, context, interrupts.leave_to_parent) as pool:
        with interrupts.held():
            counts = pool.map(partial(search_part, system), wanted)
        try:
            for item, count in zip(wanted, counts, strict=True):
                yield item, count
                if end is not None and time.monotonic() >= end:
                    return
        finally:
            pool.shutdown(cancel_futures=True)


def run_options(
    given: Mapping[str, Any], parts: tuple[int, int | None], jobs: int, budget_s: float | None
) -> int:
    """`run_exhaustive` with the options of `onearena stress`, by their names."""
    from onearena.stress.stress_cli import SEED_MAX, parse_integer

    calls = given["calls"]
    if given["strategy"] != "exhaustive":
        raise UsageError("--calls", calls, "give it with --strategy exhaustive")
    return run_exhaustive(
        given["system"],
        calls=None if calls is None else parse_integer("--calls", calls, SEED_MAX),
        parts=parts,
        jobs=jobs,
        budget_s=budget_s,
        keep_going=given["keep_going"],
        as_json=given["as_json"],
        unused={f"--{name.replace('_', '-')}": given[name] for name in UNUSED},
    )


def run_exhaustive(
    system: str,
    *,
    calls: int | None,
    parts: tuple[int, int | None],
    jobs: int,
    budget_s: float | None,
    keep_going: bool,
    as_json: bool,
    unused: Mapping[str, str | None],
) -> int:
    """Search, print the counts. Exit code 0, 1 for a broken rule, 6 if no part was finished.

    `parts` (first, end) are parts of the search, not seeds; no end: to the last. `unused` names
    options that say nothing here, with what was given for them; only None is accepted.
    """
    for name, value in unused.items():
        if value is not None:
            raise UsageError(name, value, "leave it out with --strategy exhaustive")
    calls = CALLS_DEFAULT if calls is None else calls
    if not 1 <= calls <= CALLS_MAX:
        raise UsageError("--calls", calls, f"give a whole number from 1 to {CALLS_MAX}")
    small_system(system, next(iter(SCOPES)))
    whole = items(system, calls)
    first, last = parts[0], len(whole) if parts[1] is None else parts[1]
    if not 0 <= first < last <= len(whole):
        raise UsageError("--seeds", f"{first}:{last}", f"give parts of 0:{len(whole)}")
    outcome = Outcome(system, calls, first, last, len(whole))
    started = time.monotonic()
    end = None if budget_s is None else started + budget_s
    workers = jobs or len(os.sched_getaffinity(0))
    for item, count in run_parts(system, whole[first:last], jobs=workers, end=end):
        outcome.add(item, count)
        if count.failed and not keep_going:
            break
    outcome.seconds = time.monotonic() - started
    assert len(outcome.count.failures) <= FAILURES_KEPT_MAX, len(outcome.count.failures)
    click.echo(json.dumps(outcome.to_json(), indent=1) if as_json else outcome.text())
    if outcome.count.failed:
        return 1
    return 0 if outcome.done else 6
