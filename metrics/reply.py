"""What the parts of the exporter hand each other: an answer, and who gives it.

Nothing heavy is imported here or by `server` and `front`: the serving process starts with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

API_VERSION: Final = 1
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back: a status, a type, a body, and the endpoint it is counted under."""

    status: int
    body: bytes
    kind: str = TEXT
    endpoint: str = "other"
    headers: tuple[tuple[str, str], ...] = ()


class Answers(Protocol):
    """Who answers GET requests. Called in the server's thread only."""

    def ask(
        self, target: str, done: Callable[[Response], None], wanted: Callable[[], bool]
    ) -> None:
        """Call `done` once with the answer to `target`, now or in a later turn of the loop.

        Not called if `wanted` says, when its turn comes, that nobody waits for it any more.
        """


CONNECTIONS_MAX: Final = 256
APART_CONNECTIONS_MAX: Final = 2048
"""Of a server in a process of its own, which needs its descriptors for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may take: connections at a time, and seconds.

    connections: the newest of more takes the place of the one idle longest. With few places a
    flood turns them over faster than a client on a busy machine sends what it came for; in the
    process of an engine places are descriptors that the engine may need.

    request_s: for a request's head, and for the handshake of TLS; idle_s: until the next request
    on the same connection; answer_s: for reading an answer; render_every_s: at most one scrape in
    this time is rendered, however many are asked for.
    """

    connections: int = CONNECTIONS_MAX
    request_s: float = 5.0
    idle_s: float = 30.0
    answer_s: float = 5.0
    render_every_s: float = 0.1
