"""Hazards of moves, pins, copies and transfers, each as the shortest host program that shows it.

The number in a test's name is the hazard's in `docs/hazards.md`; a patch that brings the hazard
back makes the test fail, which `tests/mutants/test_hazard_patches.py` shows.
"""

from __future__ import annotations

from hazard_rig import PENDING, VACATED, Rig
from test_hazards_units import refused

from onearena.core.answers import Blocked
from onearena.core.device.interface import Space
from onearena.core.device.trace import Observe
from onearena.core.rules import UseKind


def floating(rig: Rig) -> tuple[list[int], list[int]]:
    """Two written floats with a hole before them, and one high unit."""
    _, floats, high = rig.take(0, 3, 1)
    rig.finish(rig.forward(writes=[*floats, *high]))
    rig.arena.free(floats[1:2])
    return [floats[0], floats[2]], high


def test_04_a_pinned_float_stays_and_nothing_is_copied() -> None:
    rig = Rig(160, 16, 32, 16)
    floats, _ = floating(rig)
    demand = (4, 0, 1)
    assert rig.fits(*demand)
    rig.arena.pin(floats, pinned=True)
    places = [rig.place(name) for name in floats]
    answer = rig.arena.allocate(demand, writer=UseKind.FORWARD, stream=rig.forwards)
    assert isinstance(answer, Blocked), answer
    assert {blocker.band for blocker in answer.blockers} == {1}
    assert rig.moved_bytes() == 0
    assert [rig.place(name) for name in floats] == places
    rig.arena.pin(floats, pinned=False)
    assert rig.fits(*demand)


def test_09_a_state_is_copied_from_where_it_is() -> None:
    rig = Rig(256, 32, 16, host_units=4)
    states, _ = rig.take(4, 0)
    rig.finish(rig.forward(writes=states))
    rig.arena.free(states[:1])
    rig.arena.move(0, states[3:])
    hosts = rig.arena.reserve_host(0, 1)
    use, _ = rig.backup(states[3:], hosts)
    assert [(start, end) for _, start, end in use.reads] == [(0, 32)]
    enqueued = rig.work[-1]
    assert [(a.start, a.end) for a in enqueued.accesses if a.space == Space.ARENA] == [(0, 32)]
    rig.run()
    assert not rig.races


def test_11_a_load_writes_the_units_its_ids_have_now() -> None:
    rig = Rig(256, 16, 16, host_units=4)
    pages, _ = rig.take(3, 0)
    rig.finish(rig.forward(writes=pages))
    hosts = rig.arena.reserve_host(0, 1)
    rig.finish(rig.backup(pages[2:], hosts))
    rig.arena.free(pages[:1])
    rig.arena.move(0, pages[2:])
    use, _ = rig.load(pages[2:], hosts)
    assert [(start, end) for _, start, end in use.writes] == [(0, 16)]
    rig.run()
    assert not rig.races


def test_12_a_peer_gets_physical_ranges() -> None:
    rig = Rig(256, 16, 16)
    pages, _ = rig.take(4, 0)
    rig.finish(rig.forward(writes=pages))
    rig.arena.free(pages[:1])
    rig.arena.move(0, pages[3:])
    for _, event in rig.arena.outstanding():
        rig.run()
        assert rig.device.query(event)
    rig.finish(rig.forward(reads=pages[3:]))
    use, _ = rig.publish(UseKind.SEND, pages[3:])
    assert [(start, end) for _, start, end in use.reads] == [(0, 16)]


def test_13_a_state_under_a_transfer_does_not_move() -> None:
    for band in (0, 1):
        rig = Rig(256, 16, 16)
        ids = rig.take(*(3 if each == band else 0 for each in (0, 1)))[band]
        rig.finish(rig.forward(writes=ids))
        send = rig.publish(UseKind.SEND, ids[2:])
        rig.arena.free(ids[:1])
        place = rig.place(ids[2])
        assert rig.arena.compact(budget_units=4) in (0, 1)
        assert rig.place(ids[2]) == place, f"band {band}: a unit under a transfer was moved"
        assert refused(rig.arena.move, band, ids[2:])
        rig.run()
        rig.end(send)


def test_14_one_transfer_that_ends_does_not_free_a_unit_under_another() -> None:
    rig = Rig(256, 16, 16)
    pages, _ = rig.take(2, 0)
    rig.finish(rig.forward(writes=pages))
    first = rig.publish(UseKind.SEND, pages[1:])
    second = rig.publish(UseKind.SEND, pages[1:], peer=2)
    rig.arena.free(pages[:1])
    rig.run()
    rig.end(first)
    assert refused(rig.arena.move, 0, pages[1:])
    unit = rig.place(pages[1])
    rig.arena.free(pages[1:])
    assert rig.state(0, unit) == PENDING
    rig.end(second)
    assert rig.arena.snapshot().bands[0].high_unit == rig.arena.snapshot().bands[0].low_unit


def test_15_a_destination_is_fixed_from_its_publication_on() -> None:
    rig = Rig(160, 16, 32, 16)
    _, floats, _ = rig.take(0, 2, 0)
    receive = rig.publish(UseKind.RECEIVE, floats[1:])
    place = rig.place(floats[1])
    answer = rig.arena.allocate((6, 0, 0), writer=UseKind.FORWARD, stream=rig.forwards)
    assert rig.place(floats[1]) == place
    assert isinstance(answer, Blocked) or not rig.moved_bytes()
    rig.run()
    rig.end(receive)


