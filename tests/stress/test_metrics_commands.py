"""`onearena stress --metrics-port`: what it prints, refuses and shows."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from metrics_case import samples

from onearena.stress.cli import run


def complaint(capsys, *arguments):
    """The one line of a refused command line."""
    assert run(["stress", "--seed", "1", "--system", "toy", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("port", ["x", "-1", "65536", "9464.0", "٣", ""])
def test_a_port_that_is_none_is_refused(capsys, port):
    assert "--metrics-port" in complaint(capsys, "--metrics-port", port)


def test_a_port_that_is_taken_is_one_line(capsys):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        line = complaint(capsys, "--metrics-port", port)
    assert line.startswith(f"onearena: --metrics-port: {port} ")
    assert "another process listens there" in line


@pytest.mark.parametrize(
    ("flag", "value", "named"),
    [
        ("cert", "none.pem", "--metrics-cert"),
        ("key", "none.pem", "--metrics-key"),
        ("client-ca", "none.pem", "--metrics-client-ca"),
        ("passwords", "none", "--metrics-passwords"),
        ("address", "nowhere.invalid", "--metrics-address"),
    ],
)
def test_files_and_addresses_that_do_not_serve_are_named(capsys, flag, value, named):
    assert named in complaint(capsys, "--metrics-port", "0", f"--metrics-{flag}", value)


def test_protection_without_a_port_is_refused(capsys):
    assert "--metrics-port" in complaint(capsys, "--metrics-cert", "cert.pem")


def test_one_seed_alone_can_be_watched(capsys):
    assert run(["stress", "--seed", "3", "--system", "toy", "--metrics-port", "0"]) == 0
    told = capsys.readouterr().err
    assert re.fullmatch(r"metrics at http://127\.0\.0\.1:\d+/metrics\n", told)


@pytest.mark.slow
def test_workers_send_what_their_arenas_do():
    command = [sys.executable, "-m", "onearena.stress.cli", "stress", "--jobs", "2"]
    command += ["--budget", "60s", "--metrics-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            port = int(re.search(rb":(\d+)/metrics", child.stderr.readline())[1])
            deadline = time.monotonic() + 55
            arenas = set()
            while arenas < {"0", "1"} and time.monotonic() < deadline:
                time.sleep(0.5)
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                        found = samples(page.read().decode())
                except OSError:
                    continue
                arenas = {
                    dict(labels)["arena"]
                    for name, labels in found
                    if name == "onearena_capacity_bytes"
                }
            assert arenas == {"0", "1"}
            for arena in arenas:
                parts = [
                    size
                    for (name, labels), size in found.items()
                    if name in ("onearena_band_bytes", "onearena_gap_bytes")
                    and ("arena", arena) in labels
                ]
                whole = found["onearena_capacity_bytes", frozenset({("arena", arena)})]
                assert sum(parts) == whole
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            # Snapshots of workers hold their units: nobody has to be asked. A worker between two
            # arenas has none to show for a moment, which is said and passes.
            for _ in range(30):
                connection.request("GET", "/map?arena=1&width=64")
                answer = connection.getresponse()
                pixels = answer.read()
                if answer.status == 200:
                    break
                time.sleep(1)
            assert len(pixels) == 64
            connection.request("GET", "/snapshot?arena=1")
            band = json.loads(connection.getresponse().read())["bands"][0]["name"]
            connection.request("GET", f"/units?arena=1&band={band}")
            assert connection.getresponse().status in (200, 400)  # 400: the next arena by now
            connection.close()
        finally:
            child.kill()
            child.communicate()
