"""What the exporter answers: bounded, versioned reads of what was published, and nothing else.

A look at units is asked of the control thread and waited for a bounded time; everything else is
answered from data at hand. `docs/metrics.md` describes every endpoint.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from prometheus_client.registry import CollectorRegistry

from onearena.core.arena_units import UnitColumns, UnitRow
from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.metrics.collector import ArenaCollector
from onearena.metrics.exposition import CONTENT_TYPE, render
from onearena.metrics.frames import DETAIL_UNITS_MAX, frame_document, moment_of, window_fields
from onearena.metrics.pixels import WIDTH_MAX, pixels
from onearena.metrics.reply import API_VERSION, Response
from onearena.metrics.source import (
    Look,
    Published,
    Question,
    SnapshotSource,
    columns_of,
    unit_rows_of,
    units_between,
)

SNAPSHOT_BYTES_MAX: Final = 1 << 16
UNITS_MAX: Final = 1000
STALE_S: Final = 15.0
ANSWER_WITHIN_S: Final = 2.0
LOOK_EVERY_S: Final = 0.01
FAILURE_BYTES_MAX: Final = 1 << 18
FRAME_BYTES_MAX: Final = 1 << 18
ADDRESS_MAX: Final = 1 << 49

JSON: Final = "application/json; charset=utf-8"


class Refusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that gets another answer than it asked for."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


Query = Mapping[str, str]
Steps = Generator[None, None, Response]


class Endpoints:
    """Answers requests from one registry's collector. Exporter's thread only."""

    def __init__(
        self,
        registry: CollectorRegistry,
        collector: ArenaCollector,
        *,
        stale_s: float = STALE_S,
        answer_within_s: float = ANSWER_WITHIN_S,
        render_every_s: float = 0.0,
    ) -> None:
        self._registry = registry
        self._collector = collector
        self._stale_s = stale_s
        self._answer_within_s = answer_within_s
        self._render_every_s = render_every_s
        self._rendered: tuple[float, Response] | None = None
        self._routes: Mapping[str, Callable[[Query], Steps]] = {
            "/snapshot": self._snapshot,
            "/frame": self._frame,
            "/map": self._map,
            "/units": self._units,
            "/campaign": self._campaign,
        }

    def answer(self, target: str) -> Steps:
        """The response to GET `target`; never raises for what a client sent.

        A generator: it yields when the control thread's answer is not there yet, and is to be
        resumed `LOOK_EVERY_S` later.
        """
        parts = urlsplit(target)
        path = parts.path
        endpoint = next(
            (name for name in KNOWN if path == name or path.startswith(f"{name}/")), "other"
        )
        try:
            response = yield from self._route(path, _query(parts.query))
        except Refusal as refusal:
            body = _json({"version": API_VERSION, "error": refusal.message})
            return Response(refusal.status, body, JSON, endpoint)
        return Response(response.status, response.body, response.kind, endpoint, response.headers)

    def _route(self, path: str, query: Query) -> Steps:
        if query.get("version", str(API_VERSION)) != str(API_VERSION):
            raise Refusal(400, f"version: this exporter speaks version {API_VERSION} only")
        if path == "/healthz":
            return self._health()
        if path == "/metrics":
            return self._metrics()
        if path.startswith("/failures/"):
            return self._failure(path.removeprefix("/failures/"))
        route = self._routes.get(path)
        if route is None:
            raise Refusal(404, f"there is no such page; there are {', '.join(KNOWN)}")
        return (yield from route(query))

    def _metrics(self) -> Response:
        """At most one scrape in `render_every_s` is rendered, however many are asked for."""
        now = time.monotonic()
        if self._rendered is None or now - self._rendered[0] >= self._render_every_s:
            self._rendered = (now, Response(200, render(self._registry), CONTENT_TYPE))
        return self._rendered[1]

    def fresh_s(self) -> float:
        """Seconds for which nobody becomes stale, even if nothing is published any more.

        Negative if somebody is stale now.
        """
        ages = [source.age_s for source in self._collector.sources]
        harness = self._collector.harness
        if harness is not None and not ages:
            latest = harness.latest
            ages.append(float("inf") if latest is None else time.time() - latest.taken_s)
        return self._stale_s - max(ages, default=0.0)

    def _health(self) -> Response:
        stale = [
            f"arena {source.name}: no snapshot "
            + (f"for {source.age_s:.0f} s" if source.latest else "yet")
            for source in self._collector.sources
            if source.age_s > self._stale_s
        ]
        harness = self._collector.harness
        if harness is not None and not self._collector.sources:
            latest = harness.latest
            age = float("inf") if latest is None else time.time() - latest.taken_s
            if age > self._stale_s:
                stale.append(f"campaign: no word for {age:.0f} s")
        if stale:
            return Response(503, ("stale\n" + "\n".join(stale) + "\n").encode())
        return Response(200, b"ok\n")

    # -- arenas ------------------------------------------------------------------------------------

    def _source(self, query: Query) -> SnapshotSource:
        sources = self._collector.sources
        name = query.get("arena")
        for source in sources:
            if name is None or source.name == name:
                return source
        names = ", ".join(source.name for source in sources) or "none"
        raise Refusal(404, f"arena: there is no such arena; there is {names}")

    def _latest(self, query: Query) -> tuple[SnapshotSource, Published]:
        source = self._source(query)
        published = source.latest
        if published is None:
            raise Refusal(503, f"arena {source.name}: no snapshot was published yet")
        return source, published

    def _snapshot(self, query: Query) -> Steps:
        yield from ()
        source, published = self._latest(query)
        uses, fences = len(published.snapshot.uses), len(published.snapshot.fences)
        keep = 256
        while True:
            document = summary(source, published, keep=keep)
            body = _json(document | {"uses_total": uses, "fences_total": fences})
            if len(body) <= SNAPSHOT_BYTES_MAX:
                return Response(200, body, JSON)
            if not keep:
                raise Refusal(500, f"the summary has {len(body)} bytes")
            keep //= 2

    def _look(
        self, source: SnapshotSource, question: Question
    ) -> Generator[None, None, tuple[Snapshot, Any]]:
        """The control thread's answer, or 503 if it does not come in time."""
        source.ask(question)
        deadline = time.monotonic() + self._answer_within_s
        while question.answer is None:
            if time.monotonic() > deadline:
                raise Refusal(503, f"arena {source.name}: its control thread did not answer")
            yield
        return question.answer

    def _frame(self, query: Query) -> Steps:
        """Summary and map of one moment."""
        source, published = self._latest(query)
        width = _number(query, "width", 1024, lowest=1, highest=WIDTH_MAX)
        start = _number(query, "from", 0, lowest=0, highest=ADDRESS_MAX)
        end = _number(query, "to", 0, lowest=0, highest=ADDRESS_MAX)
        snapshot, states = published.snapshot, tuple(b.states for b in published.snapshot.bands)
        look: Look | None = None
        columns: tuple[UnitColumns, ...] | None = None
        if any(states):
            end_bytes = min(end or snapshot.arena_bytes, snapshot.arena_bytes)
            rows = units_between(snapshot, min(start, end_bytes), end_bytes)
            if sum(last - first for first, last in rows) <= DETAIL_UNITS_MAX:
                columns = tuple(
                    columns_of(snapshot, band, first, last - first)
                    for band, (first, last) in enumerate(rows)
                    if last > first
                )
        else:
            question = Question(start_bytes=start, end_bytes=end, detail_units=DETAIL_UNITS_MAX)
            snapshot, look = yield from self._look(source, question)
            assert look is not None, "a look was asked for"
            states, columns = look.states, look.columns
        # A campaign's next arena may be smaller than the one that the client saw: then all of it.
        size = snapshot.arena_bytes
        if not start < (end or size) <= size:
            start, end, columns = 0, size, None
        window = window_fields(
            snapshot, states, columns, start_bytes=start, end_bytes=end or size, width=width
        )
        document = frame_document(snapshot, moment_of(source, published, look)) | window
        body = _json(document)
        if len(body) > FRAME_BYTES_MAX:
            body = _json(document | {"columns": None, "uses": document["uses"][:8]})
        return Response(200, body, JSON)

    def _map(self, query: Query) -> Steps:
        source, published = self._latest(query)
        width = _number(query, "width", 1024, lowest=1, highest=WIDTH_MAX)
        snapshot, states = published.snapshot, tuple(b.states for b in published.snapshot.bands)
        if not any(states):
            snapshot, states = yield from self._look(source, Question())
        # A campaign's next arena may have another size than the one published.
        size = snapshot.arena_bytes
        start = _number(query, "from", 0, lowest=0, highest=size - 1)
        end = _number(query, "to", size, lowest=start + 1, highest=size)
        row = pixels(snapshot, states, width=width, start_bytes=start, end_bytes=end)
        headers = (("Onearena-Epoch", str(snapshot.epoch)),)
        return Response(200, row, "application/octet-stream", headers=headers)

    def _units(self, query: Query) -> Steps:
        source, published = self._latest(query)
        here = _band(published.snapshot, query)
        first = _number(query, "from", here.low_unit, lowest=0, highest=1 << 40)
        count = _number(query, "count", 100, lowest=1, highest=UNITS_MAX)
        snapshot = published.snapshot
        rows: tuple[UnitRow, ...] = ()
        if here.states:
            rows = unit_rows_of(snapshot, snapshot.bands.index(here), first, count)
        else:
            question = Question(band=here.name, first=first, count=count)
            snapshot, rows = yield from self._look(source, question)
            here = _band(snapshot, query)
        document = {
            "version": API_VERSION,
            "arena": source.name,
            "band": here.name,
            "epoch": snapshot.epoch,
            "low_unit": here.low_unit,
            "high_unit": here.high_unit,
            "unit_bytes": here.unit_bytes,
            "origin_bytes": here.origin_bytes,
            "units": [asdict(row) for row in rows],
        }
        return Response(200, _json(document), JSON)

    # -- campaigns ---------------------------------------------------------------------------------

    def _campaign(self, query: Query) -> Steps:
        yield from ()
        del query
        harness = self._collector.harness
        latest = None if harness is None else harness.latest
        if latest is None:
            raise Refusal(404, "this process runs no campaign")
        document = {
            "version": API_VERSION,
            "taken_s": latest.taken_s,
            "summary": dict(latest.summary),
            "failures": len(latest.failures),
        }
        return Response(200, _json(document), JSON)

    def _failure(self, text: str) -> Response:
        harness = self._collector.harness
        latest = None if harness is None else harness.latest
        failures = () if latest is None else latest.failures
        if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) >= len(failures):
            raise Refusal(404, f"failure: there are {len(failures)}, numbered from 0")
        body = _json({"version": API_VERSION, "failure": dict(failures[int(text)])})
        if len(body) > FAILURE_BYTES_MAX:
            raise Refusal(500, f"the failure's report has {len(body)} bytes; see --out")
        return Response(200, body, JSON)


