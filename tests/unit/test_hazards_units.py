"""Hazards of bands, frees, ids and sharing, each as the shortest host program that shows it.

The number in a test's name is the hazard's in `docs/hazards.md`; a patch that brings the hazard
back makes the test fail, which `tests/mutants/test_hazard_patches.py` shows.
"""

from __future__ import annotations

import pytest
from hazard_rig import HOLE, LIVE, PENDING, Rig

from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.core.declaration import ModelDeclaration
from onearena.core.errors import MisuseError, UsageError
from onearena.core.models import known_declaration
from onearena.core.plan import StoragePlan
from onearena.core.rules import UseKind
from onearena.core.sizing import PlanSettings


def refused(call: object, *args: object, **named: object) -> bool:
    """Whether a call is refused with a typed error."""
    try:
        call(*args, **named)  # type: ignore[operator]
    except MisuseError:
        return True
    return False


def test_01_bytes_that_one_band_freed_serve_the_other_at_once() -> None:
    rig = Rig(128, 64, 16)
    _, full = rig.take(0, 8)
    rig.forward(reads=full)
    assert not rig.fits(1, 0)
    rig.arena.free(full[4:])
    assert rig.fits(1, 0), "freed units count as capacity, whatever still reads them"
    rig.take(1, 0)
    assert not rig.races


def test_03_a_joint_demand_is_not_a_demand_for_each() -> None:
    rig = Rig(112, 16, 16)
    assert rig.fits(7, 0)
    assert rig.fits(0, 7)
    answer = rig.arena.fits((4, 4))
    assert answer == Infeasible(1, 16), answer
    assert rig.fits(4, 3)


def test_05_an_answer_is_never_older_than_the_last_pin() -> None:
    rig = Rig(128, 16, 32, 16)
    _, floats, _ = rig.take(0, 1, 0)
    rig.forward(writes=floats)
    demand = (6, 0, 0)
    assert isinstance(rig.arena.fits(demand), Fits)
    rig.arena.pin(floats, pinned=True)
    assert isinstance(rig.arena.fits(demand), Blocked)
    rig.arena.pin(floats, pinned=False)
    assert isinstance(rig.arena.fits(demand), Fits)


def test_06_two_batches_freed_under_one_use_both_come_back() -> None:
    rig = Rig(256, 16, 16)
    low, _ = rig.take(5, 0)
    reader = rig.forward(reads=low)
    rig.arena.free(low[1:2])
    rig.arena.free(low[3:4])
    assert [rig.state(0, rig.place(low[0]) + k) for k in (1, 3)] == [PENDING, PENDING]
    rig.finish(reader)
    assert [rig.state(0, rig.place(low[0]) + k) for k in (1, 3)] == [HOLE, HOLE]


def test_07_a_sentinel_is_refused_and_changes_nothing() -> None:
    rig = Rig(128, 16, 16)
    low, _ = rig.take(2, 0)
    before = rig.arena.snapshot().bands
    assert refused(rig.arena.free, [low[0], -1])
    assert rig.arena.snapshot().bands == before


def test_08_a_demand_over_several_sub_pools_is_handed_out_whole_or_not_at_all() -> None:
    rig = Rig(128, 16, 32, 16)
    rig.take(2, 1, 1)
    before = rig.arena.snapshot()
    answer = rig.arena.allocate((1, 3, 0), writer=UseKind.LOAD, stream=rig.copies)
    assert isinstance(answer, Infeasible)
    after = rig.arena.snapshot()
    assert (after.bands, after.gaps) == (before.bands, before.gaps)


def test_19_a_pair_is_priced_on_the_floats_grid() -> None:
    rig = Rig(160, 16, 48, 16)
    # 160 bytes: five low units leave 80 bytes, of which a grid of 48 has one unit and not two.
    assert rig.fits(5, 1, 0)
    assert isinstance(rig.arena.fits((5, 2, 0)), Infeasible)


def test_22_addresses_are_64_bits_wide() -> None:
    unit = 1 << 30
    rig = Rig(8 << 30, unit, unit)
    low, high = rig.take(4, 2)
    spans = rig.arena.resolve([*low, *high])
    assert [start for _, start, _ in spans] == [0, unit, 2 * unit, 3 * unit, 7 * unit, 6 * unit]


