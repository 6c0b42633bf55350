"""Plans against a shortest path over all single-unit moves and against the plain sweep."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from brute_force import BruteForce
from cases import SCALE, Case, CaseBand, brute_bytes, random_case, view_of
from plan_check import check_plan
from relayout_sweep import arena_of, least_bytes, least_cost
from words_case import words_of

from onearena.core.answers import Blocked, Fits, Infeasible, Rung
from onearena.core.fit import fits
from onearena.core.relayout import Plan, plan
from onearena.core.relayout_words import plan_words

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


PLANNERS: list[Callable[[Case], Plan | Blocked | Infeasible]] = [
    lambda case: plan(view_of(case), case.demand),
    lambda case: plan_words(words_of(case), case.demand),
]


def cells(unit: int, first: int, letters: str) -> CaseBand:
    """A band whose cells from address ``first`` on hold ``letters``."""
    starts = range(first, first + unit * len(letters), unit)
    return CaseBand(unit, first % unit, tuple(zip(starts, letters, strict=True)))


def copies(case: Case, got: Plan | Blocked | Infeasible) -> list[tuple[int, int, int]]:
    """(band, from, to) of every copy, by start byte."""
    assert isinstance(got, Plan), got
    grids = [band.grid for band in view_of(case).bands]
    return [
        (
            batch.band,
            grids[batch.band].start(source) // SCALE,
            grids[batch.band].start(target) // SCALE,
        )
        for batch in got.batches
        for source, target in zip(batch.sources.tolist(), batch.targets.tolist(), strict=True)
    ]


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    ("float_letters", "demand", "expected"),
    [
        ("LhLL", (0, 0, 1), [(1, 8, 4)]),
        ("PhLL", (0, 0, 1), [(1, 8, 4)]),
        ("LhLP", (0, 0, 1), None),
        ("LhLT", (0, 0, 1), None),
        ("Lhpf", (0, 0, 1), None),
        ("LhLL", (1, 0, 0), [(1, 2, 4)]),
        ("PhLL", (1, 0, 0), None),
        ("LpLL", (0, 0, 1), [(1, 8, 4)]),
    ],
)
def test_what_is_fixed_stays_and_the_rest_gives_way(
    planner: Callable[[Case], Plan | Blocked | Infeasible],
    float_letters: str,
    demand: tuple[int, ...],
    expected: list[tuple[int, int, int]] | None,
) -> None:
    bands = (cells(1, 0, "LL"), cells(2, 2, float_letters), cells(1, 10, "LL"))
    case = Case(12, bands, demand)
    got = planner(case)
    if expected is None:
        assert isinstance(got, Blocked)
    else:
        assert copies(case, got) == expected


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_float_moves_where_that_copies_fewer_bytes_than_compaction(
    planner: Callable[[Case], Plan | Blocked | Infeasible],
) -> None:
    """Compaction would do and copies a unit of 5 bytes; a float's unit of 1 byte does as well."""
    bands = (cells(5, 0, "hL"), cells(1, 10, "L"), cells(1, 11, "LhL"), cells(1, 14, "L"))
    case = Case(15, bands, (0, 1, 0, 0))
    assert fits(view_of(case), case.demand) == Fits(Rung.COMPACT)
    got = planner(case)
    assert copies(case, got) == [(2, 11, 12)]
    assert isinstance(got, Plan)
    assert got.rung is Rung.RELAYOUT


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("letter", ["P", "T", "Q", "q", "f"])
def test_the_cheaper_move_is_not_taken_where_its_unit_is_fixed(
    planner: Callable[[Case], Plan | Blocked | Infeasible], letter: str
) -> None:
    bands = (cells(5, 0, "hL"), cells(1, 10, "L"), cells(1, 11, letter + "hL"), cells(1, 14, "L"))
    case = Case(15, bands, (0, 1, 0, 0))
    assert copies(case, planner(case)) == [(0, 5, 0)]


@pytest.mark.parametrize("planner", PLANNERS)
def test_of_equal_bytes_the_lower_rung_wins(
    planner: Callable[[Case], Plan | Blocked | Infeasible],
) -> None:
    bands = (cells(1, 0, "hL"), cells(1, 2, "L"), cells(1, 3, "LhL"), cells(1, 6, "L"))
    case = Case(7, bands, (0, 1, 0, 0))
    assert copies(case, planner(case)) == [(0, 1, 0)]


@pytest.mark.parametrize("planner", PLANNERS)
def test_holes_and_new_cells_come_before_pending_ones(
    planner: Callable[[Case], Plan | Blocked | Infeasible],
) -> None:
    case = Case(9, (cells(1, 0, "LphpL"), cells(1, 9, "")), (4, 0))
    got = planner(case)
    assert isinstance(got, Plan)
    first = view_of(case).bands[0].grid.first_unit
    assert (got.grants[0] - first).tolist() == [2, 5, 6, 7]
    assert got.waits == 0
