"""The exporter in a process of its own: it ends with its parent; health does not wait for it."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from metrics_case import small_snapshot
from prometheus_client.registry import CollectorRegistry

from onearena.metrics.collector import collector_of
from onearena.metrics.exporter import start_exporter
from onearena.metrics.reply import Limits
from onearena.metrics.source import SnapshotSource

HEAVY = {"numpy", "numba", "torch", "prometheus_client", "onearena.core.arena"}


def eventually(holds, *, within_s=30.0):
    """Whether it holds at some time before a limit that a busy machine keeps too."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def get(port, target, *, timeout=30):
    """(status, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Held:
    """A collector whose scrape stops until it is let go: the answering thread is stuck in it."""

    def __init__(self):
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def describe(self):
        return ()

    def collect(self):
        self.entered.set()
        self.let_go.wait(60)
        return ()


@pytest.fixture
def watched():
    """(exporter, its source, a collector that can stop it)."""
    registry, held = CollectorRegistry(), Held()
    registry.register(held)
    source = SnapshotSource("0")
    collector_of(registry).add(source)
    limits = Limits(render_every_s=0.0)
    exporter = start_exporter(0, registry=registry, stale_s=3.0, limits=limits, apart=True)
    yield exporter, source, held
    held.let_go.set()
    exporter.close()


def stuck_scrape(exporter, held):
    """A scrape that keeps the answering thread."""
    thread = threading.Thread(target=get, args=(exporter.port, "/metrics"))
    thread.start()
    assert held.entered.wait(30)
    return thread


def test_health_is_known_while_the_thread_that_answers_is_stuck(watched):
    exporter, source, held = watched
    source.show(small_snapshot())
    shown = time.monotonic()
    assert get(exporter.port, "/healthz") == (200, b"ok\n")
    thread = stuck_scrape(exporter, held)
    answers = []
    while time.monotonic() < shown + 2.5:
        answers.append(get(exporter.port, "/healthz"))
    assert set(answers) == {(200, b"ok\n")}
    assert len(answers) > 3
    # Nobody says that a newer snapshot came, and the one that was known is too old now.
    assert eventually(lambda: get(exporter.port, "/healthz")[0] == 503)
    assert time.monotonic() > shown + 3.0
    assert b"did not answer in time" in get(exporter.port, "/healthz")[1]
    held.let_go.set()
    thread.join()
    source.show(small_snapshot())
    assert eventually(lambda: get(exporter.port, "/healthz") == (200, b"ok\n"))


def test_health_says_who_is_stale(watched):
    exporter, source, _ = watched
    status, body = get(exporter.port, "/healthz")
    assert (status, body) == (503, b"stale\narena 0: no snapshot yet\n")
    source.show(small_snapshot())
    assert eventually(lambda: get(exporter.port, "/healthz")[0] == 200)
    assert eventually(lambda: b"arena 0: no snapshot for" in get(exporter.port, "/healthz")[1])


def test_the_same_question_is_asked_once_however_many_want_its_answer(watched):
    exporter, source, held = watched
    source.show(small_snapshot())
    asked = []
    endpoints = exporter._runner._endpoints
    answer = endpoints.answer
    endpoints.answer = lambda target: asked.append(target) or answer(target)
    threads = [stuck_scrape(exporter, held)]
    found = []
    for _ in range(20):
        threads.append(
            threading.Thread(target=lambda: found.append(get(exporter.port, "/snapshot")[0]))
        )
        threads[-1].start()
    assert eventually(lambda: connections(exporter.pid) >= 21)
    time.sleep(0.5)  # all have asked by now; if not, they find it answered and ask again
    held.let_go.set()
    for thread in threads:
        thread.join()
    assert found == [200] * 20
    assert asked.count("/snapshot") <= 5


def connections(process):
    """Open sockets of a process but its port, its channel, and the pair that wakes its loop."""
    names = [str(entry.readlink()) for entry in Path(f"/proc/{process}/fd").iterdir()]
    return sum(name.startswith("socket:") for name in names) - 4


def test_few_questions_are_open_whatever_is_asked(watched):
    exporter, source, held = watched
    source.show(small_snapshot())
    threads = [stuck_scrape(exporter, held)]
    found, most = [], []
    runner = exporter._runner
    begin = runner._begin

    def count(*question):
        most.append(len(runner._new) + len(runner._begun) + 1)
        begin(*question)

    runner._begin = count

    def ask(number):
        found.append(get(exporter.port, f"/failures/{number}")[0])

    threads += [threading.Thread(target=ask, args=(number,)) for number in range(60)]
    for thread in threads[1:]:
        thread.start()
    assert eventually(lambda: connections(exporter.pid) >= 61)
    time.sleep(0.5)
    held.let_go.set()
    for thread in threads:
        thread.join()
    assert found == [404] * 60
    assert len(most) == 60
    assert 1 < max(most) <= 16


def test_it_imports_nothing_heavy():
    code = "import onearena.metrics.front, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert HEAVY.isdisjoint(json.loads(done.stdout))


# A shell without job control has its background jobs ignore Ctrl-C; here it has to arrive.
PARENT = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from prometheus_client.registry import CollectorRegistry
from onearena.metrics.exporter import start_exporter
exporter = start_exporter(0, registry=CollectorRegistry(), apart=True)
copy = os.fork() if sys.argv[1] == "fork" else 0
if copy or sys.argv[1] != "fork":
    print(exporter.port, exporter.pid, copy, flush=True)
time.sleep(120)
"""


def refuses(port):
    """Whether nobody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("how", ["plain", "fork"])
def test_it_ends_when_its_parent_is_killed(how):
    """Also while a fork of the parent has a copy of their channel."""
    command = [sys.executable, "-W", "ignore", "-c", PARENT, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        port, pid, copy = (int(word) for word in parent.stdout.readline().split())
        assert get(port, "/healthz")[0] == 200
        parent.kill()
        try:
            assert eventually(lambda: refuses(port))
            assert eventually(lambda: not Path(f"/proc/{pid}").exists())
        finally:
            if copy:
                os.kill(copy, signal.SIGKILL)


def test_an_interrupt_at_the_terminal_is_its_parents_business():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        port, pid, _ = (int(word) for word in parent.stdout.readline().split())
        assert get(port, "/healthz")[0] == 200
        apart = os.getpgid(pid) != os.getpgid(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)
    assert apart
    assert eventually(lambda: refuses(port))


def test_when_it_dies_that_is_said_and_close_still_works(watched, caplog):
    exporter, source, _ = watched
    source.show(small_snapshot())
    assert get(exporter.port, "/healthz")[0] == 200
    with caplog.at_level(logging.ERROR, logger="onearena.metrics"):
        os.kill(exporter.pid, signal.SIGKILL)
        assert eventually(lambda: not exporter.thread.is_alive())
    assert "nothing is served any more" in caplog.text
    assert refuses(exporter.port)
    exporter.close()
    assert not Path(f"/proc/{exporter.pid}").exists()
