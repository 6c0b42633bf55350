"""Sources good and bad: every bad one is one line that says what to do, and nothing worse."""

from __future__ import annotations

import json
import os
import socket
import threading

import pytest
from ui_case import seeded_snapshot
from ui_server import Shown

from onearena.core.errors import UsageError
from onearena.dashboard import http_source, record_source
from onearena.dashboard.checked import SourceError
from onearena.dashboard.feed import KEPT_MAX, Feed
from onearena.dashboard.http_source import HttpSource
from onearena.dashboard.record_source import RecordSource, file_in, files_of
from onearena.dashboard.settings import Settings, settings_of
from onearena.dashboard.shell import chosen_by_link
from onearena.metrics.frames import Moment, frame_document, unit_fields
from onearena.metrics.record import LIMIT_BYTES_MIN, RecordWriter
from onearena.metrics.source import columns_of


@pytest.fixture
def shown():
    server = Shown(seeded_snapshot(1))
    yield server
    server.close()


@pytest.fixture
def answering():
    """A server that answers every request with the bytes given."""
    started = []

    def start(body, *, status="200 OK", whole=None):
        listening = socket.create_server(("127.0.0.1", 0))
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        reply = head + body if whole is None else whole

        def serve():
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client:
                    client.recv(4096)
                    client.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        started.append((listening, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    for listening, thread in started:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def message_of(call, *arguments):
    with pytest.raises(SourceError) as caught:
        call(*arguments)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400
    return caught.value


# -- over HTTP
def test_a_running_process_is_read_whole_and_in_a_window(shown):
    source = HttpSource(shown.url)
    frame = source.frame()
    assert frame.snapshot.arena_bytes == seeded_snapshot(1).arena_bytes
    assert sum(len(column.states) for column in frame.columns) == 1000
    assert frame.fit == ((1, 2, 3),) * 3
    part = source.frame(start_bytes=1024, end_bytes=2048)
    assert part.window == (1024, 2048)
    assert sum(len(column.states) for column in part.columns) == 1024 // 64


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("ftp://127.0.0.1", "http://host"),
        ("http://", "http://host"),
        ("http://127.0.0.1:99999", "no address"),
        ("http://127.0.0.1/metrics?x=1", "address alone"),
        ("http://[::1", "no address"),
        ("http://a\nb", "printable"),
        ("http://" + "a" * 600, "512"),
    ],
)
def test_an_address_that_is_none_is_refused(url, word):
    assert word in message_of(HttpSource, url).message


def test_nobody_there_is_disconnected():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    error = message_of(HttpSource(f"http://127.0.0.1:{port}").frame)
    assert error.trouble == "disconnected"
    assert "nobody answers" in error.message


def test_silence_is_disconnected():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        error = message_of(HttpSource(url, timeout_s=0.2).frame)
    assert (error.trouble, "no answer within" in error.message) == ("disconnected", True)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b'{"version":2,"kind":"frame"}', "200 OK", "version 1 is understood, and it speaks"),
        (b"<html>hello</html>", "200 OK", "no JSON"),
        (b'{"version":1,"kind":"frame","arena_by', "200 OK", "no JSON"),
        (b'{"version":1,"kind":"frame"}', "200 OK", "snapshot_version"),
        (b"[" * 100_000, "200 OK", "no JSON"),
        (b"", "401 Unauthorized", "password"),
        (b'{"error":"there is no such arena"}', "404 Not Found", "there is no such arena"),
        (b"moved", "302 Found", "it answers 302"),
        (b"x" * (http_source.ANSWER_BYTES_MAX + 1), "200 OK", "longer than"),
    ],
)
def test_a_foreign_answer_is_one_line(answering, body, status, word):
    error = message_of(HttpSource(answering(body, status=status)).frame)
    assert word in error.message
    assert error.trouble == "unusable"


def test_what_speaks_no_http_is_said_so(answering):
    assert "no HTTP" in message_of(HttpSource(answering(b"", whole=b"SSH-2.0-x\r\n")).frame).message


