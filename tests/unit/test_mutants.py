"""Registry files that are wrong are refused with a name; patches apply once or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onearena.core.errors import UsageError
from onearena.stress import mutant_worker
from onearena.stress.mutants import Mutant, Patch, check_patches, load_registry

GOOD = """
[[mutant]]
id = "a"
title = "t"
rule = "1"
intended = "order"
[[mutant.patch]]
module = "onearena.core.rules"
old = "NOTHING = 0"
new = "NOTHING = 7"
"""


def write(folder: Path, text: str) -> Path:
    """A registry file of that text."""
    path = folder / "registry.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_registry_is_read_in_order(tmp_path: Path) -> None:
    (first, second) = load_registry(write(tmp_path, GOOD + GOOD.replace('"a"', '"b"')))
    assert (first.id, second.id) == ("a", "b")
    assert first.patches == (Patch("onearena.core.rules", "NOTHING = 0", "NOTHING = 7"),)
    assert not first.touches_kernels
    assert first.fingerprint() == second.fingerprint()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "registry"),
        ("[[mutant]\n", "valid TOML"),
        ("mutant = 3\n", "tables"),
        ("mutant = [3]\n", "mutant[0]"),
        (GOOD + GOOD, "id of its own"),
        (GOOD.replace('title = "t"\n', ""), "mutant[0].title"),
        (GOOD.replace('rule = "1"', "rule = 1"), "mutant[0].rule"),
        (GOOD.replace('old = "NOTHING = 0"', 'old = ""'), "mutant[0].patch[0].old"),
        (GOOD.replace("onearena.core.rules", "os"), "mutant[0].patch[0].module"),
        (GOOD[: GOOD.index("[[mutant.patch")], "mutant[0].patch"),
    ],
)
def test_a_wrong_registry_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_registry(write(tmp_path, text))
    assert named in str(caught.value)


def test_a_registry_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="registry file"):
        load_registry(tmp_path / "none.toml")


def test_a_patch_needs_its_text_exactly_once() -> None:
    patch = Patch("onearena.core.rules", "one\n", "two\n")
    assert patch.apply("zero\none\n", mutant="m") == "zero\ntwo\n"
    for source in ("zero\n", "one\none\n"):
        with pytest.raises(UsageError, match="exactly once"):
            patch.apply(source, mutant="m")


def test_patches_that_do_not_apply_are_listed() -> None:
    def mutant(name: str, old: str, new: str) -> Mutant:
        return Mutant(name, "t", "1", "order", (Patch("onearena.core.rules", old, new),))

    wrong = check_patches(
        [
            mutant("absent", "no such text", ""),
            mutant("same", "NOTHING = 0", "NOTHING = 0"),
            mutant("broken", "NOTHING = 0", "NOTHING = ("),
            mutant("good", "NOTHING = 0", "NOTHING = 7"),
        ]
    )
    assert [line.split(":")[0] for line in wrong] == ["absent", "same", "broken"]


def test_a_planted_fault_is_in_the_module_and_nowhere_else(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from onearena.stress.mutants import load_registry, plant\n"
        f"plant(load_registry(Path({str(write(tmp_path, GOOD))!r}))[0])\n"
        "from onearena.core.rules import Wait\n"
        "import onearena.core.rules as rules\n"
        "print(int(Wait.NOTHING), 'NOTHING = 0' in Path(rules.__file__).read_text())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["7", "True"]


def test_a_fault_cannot_be_planted_too_late(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "import onearena.core.rules\n"
        "from onearena.stress.mutants import load_registry, plant\n"
        f"plant(load_registry(Path({str(write(tmp_path, GOOD))!r}))[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "comes too late" in done.stderr


@pytest.mark.parametrize("after_report", [False, True])
def test_a_hunt_goes_on_behind_a_schedule_that_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, *, after_report: bool
) -> None:
    def hunt(
        _mutant: Mutant, _budget_s: float, first_seed: int, tell: Callable[[object], None]
    ) -> dict[str, Any]:
        found = {"caught": False, "crashed": 0, "crash": "", "schedules": 0, "seconds": 1.0}
        for seed in range(first_seed, 20):
            tell(seed)
            if seed == 13:
                os.kill(os.getpid(), signal.SIGKILL)
            found["schedules"] = seed - first_seed + 1
            if seed == 15:
                tell({**found, "caught": True})
                if after_report:
                    os.kill(os.getpid(), signal.SIGKILL)
                return {**found, "caught": True, "intended_after": found["schedules"]}
        raise AssertionError("seed 15 is among them")

    monkeypatch.setattr(mutant_worker, "hunt", hunt)
    (mutant,) = (Mutant("a", "t", "1", "order", (Patch("onearena.core.kernels", "x", "y"),)),)
    row = mutant_worker.hunt_on(mutant, 60.0, 10)
    assert row["caught"]
    assert row["schedules"] == 6
    assert row["crashed"] == 1
    assert "schedule 13 ended its process (-9)" in row["crash"]
    assert row.get("intended_after") == (None if after_report else 6)


def test_a_hunt_that_only_ends_its_process_catches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def hunt(
        _mutant: Mutant, _budget_s: float, first_seed: int, tell: Callable[[object], None]
    ) -> None:
        tell(first_seed)
        if first_seed == 12:
            sum(range(10**8))
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(mutant_worker, "hunt", hunt)
    mutant = Mutant("a", "t", "1", "order", (Patch("onearena.core.kernels", "x", "y"),))
    row = mutant_worker.hunt_on(mutant, 0.5, 10)
    assert not row["caught"]
    assert row["crashed"] == row["schedules"] >= 3
