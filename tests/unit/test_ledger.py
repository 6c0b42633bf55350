"""The ledger's answers for hand-made programs, from the rules of the specification's section 5."""

from __future__ import annotations

import numpy as np
import pytest

from onearena.core.errors import MisuseError
from onearena.core.ledger import OUTSTANDING_MAX, STREAMS_MAX, Ledger, Touch, UseRecord
from onearena.core.rules import UseKind

SCHEDULE, F0, F1, COPY = range(4)


def units(*numbers: int) -> tuple[Touch, ...]:
    return ((0, np.array(numbers, np.int64)),)


class Driver:
    """A ledger with its streams; `use` makes the waits it is told to make, records and closes."""

    def __init__(self) -> None:
        self.ledger = Ledger([64, 64], schedule_stream=SCHEDULE)
        for stream in (F0, F1, COPY):
            self.ledger.require_stream(stream)
        self.events = 0

    def use(
        self,
        kind: UseKind,
        stream: int,
        reads: tuple[Touch, ...] = (),
        writes: tuple[Touch, ...] = (),
    ) -> tuple[UseRecord, tuple[tuple[int, int], ...]]:
        needs = self.ledger.needs(kind, stream, reads, writes)
        assert not needs.blockers
        for other, ticket in needs.waits:
            self.ledger.note_wait(stream, other, ticket)
        record = self.ledger.open(kind, stream, reads, writes)
        self.events += 1
        self.ledger.close(record, self.events)
        return record, needs.waits


def test_same_stream_needs_nothing_and_another_stream_an_event() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, writes=units(5))
    assert driver.use(UseKind.FORWARD, F0, reads=units(5))[1] == ()
    assert driver.use(UseKind.FORWARD, F1, reads=units(5))[1] == ((F0, 1),)


def test_reads_after_reads_wait_for_nothing() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, reads=units(5))
    assert driver.use(UseKind.BACKUP, COPY, reads=units(5))[1] == ()


def test_a_writer_waits_for_reads_too_and_for_each_stream_once() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, reads=units(5))
    driver.use(UseKind.FORWARD, F0, reads=units(5, 6))
    driver.use(UseKind.BACKUP, COPY, reads=units(6))
    assert driver.use(UseKind.LOAD, F1, writes=units(5, 6))[1] == ((F0, 2), (COPY, 1))


def test_a_wait_that_another_wait_implies_is_not_asked_for() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, writes=units(5))
    driver.use(UseKind.MOVE, COPY, reads=units(5), writes=units(6))  # waits for F0
    # F1 writes 5: last write by F0, last read by COPY, whose event implies F0's.
    assert driver.use(UseKind.FORWARD, F1, writes=units(5))[1] == ((COPY, 1),)


def test_waits_are_remembered_transitively() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, writes=units(5))
    driver.use(UseKind.MOVE, COPY, reads=units(5), writes=units(6))
    driver.use(UseKind.FORWARD, F1, reads=units(6))  # waits for COPY, so knows F0's write
    assert driver.use(UseKind.FORWARD, F1, writes=units(5))[1] == ()


def test_settling_ends_a_use_for_the_schedule_stream_and_for_nobody_else() -> None:
    driver = Driver()
    record, _ = driver.use(UseKind.FORWARD, F0, reads=units(5))
    over, pending = driver.ledger.watch(0, np.array([5], np.int64))
    assert (len(over), pending.tolist()) == (0, [5])
    driver.ledger.note_wait(SCHEDULE, F0, record.ticket)
    released = driver.ledger.settled_units()
    assert [(domain, list(some)) for domain, some in released] == [(0, [5])]
    assert driver.use(UseKind.FORWARD, F1, writes=units(5))[1] == ((F0, 1),)


def test_a_freed_unit_waits_for_every_use_not_just_the_latest() -> None:
    driver = Driver()
    first, _ = driver.use(UseKind.FORWARD, F0, reads=units(5))
    second, _ = driver.use(UseKind.FORWARD, F1, reads=units(5))
    driver.ledger.watch(0, np.array([5], np.int64))
    assert driver.ledger.retire(second) == []
    assert [list(some) for _, some in driver.ledger.retire(first)] == [[5]]


def test_processing_is_exact_and_retires_nothing() -> None:
    driver = Driver()
    first, _ = driver.use(UseKind.FORWARD, F0, reads=units(5))
    second, _ = driver.use(UseKind.FORWARD, F0, reads=units(6))
    driver.ledger.watch(0, np.array([5, 6], np.int64))
    assert [list(some) for _, some in driver.ledger.process(second)] == [[6]]
    assert [list(some) for _, some in driver.ledger.process(first)] == [[5]]
    assert driver.use(UseKind.FORWARD, F1, writes=units(5))[1] == ((F0, 1),)


@pytest.mark.parametrize("kind", [UseKind.SEND, UseKind.RECEIVE])
def test_units_under_a_transfer_block_whoever_only_the_host_could_order(kind: UseKind) -> None:
    driver = Driver()
    sending = kind is UseKind.SEND
    transfer = driver.ledger.open_transfer(
        kind, units(5) if sending else (), () if sending else units(5)
    )
    driver.ledger.close_transfer(transfer, 1)
    assert driver.ledger.needs(UseKind.FORWARD, F0, (), units(5)).blockers == ((0, 5, "transfer"),)
    reading = driver.ledger.needs(UseKind.FORWARD, F0, units(5), ())
    assert bool(reading.blockers) == (not sending)
    driver.ledger.end_transfer(transfer)
    assert not driver.ledger.needs(UseKind.FORWARD, F0, (), units(5)).blockers


