"""A sample of the evidence on every run; `make evidence-fit` judges a million arenas."""

from __future__ import annotations

from collections import Counter

import pytest
from brute_force import BruteForce
from cases import Case, CaseBand
from fit_evidence import WIDE, DifferenceError, check_big, check_block, check_small, check_wide

from onearena.core import kernels

REACHED = (
    "feasible only by a move",
    "with a pin in a moved band",
    "with two or more live floats",
    "refused by less than one unit",
    "blocked",
)


@pytest.mark.parametrize("part", range(2))
def test_sample_of_small_arenas(part: int) -> None:
    reached = check_block(f"sample {part}", 10_000)
    assert all(reached[name] >= 20 for name in REACHED), reached


def test_sample_of_wider_arenas() -> None:
    assert check_wide("sample", 60)["feasible only by a move"] == 60
    assert WIDE == (19, 28)


def test_sample_of_large_arenas() -> None:
    reached = check_big("sample", 60)
    assert reached["plans RELAYOUT"] >= 5, reached
    assert reached["cells swept"] > 60_000


def test_a_wrong_answer_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(4, (CaseBand(1, 0, ((0, "L"),)), CaseBand(1, 0, ((3, "L"),))), (1, 1))
    check_small(BruteForce(), case, Counter())
    monkeypatch.setattr(kernels, "fit_query", lambda *_: 2)
    with pytest.raises(DifferenceError, match="lowest rung"):
        check_small(BruteForce(), case, Counter())
