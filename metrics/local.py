"""Serving from a thread of the process that owns the arenas."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from onearena.metrics.endpoints import LOOK_EVERY_S, Endpoints, Steps
from onearena.metrics.reply import Limits, Response
from onearena.metrics.security import Security
from onearena.metrics.server import Server
from onearena.metrics.stats import ExporterStats

LOG: Final = logging.getLogger("onearena.metrics")


def advanced(target: str, steps: Steps) -> Response | None:
    """One step of an answer: the response if it was the last, a 500 if it failed."""
    try:
        next(steps)
    except StopIteration as done:
        response: Response = done.value
        return response
    except Exception:
        LOG.exception("%s could not be answered", target)
        return Response(500, b"this is a bug in onearena; its log says more\n")
    return None


class LocalAnswers:
    """Answers from this process's endpoints: health at once, the rest one a turn of the loop.

    So many requests that take work delay a health check by one of them and not by all.
    """

    def __init__(self, endpoints: Endpoints, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoints = endpoints
        self._loop = loop
        self._waiting: deque[tuple[str, Callable[[Response], None], Callable[[], bool]]] = deque()

    def ask(
        self, target: str, done: Callable[[Response], None], wanted: Callable[[], bool]
    ) -> None:
        """See `Answers`."""
        if target == "/healthz":
            self._advance(target, self._endpoints.answer(target), done, wanted)
            return
        self._waiting.append((target, done, wanted))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        target, done, wanted = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._turn)
        if wanted():
            self._advance(target, self._endpoints.answer(target), done, wanted)

    def _advance(
        self,
        target: str,
        steps: Steps,
        done: Callable[[Response], None],
        wanted: Callable[[], bool],
    ) -> None:
        response = advanced(target, steps)
        if response is not None:
            done(response)
        elif wanted():
            self._loop.call_later(LOOK_EVERY_S, self._advance, target, steps, done, wanted)


class LocalRunner:
    """A server in a thread of this process."""

    def __init__(
        self,
        endpoints: Endpoints,
        stats: ExporterStats,
        *,
        security: Security,
        limits: Limits,
        listening: socket.socket,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._stats = stats
        self._listening = listening
        answers = LocalAnswers(endpoints, self._loop)
        self._server = Server(answers, stats, security=security, limits=limits)
        self.thread = threading.Thread(target=self._run, name="onearena-metrics", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def stop(self, timeout_s: float) -> None:
        """End the server, its connections and its thread."""
        if self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self.thread.join(timeout_s)

    def _run(self) -> None:
        self._stats.begin()
        try:
            self._loop.run_until_complete(self._server.serve(self._listening, self._stop))
        finally:
            self._stats.end()
            self._loop.close()
