"""The kernels of fit and relayout, equal to the readable versions field by field.

The readable versions are checked against brute force; nothing here judges them.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from cases import SCALE, Case, random_case, view_of
from plan_check import check_plan
from relayout_sweep import arena_of, least_bytes
from words_case import words_of

from onearena.core import kernels
from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.core.fit import fits, largest_multiple, more_units
from onearena.core.fit_words import fits_words, largest_multiple_words, more_units_words
from onearena.core.relayout import Plan, plan
from onearena.core.relayout_words import plan_words
from onearena.stress.bench_fit import float_store

CASES = 4_000


def cases(name: str, count: int = CASES, sizes: tuple[int, int] = (4, 28)) -> list[Case]:
    rng = random.Random(f"test_planning_words {name}")
    return [random_case(rng, sizes=sizes) for _ in range(count)]


def test_answers_are_equal_and_words_unchanged() -> None:
    seen = {Fits: 0, Blocked: 0, Infeasible: 0}
    for case in cases("answers"):
        words = words_of(case)
        before = words.copy()
        answer = fits_words(words, case.demand)
        assert answer == fits(view_of(case), case.demand), case
        assert np.array_equal(words, before)
        seen[type(answer)] += 1
    assert min(seen.values()) >= 100, seen


def test_plans_are_equal_field_by_field() -> None:
    moved = 0
    for case in cases("plans"):
        words, view = words_of(case), view_of(case)
        before = words.copy()
        got = plan_words(words, case.demand)
        assert repr(got) == repr(plan(view, case.demand)), case
        assert np.array_equal(words, before)
        if isinstance(got, Plan):
            check_plan(view, got)
            moved += bool(got.batches)
    assert moved >= 200, moved


@pytest.mark.parametrize("honour", [False, True])
def test_headroom_is_equal(honour: bool) -> None:
    for case in cases(f"headroom {honour}", 1_500):
        words, view = words_of(case), view_of(case)
        for band in range(len(case.bands)):
            assert more_units_words(words, band, honour_fixed=honour) == more_units(
                view, band, honour_fixed=honour
            ), (case, band)
        assert largest_multiple_words(words, case.demand, honour_fixed=honour) == largest_multiple(
            view, case.demand, honour_fixed=honour
        ), case


def test_arrays_and_tuples_are_the_same_demand() -> None:
    case = random_case(random.Random(3))
    words = words_of(case)
    counts = np.array(case.demand, dtype=np.int64)
    assert fits_words(words, counts) == fits_words(words, case.demand)
    assert repr(plan_words(words, counts)) == repr(plan_words(words, case.demand))


@pytest.mark.parametrize("wrong", [(1,), (1,) * 9, (-1, 0), (1 << 31, 0)])
def test_a_demand_of_another_shape_is_an_error(wrong: tuple[int, ...]) -> None:
    case = next(case for case in cases("shape") if len(case.bands) == 2)
    with pytest.raises(AssertionError, match="one number in"):
        fits_words(words_of(case), wrong)


def test_work_follows_the_demand_and_not_the_pool() -> None:
    """The search reserves as many states and edges for a pool a hundred times as large."""
    bounds = []
    for band_units in (10_000, 1_000_000):
        store, one = float_store(band_units)
        for units in (1, 16, 256):
            counts = np.array([units * more for more in one], dtype=np.int64)
            reach = kernels.plan_reach(store.words, counts)
            bounds.append((units, kernels._states_bound(store.words, counts, reach)))
            got = plan_words(store.words, counts)
            assert isinstance(got, Plan)
            assert len(got.batches) == 1
            assert got.batches[0].sources.size <= units
    assert bounds[:3] == bounds[3:]
    assert bounds[0][1] < bounds[1][1] < bounds[2][1]


def test_one_band_and_long_chains_equal_the_sweep() -> None:
    """Chains that the search over single-unit moves is too slow for: 1 band, and 6 to 8."""
    rng = random.Random("long chains")
    moved = 0
    for _ in range(500):
        count, size = rng.choice((1, 6, 7, 8)), rng.randint(10, 40)
        units = [rng.randint(1, rng.choice((2, 4))) for _ in range(count)]
        anchors = [0, *(rng.randrange(unit) for unit in units[1:-1]), size % units[-1]][:count]
        case = random_case(rng, frame=(size, tuple(zip(units, anchors, strict=True))))
        got, view = plan_words(words_of(case), case.demand), view_of(case)
        assert repr(got) == repr(plan(view, case.demand)), case
        least = least_bytes(arena_of(case), case.demand, moves=(True,) * count)
        if isinstance(got, Plan):
            check_plan(view, got)
            assert got.copied_bytes == least * SCALE, case
            moved += least > 0
        else:
            assert least == -1, case
    assert moved >= 40, moved
