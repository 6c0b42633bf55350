#!/usr/bin/env python3
"""Evidence: every host program of up to five calls, and the named ones of eight, at small scope.

What `onearena stress --strategy exhaustive --calls 5` runs, part by part; finished parts go to a
state file, so a run that was stopped goes on. Parts that other sources made do not count. Exit
codes: 0 complete and no rule broken, 1 a rule broken, 2 usage, 6 parts are missing (what is done is
written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import hashlib
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from evidence_common import git, machine

from onearena.stress.interrupts import leave_to_parent

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("core", "stress/oracles", "stress/exhaustive*.py", "stress/forwards.py")
SUMS = ("runs", "programs", "calls", "cells")
NUMBERS = ("refused", "ends", "steps", "failed")
Row = dict[str, Any]


def main() -> int:
    """Run, or go on with, the parts that are missing; write what there is."""
    options = _options()
    digest = _digest()
    parts = _items(options.calls)
    options.state.parent.mkdir(parents=True, exist_ok=True)
    done = _rows(options.state, digest, options.calls)
    todo = [number for number in range(len(parts)) if number not in done]
    # Short programs first: a run that is stopped has looked at all programs of up to some length.
    todo.sort(key=lambda number: (not parts[number].name, parts[number].length))
    code = 0
    context = multiprocessing.get_context("spawn")
    tasks = [(number, options.calls) for number in todo]
    try:
        with context.Pool(options.jobs, leave_to_parent) as pool:
            for row in pool.imap_unordered(_part, tasks):
                with options.state.open("a") as file:
                    file.write(json.dumps({"digest": digest, **row}) + "\n")
                done[row["part"]] = row
                runs = sum(sum(each["runs"].values()) for each in done.values())
                print(f"{len(done)}/{len(parts)} parts, {runs:,} runs", flush=True)
                if time.monotonic() > options.end:
                    pool.terminate()
                    break
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {shlex.join(sys.argv)}")
        code = 130
    evidence = _evidence(options, digest, parts, done)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=2) + "\n")
    print(json.dumps(evidence["result"], indent=1))
    print(f"written to {options.out}")
    if evidence["result"]["failed"]:
        return 1
    return code or (0 if evidence["result"]["complete"] else 6)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5, help="calls of a program at most")
    parser.add_argument("--budget", type=float, default=0.0, help="stop after so many seconds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/exhaustive.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/exhaustive.jsonl")
    options = parser.parse_args()
    if not 1 <= options.calls <= 5 or options.jobs < 1:
        parser.error(f"--calls {options.calls} is 1 to 5, --jobs {options.jobs} at least 1")
    options.end = time.monotonic() + options.budget if options.budget else float("inf")
    return options


@functools.cache
def _items(calls: int) -> Any:
    from onearena.stress.exhaustive import items

    return items("arena", calls)


def _part(task: tuple[int, int]) -> Row:
    number, calls = task
    item = _items(calls)[number]
    started = time.process_time()
    count = item.search("arena")
    return {
        "part": number,
        "calls_max": calls,
        "scope": item.scope,
        "length": item.length,
        "name": item.name,
        **{name: {str(k): v for k, v in getattr(count, name).items()} for name in SUMS},
        **{name: getattr(count, name) for name in NUMBERS},
        "failures": [program.to_json() for program in count.failures],
        "commit": git("rev-parse", "HEAD"),
        "cpu_seconds": round(time.process_time() - started, 3),
    }


def _rows(state: Path, digest: str, calls: int) -> dict[int, Row]:
    """Finished parts, made by today's sources."""
    found: dict[int, Row] = {}
    for line in state.read_text().splitlines() if state.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if row["digest"] == digest and row["calls_max"] == calls:
            found[row["part"]] = row
    return found


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for pattern in SOURCES:
        paths = (ROOT / pattern).rglob("*.py") if "*" not in pattern else ROOT.glob(pattern)
        for path in sorted(paths):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def complete_to(parts: Any, done: dict[int, Row], scope: str = "") -> int:
    """All programs of up to so many calls were run (in one of the arenas, or in all), and none
    broke a rule.
    """
    mine = [
        (number, part.length)
        for number, part in enumerate(parts)
        if not part.name and scope in ("", part.scope)
    ]
    bad = [length for number, length in mine if number not in done or done[number]["failed"]]
    return min(bad, default=max(length for _, length in mine) + 1) - 1


def complete_by_scope(parts: Any, done: dict[int, Row]) -> dict[str, int]:
    """`complete_to` of each arena."""
    scopes = dict.fromkeys(part.scope for part in parts if not part.name)
    return {scope: complete_to(parts, done, scope) for scope in scopes}


def claim_of(parts: Any, done: dict[int, Row]) -> str:
    """What the finished parts show, and no more."""
    calls = complete_to(parts, done)
    claim = (
        f"every host program of up to {calls} calls on 4 units and 2 streams, modulo unit "
        "symmetry, with every order in which its ends are seen, breaks no rule"
    )
    further = {s: more for s, more in complete_by_scope(parts, done).items() if more > calls}
    claim += "".join(
        f"; of up to {more} calls in the arena of scope {scope}" for scope, more in further.items()
    )
    named = [number for number, part in enumerate(parts) if part.name]
    if all(number in done and not done[number]["failed"] for number in named):
        claim += f"; nor do {len(named)} named programs of 8 calls"
    return claim


def _evidence(options: argparse.Namespace, digest: str, parts: Any, done: dict[int, Row]) -> Row:
    short = [row for row in done.values() if not row["name"]]
    named = {row["name"]: row for row in done.values() if row["name"]}
    sums = {name: Counter[str]() for name in SUMS}
    for row in done.values():
        for name in SUMS if not row["name"] else ("calls", "cells"):
            sums[name].update(row[name])
    by_scope = {
        f"{row['scope']} {row['length']}": sum(
            sum(other["runs"].values())
            for other in short
            if (other["scope"], other["length"]) == (row["scope"], row["length"])
        )
        for row in short
    }
    failed = sum(row["failed"] for row in done.values())
    return {
        "evidence": "exhaustive",
        "version": 1,
        "claim": claim_of(parts, done),
        "command": "make evidence-exhaustive",
        "commits": sorted({row["commit"] for row in done.values()}),
        "sources_digest": digest,
        "sources": list(SOURCES),
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "result": {
            "complete": len(done) == len(parts) and not failed,
            "calls_max": options.calls,
            "complete_to_calls": complete_to(parts, done),
            "complete_to_calls_by_scope": complete_by_scope(parts, done),
            "units": 4,
            "streams": 2,
            "parts": len(parts),
            "parts_done": len(done),
            "programs": dict(sorted(sums["programs"].items())),
            "runs": dict(sorted(sums["runs"].items())),
            "runs_by_scope_and_length": dict(sorted(by_scope.items())),
            "named_runs": {name: sum(row["runs"].values()) for name, row in named.items()},
            "calls": dict(sums["calls"]),
            "ends_seen": sum(row["ends"] for row in done.values()),
            "calls_refused": sum(row["refused"] for row in done.values()),
            "device_steps": sum(row["steps"] for row in done.values()),
            "table_cells": dict(sorted(sums["cells"].items())),
            "failed": failed,
            "failures": [one for row in done.values() for one in row["failures"]][:8],
            "cpu_seconds": round(sum(row["cpu_seconds"] for row in done.values()), 1),
        },
    }


if __name__ == "__main__":
    sys.exit(main())
