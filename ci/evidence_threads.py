#!/usr/bin/env python3
"""Evidence: schedules on real threads and real bytes, beside the model.

Three parts. `agree`: the first seeds take the same decisions and reach the same allocator state,
step by step, on the modeled device and on threads. `clean`: schedules on threads without an alarm,
with the share in which accesses of two threads overlapped in time; an alarm that the modeled device
raises alone, too, is counted apart. `mutants`: every order mutant, judged by the access log and by
the bytes alone. Finished blocks go to a state file, so a run that was stopped goes on; blocks made
by other sources are not counted. Exit codes: 0 as claimed, 1 not, 2 usage, 130 interrupted (what is
done is written).
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import hashlib
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from evidence_common import git, machine

from onearena.stress.interrupts import leave_to_parent

ROOT = Path(__file__).resolve().parent.parent
BLOCK_SEEDS = 20
ALARMS_KEPT = 5
# A change to one of these makes earlier blocks worthless; the commit of each block is kept, too.
SOURCES = (
    "core/device/threads.py",
    "core/device/threads_log.py",
    "core/device/threads_memory.py",
    "core/device/threads_paired.py",
    "core/device/threads_programs.py",
    "core/device/threads_worker.py",
    "stress/cut_layers.py",
    "stress/real_forwards.py",
)
Row = dict[str, Any]


def main() -> int:
    """Run, or go on with, the parts asked for; write what there is."""
    options = _options()
    digest = _digest()
    options.state.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        for part in options.parts.split(","):
            PARTS[part](options, digest)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {shlex.join(sys.argv)}")
        code = 130
    evidence = _evidence(options, digest)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=2) + "\n")
    result = evidence["result"]
    print(json.dumps(result, indent=1))
    print(f"written to {options.out}")
    alarms = result["alarms_of_threads"] or result["disagreeing_seeds"]
    return code or int(bool(alarms))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=10_000, help="clean schedules")
    parser.add_argument("--agree", type=int, default=200, help="seeds run on both devices")
    parser.add_argument("--mutant-budget", type=float, default=60.0, help="seconds for a mutant")
    parser.add_argument("--budget", type=float, default=0.0, help="stop after so many seconds")
    parser.add_argument("--parts", default="agree,clean,mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/threads.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/threads.jsonl")
    options = parser.parse_args()
    for name in ("schedules", "agree", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    for part in options.parts.split(","):
        if part not in PARTS:
            parser.error(f"--parts: {part} is none of {', '.join(PARTS)}")
    options.end = time.monotonic() + options.budget if options.budget else float("inf")
    return options


def _agree(options: argparse.Namespace, digest: str) -> None:
    _blocks("agree", options.agree, _agree_block, options, digest)


def _clean(options: argparse.Namespace, digest: str) -> None:
    _blocks("clean", options.schedules, _clean_block, options, digest)


def _blocks(part: str, count: int, run: Any, options: argparse.Namespace, digest: str) -> None:
    """Blocks of seeds below `count` that are not done yet."""
    done = {row["first_seed"] for row in _rows(options.state, digest, part)}
    todo = [
        (first, min(first + BLOCK_SEEDS, count))
        for first in range(0, count, BLOCK_SEEDS)
        if first not in done
    ]
    if not todo:
        return
    with _pool(options) as pool:
        total = sum(row["schedules"] for row in _rows(options.state, digest, part))
        for row in pool.imap_unordered(run, todo):
            _append(options.state, digest, part, row)
            total += row["schedules"]
            print(f"{part}: {total:,} schedules, alarms {row['alarms']}", flush=True)
            if time.monotonic() > options.end:
                print(f"{part}: the budget is over", flush=True)
                pool.terminate()
                return


def _pool(options: argparse.Namespace) -> Pool:
    return multiprocessing.get_context("spawn").Pool(options.jobs, leave_to_parent)


def _agree_block(block: tuple[int, int]) -> Row:
    """Both devices over the seeds [first, end): do their states agree after every step?"""
    from onearena.stress.run import RunSpec, run_schedule

    started = time.process_time()
    steps, wrong = 0, []
    for seed in range(*block):
        modeled = run_schedule(RunSpec(seed, state_digests=True))
        again = RunSpec(seed, recording=modeled.recording, device="threads", state_digests=True)
        real = run_schedule(again)
        steps += len(modeled.state_digests)
        verdicts = (modeled.verdict, real.verdict)
        equal = modeled.state_digests == real.state_digests and modeled.digest == real.digest
        if not equal or verdicts != ("pass", "pass") or real.divergence is not None:
            wrong.append({"seed": seed, "verdicts": verdicts, "divergence": str(real.divergence)})
    return {
        **_head(block, started),
        "steps": steps,
        "alarms": len(wrong),
        "wrong": wrong[:ALARMS_KEPT],
    }


def _clean_block(block: tuple[int, int]) -> Row:
    """Threads over the seeds [first, end)."""
    from onearena.stress.run import RunSpec, run_schedule

    started = time.process_time()
    counts: collections.Counter[str] = collections.Counter()
    steps, alarms = [], []
    for seed in range(*block):
        result = run_schedule(RunSpec(seed, device="threads"))
        steps.append(result.steps)
        counts["accesses"] += result.real_accesses
        counts["overlaps"] += result.real_overlaps
        counts["overlapping"] += result.real_overlaps > 0
        if result.verdict != "pass":
            texts = [violation.text() for violation in result.violations]
            alarms.append({"seed": seed, "verdict": result.verdict, "what": texts or result.crash})
            # What the model alone shows too is no finding of the threads.
            alone = run_schedule(RunSpec(seed)).violations
            counts["model_alarms"] += bool(alone) and alone[:1] == result.violations[:1]
    return {
        **_head(block, started),
        **counts,
        "steps": steps,
        "alarms": len(alarms),
        "wrong": alarms[:ALARMS_KEPT],
    }


def _head(block: tuple[int, int], started: float) -> Row:
    return {
        "first_seed": block[0],
        "end_seed": block[1],
        "schedules": block[1] - block[0],
        "commit": git("rev-parse", "HEAD"),
        "cpu_seconds": round(time.process_time() - started, 2),
    }


def _mutants(options: argparse.Namespace, digest: str) -> None:
    """Every order mutant that is not hunted yet; each in a fork, one nursery a job."""
    from onearena.stress.mutants import load_registry

    registry = ROOT / "tests/mutants/registry.toml"
    done = {
        (row["id"], row["fingerprint"])
        for row in _rows(options.state, digest, "mutants")
        if row["budget_s"] >= options.mutant_budget or "bytes_s" in row
    }
    todo = [
        (str(registry), mutant.id, options.mutant_budget)
        for mutant in load_registry(registry)
        if mutant.intended == "order" and (mutant.id, mutant.fingerprint()) not in done
    ]
    if not todo:
        return
    # Forking workers: each loads the kernels once, and forks a process for each mutant.
    with _pool(options) as pool:
        for row in pool.imap_unordered(_hunt, todo):
            _append(options.state, digest, "mutants", row)
            times = {name: row.get(name, "-") for name in ("order_s", "bytes_s")}
            print(f"mutant {row['id']}: {times} {row.get('crash', '')}", flush=True)
            if time.monotonic() > options.end:
                print("mutants: the budget is over", flush=True)
                pool.terminate()
                return


_NURSERY: list[Any] = []


def _hunt(task: tuple[str, str, float]) -> Row:
    from onearena.stress.mutant_worker import Nursery
    from onearena.stress.mutants import load_registry

    registry, name, budget_s = task
    mutant = next(m for m in load_registry(Path(registry)) if m.id == name)
    if not _NURSERY:
        _NURSERY.append(Nursery("threads"))
    found = _NURSERY[0].hunt(mutant, budget_s, 0)
    return {"id": name, "fingerprint": mutant.fingerprint(), "budget_s": budget_s, **found}


PARTS = {"agree": _agree, "clean": _clean, "mutants": _mutants}


def _append(state: Path, digest: str, part: str, row: Row) -> None:
    with state.open("a") as file:
        file.write(json.dumps({"digest": digest, "part": part, **row}) + "\n")


def _rows(state: Path, digest: str, part: str) -> Iterator[Row]:
    """Finished rows of a part, made by today's sources; the last one of each counts."""
    if not state.exists():
        return
    found: dict[Any, Row] = {}
    for line in state.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if row["digest"] == digest and row["part"] == part:
            found[row.get("id", row.get("first_seed"))] = row
    yield from found.values()


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _evidence(options: argparse.Namespace, digest: str) -> Row:
    agree = list(_rows(options.state, digest, "agree"))
    clean = list(_rows(options.state, digest, "clean"))
    mutants = list(_rows(options.state, digest, "mutants"))
    schedules = sum(row["schedules"] for row in clean)
    overlapping = sum(row["overlapping"] for row in clean)
    steps = [count for row in clean for count in row["steps"]]
    return {
        "evidence": "threads",
        "version": 1,
        "claim": (
            "schedules of the default profile on real threads and bytes raise no alarm and take "
            "the decisions of the modeled device; order mutants show in the access log, and most "
            "of them in the bytes"
        ),
        "command": "make evidence-threads",
        "commits": sorted({row["commit"] for row in (*agree, *clean)}),
        "sources_digest": digest,
        "sources": list(SOURCES),
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "result": {
            "agreeing_seeds": sum(row["schedules"] - row["alarms"] for row in agree),
            "agreeing_steps": sum(row["steps"] for row in agree),
            "disagreeing_seeds": sum(row["alarms"] for row in agree),
            "schedules": schedules,
            "median_steps": statistics.median(steps) if steps else 0,
            "alarms_of_threads": sum(row["alarms"] - row.get("model_alarms", 0) for row in clean),
            "alarms_on_the_model_too": sum(row.get("model_alarms", 0) for row in clean),
            "first_alarms": [one for row in clean for one in row["wrong"]][:ALARMS_KEPT],
            "accesses": sum(row["accesses"] for row in clean),
            "overlapping_schedules": overlapping,
            "overlapping_share": round(overlapping / schedules, 4) if schedules else 0.0,
            "cpu_seconds": round(sum(row["cpu_seconds"] for row in clean), 1),
            "mutants": len(mutants),
            "mutants_in_access_log": sum("order_s" in row for row in mutants),
            "mutants_in_bytes": sum("bytes_s" in row for row in mutants),
            "mutants_missed": [row["id"] for row in mutants if "order_s" not in row],
            "mutant_budgets_s": sorted({row["budget_s"] for row in mutants}),
        },
        "mutants": {
            row["id"]: {
                name: row[name] for name in ("order_s", "bytes_s", "schedules") if name in row
            }
            for row in mutants
        },
    }


if __name__ == "__main__":
    sys.exit(main())
