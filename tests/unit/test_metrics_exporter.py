"""The HTTP server: every endpoint, what it refuses, TLS and passwords, hostile clients."""

from __future__ import annotations

import asyncio
import base64
import gc
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_case import samples, small_snapshot, value
from prometheus_client.registry import CollectorRegistry

from onearena.core.errors import UsageError
from onearena.core.snapshot import FenceSnapshot, UseSnapshot
from onearena.metrics import exporter as exporter_module
from onearena.metrics.collector import collector_of
from onearena.metrics.exporter import start_exporter
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.reply import Limits
from onearena.metrics.security import Passwords, Security
from onearena.metrics.server import parse_head
from onearena.metrics.source import SnapshotSource


@pytest.fixture
def registry():
    return CollectorRegistry()


WHERE = ("thread", "process")


@pytest.fixture(params=WHERE)
def serve(registry, request):
    """Starts exporters and ends them; then no thread is left. Every scrape is rendered.

    Twice: in a thread of this process, and in a process of its own. Clients see no difference.
    """
    started = []

    def start(*, limits=None, **settings):
        limits = limits or Limits(render_every_s=0.0)
        settings.setdefault("apart", request.param == "process")
        started.append(start_exporter(0, registry=registry, limits=limits, **settings))
        return started[-1]

    yield start
    for exporter in started:
        exporter.close()
        assert not exporter.thread.is_alive()