def test_a_receive_is_published_only_after_every_use_is_retired() -> None:
    driver = Driver()
    record, _ = driver.use(UseKind.FORWARD, F0, reads=units(5))
    driver.ledger.process(record)
    driver.ledger.note_wait(SCHEDULE, F0, record.ticket)
    driver.ledger.settled_units()
    assert driver.ledger.needs(UseKind.RECEIVE, -1, (), units(5)).blockers == ((0, 5, "use"),)
    assert not driver.ledger.needs(UseKind.SEND, -1, units(5), ()).blockers
    driver.ledger.retire(record)
    assert not driver.ledger.needs(UseKind.RECEIVE, -1, (), units(5)).blockers


def test_fenced_uses_reach_the_unit_of_another_grid_that_grows_over_them() -> None:
    driver = Driver()
    record, _ = driver.use(UseKind.FORWARD, F0, reads=units(3))
    driver.ledger.fence(0, 3, 4, origin=0, size=32)  # bytes [96, 128)
    assert [(f.start_bytes, f.end_bytes) for f in driver.ledger.fences] == [(96, 128)]
    driver.ledger.overgrow(1, 1, 2, origin=16, size=96)  # bytes [112, 208)
    assert [(f.start_bytes, f.end_bytes) for f in driver.ledger.fences] == [(96, 112)]
    needs = driver.ledger.needs(UseKind.FORWARD, F1, (), ((1, np.array([1], np.int64)),))
    assert needs.waits == ((F0, record.ticket),)
    driver.ledger.retire(record)
    assert len(driver.ledger.fences) == 0


def test_uses_inherited_from_a_fence_go_back_to_its_bytes_and_own_ones_to_the_whole_unit() -> None:
    driver = Driver()
    driver.use(UseKind.BACKUP, COPY, reads=units(3))
    driver.ledger.fence(0, 3, 4, origin=0, size=32)  # bytes [96, 128)
    # Unit 0 of another band, bytes [64, 192), grows over them, is used, and leaves again.
    driver.ledger.overgrow(1, 0, 1, origin=64, size=128)
    assert len(driver.ledger.fences) == 0
    driver.use(UseKind.FORWARD, F0, writes=((1, np.array([0], np.int64)),))
    driver.ledger.fence(1, 0, 1, origin=64, size=128)
    assert [(f.start_bytes, f.end_bytes) for f in driver.ledger.fences] == [
        (64, 96),
        (96, 128),
        (128, 192),
    ]
    # Units [128, 144) and [112, 128) of 16 bytes: only the second lies on what the backup reads.
    driver.ledger.overgrow(1, 7, 9, origin=0, size=16)
    later = ((1, np.array([8], np.int64)),)
    assert driver.ledger.needs(UseKind.FORWARD, F1, (), later).waits == ((F0, 1),)
    later = ((1, np.array([7], np.int64)),)
    # The forward waited for the backup itself, so its event brings both.
    assert driver.ledger.needs(UseKind.FORWARD, F1, (), later).waits == ((F0, 1),)
    assert driver.ledger.last[1][7, 2 * COPY] != 0
    assert driver.ledger.last[1][8, 2 * COPY] == 0


def test_a_unit_that_only_inherited_leaves_a_fence_of_the_inherited_bytes() -> None:
    driver = Driver()
    record, _ = driver.use(UseKind.BACKUP, COPY, reads=units(3))
    driver.ledger.fence(0, 3, 4, origin=0, size=32)
    driver.ledger.overgrow(1, 0, 1, origin=64, size=128)
    driver.ledger.fence(1, 0, 1, origin=64, size=128)
    assert [(f.start_bytes, f.end_bytes) for f in driver.ledger.fences] == [(96, 128)]
    driver.ledger.overgrow(1, 0, 1, origin=64, size=128)
    driver.ledger.settle(record)
    driver.ledger.retire(record)
    driver.ledger.fence(1, 0, 1, origin=64, size=128)
    assert len(driver.ledger.fences) == 0
    assert len(driver.ledger.inherited) == 0


def test_an_event_not_yet_recorded_is_not_waited_for() -> None:
    driver = Driver()
    record = driver.ledger.open(UseKind.FORWARD, F0, (), units(5))
    with pytest.raises(MisuseError, match="not enqueued"):
        driver.ledger.note_wait(F1, F0, record.ticket)


def test_what_the_host_saw_by_implication_needs_no_wait() -> None:
    driver = Driver()
    driver.use(UseKind.FORWARD, F0, writes=units(5))
    late, _ = driver.use(UseKind.MOVE, COPY, reads=units(5), writes=units(6))
    driver.ledger.retire(late)
    assert driver.use(UseKind.FORWARD, F1, writes=units(5))[1] == ()


def test_a_stream_that_retires_its_uses_never_runs_out_and_one_that_does_not_is_refused() -> None:
    driver = Driver()
    for _ in range(OUTSTANDING_MAX):
        driver.ledger.retire(driver.use(UseKind.FORWARD, F0, reads=units(5))[0])
    for _ in range(OUTSTANDING_MAX - 1):  # with one more, rows of one ring would meet
        driver.use(UseKind.FORWARD, F0, reads=units(5))
    with pytest.raises(MisuseError, match="retire some first"):
        driver.use(UseKind.FORWARD, F0, reads=units(5))


def test_the_ledger_keeps_one_read_and_one_write_word_a_unit_and_stream_and_no_more() -> None:
    assert [rows.shape for rows in Driver().ledger.last] == [(64, 2 * STREAMS_MAX)] * 2
