"""Servers of the user interface's tests: an exporter that shows what a test says, and the app."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

from prometheus_client.registry import CollectorRegistry

from onearena.dashboard.settings import Settings
from onearena.metrics.collector import collector_of
from onearena.metrics.exporter import start_exporter
from onearena.metrics.recorder import MoveSeen, Timings, WaitSeen
from onearena.metrics.source import SnapshotSource

ROOT = Path(__file__).resolve().parents[2]


class Shown:
    """An exporter over one source; `show` says what it shows from now on, twice a second."""

    def __init__(self, snapshot, *, timings=None):
        registry = CollectorRegistry()
        self.source = SnapshotSource("0", device="modeled")
        collector_of(registry).add(self.source)
        self._timings = timings
        self._snapshot = snapshot
        self._over = threading.Event()
        self.show(snapshot)
        self.exporter = start_exporter(0, registry=registry)
        self.url = self.exporter.url
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def show(self, snapshot):
        """Show this snapshot."""
        self._snapshot = snapshot
        if self._timings is not None:
            self.source.recorder = self
        self.source.show(snapshot, fit=((1, 2, 3),) * len(snapshot.bands))

    def freeze(self):
        """What a recorder would say."""
        now = time.monotonic()
        moves, waits = self._timings
        return Timings(
            moves=tuple(MoveSeen(at + 1, now, *move) for at, move in enumerate(moves)),
            waits=tuple(WaitSeen(*wait, now) for wait in waits),
        )

    def _go_on(self):
        while not self._over.wait(0.5):
            self.show(self._snapshot)

    def close(self):
        """Nobody answers from now on."""
        self._over.set()
        self._thread.join()
        self.exporter.close()


def free_port():
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running_app(sources=(), *, folder="", file="", within_s=90.0):
    """The application in a process of its own; yields its address once it answers."""
    from onearena.stress.dashboard_cli import dashboard_command

    port = free_port()
    command, _ = dashboard_command(
        tuple(sources), str(folder) or None, str(port), None, made=Path(folder or ".")
    )
    settings = Settings(tuple(sources), str(folder), file)
    environment = dict(os.environ) | settings.to_environment() | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", process, within_s)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _wait_for(url, process, within_s):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout.read().decode()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2).close()
            return
        time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within {within_s} s")
