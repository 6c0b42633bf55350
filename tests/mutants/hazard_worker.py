"""Run hazard tests with a fault planted: python hazard_worker.py FAULT MODULE.TEST [FAULT ...]

Prints one line of JSON: for each pair what came of it, "fails", "passes" or "dies". Each runs in a
process of its own, forked when the kernels are loaded and nothing else of the product is.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from onearena.core import kernels
from onearena.stress.mutants import Mutant, load_registry, plant

HERE = Path(__file__).resolve().parent
UNIT = HERE.parent / "unit"
CLEAN = "clean"
"""The name of no fault."""

FAILS, PASSES, DIES = 1, 0, 3


def faults() -> dict[str, Mutant]:
    """All faults that hazards name, by id."""
    files = (HERE / "registry.toml", HERE / "hazard_faults.toml")
    return {mutant.id: mutant for file in files for mutant in load_registry(file)}


def outcome(fault: Mutant | None, test: str) -> str:
    """Plant, run one test in a child, and say what came of it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(_run(fault, test))
        finally:
            os._exit(DIES)
    _, status = os.waitpid(child, 0)
    return {FAILS: "fails", PASSES: "passes"}.get(os.waitstatus_to_exitcode(status), "dies")


def _run(fault: Mutant | None, test: str) -> int:
    if fault is not None:
        plant(fault)
    module, name = test.split(".")
    function = getattr(importlib.import_module(module), name)
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - a failed test, whatever it raises
        print(f"{test}: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILS
    return PASSES


def main(pairs: list[str]) -> None:
    """Run all pairs."""
    sys.path.insert(0, str(UNIT))
    kernels.warm_up()
    known = faults()
    found = []
    for fault, test in zip(pairs[::2], pairs[1::2], strict=True):
        mutant = None if fault == CLEAN else known[fault]
        found.append({"fault": fault, "test": test, "outcome": outcome(mutant, test)})
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
