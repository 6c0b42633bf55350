"""Feasibility against brute force over all single-unit moves, both ways."""

from __future__ import annotations

import random

import pytest
from brute_force import BruteForce
from cases import COUNTED, SCALE, Case, brute_bytes, fixed_of, geometry_of, random_case, view_of

from onearena.core.answers import Answer, Blocked, Fits, Infeasible, Rung
from onearena.core.fit import fits, largest_multiple, more_units

CASES = 4_000


@pytest.fixture(scope="module")
def brute() -> BruteForce:
    return BruteForce()


def cases(name: str, count: int = CASES) -> list[Case]:
    rng = random.Random(f"test_fit {name}")
    return [random_case(rng, sizes=(4, 16)) for _ in range(count)]


def all_of(case: Case, bands: range | list[int]) -> frozenset[tuple[int, int]]:
    """Every cell of the bands (what is not live there plays no part)."""
    return frozenset((i, start) for i in bands for start, _ in case.bands[i].cells)


def expected_kind(brute: BruteForce, case: Case) -> str:
    """The answer that the rules give, from searches alone."""
    if brute_bytes(brute, case) >= 0:
        held = fixed_of(case)
        for rung, bands in (
            (Rung.NONE, range(len(case.bands))),
            (Rung.COMPACT, case.floats),
        ):
            stay = frozenset(
                (i, start)
                for i in bands
                for start, letter in case.bands[i].cells
                if letter in COUNTED
            )
            if brute_bytes(brute, case, fixed=held | stay) >= 0:
                return rung.name
        return Rung.RELAYOUT.name
    return "blocked" if brute_bytes(brute, case, fixed=frozenset()) >= 0 else "infeasible"


def kind_of(answer: Answer) -> str:
    if isinstance(answer, Fits):
        return answer.rung.name
    return "blocked" if isinstance(answer, Blocked) else "infeasible"


def test_answers_and_rungs_equal_brute_force_both_ways(brute: BruteForce) -> None:
    seen: dict[str, int] = {}
    for case in cases("answers"):
        kind = kind_of(fits(view_of(case), case.demand))
        assert kind == expected_kind(brute, case), case
        seen[kind] = seen.get(kind, 0) + 1
    assert all(
        seen.get(kind, 0) >= 50 for kind in ("NONE", "COMPACT", "RELAYOUT", "blocked", "infeasible")
    ), seen


