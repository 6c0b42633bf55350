"""Every hazard has a test that fails when the hazard is planted, or a reason to wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from onearena.stress.mutants import check_patches, load_registry

HERE = Path(__file__).resolve().parent
UNIT = HERE.parent / "unit"

with (HERE / "hazards.toml").open("rb") as table:
    HAZARDS = tomllib.load(table)["hazard"]
TESTED = [row for row in HAZARDS if "tests" in row]


def test_every_number_is_there_once_with_tests_or_a_reason() -> None:
    numbers = [row["number"] for row in HAZARDS]
    assert numbers == [*range(1, 48), 56]
    for row in HAZARDS:
        assert row["hazard"].endswith(".")
        assert bool(row.get("waits")) != bool(row.get("tests")), row
        assert bool(row.get("tests")) == bool(row.get("faults")), row


def test_hazard_faults_apply_to_the_source_as_it_is() -> None:
    assert check_patches(load_registry(HERE / "hazard_faults.toml")) == []


def test_every_hazard_test_of_the_unit_folder_is_in_the_table() -> None:
    named = {test for row in TESTED for test in row["tests"]}
    found = {
        f"{file.stem}.{line.split('(')[0].removeprefix('def ')}"
        for file in UNIT.glob("test_hazards_*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("def test_")
    }
    assert named == found


def outcomes(pairs: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """What became of each (fault, test)."""
    arguments = [argument for pair in pairs for argument in pair]
    done = subprocess.run(
        [sys.executable, str(HERE / "hazard_worker.py"), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    return {(row["fault"], row["test"]): row["outcome"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("group", range(3))
def test_each_hazard_test_fails_under_its_fault_and_passes_without(group: int) -> None:
    rows = TESTED[group::3]
    pairs = [(fault, row["tests"][0]) for row in rows for fault in ("clean", *row["faults"])]
    found = outcomes(pairs)
    wrong = {
        pair: outcome
        for pair, outcome in found.items()
        if outcome != ("passes" if pair[0] == "clean" else "fails")
    }
    assert not wrong
    assert set(found) == set(pairs)
