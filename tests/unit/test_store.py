"""The store by example: growth policy, ids, refusals, big addresses, generations."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from onearena.core import kernels
from onearena.core import words as layout
from onearena.core.errors import MisuseError
from onearena.core.geometry import chain_geometry
from onearena.core.ids import IdFields, sink_id, unpack_id
from onearena.core.store import Handout, Retreat, Store
from onearena.core.words import UnitState


def _store(cells: int, *units: int, anchors: tuple[int, ...] = (), arena: int = 0) -> Store:
    """Bands with units of so many 16-byte cells, in an arena of `cells` of them."""
    geometry = chain_geometry(
        16 * cells,
        [(f"band{index}", 16 * size) for index, size in enumerate(units)],
        float_anchor_bytes=[16 * anchor for anchor in anchors],
    )
    return Store(geometry, arena=arena)


def _take(store: Store, *demand: int) -> Handout:
    handout = store.allocate(demand)
    assert handout is not None
    return handout


def _cells(store: Store) -> list[tuple[int, int]]:
    """Each band's range in 16-byte cells."""
    return [(band.start_bytes // 16, band.end_bytes // 16) for band in store.bands]


def _offsets(store: Store, band: int, handout: Handout) -> list[int]:
    """Units as offsets from the band's first unit."""
    return (handout.units - store.geometry.bands[band].grid.first_unit).tolist()


def test_ends_grow_toward_each_other_and_take_holes_nearest_their_anchor() -> None:
    store = _store(20, 1, 1)
    low, high = _take(store, 6, 0), _take(store, 0, 6)
    assert _cells(store) == [(0, 6), (14, 20)]
    store.free(low.ids[[1, 3]])
    store.free(high.ids[[1, 3]])
    assert _offsets(store, 0, _take(store, 1, 0)) == [1]
    assert _offsets(store, 1, _take(store, 0, 1)) == [18]
    assert _offsets(store, 0, _take(store, 2, 0)) == [3, 6]


def test_high_end_grid_ends_at_s_when_s_is_no_multiple_of_the_unit() -> None:
    store = _store(20, 1, 3)
    _take(store, 0, 6)
    assert _cells(store) == [(0, 0), (2, 20)]
    assert store.allocate((0, 1)) is None, "two cells are left, a unit has three"
    _take(store, 2, 0)
    assert store.allocate((1, 0)) is None


def test_an_empty_float_opens_in_the_middle_of_what_is_free() -> None:
    store = _store(21, 1, 2, 1, anchors=(1,))
    _take(store, 3, 0, 2)  # free: cells [3, 19)
    _take(store, 0, 3, 0)
    # Grid of odd cells; 10 free bytes-cells beside 3 units: 5 and 5 is off the grid, 6 | 4 and
    # 4 | 6 are as near: the lower one.
    assert _cells(store)[1] == (7, 13)


def test_two_floats_that_open_together_share_the_free_bytes_evenly() -> None:
    store = _store(22, 1, 1, 1, 1, anchors=(0, 0))
    _take(store, 2, 4, 4, 3)
    # 9 cells free, three gaps of three.
    assert _cells(store) == [(0, 2), (5, 9), (12, 16), (19, 22)]


def test_a_float_grows_into_the_roomier_gap_and_a_tie_goes_low() -> None:
    store = _store(16, 1, 1, 1, anchors=(0,))
    _take(store, 0, 2, 0)
    assert _cells(store)[1] == (7, 9)
    _take(store, 0, 1, 0)
    assert _cells(store)[1] == (6, 9), "a tie goes low"
    _take(store, 0, 1, 0)
    assert _cells(store)[1] == (6, 10), "now the high gap is roomier"
    _take(store, 0, 9, 0)
    assert _cells(store)[1] == (0, 13), "low first (a tie), the rest above"
    assert store.allocate((1, 0, 0)) is None


def test_limits_are_the_neighbours_frontiers_on_the_own_grid() -> None:
    store = _store(20, 3, 4, 5, anchors=(2,))
    _take(store, 1, 0, 1)  # cells [0, 3) and [15, 20); the float's grid: 2, 6, 10, 14
    assert store.allocate((0, 3, 0)) is None, "12 cells are free, but two units fit the grid"
    _take(store, 0, 2, 0)
    assert _cells(store)[1] == (6, 14)


def test_bands_growing_into_one_gap_are_checked_together() -> None:
    store = _store(10, 1, 1)
    _take(store, 3, 3)
    assert store.allocate((3, 2)) is None
    assert _cells(store) == [(0, 3), (7, 10)]
    _take(store, 2, 2)
    assert _cells(store) == [(0, 5), (5, 10)]


def test_a_float_makes_way_for_what_its_neighbour_takes_in_the_same_call() -> None:
    store = _store(20, 1, 1, 1, anchors=(0,))
    _take(store, 0, 2, 0)
    assert _cells(store)[1] == (9, 11)
    # Alone the float would grow low (a tie); the low end needs all nine cells below.
    _take(store, 9, 3, 0)
    assert _cells(store) == [(0, 9), (9, 14), (0, 0)]


def test_empty_floats_are_transparent() -> None:
    store = _store(20, 1, 1, 1, 1, anchors=(0, 0))
    inner = _take(store, 0, 1, 0, 0)
    store.free(inner.ids)
    assert store.bands[1].low_unit == store.bands[1].high_unit == 0
    _take(store, 20, 0, 0, 0)
    assert store.allocate((0, 0, 1, 0)) is None


def test_frontiers_retreat_over_holes_and_say_which_units_left() -> None:
    store = _store(200, 1, 1, 1, anchors=(0,))
    handout = _take(store, 130, 0, 0)
    first = int(handout.units[0])
    # All but unit 0 and the outermost become holes: nothing retreats yet.
    assert store.free(handout.ids[1:-1]).retreats == ()
    assert store.bands[0].hole_units == 128
    freed = store.free(handout.ids[-1:])
    assert freed.retreats == (Retreat(0, first + 1, first + 130),)
    assert (store.bands[0].hole_units, store.bands[0].high_unit) == (0, first + 1)
    # Stale words beyond the frontier do not come back as holes.
    again = _take(store, 3, 0, 0)
    assert _offsets(store, 0, again) == [1, 2, 3]
    assert store.bands[0].hole_units == 0


def test_a_retreat_over_a_hundred_thousand_holes_does_not_walk_them() -> None:
    """The words beyond stay as they are: only a frontier moves."""
    store = _store(100_000, 1)
    handout = _take(store, 100_000)
    store.free(handout.ids[1:-1])
    before = store.words.copy()
    store.free(handout.ids[-1:])
    changed = int((store.words != before).sum())
    assert changed < 40, f"{changed} words changed for one unit freed"


def test_ids_are_reused_in_the_order_they_were_freed_and_never_live_twice() -> None:
    store = _store(2, 1, arena=7)
    indices = []
    seen = set()
    for _ in range(150):
        handout = _take(store, 1)
        (vid,) = handout.ids.tolist()
        assert vid not in seen
        seen.add(vid)
        fields = unpack_id(vid)
        assert fields == IdFields(generation=fields.generation, arena=7, band=0, index=fields.index)
        indices.append(fields.index)
        store.free(handout.ids)
    count = 2 + layout.SPARE_IDS
    assert indices == [k % count + 1 for k in range(150)]


def test_a_large_band_reuses_ids_before_it_has_used_them_all() -> None:
    store = _store(200_000, 1)
    most = layout.REUSE_AFTER_IDS
    kept = _take(store, 10)
    store.free(_take(store, most - 1).ids)
    fresh = _take(store, 1)
    assert unpack_id(int(fresh.ids[0])).index == most + 10, "one fewer waits: still a fresh index"
    store.free(fresh.ids)
    reused = unpack_id(int(_take(store, 1).ids[0]))
    assert (reused.index, reused.generation) == (11, 1), "the longest freed"
    assert store.resolve(kept.ids).tolist() == kept.units.tolist()


def test_an_index_whose_generations_are_used_up_is_retired() -> None:
    store = _store(1, 1)
    handout = _take(store, 1)
    # As if index 1 had lived 2^27 - 1 times: its last generation is out.
    head = layout.band_header(0)
    store.words[store.words[head + layout.B_ID_WORD] + 1] = (
        layout.ID_GENERATION_LAST << layout.ID_GENERATION_SHIFT
    ) + 1
    last = handout.ids + (layout.ID_GENERATION_LAST << layout.ID_GENERATION_SHIFT)
    with pytest.raises(MisuseError, match="stale"):
        store.free(handout.ids)
    assert store.free(last).units.tolist() == handout.units.tolist()
    assert store.bands[0].retired_ids == 1
    with pytest.raises(MisuseError, match="no reference left"):
        store.free(last)
    for _ in range(3 * layout.SPARE_IDS):
        again = _take(store, 1)
        assert unpack_id(int(again.ids[0])).index != 1
        store.free(again.ids)


def test_a_retired_id_named_twice_is_released_once() -> None:
    store = _store(2, 1)
    handout = _take(store, 1)
    at = store.words[layout.band_header(0) + layout.B_ID_WORD] + 1
    store.words[at] = (layout.ID_GENERATION_LAST << layout.ID_GENERATION_SHIFT) + 2
    vid = int(handout.ids[0]) + (layout.ID_GENERATION_LAST << layout.ID_GENERATION_SHIFT)
    assert store.free([vid, vid]).ids.tolist() == [vid]
    assert store.bands[0].retired_ids == 1


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([-1], "negative"),
        ([-(2**63)], "negative"),
        ([0], "sink"),
        ([2**26], "sink"),
        ([2**31 + 1], "another arena"),
        ([5 << 26 | 1], "names a band"),
        ([3], "never handed out"),
        ([2**26 - 1], "never handed out"),
        ([2**36 + 1], "never handed out"),
        ([1, 1], "no reference left"),
        ([1, 2, 7], r"ids\[2\]"),
        ([1.0], "not a vector of integers"),
        ([[1]], "not a vector of integers"),
        ([2**64 - 1], "does not fit an int64"),
        (["1"], "not a vector of integers"),
    ],
)
def test_bad_ids_are_refused_with_nothing_changed(ids: list[object], message: str) -> None:
    store = _store(10, 1, 1)
    _take(store, 2, 1)
    before = store.words.copy()
    with pytest.raises(MisuseError, match=message) as error:
        store.free(ids)  # type: ignore[arg-type]
    assert error.value.argument == "ids"
    if ids != [1, 1]:  # (naming an id twice is only wrong where references are dropped)
        for call in (store.share, store.resolve):
            with pytest.raises(MisuseError, match=message):
                call(ids)  # type: ignore[arg-type]
    before[layout.A_ERROR_INDEX : layout.A_ERROR_DETAIL + 1] = store.words[
        layout.A_ERROR_INDEX : layout.A_ERROR_DETAIL + 1
    ]
    assert np.array_equal(store.words, before)


