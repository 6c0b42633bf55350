"""The exhaustive search: what it leaves out only repeats, and what is broken it finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from onearena.stress.cli import run
from onearena.stress.exhaustive import NAMED, SCOPES, Item, Program, Rig, Search, Step, items
from onearena.stress.exhaustive_world import CALLS
from onearena.stress.toy import BUGS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

from evidence_exhaustive import claim_of, complete_by_scope, complete_to  # noqa: E402


def host_side(taken: Iterable[Step]) -> tuple[Step, ...]:
    """The steps that the host takes."""
    return tuple(step for step in taken if step[0] != "device")


def outcomes(
    scope: str, length: int, *, symmetric: bool = True, latest: bool = True, system: str = "arena"
) -> dict[tuple[Step, ...], set[tuple[str, ...]]]:
    """Host steps -> what the runs with these steps came to: the final states, or the report."""
    found: dict[tuple[Step, ...], set[tuple[str, ...]]] = {}

    def seen(taken: tuple[Step, ...], rig: Rig) -> None:
        end = tuple(f"{v.oracle} {v.rule}" for v in rig.found[:1])
        found.setdefault(host_side(taken), set()).add(end or states(rig))

    Search(system, scope, length, symmetric=symmetric, latest=latest, seen=seen).run()
    return found


def states(rig: Rig) -> tuple[str, ...]:
    """The frontiers after all has ended: where the bands were is what the calls left behind."""
    bands = rig.sut.snapshot().bands
    return tuple(f"{band.low_unit} {band.high_unit} {band.states.hex()}" for band in bands)


@pytest.mark.parametrize("scope", SCOPES)
def test_device_orders_beyond_the_latest_change_nothing(scope: str) -> None:
    one = outcomes(scope, 2)
    every = outcomes(scope, 2, latest=False)
    assert set(one) == set(every)
    assert all(len(ends) == 1 for ends in every.values())
    assert one == every


def test_device_orders_are_many() -> None:
    latest = Search("arena", "one", 3, prefix=(("allocate", 0, 1), ("launch", 0, "writes", "a")))
    every = Search("arena", "one", 3, prefix=latest.prefix, latest=False)
    assert every.run().runs[3] > 3 * latest.run().runs[3]


def shapes(found: dict[tuple[Step, ...], set[tuple[str, ...]]]) -> set[tuple[tuple[str, ...], str]]:
    """What is left of outcomes when units and streams lose their names."""
    return {
        (tuple(str(step[0]) for step in taken), " ".join(end))
        for taken, ends in found.items()
        for end in ends
    }


@pytest.mark.parametrize(("scope", "length"), [("one", 3), ("two", 2)])
def test_units_that_stand_for_others_lose_no_outcome(scope: str, length: int) -> None:
    some, every = outcomes(scope, length), outcomes(scope, length, symmetric=False)
    assert len(some) < len(every)
    assert shapes(some) == shapes(every)


@pytest.mark.parametrize("bug", ["", *sorted(BUGS)])
def test_the_toy_is_clean_and_its_bugs_are_not(bug: str) -> None:
    system = f"toy:{bug}" if bug else "toy"
    failures: list[Program] = []
    for scope, calls in NAMED.values():
        if scope == "one" and calls[0] == ("allocate", 0, 4):
            failures += Search(system, scope, 8, named=calls).run().failures
    assert bool(failures) == bool(bug), [program.text() for program in failures]
    assert all(program.violations for program in failures), "a report, not a crash"
    assert all("broken" in program.text() for program in failures)


PLANTED = """
import sys
from pathlib import Path
from onearena.stress.mutants import load_registry, plant
name, calls = sys.argv[1:]
plant(next(m for m in load_registry(Path("tests/mutants/registry.toml")) if m.id == name))
from onearena.stress.cli import run
code = run(["stress", "--strategy", "exhaustive", "--calls", calls, "--jobs", "1", "--json"])
print(code, file=sys.stderr)
"""


@pytest.mark.parametrize("mutant", ["W-forward-forward", "M09"])
def test_a_missing_wait_and_a_reuse_too_early_are_found(mutant: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, mutant, "3"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr.strip().splitlines()[-1] == "1", done.stderr
    document = json.loads(done.stdout)
    assert not document["complete"]
    assert document["failed"] > 0
    first = document["failures"][0]
    assert len(first["steps"]) <= 3
    assert first["violations"][0]["rule"] in ("6", "13")


def test_the_whole_search_of_two_calls(capsys: pytest.CaptureFixture[str]) -> None:
    parts = items("arena", 2)
    named = [part for part in parts if part.name]
    assert len(named) == len(NAMED) == 20
    assert all(len(calls) == 8 for _, calls in NAMED.values())
    assert {str(step[0]) for _, calls in NAMED.values() for step in calls} == set(CALLS)
    code = run(["stress", "--strategy", "exhaustive", "--calls", "2", "--seeds", "0:4", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["parts"] == {"first": 0, "done": 4, "total": 24}
    assert document["complete"] is False  # the named programs are missing
    assert document["programs"] == document["runs"] == {"1": 8, "2": 95}


def test_parts_add_up_to_the_whole() -> None:
    parts = [part for part in items("toy", 3) if part.scope == "one" and part.length == 3]
    whole = Search("toy", "one", 3).run()
    assert sum(part.search("toy").runs[3] for part in parts) == whole.runs[3] > 100


PARTS = [Item("one", 1), Item("two", 1), Item("one", 2), Item("one", 8, (), "some name")]
"""Three short programs' parts, then a named one's."""


@pytest.mark.parametrize(
    ("done", "failed", "calls", "with_named"),
    [
        ((), (), 0, False),
        ((0, 2, 3), (), 0, True),
        ((0, 1), (), 1, False),
        ((0, 1, 2), (), 2, False),
        ((0, 1, 2, 3), (), 2, True),
        ((0, 1, 2, 3), (2,), 1, True),
        ((0, 1, 2, 3), (3,), 2, False),
    ],
)
def test_evidence_claims_what_was_run(
    done: tuple[int, ...], failed: tuple[int, ...], calls: int, with_named: bool
) -> None:
    rows = {number: {"failed": int(number in failed)} for number in done}
    assert complete_to(PARTS, rows) == calls
    assert f"up to {calls} calls" in claim_of(PARTS, rows)
    assert ("1 named" in claim_of(PARTS, rows)) == with_named


def test_evidence_says_how_far_each_arena_was_searched() -> None:
    rows = {number: {"failed": 0} for number in (0, 1, 2)}
    assert complete_by_scope([*PARTS, Item("two", 2)], rows) == {"one": 2, "two": 1}
    claim = claim_of([*PARTS, Item("two", 2)], rows)
    assert "up to 1 calls" in claim
    assert "of up to 2 calls in the arena of scope one" in claim
    assert "scope two" not in claim


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--calls", "6"], "--calls"),
        (["--calls", "0"], "--calls"),
        (["--calls", "2", "--seeds", "0:25"], "--seeds"),
        (["--out", "somewhere"], "--out"),
        (["--seed", "1"], "--seed"),
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stress", "--strategy", "exhaustive", *arguments]) == 2
    assert field in capsys.readouterr().err