def test_blockers_are_enough_and_none_is_superfluous(brute: BruteForce) -> None:
    seen = 0
    for case in cases("blockers"):
        view = view_of(case)
        answer = fits(view, case.demand)
        if not isinstance(answer, Blocked):
            continue
        seen += 1
        held = fixed_of(case)
        named = frozenset(
            (b.band, view.bands[b.band].grid.start(b.unit) // SCALE) for b in answer.blockers
        )
        assert named
        assert named <= held, case
        assert brute_bytes(brute, case, fixed=held - named) >= 0, case
        for one in named:
            assert brute_bytes(brute, case, fixed=(held - named) | {one}) < 0, (case, one)
        for blocker in answer.blockers:
            band = view.bands[blocker.band]
            reasons = {
                "quarantined": band.quarantined,
                "transfer": band.transfer,
                "pinned": band.pinned,
            }
            assert blocker.unit in reasons[blocker.reason]
    assert seen >= 200, seen


def test_infeasible_names_the_missing_bytes_and_the_binding_band(brute: BruteForce) -> None:
    seen = 0
    for case in cases("infeasible"):
        answer = fits(view_of(case), case.demand)
        if not isinstance(answer, Infeasible):
            continue
        missing, rest = divmod(answer.missing_bytes, SCALE)
        assert rest == 0
        if case.size + missing > 24:
            continue
        seen += 1

        def served(size: int, demand: tuple[int, ...], case: Case = case) -> bool:
            return brute_bytes(brute, case, size=size, demand=demand, fixed=frozenset()) >= 0

        # One byte less would not do (the grids below the high end do not move with S).
        assert served(case.size + missing, case.demand), case
        assert not served(case.size + missing - 1, case.demand), case
        binding = answer.binding_band
        before, after = case.demand[:binding], case.demand[binding + 1 :]
        assert case.demand[binding] > 0
        assert served(case.size, (*before, 0, *(0 for _ in after))), case
        assert not served(case.size, (*before, case.demand[binding], *(0 for _ in after))), case
    assert seen >= 200, seen


def test_more_units_is_the_largest_single_demand(brute: BruteForce) -> None:
    for case in cases("more", 1_500):
        view = view_of(case)
        for index in range(len(case.bands)):
            for honour in (False, True):
                most = more_units(view, index, honour_fixed=honour)
                fixed = fixed_of(case) if honour else frozenset()
                for extra, expected in ((most, True), (most + 1, False)):
                    demand = tuple(extra if i == index else 0 for i in range(len(case.bands)))
                    got = brute_bytes(brute, case, demand=demand, fixed=fixed) >= 0
                    assert got is expected, (case, index, honour, most)


def test_largest_multiple_is_the_last_that_fits(brute: BruteForce) -> None:
    for case in cases("multiple", 1_500):
        view = view_of(case)
        for honour in (False, True):
            most = largest_multiple(view, case.demand, honour_fixed=honour)
            fixed = fixed_of(case) if honour else frozenset()
            for times, expected in ((most, most > 0), (most + 1, False)):
                if times == 0:
                    continue
                demand = tuple(more * times for more in case.demand)
                got = brute_bytes(brute, case, demand=demand, fixed=fixed) >= 0
                assert got is expected, (case, honour, most)


def test_shared_bytes_are_counted_once() -> None:
    """Two bands with room for four units each have room for three of both (S = 7, units 1)."""
    case = Case(8, (band(1, 0, "LL"), band(1, 0, "")), (0, 0))
    view = view_of(case)
    assert [more_units(view, index) for index in (0, 1)] == [6, 6]
    assert largest_multiple(view, (1, 1)) == 3
    assert fits(view, (4, 4)) == Infeasible(1, 2 * SCALE)
    assert fits(view, (3, 3)) == Fits(Rung.NONE)


def test_empty_float_is_transparent() -> None:
    """An empty float that fits nowhere in the gap does not stand in the way of the ends."""
    case = Case(8, (band(1, 0, "L"), band(7, 3, ""), band(1, 0, "")), (3, 0, 4))
    assert fits(view_of(case), case.demand) == Fits(Rung.NONE)


def test_pending_units_are_capacity_and_a_transfer_on_a_freed_unit_is_not() -> None:
    pending = Case(4, (band(1, 0, "LppL"), band(1, 4, "")), (2, 0))
    assert fits(view_of(pending), pending.demand) == Fits(Rung.NONE)
    freed = Case(4, (band(1, 0, "LpfL"), band(1, 4, "")), (2, 0))
    answer = fits(view_of(freed), freed.demand)
    assert isinstance(answer, Blocked)
    assert [(b.band, b.reason) for b in answer.blockers] == [(0, "transfer")]
    quarantined = Case(4, (band(1, 0, "LpQL"), band(1, 4, "")), (2, 0))
    assert fits(view_of(quarantined), quarantined.demand) == Infeasible(0, SCALE)


def band(unit: int, first: int, letters: str):
    from cases import CaseBand

    return CaseBand(
        unit, first % unit, tuple((first + unit * at, letter) for at, letter in enumerate(letters))
    )


def test_geometry_of_a_case_keeps_its_grids() -> None:
    case = random_case(random.Random(1))
    for index, each in enumerate(case.bands):
        grid = geometry_of(case).bands[index].grid
        assert grid.start(grid.first_unit) == each.anchor * SCALE
