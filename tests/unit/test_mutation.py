"""The general mutants: each edit fits its source, compiles, and changes what the program does."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[2] / "ci"
sys.path.insert(0, str(CI))

from mutation import edits_of  # noqa: E402 - a script's module, found by the line above

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