def request(exporter, target, method="GET", *, headers=(), context=None, body=None):
    """(status, headers, body)."""
    if context is None:
        connection = http.client.HTTPConnection(exporter.address, exporter.port, timeout=10)
    else:
        connection = http.client.HTTPSConnection(
            exporter.address, exporter.port, timeout=10, context=context
        )
    try:
        connection.request(method, target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def eventually(holds, *, within_s=30.0):
    """Whether it holds at some time before a limit that a busy machine keeps too."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def fresh(registry, snapshot=None, **settings):
    """A source whose snapshot is as old as the test."""
    source = SnapshotSource("0", **settings)
    collector_of(registry).add(source)
    source.show(snapshot or small_snapshot(), fit=((1, 2, 3), (1, 2, 3), (1, 2, 3)))
    return source


# -- endpoints -------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_registry(registry, serve):
    fresh(registry)
    exporter = serve()
    status, headers, body = request(exporter, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert headers["Onearena-Version"] == "1"
    found = samples(body.decode())
    assert value(found, "onearena_capacity_bytes", arena="0") == 1600
    second = samples(request(exporter, "/metrics")[2].decode())
    labels = {"endpoint": "/metrics", "code": "200"}
    assert value(second, "onearena_exporter_requests_total", **labels) == 1
    assert value(second, "onearena_exporter_connections") >= 1
    assert value(second, "onearena_exporter_cpu_seconds_total") > 0


def test_scrapes_in_quick_succession_are_rendered_once(registry, serve):
    source = fresh(registry)
    exporter = serve(limits=Limits(render_every_s=0.3))
    first = request(exporter, "/metrics")[2]
    source.show(small_snapshot(slack_bytes=1))
    assert request(exporter, "/metrics")[2] == first
    time.sleep(0.35)
    found = samples(request(exporter, "/metrics")[2].decode())
    assert value(found, "onearena_slack_bytes", arena="0") == 1


def test_it_listens_on_loopback_unless_told_otherwise(serve):
    exporter = serve()
    assert exporter.address == "127.0.0.1"
    assert exporter.url == f"http://127.0.0.1:{exporter.port}"
    assert exporter_module.PORT == 9464


def test_health_is_stale_when_snapshots_stop(registry, serve):
    now = [1000.0]
    source = SnapshotSource("0", wall=lambda: now[0])
    collector_of(registry).add(source)
    exporter = serve(stale_s=15.0, apart=False)  # a server elsewhere has a clock that goes on
    assert request(exporter, "/healthz")[0] == 503
    source.show(small_snapshot())
    assert request(exporter, "/healthz")[0::2] == (200, b"ok\n")
    now[0] += 14
    assert request(exporter, "/healthz")[0] == 200
    now[0] += 2
    status, _, body = request(exporter, "/healthz")
    assert status == 503
    assert b"arena 0: no snapshot for 16 s" in body
    source.show(small_snapshot())
    assert request(exporter, "/healthz")[0] == 200


def test_health_of_a_campaign_without_an_arena(registry, serve):
    harness = HarnessSource()
    exporter = serve(harness=harness)
    assert request(exporter, "/healthz")[0] == 503
    harness.publish(Progress(taken_s=time.time()))
    assert request(exporter, "/healthz")[0] == 200
    harness.publish(Progress(taken_s=time.time() - 100))
    # No clock runs so; a server elsewhere knew better for 15 s, and asks again now and then.
    assert eventually(lambda: request(exporter, "/healthz")[0] == 503)


def test_the_summary_says_what_the_snapshot_says(registry, serve):
    fresh(registry)
    document = json.loads(request(serve(), "/snapshot")[2])
    assert document["version"] == 1
    assert [each["name"] for each in document["bands"]] == ["state", "window_8", "full"]
    assert document["bands"][2]["end_bytes"] == 1600
    assert document["bands"][0]["fit_units"] == [1, 2, 3]
    assert document["gaps"][0]["fenced_bytes"] == 16
    assert document["uses_total"] == 2
    assert document["counters"]["settles"] == 8


def test_the_summary_stays_below_64_kib(registry, serve):
    uses = tuple(UseSnapshot(1 << 40, 0, 1, 1 << 40, False) for _ in range(5000))
    # A fence may have a use of each stream, and there may be many.
    fence = tuple((kind % 8, kind, 1 << 40, True) for kind in range(32))
    fences = tuple(FenceSnapshot(64, 80, fence) for _ in range(300))
    fresh(registry, small_snapshot(uses=uses, fences=fences))
    body = request(serve(), "/snapshot")[2]
    assert len(body) <= 1 << 16
    document = json.loads(body)
    assert document["uses_total"] == 5000
    assert 0 < len(document["uses"]) < 256
    assert document["fences_total"] == 300


def test_the_map_and_units_of_a_snapshot_that_holds_them(registry, serve):
    fresh(registry)
    exporter = serve()
    status, headers, body = request(exporter, "/map?width=100")
    assert status == 200
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Onearena-Epoch"] == "7"
    # 16 bytes a pixel: state (live, pending), a fence, a gap, the window's units, a gap, full.
    assert body[:5] == bytes([2, 2, 3, 3, 5])
    assert body[9:23] == bytes([0, 2, 2, 2, 2, 1, 1, 1, 1, 4, 4, 4, 4, 0])
    assert body[89:] == bytes([0] + [2] * 9 + [1])
    assert request(exporter, "/map?width=2&from=0&to=64")[2] == bytes([2, 3])
    document = json.loads(request(exporter, "/units?band=full&from=7&count=5")[2])
    assert [(row["unit"], row["state"], row["id"]) for row in document["units"]] == [
        (7, "live", 107),
        (8, "live", 108),
        (9, "hole", 0),
    ]


def bare(snapshot):
    """The snapshot without its units, as a control thread publishes it."""
    from dataclasses import replace

    return replace(snapshot, bands=tuple(replace(b, states=b"", ids=()) for b in snapshot.bands))


def test_the_map_is_asked_of_the_control_thread(registry, serve):
    source = fresh(registry, bare(small_snapshot()))
    exporter = serve()

    class Arena:
        def snapshot(self, *, units=True):
            return small_snapshot() if units else bare(small_snapshot())

    def control():
        for _ in range(200):
            source.tick(Arena())
            time.sleep(0.01)
            if answers:
                return

    answers = []
    thread = threading.Thread(target=control)
    thread.start()
    answers.append(request(exporter, "/map?width=100"))
    thread.join()
    assert answers[0][0] == 200
    assert answers[0][2][:5] == bytes([2, 2, 3, 3, 5])


def test_a_control_thread_that_is_busy_makes_503_and_no_wait_without_end(registry, serve):
    fresh(registry, bare(small_snapshot()))
    exporter = serve()
    for target in ("/map?width=10", "/units?band=full"):
        started = time.monotonic()
        status, _, body = request(exporter, target)
        assert status == 503
        assert b"did not answer" in body
        assert time.monotonic() - started < 5


def test_campaign_and_failures(registry, serve):
    harness = HarnessSource()
    exporter = serve(harness=harness)
    assert request(exporter, "/campaign")[0] == 404
    harness.publish(
        Progress(summary={"schedules": 3}, failures=({"seed": 4}, {"seed": 9}), taken_s=5.0)
    )
    document = json.loads(request(exporter, "/campaign")[2])
    assert document["summary"] == {"schedules": 3}
    assert document["failures"] == 2
    assert json.loads(request(exporter, "/failures/1")[2])["failure"] == {"seed": 9}
    for bad in ("2", "-1", "x", "", "1/2", "9999999", "%31"):
        assert request(exporter, f"/failures/{bad}")[0] == 404, bad
    harness.publish(Progress(failures=({"text": "x" * (1 << 19)},)))
    assert request(exporter, "/failures/0")[0] == 500


REFUSED = {
    "/": 404,
    "/metrics/": 404,
    "/metricsx": 404,
    "/../etc/passwd": 404,
    "/failures": 404,
    "/map?width=0": 400,
    "/map?width=99999": 400,
    "/map?width=1e3": 400,
    "/map?from=1600": 400,
    "/map?from=5&to=5": 400,
    "/map?to=1601": 400,
    "/map?width=1&width=2": 400,
    "/map?arena=7": 404,
    "/units": 400,
    "/units?band=nope": 400,
    "/units?band=full&count=1001": 400,
    "/units?band=full&from=-1": 400,
    "/units?band=full&count=%D9%A1": 400,
    "/snapshot?version=2": 400,
    "/snapshot?" + "&".join(f"a{n}=1" for n in range(30)): 400,
    "/snapshot?a=%FF": 400,
}


@pytest.fixture(scope="module", params=WHERE)
def standing(request):
    """One exporter for tests that only ask."""
    registry = CollectorRegistry()
    fresh(registry)
    exporter = start_exporter(0, registry=registry, stale_s=1000, apart=request.param == "process")
    yield exporter
    exporter.close()


@pytest.mark.parametrize(("target", "status"), REFUSED.items())
def test_bad_requests_get_one_line_that_names_the_fault(standing, target, status):
    found, headers, body = request(standing, target)
    assert found == status
    assert json.loads(body)["error"]
    assert headers["Onearena-Version"] == "1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(standing, method):
    status, headers, _ = request(standing, "/metrics", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head_has_the_length_and_no_body(standing):
    status, headers, body = request(standing, "/snapshot", "HEAD")
    assert status == 200
    assert int(headers["Content-Length"]) > 100
    assert body == b""


def test_a_connection_serves_more_than_one_request(standing):
    connection = http.client.HTTPConnection(standing.address, standing.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert answer.read()
        assert answer.getheader("Connection") == "keep-alive"
        same = connection.sock
    assert same is connection.sock is not None
    connection.close()


@pytest.mark.parametrize("count", [1, 350, 3000])
def test_pipelined_requests_are_answered_in_order(standing, count):
    last = b"GET /nope HTTP/1.1\r\nConnection: close\r\n\r\n"
    received = raw(standing, b"GET /healthz HTTP/1.1\r\n\r\n" * count + last, wait=20)
    answers = re.findall(rb"HTTP/1\.1 (\d+) ", received)
    assert answers == [b"200"] * count + [b"404"]


def test_a_body_is_never_read(standing):
    status, headers, _ = request(standing, "/healthz", "POST", body=b"x" * 100)
    assert status == 405
    assert headers["Connection"] == "close"


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(raw):
    head = raw + b"\r\n\r\n"
    found = parse_head(head)
    if found is not None:
        assert found.target.startswith("/")


def test_the_parser_takes_real_requests_and_no_near_misses():
    found = parse_head(b"GET /metrics?a=1 HTTP/1.1\r\nHost: x\r\nACCEPT:  text/plain \r\n\r\n")
    assert (found.method, found.target, found.keep) == ("GET", "/metrics?a=1", True)
    assert found.headers == {"host": "x", "accept": "text/plain"}
    assert not parse_head(b"GET / HTTP/1.0\r\n\r\n").keep
    assert not parse_head(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").keep
    for bad in (
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET http://x/ HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
        b"GET / HTTP/1.1\r\nno colon",
        b"GET / HTTP/1.1\r\nname : x",
        b"GET / HTTP/1.1\r\na: b\r\n folded",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n" + b"\r\n".join(b"a: b" for _ in range(70)),
    ):
        assert parse_head(bad + b"\r\n\r\n") is None, bad


# -- clients that misbehave ------------------------------------------------------------------------


def raw(exporter, data, *, wait=5.0):
    """Send these bytes; everything that comes back until the server ends the connection."""
    with socket.create_connection((exporter.address, exporter.port), timeout=wait) as sock:
        sock.sendall(data)
        received = b""
        while chunk := sock.recv(65536):
            received += chunk
        return received


def test_garbage_and_oversized_requests_are_answered_and_cut_off(standing):
    assert raw(standing, b"garbage\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert raw(standing, b"GET /" + b"a" * 9000).startswith(b"HTTP/1.1 431 ")
    many = b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 65 + b"\r\n"
    assert raw(standing, many).startswith(b"HTTP/1.1 400 ")


def test_slow_clients_are_cut_off(registry, serve):
    fresh(registry)
    exporter = serve(limits=Limits(request_s=0.3, idle_s=0.3, render_every_s=0.0))
    started = time.monotonic()
    assert raw(exporter, b"GET /metrics HTT") == b""  # never finishes its request
    assert raw(exporter, b"GET /healthz HTTP/1.1\r\n\r\n").endswith(b"ok\n")  # idle afterwards
    assert 0.5 < time.monotonic() - started < 5
    found = samples(request(exporter, "/metrics")[2].decode())
    assert value(found, "onearena_exporter_cut_connections_total", reason="slow") == 2


def test_a_client_that_does_not_read_is_cut_off(registry, serve):
    harness = HarnessSource()
    harness.publish(Progress(failures=({"text": "x" * 200_000},), taken_s=time.time()))
    exporter = serve(harness=harness, limits=Limits(answer_s=0.5, render_every_s=0.0))
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((exporter.address, exporter.port))
        sock.sendall(b"GET /failures/0 HTTP/1.1\r\n\r\n" * 40)
        deadline = time.monotonic() + 10
        cut = 0
        while not cut and time.monotonic() < deadline:
            time.sleep(0.1)
            found = samples(request(exporter, "/metrics")[2].decode())
            cut = value(found, "onearena_exporter_cut_connections_total", reason="slow")
    assert cut == 1


def test_the_newest_connection_takes_the_place_of_the_one_idle_longest(registry, serve):
    fresh(registry)
    exporter = serve(limits=Limits(connections=8, render_every_s=0.0))
    idle = [
        socket.create_connection((exporter.address, exporter.port), timeout=5) for _ in range(20)
    ]
    assert request(exporter, "/healthz")[0] == 200
    found = samples(request(exporter, "/metrics")[2].decode())
    assert value(found, "onearena_exporter_connections") <= 8
    assert value(found, "onearena_exporter_cut_connections_total", reason="crowded") >= 12
    for sock in idle[:12]:
        assert ended(sock)
    idle[-1].settimeout(0.1)
    with pytest.raises(TimeoutError):
        idle[-1].recv(1)
    for sock in idle:
        sock.close()


def ended(sock):
    """Whether the server ended this connection."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_port_that_is_taken_is_one_clear_line(standing):
    before = threading.active_count()
    with pytest.raises(UsageError) as caught:
        start_exporter(standing.port, registry=CollectorRegistry())
    assert caught.value.message == (
        f"port: {standing.port} is not accepted; another process listens there; "
        "give another port, or 0 for a free one"
    )
    assert threading.active_count() == before


@pytest.mark.parametrize("address", ["203.0.113.7", "not an address", ""])
def test_an_address_that_cannot_be_had_is_one_clear_line(address):
    with pytest.raises(UsageError) as caught:
        start_exporter(0, address=address or "256.1.1.1", registry=CollectorRegistry())
    assert "\n" not in caught.value.message


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("apart", [False, True])
def test_nothing_is_left_after_close(registry, apart):
    fresh(registry)
    gc.collect()  # what other tests left is not counted
    before = threading.active_count(), open_files()
    for _ in range(3):
        exporter = start_exporter(0, registry=registry, apart=apart)
        open_ones = [
            socket.create_connection((exporter.address, exporter.port), timeout=5) for _ in range(5)
        ]
        assert request(exporter, "/healthz")[0] == 200
        exporter.close()
        exporter.close()
        for sock in open_ones:
            sock.close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((exporter.address, exporter.port), timeout=5)
    assert (threading.active_count(), open_files()) == before


# -- TLS and passwords -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, a certificate for 127.0.0.1, and a client's."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates of this test, and is not here")
    folder = tmp_path_factory.mktemp("certificates")

    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "")):
        run("req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "ext").write_text(extension)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        run("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem", "-extfile", "ext")
    return folder


def trusting(folder, *, client=False):
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if client:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def test_tls_serves_those_who_trust_it(registry, serve, certificates):
    fresh(registry)
    exporter = serve(
        security=Security(certificate=certificates / "server.pem", key=certificates / "server.key")
    )
    assert exporter.url.startswith("https://")
    assert request(exporter, "/healthz", context=trusting(certificates))[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        request(exporter, "/healthz", context=ssl.create_default_context())
    assert b"HTTP" not in raw_or_nothing(exporter, b"GET /healthz HTTP/1.1\r\n\r\n")
    old = trusting(certificates)
    with pytest.warns(DeprecationWarning, match="TLSv1 is deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the library
        request(exporter, "/healthz", context=old)


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered_in_tls(
    registry, serve, certificates, monkeypatch
):
    """Bytes may reach a connection before the handshake's task has told it that it is secure."""
    started = asyncio.BaseEventLoop.start_tls

    async def late(*arguments, **settings):
        secure = await started(*arguments, **settings)
        await asyncio.sleep(0.2)
        return secure

    monkeypatch.setattr(asyncio.BaseEventLoop, "start_tls", late)
    fresh(registry)
    security = Security(certificate=certificates / "server.pem", key=certificates / "server.key")
    exporter = serve(security=security)
    assert request(exporter, "/healthz", context=trusting(certificates))[0] == 200


def raw_or_nothing(exporter, data):
    try:
        return raw(exporter, data)
    except ConnectionError:
        return b""


def test_mutual_tls_serves_only_those_it_trusts(registry, serve, certificates):
    fresh(registry)
    exporter = serve(
        security=Security(
            certificate=certificates / "server.pem",
            key=certificates / "server.key",
            client_ca=certificates / "ca.pem",
        )
    )
    assert request(exporter, "/healthz", context=trusting(certificates, client=True))[0] == 200
    with pytest.raises(OSError):  # noqa: PT011 - alert or reset, as the library has it
        request(exporter, "/healthz", context=trusting(certificates))


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ({"certificate": "nope.pem"}, "certificate"),
        ({"certificate": "server.pem", "key": "client.key"}, "certificate"),
        ({"key": "server.key"}, "key"),
        ({"client_ca": "ca.pem"}, "client_ca"),
        (
            {"certificate": "server.pem", "key": "server.key", "client_ca": "server.key"},
            "client_ca",
        ),
    ],
)
def test_files_that_do_not_serve_are_named(certificates, files, field):
    security = Security(**{name: certificates / file for name, file in files.items()})
    with pytest.raises(UsageError) as caught:
        security.context()
    assert caught.value.field == field
    assert "\n" not in caught.value.message


def password_file(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


def basic(user, password):
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}


def test_passwords_guard_every_endpoint(registry, serve, tmp_path):
    fresh(registry)
    file = password_file(tmp_path / "passwords", "prom:se:cret\n\nother:two\n")
    exporter = serve(security=Security(passwords=file))
    for target in ("/metrics", "/healthz", "/snapshot", "/nope"):
        status, headers, _ = request(exporter, target)
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic ")
    for user, password, status in (
        ("prom", "se:cret", 200),
        ("other", "two", 200),
        ("prom", "two", 401),
        ("prom", "", 401),
        ("nobody", "", 401),
        ("", "", 401),
    ):
        assert request(exporter, "/healthz", headers=basic(user, password))[0] == status, user
    for header in ("Basic", "Basic !", "Bearer se:cret", "Basic cHJvbQ=="):
        assert request(exporter, "/healthz", headers={"Authorization": header})[0] == 401


def test_the_password_file_is_read_again_when_it_changes(tmp_path):
    file = password_file(tmp_path / "passwords", "a:one\n")
    passwords = Passwords(file)
    one, two = basic("a", "one")["Authorization"], basic("a", "two")["Authorization"]
    assert passwords.allow(one)
    password_file(file, "a:two\n")
    os.utime(file, ns=(1, 1))  # another time, whatever the clock's resolution
    assert passwords.allow(two)
    assert not passwords.allow(one)
    for spoil in (file.unlink, lambda: password_file(file, "a:two", 0o644)):
        spoil()
        assert not passwords.allow(two)  # closed, not open
        password_file(file, "a:two\n")
        os.utime(file, ns=(2, 2))
        assert passwords.allow(two)


@pytest.mark.parametrize(
    "text", ["", "\n", "nocolon\n", ":x\n", "a:\n", "a:b\nbroken\n", "a:b\n" * 20_000]
)
def test_a_password_file_that_makes_no_sense_is_refused(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        Passwords(password_file(tmp_path / "passwords", text))
    assert "b'" not in caught.value.message


def test_a_password_file_that_others_can_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="chmod 600"):
        Passwords(password_file(tmp_path / "passwords", "a:b\n", 0o640))
    with pytest.raises(UsageError, match="can be read"):
        Passwords(tmp_path / "none")


def test_passwords_are_not_sent_in_clear_over_a_network(tmp_path):
    file = password_file(tmp_path / "passwords", "a:b\n")
    with pytest.raises(UsageError, match="certificate"):
        start_exporter(
            0, address="0.0.0.0", registry=CollectorRegistry(), security=Security(passwords=file)
        )


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_no_authorization_header_breaks_it(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("p") / "passwords"
    assert not Passwords(password_file(file, "a:b\n")).allow(text)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_closing_under_connections_leaves_no_socket_to_the_garbage_collector(registry):
    """Also those that were taken from the port and not yet handed to their protocol."""
    fresh(registry)
    for _ in range(5):
        exporter = start_exporter(0, registry=registry)
        clients = []
        for _ in range(60):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex((exporter.address, exporter.port))
            clients.append(client)
        exporter.close()
        for client in clients:
            client.close()
    gc.collect()
