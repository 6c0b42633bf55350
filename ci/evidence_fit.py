#!/usr/bin/env python3
"""Evidence: feasibility and relayout plans are exact.

Three parts: small arenas against a search over all single-unit moves, wider ones that need a move
likewise, and arenas of up to 100,000 units against a plain sweep of the interval formulation. Each
finished block is appended to a state file, so a stopped run goes on where it was; blocks of other
sources are not counted. Exit codes: 0 equal, 1 a difference, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime as dt
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
sys.path.insert(0, str(ROOT / "tests" / "model"))

# After the path is set: the oracles lie beside the tests.
from fit_evidence import DifferenceError, check_big, check_block, check_wide  # noqa: E402

# Changes to these make earlier blocks worthless. Of the kernels only the planning part counts.
SOURCES = (
    "core/answers.py",
    "core/fit_words.py",
    "core/relayout.py",
    "core/relayout_words.py",
    "core/view.py",
    "tests/model/big_case.py",
    "tests/model/brute_force.py",
    "tests/model/cases.py",
    "tests/model/fit_evidence.py",
    "tests/model/plan_check.py",
    "tests/model/relayout_sweep.py",
    "tests/model/words_case.py",
)
KERNELS, KERNELS_FROM = "core/kernels.py", "\n# --- fit: one sweep"
KERNELS_TO = ("\n# --- relayout: the cheapest", "\n# --")
CLAIM = (
    "on random arenas of 2 to 5 bands the answer (fits with its rung, blocked, infeasible) equals "
    "a search over all single-unit moves both ways, every plan keeps its promises and copies "
    "exactly the bytes of the shortest path; on arenas of 1,000 to 100,000 units bytes and rung "
    "of every plan equal a plain sweep of the interval formulation"
)
PARTS = {"small": (check_block, 5_000), "wide": (check_wide, 250), "big": (check_big, 50)}
LEAST = {
    ("small", "feasible only by a move"): 40_000,
    ("small", "with a pin in a moved band"): 10_000,
    ("small", "two or more live floats and a move"): 5_000,
    ("small", "refused by less than one unit"): 10_000,
    ("wide", "feasible only by a move"): 5_000,
}
"""What a full run (the default counts) has to reach."""

Block = tuple[str, int]


def main() -> int:
    """Run, or go on with, the comparison."""
    options = _options()
    digest = _digest()
    todo, done = [], _finished_blocks(options.state, digest)
    wanted: list[Block] = []
    for part, (_, size) in PARTS.items():
        wanted += [(part, index) for index in range(-(-getattr(options, part) // size))]
    todo = [block for block in wanted if block not in done]
    print(f"{len(wanted) - len(todo)} of {len(wanted)} blocks are done already")
    options.state.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        with (
            multiprocessing.get_context("spawn").Pool(options.jobs, leave_to_parent) as pool,
            options.state.open("a") as state,
        ):
            for finished, block in enumerate(pool.imap_unordered(_run_block, todo), start=1):
                done[block["part"], block["index"]] = block
                state.write(json.dumps({"digest": digest, **block}) + "\n")
                state.flush()
                spent = time.monotonic() - start
                left = spent / finished * (len(todo) - finished)
                print(f"{finished} of {len(todo)} blocks, {left / 60:.0f} min left", flush=True)
                if block["difference"]:
                    print(f"DIFFERENCE in {block['seed']}: {block['difference']}")
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {shlex.join(sys.argv)}")
        return 130
    evidence = _evidence([done[block] for block in wanted], options=options, digest=digest)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n")
    print(json.dumps(evidence["result"], indent=1))
    print(f"written to {options.out}")
    return 1 if evidence["differences"] or evidence["not_reached"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=1_000_000, help="arenas of S to 18")
    parser.add_argument("--wide", type=int, default=5_000, help="arenas of S to 28 with a move")
    parser.add_argument("--big", type=int, default=2_000, help="arenas of up to 100,000 units")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/fit.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/fit.jsonl")
    options = parser.parse_args()
    for name in ("small", "wide", "big", "jobs"):
        if getattr(options, name) < (name == "jobs"):
            parser.error(f"--{name} must be at least {int(name == 'jobs')}")
    return options


def _run_block(block: Block) -> dict[str, Any]:
    part, index = block
    check, size = PARTS[part]
    seed = f"evidence-fit {part} {index}"
    start = time.process_time()
    reached: Counter[str] = Counter()
    difference = ""
    try:
        reached = check(seed, size)
    except DifferenceError as found:
        difference = str(found)
    return {
        "part": part,
        "index": index,
        "seed": seed,
        "difference": difference,
        "reached": dict(sorted(reached.items())),
        "cpu_seconds": round(time.process_time() - start, 2),
    }


def _finished_blocks(state: Path, digest: str) -> dict[Block, dict[str, Any]]:
    """Blocks of the same sources in the state file; a line cut short by a kill is left out."""
    found: dict[Block, dict[str, Any]] = {}
    if not state.is_file():
        return found
    for line in state.read_text().splitlines():
        try:
            block = json.loads(line)
        except ValueError:
            continue
        if block.pop("digest", None) == digest:
            found[block["part"], block["index"]] = block
    return found


def _evidence(
    blocks: list[dict[str, Any]], *, options: argparse.Namespace, digest: str
) -> dict[str, Any]:
    result: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for block in blocks:
        result[block["part"]].update(block["reached"])
    arguments = f"--small {options.small} --wide {options.wide} --big {options.big}"
    full = (options.small, options.wide, options.big) >= (1_000_000, 5_000, 2_000)
    return {
        "name": "fit",
        "claim": CLAIM,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "sources_changed_since_commit": bool(git("status", "--porcelain", "--", *SOURCES)),
        "sources_digest": digest,
        "command": shlex.join(["make", "evidence-fit", f"ARGS={arguments}"]),
        "seeds": "evidence-fit PART INDEX, as in raw",
        "machine": machine(),
        "cpu_seconds": round(sum(block["cpu_seconds"] for block in blocks), 1),
        "result": {part: dict(sorted(counts.items())) for part, counts in result.items()},
        "differences": [block["difference"] for block in blocks if block["difference"]],
        "not_reached": [
            f"{part}: {name}: {result[part][name]} of {least}"
            for (part, name), least in LEAST.items()
            if full and result[part][name] < least
        ],
        "raw": blocks,
    }


def _digest() -> str:
    """Hash of the sources that the comparison depends on."""
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    text = (ROOT / KERNELS).read_text()
    start = text.index(KERNELS_FROM)
    last = text.index(KERNELS_TO[0], start)
    end = text.find(KERNELS_TO[1], last + 1)
    digest.update(text[start : end if end >= 0 else len(text)].encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
