"""The Arena page between two runs of its script: one small answer a second, by HTTP.

A run of the script makes the browser go through the whole page; an answer from here changes only
what it shows. `ROUTE` answers for feeds that a session has opened, each known by an unguessable
token, and reads nothing else: no address and no file can be named.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from onearena.dashboard.components.facts import table_data
from onearena.dashboard.feed import Feed, Reading, Window
from onearena.dashboard.http_source import HttpSource
from onearena.dashboard.view_model import ArenaView, Status, status_of, view_model

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PATH: Final = "onearena/arena"
"""Relative: every page of the application is one level deep."""
FEEDS_MAX: Final = 16
HINT: Final = "Click a unit, or press Enter on it, to see everything known of it."
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class OpenFeed:
    """A feed that sessions read, and the token by which their browsers ask for it."""

    feed: Feed
    token: str


class Feeds:
    """Feeds by address, the last `FEEDS_MAX` used. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[str, OpenFeed] = OrderedDict()

    def of(self, url: str) -> OpenFeed:
        """The feed of this address, the same for all sessions. `SourceError` if it is none."""
        with self._lock:
            if url not in self._open:
                self._open[url] = OpenFeed(Feed(HttpSource(url)), secrets.token_urlsafe(18))
            self._open.move_to_end(url)
            while len(self._open) > FEEDS_MAX:
                self._open.popitem(last=False)
            return self._open[url]

    def by_token(self, token: str) -> Feed | None:
        """The feed with this token; None if there is none, or no longer."""
        with self._lock:
            for each in self._open.values():
                if secrets.compare_digest(each.token.encode(), token.encode()):
                    return each.feed
        return None


FEEDS: Final = Feeds()
"""Of this process: a run of the script and an answer from here read the same feed."""


def poll_path(token: str, *, view: Window | None, picked: int | None) -> str:
    """Where the browser asks for what this view and pick show."""
    query = {"feed": token}
    if view is not None:
        query["view"] = f"{view[0]}-{view[1]}"
    if picked is not None:
        query["pick"] = str(picked)
    return f"{PATH}?{urlencode(query)}"


def status_data(status: Status, title: str = "") -> dict[str, str]:
    """The line under the page's title."""
    return {"state": status.state, "text": status.text, "title": title}


def tables_of(page: ArenaView) -> list[dict[str, Any]]:
    """The tables of the Arena page, each with the rows it has room for."""
    return [
        table_data("Bytes by band", page.bands, shown=7),
        table_data("Selected", page.picked, shown=8, empty=HINT),
        table_data("Open uses", page.uses, shown=8),
        table_data("Who waits for whom", page.waits, shown=5),
        table_data("Last moves", page.moves, shown=5),
    ]


def notes_of(page: ArenaView) -> tuple[str, ...]:
    """What has to be said about the picture."""
    return page.notes or ("Every unit is drawn by itself.",)


def document_of(
    reading: Reading, *, now_s: float, view: Window | None, picked: int | None, known: str = ""
) -> dict[str, Any]:
    """The answer: `status`, and `map`, `numbers`, `tables`, `notes`, `words` where they differ.

    `known` is the key of the map that the browser has. The same snapshot is not sent again, unless
    something in it grows old: a move that fades or somebody who waits.
    """
    frame = reading.frame
    status = status_of(
        taken_s=None if frame is None else frame.taken_s,
        now_s=now_s,
        trouble=reading.trouble,
        reason=reading.reason,
    )
    if frame is None:
        return {"status": status_data(status)}
    page = view_model(frame, view=view, picked=picked)
    document: dict[str, Any] = {"status": status_data(status, page.title)}
    if page.map["key"] != known or frame.moves or frame.waits:
        document |= {
            "map": page.map,
            "numbers": [list(pair) for pair in page.facts],
            "tables": tables_of(page),
            "notes": list(notes_of(page)),
            "words": page.alt,
        }
    return document


def answer(request: Request) -> Response:
    """The endpoint. Runs in a thread of the server's pool; asks the source as a session does."""
    from starlette.responses import JSONResponse

    query = request.query_params
    feed = FEEDS.by_token(query.get("feed", "")[:64])
    if feed is None:
        return JSONResponse({"error": "no such feed: load the page again"}, 404, _HEADERS)
    start, _, end = query.get("view", "")[:64].partition("-")
    view = None
    if _NUMBER.fullmatch(start) and _NUMBER.fullmatch(end) and int(start) < int(end):
        view = (int(start), int(end))
    pick = query.get("pick", "")
    picked = int(pick) if _NUMBER.fullmatch(pick) else None
    known = query.get("known", "")[:128]
    document = document_of(
        feed.read(view), now_s=time.time(), view=view, picked=picked, known=known
    )
    return JSONResponse(document, 200, _HEADERS)


_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
