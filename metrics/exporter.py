"""The HTTP server of the metrics: one thread, one event loop, bounded in everything.

A thread a connection would let a few hundred half-open sockets starve a health check; here a
connection that waits costs a small object. Every connection has a deadline for its handshake, its
request and for reading the answer; when all places are taken, the newest connection takes the
place of the one that has been idle longest. Only GET and HEAD; a request's body is never read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from onearena.core.errors import UsageError
from onearena.metrics.collector import collector_of
from onearena.metrics.endpoints import (
    API_VERSION,
    LOOK_EVERY_S,
    STALE_S,
    Endpoints,
    Response,
    Steps,
)
from onearena.metrics.harness import HarnessSource
from onearena.metrics.security import Passwords, Security
from onearena.metrics.stats import ExporterStats

PORT: Final = 9464
ADDRESS: Final = "127.0.0.1"
CONNECTIONS_MAX: Final = 256
HEAD_BYTES_MAX: Final = 8192
REQUEST_S: Final = 5.0
IDLE_S: Final = 30.0
ANSWER_S: Final = 5.0
SWEEP_S: Final = 0.25
BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 16
"""Connections taken in one turn of the loop. A health check is answered a few turns after its
connection is taken, so a flood cannot crowd it out before: a few times this is below the limit."""

LOG: Final = logging.getLogger("onearena.metrics")
_LINE: Final = re.compile(rb"([A-Za-z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):[ \t]*([ -~\t]*)")


class Request:
    """The head of one request."""

    __slots__ = ("headers", "keep", "method", "target")

    def __init__(self, method: str, target: str, headers: Mapping[str, str], *, keep: bool) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.keep = keep


def parse_head(head: bytes) -> Request | None:
    """The request of these bytes, which end in an empty line; None if they are none."""
    first, *rest = head[:-4].split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None or len(rest) > 64:
        return None
    headers: dict[str, str] = {}
    for row in rest:
        found = _HEADER.fullmatch(row)
        if found is None:
            return None
        headers[found[1].decode().lower()] = found[2].decode().strip()
    connection = headers.get("connection", "").lower()
    keep = line[3] == b"1" and connection != "close"
    # A body is not read, so what follows it could not be told from a request.
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        keep = False
    return Request(line[1].decode(), line[2].decode(), headers, keep=keep)


class _Connection(asyncio.Protocol):
    """One client: bytes in, one request at a time, answers out. Exporter's thread only."""

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter
        self.transport: asyncio.Transport | None = None
        self.deadline = 0.0
        self.busy = False  # a request is being answered, or its answer is not read yet
        self._buffer = bytearray()
        self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there, on a plain connection."""
        assert isinstance(transport, asyncio.Transport), transport
        self.transport = transport
        self.exporter.admit(self)

    def ready(self, transport: asyncio.Transport) -> None:
        """Requests may come: at once, or after the handshake of TLS."""
        self.transport = transport
        transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """More of a request; what comes while one is answered waits, up to a bound."""
        self._buffer += data
        if not self.busy:
            self._next()
        elif len(self._buffer) > HEAD_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Either side has ended it."""
        self.exporter.forget(self, broken=exc is not None or (bool(self._buffer) and not self.busy))

    def pause_writing(self) -> None:
        """The client does not read; it gets `ANSWER_S` to begin."""
        self.busy = True
        self.deadline = self.exporter.now() + ANSWER_S

    def resume_writing(self) -> None:
        """All was read."""
        self.busy = False
        if not self._ending:
            self.deadline = self.exporter.now() + IDLE_S
            self._next()

    def respond(self, response: Response, *, keep: bool, body: bool = True) -> None:
        """Send an answer, and take the next request or end."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.busy = False
        self.exporter.count(response)
        self.deadline = self.exporter.now() + (IDLE_S if keep else ANSWER_S)
        head = _head(response, keep=keep)
        transport.write(head + response.body if body else head)
        if not keep:
            self._ending = self.busy = True
            self._buffer.clear()
            transport.close()  # after what was written
        else:
            self.exporter.later(0.0, self._go_on)  # not now: answers would nest

    def _go_on(self) -> None:
        if not self.busy and self._buffer:
            self._next()

    def _next(self) -> None:
        assert self.transport is not None, "data comes after the connection"
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= HEAD_BYTES_MAX:
                self.respond(Response(431, b"request too large\n"), keep=False)
            else:
                self.transport.resume_reading()
            return
        request = parse_head(bytes(self._buffer[: end + 4]))
        del self._buffer[: end + 4]
        self.busy = True
        if request is None:
            self.respond(Response(400, b"not an HTTP/1.1 request\n"), keep=False)
        else:
            self.exporter.take(self, request)


class Exporter:
    """A running server; `close` ends it and its thread. Made by `start_exporter`."""

    def __init__(
        self, endpoints: Endpoints, stats: ExporterStats, *, security: Security, limit: int
    ) -> None:
        self._endpoints = endpoints
        self._stats = stats
        self._context = security.context()
        self._passwords = Passwords(security.passwords) if security.passwords else None
        self._limit = limit
        # Idle longest first: a connection goes to the end when it has been served.
        self._open: dict[_Connection, None] = {}
        # Requests that take work: one a turn of the loop, so that many of them delay a health
        # check by one and not by all.
        self._waiting: deque[tuple[_Connection, Request]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="onearena-metrics", daemon=True)
        self._socket: socket.socket | None = None
        self._sweeping = False
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.port = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        scheme = "https" if self._context is not None else "http"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{scheme}://{host}:{self.port}"

    def start(self, address: str, port: int) -> None:
        """Bind and serve; `UsageError` for an address or port that cannot be had."""
        self._socket = _bind(address, port)
        self.address, self.port = self._socket.getsockname()[:2]
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Stop serving, end all connections, join the thread. Again: nothing."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        assert self._loop is not None, "start makes the loop"
        asyncio.set_event_loop(self._loop)
        self._stats.begin()
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._stats.end()
            self._loop.close()

    async def _serve(self) -> None:
        assert self._loop is not None, "start makes the loop"
        assert self._socket is not None, "start binds before the thread starts"
        server = await self._loop.create_server(
            lambda: _Connection(self),
            sock=self._socket,
            backlog=ACCEPTED_AT_ONCE,  # asyncio takes this many a turn
        )
        self._socket.listen(BACKLOG)  # and asked the kernel to queue as few: a flood fills that
        await self._stop.wait()
        server.close()
        for connection in list(self._open):
            self._abort(connection)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close their sockets in this turn

    # -- connections, called by them ---------------------------------------------------------------

    def now(self) -> float:
        """The loop's clock."""
        assert self._loop is not None, "start makes the loop"
        return self._loop.time()

    def admit(self, connection: _Connection) -> None:
        """A new connection; with TLS its handshake begins."""
        if len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            self._stats.cut["crowded"] += 1
            self._abort(oldest)
        if not self._sweeping:
            self._sweeping = True
            self.later(SWEEP_S, self._sweep)
        self._open[connection] = None
        self._stats.open = len(self._open)
        connection.deadline = self.now() + REQUEST_S
        assert connection.transport is not None, "it is connected"
        if self._context is None:
            connection.ready(connection.transport)
        else:
            connection.transport.pause_reading()  # the handshake's bytes are not for us
            self._spawn(self._upgrade(connection, self._context))

    async def _upgrade(self, connection: _Connection, context: ssl.SSLContext) -> None:
        assert self._loop is not None, "start makes the loop"
        assert connection.transport is not None, "it is connected"
        plain = connection.transport
        try:
            secure = await self._loop.start_tls(
                plain, connection, context, server_side=True, ssl_handshake_timeout=REQUEST_S
            )
        except OSError:  # a client without TLS, without a certificate, or gone
            plain.abort()
            self.forget(connection, broken=True)
            return
        if secure is None or connection not in self._open:
            plain.abort()
            return
        connection.deadline = self.now() + REQUEST_S
        connection.ready(secure)

    def forget(self, connection: _Connection, *, broken: bool) -> None:
        """A connection has ended."""
        if connection in self._open:  # else it was cut, and counted then
            del self._open[connection]
            self._stats.cut["broken"] += broken
        self._stats.open = len(self._open)

    def _abort(self, connection: _Connection) -> None:
        self._open.pop(connection, None)
        if connection.transport is not None:
            connection.transport.abort()

    def _sweep(self) -> None:
        """End connections whose time is over."""
        now = self.now()
        for connection in [each for each in self._open if each.deadline <= now]:
            self._stats.cut["slow"] += 1
            self._abort(connection)
        self._sweeping = bool(self._open)  # nothing to do while nobody is there
        if self._sweeping:
            self.later(SWEEP_S, self._sweep)

    # -- requests ----------------------------------------------------------------------------------

    def count(self, response: Response) -> None:
        """An answer is sent."""
        self._stats.requests[response.endpoint, str(response.status)] += 1

    def take(self, connection: _Connection, request: Request) -> None:
        """Answer at once what takes no work; the rest waits for its turn."""
        connection.deadline = self.now() + ANSWER_S + REQUEST_S
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)  # not idle
        if self._passwords is not None and not self._passwords.allow(
            request.headers.get("authorization", "")
        ):
            challenge = (("WWW-Authenticate", 'Basic realm="onearena", charset="UTF-8"'),)
            refusal = Response(401, b"give a user and a password\n", headers=challenge)
            connection.respond(refusal, keep=request.keep, body=request.method != "HEAD")
        elif request.method not in ("GET", "HEAD"):
            refusal = Response(405, b"GET and HEAD only\n", headers=(("Allow", "GET, HEAD"),))
            connection.respond(refusal, keep=request.keep)
        elif request.target == "/healthz":
            self._advance(connection, request, self._endpoints.answer(request.target))
        else:
            self._waiting.append((connection, request))
            if len(self._waiting) == 1:
                self.later(0.0, self._turn)

    def _turn(self) -> None:
        connection, request = self._waiting.popleft()
        if self._waiting:
            self.later(0.0, self._turn)
        if connection in self._open:
            self._advance(connection, request, self._endpoints.answer(request.target))

    def _advance(self, connection: _Connection, request: Request, steps: Steps) -> None:
        """One step of an answer; respond if it was the last."""
        try:
            next(steps)
        except StopIteration as done:
            response = done.value
        except Exception:
            LOG.exception("%s could not be answered", request.target)
            response = Response(500, b"this is a bug in onearena; its log says more\n")
        else:
            if connection in self._open:
                self.later(LOOK_EVERY_S, self._advance, connection, request, steps)
            return
        connection.respond(response, keep=request.keep, body=request.method != "HEAD")

    def later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Call this in a later turn of the loop."""
        assert self._loop is not None, "start makes the loop"
        if seconds:
            self._loop.call_later(seconds, call, *arguments)
        else:
            self._loop.call_soon(call, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None, "start makes the loop"
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _head(response: Response, *, keep: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.kind}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Onearena-Version: {API_VERSION}",
        f"Connection: {'keep-alive' if keep else 'close'}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _bind(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError("address", address, f"give an address to listen on ({error})") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        bound.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            fix = "another process listens there; give another port, or 0 for a free one"
            raise UsageError("port", port, fix) from None
        raise UsageError("address", f"{address}:{port}", f"it cannot be had ({error})") from None
    return bound


def start_exporter(
    port: int = PORT,
    *,
    address: str = ADDRESS,
    registry: CollectorRegistry = REGISTRY,
    security: Security | None = None,
    harness: HarnessSource | None = None,
    stale_s: float = STALE_S,
    connections_max: int = CONNECTIONS_MAX,
) -> Exporter:
    """Serve a registry over HTTP from a thread of its own; any thread may call this.

    `port` 0 takes a free one. Everything is read-only and bounded; `docs/metrics.md` lists the
    endpoints. `UsageError` says what is wrong with a port, a certificate or a password file.
    Passwords need TLS unless the address is loopback.
    """
    wanted = security or Security()
    loopback = address in ("localhost", "::1") or address.startswith("127.")
    if wanted.passwords is not None and wanted.certificate is None and not loopback:
        raise UsageError(
            "passwords", str(wanted.passwords), "give a certificate too: they would go in clear"
        )
    collector = collector_of(registry)
    stats = ExporterStats()
    endpoints = Endpoints(registry, collector, stale_s=stale_s)
    exporter = Exporter(endpoints, stats, security=wanted, limit=connections_max)
    exporter.start(address, port)
    collector.exporter = stats
    if harness is not None:
        collector.harness = harness
    return exporter
