"""The order oracle on hand-written traces: each edge of happens-before, with and without it."""

from __future__ import annotations

import pytest

from onearena.core.device.interface import Access, OpKind, Space, TransferStatus
from onearena.core.device.trace import (
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    TraceRecord,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import feed_all
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.races import MissingEdge, Race

FORWARD, MOVE = int(UseKind.FORWARD), int(UseKind.MOVE)
SEND, RECEIVE = int(UseKind.SEND), int(UseKind.RECEIVE)
DONE = int(TransferStatus.DONE)


def reads(start: int, end: int, space: Space = Space.ARENA) -> Access:
    return Access(space, start, end, False)


def writes(start: int, end: int, space: Space = Space.ARENA) -> Access:
    return Access(space, start, end, True)


def op(number: int, stream: int, *accesses: Access, kind: int = FORWARD) -> Enqueue:
    return Enqueue(number, stream, kind, f"op{number}", accesses)


def races(*records: TraceRecord) -> list[Race]:
    oracle = OrderOracle(multiple=True)
    violations = feed_all(oracle, records)
    assert len(violations) == len(oracle.races)
    return oracle.races


def pairs(*records: TraceRecord) -> list[tuple[int, int, int, int]]:
    """(earlier number, later number, start, end) of each race."""
    return [
        (race.earlier.number, race.later.number, race.start_bytes, race.end_bytes)
        for race in races(*records)
    ]


# -- streams and events ---------------------------------------------------------------------------


def test_same_stream_is_ordered() -> None:
    assert not pairs(op(0, 0, writes(0, 64)), op(1, 0, writes(0, 64)), op(2, 0, reads(0, 64)))


def test_two_streams_without_a_wait_race() -> None:
    assert pairs(op(0, 0, writes(0, 64)), op(1, 1, reads(0, 64))) == [(0, 1, 0, 64)]


def test_wait_on_a_later_event_orders() -> None:
    first, second = op(0, 0, writes(0, 64)), op(1, 1, reads(0, 64))
    assert not pairs(first, Record(5, 0), WaitEvent(1, 5), second)
    assert pairs(first, Record(5, 0), second) == [(0, 1, 0, 64)]


def test_event_recorded_before_the_operation_does_not_cover_it() -> None:
    trace = [Record(5, 0), op(0, 0, writes(0, 64)), WaitEvent(1, 5), op(1, 1, reads(0, 64))]
    (race,) = races(*trace)
    assert race.edge == MissingEdge("event", 0, 0, 1, 1, None)


def test_wait_put_after_the_operation_comes_too_late() -> None:
    trace = [op(0, 0, writes(0, 64)), Record(5, 0), op(1, 1, reads(0, 64)), WaitEvent(1, 5)]
    (race,) = races(*trace, op(2, 1, reads(0, 64)))
    assert (race.later.number, race.edge) == (1, MissingEdge("event", 0, 0, 1, 1, 5))


def test_wait_of_another_stream_does_not_help() -> None:
    trace = [op(0, 0, writes(0, 64)), Record(5, 0), WaitEvent(2, 5), op(1, 1, reads(0, 64))]
    assert pairs(*trace) == [(0, 1, 0, 64)]


def test_wait_is_transitive_through_a_third_stream() -> None:
    first, last = op(0, 0, writes(0, 64)), op(1, 2, writes(0, 64))
    through = [Record(5, 0), WaitEvent(1, 5), Record(6, 1), WaitEvent(2, 6)]
    assert not pairs(first, *through, last)
    # The second event, recorded before its stream waited, implies nothing about the first.
    early = [Record(5, 0), Record(6, 1), WaitEvent(1, 5), WaitEvent(2, 6)]
    assert pairs(first, *early, last) == [(0, 1, 0, 64)]


def test_an_event_carries_what_its_stream_waited_for() -> None:
    trace = [op(0, 0, writes(0, 8)), Record(1, 0), WaitEvent(1, 1), op(1, 1, writes(8, 16))]
    trace += [Record(2, 1), WaitEvent(2, 2), op(2, 2, reads(0, 16))]
    assert not pairs(*trace)


def test_reused_event_stands_for_its_latest_recording() -> None:
    first, second = op(0, 0, writes(0, 64)), op(1, 1, reads(0, 64))
    (race,) = races(first, Record(5, 0), Record(5, 2), WaitEvent(1, 5), second)
    assert race.edge.nearest_event is None
    assert not pairs(first, Record(5, 2), Record(5, 0), WaitEvent(1, 5), second)


def test_wait_before_the_event_is_reused_keeps_its_meaning() -> None:
    first, second = op(0, 0, writes(0, 64)), op(1, 1, reads(0, 64))
    assert not pairs(first, Record(5, 0), WaitEvent(1, 5), Record(5, 2), second)


def test_nearest_event_is_the_first_at_or_after_the_operation() -> None:
    trace = [Record(1, 0), op(0, 0, writes(0, 64)), Record(2, 3), Record(3, 0), Record(4, 0)]
    (race,) = races(*trace, op(1, 1, reads(0, 64)))
    assert race.edge.nearest_event == 3


# -- the host -------------------------------------------------------------------------------------


def test_observe_orders_all_that_is_enqueued_later_on_any_stream() -> None:
    first = [op(0, 0, writes(0, 64)), Record(5, 0)]
    later = [op(1, 1, reads(0, 64)), op(2, 2, reads(0, 64))]
    assert not pairs(*first, Observe(5), *later)
    assert pairs(*first, later[0], Observe(5), later[1]) == [(0, 1, 0, 64)]


def test_observe_covers_what_the_event_covers_and_no_more() -> None:
    trace = [op(0, 0, writes(0, 8)), Record(5, 0), op(1, 0, writes(8, 16)), Observe(5)]
    assert pairs(*trace, op(2, 1, reads(0, 16))) == [(1, 2, 8, 16)]


def test_enqueueing_orders_nothing_by_itself() -> None:
    """That the host put one operation after the other says nothing about when they run."""
    trace = [op(0, 0, writes(0, 8)), Record(1, 0), op(1, 1, reads(8, 16)), Record(2, 1)]
    assert pairs(*trace, Observe(2), op(2, 2, writes(0, 16))) == [(0, 2, 0, 8)]


def test_a_wait_of_no_observed_event_is_still_a_wait() -> None:
    """An event the host forgot because it has seen it may still be waited for."""
    trace = [op(0, 0, writes(0, 64)), Record(5, 0), Observe(5)]
    oracle = OrderOracle()
    for record in trace:
        assert not oracle.feed(record)
    oracle.sweep()
    assert oracle.events_kept == 0
    assert not oracle.feed(WaitEvent(1, 5))
    assert not oracle.feed(op(1, 1, reads(0, 64)))


# -- accesses -------------------------------------------------------------------------------------


def test_reads_never_race() -> None:
    assert not pairs(op(0, 0, reads(0, 64)), op(1, 1, reads(0, 64)), op(2, 2, reads(32, 96)))


def test_partial_overlap_by_one_byte() -> None:
    assert pairs(op(0, 0, writes(0, 64)), op(1, 1, reads(63, 128))) == [(0, 1, 63, 64)]
    assert not pairs(op(0, 0, writes(0, 64)), op(1, 1, reads(64, 128)))
    assert pairs(op(0, 0, writes(64, 128)), op(1, 1, reads(0, 65))) == [(0, 1, 64, 65)]
    assert not pairs(op(0, 0, writes(64, 128)), op(1, 1, reads(0, 64)))


def test_empty_access_touches_nothing() -> None:
    assert not pairs(op(0, 0, writes(0, 64)), op(1, 1, writes(32, 32)))


def test_accesses_of_one_operation_do_not_race() -> None:
    assert not pairs(op(0, 0, writes(0, 64), reads(0, 64), writes(32, 96)))
    begin = TransferBegin(0, RECEIVE, (writes(0, 64), writes(32, 96)))
    assert not pairs(begin, TransferEnd(0, DONE))


def test_read_again_after_a_write_on_the_same_stream() -> None:
    """The write is new: whoever only waited for the first read races with the write."""
    trace = [op(0, 0, reads(0, 64)), Record(1, 0), op(1, 0, writes(0, 64)), op(2, 0, reads(0, 64))]
    (race,) = races(*trace, WaitEvent(1, 1), op(3, 1, reads(0, 64)))
    assert (race.earlier.number, race.earlier.writes) == (1, True)
    (race,) = races(*trace, WaitEvent(1, 1), op(3, 1, writes(0, 64)))
    assert (race.earlier.number, race.earlier.writes) == (2, False)


def test_write_must_follow_every_reader_not_only_the_last() -> None:
    trace = [op(0, 0, reads(0, 64)), op(1, 1, reads(0, 64)), Record(1, 1), WaitEvent(2, 1)]
    assert pairs(*trace, op(2, 2, writes(0, 64))) == [(0, 2, 0, 64)]


def test_first_pair_takes_the_latest_earlier_access() -> None:
    trace = [op(0, 0, writes(0, 64)), op(1, 1, writes(128, 192)), op(2, 2, reads(0, 192))]
    oracle = OrderOracle()
    assert len(feed_all(oracle, trace)) == 1
    (race,) = oracle.races
    assert (race.earlier.number, race.start_bytes, race.end_bytes) == (1, 128, 192)


def test_first_pair_takes_the_earliest_later_access() -> None:
    later = op(2, 2, reads(200, 300), reads(32, 64), reads(0, 32))
    (first, second) = races(op(0, 0, writes(0, 64)), later)
    assert (first.later.position, first.start_bytes) == (1, 32)
    assert (second.later.position, second.start_bytes) == (2, 0)


def test_stops_after_the_first_report_unless_told_otherwise() -> None:
    trace = [op(0, 0, writes(0, 64)), op(1, 1, reads(0, 64)), op(2, 2, reads(0, 64))]
    assert len(feed_all(OrderOracle(), trace)) == 1
    assert len(feed_all(OrderOracle(multiple=True), trace)) == 2


def test_spaces_are_apart() -> None:
    for space in Space:
        for other in Space:
            found = pairs(op(0, 0, writes(0, 64, space)), op(1, 1, reads(0, 64, other)))
            assert bool(found) == (space is other)


def test_sinks_are_exempt_to_the_byte() -> None:
    trace = [op(0, 0, writes(-64, 0)), op(1, 1, writes(-64, 0))]
    assert not pairs(*trace)
    assert pairs(op(0, 0, writes(-64, 1)), op(1, 1, writes(-64, 8))) == [(0, 1, 0, 1)]
    negative_host = [op(0, 0, writes(-64, 0, Space.HOST)), op(1, 1, writes(-64, 0, Space.HOST))]
    assert pairs(*negative_host) == [(0, 1, -64, 0)]


def test_units_of_two_bands_of_unequal_units_over_the_same_bytes() -> None:
    """A band of 48-byte units retreats; one of 80-byte units grows over its three units."""
    old = op(0, 0, writes(0, 48), writes(48, 96), writes(96, 144))
    new = [op(1, 1, writes(0, 80)), op(2, 1, writes(80, 160))]
    found = races(old, *new)
    assert [
        (race.earlier.position, race.later.number, race.start_bytes, race.end_bytes)
        for race in found
    ] == [(1, 1, 48, 80), (2, 2, 96, 144)]
    assert not pairs(old, Record(1, 0), WaitEvent(1, 1), *new)


# -- transfers ------------------------------------------------------------------------------------


def test_transfer_is_ordered_by_no_stream() -> None:
    begin, end = TransferBegin(0, RECEIVE, (writes(0, 64),)), TransferEnd(0, DONE)
    later = op(1, 0, reads(0, 64))
    assert not pairs(begin, end, later)
    (race,) = races(begin, later, end)
    assert race.edge == MissingEdge("transfer_end", None, 0, 0, 1, None)
    assert (race.rule, race.cell) == (
        "6",
        ("reader", "forward", "receive", "host has seen it end, then launch"),
    )


def test_publish_needs_the_host_to_have_seen_every_use() -> None:
    first, begin = op(0, 0, reads(0, 64)), TransferBegin(1, RECEIVE, (writes(0, 64),))
    assert not pairs(first, Record(7, 0), Observe(7), begin)
    (race,) = races(first, Record(7, 0), WaitEvent(1, 7), begin)
    assert race.edge == MissingEdge("retire", 0, 0, None, 1, 7)
    assert (race.rule, race.cell) == (
        "7",
        ("writer", "receive", "forward", "retired before the range is published"),
    )


def test_send_needs_the_host_to_have_seen_every_write() -> None:
    begin = TransferBegin(1, SEND, (reads(0, 64),))
    assert not pairs(op(0, 0, reads(0, 64)), begin)
    (race,) = races(op(0, 0, writes(0, 64), kind=MOVE), begin)
    assert (race.rule, race.cell) == ("7", ("reader", "send", "move", "host has seen it end"))


def test_transfer_against_transfer() -> None:
    one, two = (TransferBegin(n, RECEIVE, (writes(0, 64),)) for n in (0, 1))
    end = TransferEnd(0, DONE)
    assert not pairs(one, end, two)
    (race,) = races(one, two, end)
    assert race.edge == MissingEdge("transfer_end", None, 0, None, 1, None)
    sends = [TransferBegin(n, SEND, (reads(0, 64),)) for n in (0, 1)]
    assert not pairs(*sends)
    assert pairs(sends[0], two) == [(0, 1, 0, 64)]


def test_component_of_an_ended_transfer_is_lent_again() -> None:
    """The second transfer gets the first one's component, yet who knew the first only races."""
    first = [TransferBegin(0, RECEIVE, (writes(0, 64),)), TransferEnd(0, DONE)]
    known = [op(1, 0, reads(0, 64)), Record(1, 0)]
    second = TransferBegin(2, RECEIVE, (writes(64, 128),))
    trace = [*first, *known, second, WaitEvent(1, 1)]
    assert pairs(*trace, op(3, 1, reads(0, 128))) == [(2, 3, 64, 128)]


def test_end_of_one_transfer_says_nothing_of_another() -> None:
    trace = [TransferBegin(n, RECEIVE, (writes(64 * n, 64 * n + 64),)) for n in (0, 1)]
    assert pairs(*trace, TransferEnd(0, DONE), op(2, 0, reads(0, 128))) == [(1, 2, 64, 128)]


def test_transfer_end_is_seen_by_all_streams() -> None:
    trace = [op(9, 0), TransferBegin(0, RECEIVE, (writes(0, 64),)), TransferEnd(0, DONE)]
    assert not pairs(*trace, *(op(1 + n, n, reads(0, 64)) for n in range(3)))


# -- rule 8, rule 9, malformed traces -------------------------------------------------------------


def test_id_table_and_buffer_fall_under_rule_nine() -> None:
    for space, kind in ((Space.TABLE, OpKind.TABLE_UPDATE), (Space.BUFFER, OpKind.TRANSLATE)):
        update = op(0, 2, writes(8, 16, space), kind=int(kind))
        (race,) = races(update, op(1, 0, reads(8, 16, space)))
        assert (race.rule, race.cell) == ("9", None)
        assert not pairs(update, Record(1, 2), WaitEvent(0, 1), op(1, 0, reads(8, 16, space)))


@pytest.mark.parametrize("record", [WaitEvent(0, 3), Observe(3)])
def test_event_that_was_never_recorded(record: TraceRecord) -> None:
    violations = feed_all(OrderOracle(), [op(0, 0), Record(2, 0), record])
    assert [(violation.rule, violation.details) for violation in violations] == [
        ("8", {"event": 3, "index": 2})
    ]


def test_records_of_execution_change_nothing() -> None:
    trace = [op(0, 0, writes(0, 64)), Start(0), Effect(0, 0, (writes(0, 64),)), End(0)]
    (race,) = races(*trace, op(1, 1, reads(0, 64)))
    assert (race.earlier.index, race.later.index) == (0, 1)


def test_malformed_traces_are_refused() -> None:
    begin = TransferBegin(0, SEND, ())
    for trace in (
        [begin, begin],
        [TransferEnd(0, DONE)],
        [begin, TransferEnd(0, DONE), TransferEnd(0, DONE)],
        [op(0, 0, Access(Space.ARENA, 8, 4, True))],
        [op(0, 0, Access(Space.ARENA, 0, (1 << 62) + 1, True))],
    ):
        with pytest.raises(ValueError, match=r"transfer 0|no byte range"):
            feed_all(OrderOracle(), trace)
