"""A log of a live engine: judged offline as the same run is online, and read with suspicion."""

from __future__ import annotations

import io
import json

import pytest

from onearena.stress.engine_log import LogBand, LogWriter, read, write
from onearena.stress.log_check import LogChecker
from onearena.stress.log_export import export_log
from onearena.stress.log_lines import read_log
from onearena.stress.oracles.base import Violation
from onearena.stress.run import RunSpec, run_schedule

UNIT = 64


def judge(text: str | bytes) -> tuple[LogChecker, list[tuple[int, Violation]]]:
    raw = text.encode() if isinstance(text, str) else text
    header, rows = read_log(io.BytesIO(raw))
    checker = LogChecker(header)
    return checker, [(checker.number, v) for row in rows for v in checker.feed(row)]


def kinds(text: str) -> list[tuple[str, str]]:
    return [(violation.oracle, violation.rule) for _, violation in judge(text)[1]]


class Engine:
    """A small engine that logs; what it does wrong is up to the test."""

    def __init__(self, *, has_uses: bool = True) -> None:
        self.out = io.StringIO()
        bands = [LogBand("full", UNIT, 16), LogBand("state", 2 * UNIT, 8)]
        self.log = LogWriter(
            self.out,
            arena_bytes=16 * UNIT,
            bands=bands,
            schedule_stream="schedule",
            has_uses=has_uses,
        )

    @staticmethod
    def spans(units, verb=read):
        return [verb(unit * UNIT, (unit + 1) * UNIT) for unit in units]

    def forward(self, stream, *, reads=(), writes=(), waits=(), end=True):
        """Record, launch and mark a forward; (use, event)."""
        spans = self.spans(reads) + self.spans(writes, write)
        for event in waits:
            self.log.wait(stream, event)
        use = self.log.use("forward", stream, spans)
        self.log.enqueue("forward", stream, spans, use=use)
        return use, self.log.record(stream) if end else -1

    @property
    def text(self) -> str:
        return self.out.getvalue()


# -- our own schedules: the same verdict offline
@pytest.mark.parametrize("system", ["arena", "toy"])
def test_clean_schedules_are_clean_offline(system) -> None:
    works = 0
    for seed in range(12):
        out = io.StringIO()
        assert export_log(RunSpec(seed, system), out).verdict == "pass"
        checker, found = judge(out.getvalue())
        assert found == [], (seed, found[0][1].text())
        works += checker.works
    assert works > 300


@pytest.mark.parametrize("bug", ["free-at-once", "last-use-only", "read-fast-path"])
def test_races_found_online_are_found_offline(bug) -> None:
    """The order oracle reports the same pair at the same bytes, whoever feeds it."""
    races = 0
    for seed in range(25):
        out = io.StringIO()
        online = export_log(RunSpec(seed, f"toy:{bug}"), out)
        found = [v for _, v in judge(out.getvalue())[1]]
        first = next((v for v in online.violations if v.oracle == "order"), None)
        if first is None:
            continue
        races += 1
        offline = next(v for v in found if v.oracle == "order")
        assert (offline.rule, offline.bytes) == (first.rule, first.bytes)
        for side in ("earlier", "later"):
            keys = ("number", "kind", "writes", "start_bytes", "end_bytes")
            assert [offline.details[side][key] for key in keys] == [
                first.details[side][key] for key in keys
            ]
    assert races >= 6


def test_exporting_changes_nothing() -> None:
    assert export_log(RunSpec(3), io.StringIO()).digest == run_schedule(RunSpec(3)).digest


