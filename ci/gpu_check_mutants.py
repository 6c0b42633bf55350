"""Named ledger mutants on the cuda device: real bytes have to show each of them.

Each mutant is planted in a process of its own before anything of onearena is imported there. Only
what accesses found in bytes counts, not what the order oracle says of the calls. Prints one JSON
line. Exit codes: 0 all shown, 1 one was not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
import time
from typing import Any

from gpu_check_common import DEVICES, NAMED_MUTANTS, REGISTRY, device


def hunt(job: tuple[str, str, float]) -> dict[str, Any]:
    """Schedules with one mutant planted, until bytes show it or the budget is over."""
    name, on, budget_s = job
    from onearena.stress.mutants import load_registry, plant

    mutant = next(each for each in load_registry(REGISTRY) if each.id == name)
    plant(mutant)
    from onearena.stress.run import RunSpec, run_schedule

    with device(on):
        run_schedule(RunSpec(0, device="cuda", judges=frozenset()))  # what is compiled or loaded
    began, seed = time.monotonic(), 0
    while time.monotonic() - began < budget_s:
        # With a lazy fake work is late, as it is behind a long queue on a GPU.
        with device(on, seed=seed, lazy=20):
            spec = RunSpec(seed, device="cuda", judges=frozenset(("cuda-bytes",)))
            result = run_schedule(spec)
        seed += 1
        if result.violations:
            shown = result.violations[0].text()
            seconds = round(time.monotonic() - began, 2)
            return {"id": name, "schedules": seed, "seconds": seconds, "shown": shown}
    return {"id": name, "schedules": seed, "seconds": budget_s, "shown": ""}


def main() -> int:
    """Each in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=DEVICES, required=True)
    parser.add_argument("--only", default=",".join(NAMED_MUTANTS), metavar="ID,...")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each")
    parser.add_argument("--jobs", type=int, default=1, help="so many side by side")
    chosen = parser.parse_args()
    jobs = [(name, chosen.device, chosen.budget) for name in chosen.only.split(",")]
    # Forked before onearena and before CUDA: only what takes long to import is there already.
    importlib.import_module("torch")
    importlib.import_module("numba.cuda")
    context = multiprocessing.get_context("fork")
    with context.Pool(chosen.jobs, maxtasksperchild=1) as pool:
        rows = list(pool.imap(hunt, jobs, chunksize=1))
    missed = [row["id"] for row in rows if not row["shown"]]
    print(json.dumps({"device": chosen.device, "mutants": rows, "missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
