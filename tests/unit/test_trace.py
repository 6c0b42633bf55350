"""The trace: JSON lines, digest, subscribers, refusals."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core.device.interface import Access, Space, TransferStatus
from onearena.core.device.trace import (
    RECORD_TYPES,
    TRACE_VERSION,
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    Trace,
    TraceRecord,
    TransferBegin,
    TransferEnd,
    WaitEvent,
    json_lines,
    read_json_lines,
    to_json_line,
)
from onearena.core.errors import UsageError

READ = Access(Space.ARENA, -64, 64, False)
WRITE = Access(Space.HOST, 0, 16, True)

EVERY_KIND: tuple[TraceRecord, ...] = (
    Enqueue(0, 1, 3, "move \u00e9", (READ, WRITE)),
    Record(0, 1),
    WaitEvent(1, 0),
    Observe(0),
    TransferBegin(1, 7, (WRITE,)),
    TransferEnd(1, TransferStatus.FAILED),
    Start(0),
    Effect(0, 0, (READ,)),
    End(0),
)


def digest_of(records: tuple[TraceRecord, ...]) -> str:
    trace = Trace()
    for record in records:
        trace.emit(record)
    return trace.digest()


def test_every_record_kind_survives_the_json_form() -> None:
    assert {type(record) for record in EVERY_KIND} == set(RECORD_TYPES)
    trace = Trace(keep=True)
    trace.stream_names.extend(["forward", "schedule"])
    for record in EVERY_KIND:
        trace.emit(record)
    back = read_json_lines(list(json_lines(trace)))
    assert tuple(back.records) == EVERY_KIND
    assert [type(record) for record in back.records] == [type(record) for record in EVERY_KIND]
    assert back.stream_names == ["forward", "schedule"]
    assert back.digest() == trace.digest()
    assert isinstance(back.records[0].accesses[0], Access)  # type: ignore[union-attr]
    assert back.records[0].accesses[0].space is Space.ARENA  # type: ignore[union-attr]


@pytest.mark.parametrize("index", range(len(EVERY_KIND)))
def test_the_digest_depends_on_every_field(index: int) -> None:
    record = EVERY_KIND[index]
    seen = {digest_of((record,))}
    for position, value in enumerate(record):
        if isinstance(value, str):
            other: object = value + "x"
        elif isinstance(value, tuple):
            other = (*value, READ)
        else:
            other = value + 1
        fields = list(record)
        fields[position] = other
        seen.add(digest_of((type(record)(*fields),)))
    assert len(seen) == 1 + len(record)


def test_the_digest_depends_on_kind_order_and_every_part_of_an_access() -> None:
    assert digest_of((Start(3),)) != digest_of((End(3),))
    assert digest_of((Start(3), Start(4))) != digest_of((Start(4), Start(3)))
    accesses = [
        READ,
        Access(Space.HOST, -64, 64, False),
        Access(Space.ARENA, -63, 64, False),
        Access(Space.ARENA, -64, 65, False),
        Access(Space.ARENA, -64, 64, True),
    ]
    assert len({digest_of((Effect(0, 0, (access,)),)) for access in accesses}) == len(accesses)


def test_the_digest_tells_where_one_record_ends() -> None:
    joined = digest_of((Enqueue(0, 0, 0, "ab", ()), Enqueue(0, 0, 0, "", ())))
    assert joined != digest_of((Enqueue(0, 0, 0, "a", ()), Enqueue(0, 0, 0, "b", ())))
    # A label that reads like the bytes of the record after it.
    start_of_op_0 = bytes([RECORD_TYPES.index(Start), *[0] * 15]).decode()
    assert digest_of((Enqueue(0, 0, 0, start_of_op_0, ()),)) != digest_of(
        (Enqueue(0, 0, 0, "", ()), Start(0))
    )
    assert digest_of((Effect(0, 0, (READ, READ)),)) != digest_of(
        (Effect(0, 0, (READ,)), Effect(0, 0, (READ,)))
    )


def test_many_accesses_hash_like_few() -> None:
    # Above and below the limit at which packing changes its way.
    for count in (255, 256, 257, 1000):
        accesses = tuple(Access(Space.ARENA, k, k + 1, False) for k in range(count))
        changed = (*accesses[:-1], Access(Space.ARENA, count, count + 1, True))
        assert digest_of((Effect(0, 0, accesses),)) == digest_of((Effect(0, 0, accesses),))
        assert digest_of((Effect(0, 0, accesses),)) != digest_of((Effect(0, 0, changed),))


def test_reading_the_digest_does_not_change_it_or_what_follows() -> None:
    asked, plain = Trace(), Trace()
    for k in range(20_000):  # past the point where the buffer is handed to the hash
        asked.emit(Start(k))
        plain.emit(Start(k))
        if k % 1000 == 0:
            asked.digest()
    assert asked.digest() == asked.digest() == plain.digest()
    assert asked.count == 20_000
    assert asked.records == []


def test_subscribers_get_their_kinds_in_order() -> None:
    trace = Trace()
    everything: list[object] = []
    some: list[object] = []
    trace.subscribe(everything.append)
    trace.subscribe(some.append, (Record, Observe))
    for record in EVERY_KIND:
        trace.emit(record)
    assert tuple(everything) == EVERY_KIND
    assert some == [Record(0, 1), Observe(0)]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 2"),
        ("[]", "line 2"),
        ("7", "line 2"),
        ('["Nothing",1]', "line 2"),
        ('["Record",1]', "line 2"),
        ('["Record",1,2,3]', "line 2"),
        ('["Record",1,"2"]', "stream"),
        ('["Record",1,true]', "stream"),
        ('["Record",1,9223372036854775808]', "stream"),
        ('["Record",1,1.5]', "stream"),
        ('["Enqueue",0,0,0,5,[]]', "label"),
        ('["Effect",0,0,5]', "accesses"),
        ('["Effect",0,0,[[0,0,16]]]', "accesses"),
        ('["Effect",0,0,[[0,0,16,1]]]', "accesses"),
        ('["Effect",0,0,[[9,0,16,true]]]', "accesses"),
        ('["Effect",0,0,[[0,16,0,true]]]', "accesses"),
        ('["Effect",0,0,[[0,"a",0,true]]]', "accesses"),
        ("[" * 100_000, "line 2"),
    ],
)
def test_a_malformed_line_is_refused_by_name(line: str, named: str) -> None:
    header = json.dumps({"onearena_trace": TRACE_VERSION, "streams": []})
    with pytest.raises(UsageError) as refused:
        read_json_lines([header, line])
    assert named in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ['{"onearena_trace":2,"streams":[]}'],
        ['{"onearena_trace":1}'],
        ['{"onearena_trace":1,"streams":[1]}'],
        ["[1]"],
    ],
)
def test_a_wrong_header_is_refused(lines: list[str]) -> None:
    with pytest.raises(UsageError, match="trace line 1"):
        read_json_lines(lines)


@given(st.text())
def test_no_text_makes_reading_fail_otherwise(line: str) -> None:
    header = json.dumps({"onearena_trace": TRACE_VERSION, "streams": []})
    with pytest.raises(UsageError, match="trace line 2"):
        read_json_lines([header, line])


def test_a_line_is_the_name_and_the_fields() -> None:
    assert to_json_line(Record(3, 0)) == '["Record",3,0]'
    assert to_json_line(Effect(1, 0, (READ,))) == '["Effect",1,0,[[0,-64,64,false]]]'
