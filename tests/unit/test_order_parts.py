"""The parts of the order oracle: id runs, clocks, cells, the bound on memory, and the report."""

from __future__ import annotations

import json
import random

from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import Enqueue, Observe, Record, TransferBegin, TransferEnd
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import UnitName, feed_all
from onearena.stress.oracles.clocks import Clocks, IdSet
from onearena.stress.oracles.intervals import IntervalShadow, Stamp
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.races import MissingEdge, kind_name


def arena(start: int, end: int, *, writes: bool) -> Access:
    return Access(Space.ARENA, start, end, writes)


# -- id runs --------------------------------------------------------------------------------------


def test_id_set_holds_what_was_added() -> None:
    rng = random.Random(1)
    ids, expected = IdSet(), set()
    for _ in range(2_000):
        value = rng.randrange(300)
        ids.add(value)
        expected.add(value)
        probe = rng.randrange(-5, 305)
        assert (probe in ids) == (probe in expected)
    assert len(ids) == 1 + sum(value + 1 not in expected for value in sorted(expected)[:-1])


def test_id_set_joins_runs() -> None:
    ids = IdSet()
    for value in (1, 3, 5):
        ids.add(value)
    assert len(ids) == 3
    ids.add(2)
    assert len(ids) == 2
    ids.add(4)
    assert len(ids) == 1


# -- clocks ---------------------------------------------------------------------------------------


def test_ticks_count_operations_of_a_stream() -> None:
    clocks = Clocks()
    assert clocks.enqueue(7).clock == [1]
    assert clocks.enqueue(7).clock == [2]
    assert clocks.enqueue(4).clock == [0, 1]
    clocks.record(0, 7, 0)
    assert clocks.wait(4, 0)
    assert clocks.enqueue(4).clock == [2, 2]


def test_ended_transfers_lend_their_component() -> None:
    clocks = Clocks()
    for number in range(50):
        running = clocks.begin_transfer(number)
        assert running.tick == number + 1
        clocks.end_transfer(number)
    assert clocks.components == 1
    two = [clocks.begin_transfer(number) for number in (100, 101)]
    assert two[0].component != two[1].component
    assert clocks.components == 2


def test_events_that_the_host_knows_are_dropped() -> None:
    clocks = Clocks()
    for event in range(10_000):
        clocks.enqueue(event % 3)
        clocks.record(event, event % 3, event)
        if event >= 20:
            assert clocks.observe(event - 20)
    assert clocks.events_kept <= 130
    assert clocks.wait(1, 5)
    assert not clocks.wait(1, 10_000)


# -- cells ----------------------------------------------------------------------------------------


def stamp(order: int, component: int, tick: int) -> Stamp:
    return (order, component, tick, None, 0)


def test_ordered_write_joins_the_cells_it_covers() -> None:
    shadow = IntervalShadow()
    for index in range(10):
        shadow.write(16 * index, 16 * index + 16, stamp(index, 0, index + 1), [index + 1])
    assert shadow.cells == 12
    assert shadow.write(0, 160, stamp(10, 0, 11), [11]) is None
    assert shadow.cells == 3


def test_sweep_keeps_what_the_host_does_not_know() -> None:
    shadow = IntervalShadow()
    shadow.write(0, 16, stamp(0, 0, 1), [1, 0])
    shadow.read(0, 16, stamp(1, 1, 1), [1, 1])
    shadow.write(32, 48, stamp(2, 0, 2), [2, 0])
    shadow.sweep([1, 0])
    assert shadow.write(0, 16, stamp(3, 2, 1), [0, 0, 1]) == stamp(1, 1, 1)
    assert shadow.read(32, 48, stamp(4, 2, 1), [0, 0, 1]) == stamp(2, 0, 2)
    shadow.sweep([2, 1, 1])
    assert shadow.cells == 1


