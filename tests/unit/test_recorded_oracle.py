"""The recorded-use oracle: effects inside and outside of what was declared."""

from __future__ import annotations

import pytest

from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import Effect, End, Enqueue, Start, TransferBegin
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import UnitName, Violation, feed_all
from onearena.stress.oracles.recorded import RecordedOracle
from onearena.stress.sut import BandFacts, PlanFacts

BAND = BandFacts("state", "low_end", 64, 1, -64, 1, 16, "request")
PLAN = PlanFacts(1_024, (BAND,), (0,), 0)


def arena(start: int, end: int, *, writes: bool = False) -> Access:
    return Access(Space.ARENA, start, end, writes)


DECLARED = (
    arena(0, 64),
    arena(64, 128),
    arena(256, 320, writes=True),
    Access(Space.HOST, 0, 96, False),
)


def judge(*touched: Access) -> list[Violation]:
    trace = [Enqueue(3, 1, 0, "", DECLARED), Start(3), Effect(3, 0, touched), End(3)]
    return feed_all(RecordedOracle(PLAN), trace)


@pytest.mark.parametrize(
    "touched",
    [
        arena(0, 64),
        arena(10, 20),
        arena(32, 96),  # two neighbours, both declared
        arena(256, 320, writes=True),
        arena(260, 300),  # a declared write covers a read
        arena(-64, 0, writes=True),  # the sink
        arena(-32, -16),
        arena(500, 500, writes=True),  # nothing
        Access(Space.HOST, 0, 96, False),
    ],
)
def test_declared_effects_pass(touched: Access) -> None:
    assert not judge(touched)


@pytest.mark.parametrize(
    ("touched", "rule"),
    [
        (arena(0, 64, writes=True), "8"),  # a declared read covers no write
        (arena(64, 129), "8"),
        (arena(255, 320, writes=True), "8"),
        (arena(128, 256), "8"),
        (arena(512, 576), "8"),
        (Access(Space.HOST, 0, 97, False), "8"),
        (Access(Space.TABLE, 0, 8, False), "8"),
        (arena(-80, -64), "geometry"),  # a guard
        (arena(-16, 16), "geometry"),  # over the sink's end
        (arena(1_000, 1_025), "geometry"),
        (arena(-(1 << 60), 8 - (1 << 60)), "geometry"),
    ],
)
def test_other_effects_are_reported(touched: Access, rule: str) -> None:
    (violation,) = judge(arena(0, 8), touched)
    assert violation.rule == rule
    assert violation.bytes is not None
    assert violation.bytes.start_bytes == touched.start
    assert "op 3 (forward on stream 1)" in violation.message


def test_transfers_declare_too() -> None:
    begin = TransferBegin(5, int(UseKind.RECEIVE), (arena(0, 64, writes=True),))
    assert not feed_all(RecordedOracle(), [begin, Effect(5, 0, (arena(0, 64, writes=True),))])
    (violation,) = feed_all(RecordedOracle(), [begin, Effect(5, 0, (arena(0, 65),))])
    assert violation.message == (
        "transfer 5 (receive) reads arena[0:65), and no recorded use says so."
    )


def test_effects_of_nothing_enqueued_or_ended_are_reported() -> None:
    effect = Effect(3, 0, (arena(0, 64),))
    assert len(feed_all(RecordedOracle(PLAN), [effect])) == 1
    trace = [Enqueue(3, 1, 0, "", DECLARED), effect, End(3), effect]
    assert len(feed_all(RecordedOracle(PLAN), trace)) == 1


def test_the_device_may_report_by_itself() -> None:
    oracle = RecordedOracle(PLAN, locate=lambda space, start, end: UnitName("state", 9))
    oracle.feed(Enqueue(3, 1, 0, "", DECLARED))
    (violation,) = oracle.undeclared(3, arena(512, 576, writes=True))
    assert violation.message == (
        "op 3 (forward on stream 1) writes arena[512:576), and no recorded use says so."
    )
    assert violation.unit == UnitName("state", 9)
