"""Opportunistic moves at the very edges of the arena, where an index is first or last."""

from __future__ import annotations

import pytest
from hazard_rig import HOLE, LIVE, PENDING, VACATED, Rig


@pytest.mark.parametrize("band", [0, 1])
def test_the_outermost_unit_of_a_full_arena_moves_to_the_hole_at_the_anchor(band: int) -> None:
    rig = Rig(16 * 4, 16, 16)
    ids = rig.take(*(4 if index == band else 0 for index in range(2)))[band]
    grid = rig.geometry.bands[band].grid
    anchor, outermost = grid.first_unit, grid.end_unit - 1
    if band:
        anchor, outermost = outermost, anchor
    by_place = {rig.place(vid): vid for vid in ids}
    assert sorted(by_place) == list(range(grid.first_unit, grid.end_unit))
    rig.arena.free([by_place[anchor]])
    assert rig.arena.compact(budget_units=4) == 1
    assert rig.place(by_place[outermost]) == anchor
    seen = rig.arena.snapshot().bands[band]
    assert seen.high_unit - seen.low_unit == 3
    assert rig.arena.compact(budget_units=4) == 0


@pytest.mark.parametrize("band", [0, 1])
def test_holes_are_taken_from_the_anchor_outwards(band: int) -> None:
    rig = Rig(16 * 12, 16, 16)
    ids = rig.take(*(8 if index == band else 0 for index in range(2)))[band]
    grid = rig.geometry.bands[band].grid
    rig.finish(rig.forward(writes=ids))
    near_first = sorted(ids, key=rig.place, reverse=band == 1)
    places = [rig.place(vid) for vid in near_first]
    assert places[0] == (grid.end_unit - 1 if band else grid.first_unit)
    rig.arena.free([near_first[at] for at in (0, 2, 3)])
    assert rig.arena.compact(budget_units=2) == 2
    rig.run()
    assert [rig.place(near_first[at]) for at in (7, 6)] == [places[0], places[2]]
    assert rig.arena.compact(budget_units=9) == 1
    assert rig.place(near_first[5]) == places[3]
    assert rig.arena.compact(budget_units=9) == 0


@pytest.mark.parametrize("band", [0, 1])
@pytest.mark.parametrize("at", [0, 63, 64, 130, 298])
def test_a_hole_is_found_across_words_of_the_map(band: int, at: int) -> None:
    rig = Rig(16 * 300, 16, 16)
    ids = rig.take(*(300 if index == band else 0 for index in range(2)))[band]
    assert rig.arena.compact(budget_units=3) == 0, "there is no hole"
    outwards = sorted(ids, key=rig.place, reverse=band == 1)
    hole, last = rig.place(outwards[at]), outwards[-1]
    rig.arena.free([outwards[at]])
    assert rig.arena.compact(budget_units=3) == 1
    assert rig.place(last) == hole


def test_bytes_beside_the_target_of_a_move_stay_fenced() -> None:
    """A forward still reads cells 9 to 11; a float moves to 8 and 9, and a load takes cell 10."""
    rig = Rig(16 * 12, 16, 16, 16, anchors=(0,), host_units=12)
    floating = rig.take(0, 2, 0)[1]
    high = rig.take(0, 0, 3)[2]
    rig.finish(rig.forward(writes=[*high, *floating]))
    reader = rig.forward(reads=high)
    rig.arena.free(high)
    rig.arena.settle(reader[0])
    assert _fences(rig) == [(9, 12)]
    rig.take(8, 0, 0)
    assert _cells(rig, *floating) == [8, 9]
    assert _fences(rig) == [(10, 12)]
    again = rig.take(0, 0, 2)[2]
    (beside,) = [vid for vid in again if rig.arena.resolve([vid])[0][1] == 10 * 16]
    rig.load([beside], rig.arena.reserve_host(2, 1))
    rig.run()
    assert rig.races == []


def _cells(rig: Rig, *ids: int) -> list[int]:
    return sorted(start // 16 for _, start, _ in rig.arena.resolve(ids))


def _fences(rig: Rig) -> list[tuple[int, int]]:
    fences = rig.arena.snapshot().fences
    return [(fence.start_bytes // 16, fence.end_bytes // 16) for fence in fences]


def test_bytes_of_a_former_life_are_fenced_when_a_unit_never_written_is_moved_off_them() -> None:
    rig = Rig(16 * 12, 16, 16)
    low = rig.take(4, 0)[0]
    rig.finish(rig.forward(writes=low))
    reader = rig.forward(reads=low[2:3])
    rig.arena.free(low[2:3])
    rig.arena.settle(reader[0])
    (again,) = rig.take(1, 0)[0]
    assert _cells(rig, again) == [2]
    rig.arena.free([low[0], low[3]])
    assert rig.arena.compact(budget_units=1) == 1
    assert _cells(rig, again) == [0]
    assert rig.moved_bytes() == 0
    assert _fences(rig) == [(2, 3)]
    rig.run()
    rig.retire(reader)
    assert _fences(rig) == []


def test_the_wait_of_a_move_settles_and_makes_holes_of_what_waited_for_the_same_use() -> None:
    rig = Rig(16 * 12, 16, 16)
    low = rig.take(4, 0)[0]
    rig.finish(rig.forward(writes=low))
    places = [rig.place(vid) for vid in low]
    rig.forward(writes=low[1:3])
    rig.arena.free(low[:2])
    assert [rig.state(0, place) for place in places[:2]] == [HOLE, PENDING]
    assert rig.arena.move(0, low[2:3]) == 1
    assert rig.place(low[2]) == places[0]
    assert [rig.state(0, place) for place in places] == [LIVE, HOLE, VACATED, LIVE]