def test_memory_is_bounded_by_what_is_unfinished() -> None:
    """100,000 operations over ever new addresses; the host is 30 operations behind."""
    oracle = OrderOracle()
    for number in range(100_000):
        start = 4_096 * number
        access = arena(start, start + 64, writes=number % 2 == 0)
        assert not oracle.feed(Enqueue(number, number % 4, 0, "", (access,)))
        assert not oracle.feed(Record(number, number % 4))
        if number >= 30:
            assert not oracle.feed(Observe(number - 30))
        if number % 10 == 0:
            sent = arena(start + 64, start + 128, writes=False)
            assert not oracle.feed(TransferBegin(number, int(UseKind.SEND), (sent,)))
            assert not oracle.feed(TransferEnd(number, 1))
        assert oracle.cells <= 2_100
        assert oracle.events_kept <= 130
    assert oracle.accesses == 110_000
    oracle.sweep()
    assert oracle.cells <= 2 * 33 + 4, "33 ranges unfinished, and one cell a space"


# -- reports --------------------------------------------------------------------------------------


def test_report_names_everything() -> None:
    oracle = OrderOracle(locate=lambda space, start, end: UnitName("window", start // 64))
    trace = [
        Enqueue(16, 0, int(UseKind.MOVE), "first", ()),
        Enqueue(17, 2, int(UseKind.FORWARD), "decode", (arena(640, 704, writes=False),)),
        Record(9, 2),
        Enqueue(23, 0, int(UseKind.MOVE), "relayout", (arena(600, 664, writes=True),)),
    ]
    (violation,) = feed_all(oracle, trace)
    assert violation.oracle == "order"
    assert violation.rule == "6"
    assert violation.unit == UnitName("window", 10)
    message = (
        "op 23 is not ordered after op 17 on arena[640:664) (next writer move, earlier use "
        "forward: nothing on the same stream, else event). Missing: stream 0 must wait for an "
        "event recorded on stream 2 at or after op 17 before op 23 (the nearest recorded is "
        "event 9)."
    )
    assert violation.message == message
    assert violation.text().splitlines() == [
        "order: rule 6 broken at window[10], arena[640:664)",
        f"  {message}",
        "  #1 op 17 (forward 'decode', on stream 2) reads arena[640:704)",
        "  #3 op 23 (move 'relayout', on stream 0) writes arena[600:664)",
        "  would have ordered them: wait(stream 0, event 9) before op 23",
    ]
    plain = json.loads(json.dumps(violation.to_json()))
    assert plain["version"] == 1
    assert plain["details"]["edge"] == {
        "need": "event",
        "from_stream": 2,
        "from_number": 17,
        "to_stream": 0,
        "to_number": 23,
        "nearest_event": 9,
    }
    assert plain["details"]["cell"][:3] == ["writer", "move", "forward"]


def test_each_missing_edge_has_words_and_a_fix() -> None:
    edge = MissingEdge("event", 2, 17, 0, 23, None)
    assert edge.words().endswith("before op 23 (none is recorded yet)")
    assert edge.fix() == (
        "record an event on stream 2 after op 17; wait(stream 0, it) before op 23"
    )
    edge = MissingEdge("retire", 2, 17, None, 5, 9)
    assert edge.words() == (
        "the host must see an event recorded on stream 2 at or after op 17 before transfer 5 is "
        "published (the nearest recorded is event 9)"
    )
    assert edge.fix() == "see query(event 9) answer True before transfer 5"
    edge = MissingEdge("transfer_end", None, 3, 0, 23, None)
    assert edge.words() == "the host must see transfer 3 end before op 23 is put on stream 0"
    assert edge.fix() == "see transfer_status(3) final before op 23"
    edge = MissingEdge("transfer_end", None, 3, None, 5, None)
    assert edge.words() == "the host must see transfer 3 end before transfer 5 is published"


def test_kind_names() -> None:
    assert [kind_name(kind) for kind in (0, 7, 16, 17, 99)] == [
        "forward",
        "receive",
        "table_update",
        "translate",
        "kind 99",
    ]
