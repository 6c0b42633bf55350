"""The answers that keep the Arena page live: what they say, when they are short, who gets one."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
from ui_case import seeded_snapshot
from ui_server import Shown

from onearena.core.rules import UseKind
from onearena.dashboard.feed import Reading
from onearena.dashboard.frame import parse_frame
from onearena.dashboard.live import FEEDS, FEEDS_MAX, Feeds, answer, document_of, poll_path
from onearena.metrics.frames import Moment, frame_document
from onearena.metrics.recorder import MoveSeen, Timings, WaitSeen

requests = pytest.importorskip("starlette.requests", reason="needs the dashboard extra")

NOW_S = 1000.0


def frame_of(snapshot, timings=None):
    """A frame of a source that has seen this."""
    moment = Moment(taken_s=NOW_S, serial=7, timings=timings)
    return parse_frame(json.loads(json.dumps(frame_document(snapshot, moment))), "here")


def asked(path):
    """The status and the document that a browser gets for a path."""
    scope = {"type": "http", "method": "GET", "headers": [], "path": "/"}
    found = answer(requests.Request(scope | {"query_string": urlsplit(path).query.encode()}))
    return found.status_code, json.loads(found.body)


def test_the_same_snapshot_is_not_sent_again_and_another_one_is():
    frame = frame_of(seeded_snapshot(1, epoch=4))
    ask = {"now_s": NOW_S + 1.0, "view": None, "picked": None}
    first = document_of(Reading(frame), **ask)
    assert first["map"]["arena_bytes"] == seeded_snapshot(1).arena_bytes
    again = document_of(Reading(frame), known=first["map"]["key"], **ask)
    assert set(again) == {"status"}
    assert again["status"]["text"] == "live, 1.0 s old"
    later = frame_of(seeded_snapshot(1, epoch=5))
    assert (
        document_of(Reading(later), known=first["map"]["key"], **ask)["map"]["key"]
        != (first["map"]["key"])
    )


@pytest.mark.parametrize(
    "seen",
    [
        Timings(moves=(MoveSeen(1, 0.0, 0, 3, 1),)),
        Timings(waits=(WaitSeen(UseKind.FORWARD, 0, 9, 0.0),)),
    ],
)
def test_what_grows_old_is_sent_again(seen):
    frame = frame_of(seeded_snapshot(1), seen)
    ask = {"now_s": NOW_S, "view": None, "picked": None}
    key = document_of(Reading(frame), **ask)["map"]["key"]
    assert "map" in document_of(Reading(frame), known=key, **ask)


def test_a_source_that_died_is_said_with_the_last_arena():
    frame = frame_of(seeded_snapshot(1))
    reading = Reading(frame, "disconnected", "nobody answers")
    found = document_of(reading, now_s=NOW_S + 9.0, view=None, picked=None)
    assert found["status"]["state"] == "disconnected"
    assert "nobody answers" in found["status"]["text"]
    assert found["map"]["key"].startswith("0/7/")
    nothing = document_of(Reading(None), now_s=NOW_S, view=None, picked=None)
    assert set(nothing) == {"status"}


def test_a_browser_with_the_token_gets_its_view_and_its_pick():
    snapshot = seeded_snapshot(1, epoch=3)
    server = Shown(snapshot)
    try:
        token = FEEDS.of(server.url).token
        status, found = asked(poll_path(token, view=None, picked=None))
        assert status == 200
        assert found["map"]["window"] == [0, snapshot.arena_bytes]
        assert found["map"]["picked"] is None
        at = snapshot.bands[1].start_bytes
        size = snapshot.bands[1].unit_bytes
        status, found = asked(poll_path(token, view=(at, at + 4096), picked=at + 1))
        assert found["map"]["window"] == [at, at + 4096]
        assert found["map"]["picked"] == [at, at + size]
        for odd in ("view=9-3", "view=-", "view=1-x", "pick=-1", "pick=one"):
            status, found = asked(f"?feed={token}&{odd}")
            assert status == 200, odd
            assert found["map"]["window"] == [0, snapshot.arena_bytes], odd
            assert found["map"]["picked"] is None, odd
    finally:
        server.close()


@pytest.mark.parametrize("token", ["", "x", "http://127.0.0.1:9464", "é" * 99])
def test_without_the_token_nobody_gets_anything(token):
    FEEDS.of("http://127.0.0.1:9464")
    status, found = asked(poll_path(token, view=None, picked=None))
    assert status == 404
    assert set(found) == {"error"}


def test_feeds_are_shared_and_bounded():
    feeds = Feeds()
    first = feeds.of("http://127.0.0.1:1")
    assert feeds.of("http://127.0.0.1:1") is first
    assert feeds.by_token(first.token) is first.feed
    for port in range(2, FEEDS_MAX + 2):
        feeds.of(f"http://127.0.0.1:{port}")
    assert feeds.by_token(first.token) is None
    assert feeds.of("http://127.0.0.1:1").token != first.token
