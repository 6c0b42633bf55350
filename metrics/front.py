"""The serving process: `python -m onearena.metrics.front ORDERS`, started by `apart` only.

It has an interpreter of its own, so a flood of connections competes with nobody for its lock. It
imports no array library and owns no arena: what it cannot know it asks for over a socket. It ends
when that socket does, however its parent ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from onearena.metrics.reply import Limits, Response
from onearena.metrics.security import Security
from onearena.metrics.server import Server
from onearena.metrics.stats import ExporterStats

QUESTIONS_MAX: Final = 16
HEALTH_EVERY_S: Final = 0.5
HEALTH_WITHIN_S: Final = 0.6
ANSWER_WITHIN_S: Final = 6.0
OTHER_DESCRIPTORS: Final = 32
PARENT_EVERY_S: Final = 2.0
HEALTH: Final = "/healthz"
METRICS: Final = "/metrics"

Done = Callable[[Response], None]


@dataclass(frozen=True, slots=True)
class Orders:
    """What the serving process is told on its command line: parent, descriptors, files, limits."""

    parent: int
    listening: int
    channel: int
    security: Security
    limits: Limits

    def dump(self) -> str:
        """As one argument."""
        files = {name: path and str(path) for name, path in asdict(self.security).items()}
        return json.dumps([self.parent, self.listening, self.channel, files, asdict(self.limits)])

    @staticmethod
    def load(text: str) -> Orders:
        """The orders of `dump`."""
        parent, listening, channel, files, limits = json.loads(text)
        security = Security(**{name: path and Path(path) for name, path in files.items()})
        return Orders(parent, listening, channel, security, Limits(**limits))


@dataclass(slots=True)
class _Question:
    """One that was sent: who waits for its answer."""

    target: str
    sent_s: float
    waiting: list[Done]
    timer: asyncio.TimerHandle


class AskedAnswers(asyncio.Protocol):
    """Answers that the process of the arenas gives, each asked for once however many want it.

    /healthz says whether a snapshot is older than a bound. Every answer brings how long that
    stays as it is if nothing is published any more; until then health is known without asking.
    """

    def __init__(self, stats: ExporterStats, stop: asyncio.Event, limits: Limits) -> None:
        self._limits = limits
        self._stats = stats
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._sent: dict[int, _Question] = {}
        self._number = 0
        self._waiting: deque[tuple[str, Done, Callable[[], bool]]] = deque()
        self._fresh_until_s = 0.0
        self._health_asked_s = float("-inf")
        self._scrape: tuple[float, Response] | None = None
        self._buffer = bytearray()
        self._head: dict[str, Any] | None = None

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is there."""
        assert isinstance(transport, asyncio.WriteTransport), transport
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The parent has ended, or wants us to."""
        del exc
        self._stop.set()

    def data_received(self, data: bytes) -> None:
        """Answers: a line of JSON, then the bytes of the body."""
        self._buffer += data
        while True:
            if self._head is None:
                end = self._buffer.find(b"\n")
                if end < 0:
                    return
                self._head = json.loads(self._buffer[:end])
                del self._buffer[: end + 1]
            size = self._head["bytes"]
            if len(self._buffer) < size:
                return
            head, self._head = self._head, None
            body = bytes(self._buffer[:size])
            del self._buffer[:size]
            self._receive(head, body)

    # -- Answers -----------------------------------------------------------------------------------

    def ask(self, target: str, done: Done, wanted: Callable[[], bool]) -> None:
        """See `onearena.metrics.reply.Answers`."""
        now = self._loop.time()
        if target == HEALTH and now < self._fresh_until_s:
            done(Response(200, b"ok\n", endpoint=HEALTH))
            if now - self._health_asked_s >= HEALTH_EVERY_S:
                self._put(HEALTH, [])
        elif target == METRICS and self._scrape and now < self._scrape[0]:
            done(self._scrape[1])
        elif target == HEALTH or len(self._sent) < QUESTIONS_MAX or self._same(target):
            self._put(target, [done])
        else:
            self._waiting.append((target, done, wanted))

    def _same(self, target: str) -> _Question | None:
        return next((each for each in self._sent.values() if each.target == target), None)

    def _put(self, target: str, waiting: list[Done]) -> None:
        """Ask this, or wait with those who asked the same before."""
        asked = self._same(target)
        if asked is not None:
            asked.waiting += waiting
            return
        assert self._transport is not None, "clients are served once the channel is there"
        number = self._number = self._number + 1
        now = self._loop.time()
        within_s = ANSWER_WITHIN_S
        if target == HEALTH:
            self._health_asked_s, within_s = now, HEALTH_WITHIN_S
        timer = self._loop.call_later(within_s, self._late, number)
        self._sent[number] = _Question(target, now, waiting, timer)
        question = {"number": number, "target": target, "stats": self._stats.to_json()}
        self._transport.write(json.dumps(question).encode() + b"\n")

    def _receive(self, head: dict[str, Any], body: bytes) -> None:
        question = self._sent.pop(head["number"], None)
        if question is None:
            return  # its time was over
        question.timer.cancel()
        # Counted from the sending: the answer was made after it, so this is never too long.
        self._fresh_until_s = question.sent_s + head["fresh_s"]
        headers = tuple((name, value) for name, value in head["headers"])
        response = Response(head["status"], body, head["kind"], head["endpoint"], headers)
        if question.target == METRICS and response.status == 200:
            self._scrape = (self._loop.time() + self._limits.render_every_s, response)
        self._settle(question, response)

    def _late(self, number: int) -> None:
        question = self._sent.pop(number)
        text = b"the process that owns the arenas did not answer in time\n"
        endpoint = question.target if question.target in (HEALTH, METRICS) else "other"
        self._settle(question, Response(503, text, endpoint=endpoint))

    def _settle(self, question: _Question, response: Response) -> None:
        for done in question.waiting:
            done(response)
        while self._waiting and len(self._sent) < QUESTIONS_MAX:
            target, done, wanted = self._waiting.popleft()
            if wanted():
                self.ask(target, done, wanted)


def _places(wanted: int) -> int:
    """Have so many descriptors, or as many as this process may; how many connections that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = wanted + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft - OTHER_DESCRIPTORS)


async def serve(orders: Orders) -> None:
    """Serve until the channel ends, or the parent has."""
    stop = asyncio.Event()
    stats = ExporterStats()
    limits = replace(orders.limits, connections=_places(orders.limits.connections))
    channel = socket.socket(fileno=orders.channel)
    listening = socket.socket(fileno=orders.listening)
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_connection(
        lambda: AskedAnswers(stats, stop, orders.limits), sock=channel
    )
    server = Server(answers, stats, security=orders.security, limits=limits)

    def look() -> None:
        # A fork of the parent may hold a copy of its end of the channel and live on.
        if os.getppid() != orders.parent:
            stop.set()
        else:
            loop.call_later(PARENT_EVERY_S, look)

    look()
    try:
        await server.serve(listening, stop)
    finally:
        transport.abort()


def main(arguments: list[str]) -> int:
    """Serve as the orders say."""
    (text,) = arguments
    asyncio.run(serve(Orders.load(text)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
