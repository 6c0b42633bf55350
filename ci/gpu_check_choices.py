"""Choices files on the cuda device: the digests of the modeled one, and clean bytes.

Each seed runs on the modeled device first; its recording is stored, read back and replayed on the
GPU, or with `--device fake` over the strict fake of torch.cuda and numba.cuda. Prints one JSON
line. Exit codes: 0 all agree, 1 one does not. A run that its budget ends early says how far it got.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from dataclasses import replace
from typing import Any

from gpu_check_common import DEVICES, device, seeds_of


def replay(job: tuple[int, str]) -> dict[str, Any]:
    """One seed on both devices."""
    from onearena.stress.recordings import dump_recording, parse_recording
    from onearena.stress.run import RunSpec, run_schedule

    seed, name = job
    modeled = run_schedule(RunSpec(seed, state_digests=True))
    spec, _ = parse_recording(dump_recording(RunSpec(seed), modeled))
    with device(name, seed=seed, lazy=seed % 5) as fakes:
        real = run_schedule(replace(spec, device="cuda", state_digests=True))
    same = real.digest == modeled.digest and real.state_digests == modeled.state_digests
    clean = (modeled.verdict, real.verdict, real.divergence) == ("pass", "pass", None)
    what = [v.text() for v in real.violations[:1]] or real.crash[-800:]
    if fakes:
        from fake_runs import order_of

        conflict = order_of(fakes[0])
        clean = clean and conflict is None
        what = what or (conflict.text() if conflict is not None else "")
    calls = fakes[0].calls if fakes else {}
    return {
        "seed": seed,
        "agrees": same and clean and real.real_accesses > 0,
        "steps": len(real.state_digests),
        "accesses": real.real_accesses,
        "launches": calls.get("launch", 0),
        "replays": calls.get("replay", 0),
        "what": what,
    }


def main() -> int:
    """All seeds, or as many as the budget lets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=DEVICES, required=True)
    parser.add_argument("--seeds", type=seeds_of, default=range(200), metavar="A:B")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=0.0, help="stop after so many seconds")
    chosen = parser.parse_args()
    ends = time.monotonic() + chosen.budget if chosen.budget else float("inf")
    jobs = [(seed, chosen.device) for seed in chosen.seeds]
    rows: list[dict[str, Any]] = []
    if chosen.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
            for row in pool.imap_unordered(replay, jobs):
                rows.append(row)
                if time.monotonic() > ends:
                    pool.terminate()
                    break
    else:
        for job in jobs:
            rows.append(replay(job))
            if time.monotonic() > ends:
                break
    wrong = [row for row in rows if not row["agrees"]]
    summary = {
        "device": chosen.device,
        "asked": len(jobs),
        "replayed": len(rows),
        "agreeing": len(rows) - len(wrong),
        "steps": sum(row["steps"] for row in rows),
        "accesses": sum(row["accesses"] for row in rows),
        "disagreeing": wrong[:5],
    }
    print(json.dumps(summary))
    return int(bool(wrong) or not rows)


if __name__ == "__main__":
    sys.exit(main())
