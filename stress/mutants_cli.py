"""`onearena mutants`: plant each registered fault in product code; does an oracle report it?"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import click

from onearena.core.errors import UsageError
from onearena.stress.mutant_cache import cache_folder
from onearena.stress.mutants import REGISTRY_DEFAULT, Mutant, load_registry
from onearena.stress.runs_cli import table
from onearena.stress.score import median_interval, wilson
from onearena.stress.stress_cli import SEED_MAX, parse_budget, parse_integer
from onearena.stress.terminal import examples

REPORT_VERSION: Final = 1


@click.command(
    epilog=examples(
        "onearena mutants --budget 60s",
        "onearena mutants --only M09,M27 --json",
        "onearena mutants --seeds 0,100000,200000",
    )
)
@click.option("--only", default="", help="Ids of the mutants to plant, separated by commas.")
@click.option("--budget", default="60s", show_default=True, help="Time for each mutant.")
@click.option("--jobs", default=0, help="Mutants hunted at once; 0: one a core.")
@click.option("--within", default="", help="Begin no hunt after so long, e.g. 12m.")
@click.option(
    "--seeds", default="0", metavar="A,B,..", show_default=True, help="First seeds of campaigns."
)
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    default=REGISTRY_DEFAULT,
    show_default=True,
    help="Registry of mutants (TOML).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mutants(
    only: str, budget: str, jobs: int, within: str, seeds: str, registry: Path, *, as_json: bool
) -> int:
    """Plant faults one at a time and count the ones an oracle reports.

    A mutant counts as caught only by an oracle's report; crashes are counted apart. Each is hunted
    once from each of the first seeds; the score is of all hunts, with a 95% interval.

    Exit 0 when all hunts caught theirs, 1 when one was missed or, with --within, not begun.
    """
    chosen = _choose(load_registry(registry), only)
    budget_s = parse_budget(budget)
    end = time.monotonic() + parse_budget(within, "--within") if within else float("inf")
    firsts = _first_seeds(seeds)
    rows: list[dict[str, Any]] = []
    with (
        Hunters(registry, budget_s, firsts[0], end) as hunters,
        ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool,
    ):
        hunts = [pool.submit(hunters.hunt, mutant, first) for first in firsts for mutant in chosen]
        for done, future in enumerate(hunts, start=1):
            rows.append(future.result())
            if not as_json:
                click.echo(_line(rows[-1], f"{done}/{len(hunts)}"))
    score = score_of(rows)
    if as_json:
        report = {
            "version": REPORT_VERSION,
            "budget_s": budget_s,
            "first_seeds": firsts,
            "score": score,
            "mutants": rows,
        }
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(score_text(score))
    return 0 if score["caught"] == score["hunts"] else 1


def _first_seeds(text: str) -> list[int]:
    found = [parse_integer("--seeds", part, SEED_MAX) for part in text.split(",")]
    if len(set(found)) != len(found):
        raise UsageError("--seeds", text, "give each first seed once")
    return found


def score_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The score of hunts: all together, and each campaign by itself.

    Intervals of shares are Wilson's; that of the median is of order statistics. Hunts of one mutant
    from several seeds are taken as independent draws of the campaign.
    """
    caught = [row for row in rows if row["caught"]]
    low, high = wilson(len(caught), len(rows))
    found: dict[str, Any] = {
        "hunts": len(rows),
        "caught": len(caught),
        "share": round(len(caught) / len(rows), 4),
        "share_95": [round(low, 4), round(high, 4)],
        "by_intended": sum("intended_after" in row for row in caught),
        "crashed": sum(row["crashed"] for row in rows),
        "missed": [_hunt_name(row) for row in rows if not row["caught"] and not _left(row)],
        "not_hunted": [_hunt_name(row) for row in rows if _left(row)],
    }
    if caught:
        schedules = [row["schedules"] for row in caught]
        median, least, most = median_interval(schedules)
        found |= {"schedules_median": median, "schedules_median_95": [least, most]}
        found["schedules_max"] = max(schedules)
    campaigns = []
    for first in dict.fromkeys(row["first_seed"] for row in rows):
        own = [row for row in rows if row["first_seed"] == first]
        hits = sum(row["caught"] for row in own)
        low, high = wilson(hits, len(own))
        campaigns.append(
            {
                "first_seed": first,
                "hunts": len(own),
                "caught": hits,
                "share_95": [round(low, 4), round(high, 4)],
            }
        )
    found["campaigns"] = campaigns
    return found


def _left(row: dict[str, Any]) -> bool:
    """Whether the time was over before this hunt began."""
    return bool(row.get("not_hunted"))


