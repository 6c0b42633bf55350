"""The general mutants: each edit fits its source, compiles, and changes what the program does.

And who judges one: the schedules and tests that run its lines, and kernels run as plain Python.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from onearena.core import kernels

CI = Path(__file__).resolve().parents[2] / "ci"
sys.path.insert(0, str(CI))

# Scripts' modules, found by the line above.
import mutation_plain  # noqa: E402
import mutation_reach  # noqa: E402
from evidence_mutation import reaching, rounds  # noqa: E402
from mutation import Edit, edits_of  # noqa: E402

SOURCE = '''"""Says a - b."""
LIMIT = 3

def pick(items: list[int], least: int = 2) -> int:
    """Of 1 and 2."""
    assert least > 0, f"{least + 1}"
    total = 0
    for item in items:
        if item < least or not item:
            continue
        total += max(item, 7)
        list(zip(items, items, strict=True))
    if total == 1:
        raise ValueError(total + 1)
    items.sort()
    return total % 5 if total else -1
'''


def test_edits_are_those_of_a_hand_made_list():
    assert [(edit.old, edit.new) for edit in edits_of("m", SOURCE)] == [
        ("0", "1"),
        ("item < least", "item <= least"),
        ("item < least", "item >= least"),
        ("item < least or not item", "(item < least) and (not item)"),
        ("item < least or not item", "not (item < least or not item)"),
        ("not item", "item"),
        ("continue", "break"),
        ("total += max(item, 7)", "pass"),
        ("max", "min"),
        ("7", "8"),
        ("list(zip(items, items, strict=True))", "pass"),
        ("total == 1", "not (total == 1)"),
        ("total == 1", "total != 1"),
        ("1", "2"),
        ("items.sort()", "pass"),
        ("total % 5", "(total) // (5)"),
        ("5", "6"),
        ("total", "not (total)"),
        ("-1", "1"),
        ("1", "2"),
    ]


@pytest.mark.parametrize("module", ["ledger", "fit", "relayout", "store", "kernels"])
def test_every_edit_of_a_real_module_compiles_and_changes_its_tree(module: str):
    source = (CI.parent / f"core/{module}.py").read_text()
    edits = edits_of(f"onearena.core.{module}", source)
    assert len(edits) > 50
    plain = ast.dump(ast.parse(source))
    for edit in edits[:: max(1, len(edits) // 12)]:
        assert ast.dump(ast.parse(edit.apply(source))) != plain, edit.name


def test_names_tell_equal_edits_of_one_function_apart():
    source = "def both(a, b):\n    return (a < b) + (a < b)\n\ndef one(a, b):\n    return a < b\n"
    names = [edit.name for edit in edits_of("m", source)]
    assert len(set(names)) == len(names)
    assert [name for name in names if "<=" in name] == [
        "m:both: a < b -> a <= b",
        "m:both: a < b -> a <= b (2)",
        "m:one: a < b -> a <= b",
    ]


SPREAD = """def spread(
    items,
):
    total = (
        1
        + len(items)
    )
    while (
        total > 3
        and items
    ):
        total -= 1
    return total


class Limits:
    most = 4
