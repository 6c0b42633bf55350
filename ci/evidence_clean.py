#!/usr/bin/env python3
"""Evidence: clean schedules of the default profile raise no alarm, and what they reached.

Blocks of seeds run one after the other on all cores; each finished block is appended to a state
file, so a stopped run goes on where it was. Blocks of other sources are not counted. Before the
campaign, the first seeds run in two processes with different hash seeds and have to give equal
traces. Exit codes: 0 clean and reached, 1 an alarm or a difference, 2 usage, 5 reach below the
plan, 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from evidence_common import ROOT, git, machine

from onearena.stress.campaign import Campaign, Plan, warm_up
from onearena.stress.reach import count_of, planned

BLOCK_SEEDS = 500
FULL_SCHEDULES = 100_000
LEAST_REACH = 100
CLAIM = (
    "seeded schedules of the default profile on the portfolio of models break no rule that the "
    "oracles know, and every planned situation and table cell was reached"
)
DIGESTS = (
    "import sys\n"
    "from onearena.stress.run import RunSpec, run_schedule\n"
    "for seed in range(int(sys.argv[1])):\n"
    "    print(seed, run_schedule(RunSpec(seed)).digest)\n"
)


def main() -> int:
    """Run, or go on with, the campaign."""
    options = _options()
    digest = _digest()
    done = _finished_blocks(options.state, digest)
    wanted = range(-(-options.schedules // BLOCK_SEEDS))
    print(f"{sum(block in done for block in wanted)} of {len(wanted)} blocks are done already")
    options.state.parent.mkdir(parents=True, exist_ok=True)
    warm_up(Plan())
    same = _same_traces(options.traces)
    with options.state.open("a") as state:
        for index in wanted:
            if index in done:
                continue
            block = _run_block(index, options.jobs)
            if block is None:
                print(f"interrupted; go on with: {shlex.join(sys.argv)}")
                return 130
            done[index] = block
            state.write(json.dumps({"digest": digest, **block}) + "\n")
            state.flush()
            print(
                f"block {index + 1} of {len(wanted)}: {block['seconds']:.0f} s, "
                f"alarms {len(block['failures'])}",
                flush=True,
            )
            if block["failures"] and not options.keep_going:
                print(json.dumps(block["failures"], indent=1))
                print(f"stopped at an alarm; to go on: {shlex.join(sys.argv)} --keep-going")
                return 1
    evidence = _evidence([done[index] for index in wanted], options, digest, same=same)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n")
    print(json.dumps(evidence["result"], indent=1))
    print(f"written to {options.out}")
    if evidence["failures"] or not same:
        return 1
    return 5 if evidence["not_reached"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=FULL_SCHEDULES)
    parser.add_argument("--traces", type=int, default=1000, help="seeds run in two processes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/clean.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/clean.jsonl")
    parser.add_argument("--keep-going", action="store_true", help="go on after an alarm")
    options = parser.parse_args()
    if options.schedules < 1 or options.jobs < 1 or options.traces < 0:
        parser.error("--schedules and --jobs must be at least 1, --traces at least 0")
    return options


def _run_block(index: int, jobs: int) -> dict[str, Any] | None:
    first = index * BLOCK_SEEDS
    plan = Plan(first, first + BLOCK_SEEDS, jobs=jobs, keep_going=True)
    summary = Campaign(plan, planned=planned("arena")).run()
    if summary.interrupted:
        return None
    document = summary.to_json()
    document["index"] = index
    document["steps_counts"] = sorted(summary.steps.counts.items())
    document["crowded_steps"] = summary.crowded_steps
    document["busy_steps"] = summary.busy_steps
    return document


def _same_traces(count: int) -> bool:
    if not count:
        return True
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS, str(count)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "31337")
    ]
    found = [process.communicate()[0] for process in processes]
    complete = all(len(text.splitlines()) == count for text in found)
    print(f"{count} traces in two processes: {'equal' if found[0] == found[1] else 'DIFFERENT'}")
    return complete and found[0] == found[1]


def _finished_blocks(state: Path, digest: str) -> dict[int, dict[str, Any]]:
    """Blocks of the same sources in the state file; a line cut short by a kill is left out."""
    found: dict[int, dict[str, Any]] = {}
    if not state.is_file():
        return found
    for line in state.read_text().splitlines():
        try:
            block = json.loads(line)
        except ValueError:
            continue
        if block.pop("digest", None) == digest:
            found[block["index"]] = block
    return found


def _median(counts: Counter[int]) -> int:
    total, seen = sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if 2 * seen >= total:
            return value
    return 0


def _evidence(
    blocks: list[dict[str, Any]], options: argparse.Namespace, digest: str, *, same: bool
) -> dict[str, Any]:
    reach: Counter[str] = Counter()
    models: Counter[str] = Counter()
    steps: Counter[int] = Counter()
    for block in blocks:
        reach.update(block["reach"])
        models.update(block["models"])
        steps.update(dict(block["steps_counts"]))
    total = sum(value * count for value, count in steps.items())
    schedules = sum(block["schedules"] for block in blocks)
    least = LEAST_REACH if schedules >= FULL_SCHEDULES else 1
    crowded = sum(block["crowded_steps"] for block in blocks) / max(total, 1)
    busy = sum(block["busy_steps"] for block in blocks) / max(total, 1)
    seconds = sum(block["seconds"] for block in blocks)
    result = {
        "schedules": schedules,
        "alarms": sum(len(block["failures"]) for block in blocks),
        "steps_median": _median(steps),
        "steps_total": total,
        "share_above_90_percent": round(crowded, 4),
        "share_three_forwards": round(busy, 4),
        "schedules_per_second": round(schedules / max(seconds, 1e-9), 2),
        "equal_traces_in_two_processes": options.traces if same else 0,
        "models": dict(sorted(models.items())),
    }
    not_reached = [
        f"{name}: {count_of(reach, name)} of {least}"
        for name in planned("arena")
        if count_of(reach, name) < least
    ]
    not_reached += [
        f"{name}: {value} of {floor}"
        for name, value, floor in (
            ("steps_median", result["steps_median"], 200),
            ("share_above_90_percent", crowded, 0.2),
            ("share_three_forwards", busy, 0.2),
        )
        if value < floor
    ]
    return {
        "name": "clean",
        "claim": CLAIM,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "sources_changed_since_commit": bool(git("status", "--porcelain", "core", "stress")),
        "sources_digest": digest,
        "command": shlex.join(["make", "evidence-clean", f"ARGS=--schedules {options.schedules}"]),
        "seeds": f"0:{schedules}",
        "machine": machine(),
        "seconds": round(seconds, 1),
        "jobs": options.jobs,
        "result": result,
        "failures": [failure for block in blocks for failure in block["failures"]],
        "not_reached": not_reached,
        "reach": dict(sorted(reach.items())),
    }


def _digest() -> str:
    """Hash of all sources that a schedule runs."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "stress").rglob("*.py")]):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