KNOWN: Final = (
    "/metrics",
    "/healthz",
    "/snapshot",
    "/frame",
    "/map",
    "/units",
    "/campaign",
    "/failures",
)


def summary(source: SnapshotSource, published: Published, *, keep: int) -> dict[str, Any]:
    """A snapshot without units as JSON data; at most `keep` uses and fences, the oldest first."""
    snapshot = published.snapshot
    bands = []
    for index, band in enumerate(snapshot.bands):
        row: dict[str, Any] = {
            name: getattr(band, name) for name in band.__slots__ if name not in ("states", "ids")
        }
        row["start_bytes"], row["end_bytes"] = band.start_bytes, band.end_bytes
        row["fit_units"] = list(published.fit[index]) if published.fit else []
        bands.append(row)
    uses = [
        {
            "serial": use.serial,
            "kind": use.kind,
            "stream": use.stream,
            "ticket": use.ticket,
            "processed": use.processed,
            "reads": len(use.reads),
            "writes": len(use.writes),
        }
        for use in snapshot.uses[:keep]
    ]
    return {
        "version": API_VERSION,
        "snapshot_version": snapshot.version,
        "arena": source.name,
        "labels": source.labels,
        "taken_s": published.taken_s,
        "epoch": snapshot.epoch,
        "arena_bytes": snapshot.arena_bytes,
        "slack_bytes": snapshot.slack_bytes,
        "bands": bands,
        "gaps": [asdict(gap) for gap in snapshot.gaps],
        "fences": [asdict(fence) for fence in snapshot.fences[:keep]],
        "uses": uses,
        "counters": dict(sorted(snapshot.counters.items())),
    }


def _band(snapshot: Snapshot, query: Query) -> BandSnapshot:
    for band in snapshot.bands:
        if band.name == query.get("band"):
            return band
    names = ", ".join(band.name for band in snapshot.bands)
    raise Refusal(400, f"band: give one of {names}")


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=16, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise Refusal(400, "query: write it as name=value pairs, at most 16") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        raise Refusal(400, "query: name each argument once")
    return query


def _number(query: Query, name: str, default: int, *, lowest: int, highest: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,15}", text) or not lowest <= int(text) <= highest:
        raise Refusal(400, f"{name}: give a whole number from {lowest} to {highest}")
    return int(text)