"""


def test_an_edit_knows_the_lines_of_its_statement_or_of_a_header():
    lines = {(edit.old, edit.new): edit.lines for edit in edits_of("m", SPREAD)}
    assert lines["1", "2"] == (12, 12)  # the later of the two
    assert lines["total > 3", "total >= 3"] == (8, 11)
    assert lines["total -= 1", "pass"] == (12, 12)
    assert lines["4", "5"] == (0, 0)
    first = edits_of("m", SPREAD)[0]
    assert (first.old, first.lines) == ("1", (4, 7))


def test_only_what_runs_a_line_of_the_edit_judges_it_and_the_cheapest_first():
    edit = Edit("m", 8, "spread", 0, 1, "a", "b", (8, 11))
    reach = {
        "at_import": {"m": [40, 41]},
        "seeds": [{"m": [7, 12]}, {"m": [3, 11]}, {"other": [9]}],
        "tests": {
            "slow": {"seconds": 9.0, "lines": {"m": [8]}},
            "quick": {"seconds": 0.1, "lines": {"m": [10]}},
            "the import": {"seconds": 0.0, "lines": {"m": [7, 12], "other": [9]}},
        },
    }
    assert reaching(reach, edit) == ([1], [("quick", 0.1), ("slow", 9.0)])
    outside = Edit("m", 17, "Limits", 0, 1, "4", "5")
    called_by_it = Edit("m", 41, "helper", 0, 1, "4", "5", (41, 42))
    for everyone in (reaching(reach, outside), reaching(reach, called_by_it)):
        assert everyone == ([0, 1, 2], [("the import", 0.0), ("quick", 0.1), ("slow", 9.0)])
    assert reaching(reach, Edit("m", 43, "never", 0, 1, "4", "5", (43, 44))) == ([], [])


def test_rounds_leave_nobody_out_and_keep_what_is_dear_for_the_end():
    tests = [(f"t{seconds}", float(seconds)) for seconds in (0, 1, 1, 1, 20)]
    found = rounds(list(range(10)), tests)
    assert [seed for step in found for seed in step.get("seeds", [])] == list(range(10))
    assert [test for step in found for test in step.get("tests", [])] == tests
    assert [len(step.get("seeds", step.get("tests"))) for step in found] == [3, 3, 7, 2]


def test_the_tracer_sees_the_lines_that_ran_and_only_of_its_modules(tmp_path, monkeypatch):
    (tmp_path / "traced_one.py").write_text(SPREAD)
    (tmp_path / "traced_two.py").write_text(SPREAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sys.gettrace()
    tracer = mutation_reach.Tracer(["traced_one"])
    one = __import__("traced_one")
    two = __import__("traced_two")
    tracer.start()
    one.spread([1, 2, 3])
    many = tracer.stop()
    tracer.start()
    one.spread([])
    two.spread([1, 2, 3])
    few = tracer.stop()
    sys.settrace(before)
    assert set(few) == set(many) == {"traced_one"}
    assert 12 not in few["traced_one"]
    assert {9, 12, 13} <= set(many["traced_one"])


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """The bit maps of the kernels as plain Python, in a module of another name."""
    spec = importlib.util.find_spec("onearena.core.kernels")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    head, _, rest = source.partition("# --- bits")
    assert "_kernel = njit(" in head
    module = ModuleType("plain_kernels")
    before = np.geterr()
    mutation_plain.prepare(module)
    np.seterr(**before)
    vars(module).update({"_kernel": lambda function: function, "intrinsic": lambda one: one})
    bits = rest.partition("# --- geometry of one band")[0]
    exec(mutation_plain.plain_code("#" + bits, "plain.py"), vars(module))
    vars(module)["copy_bytes"] = None
    mutation_plain.bind(module)
    return module


def test_plain_bit_maps_equal_the_compiled_ones(plain: ModuleType):
    draw = random.Random(5)
    levels, size = 2, 64 * 64
    at = 70  # words: 64 of level 0, one of level 1, then the offsets of the levels
    ours, theirs = np.zeros(80, np.int64), np.zeros(80, np.int64)
    for words in (ours, theirs):
        words[at], words[at + 1] = 0, 64
    for _ in range(1500):
        bit = draw.choice((draw.randrange(size), draw.randrange(64) * 64 + 63))
        end = min(size, bit + draw.choice((1, 2, 64, 65, 300)))
        name = draw.choice(("set", "clear", "set_range", "clear_range", "clear"))
        places = (bit, end) if name.endswith("range") else (bit,)
        with np.errstate(over="ignore"):
            getattr(plain, f"map_{name}")(ours, at, levels, *places)
        getattr(kernels, f"map_{name}")(theirs, at, levels, *places)
        assert ours.tolist() == theirs.tolist(), (name, places)
        asked = draw.randrange(size)
        for find in ("map_first", "map_last"):
            with np.errstate(over="ignore"):
                found = getattr(plain, find)(ours, at, levels, asked)
            assert int(found) == getattr(kernels, find)(theirs, at, levels, asked), (find, asked)


def test_plain_instructions_answer_as_the_machine_does():
    assert [mutation_plain.lowest_bit(word) for word in (1, 12, -1, -(1 << 63))] == [0, 2, 0, 63]
    assert [mutation_plain.leading_zeros(word) for word in (1, 12, -1, 1 << 62)] == [63, 60, 0, 1]
    assert mutation_plain.shift_left(1, 63) == -(1 << 63)
    assert mutation_plain.shift_left(3, 63) == -(1 << 63)
    assert mutation_plain.shift_left(-1, 4) == -16
