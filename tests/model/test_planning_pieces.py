"""The planning kernels against the readable versions, in pieces of a few dozen arenas.

What `test_planning_words` says of thousands of arenas at once is asked here in pieces small enough
for kernels that run uncompiled, which take a hundred times as long.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from cases import Case, random_case, view_of
from words_case import words_of

from onearena.core import kernels
from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.core.fit import fits, largest_multiple, more_units
from onearena.core.fit_words import fits_words, largest_multiple_words, more_units_words
from onearena.core.relayout import Plan, plan
from onearena.core.relayout_words import plan_words

PIECES = 10
CASES = 50


def piece(index: int) -> list[Case]:
    """Every fifth is a longer chain than the search over single-unit moves could look at."""
    rng = random.Random(f"test_planning_pieces {index}")
    made = [random_case(rng, sizes=(4, 28)) for _ in range(CASES)]
    for at in range(0, CASES, 5):
        count, size = rng.choice((1, 6, 7)), rng.randint(10, 28)
        units = [rng.randint(1, rng.choice((2, 4))) for _ in range(count)]
        anchors = [0, *(rng.randrange(unit) for unit in units[1:-1]), size % units[-1]][:count]
        made[at] = random_case(rng, frame=(size, tuple(zip(units, anchors, strict=True))))
    return made


@pytest.mark.parametrize("index", range(PIECES))
def test_answers_and_headroom_are_equal(index: int) -> None:
    seen = set()
    for case in piece(index):
        words, view = words_of(case), view_of(case)
        before = words.copy()
        answer = fits_words(words, case.demand)
        assert answer == fits(view, case.demand), case
        seen.add(type(answer))
        for honour in (False, True):
            for band in range(len(case.bands)):
                assert more_units_words(words, band, honour_fixed=honour) == more_units(
                    view, band, honour_fixed=honour
                ), (case, band, honour)
            assert largest_multiple_words(
                words, case.demand, honour_fixed=honour
            ) == largest_multiple(view, case.demand, honour_fixed=honour), (case, honour)
        assert np.array_equal(words, before)
    assert seen == {Fits, Blocked, Infeasible}


@pytest.mark.parametrize("index", range(PIECES))
def test_plans_are_equal(index: int) -> None:
    moved = 0
    for case in piece(index):
        words = words_of(case)
        before = words.copy()
        got = plan_words(words, case.demand)
        assert repr(got) == repr(plan(view_of(case), case.demand)), case
        assert np.array_equal(words, before)
        moved += isinstance(got, Plan) and bool(got.batches)
    assert moved >= 2, moved


@pytest.mark.parametrize("index", range(PIECES))
def test_fixed_units_are_counted_one_by_one(index: int) -> None:
    counted = 0
    for case in piece(index):
        view = view_of(case)
        fixed = sum(len(band.fixed) for band in view.bands)
        assert kernels.count_fixed(words_of(case)) == fixed, case
        counted += fixed
    assert counted > 20, counted