def test_a_password_goes_to_the_server_and_to_no_screen(answering):
    source = HttpSource("http://ann:secret@127.0.0.1:1")
    assert source.name == "http://127.0.0.1:1"
    assert "secret" not in message_of(source.frame).message
    assert source._headers["Authorization"].startswith("Basic ")


def test_links_reach_this_machine_and_named_sources_only(tmp_path):
    settings = Settings()
    assert chosen_by_link("http://127.0.0.1:9464", [], settings).url == "http://127.0.0.1:9464"
    for name in ("http://10.0.0.1:9464", "http://127.0.0.1.example.com"):
        assert "another machine" in message_of(chosen_by_link, name, [], settings).message
    assert "--folder" in message_of(chosen_by_link, "a.jsonl", [], settings).message


def test_settings_go_through_the_environment(tmp_path):
    settings = Settings(("http://127.0.0.1:1",), str(tmp_path), "a.jsonl")
    assert settings_of(settings.to_environment()) == settings
    assert settings_of({}) == Settings()


# -- the feed
class Counting:
    def __init__(self):
        self.asked = 0
        self.error = None
        self.inner = None

    def frame(self, *, start_bytes=0, end_bytes=0, arena=""):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.inner

    def campaign(self):
        return {}

    def failure(self, number):
        return {}


def test_a_process_is_asked_once_however_many_look(shown):
    source, now = Counting(), [0.0]
    source.inner = HttpSource(shown.url).frame()
    feed = Feed(source, clock=lambda: now[0])
    frames = [feed.read().frame for _ in range(5)]
    assert source.asked == 1
    assert frames == [source.inner] * 5
    now[0] += 1.0
    source.error = SourceError("gone", trouble="disconnected")
    reading = feed.read()
    assert (reading.frame, reading.trouble, reading.reason) == (
        source.inner,
        "disconnected",
        "gone",
    )


def test_history_is_bounded_and_has_each_moment_once(shown):
    from dataclasses import replace

    source, now = Counting(), [0.0]
    first = HttpSource(shown.url).frame()
    feed = Feed(source, clock=lambda: now[0])
    for at in range(KEPT_MAX + 20):
        now[0] += 1.0
        source.inner = replace(first, taken_s=float(at // 2))
        feed.read()
    assert [frame.taken_s for frame in feed.history()] == [
        float(at) for at in range((KEPT_MAX + 20) // 2)
    ]
    for view in range(40):
        feed.read((view, view + 1))
    assert len(feed._latest) <= 8


# -- files
def frame(seed, at, *, units=100):
    snapshot = seeded_snapshot(seed, units=units)
    columns = [
        columns_of(snapshot, index, band.low_unit, band.high_unit - band.low_unit)
        for index, band in enumerate(snapshot.bands)
    ]
    head = {"kind": "frame", "taken_s": 1000.0 + at, "schedule": 7, "step": at, "label": "admit"}
    document = frame_document(snapshot, Moment(taken_s=1000.0 + at, serial=at))
    return {**head, **document, **unit_fields(tuple(b.states for b in snapshot.bands), columns)}


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = RecordWriter(path)
    for at in range(5):
        writer.frame(frame(at, at))
    writer.failure({"version": 1, "seed": 3})
    writer.campaign({"version": 1, "summary": {}})
    writer.close()
    return path


def test_a_record_is_read_frame_by_frame(record):
    source = RecordSource(record)
    assert [(entry.schedule, entry.step) for entry in source.frames] == [(7, n) for n in range(5)]
    for at in range(5):
        assert (
            source.frame(at).snapshot.bands[1].states
            == seeded_snapshot(at, units=100).bands[1].states
        )
    assert source.failure(0)["seed"] == 3
    assert source.campaign()["version"] == 1
    assert [sample.step for sample in source.samples()] == list(range(5))


def test_a_cut_last_line_is_passed_over_and_comes_later(record):
    whole = record.read_bytes()
    cut = len(whole) - len(whole.splitlines(keepends=True)[-1]) // 2
    record.write_bytes(whole[:cut])
    source = RecordSource(record)
    assert source.torn
    assert (len(source.frames), len(source.campaigns)) == (5, 0)
    with record.open("ab") as file:
        file.write(whole[cut:])
    source.refresh()
    assert not source.torn
    assert len(source.campaigns) == 1


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_a_cut_first_line_is_no_record(record, cut):
    record.write_bytes(record.read_bytes()[:cut])
    assert "no record" in message_of(RecordSource, record).message


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b'{"hello":1}\n', "no record of onearena; make one"),
        (b"\x89PNG\r\n\x1a\n", "no JSON"),
        (b'{"onearena":"record","version":9}\n', "version 1 are understood, and this one is 9"),
        (b'{"onearena":"record","version":1}\nhello\n', "line 2: a frame, failure or campaign"),
        (b'{"onearena":"record","version":1}\n{"kind":"frame","x":1}\n', "line 2: this frame has"),
    ],
)
def test_a_foreign_file_is_one_line(tmp_path, content, word):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert word in message_of(RecordSource, path).message


