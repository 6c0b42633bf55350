"""What a session reads: the latest frame of a source, its recent history, and what went wrong.

One feed a source, shared by all sessions: however many look, a running process is asked at most
once in `PERIOD_S` for each window that somebody looks at. Memory is bounded by `KEPT_MAX` frames.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from onearena.dashboard.checked import Checked, SourceError
from onearena.dashboard.frame import Frame

PERIOD_S: Final = 0.4
VIEWS_MAX: Final = 8
KEPT_MAX: Final = 300
FAILURES_MAX: Final = 32

Window = tuple[int, int]


class LiveSource(Protocol):
    """Where frames come from."""

    def frame(self, *, start_bytes: int = 0, end_bytes: int = 0, arena: str = "") -> Frame:
        """The arena now."""

    def campaign(self) -> Mapping[str, Any]:
        """The campaign's document."""

    def failure(self, number: int) -> Mapping[str, Any]:
        """A failure's document."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The latest frame, if there ever was one, and why it is not newer; both may be there."""

    frame: Frame | None
    trouble: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CampaignReading:
    """The latest campaign document, those before it, and why it is not newer."""

    document: Mapping[str, Any] | None
    earlier: tuple[Mapping[str, Any], ...] = ()
    trouble: str = ""
    reason: str = ""


class Feed:
    """Frames of one running process. Any thread; one asks at a time, the others get its answer."""

    def __init__(self, source: LiveSource, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._latest: OrderedDict[Window | None, tuple[float, Reading]] = OrderedDict()
        self._kept: deque[Frame] = deque(maxlen=KEPT_MAX)
        self._campaigns: deque[Mapping[str, Any]] = deque(maxlen=KEPT_MAX)
        self._campaign_read = float("-inf")
        self._campaign_trouble = ("", "")
        self._failures: list[Mapping[str, Any]] = []

    def read(self, view: Window | None = None) -> Reading:
        """The arena now, as far as it can be had; the window `view` in detail."""
        with self._lock:
            known = self._latest.get(view)
            if known is not None and self._clock() - known[0] < PERIOD_S:
                return known[1]
            last = known[1].frame if known else (self._kept[-1] if self._kept else None)
            start, end = view or (0, 0)
            try:
                frame = self._source.frame(start_bytes=start, end_bytes=end)
            except SourceError as error:
                reading = Reading(last, error.trouble, error.message)
            else:
                self._keep(frame)
                reading = Reading(frame)
            self._latest[view] = (self._clock(), reading)
            self._latest.move_to_end(view)
            while len(self._latest) > VIEWS_MAX:
                self._latest.popitem(last=False)
            return reading

    def last(self, view: Window | None = None) -> Reading | None:
        """What was read last for this view, asking nobody; None if it was never read."""
        with self._lock:
            known = self._latest.get(view)
            return None if known is None else known[1]

    def history(self) -> tuple[Frame, ...]:
        """Frames read so far, oldest first, one for each moment; the last `KEPT_MAX`."""
        with self._lock:
            return tuple(self._kept)

    def campaign(self, *, paused: bool = False) -> CampaignReading:
        """The campaign now; while paused, as it was known last."""
        with self._lock:
            trouble, reason = self._campaign_trouble
            if not paused and self._clock() - self._campaign_read >= PERIOD_S:
                self._campaign_read = self._clock()
                try:
                    self._campaigns.append(self._source.campaign())
                    trouble = reason = ""
                except SourceError as error:
                    trouble, reason = error.trouble, error.message
                self._campaign_trouble = (trouble, reason)
            known = tuple(self._campaigns)
        if not known:
            return CampaignReading(None, (), trouble, reason or "no campaign was read yet")
        return CampaignReading(known[-1], known[:-1], trouble, reason)

    def failures(self) -> list[Mapping[str, Any]]:
        """Documents of the campaign's failures, each asked for once. `SourceError` if none are
        to be had.
        """
        count = Checked(dict(self._source.campaign()), "campaign").integer("failures")
        with self._lock:
            while len(self._failures) < min(count, FAILURES_MAX):
                self._failures.append(self._source.failure(len(self._failures)))
            if count < len(self._failures):
                self._failures = self._failures[:count]
            return list(self._failures)

    def _keep(self, frame: Frame) -> None:
        whole = frame.window == (0, frame.snapshot.arena_bytes)
        if whole and (not self._kept or frame.taken_s > self._kept[-1].taken_s):
            self._kept.append(frame)