def test_17_a_transfer_of_nothing_is_refused() -> None:
    rig = Rig(128, 16, 16)
    assert refused(rig.arena.publish, UseKind.SEND, [], peer=1)


def test_20_reads_and_writes_are_translated_alike() -> None:
    rig = Rig(256, 16, 16)
    pages, _ = rig.take(4, 0)
    rig.finish(rig.forward(writes=pages))
    rig.arena.free(pages[:2])
    rig.arena.move(0, pages[2:])
    use, event = rig.forward(reads=pages[2:3], writes=pages[3:], stamp=7)
    assert use.buffer >= 0
    touched: list[tuple[int, int]] = []
    rig.device.memory.on_read = lambda _, access, __: touched.append((access.start, access.end))
    undeclared: list[object] = []
    rig.device.memory.on_undeclared = lambda _, access: undeclared.append(access)
    rig.finish((use, event))
    assert not undeclared
    read = {(start, end) for _, start, end in use.reads}
    assert read <= set(touched)
    assert {start for start, _ in read} <= {0, 16}
    assert not rig.races


def test_21_units_that_ask_for_it_are_zeroed_before_their_first_user() -> None:
    rig = Rig(128, 16, 16, zero_bands=(0,))
    low, _ = rig.take(1, 0)
    rig.finish(rig.forward(writes=low, stamp=9))
    rig.arena.free(low)
    again, _ = rig.take(1, 0)
    zeroing = [record for record in rig.work if record.kind == UseKind.ZEROING]
    ((_, start, end),) = rig.arena.resolve(again)
    assert len(zeroing) == 2
    assert [(a.start, a.end) for a in zeroing[1].accesses if a.writes] == [(start, end)]
    rig.finish(rig.forward(reads=again))
    assert not rig.races


def test_24_a_batch_of_moves_is_one_copy_and_asks_no_event() -> None:
    rig = Rig(1024, 16, 16)
    pages, _ = rig.take(20, 0)
    rig.finish(rig.forward(writes=pages))
    rig.arena.free(pages[:8])
    seen: list[object] = []
    rig.device.trace.subscribe(seen.append, (Observe,))
    copies = len([record for record in rig.work if record.kind == UseKind.MOVE])
    assert rig.arena.move(0, pages[12:]) == 8
    assert len([record for record in rig.work if record.kind == UseKind.MOVE]) == copies + 1
    assert not seen


def test_32_a_load_waits_for_the_forward_that_wrote_its_page() -> None:
    rig = Rig(128, 16, 16, host_units=2)
    pages, _ = rig.take(2, 0)
    rig.finish(rig.forward(writes=pages))
    hosts = rig.arena.reserve_host(0, 1)
    rig.finish(rig.backup(pages[:1], hosts))
    use, _ = rig.forward(writes=pages[1:])
    rig.arena.free(pages[1:])
    rig.arena.process(use)
    again, _ = rig.take(1, 0)
    assert rig.place(again[0]) == rig.place(pages[0]) + 1
    rig.load(again, hosts)
    rig.run()
    assert not rig.races


def test_33_a_backup_waits_for_the_writer_and_the_next_writer_for_the_backup() -> None:
    rig = Rig(128, 16, 16, host_units=2)
    pages, _ = rig.take(1, 0)
    rig.forward(writes=pages)
    rig.backup(pages, rig.arena.reserve_host(0, 1))
    assert not rig.races, "the backup reads a page that the forward may still write"
    rig.forward(writes=pages)
    rig.run()
    assert not rig.races, "the forward writes a page that the backup may still read"


def test_45_a_compaction_takes_no_unit_that_it_just_vacated() -> None:
    rig = Rig(512, 16, 16)
    pages, _ = rig.take(12, 0)
    reader = rig.forward(writes=pages)
    rig.finish(reader)
    first = rig.place(pages[0])
    rig.arena.free(pages[:3])
    rig.forward(reads=pages[3:])
    before = {name: rig.place(name) for name in pages[3:]}
    assert rig.arena.compact(budget_units=8) == 3
    after = {name: rig.place(name) for name in pages[3:]}
    moved = {name for name in before if before[name] != after[name]}
    assert {after[name] for name in moved} == {first, first + 1, first + 2}
    assert all(rig.state(0, before[name]) == VACATED for name in moved)
    assert rig.arena.compact(budget_units=8) == 0, "vacated units are no holes yet"
    rig.run()
    assert not rig.races


def test_46_sources_are_holes_only_when_their_readers_and_the_copy_are_over() -> None:
    rig = Rig(512, 16, 16, move_stream="moves")
    pages, _ = rig.take(6, 0)
    rig.finish(rig.forward(writes=pages))
    rig.arena.free(pages[:2])
    places = [rig.place(name) for name in pages[4:]]
    assert rig.arena.move(0, pages[2:4]) == 2
    assert rig.arena.move(0, pages[4:]) == 0, "the sources of the first move are no targets yet"
    assert [rig.place(name) for name in pages[4:]] == places
    for use, event in rig.arena.outstanding():
        if use.kind is UseKind.MOVE:
            rig.run()
            assert rig.device.query(event)
            rig.arena.retire(use)
    assert rig.arena.move(0, pages[4:]) == 2
    rig.run()
    assert not rig.races