def test_a_freed_id_is_a_double_free_until_its_index_lives_again_then_stale() -> None:
    store = _store(4, 1)
    vid = _take(store, 1).ids
    store.free(vid)
    with pytest.raises(MisuseError, match="no reference left"):
        store.free(vid)
    for _ in range(4 + layout.SPARE_IDS):
        held = _take(store, 1)
        if unpack_id(int(held.ids[0])).index == 1:
            break
        store.free(held.ids)
    with pytest.raises(MisuseError, match="stale"):
        store.free(vid)
    # Behind a good id too, where the kernel already knows the band.
    other = _take(store, 1).ids
    both = np.concatenate((other, vid))
    with pytest.raises(MisuseError, match=r"ids\[1\].*stale"):
        store.free(both)
    assert store.references(np.concatenate((other, held.ids))).tolist() == [1, 1]


def test_odd_arrays_are_copied_not_misread() -> None:
    store = _store(10, 1)
    ids = _take(store, 6).ids
    wide = np.zeros((6, 2), dtype=np.int64)
    wide[:, 0] = ids
    locked = ids.copy()
    locked.flags.writeable = False
    expected = sorted(store.resolve(ids))
    compiled = len(getattr(kernels.resolve, "signatures", ()))
    for given in (wide[:, 0], ids[::-1], ids.astype(np.int32), ids.astype(np.uint64), locked):
        assert sorted(store.resolve(given)) == expected
    assert len(getattr(kernels.resolve, "signatures", ())) == compiled, "one more form to compile"
    assert store.resolve(tuple(ids.tolist())).tolist() == store.resolve(ids).tolist()  # type: ignore[arg-type]
    assert store.free([]).ids.size == 0  # type: ignore[arg-type]
    for value, message in ((2**63 - 1, "another arena"), (2**63, "does not fit an int64")):
        with pytest.raises(MisuseError, match=message):
            store.resolve(np.array([value], np.uint64))
    for given in (ids.reshape(2, 3), ids[:1].reshape(())):
        with pytest.raises(MisuseError, match="is not a vector of integers"):
            store.resolve(given)


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        ((1,), "one number for each of the 2 bands"),
        ((1, 1, 1), "one number for each of the 2 bands"),
        ((-1, 0), "no negative number"),
        ((2, -1), "no negative number"),
        ((-(2**70), 0), "no negative number"),
        ((1.0, 0), "whole numbers"),
    ],
)
def test_bad_demands_are_refused(demand: tuple[int, ...], message: str) -> None:
    store = _store(10, 1, 1)
    epoch = store.epoch
    for call in (store.allocate, store.fits_in_place):
        with pytest.raises(MisuseError, match=message):
            call(demand)
    assert store.epoch == epoch


