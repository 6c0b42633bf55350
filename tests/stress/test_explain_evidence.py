"""The pages of planted faults that were read, and what reading them changed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from onearena.core.device.interface import Space
from onearena.stress.explain import Explanation, explain, explain_text
from onearena.stress.explain_html import explain_html
from onearena.stress.mutants import load_registry
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.shrink import shrink
from onearena.stress.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "evidence" / "explain"
NUMBERS = (1, 2, 3)


def text(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("number", NUMBERS)
def test_the_answers_are_those_that_were_given_before_the_truth(number) -> None:
    answer = (PAGES / f"page-{number}.answer.md").read_bytes()
    digest = hashlib.blake2b(answer, digest_size=16).hexdigest()
    assert digest in text(f"page-{number}.truth.md")
    for asked in ("**Rule**", "**Unit**", "**Missing wait**", "**Guess**"):
        assert asked in answer.decode()


def test_the_mutants_are_real_and_of_different_rules() -> None:
    known = {mutant.id: mutant for mutant in load_registry(ROOT / "tests/mutants/registry.toml")}
    names = [re.search(r"Mutant `([^`]+)`", text(f"page-{n}.truth.md"))[1] for n in NUMBERS]
    assert len({known[name].rule for name in names}) == len(NUMBERS)
    for number, name in zip(NUMBERS, names, strict=True):
        # The pages that were read say nothing of which mutant it is.
        for page in (text(f"page-{number}.txt"), text(f"page-{number}.html")):
            assert name not in page
            assert known[name].title not in page


@pytest.mark.parametrize("number", NUMBERS)
def test_html_pages_stand_alone_in_light_and_dark(number) -> None:
    for name in (f"page-{number}.html", f"page-{number}.now.html"):
        page = text(name)
        assert "prefers-color-scheme: dark" in page
        assert not re.search(r"<script|<link|<img|\bsrc=|\bhref=|url\(|@import|https?:", page)


def failing(system: str, wanted) -> Explanation:
    for seed in range(80):
        spec = RunSpec(seed, system)
        result = run_schedule(spec)
        if result.violations and wanted(result):
            small = shrink(replace(spec, recording=result.recording), budget_s=5.0)
            if wanted(small.result):
                return explain(small.spec, file="small.json")
    raise AssertionError(f"{system} never failed so")


@pytest.fixture(scope="module")
def unsettled() -> Explanation:
    """A report of legality alone: a unit is a hole while a use of it is not over."""
    return failing(
        "toy:free-at-once",
        lambda result: (
            {v.oracle for v in result.violations} == {"legality"}
            and "on stream" in result.violations[0].events[0]
        ),
    )


def test_a_report_about_an_unfinished_use_marks_use_and_call(unsettled: Explanation) -> None:
    violation = unsettled.violation
    assert violation is not None
    assert [side.mark for side in unsettled.sides] == ["A", "B"]
    work, call = (unsettled.rows[side.row] for side in unsettled.sides)
    stream, operation = map(
        int, re.search(r"on stream (\d+), operation (\d+)", violation.events[0]).groups()
    )
    mine = [row for row in unsettled.rows if row.kind == "enqueue" and row.actor == work.actor]
    assert mine.index(work) == operation - 1
    assert stream >= 0
    start, end = unsettled.bytes
    assert any(a.start < end and start < a.end for a in work.accesses)
    # The call in whose step the unit was let go; the small schedule lets go of units by these.
    assert call.kind == "call"
    assert call.call in {"free", "fork"}
    assert f"`{call.call}` in step {call.step}" in unsettled.edge
    assert f"op {work.number} on {work.actor}" in unsettled.edge


def test_the_missing_wait_names_an_event_that_would_do(unsettled: Explanation) -> None:
    work = unsettled.rows[unsettled.sides[0].row]
    named = re.search(r"event (\d+), recorded after it", unsettled.edge)
    assert named is not None
    after = unsettled.rows[unsettled.sides[0].row :]
    events = [row.number for row in after if row.kind == "record" and row.actor == work.actor]
    assert int(named[1]) == events[0]


def test_both_forms_tell_the_edge_and_the_other_reports(unsettled: Explanation) -> None:
    page = failing("toy:last-use-only", lambda r: any(v.oracle == "order" for v in r.violations))
    assert any(other.startswith("reference, rule 6") for other in page.others)
    for each in (page, unsettled):
        flat = " ".join(explain_text(each).split())
        html = explain_html(each)
        assert "MISSING" in flat
        assert "Missing: " in html
        assert html.count("class='missing'") == 1
        for other in each.others[:4]:
            assert " ".join(other.split())[:60] in flat


def test_every_pair_without_order_is_told() -> None:
    """A copy that races on several units: one pair is explained, the others are named."""
    for seed in range(60):
        spec = RunSpec(seed, "toy:last-use-only")
        result = run_schedule(spec)
        races = [v for v in result.violations if v.oracle == "order"]
        page = explain(replace(spec, recording=result.recording)) if races else None
        if page is not None and any(o.startswith("no order either") for o in page.others):
            break
    else:
        raise AssertionError("no schedule had two races")
    told = next(other for other in page.others if other.startswith("no order either"))
    later, earlier = re.search(r": (\S+ \d+) after (\S+ \d+) on ", told).groups()
    numbers = {row.number for row in page.rows if row.kind in {"enqueue", "begin"}}
    assert {int(later.split()[1]), int(earlier.split()[1])} <= numbers


def test_host_units_have_names() -> None:
    """Backups and loads name the host units that the world reserved."""
    named = 0
    for seed in range(12):
        timeline = Timeline()
        run_schedule(RunSpec(seed, "toy"), timeline)
        timeline.close()
        for row in timeline.rows:
            if row.kind == "enqueue" and any(a.space is Space.HOST for a in row.accesses):
                assert re.search(r"host h\d+", row.text), row.text
                assert "host[" not in row.text
                named += 1
    assert named > 5
    page = text("page-3.now.txt")
    assert "Rule 6 is broken at host unit h1" in page
