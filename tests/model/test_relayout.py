"""Plans against a shortest path over all single-unit moves and against the plain sweep."""

from __future__ import annotations

import random

import pytest
from brute_force import BruteForce
from cases import SCALE, Case, CaseBand, brute_bytes, random_case, view_of
from plan_check import check_plan
from relayout_sweep import arena_of, least_bytes, least_cost

from onearena.core.answers import Fits, Rung
from onearena.core.fit import fits
from onearena.core.relayout import Plan, plan

CASES = 4_000


@pytest.fixture(scope="module")
def brute() -> BruteForce:
    return BruteForce()


def cases(name: str, count: int = CASES, sizes: tuple[int, int] = (4, 16)) -> list[Case]:
    rng = random.Random(f"test_relayout {name}")
    return [random_case(rng, sizes=sizes) for _ in range(count)]


def rungs(case: Case) -> list[tuple[bool, ...]]:
    count = len(case.bands)
    return [
        (False,) * count,
        tuple(index in (0, count - 1) for index in range(count)),
        (True,) * count,
    ]


def test_plans_copy_the_bytes_of_the_shortest_path(brute: BruteForce) -> None:
    moved = floats = 0
    for case in cases("shortest path"):
        least = brute_bytes(brute, case)
        got = plan(view_of(case), case.demand)
        if isinstance(got, Plan):
            assert got.copied_bytes == least * SCALE, case
            moved += got.copied_bytes > 0
            floats += got.rung is Rung.RELAYOUT
        else:
            assert least == -1, case
            assert got == fits(view_of(case), case.demand)
    assert moved >= 300, moved
    assert floats >= 200, floats


def test_plans_keep_their_promises() -> None:
    for case in cases("promises"):
        view = view_of(case)
        got = plan(view, case.demand)
        if isinstance(got, Plan):
            check_plan(view, got)


def test_plans_follow_the_order_of_plans() -> None:
    """Bytes, then rung, then waits, then holes left: equal to trying every interval."""
    for case in cases("order of plans", 2_000, (4, 14)):
        got = plan(view_of(case), case.demand)
        arena = arena_of(case)
        least = [least_bytes(arena, case.demand, moves=moves) for moves in rungs(case)]
        if not isinstance(got, Plan):
            assert least[-1] == -1, case
            continue
        rung = least.index(least[-1])
        cost = least_cost(arena, case.demand, moves=rungs(case)[rung])
        assert (got.rung, (got.copied_bytes // SCALE, got.waits, got.holes_left)) == (rung, cost), (
            case
        )


def test_the_two_oracles_agree(brute: BruteForce) -> None:
    for case in cases("oracles", 2_000):
        assert least_bytes(arena_of(case), case.demand, moves=rungs(case)[-1]) == brute_bytes(
            brute, case
        ), case


def test_a_rung_is_no_higher_than_the_bytes_ask() -> None:
    """Fits names the lowest rung; a plan stands on a higher one only to copy fewer bytes."""
    for case in cases("rungs", 2_000):
        view = view_of(case)
        answer, got = fits(view, case.demand), plan(view, case.demand)
        if isinstance(got, Plan):
            assert isinstance(answer, Fits)
            assert got.rung >= answer.rung
            if got.rung > answer.rung:
                on_lower = least_bytes(arena_of(case), case.demand, moves=rungs(case)[answer.rung])
                assert on_lower * SCALE > got.copied_bytes, case


def test_an_opened_float_stands_in_the_middle() -> None:
    bands = (
        CaseBand(1, 0, ((0, "L"), (1, "L"))),
        CaseBand(1, 0, ()),
        CaseBand(1, 0, ((17, "L"),)),
    )
    view = view_of(Case(18, bands, (0, 3, 0)))
    got = plan(view, (0, 3, 0))
    assert isinstance(got, Plan)
    starts = [view.bands[1].grid.start(unit) // SCALE for unit in got.grants[1].tolist()]
    # 15 free bytes, 3 taken: 6 on each side.
    assert starts == [8, 9, 10]


def test_plans_are_deterministic_and_change_nothing() -> None:
    for case in cases("determinism", 300):
        view = view_of(case)
        first, second = plan(view, case.demand), plan(view_of(case), case.demand)
        assert repr(first) == repr(second)
        assert view == view_of(case)
