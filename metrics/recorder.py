"""Times and engine reports of one arena: an observer with a clock, and what it has seen so far.

The control thread owns a recorder; `freeze` copies its numbers out for other threads. Its memory
is bounded: a fixed number of buckets, a limit on open measurements, and one time a unit that waits.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from onearena.core.ledger import Units
from onearena.core.rules import UseKind
from onearena.metrics.metric import SECONDS

OPEN_MAX: Final = 1 << 13
"""Uses, and waits, that are measured at one time; more are counted as dropped."""

MOVES_KEPT_MAX: Final = 64
"""Moves of single units that are remembered, the latest; a map draws them."""

WAITS_SHOWN_MAX: Final = 64
"""Open waits that `Timings` lists, the oldest; all of them are counted."""

LOG: Final = logging.getLogger("onearena.metrics")

HistogramKey = tuple[str, str]  # (metric, the label's value)


@dataclass(frozen=True, slots=True)
class MoveSeen:
    """A unit of `band` that was moved at `at_s` of the recorder's clock; `serial` counts from 1."""

    serial: int
    at_s: float
    band: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class WaitSeen:
    """A use of kind `writer` waits since `since_s` for use `ticket` of `stream`."""

    writer: UseKind
    stream: int
    ticket: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Timings:
    """What a recorder had seen at one moment; immutable.

    histograms: by metric and label value, observations per bucket (one more than `SECONDS`, the
    last for what is longer) and their sum in seconds. oldest: clock time of the oldest unretired
    use, by kind. moves: the latest of this arena, oldest first; waits: the oldest open ones.
    """

    histograms: Mapping[HistogramKey, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    oldest: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0
    evicted: Mapping[str, int] = field(default_factory=dict)
    retractions: int = 0
    retracted_tokens: int = 0
    moves: tuple[MoveSeen, ...] = ()
    waits: tuple[WaitSeen, ...] = ()


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += times
        self.total += seconds * times


@dataclass(frozen=True, slots=True)
class _OpenUse:
    kind: UseKind
    stream: int
    ticket: int
    band: int
    at: float


class Recorder:
    """An `ArenaObserver`; control thread only. `clock` gives seconds and never goes back."""

    def __init__(
        self, bands: Sequence[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._histograms: dict[HistogramKey, _Histogram] = {}
        self._evicted: dict[str, int] = {}
        self.retractions = 0
        self.retracted_tokens = 0
        self.dropped = 0
        self.begin(bands)

    def begin(self, bands: Sequence[str]) -> None:
        """Watch an arena with these bands from now on; totals go on, open times are dropped."""
        self._bands = tuple(bands)
        self._since: list[dict[int, float]] = [{} for _ in bands]
        self._uses: dict[int, _OpenUse] = {}
        self._waits: dict[tuple[int, int], list[tuple[UseKind, float]]] = {}
        self._open_waits = 0
        self._planning = 0.0
        self._moves: deque[MoveSeen] = deque(maxlen=MOVES_KEPT_MAX)
        self._moved = 0

    # -- what the arena says -----------------------------------------------------------------------

    def waited(self, writer: UseKind, stream: int, ticket: int) -> None:
        """See `ArenaObserver.waited`."""
        if self._open_waits >= OPEN_MAX:
            self.dropped += 1
            return
        self._open_waits += 1
        self._waits.setdefault((stream, ticket), []).append((writer, self._clock()))

    def launched(self, serial: int, kind: UseKind, stream: int, ticket: int, band: int) -> None:
        """See `ArenaObserver.launched`."""
        if len(self._uses) >= OPEN_MAX:
            self.dropped += 1
            return
        self._uses[serial] = _OpenUse(kind, stream, ticket, band, self._clock())

    def retired(self, serial: int) -> None:
        """See `ArenaObserver.retired`."""
        use = self._uses.pop(serial, None)
        if use is None:
            return
        now = self._clock()
        if use.kind is UseKind.MOVE and use.band >= 0:
            self._add("onearena_copy_seconds", self._bands[use.band], now - use.at)
        waits = self._waits.pop((use.stream, use.ticket), ())
        self._open_waits -= len(waits)
        for writer, at in waits:
            self._add("onearena_wait_seconds", writer.name.lower(), now - at)

    def freed(self, band: int, waiting: Units, ready_units: int) -> None:
        """See `ArenaObserver.freed`."""
        if ready_units:
            self._add("onearena_unit_pending_seconds", self._bands[band], 0.0, ready_units)
        if len(waiting):
            self._since[band].update(dict.fromkeys(waiting.tolist(), self._clock()))

    def reusable(self, band: int, units: Units) -> None:
        """See `ArenaObserver.reusable`."""
        since = self._since[band]
        if not since:
            return
        now = self._clock()
        for unit in units.tolist():
            at = since.pop(unit, None)
            if at is not None:
                self._add("onearena_unit_pending_seconds", self._bands[band], now - at)

    def moved(self, band: int, sources: Units, targets: Units) -> None:
        """See `ArenaObserver.moved`."""
        now = self._clock()
        self._moved += len(sources)
        last = slice(-MOVES_KEPT_MAX, None)
        pairs = list(zip(sources[last].tolist(), targets[last].tolist(), strict=True))
        first = self._moved - len(pairs) + 1
        self._moves.extend(
            MoveSeen(first + at, now, band, source, target)
            for at, (source, target) in enumerate(pairs)
        )

    def planning(self) -> None:
        """See `ArenaObserver.planning`."""
        self._planning = self._clock()

    def planned(self, rung: str) -> None:
        """See `ArenaObserver.planned`."""
        self._add("onearena_plan_seconds", rung, self._clock() - self._planning)

    # -- what the engine says ----------------------------------------------------------------------

    def evicted(self, band: str, units: int) -> None:
        """A cache gave up `units` units of `band` to make room."""
        assert band in self._bands, f"band {band!r} is none of {self._bands}"
        self._evicted[band] = self._evicted.get(band, 0) + units

    def retracted(self, request: object, *, tokens: int) -> None:
        """A running request was put back to make room, and the state of `tokens` tokens is lost.

        Who it was goes to the log `onearena.metrics`: a request is no label.
        """
        self.retractions += 1
        self.retracted_tokens += tokens
        LOG.info("request %s was retracted: the state of %d tokens is lost", request, tokens)

    # -- what is read ------------------------------------------------------------------------------

    def freeze(self) -> Timings:
        """All numbers, copied. O(open uses)."""
        oldest: dict[str, float] = {}
        for use in self._uses.values():  # in the order of their launches
            oldest.setdefault(use.kind.name.lower(), use.at)
        return Timings(
            {key: (tuple(h.counts), h.total) for key, h in self._histograms.items()},
            oldest,
            self.dropped,
            dict(self._evicted),
            self.retractions,
            self.retracted_tokens,
            tuple(self._moves),
            self._open_now(),
        )

    def _open_now(self) -> tuple[WaitSeen, ...]:
        """The oldest open waits."""
        found: list[WaitSeen] = []
        for (stream, ticket), waits in self._waits.items():
            found += [WaitSeen(writer, stream, ticket, at) for writer, at in waits]
            if len(found) >= WAITS_SHOWN_MAX:
                break
        return tuple(found[:WAITS_SHOWN_MAX])

    def _add(self, metric: str, label: str, seconds: float, times: int = 1) -> None:
        key = (metric, label)
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = _Histogram()
        histogram.add(seconds, times)
