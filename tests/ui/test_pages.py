"""The flow of the pages, run without a browser: choices, links, bad sources, pause."""

from __future__ import annotations

import json
import re

import pytest
from ui_case import seeded_snapshot
from ui_server import Shown

from onearena.dashboard.app import SCRIPT
from onearena.dashboard.settings import VARIABLE, Settings
from onearena.stress.cli import run

testing = pytest.importorskip("streamlit.testing.v1", reason="needs the dashboard extra")

PAGES = ("arena", "history", "campaign", "failure", "plan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of two campaigns: one clean, one that fails and was made small."""
    folder = tmp_path_factory.mktemp("records")
    runs = tmp_path_factory.mktemp("runs")
    quick = ["stress", "--jobs", "1", "--record"]
    failing = [*quick, str(folder / "failing.jsonl"), "--system", "toy:last-use-only"]
    assert run([*failing, "--out", str(runs / "a")]) == 1
    clean = [*quick, str(folder / "clean.jsonl"), "--system", "toy", "--seeds", "0:24"]
    assert run([*clean, "--out", str(runs / "b")]) == 0
    return folder


@pytest.fixture
def app(monkeypatch):
    """The application with these settings, run once; `page` opens another page of it."""

    def start(settings, *, page="arena", **query):
        monkeypatch.setenv(VARIABLE, settings.to_environment()[VARIABLE])
        at = testing.AppTest.from_file(str(SCRIPT), default_timeout=60)
        for name, value in query.items():
            at.query_params[name] = value
        at.run()
        return at if page == "arena" else to(at, page)

    return start


def to(at, page):
    at.switch_page(f"../pages/{page}.py").run()
    return at


def words(at):
    """Everything said in words."""
    kinds = (at.title, at.markdown, at.caption, at.error, at.info, at.success, at.subheader)
    lines = [str(each.value) for kind in kinds for each in kind]
    return "\n".join([*lines, status_of(at).get("text", "")])


def status_of(at):
    """The line under the Arena page's title; empty where a page has none of it."""
    found = [json.loads(each.proto.json) for each in at.get("bidi_component")]
    return next((each["status"] for each in found if "status" in each), {})


def query(at, name):
    """A parameter of the page's address."""
    value = dict(at.query_params)[name]
    return value[0] if isinstance(value, list) else value


def map_of(at):
    """The data of the map component."""
    found = [json.loads(each.proto.json) for each in at.get("bidi_component")]
    assert found, words(at)
    return next(each for each in found if "arena_bytes" in each)


def tables(at):
    return [each.value for each in at.dataframe]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_a_record_has_its_title_and_no_exception(app, folder, page):
    at = app(Settings(folder=str(folder), file="failing.jsonl"), page=page)
    assert not at.exception
    assert at.title[0].value.lower() == page
    assert at.main[0].type == "title"  # nothing of the script itself is drawn above it
    if page != "plan":
        assert query(at, "source") == "failing.jsonl"


def test_the_failure_is_told_with_its_rule_its_edge_and_the_line_to_copy(app, folder):
    at = app(Settings(folder=str(folder), file="failing.jsonl"), page="failure")
    title = r"Rule 6 broken: seed (\d+) of toy:last-use-only, made small"
    found = re.search(title, at.subheader[0].value)
    assert found
    assert "Missing" in at.error[0].value
    again = f"onearena stress --system toy:last-use-only --seed {found[1]}"
    assert any(again in code.value for code in at.code)
    step = int(query(at, "step"))
    at.button[0].click().run()  # step back
    assert int(query(at, "step")) < step
    assert not at.exception


def test_the_campaign_tells_what_was_not_reached(app, folder):
    at = app(Settings(folder=str(folder), file="clean.jsonl"), page="campaign")
    assert "no rule broken so far" in words(at)
    values = {metric.label: metric.value for metric in at.metric}
    assert values["Schedules"] == "24"


def test_a_link_leads_to_the_recorded_step(app, folder):
    settings = Settings(folder=str(folder), file="clean.jsonl")
    lines = [json.loads(line) for line in (folder / "clean.jsonl").read_text().splitlines()]
    frames = [line for line in lines if line.get("kind") == "frame"]
    wanted = frames[len(frames) // 2]
    moment = str(int(wanted["taken_s"] * 1000))
    at = app(settings, source="clean.jsonl", step=moment)
    at = to(at, "history")
    assert not at.exception
    assert map_of(at)["key"].split("/")[2:] == [str(wanted["epoch"]), str(wanted["step"])]
    assert query(at, "step") == moment
    if len(frames) > 2:
        at.button[0].click().run()  # the first moment
        assert map_of(at)["key"].split("/")[3] == str(frames[0]["step"])


def test_another_source_is_chosen_in_the_side_bar(app, folder):
    at = app(Settings(folder=str(folder), file="failing.jsonl"))
    at.sidebar.selectbox[0].select("clean.jsonl").run()
    assert not at.exception
    assert query(at, "source") == "clean.jsonl"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b'{"onearena":"record","version":8}\n', "version 1 are understood"),
        (b'{"onearena":"rec', "no record"),
        (b"GIF89a\n", "no JSON"),
        (b'{"onearena":"record","version":1}\n', "no frame"),
    ],
)
@pytest.mark.parametrize("page", ["arena", "history"])
def test_a_bad_file_is_one_message_and_the_app_lives_on(app, folder, content, word, page):
    bad = folder / "bad.jsonl"
    bad.write_bytes(content)
    try:
        at = app(Settings(folder=str(folder), file="bad.jsonl"), page=page)
        assert not at.exception
        assert words(at).replace("\\", "").count(word) == 1
        at.sidebar.selectbox[0].select("clean.jsonl").run()
        assert not at.exception
        assert word not in words(at)
        assert map_of(at)["arena_bytes"] > 0
    finally:
        bad.unlink()


