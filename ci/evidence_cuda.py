#!/usr/bin/env python3
"""Evidence: choices files on the cuda device over the strict fake of torch.cuda and numba.cuda.

Each seed runs on the modeled device, its recording is stored, read back and replayed on the cuda
device over the fake: same decisions, same allocator states, same digest, no alarm of the bytes, and
no conflict by the order oracle over the calls and accesses that the fake saw. Finished seeds go to
a state file, so a run that was stopped goes on; seeds run by other sources are not counted. What a
GPU does is no part of it: see `ci/gpu_check`. Exit codes: 0 as claimed, 1 not, 130 interrupted.
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
from pathlib import Path
from typing import Any

from evidence_common import git, machine
from gpu_check_choices import replay

ROOT = Path(__file__).resolve().parent.parent
# A change to one of these makes earlier seeds worthless; the commit of each seed is kept, too.
SOURCES = (
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("core/device/*.py")),
    "stress/cuda_forwards.py",
    "stress/real_forwards.py",
    "tests/cuda/fake_cuda.py",
    "tests/cuda/fake_kernels.py",
)
Row = dict[str, Any]


def main() -> int:
    """Run, or go on with, the seeds; write what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="seeds from 0 on")
    parser.add_argument("--budget", type=float, default=0.0, help="stop after so many seconds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/cuda-fake.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/cuda-fake.jsonl")
    options = parser.parse_args()
    if min(options.seeds, options.jobs) < 1:
        parser.error("--seeds and --jobs must be at least 1")
    digest = _digest()
    options.state.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        _run(options, digest)
    except KeyboardInterrupt:
        print(f"interrupted; go on with: {shlex.join(sys.argv)}")
        code = 130
    rows = _rows(options, digest)
    document = _evidence(options, digest, rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document["result"], indent=1))
    print(f"written to {options.out}")
    return code or int(any(not row["agrees"] for row in rows))


def _run(options: argparse.Namespace, digest: str) -> None:
    done = {row["seed"] for row in _rows(options, digest)}
    todo = [(seed, "fake") for seed in range(options.seeds) if seed not in done]
    ends = time.monotonic() + options.budget if options.budget else float("inf")
    if not todo:
        return
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for row in pool.imap_unordered(replay, todo):
            kept = {**row, "sources": digest, "commit": git("rev-parse", "HEAD")}
            with options.state.open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept) + "\n")
            if not row["agrees"]:
                print(f"seed {row['seed']} does not agree: {row['what']}", flush=True)
            if time.monotonic() > ends:
                print("the budget is over", flush=True)
                pool.terminate()
                return


def _rows(options: argparse.Namespace, digest: str) -> list[Row]:
    """Finished seeds of the present sources."""
    if not options.state.is_file():
        return []
    lines = options.state.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    known = {row["seed"]: row for row in rows if row["sources"] == digest}
    return [known[seed] for seed in sorted(known) if seed < options.seeds]


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _evidence(options: argparse.Namespace, digest: str, rows: list[Row]) -> dict[str, Any]:
    wrong = [row for row in rows if not row["agrees"]]
    return {
        "evidence": "cuda-fake",
        "version": 1,
        "claim": "choices files give, on the cuda device over a strict fake of the calls it makes, "
        "the digests and allocator states of the modeled device, without an alarm of the bytes or "
        "of the order; no GPU was used",
        "command": "make evidence-cuda",
        "commits": sorted({row["commit"] for row in rows}),
        "sources_digest": digest,
        "sources": list(SOURCES),
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "result": {
            "seeds_asked": options.seeds,
            "seeds_replayed": len(rows),
            "seeds_agreeing": len(rows) - len(wrong),
            "disagreeing": wrong[:5],
            "steps": sum(row["steps"] for row in rows),
            "accesses": sum(row["accesses"] for row in rows),
            "launches": sum(row["launches"] for row in rows),
            "graph_replays": sum(row["replays"] for row in rows),
        },
        "raw": [
            {key: row[key] for key in ("seed", "steps", "accesses", "launches", "replays")}
            for row in rows
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
