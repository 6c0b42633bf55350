"""The reference oracle: every cell of rule 6's tables met and missed; needless waits; refusals."""

from __future__ import annotations

import pytest

from onearena.core.answers import Blocked, Blocker
from onearena.core.rules import UseKind
from onearena.stress.oracles.script import STATE, WINDOW, Launched, Script

A, B, C = 101, 102, 103
STREAMED = (UseKind.FORWARD, UseKind.BACKUP, UseKind.LOAD, UseKind.MOVE, UseKind.FORK)
BLOCKED = Blocked((Blocker(STATE, 1, "use"),))


def script(*only: str) -> Script:
    run = Script(only=frozenset(only or ("reference",)))
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    return run


def earlier(run: Script, kind: UseKind, *, writes: bool) -> Launched:
    ids = [A]
    return run.run(kind, 1, () if writes else ids, ids if writes else ())


# -- table one: writers --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STREAMED)
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("writer", [UseKind.FORWARD, UseKind.LOAD])
def test_a_writer_waits_for_every_earlier_use(
    kind: UseKind, writer: UseKind, *, writes: bool
) -> None:
    run = script()
    before = earlier(run, kind, writes=writes)
    run.wait(2, before.event)
    run.run(writer, 2, writes=[A])
    assert run.finish() == set()
    run = script()
    earlier(run, kind, writes=writes)
    run.run(writer, 2, writes=[A])
    assert run.finish() == {("reference", "6")}


@pytest.mark.parametrize("kind", [UseKind.SEND, UseKind.RECEIVE])
def test_a_writer_waits_until_the_host_has_seen_a_transfer_end(kind: UseKind) -> None:
    run = script()
    transfer = run.transfer(kind, [A])
    run.end(transfer)
    run.run(UseKind.FORWARD, 2, writes=[A])
    assert run.finish() == set()
    run = script()
    run.transfer(kind, [A])
    run.run(UseKind.FORWARD, 2, writes=[A])
    assert run.finish() == {("reference", "6")}


@pytest.mark.parametrize("kind", STREAMED)
@pytest.mark.parametrize("writes", [False, True])
def test_a_receive_is_published_after_every_use_has_retired(kind: UseKind, *, writes: bool) -> None:
    run = script()
    run.retire(earlier(run, kind, writes=writes))
    run.transfer(UseKind.RECEIVE, [A])
    assert run.finish() == set()
    run = script()
    before = earlier(run, kind, writes=writes)
    run.settle(before)
    run.transfer(UseKind.RECEIVE, [A])
    assert run.finish() == {("reference", "7")}


def test_a_send_after_a_receive_waits_for_its_end() -> None:
    run = script()
    run.transfer(UseKind.RECEIVE, [A])
    run.transfer(UseKind.SEND, [A])
    assert run.finish() == {("reference", "7")}


# -- table two: readers --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [UseKind.FORWARD, UseKind.LOAD, UseKind.MOVE, UseKind.FORK])
@pytest.mark.parametrize("reader", [UseKind.FORWARD, UseKind.BACKUP])
def test_a_reader_waits_for_every_earlier_write(kind: UseKind, reader: UseKind) -> None:
    run = script()
    before = earlier(run, kind, writes=True)
    run.wait(2, before.event)
    run.run(reader, 2, reads=[A])
    assert run.finish() == set()
    run = script()
    earlier(run, kind, writes=True)
    run.run(reader, 2, reads=[A])
    assert run.finish() == {("reference", "6")}


@pytest.mark.parametrize("kind", STREAMED)
def test_reads_after_reads_wait_for_nothing(kind: UseKind) -> None:
    run = script()
    earlier(run, kind, writes=False)
    run.run(UseKind.FORWARD, 2, reads=[A])
    run.transfer(UseKind.SEND, [A])
    run.run(UseKind.FORWARD, 3, reads=[A])
    assert run.finish() == set()


def test_a_send_waits_until_the_host_has_seen_the_write_end() -> None:
    run = script()
    run.retire(run.forward(1, writes=[A]))
    run.transfer(UseKind.SEND, [A])
    assert run.finish() == set()
    run = script()
    run.forward(1, writes=[A])
    run.transfer(UseKind.SEND, [A])
    assert run.finish() == {("reference", "7")}


def test_nothing_is_waited_for_on_the_same_stream() -> None:
    run = script()
    run.forward(1, writes=[A])
    run.forward(1, reads=[A])
    run.forward(1, writes=[A])
    assert run.finish() == set()


def test_a_wait_may_be_implied_by_another() -> None:
    run = script()
    first = run.forward(1, writes=[A])
    run.wait(2, first.event)
    second = run.forward(2, reads=[A])
    run.wait(3, second.event)
    run.forward(3, writes=[A])
    assert run.finish() == set()


def test_every_use_counts_and_not_the_latest_alone() -> None:
    run = script()
    run.forward(1, reads=[A])
    second = run.forward(2, reads=[A])
    run.wait(3, second.event)
    run.forward(3, writes=[A])
    assert run.finish() == {("reference", "6")}


def test_what_the_host_has_seen_needs_no_wait() -> None:
    run = script()
    run.retire(run.forward(1, writes=[A]))
    run.forward(2, writes=[A])
    assert run.finish() == set()


def test_the_wait_belongs_to_every_next_writer_also_of_another_band() -> None:
    run = script()
    before = run.forward(1, reads=[B])
    run.call("free", (B,))
    run.grant({C: (WINDOW, 5)})
    run.wait(2, before.event)
    run.forward(2, writes=[C])
    assert run.finish() == set()
    run.forward(3, writes=[C])
    assert run.finish() == {("reference", "6")}


