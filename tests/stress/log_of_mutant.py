"""Run as a program: plant a mutant, run schedules until one is reported, print its log.

Line 1 is a JSON object: the seed and what the oracles said online; the log follows. The process
that judges the log knows of no mutant.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

from onearena.stress.mutants import load_registry, plant

REGISTRY = Path(__file__).resolve().parents[1] / "mutants" / "registry.toml"
SEEDS = 400


def main(name: str) -> None:
    plant(next(mutant for mutant in load_registry(REGISTRY) if mutant.id == name))
    from onearena.stress.log_export import export_log
    from onearena.stress.run import RunSpec, run_schedule

    for seed in range(SEEDS):
        if run_schedule(RunSpec(seed)).verdict != "violation":
            continue
        log = io.StringIO()
        result = export_log(RunSpec(seed), log)
        said = [violation.to_json() for violation in result.violations]
        sys.stdout.write(json.dumps({"seed": seed, "violations": said}) + "\n" + log.getvalue())
        return
    sys.stdout.write(json.dumps({"seed": -1, "violations": []}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