def test_a_broken_frame_is_named_by_its_line(record):
    lines = record.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"arena_bytes":', b'"arena_bytes":"no",')
    record.write_bytes(b"".join(lines))
    source = RecordSource(record)
    assert "a.jsonl, line 4" in message_of(source.frame, 2).message
    assert source.frame(1).step == 1


def test_a_huge_file_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"onearena":"record","version":1}\n')
    os.truncate(path, record_source.FILE_BYTES_MAX + 1)  # sparse: takes no room
    assert "are read" in message_of(RecordSource, path).message
    os.truncate(path, 34)
    monkeypatch.setattr(record_source, "LINE_BYTES_MAX", 64)
    with path.open("ab") as file:
        file.write(b'{"kind":"frame","x":"' + b"x" * 100)
    assert "too long" in message_of(RecordSource, path).message


def test_a_pipe_or_a_folder_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in message_of(RecordSource, tmp_path / "pipe").message
    assert "no regular file" in message_of(RecordSource, tmp_path).message
    assert "cannot be read" in message_of(RecordSource, tmp_path / "gone").message


def test_files_are_taken_from_the_folder_and_no_other(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "out.jsonl").write_text("x")
    (folder / "a.jsonl").write_text("x")
    (folder / "notes.txt").write_text("x")
    (folder / "link.jsonl").symlink_to(tmp_path / "out.jsonl")
    assert file_in(folder, "a.jsonl") == folder / "a.jsonl"
    for name in ("../out.jsonl", str(tmp_path / "out.jsonl"), "link.jsonl", "..", "", "a\0b"):
        message_of(file_in, folder, name)
    assert files_of(folder) == ["a.jsonl", "link.jsonl"]


# -- writing
def test_a_record_stays_below_its_limit_and_keeps_the_latest_and_every_failure(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = RecordWriter(path, limit_bytes=LIMIT_BYTES_MIN)
    for at in range(3):
        writer.failure({"version": 1, "seed": at})
    source = None
    for at in range(900):
        writer.frame(frame(at % 7, at))
        assert path.stat().st_size <= LIMIT_BYTES_MIN
        if at == 100:
            source = RecordSource(path)
    writer.campaign({"version": 1, "summary": {"at": "end"}})
    writer.close()
    again = RecordSource(path)
    assert [again.failure(at)["seed"] for at in range(3)] == [0, 1, 2]
    steps = [entry.step for entry in again.frames]
    assert steps == list(range(steps[0], 900))
    assert 100 < len(steps) < 900
    # A reader that was there before sees that the file was written anew.
    source.refresh()
    assert [entry.step for entry in source.frames] == steps
    assert source.samples()[-1].step == 899
    assert not list(tmp_path.glob(".*"))


def test_a_record_that_cannot_be_written_is_said_so(tmp_path):
    with pytest.raises(UsageError, match="give a file that can be written"):
        RecordWriter(tmp_path / "no" / "a.jsonl")


def test_every_line_is_there_when_its_call_returns(tmp_path):
    path = tmp_path / "a.jsonl"
    writer = RecordWriter(path)
    for at in range(3):
        writer.frame(frame(1, at))
        assert len(RecordSource(path).frames) == at + 1  # as another process sees it
    writer.close()
    assert json.loads(path.read_text().splitlines()[0])["onearena"] == "record"