def test_a_dropped_wait_is_a_race_unless_another_implies_it() -> None:
    """Every wait taken out of a clean log alone: the reports name what it ordered."""
    out = io.StringIO()
    assert export_log(RunSpec(2, "toy"), out).verdict == "pass"
    lines = out.getvalue().splitlines(keepends=True)
    named = 0
    waits = [place for place, line in enumerate(lines) if '"do":"wait"' in line][:40]
    for place in waits:
        checker, found = judge("".join(lines[:place] + lines[place + 1 :]))
        assert all(number > place for number, _ in found)
        names = checker.stream_names()
        edges = [v.details["edge"] for _, v in found if v.oracle == "order"]
        waiting = json.loads(lines[place])["stream"]
        named += any(
            edge["need"] == "event" and names[edge["to_stream"]] == waiting for edge in edges
        )
    assert named >= len(waits) // 4, f"{named} of {len(waits)}"


# -- one rule at a time, by hand
def test_an_ordered_reuse_is_clean() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    _, first = engine.forward("a", writes=[3])
    engine.forward("b", reads=[3], waits=[first])
    use, last = engine.forward("b", reads=[3])
    engine.log.free("full", [3])
    engine.log.observe(last)
    engine.log.process(use)
    engine.log.reusable("full", [3])
    engine.log.hand_out("full", [3])
    engine.forward("c", writes=[3])
    assert kinds(engine.text) == []


def test_a_reader_that_does_not_wait_is_rule_6() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    engine.forward("a", writes=[3])
    engine.forward("b", reads=[3])
    (_, violation), *more = judge(engine.text)[1]
    assert not more
    assert (violation.oracle, violation.rule, str(violation.unit)) == ("order", "6", "full[3]")
    assert violation.details["edge"]["need"] == "event"


def test_a_unit_handed_out_under_a_reader_is_rule_2() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    _, first = engine.forward("a", writes=[3])
    engine.log.observe(first)
    engine.forward("b", reads=[3])
    engine.log.free("full", [3])
    engine.log.hand_out("full", [3])
    assert kinds(engine.text) == [("legality", "2")]


@pytest.mark.parametrize("how", ["observe", "process", "settle"])
def test_a_use_is_over_once_retired_processed_or_settled(how) -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    use, event = engine.forward("a", writes=[3])
    engine.log.free("full", [3])
    if how == "observe":
        engine.log.observe(event)
    elif how == "process":
        engine.log.process(use)
    else:
        engine.log.wait("schedule", event)
    engine.log.reusable("full", [3])
    engine.log.hand_out("full", [3])
    assert kinds(engine.text) == []


def test_waiting_on_another_stream_settles_nothing() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    _, event = engine.forward("a", writes=[3])
    engine.log.free("full", [3])
    engine.log.wait("b", event)
    engine.log.reusable("full", [3])
    assert kinds(engine.text) == [("legality", "2")]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda log: log.hand_out("full", [3]), ("units", "1")),
        (lambda log: log.hand_out("full", [4, 4]), ("units", "1")),
        (lambda log: log.free("full", [5]), ("units", "13")),
        (lambda log: log.free("full", [3, 3]), ("units", "13")),
        (lambda log: log.reusable("full", [3]), ("units", "1")),
        (lambda log: log.retreat("full", [3]), ("units", "5")),
        (lambda log: log.wait("a", 77), ("order", "8")),
        (lambda log: log.observe(77), ("order", "8")),
    ],
)
def test_what_may_never_be_done(act, expected) -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    act(engine.log)
    assert kinds(engine.text) == [expected]


def test_work_on_bytes_that_nobody_holds_is_rule_13() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    engine.forward("a", writes=[3, 4])
    found = judge(engine.text)[1]
    assert [(v.oracle, v.rule) for _, v in found] == [("units", "13")]
    assert (found[0][1].bytes.start_bytes, found[0][1].bytes.end_bytes) == (4 * UNIT, 5 * UNIT)
    # A state unit covers two full ones: it holds these bytes too. A sink is nobody's.
    held = Engine()
    held.log.hand_out("state", [2])
    held.forward("a", writes=[4, 5])
    held.forward("a", reads=[-1])
    assert kinds(held.text) == []