def test_a_demand_larger_than_anything_is_no_room() -> None:
    store = _store(10, 1, 1)
    for units in (11, 2**40, 2**63 - 1, 2**63, 2**200):
        assert store.allocate((units, 0)) is None
        assert store.allocate((units, units)) is None
        assert not store.fits_in_place((0, units))
    assert store.fits_in_place((10, 0))


def test_extend_fills_the_last_unit_first() -> None:
    store = _store(40, 2, 1)
    cases = [
        ((0, 0), (1, 0), 1),
        ((1, 0), (64, 0), 0),
        ((64, 0), (65, 0), 1),
        ((65, 0), (65, 0), 0),
    ]
    for held, wanted, more in cases:
        handout = store.extend(held, wanted, entries_per_unit=(64, 1))
        assert handout is not None
        assert handout.size == more
    for held, wanted, per_unit in [((2, 0), (1, 0), 1), ((0, 0), (1, 0), 0), ((-1, 0), (1, 0), 1)]:
        with pytest.raises(MisuseError, match="cannot extend"):
            store.extend(held, wanted, entries_per_unit=(per_unit, 1))


def test_a_move_between_bands_of_one_batch_is_checked_on_the_new_ranges() -> None:
    store = _store(12, 1, 1)
    low, high = _take(store, 3, 3), store
    first = [band.grid.first_unit for band in store.geometry.bands]
    sources = [int(low.units[2]), int(low.units[5])]
    # Cells [3, 9) are free. Targets at 6 (low) and 5 (high) would cross.
    before = store.words.copy()
    with pytest.raises(MisuseError, match="neighbouring bands leave"):
        high.move([0, 1], sources, [first[0] + 6, first[1] + 5])
    changed = np.flatnonzero(store.words != before)
    assert _cells(store) == [(0, 3), (9, 12)]
    assert changed.size < 20
    store.move([0, 1], sources, [first[0] + 5, first[1] + 6])
    assert _cells(store) == [(0, 6), (6, 12)]
    assert store.bands[0].hole_units == store.bands[1].hole_units == 3
    assert store.resolve(low.ids[[2, 5]]).tolist() == [first[0] + 5, first[1] + 6]


