"""A page about a failure says what the report says, and nothing that did not happen."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from onearena.core.errors import UsageError
from onearena.core.snapshot import BandSnapshot, FenceSnapshot, Snapshot
from onearena.stress.cli import run
from onearena.stress.explain import (
    ROWS_SHOWN_MAX,
    Explanation,
    Picture,
    explain,
    explain_text,
    picture_lines,
)
from onearena.stress.explain_html import explain_html
from onearena.stress.recordings import dump_recording
from onearena.stress.report import RULES
from onearena.stress.rule_texts import RULE_TEXTS, rule_text
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.shrink import shrink
from onearena.stress.timeline import Timeline


@pytest.fixture(scope="module")
def small() -> tuple[RunSpec, RunResult]:
    """A small schedule in which two streams race."""
    for seed in range(60):
        spec = RunSpec(seed, "toy:last-use-only")
        result = run_schedule(spec)
        if any(violation.oracle == "order" for violation in result.violations):
            found = shrink(replace(spec, recording=result.recording))
            return found.spec, found.result
    raise AssertionError("no race was found")


@pytest.fixture(scope="module")
def page(small) -> Explanation:
    return explain(small[0], file="small.json")


def race(result: RunResult):
    return next(v for v in result.violations if v.oracle == "order")


def test_every_rule_has_a_text_of_its_own() -> None:
    assert set(RULE_TEXTS) == set(RULES)
    assert len({rule_text(rule) for rule in [*RULES, "geometry"]}) == len(RULES) + 1


def test_looking_on_changes_nothing(small) -> None:
    spec, result = small
    assert run_schedule(spec, Timeline()).digest == result.digest


def test_both_events_are_those_of_the_report(small, page: Explanation) -> None:
    details = race(small[1]).details
    assert [side.mark for side in page.sides] == ["A", "B"]
    for side, name in zip(page.sides, ("earlier", "later"), strict=True):
        party = details[name]
        row = page.rows[side.row]
        assert (row.order, row.number) == (party["index"], party["number"])
        touched = {(a.start, a.end, a.writes) for a in row.accesses}
        assert (party["start_bytes"], party["end_bytes"], party["writes"]) in touched


def test_stacks_lead_from_the_device_to_the_world(page: Explanation) -> None:
    for side in page.sides:
        assert "(core/device/" in side.stack[0]
        assert "World.replay_step" in side.stack[-1]
        assert "world step" in side.where


def test_the_missing_edge_names_streams(page: Explanation) -> None:
    assert "stream" in page.edge
    later = page.rows[page.sides[1].row]
    assert f"({later.actor})" in page.edge or later.actor == "transfers"
    assert page.fix.startswith("would have ordered them")


def test_rows_are_in_order_and_each_wait_follows_its_record(page: Explanation) -> None:
    orders = [row.order for row in page.rows if row.order >= 0]
    assert orders == sorted(orders)
    recorded: set[int] = set()
    for row in page.rows:
        if row.kind == "record":
            recorded.add(row.number)
        if row.kind in {"wait", "observe"}:
            assert row.number in recorded


def test_a_call_stands_before_what_it_enqueued(page: Explanation) -> None:
    for index, row in enumerate(page.rows):
        if row.kind == "enqueue" and row.call:
            above = [r for r in page.rows[:index] if r.kind == "call"]
            assert above[-1].call == row.call


def test_the_text_holds_all_parts_in_100_columns(small, page: Explanation) -> None:
    text = explain_text(page)
    violation = race(small[1])
    for part in ("MISSING", "┌┄A", "└✗B", "onearena replay small.json", str(violation.unit)):
        assert part in text
    assert RULE_TEXTS[violation.rule][:30] in text
    assert max(map(len, text.splitlines())) <= 100
    assert explain_text(explain(small[0], file="small.json")) == text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        self.words += data


def test_the_html_page_needs_nothing_else(small, page: Explanation) -> None:
    html = explain_html(page)
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert "script" not in [tag for tag, _ in tags.seen]
    assert not [a for _, a in tags.seen if {"src", "href"} & set(a)]
    assert "http" not in html
    missing = [a for tag, a in tags.seen if tag == "path" and a["class"] == "missing"]
    assert len(missing) == 1
    assert page.edge in tags.words
    assert str(race(small[1]).unit) in tags.words


def test_html_escapes_what_a_system_says(page: Explanation) -> None:
    assert page.violation is not None
    evil = replace(page, message="<script>alert(1)</script>")
    assert "<script>" not in explain_html(evil)


def test_a_large_failure_shows_a_bounded_page_with_both_events() -> None:
    for seed in range(60):
        spec = RunSpec(seed, "toy:read-fast-path")
        result = run_schedule(spec)
        if result.steps > 100 and any(v.oracle == "order" for v in result.violations):
            break
    page = explain(replace(spec, recording=result.recording))
    assert page.left_out > 0
    assert len(page.rows) <= ROWS_SHOWN_MAX
    assert [side.mark for side in page.sides] == ["A", "B"]
    party = race(page.result).details["later"]
    assert page.rows[page.sides[1].row].order == party["index"]
    assert max(map(len, explain_text(page).splitlines())) <= 100


def test_a_picture_is_true_to_scale() -> None:
    low = BandSnapshot("low", "low_end", 80, 0, 0, 11, 0, 2, 1, 1, 0, 0, states=bytes([2, 3]))
    high = BandSnapshot("high", "high_end", 40, 0, 0, 22, 20, 22, 0, 0, 1, 1, states=bytes([1, 4]))
    fence = FenceSnapshot(240, 320, ())
    shot = Snapshot(0, 880, (low, high), (), (fence,), ())
    lines = picture_lines(Picture("now", shot), (80, 160))
    assert "one column is 10 bytes" in lines[0]
    bar = lines[1].strip().strip("|")
    assert bar == "L" * 8 + "p" * 8 + " " * 8 + "~" * 8 + " " * 48 + "...." + "vvvv"
    assert lines[2] == "   " + " " * 8 + "^" * 8


def test_a_report_without_a_race_marks_its_call() -> None:
    for seed in range(60):
        spec = RunSpec(seed, "toy:free-at-once")
        result = run_schedule(spec)
        if any(violation.oracle == "order" for violation in result.violations):
            continue
        if any("on stream" not in v.events[0] for v in result.violations if v.events):
            break
    page = explain(replace(spec, recording=result.recording))
    assert page.edge == ""
    assert len(page.sides) == 1
    assert "└✗" not in explain_text(page)
    assert "class='missing'" not in explain_html(page)


def test_a_passing_schedule_is_refused(small) -> None:
    with pytest.raises(UsageError, match="fails on this code"):
        explain(replace(small[0], system="toy"))


def test_the_command(small, tmp_path, capsys) -> None:
    path, html = tmp_path / "small.json", tmp_path / "page.html"
    path.write_text(dump_recording(*small))
    assert run(["explain", str(path)]) == 0
    assert "MISSING" in capsys.readouterr().out
    assert run(["explain", str(path), "--html", str(html)]) == 0
    assert html.read_text().startswith("<!doctype html>")
    capsys.readouterr()
    for args in (["explain", str(tmp_path / "no")], ["explain", str(path), "--html", "no/x"]):
        assert run(args) == 2
        assert capsys.readouterr().err.count("\n") == 1
