#!/usr/bin/env python3
"""Evidence: the order oracle equals its slow reference on many random traces.

Compares blocks of seeds and appends each finished block to a state file, so a run that was stopped
goes on where it was; blocks of other sources are not counted. At the end it measures the oracle's
speed and writes the evidence file. Exit codes: 0 equal, 1 a difference, 2 usage, 130 interrupted.
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
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "model"))

# After the path is set: the reference and the generator lie beside the tests.
from evidence_common import git, machine  # noqa: E402
from order_compare import compare  # noqa: E402
from order_reference import Finding  # noqa: E402
from order_traces import random_trace, steady_trace  # noqa: E402

from onearena.core.device.interface import Space  # noqa: E402
from onearena.stress.interrupts import leave_to_parent  # noqa: E402
from onearena.stress.oracles.order import OrderOracle  # noqa: E402

BLOCK_SEEDS = 250
# A change to one of these makes earlier blocks worthless; other files only give them names.
SOURCES = (
    "stress/oracles/base.py",
    "stress/oracles/clocks.py",
    "stress/oracles/intervals.py",
    "stress/oracles/order.py",
    "stress/oracles/races.py",
    "tests/model/order_compare.py",
    "tests/model/order_reference.py",
    "tests/model/order_traces.py",
)
CLAIM = (
    "on random traces of at least 100 accesses the order oracle gives the same verdict, the same "
    "first pair (bytes, rule, table cell and missing edge included) and the same list of all "
    "reports as a transitive closure over the explicit graph"
)
SPEED_CASES = ((50, 4_096), (50, 512), (8, 512))


def main() -> int:
    """Run, or go on with, the comparison."""
    options = _options()
    digest = _digest()
    done = _finished_blocks(options.state, digest)
    first, last = options.first_seed, options.first_seed + options.traces
    blocks = [(seed, min(seed + BLOCK_SEEDS, last)) for seed in range(first, last, BLOCK_SEEDS)]
    todo = [block for block in blocks if block not in done]
    if len(todo) < len(blocks):
        print(f"{len(blocks) - len(todo)} of {len(blocks)} blocks are done already")
    options.state.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            multiprocessing.get_context("spawn").Pool(options.jobs, leave_to_parent) as pool,
            options.state.open("a") as state,
        ):
            for block in pool.imap_unordered(_compare_block, todo):
                done[(block["first_seed"], block["end_seed"])] = block
                state.write(json.dumps({"digest": digest, **block}) + "\n")
                state.flush()
                traces = sum(one["traces"] for one in done.values())
                print(f"{traces:,} traces, {_count(done, 'differences')} differ", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {shlex.join(sys.argv)}")
        return 130
    counted = [done[block] for block in blocks]
    evidence = _evidence(counted, options=options, digest=digest)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=2) + "\n")
    result = evidence["result"]
    print(f"{result['traces']:,} traces, {result['racy_share']:.1%} racy,", end=" ")
    print(f"{result['differences']} differ; written to {options.out}")
    return 1 if result["differences"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/order-oracle.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/order-oracle.jsonl")
    options = parser.parse_args()
    for name in ("traces", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    return options


def _compare_block(block: tuple[int, int]) -> dict[str, Any]:
    """Raw figures of the seeds [first, end)."""
    start = time.process_time()
    counts: collections.Counter[str] = collections.Counter()
    by_kind: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    fewest = sys.maxsize
    for seed in range(*block):
        trace = random_trace(seed)
        result = compare(trace.records, sweep_always=seed % 2 == 1)
        found = result.findings
        counts["traces"] += 1
        counts["accesses"] += trace.accesses
        counts["records"] += len(trace.records)
        counts["reports"] += len(found)
        counts["racy"] += bool(found)
        counts["left_nothing_out"] += trace.leak == 0.0
        counts["racy_though_nothing_left_out"] += trace.leak == 0.0 and bool(found)
        fewest = min(fewest, trace.accesses)
        by_kind.update(_kind(item) for item in found)
        wrong += [f"seed {seed}: {difference}" for difference in result.differences]
    return {
        "first_seed": block[0],
        "end_seed": block[1],
        **counts,
        "fewest_accesses": fewest,
        "by_kind": dict(sorted(by_kind.items())),
        "differences": len(wrong),
        "first_differences": wrong[:3],
        "cpu_seconds": round(time.process_time() - start, 3),
    }


def _kind(item: object) -> str:
    if not isinstance(item, Finding):
        return "rule 8: event never recorded"
    return f"rule {item.rule}: {item.edge[0]} in {Space(item.space).name.lower()}"


def _evidence(
    blocks: list[dict[str, Any]], *, options: argparse.Namespace, digest: str
) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(block[name] for block in blocks)

    arguments = f"--traces {options.traces} --first-seed {options.first_seed}"
    by_kind: collections.Counter[str] = collections.Counter()
    for block in blocks:
        by_kind.update(block["by_kind"])
    return {
        "name": "order-oracle",
        "claim": CLAIM,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "sources_changed_since_commit": bool(git("status", "--porcelain", "--", *SOURCES)),
        "sources_digest": digest,
        "command": shlex.join(["make", "evidence-order", f"ARGS={arguments}"]),
        "seeds": [options.first_seed, options.first_seed + options.traces],
        "machine": machine(),
        "result": {
            "traces": total("traces"),
            "racy": total("racy"),
            "racy_share": round(total("racy") / total("traces"), 4),
            "left_nothing_out": total("left_nothing_out"),
            "racy_though_nothing_left_out": total("racy_though_nothing_left_out"),
            "accesses": total("accesses"),
            "fewest_accesses": min(block["fewest_accesses"] for block in blocks),
            "records": total("records"),
            "reports": total("reports"),
            "reports_by_kind": dict(sorted(by_kind.items())),
            "differences": total("differences"),
            "first_differences": [line for block in blocks for line in block["first_differences"]],
            "cpu_seconds": round(sum(block["cpu_seconds"] for block in blocks), 1),
        },
        "speed": [_speed(reads, units) for reads, units in SPEED_CASES],
        "raw": blocks,
    }


def _speed(reads: int, units: int) -> dict[str, Any]:
    """Accesses a second of CPU time on a long clean run: five goes and their median."""
    trace = steady_trace(ops=2_000, reads=reads, units=units)
    rates = []
    for _ in range(5):
        oracle = OrderOracle()
        start = time.process_time()
        for record in trace:
            violations = oracle.feed(record)
            assert not violations, violations
        rates.append(round(oracle.accesses / (time.process_time() - start)))
    return {
        "reads_a_forward": reads,
        "units": units,
        "accesses": oracle.accesses,
        "records": len(trace),
        "accesses_per_second": rates,
        "median": sorted(rates)[2],
    }


def _finished_blocks(state: Path, digest: str) -> dict[tuple[int, int], dict[str, Any]]:
    done = {}
    lines = state.read_text().splitlines() if state.is_file() else []
    for line in lines:
        try:
            block = json.loads(line)
        except json.JSONDecodeError:
            continue  # the run was killed in the middle of this line: the block is done again
        if block.pop("digest") == digest:
            done[(block["first_seed"], block["end_seed"])] = block
    return done


def _count(done: dict[tuple[int, int], dict[str, Any]], name: str) -> int:
    return sum(block[name] for block in done.values())


def _digest() -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        digest.update((ROOT / source).read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
