"""Calls that a schedule makes rarely or never: several ids of which one is the odd one."""

from __future__ import annotations

import pytest
from hazard_rig import HOLE, PENDING, Rig

from onearena.core.device.interface import Space
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use


@pytest.mark.parametrize("at", [0, 1, 2])
def test_no_unit_of_a_failed_load_may_be_read(at: int) -> None:
    rig = Rig(16 * 8, 16, 16, host_units=4)
    ids = rig.take(2, 1)
    sources = [*ids[0], *ids[1]]
    rig.finish(rig.forward(writes=sources))
    hosts = (*rig.arena.reserve_host(0, 2), *rig.arena.reserve_host(1, 1))
    rig.finish(rig.backup(sources, hosts))
    new = rig.take(2, 1)
    targets = [*new[0], *new[1]]
    use, _ = rig.load(targets, hosts)
    rig.run()
    rig.arena.retire(use, failed=True)
    with pytest.raises(MisuseError, match="undefined"):
        rig.arena.record(UseKind.FORWARD, rig.forwards, reads=[targets[at]])


def test_a_host_unit_is_defined_again_once_it_is_written_anew() -> None:
    rig = Rig(16 * 8, 16, 16, host_units=4)
    ids = rig.take(2, 0)[0]
    rig.finish(rig.forward(writes=ids))
    hosts = rig.arena.reserve_host(0, 2)
    use, _ = rig.backup(ids, hosts)
    rig.run()
    rig.arena.retire(use, failed=True)
    rig.finish(rig.backup(ids, hosts))
    assert isinstance(rig.load(rig.take(2, 0)[0], hosts)[0], Use)


def test_the_last_two_references_dropped_in_one_call_wait_for_the_uses() -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(3, 0)[0]
    rig.finish(rig.forward(writes=ids))
    place = rig.place(ids[1])
    rig.arena.share([ids[1]])
    reader = rig.forward(reads=[ids[1]])
    rig.arena.free([ids[1], ids[1]])
    assert rig.state(0, place) == PENDING
    rig.finish(reader)
    assert rig.state(0, place) == HOLE


@pytest.mark.parametrize("odd", [0, 1])
def test_a_move_refused_for_one_of_its_ids_has_moved_and_enqueued_nothing(odd: int) -> None:
    rig = Rig(16 * 8, 16, 16)
    ids = rig.take(6, 0)[0]
    rig.finish(rig.forward(writes=ids))
    rig.arena.free(ids[:3])
    chosen = ids[4:6]
    rig.arena.pin([chosen[odd]], pinned=True)
    before, work = rig.arena.snapshot(), len(rig.work)
    with pytest.raises(MisuseError, match="pinned"):
        rig.arena.move(0, chosen)
    after = rig.arena.snapshot()
    assert (after.bands, after.fences, after.uses) == (before.bands, before.fences, before.uses)
    assert len(rig.work) == work


def test_a_fork_copies_from_where_its_own_demand_moved_the_source() -> None:
    rig = Rig(16 * 8, 16, 16)
    low, high = rig.take(4, 4)
    rig.finish(rig.forward(writes=[*low, *high]))
    rig.arena.free(low[:2])
    sources = [low[3], high[0]]
    rig.arena.share(sources)
    before = rig.place(low[3])
    assert isinstance(rig.arena.fork(sources, stream=rig.forwards), Grant)
    assert rig.place(low[3]) != before
    (fork,) = [work for work in rig.work if work.kind == UseKind.FORK]
    read = {(a.start, a.end) for a in fork.accesses if a.space == Space.ARENA and not a.writes}
    assert read == {(start, end) for _, start, end in rig.arena.resolve(sources)}
    rig.run()
    assert not rig.races


@pytest.mark.parametrize("move_stream", ["schedule", "moves"])
def test_a_move_to_the_unit_right_at_the_frontier_waits_for_what_its_fence_holds(
    move_stream: str,
) -> None:
    rig = Rig(16 * 12, 16, 16, 16, anchors=(64,), move_stream=move_stream)
    low, middle, _ = rig.take(4, 5, 0)
    rig.finish(rig.forward(writes=[*low, *middle]))
    left = rig.place(middle[4])
    reader, _ = rig.forward(reads=[middle[4]], stream=rig.others)
    rig.arena.process(reader)
    rig.arena.free([middle[4]])
    assert rig.state(1, left) == 0
    rig.take(2, 0, 0)
    assert rig.place(middle[0]) == left, "the move was to go where the frontier had been"
    rig.run()
    assert not rig.races