def test_host_units_are_under_the_same_tables() -> None:
    run = script()
    run.call("reserve_host", 0, 1, answer=(1,))
    backup = run.launch(run.record(UseKind.BACKUP, 1, [A], host_writes=[1]))
    run.wait(2, backup.event)
    run.launch(run.record(UseKind.LOAD, 2, writes=[B], host_reads=[1]))
    assert run.finish() == set()
    run.launch(run.record(UseKind.BACKUP, 3, [A], host_writes=[1]))
    assert run.finish() == {("reference", "6")}


# -- the system's own work -----------------------------------------------------------------------


def test_a_move_is_ordered_after_the_writer_of_its_source() -> None:
    run = script()
    before = run.forward(1, writes=[B])
    run.wait(0, before.event)
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.call("move", STATE, (B,), answer=1)
    assert run.finish() == set()
    run = script()
    run.forward(1, writes=[B])
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.call("move", STATE, (B,), answer=1)
    assert run.finish() == {("reference", "6")}


def test_a_move_needs_no_wait_for_readers_of_its_source() -> None:
    run = script()
    run.forward(1, reads=[B])
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.call("move", STATE, (B,), answer=1)
    assert run.finish() == set()


def test_a_destination_is_a_write_like_any_other() -> None:
    run = script()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    run.move_copy(0, (STATE, 2), (STATE, 1))
    run.call("move", STATE, (B,), answer=1)
    assert run.finish() == {("reference", "6")}


def test_a_forward_waits_for_the_copy_that_moved_its_unit() -> None:
    run = script()
    copied = run.move_copy(0, (STATE, 2), (STATE, 3))
    run.units[B] = (STATE, 3)
    run.call("move", STATE, (B,), answer=1)
    run.wait(1, copied)
    run.forward(1, reads=[B])
    assert run.finish() == set()
    run.forward(2, reads=[B])
    assert run.finish() == {("reference", "6")}


def test_zeroing_comes_after_the_old_uses() -> None:
    run = script()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    run.own(UseKind.ZEROING, 0, (0, 64, True))
    run.grant({C: (STATE, 1)})
    assert run.finish() == {("reference", "6")}


# -- refusals ------------------------------------------------------------------------------------


def test_blocked_while_the_host_has_not_seen_an_end() -> None:
    run = script()
    forward = run.forward(1, writes=[A])
    run.call("publish", UseKind.SEND, (A,), 1, answer=BLOCKED)
    run.observe(forward.event)
    run.call("publish", UseKind.SEND, (A,), 1, answer=BLOCKED)
    assert run.finish() == set()
    run.retire(forward)
    run.call("publish", UseKind.SEND, (A,), 1, answer=BLOCKED)
    assert run.finish() == {("reference", "7")}


def test_a_forward_is_blocked_by_a_transfer_alone() -> None:
    run = script()
    receive = run.transfer(UseKind.RECEIVE, [A])
    run.call("record", UseKind.FORWARD, 1, (A,), (), (), (), answer=BLOCKED)
    assert run.finish() == set()
    run.end(receive)
    run.call("record", UseKind.FORWARD, 1, (A,), (), (), (), answer=BLOCKED)
    assert run.finish() == {("reference", "6")}


def test_stream_work_never_blocks_a_forward() -> None:
    run = script()
    run.forward(1, writes=[A])
    run.call("record", UseKind.FORWARD, 2, (A,), (), (), (), answer=BLOCKED)
    assert run.finish() == {("reference", "6")}


# -- needless waits ------------------------------------------------------------------------------


def test_a_wait_for_a_reader_by_a_reader_is_needless() -> None:
    run = script()
    before = run.forward(1, reads=[A])
    run.wait(2, before.event)
    run.forward(2, reads=[A])
    assert run.finish() == {("economy", "6")}


def test_a_wait_for_a_use_of_other_units_is_needless() -> None:
    run = script()
    before = run.forward(1, writes=[A])
    run.wait(2, before.event)
    run.forward(2, writes=[B])
    assert run.finish() == {("economy", "6")}


def test_a_second_wait_for_the_same_is_needless() -> None:
    run = script()
    before = run.forward(1, writes=[A])
    run.wait(2, before.event)
    run.wait(2, before.event)
    run.forward(2, writes=[A])
    assert run.finish() == {("economy", "6")}


def test_a_wait_for_table_updates_of_the_schedule_stream_is_not_judged() -> None:
    run = script()
    table = run.own(UseKind.ZEROING, 0)
    run.call("compact", 0, answer=0)
    run.wait(2, table)
    run.forward(2, writes=[B])
    assert run.finish() == set()


# -- opportunistic moves -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compact", "move"])
def test_only_a_needed_move_waits_for_a_writer_of_its_source(name: str) -> None:
    run = script()
    before = run.forward(1, writes=[B])
    run.wait(0, before.event)
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.call(name, *((1,) if name == "compact" else (STATE, (B,))), answer=1)
    assert run.finish() == ({("economy", "4")} if name == "compact" else set())


def test_an_opportunistic_move_takes_a_source_with_readers_or_retired_writers() -> None:
    run = script()
    run.retire(run.forward(1, writes=[B]))
    run.forward(2, reads=[B])
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.call("compact", 1, answer=1)
    assert run.finish() == set()