def test_a_refused_move_names_the_argument_the_place_the_unit_and_the_band() -> None:
    store = _store(12, 1, 1)
    units = _take(store, 3, 3).units.tolist()
    free = min(units[3:]) - 2
    with pytest.raises(MisuseError, match=rf"targets\[1\]: unit {units[4]} of band 1 "):
        store.move([0, 1], [units[1], units[3]], [units[0] + 4, units[4]])
    with pytest.raises(MisuseError, match=rf"sources\[1\]: unit {free} of band 1 "):
        store.move([0, 1], [units[1], free], [units[0] + 4, free - 1])
    assert store.retreats() == store.move([], [], []) == ()


def test_lengths_of_a_move_must_agree() -> None:
    store = _store(12, 1)
    units = _take(store, 2).units
    with pytest.raises(MisuseError, match="1 bands, 2 sources and 1 targets"):
        store.move([0], units, [5])


def test_a_remap_takes_only_units_that_nobody_wrote() -> None:
    store = _store(12, 1)
    handout = _take(store, 3)
    spare = int(handout.units[-1]) + 1
    store.mark_written(0, handout.units[1:2])
    with pytest.raises(MisuseError, match="has been written"):
        store.remap([0], handout.units[1:2], [spare])
    store.remap([0], handout.units[:1], [spare])
    assert store.resolve(handout.ids[:1]).tolist() == [spare]


