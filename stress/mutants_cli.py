"""`onearena mutants`: plant each registered fault in product code; does an oracle report it?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.mutant_cache import cache_folder
from onearena.stress.mutants import REGISTRY_DEFAULT, Mutant, load_registry
from onearena.stress.stress_cli import parse_budget
from onearena.stress.terminal import examples

REPORT_VERSION: Final = 1
GRACE_S: Final = 300.0  # imports and compiling patched kernels come before the first schedule
BUSY: Final = 6.0  # budgets are processor time; on a busy machine they take longer


@click.command(
    epilog=examples(
        "onearena mutants --budget 60s",
        "onearena mutants --only M09,M27 --json",
    )
)
@click.option("--only", default="", help="Ids of the mutants to plant, separated by commas.")
@click.option("--budget", default="60s", show_default=True, help="Time for each mutant.")
@click.option("--jobs", default=0, help="Mutants hunted at once; 0: one a core.")
@click.option("--seed", default=0, help="First seed of each hunt.")
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    default=REGISTRY_DEFAULT,
    show_default=True,
    help="Registry of mutants (TOML).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mutants(only: str, budget: str, jobs: int, seed: int, registry: Path, *, as_json: bool) -> int:
    """Plant faults one at a time and count the ones an oracle reports.

    A mutant counts as caught only by an oracle's report; crashes are counted apart.
    Exit 0 when all were caught, 1 when one was missed.
    """
    chosen = _choose(load_registry(registry), only)
    budget_s = parse_budget(budget)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        hunts = [pool.submit(hunt, mutant, registry, budget_s, seed) for mutant in chosen]
        for done, future in enumerate(hunts, start=1):
            rows.append(future.result())
            if not as_json:
                click.echo(_line(rows[-1], f"{done}/{len(hunts)}"))
    caught = sum(row["caught"] for row in rows)
    intended = sum(row["caught"] and row["intended"] in row.get("oracles", ()) for row in rows)
    if as_json:
        report = {
            "version": REPORT_VERSION,
            "budget_s": budget_s,
            "first_seed": seed,
            "mutants": rows,
        }
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(
            f"caught {caught} of {len(rows)}, {intended} of them also by the intended oracle"
        )
    return 0 if caught == len(rows) else 1


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


def hunt(mutant: Mutant, registry: Path, budget_s: float, seed: int) -> dict[str, Any]:
    """One mutant's row of the report. Runs a process of its own; never raises for what it does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if mutant.touches_kernels:
        environment["NUMBA_CACHE_DIR"] = str(cache_folder(mutant))
    command = [
        sys.executable,
        "-m",
        "onearena.stress.mutant_worker",
        str(registry),
        mutant.id,
        str(budget_s),
        str(seed),
    ]
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
    }
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            timeout=BUSY * budget_s + GRACE_S,
            env=environment,
            check=False,
        )
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {**row, "crashed": 1, "crash": "the worker ran out of time"}
    except (IndexError, json.JSONDecodeError):
        lines = done.stderr.strip().splitlines()
        return {**row, "crashed": 1, "crash": lines[-1] if lines else "the worker died"}
    return {**row, **found}


def _line(row: dict[str, Any], progress: str) -> str:
    if row["caught"]:
        mark = "caught" if row["intended"] == row["by"] else "caught*"
        what = f"by {row['by']}, {row['schedules']} schedules, {row['seconds']:.1f} s"
    else:
        mark = "MISSED"
        what = f"{row['schedules']} schedules, {row['crashed']} crashes {row.get('crash', '')}"
    return f"{progress:>8}  {row['id']:<14} {mark:<8} {what}"[:100]