def _hunt_name(row: dict[str, Any]) -> str:
    return f"{row['id']} from {row['first_seed']}"


def score_text(score: dict[str, Any]) -> str:
    """The score in a few lines, with a table of the campaigns if there are several."""
    low, high = score["share_95"]
    lines = [
        (
            f"caught {score['caught']} of {score['hunts']}, {score['by_intended']} of them also by "
            f"the intended oracle; score {score['share']:.3f} (95%: {low:.3f} to {high:.3f})"
        )
    ]
    if score["caught"]:
        least, most = score["schedules_median_95"]
        lines.append(
            f"schedules to the report: median {score['schedules_median']} (95%: {least} to {most}),"
            f" most {score['schedules_max']}"
        )
    if len(score["campaigns"]) > 1:
        rows = [
            (
                row["first_seed"],
                row["hunts"],
                row["caught"],
                f"{row['share_95'][0]:.3f} to {row['share_95'][1]:.3f}",
            )
            for row in score["campaigns"]
        ]
        lines.append(table(("first seed", "hunts", "caught", "95%"), rows, left=()))
    if score["missed"]:
        lines.append("missed: " + ", ".join(score["missed"]))
    if score["not_hunted"]:
        lines.append("not hunted, the time was over: " + ", ".join(score["not_hunted"]))
    return "\n".join(lines)


def _choose(known: tuple[Mutant, ...], only: str) -> list[Mutant]:
    if not only:
        return list(known)
    ids = {mutant.id: mutant for mutant in known}
    chosen = []
    for wanted in only.split(","):
        if wanted not in ids:
            raise UsageError("--only", wanted, "give ids that the registry has")
        chosen.append(ids[wanted])
    return chosen


class Hunters:
    """Worker processes, one for each hunt that runs at a time; use as a context."""

    def __init__(
        self, registry: Path, budget_s: float, seed: int, end: float = float("inf")
    ) -> None:
        """`end`: of `time.monotonic`; no hunt begins after it."""
        self._end = end
        self._registry = registry
        self._budget_s = budget_s
        self._seed = seed
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            _end(self._idle.get())

    def hunt(self, mutant: Mutant, first_seed: int | None = None) -> dict[str, Any]:
        """One mutant's row of the report; never raises for what the mutant does."""
        first = self._seed if first_seed is None else first_seed
        row: dict[str, Any] = {
            "id": mutant.id,
            "title": mutant.title,
            "rule": mutant.rule,
            "intended": mutant.intended,
            "caught": False,
            "by": "",
            "crashed": 0,
            "schedules": 0,
            "seconds": 0.0,
            "first_seed": first,
        }
        if time.monotonic() > self._end:
            return {**row, "not_hunted": True}
        return {**row, **self._ask(mutant, first)}

    def _ask(self, mutant: Mutant, first_seed: int) -> dict[str, Any]:
        worker = self._worker(mutant)
        asked = {"id": mutant.id, "budget_s": self._budget_s, "first_seed": first_seed}
        assert worker.stdin is not None, worker
        assert worker.stdout is not None, worker
        try:
            worker.stdin.write(json.dumps(asked) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except OSError as error:
            line = ""
            return {"crashed": 1, "crash": f"the worker is gone ({error})"}
        finally:
            if line and not mutant.touches_kernels:
                self._idle.put(worker)
            else:
                _end(worker)
        if not line:
            return {"crashed": 1, "crash": f"the worker died ({worker.returncode})"}
        found: dict[str, Any] = json.loads(line)
        return found

    def _worker(self, mutant: Mutant) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if mutant.touches_kernels:
            environment["NUMBA_CACHE_DIR"] = str(cache_folder(mutant))
        elif not self._idle.empty():
            return self._idle.get()
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "onearena.stress.mutant_worker", str(self._registry)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )


def _end(worker: subprocess.Popen[str]) -> None:
    """Close the worker's pipes, at which it ends, and wait for it."""
    with worker:
        pass


def _line(row: dict[str, Any], progress: str) -> str:
    if row["caught"]:
        mark = "caught" if "intended_after" in row else "caught*"
        what = f"by {row['by']}, {row['schedules']} schedules, {row['seconds']:.1f} s"
    elif _left(row):
        mark, what = "left", "not hunted, the time was over"
    else:
        mark = "MISSED"
        what = f"{row['schedules']} schedules, {row['crashed']} crashes {row.get('crash', '')}"
    return f"{progress:>8}  {row['id']:<14} {mark:<8} {what}"[:100]
