"""Serving from a process of its own, which asks this one for what it cannot know.

The serving process (`front`) has the connections and their garbage; this process has one thread,
which sleeps until a question comes over one socket. A question is a line of JSON, `number`,
`target` and the server's counts; an answer is a line of JSON and the body's bytes. Questions are
few whatever clients do: the front asks the same one once, and at most `QUESTIONS_MAX` at a time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
from collections import deque
from typing import Any, Final

from onearena.metrics.endpoints import LOOK_EVERY_S, Endpoints, Steps
from onearena.metrics.local import advanced
from onearena.metrics.reply import Limits, Response
from onearena.metrics.security import Security
from onearena.metrics.stats import ExporterStats

SEND_S: Final = 5.0
READ_BYTES: Final = 1 << 16
LOG: Final = logging.getLogger("onearena.metrics")


class ApartRunner:
    """The serving process, and the thread of this one that answers its questions."""

    def __init__(
        self,
        endpoints: Endpoints,
        stats: ExporterStats,
        *,
        security: Security,
        limits: Limits,
        listening: socket.socket,
    ) -> None:
        self._endpoints = endpoints
        self._stats = stats
        self._closing = False
        self._buffer = bytearray()
        self._new: deque[tuple[int, str]] = deque()
        self._begun: list[tuple[int, str, Steps]] = []
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(
            SEND_S
        )  # only sending can wait: it is read when there is something
        with listening, theirs:
            try:
                self._process = _launch(listening, theirs, security, limits)
            except OSError:
                self._channel.close()
                raise
        self.thread = threading.Thread(target=self._run, name="onearena-metrics", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int:
        """The serving process."""
        return self._process.pid

    def stop(self, timeout_s: float) -> None:
        """End the process and the thread; kills a process that does not end in time."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(OSError):  # the process went first
            # Not only closed: a copy of the descriptor in a forked child would keep it alive.
            self._channel.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.thread.join(timeout_s)
        self._channel.close()

    # -- the answering thread ----------------------------------------------------------------------

    def _run(self) -> None:
        self._stats.begin()
        try:
            while self._turn():
                pass
        except OSError:
            LOG.exception("the process that serves the metrics cannot be reached")
        finally:
            self._stats.end()
        if not self._closing:
            LOG.error("the process that serves the metrics has ended; nothing is served any more")

    def _turn(self) -> bool:
        """Read what came, then do one piece of work; False when the other end is gone."""
        wait_s = 0.0 if self._new else LOOK_EVERY_S if self._begun else None
        if select.select([self._channel], [], [], wait_s)[0] and not self._read():
            return False
        # Health waits behind no other question.
        for at, (number, target) in enumerate(self._new):
            if target == "/healthz":
                del self._new[at]
                self._begin(number, target)
                return True
        for number, target, steps in self._begun[:]:
            self._advance(number, target, steps)
        if self._new:
            self._begin(*self._new.popleft())
        return True

    def _read(self) -> bool:
        data = self._channel.recv(READ_BYTES)
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            question: dict[str, Any] = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            self._stats.receive(question["stats"])
            self._new.append((question["number"], question["target"]))
        return bool(data)

    def _begin(self, number: int, target: str) -> None:
        steps = self._endpoints.answer(target)
        self._begun.append((number, target, steps))
        self._advance(number, target, steps)

    def _advance(self, number: int, target: str, steps: Steps) -> None:
        response = advanced(target, steps)
        if response is not None:
            self._begun.remove((number, target, steps))
            self._send(number, response)

    def _send(self, number: int, response: Response) -> None:
        head = {
            "number": number,
            "status": response.status,
            "kind": response.kind,
            "endpoint": response.endpoint,
            "headers": response.headers,
            "bytes": len(response.body),
            # JSON has no infinity; a day is as good.
            "fresh_s": max(-86400.0, min(86400.0, self._endpoints.fresh_s())),
        }
        self._channel.sendall(json.dumps(head).encode() + b"\n" + response.body)


def _launch(
    listening: socket.socket, channel: socket.socket, security: Security, limits: Limits
) -> subprocess.Popen[bytes]:
    from onearena.metrics.front import Orders

    orders = Orders(os.getpid(), listening.fileno(), channel.fileno(), security, limits)
    return subprocess.Popen(  # noqa: S603 - this interpreter and this package
        [sys.executable, "-P", "-m", "onearena.metrics.front", orders.dump()],
        pass_fds=(listening.fileno(), channel.fileno()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # Its own session: an interrupt at the terminal is the campaign's to act on, which then
        # ends this process after its last results were shown.
        start_new_session=True,
    )