def test_uses_hold_units_and_a_quarantine_counts_as_handed_out() -> None:
    store = _store(12, 1)
    handout = _take(store, 4)
    store.add_uses(0, handout.units[:1], 1)
    store.add_transfers(0, handout.units[1:2], 1)
    store.quarantine(0, handout.units[1:2], on=True)
    freed = store.free(handout.ids[:2])
    assert freed.pending_units == 2
    band = store.bands[0]
    assert (band.live_units, band.pending_units, band.handed_out_units) == (2, 2, 3)
    assert store.add_uses(0, handout.units[:1], -1) == 1
    assert band.state(int(handout.units[0])) is UnitState.HOLE
    assert store.add_transfers(0, handout.units[1:2], -1) == 0, "still quarantined"
    with pytest.raises(MisuseError, match="quarantined"):
        store.settle(0, handout.units[1:2])
    assert store.quarantine(0, handout.units[1:2], on=False) == 1
    assert (band.pending_units, band.hole_units, band.handed_out_units) == (0, 2, 2)


@pytest.mark.parametrize("kind", ["hole", "pending", "beyond"])
def test_only_live_units_are_pinned_and_only_those_with_content_or_waits_quarantined(
    kind: str,
) -> None:
    store = _store(12, 1)
    handout = _take(store, 4)
    if kind == "pending":
        store.add_uses(0, handout.units[1:2], 1)
    store.free(handout.ids[1:2])
    wrong = handout.units[3:] + 1 if kind == "beyond" else handout.units[1:2]
    before = store.digest()
    for units in (wrong, np.concatenate((handout.units[:1], wrong))):
        with pytest.raises(MisuseError):
            store.pin(0, units, on=True)
        if kind != "pending":
            with pytest.raises(MisuseError):
                store.quarantine(0, units, on=True)
    assert store.digest() == before
    store.pin(0, handout.units[:1], on=True)
    assert store.bands[0].pinned_units == 1


def test_a_band_without_ids_says_so_and_one_that_is_too_small_has_no_room() -> None:
    store = _store(6, 1)
    head = layout.band_header(0)
    spare = int(store.words[head + layout.B_IDS]) - 4
    store.words[head + layout.B_RETIRED] = spare  # four are left, of generations used up
    assert store.allocate((5,)) is None
    assert store.words[layout.A_ERROR_DETAIL] == 5
    assert kernels.allocate(store.words, np.empty(10, np.int64)) == layout.Code.NO_IDS
    assert store.allocate((7,)) is None
    assert kernels.allocate(store.words, np.empty(14, np.int64)) == layout.Code.NO_ROOM
    assert _take(store, 4).ids.size == 4


