"""A real Prometheus on loopback, for tests: started in a folder of its own, asked over HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Prometheus:
    """A running server; `targets` are scraped once a second as job `onearena`."""

    def __init__(self, folder, targets):
        binary = shutil.which("prometheus")
        if binary is None:
            pytest.skip("prometheus is not here (Debian: apt-get install prometheus)")
        self.port = free_port()
        sample = (ROOT / "metrics" / "prometheus.yml").read_text()
        config = sample.replace('["127.0.0.1:9464"]', json.dumps(targets))
        config = config.replace("rules/onearena.yml", str(ROOT / "metrics/rules/onearena.yml"))
        assert config.count(targets[0]) == 1
        (folder / "prometheus.yml").write_text(config)
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                binary,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.wait_for(self._ready, "to be ready")

    def _ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            assert self._process.poll() is None, "prometheus ended"
            return False

    def wait_for(self, answer, what, seconds=60):
        """The first true answer; fails after `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = answer()
            if found:
                return found
            time.sleep(0.25)
        pytest.fail(f"waited {seconds} s for {what}")

    def get(self, path, **query):
        """The `data` of an API call."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]

    def instant(self, expr, at):
        """{frozenset of labels: value} of an instant query."""
        rows = self.get("query", query=expr, time=at)["result"]
        return {frozenset(row["metric"].items()): float(row["value"][1]) for row in rows}

    def firing(self):
        """Names of the alerts that fire now."""
        alerts = self.get("alerts")["alerts"]
        return {row["labels"]["alertname"] for row in alerts if row["state"] == "firing"}

    def close(self):
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
