"""One mutant in a process of its own: plant it, run schedules until an oracle reports.

Run as `python -m onearena.stress.mutant_worker REGISTRY ID BUDGET_S FIRST_SEED`; prints one line of
JSON. Only a report that names a rule and a unit (or a range of bytes) counts; a crash does not.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onearena.stress.mutants import load_registry, plant

if TYPE_CHECKING:
    from onearena.stress.run import RunResult


def main(arguments: list[str]) -> None:
    """Hunt one mutant and print what came of it."""
    registry, wanted, budget_s, first_seed = arguments
    mutant = next(mutant for mutant in load_registry(Path(registry)) if mutant.id == wanted)
    plant(mutant)
    print(json.dumps({"id": mutant.id, **hunt(float(budget_s), int(first_seed))}))  # noqa: T201


def hunt(budget_s: float, first_seed: int) -> dict[str, object]:
    """Run schedules from `first_seed` on for `budget_s` seconds or up to the first report.

    Seconds are the processor's: other work on the machine costs none, and with a core of its own
    they are those of the clock. Kernels are made before they count: a campaign finds them cached.
    """
    # Only now: these import the code that the mutant changes.
    from onearena.core.kernels import warm_up
    from onearena.stress.run import RunSpec, run_schedule

    warm_up()
    started = time.process_time()
    schedules = steps = crashed = 0
    found: dict[str, object] = {}
    crash = ""
    while not found and time.process_time() < started + budget_s:
        result = run_schedule(RunSpec(first_seed + schedules))
        schedules += 1
        steps += result.steps
        found = report(result)
        if result.verdict == "crash":
            crashed += 1
            crash = crash or result.crash.strip().splitlines()[-1]
    return {
        "caught": bool(found),
        "schedules": schedules,
        "steps": steps,
        "seconds": round(time.process_time() - started, 3),
        "crashed": crashed,
        "crash": crash,
        **found,
    }


def report(result: RunResult) -> dict[str, object]:
    """What an oracle reported in this run: who first, which rule, where; empty if nobody did."""
    if result.verdict == "stuck":
        return {
            "by": "liveness",
            "broken": "1",
            "unit": result.crash,
            "message": result.crash,
            "seed": result.seed,
            "oracles": ["liveness"],
        }
    placed = [v for v in result.violations if v.unit is not None or v.bytes is not None]
    if result.verdict != "violation" or not placed:
        return {}
    first = placed[0]
    return {
        "by": first.oracle,
        "broken": first.rule,
        "unit": str(first.unit or first.bytes),
        "message": first.message,
        "seed": result.seed,
        "oracles": sorted({violation.oracle for violation in placed}),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
