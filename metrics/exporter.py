"""The HTTP server of the metrics: one thread, one event loop, bounded in everything.

A thread a connection would let a few hundred half-open sockets starve a health check; here a
connection that waits costs a small object. Every connection has a deadline for its request and for
reading the answer; when all places are taken, the newest connection takes the place of the one
that has been idle longest. Only GET and HEAD; a request's body is never read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from onearena.core.errors import UsageError
from onearena.metrics.collector import collector_of
from onearena.metrics.endpoints import API_VERSION, STALE_S, Endpoints, Response
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
BACKLOG: Final = 64

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
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="onearena-metrics", daemon=True)
        self._socket: socket.socket | None = None
        self._stop = asyncio.Event()
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
        server = await asyncio.start_server(
            self._connected,
            sock=self._socket,
            limit=HEAD_BYTES_MAX,
            backlog=BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=None if self._context is None else REQUEST_S,
        )
        await self._stop.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one connection ----------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._limit:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
            self._stats.cut["crowded"] += 1
        self._open[writer] = None
        self._stats.open = len(self._open)
        try:
            await self._converse(reader, writer)
        except TimeoutError:
            self._cut(writer, "slow")
        except (OSError, asyncio.IncompleteReadError):
            self._cut(writer, "broken")
        except asyncio.CancelledError:
            # Only `_serve` cancels, at its end. The stream's own callback would log a cancelled
            # task as an error, so this task ends as one that is done.
            pass
        finally:
            self._open.pop(writer, None)
            self._stats.open = len(self._open)
            writer.transport.abort()

    def _cut(self, writer: asyncio.StreamWriter, reason: str) -> None:
        if writer in self._open:  # else it was crowded out, and counted then
            self._stats.cut[reason] += 1

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)
        seconds = REQUEST_S
        while True:
            try:
                async with asyncio.timeout(seconds):
                    head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                await self._send(writer, Response(431, b"request too large\n"), keep=False)
                return
            except asyncio.IncompleteReadError as error:
                if error.partial or seconds == REQUEST_S:
                    raise
                return  # the client has had its answers
            request = parse_head(head)
            if request is None:
                await self._send(writer, Response(400, b"not an HTTP/1.1 request\n"), keep=False)
                return
            response = await self._respond(request)
            body = request.method != "HEAD"
            await self._send(writer, response, keep=request.keep, body=body)
            if not request.keep or writer not in self._open:
                return
            self._open[writer] = self._open.pop(writer)
            seconds = IDLE_S

    async def _respond(self, request: Request) -> Response:
        if self._passwords is not None and not self._passwords.allow(
            request.headers.get("authorization", "")
        ):
            challenge = (("WWW-Authenticate", 'Basic realm="onearena", charset="UTF-8"'),)
            return Response(401, b"give a user and a password\n", headers=challenge)
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"GET and HEAD only\n", headers=(("Allow", "GET, HEAD"),))
        try:
            return await self._endpoints.answer(request.target)
        except Exception:
            LOG.exception("%s could not be answered", request.target)
            return Response(500, b"this is a bug in onearena; its log says more\n")

    async def _send(
        self, writer: asyncio.StreamWriter, response: Response, *, keep: bool, body: bool = True
    ) -> None:
        self._stats.requests[response.endpoint, str(response.status)] += 1
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
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        writer.write(head + response.body if body else head)
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()
            if not keep:
                writer.close()
                await writer.wait_closed()


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