def test_a_view_knows_when_it_is_old() -> None:
    store = _store(12, 1)
    view = store.view()
    assert view.is_current
    store.fits_in_place((3,))
    assert view.is_current, "a question changed nothing"
    live = view.field(0, layout.B_LIVE)
    _take(store, 1)
    assert not view.is_current
    assert (live, view.field(0, layout.B_LIVE)) == (0, 0), "the view keeps its own counts"
    with pytest.raises(ValueError, match="read-only"):
        view.headers[0] = 1


def test_a_view_holds_the_headers_of_every_band() -> None:
    store = _store(30, 1, 2, 1, 3)
    _take(store, 4, 3, 2, 1)
    view = store.view()
    for index, band in enumerate(store.bands):
        seen = [view.field(index, at) for at in (layout.B_LIVE, layout.B_LOW, layout.B_HIGH)]
        assert seen == [band.live_units, band.low_unit, band.high_unit], index


def test_digests_are_equal_where_later_calls_cannot_tell_states_apart() -> None:
    one, other = _store(100, 1, 1), _store(100, 1, 1)
    assert one.digest() == other.digest()
    held = [_take(store, 5, 0) for store in (one, other)]
    assert one.digest() == other.digest()
    one.free(held[0].ids[4:])
    assert one.digest() != other.digest()
    other.free(held[1].ids[4:])
    assert one.digest() == other.digest()
    # Same units, freed in another order: the next ids differ.
    one.free(held[0].ids[[0, 1]])
    other.free(held[1].ids[[1, 0]])
    assert one.digest() != other.digest()
    # A retreat leaves stale words beyond the frontier; they are not part of the state.
    third, fourth = _store(100, 1, 1), _store(100, 1, 1)
    third.free(_take(third, 1, 0).ids)
    fourth.free(_take(fourth, 1, 0).ids)
    fourth.words[fourth.words[layout.band_header(0) + layout.B_UNIT_WORD] + 5] = 7
    assert third.digest() == fourth.digest()


@pytest.mark.parametrize("power", [31, 33, 45])
def test_addresses_past_32_bits(power: int) -> None:
    """A virtual arena: units at both ends, with integers of Python as the oracle."""
    size = (1 << power) + 48 * 16
    unit = max(1 << 20, size >> 20) // 16 * 16
    geometry = chain_geometry(
        size, [("low", unit), ("float", unit + 16), ("high", unit + 48)], float_anchor_bytes=[32]
    )
    store = Store(geometry)
    low, middle, high = (store.geometry.bands[band].grid for band in range(3))
    handout = _take(store, 2, 1, 2)
    assert low.start(int(handout.units[0])) == 0
    assert high.end(int(handout.units[3])) == size
    start = middle.start(int(handout.units[2]))
    below = start - 2 * unit
    above = size - 2 * (unit + 48) - start - (unit + 16)
    assert abs(below - above) <= unit + 16
    # Everything but the float's unit: what a plain division by hand says fits, and no unit more.
    room = start // unit - 2
    assert store.allocate((room + 1, 0, 0)) is None
    _take(store, room, 0, 0)
    top = (size - start - (unit + 16)) // (unit + 48) - 2
    assert store.allocate((0, 0, top + 1)) is None
    _take(store, 0, 0, top)
    assert store.bands[2].start_bytes > 1 << (power - 1)


def test_creating_a_store_does_not_touch_the_pool() -> None:
    """Zeroed memory is a valid start: nothing but headers is written."""
    store = _store(1_000_000, 1, 1)
    assert np.count_nonzero(store.words) < 100


def test_sink_ids_resolve_only_where_padding_is_allowed() -> None:
    store = _store(10, 1, 1, arena=3)
    vid = int(_take(store, 0, 1).ids[0])
    sink = sink_id(arena=3, band=1)
    assert store.resolve([vid, sink], sinks=True).tolist()[1] == 0
    with pytest.raises(MisuseError, match="sink"):
        store.resolve([vid, sink])


def test_public_methods_say_what_they_cost() -> None:
    for name, method in inspect.getmembers(Store, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
