"""Which cells of rule 6 a run put to the test, counted by the order oracle."""

from __future__ import annotations

from onearena.core.device.interface import Access, OpKind, Space
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TraceRecord,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import feed_all
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.table_reach import TableReach


def op(number: int, stream: int, kind: int, *accesses: Access) -> Enqueue:
    return Enqueue(number, stream, int(kind), "", accesses)


def writes(start: int, end: int, space: Space = Space.ARENA) -> Access:
    return Access(space, start, end, True)


def reads(start: int, end: int, space: Space = Space.ARENA) -> Access:
    return Access(space, start, end, False)


def cells(*records: TraceRecord) -> dict[str, int]:
    reach = TableReach()
    assert not feed_all(OrderOracle(reach=reach), records)
    return reach.counts()


FIRST = op(0, 0, UseKind.FORWARD, writes(0, 64))
ORDERED = (Record(1, 0), WaitEvent(1, 1))


def test_a_writer_meets_writes_and_reads() -> None:
    copy = op(1, 1, UseKind.MOVE, writes(32, 96))
    assert cells(FIRST, *ORDERED, copy) == {"cell.writer.move.forward": 1}
    read = op(0, 0, UseKind.BACKUP, reads(0, 64))
    assert cells(read, *ORDERED, copy) == {"cell.writer.move.backup": 1}


def test_a_reader_meets_writes_only() -> None:
    read = op(1, 1, UseKind.BACKUP, reads(63, 64), writes(0, 96, Space.HOST))
    assert cells(FIRST, *ORDERED, read) == {"cell.reader.backup.forward": 1}
    first = op(0, 0, UseKind.FORWARD, reads(0, 64))
    assert cells(first, *ORDERED, read) == {}


def test_the_same_stream_is_counted_apart() -> None:
    again = op(1, 0, UseKind.FORWARD, reads(0, 64), writes(0, 64))
    assert cells(FIRST, again) == {
        "cell.reader.forward.forward.stream": 1,
        "cell.writer.forward.forward.stream": 1,
    }


def test_a_cell_counts_once_an_operation() -> None:
    more = op(1, 1, UseKind.FORWARD, reads(0, 16), reads(16, 32), reads(48, 64))
    again = op(2, 1, UseKind.FORWARD, reads(0, 16))
    assert cells(FIRST, *ORDERED, more) == {"cell.reader.forward.forward": 1}
    assert cells(FIRST, *ORDERED, more, again) == {"cell.reader.forward.forward": 2}


def test_a_retired_use_is_no_test() -> None:
    later = op(1, 1, UseKind.FORWARD, writes(0, 64))
    assert cells(FIRST, Record(1, 0), Observe(1), later) == {}


def test_transfers_count_though_they_must_be_over() -> None:
    receive = TransferBegin(1, int(UseKind.RECEIVE), (writes(0, 64),))
    end = TransferEnd(1, 1)
    assert cells(FIRST, Record(1, 0), Observe(1), receive, end) == {
        "cell.writer.receive.forward": 1
    }
    assert cells(receive, end, op(2, 0, UseKind.FORWARD, reads(0, 64))) == {
        "cell.reader.forward.receive": 1
    }


def test_table_buffers_sinks_and_other_bytes_do_not_count() -> None:
    first = op(
        0,
        0,
        OpKind.TRANSLATE,
        writes(0, 64, Space.BUFFER),
        writes(0, 8, Space.TABLE),
        writes(-64, 0),
        writes(64, 128),
    )
    second = op(
        1,
        1,
        UseKind.FORWARD,
        reads(0, 64, Space.BUFFER),
        reads(0, 8, Space.TABLE),
        reads(-64, 0),
        reads(128, 192),
    )
    assert cells(first, *ORDERED, second) == {}