def test_work_without_a_record_is_rule_8() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    engine.log.enqueue("forward", "a", engine.spans([3], write))
    use = engine.log.use("forward", "a", engine.spans([3]))
    engine.log.enqueue("forward", "a", engine.spans([3], write), use=use)
    op = engine.log.enqueue("forward", "a", engine.spans([3]), use=use)
    engine.log.touch(op, engine.spans([3]))
    engine.log.touch(op, engine.spans([3], write))
    expected = [("legality", "8"), ("legality", "8"), ("recorded", "8")]
    assert kinds(engine.text) == expected
    free = Engine(has_uses=False)
    free.log.hand_out("full", [3])
    free.log.enqueue("forward", "a", engine.spans([3], write))
    assert kinds(free.text) == []


def test_side_work_stays_inside_its_use() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3, 4])
    use = engine.log.use("forward", "a", engine.spans([3], write))
    engine.log.enqueue("forward", "side", engine.spans([3]), use=use)
    engine.log.wait("a", engine.log.record("side"))
    engine.log.enqueue("forward", "a", engine.spans([3], write), use=use)
    assert kinds(engine.text) == []
    engine.log.enqueue("forward", "side", engine.spans([4]), use=use)
    assert ("units", "8") in kinds(engine.text)


def moved(*, copies: bool, waits: bool, is_written: bool = True) -> list[tuple[str, str]]:
    engine = Engine()
    engine.log.hand_out("full", [3])
    event = engine.log.record("a")
    if is_written:
        _, event = engine.forward("a", writes=[3])
    with engine.log.call():
        if waits:
            engine.log.wait("schedule", event)
        if copies:
            engine.log.enqueue("move", "schedule", engine.spans([3]) + engine.spans([7], write))
        engine.log.move("full", [(3, 7)])
    after = engine.log.record("schedule")
    engine.forward("b", reads=[7], waits=[after])
    return kinds(engine.text)


def test_moves_copy_after_the_writer_and_before_the_reader() -> None:
    assert moved(copies=True, waits=True) == []
    assert moved(copies=False, waits=True) == [("legality", "3")]
    assert moved(copies=True, waits=False) == [("order", "6")]
    assert moved(copies=False, waits=False, is_written=False) == []


def test_zeroing_inside_the_call_belongs_to_the_new_life() -> None:
    for inside in (True, False):
        engine = Engine()
        engine.log.hand_out("full", [3])
        _, event = engine.forward("a", writes=[3])
        engine.log.observe(event)
        engine.log.free("full", [3])
        if inside:
            with engine.log.call():
                engine.log.enqueue("zeroing", "schedule", engine.spans([3], write))
                engine.log.hand_out("full", [3])
        else:
            engine.log.enqueue("zeroing", "a", engine.spans([3], write))
            engine.log.hand_out("full", [3])
        # Work enqueued before the line, outside of its call, is work on the old life.
        assert kinds(engine.text) == ([] if inside else [("legality", "2")])


def test_transfers_hold_their_units() -> None:
    engine = Engine()
    engine.log.hand_out("full", [3])
    _, event = engine.forward("a", writes=[3])
    engine.log.transfer("send", 1, engine.spans([3]))
    assert kinds(engine.text) == [("order", "7")]
    engine = Engine()
    engine.log.hand_out("full", [3])
    _, event = engine.forward("a", writes=[3])
    engine.log.observe(event)
    transfer = engine.log.transfer("send", 1, engine.spans([3]))
    engine.log.free("full", [3])
    early = engine.text
    for how in ("done", "lost", "lost and cut"):
        later = Engine()
        later.out.write(early[len(later.text) :])
        later.log.transfer_end(transfer, how.split()[0])
        if how == "lost and cut":
            later.log.disconnect(1)
        later.log.reusable("full", [3])
        expected = [("legality", "12")] if how == "lost" else []
        assert kinds(later.text) == expected, how
    engine.log.hand_out("full", [3])
    engine.forward("a", writes=[3])
    assert kinds(engine.text) == [("legality", "5"), ("order", "6")]
