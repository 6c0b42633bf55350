"""One mutant in a process of its own: plant it, run schedules until an oracle reports or time is up.

Run as `python -m onearena.stress.mutant_worker REGISTRY ID BUDGET_S FIRST_SEED`; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from onearena.stress.mutants import load_registry, plant


def main(arguments: list[str]) -> None:
    """Hunt one mutant and print what came of it."""
    registry, wanted, budget_s, first_seed = arguments
    mutant = next(mutant for mutant in load_registry(Path(registry)) if mutant.id == wanted)
    plant(mutant)
    # Only now: these import the code that the mutant changes.
    from onearena.stress.run import RunSpec, run_schedule  # noqa: PLC0415

    deadline = time.monotonic() + float(budget_s)
    started = time.monotonic()
    schedules = steps = crashed = 0
    found: dict[str, object] = {}
    crash = ""
    while time.monotonic() < deadline and not found:
        seed = int(first_seed) + schedules
        result = run_schedule(RunSpec(seed))
        schedules += 1
        steps += result.steps
        if result.verdict == "violation":
            first = result.violations[0]
            found = {
                "by": first.oracle,
                "rule": first.rule,
                "unit": str(first.unit or first.bytes or ""),
                "message": first.message,
                "seed": seed,
                "oracles": sorted({violation.oracle for violation in result.violations}),
            }
        elif result.verdict == "stuck":
            found = {
                "by": "liveness",
                "rule": "1",
                "unit": "",
                "message": result.crash,
                "seed": seed,
                "oracles": ["liveness"],
            }
        elif result.verdict == "crash":
            crashed += 1
            crash = crash or result.crash.strip().splitlines()[-1]
    print(  # noqa: T201
        json.dumps(
            {
                "id": mutant.id,
                "caught": bool(found),
                "schedules": schedules,
                "steps": steps,
                "seconds": round(time.monotonic() - started, 3),
                "crashed": crashed,
                "crash": crash,
                **found,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
