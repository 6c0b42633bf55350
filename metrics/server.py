"""HTTP for the exporter: one event loop, bounded in everything.

A thread a connection would let a few hundred half-open sockets starve a health check; here a
connection that waits costs a small object. Every connection has a deadline for its handshake, its
request and for reading the answer; when all places are taken, the newest connection takes the
place of the one that has been idle longest. Only GET and HEAD; a request's body is never read.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Any, Final

from onearena.metrics.reply import API_VERSION, Answers, Limits, Response
from onearena.metrics.security import Passwords, Security
from onearena.metrics.stats import ExporterStats

HEAD_BYTES_MAX: Final = 8192
HEADERS_MAX: Final = 64
SWEEP_S: Final = 0.25
BACKLOG: Final = 1024
SEND_BUFFER_BYTES: Final = 1 << 16
ACCEPTED_AT_ONCE: Final = 16
"""Connections taken in one turn of the loop. A health check is answered a few turns after its
connection is taken, so a flood cannot crowd it out before: a few times this is below the limit."""
CLOSING_TURNS: Final = 8
"""Turns of the loop in which an aborted transport closes its socket: one, and one more with TLS."""

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
    if line is None or len(rest) > HEADERS_MAX:
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
    """One client: bytes in, one request at a time, answers out. Server's thread only."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.transport: asyncio.Transport | None = None
        self.deadline = 0.0
        self.busy = False  # a request is being answered, or its answer is not read yet
        self.asking = False  # a whole request is there, and its answer is not
        self._buffer = bytearray()
        self._ending = False
        self._ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there, on a plain connection."""
        assert isinstance(transport, asyncio.Transport), transport
        self.transport = transport
        self.server.admit(self)

    def ready(self, transport: asyncio.Transport) -> None:
        """Requests may come: at once, or after the handshake of TLS."""
        self.transport = transport
        self._ready = True
        # Not 0: TLS takes an empty buffer for a full one then, and nothing written ends that.
        transport.set_write_buffer_limits(high=1, low=0)
        self.server.later(0.0, self._go_on)  # a request may have come with the end of the handshake

    def data_received(self, data: bytes) -> None:
        """More of a request; what comes while one is answered waits, up to a bound."""
        self._buffer += data
        if not self._ready:
            return  # or it would be answered on the plain transport below that of TLS
        if not self.busy:
            self._next()
        elif len(self._buffer) > HEAD_BYTES_MAX and self.transport is not None:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Either side has ended it."""
        self.server.forget(self, broken=exc is not None or (bool(self._buffer) and not self.busy))

    def pause_writing(self) -> None:
        """The client does not read; it gets `answer_s` to begin."""
        self.busy = True
        self.deadline = self.server.now() + self.server.limits.answer_s

    def resume_writing(self) -> None:
        """All was read."""
        self.busy = False
        if not self._ending:
            self.deadline = self.server.now() + self.server.limits.idle_s
            self._next()

    def respond(self, response: Response, *, keep: bool, body: bool = True) -> None:
        """Send an answer, and take the next request or end."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self.busy = False
        self.server.count(response)
        limits = self.server.limits
        self.deadline = self.server.now() + (limits.idle_s if keep else limits.answer_s)
        head = _head(response, keep=keep)
        transport.write(head + response.body if body else head)
        if not keep:
            self._ending = self.busy = True
            self._buffer.clear()
            transport.close()  # after what was written
        else:
            self.server.later(0.0, self._go_on)  # not now: answers would nest

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
            self.server.take(self, request)


class Server:
    """Serves what `answers` says on a listening socket. One loop, one thread.

    `stats` counts requests and connections; certificates and passwords are read when it is made.
    """

    def __init__(
        self, answers: Answers, stats: ExporterStats, *, security: Security, limits: Limits
    ) -> None:
        self.limits = limits
        self._answers = answers
        self._stats = stats
        self._context = security.context()
        self._passwords = Passwords(security.passwords) if security.passwords else None
        # Idle longest first: a connection goes to the end when it has been served.
        self._open: dict[_Connection, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping = False
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listening: socket.socket, stop: asyncio.Event) -> None:
        """Serve until `stop`, then end every connection; afterwards no socket is open."""
        self._loop = asyncio.get_running_loop()
        server = await self._loop.create_server(
            lambda: _Connection(self),
            sock=listening,
            backlog=ACCEPTED_AT_ONCE,  # asyncio takes this many a turn
        )
        # Taken over by every connection. The kernel's own bound is megabytes for each client that
        # asks and does not read.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listening.listen(BACKLOG)  # and asked the kernel to queue as few: a flood fills that
        await stop.wait()
        self._loop.remove_reader(listening)  # nobody more is taken
        self._stopping = True
        for connection in list(self._open):
            self._abort(connection)
        for task in self._tasks:
            task.cancel()
        # The loop's own tasks hold connections that were taken and not handed over yet; `admit`
        # ends those. A server that is closed before refuses them halfway, and a loop that is closed
        # before forgets them: either leaves their sockets to the garbage collector.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        server.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    # -- connections, called by them ---------------------------------------------------------------

    def now(self) -> float:
        """The loop's clock, in seconds."""
        assert self._loop is not None, "serve takes the loop"
        return self._loop.time()

    def admit(self, connection: _Connection) -> None:
        """A new connection; with TLS its handshake begins."""
        assert connection.transport is not None, "it is connected"
        if self._stopping:
            connection.transport.abort()
            return
        if len(self._open) >= self.limits.connections:
            # Not one whose answer is being made, if there is another: it asked for something.
            idle = (each for each in self._open if not each.asking)
            oldest = next(idle, None) or next(iter(self._open))
            self._stats.cut["crowded"] += 1
            self._abort(oldest)
        if not self._sweeping:
            self._sweeping = True
            self.later(SWEEP_S, self._sweep)
        self._open[connection] = None
        self._stats.open = len(self._open)
        connection.deadline = self.now() + self.limits.request_s
        if self._context is None:
            connection.ready(connection.transport)
        else:
            connection.transport.pause_reading()  # the handshake's bytes are not for us
            self._spawn(self._upgrade(connection, self._context))

    async def _upgrade(self, connection: _Connection, context: ssl.SSLContext) -> None:
        assert self._loop is not None, "serve takes the loop"
        assert connection.transport is not None, "it is connected"
        plain = connection.transport
        limit_s = self.limits.request_s
        try:
            secure = await self._loop.start_tls(
                plain, connection, context, server_side=True, ssl_handshake_timeout=limit_s
            )
        except OSError:  # a client without TLS, without a certificate, or gone
            plain.abort()
            self.forget(connection, broken=True)
            return
        if secure is None or connection not in self._open:
            plain.abort()
            return
        connection.deadline = self.now() + limit_s
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
        """Refuse a request, or have it answered."""
        connection.deadline = self.now() + self.limits.answer_s + self.limits.request_s
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)  # not idle
        with_body = request.method != "HEAD"
        if self._passwords is not None and not self._passwords.allow(
            request.headers.get("authorization", "")
        ):
            challenge = (("WWW-Authenticate", 'Basic realm="onearena", charset="UTF-8"'),)
            refusal = Response(401, b"give a user and a password\n", headers=challenge)
            connection.respond(refusal, keep=request.keep, body=with_body)
        elif request.method not in ("GET", "HEAD"):
            refusal = Response(405, b"GET and HEAD only\n", headers=(("Allow", "GET, HEAD"),))
            connection.respond(refusal, keep=request.keep)
        else:
            connection.asking = True

            def done(response: Response) -> None:
                connection.asking = False
                connection.respond(response, keep=request.keep, body=with_body)

            self._answers.ask(request.target, done, lambda: connection in self._open)

    def later(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Call this in a later turn of the loop."""
        assert self._loop is not None, "serve takes the loop"
        if seconds:
            self._loop.call_later(seconds, call, *arguments)
        else:
            self._loop.call_soon(call, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None, "serve takes the loop"
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