def test_23_no_negative_id_reads_a_row_before_the_table() -> None:
    rig = Rig(128, 16, 16)
    rig.take(1, 1)
    for name in (-1, -2, -(1 << 62)):
        assert refused(rig.arena.resolve, [name])
        assert refused(rig.arena.record, UseKind.FORWARD, rig.forwards, reads=[name])
        assert refused(rig.arena.share, [name])


def test_26_the_arena_is_all_of_its_byte_budget() -> None:
    declaration = known_declaration("gpt-oss-20b")
    assert isinstance(declaration, ModelDeclaration)
    one = StoragePlan.from_units(declaration, page_size=16, counts=[3, 5]).arena_bytes
    for odd in (16, 4096, 999_984):
        plan = StoragePlan.from_units(declaration, page_size=16, arena_bytes=one + odd)
        assert plan.arena_bytes == one + odd


def test_27_a_budget_below_one_request_is_refused_at_the_start() -> None:
    declaration = known_declaration("gpt-oss-20b")
    assert isinstance(declaration, ModelDeclaration)
    settings = PlanSettings(budget_bytes=1 << 26, max_request_tokens=100_000)
    with pytest.raises(UsageError, match="request"):
        StoragePlan.build(declaration, settings, page_size=16)


def test_28_counters_are_a_recount_of_the_units() -> None:
    rig = Rig(256, 16, 16)
    low, high = rig.take(6, 4)
    rig.finish(rig.forward(writes=[*low, *high]))
    rig.arena.free(low[1:3])
    reader = rig.forward(reads=[*low[3:], *high])
    assert rig.arena.move(0, low[5:]) == 1
    rig.arena.free(low[4:5])
    rig.arena.free(high[1:2])
    for done in (False, True):
        if done:
            rig.finish(reader)
        for band in rig.arena.snapshot().bands:
            found = [band.states.count(state) for state in (HOLE, LIVE, PENDING, 4)]
            told = [band.hole_units, band.live_units, band.pending_units, band.vacated_units]
            assert found == told
            assert sum(told) == band.high_unit - band.low_unit


def test_39_an_id_of_an_earlier_life_resolves_to_nothing() -> None:
    rig = Rig(128, 16, 16)
    low, _ = rig.take(1, 0)
    rig.finish(rig.forward(writes=low))
    unit = rig.place(low[0])
    rig.arena.free(low)
    new, _ = rig.take(1, 0)
    assert rig.place(new[0]) == unit
    assert refused(rig.arena.resolve, low)
    assert refused(rig.arena.record, UseKind.FORWARD, rig.forwards, writes=low)
    assert refused(rig.arena.free, low)
    assert rig.state(0, unit) == LIVE


def test_40_a_free_drops_the_page_it_named_and_no_later_one() -> None:
    rig = Rig(128, 16, 16)
    low, _ = rig.take(2, 0)
    reader = rig.forward(reads=low[:1])
    rig.arena.free(low[:1])
    (new, *_), _ = rig.take(1, 0)
    assert refused(rig.arena.free, low[:1]), "the page was freed; its id names nothing any more"
    rig.finish(reader)
    assert rig.place(new) >= 0
    seen = rig.arena.snapshot().bands[0]
    assert (seen.live_units, seen.pending_units) == (2, 0)


def test_41_the_sinks_are_never_freed() -> None:
    rig = Rig(128, 16, 16)
    low, _ = rig.take(2, 0)
    for sink in (0, 1 << 26):
        assert refused(rig.arena.free, [low[0], sink])
    assert rig.arena.snapshot().bands[0].live_units == 2


def test_42_a_free_puts_nothing_on_the_device() -> None:
    rig = Rig(4096, 16, 16)
    low, _ = rig.take(100, 0)
    rig.forward(reads=low)
    before = rig.device.trace.count
    rig.arena.free(low[::2])
    rig.arena.free(low[1::2])
    assert rig.device.trace.count == before


def test_44_capacity_is_counted_on_the_bands_own_grid() -> None:
    # 128 bytes and units of 48 anchored at 16: [16, 64) and [64, 112) are the only two.
    rig = Rig(128, 16, 48, 16, anchors=(16,))
    assert rig.fits(0, 2, 0)
    assert not rig.fits(2, 2, 0)
    assert rig.fits(1, 2, 1)
    _, floats, _ = rig.take(0, 2, 0)
    assert sorted(start for _, start, _ in rig.arena.resolve(floats)) == [16, 64]
    odd = Rig(96 + 16, 16, 32)
    assert [band.grid.capacity_units for band in odd.geometry.bands] == [7, 3]
