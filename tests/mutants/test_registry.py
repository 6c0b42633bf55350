"""The registry of planted faults: it applies, it covers the rules, and a part of it is caught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onearena.core.rules import READER_WAITS, TRANSFER_KINDS, WRITER_WAITS, UseKind
from onearena.stress.cli import run as onearena
from onearena.stress.mutant_cache import safe_kernels
from onearena.stress.mutants import KERNELS, Mutant, Patch, check_patches, load_registry

HERE = Path(__file__).resolve().parent
REGISTRY = HERE / "registry.toml"
MUTANTS = load_registry(REGISTRY)
ORACLES = {
    "geometry",
    "conservation",
    "legality",
    "mapping",
    "content",
    "order",
    "poison",
    "reference",
    "promise",
    "economy",
    "liveness",
    "misuse",
    "atomicity",
    "eviction",
    "pricing",
    "boot",
    "recount",
    "ranks",
}
# Python-level faults of different rules that a few schedules show.
QUICK = ("W-forward-forward", "R-forward-forward", "M09", "M15", "M23", "M25", "M27", "M31")


def test_every_patch_applies_to_the_source_as_it_is() -> None:
    assert check_patches(MUTANTS) == []


def test_there_are_at_least_a_hundred_with_ids_and_titles_of_their_own() -> None:
    assert len(MUTANTS) >= 100
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.title for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.fingerprint() for mutant in MUTANTS}) == len(MUTANTS)


def test_every_intended_oracle_exists() -> None:
    assert {mutant.intended for mutant in MUTANTS} <= ORACLES


def test_every_cell_of_both_tables_has_a_mutant() -> None:
    ids = {mutant.id for mutant in MUTANTS}
    # Host units: a backup is the only writer, a load the only reader there.
    on_host = {"W-backup-backup", "W-backup-load", "R-load-backup"}
    wanted = set(on_host)
    for writer in WRITER_WAITS:
        if writer is not UseKind.BACKUP:
            wanted |= {f"W-{writer.name}-{earlier.name}".lower() for earlier in UseKind}
    writes = set(UseKind) - {UseKind.BACKUP, UseKind.SEND}
    for reader in READER_WAITS:
        if reader is not UseKind.LOAD:
            wanted |= {f"R-{reader.name}-{earlier.name}".lower() for earlier in writes}
    missing = {name.lower() for name in wanted} - {name.lower() for name in ids}
    assert not missing
    assert set(TRANSFER_KINDS) == {UseKind.SEND, UseKind.RECEIVE}


@pytest.mark.parametrize(
    "rule", ["1", "2", "3", "4", "5", "6", "7", "8", "9", "11", "12", "13", "geometry", "capacity"]
)
def test_every_rule_has_a_mutant(rule: str) -> None:
    assert any(mutant.rule == rule for mutant in MUTANTS)


def test_quick_mutants_are_reported_and_the_answer_says_by_whom(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["mutants", "--only", ",".join(QUICK), "--budget", "20s", "--jobs", "1"]
    code = onearena([*arguments, "--registry", str(REGISTRY), "--json"])
    report = json.loads(capsys.readouterr().out)
    missed = [row["id"] for row in report["mutants"] if not row["caught"]]
    assert not missed
    assert code == 0
    for row in report["mutants"]:
        assert row["by"] in ORACLES
        assert row["broken"]
        assert row["unit"]
        assert row["seconds"] <= 20 + 10


def test_a_fault_that_changes_nothing_is_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = tmp_path / "registry.toml"
    registry.write_text(
        '[[mutant]]\nid = "none"\ntitle = "t"\nrule = "1"\nintended = "order"\n'
        '[[mutant.patch]]\nmodule = "onearena.core.realise"\n'
        'old = "def query(state: ArenaState, demand: Demand) -> Answer:\\n"\n'
        'new = "def query(state: ArenaState, demand: Demand) -> Answer:  # as before\\n"\n'
    )
    code = onearena(["mutants", "--budget", "2s", "--registry", str(registry), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["mutants"]
    assert code == 1
    assert not row["caught"]
    assert row["schedules"] > 0


def test_only_kernels_out_of_a_patchs_reach_are_taken_from_the_clean_cache() -> None:
    source = """X = 1
def leaf(a):
    return a + 1
def caller(a):
    return leaf(a)
def other(a):
    return a
def top(a):
    return caller(a) + other(a)
"""
    leaf = Patch(KERNELS, "    return a + 1\n", "    return a + 2\n")
    mutant = Mutant("m", "t", "1", "order", (leaf,))
    assert safe_kernels(source, mutant) == [("other", 6)]
    constant = Mutant("m", "t", "1", "order", (Patch(KERNELS, "X = 1\n", "X = 2\n"),))
    assert safe_kernels(source, constant) == []