@pytest.mark.parametrize("name", ["../secret.jsonl", "/etc/passwd", "http://10.1.2.3:9464", "a\nb"])
def test_a_link_cannot_leave_the_folder_or_the_machine(app, folder, name):
    (folder.parent / "secret.jsonl").write_text("{}")
    at = app(Settings(folder=str(folder)), source=name)
    assert not at.exception
    assert len(at.error) == 1
    assert not at.get("bidi_component")


def test_a_wrong_address_typed_in_is_one_message(app, folder):
    at = app(Settings(folder=str(folder), file="clean.jsonl"))
    at.sidebar.text_input[0].set_value("http://127.0.0.1:1").run()
    assert not at.exception
    assert "disconnected" in words(at)
    assert "nobody answers" in words(at)
    at.sidebar.text_input[0].set_value("nonsense").run()
    assert len(at.error) == 1
    at.sidebar.selectbox[0].select("clean.jsonl").run()
    assert map_of(at)["arena_bytes"] > 0


def test_pause_keeps_what_is_shown(app):
    server = Shown(seeded_snapshot(1, epoch=5))
    try:
        at = app(Settings((server.url,)))
        assert "live" in words(at)
        assert map_of(at)["key"].split("/")[2] == "5"
        at.sidebar.toggle[0].set_value(True).run()
        server.show(seeded_snapshot(2, epoch=6))
        import time

        time.sleep(0.5)  # longer than a feed keeps an answer
        at.run()
        assert map_of(at)["key"].split("/")[2] == "5"
        assert "paused" in words(at)
        at.sidebar.toggle[0].set_value(False).run()
        at.run()
        assert map_of(at)["key"].split("/")[2] == "6"
    finally:
        server.close()


def test_a_plan_that_cannot_be_is_one_message(app):
    at = app(Settings(), page="plan")
    assert "One arena holds" in at.success[0].value
    budget = next(each for each in at.text_input if each.label == "Bytes")
    budget.set_value("much").run()
    assert not at.exception
    assert len(at.error) == 1
    budget = next(each for each in at.text_input if each.label == "Bytes")
    budget.set_value("40GiB").run()
    assert not at.error


def test_without_a_source_the_page_says_how_to_get_one(app):
    at = app(Settings())
    assert "onearena stress --jobs 1 --metrics-port 9464" in at.info[0].value
