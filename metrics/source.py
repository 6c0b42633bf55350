"""Where scrapes get their snapshots: published by the control thread, read by any other.

One control thread owns an arena, so nobody else may call it. At its quiet points the control
thread calls `tick`; now and then that takes a snapshot and stores one reference to it. Readers
take the reference; there is no lock, and what they format is immutable. Looks at single units are
asked for by a reader and made by the control thread in its next tick.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from onearena.core.arena import Arena
from onearena.core.arena_units import UnitColumns, UnitRow
from onearena.core.snapshot import Snapshot
from onearena.metrics.counters import Values, add_values, counter_values
from onearena.metrics.recorder import Recorder, Timings

QUESTIONS_MAX: Final = 16
PERIOD_S: Final = 0.5


class Watched(Protocol):
    """What a source asks of an arena."""

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Frozen statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What readers see: one snapshot and what was known with it. Immutable.

    `fit` has one triple a band, empty where the system cannot say; `earlier` are totals of arenas
    that this source watched before; `taken_s` is in seconds since 1970, `clock_s` on the clock of
    the timings.
    """

    snapshot: Snapshot
    serial: int
    taken_s: float
    clock_s: float
    fit: tuple[tuple[int, int, int], ...] = ()
    timings: Timings | None = None
    earlier: Mapping[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Units at one moment: states of all, one byte each by band, and more of those in a window.

    `columns` has one entry a band in the window; None if that would be more units than asked for.
    `timings` and `fit` are of the same moment.
    """

    states: tuple[bytes, ...]
    columns: tuple[UnitColumns, ...] | None
    timings: Timings | None
    fit: tuple[tuple[int, int, int], ...]
    clock_s: float
    taken_s: float


class Question:
    """A look at units that a reader asked for; `answer` is set once, by the control thread.

    Without a `band` it asks for the states of all units, else for `count` rows of the band of that
    name from `first` on: none if the arena watched by then has no such band. With `detail_units`
    the answer is a `Look` at arena bytes [start_bytes, end_bytes), cut to the arena.
    """

    __slots__ = ("answer", "band", "count", "detail_units", "end_bytes", "first", "start_bytes")

    def __init__(
        self,
        *,
        band: str = "",
        first: int = 0,
        count: int = 0,
        start_bytes: int = 0,
        end_bytes: int = 0,
        detail_units: int = 0,
    ) -> None:
        self.start_bytes = start_bytes
        self.end_bytes = end_bytes
        self.detail_units = detail_units
        self.band = band
        self.first = first
        self.count = count
        self.answer: tuple[Snapshot, tuple[bytes, ...] | tuple[UnitRow, ...] | Look] | None = None


class SnapshotSource:
    """Snapshots of one arena for readers in other threads.

    `name` is the value of the label `arena`. `period_s` bounds how often `tick` takes a snapshot;
    `clock` is monotonic and decides nothing but that. `callers` get label values of their own.
    `with_units`: every snapshot holds the state of each unit, for readers that cannot ask.
    """

    def __init__(
        self,
        name: str = "0",
        *,
        device: str = "",
        labels: Mapping[str, str] | None = None,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        recorder: Recorder | None = None,
        callers: Iterable[str] = (),
        with_units: bool = False,
    ) -> None:
        self.name = name
        self.device = device
        self.labels = dict(labels or {})
        self.callers = tuple(callers)
        self.recorder = recorder
        self._with_units = with_units
        self._period_s = period_s
        self._clock = clock
        self._wall = wall
        self._due = 0.0
        self._serial = 0
        self._earlier: Values = {}
        self._questions: deque[Question] = deque(maxlen=QUESTIONS_MAX)
        self._latest: Published | None = None

    # -- readers, any thread -----------------------------------------------------------------------

    @property
    def latest(self) -> Published | None:
        """What was published last; None before the first time."""
        return self._latest

    @property
    def age_s(self) -> float:
        """Seconds since the last publication; infinite before the first."""
        latest = self._latest
        return float("inf") if latest is None else max(0.0, self._wall() - latest.taken_s)

    def ask(self, question: Question) -> None:
        """Leave a question for the next tick; of more than `QUESTIONS_MAX`, the oldest is lost."""
        self._questions.append(question)

    # -- the control thread ------------------------------------------------------------------------

    def tick(self, arena: Watched) -> None:
        """Publish if it is time to, and answer what was asked. A clock read if there is nothing."""
        now = self._clock()
        if now >= self._due:
            self._due = now + self._period_s
            self.publish(arena)
        while self._questions:
            self._answer(arena, self._questions.popleft())

    def publish(self, arena: Watched) -> Published:
        """Take a snapshot and show it from now on. O(bands + outstanding uses)."""
        return self.show(
            arena.snapshot(units=self._with_units),
            fit=arena.fit_units() if isinstance(arena, Arena) else (),
        )

    def show(self, snapshot: Snapshot, *, fit: tuple[tuple[int, int, int], ...] = ()) -> Published:
        """Show this snapshot from now on."""
        self._serial += 1
        published = Published(
            snapshot=snapshot,
            serial=self._serial,
            taken_s=self._wall(),
            clock_s=self._clock(),
            fit=fit,
            timings=None if self.recorder is None else self.recorder.freeze(),
            earlier=self._earlier,
            device=self.device,
        )
        self._latest = published
        return published

    def receive(self, published: Published) -> None:
        """Show what a source of another process published."""
        self._latest = published

    def finish(self, arena: Watched) -> None:
        """The arena is used up; its totals go on under the next one this source watches."""
        last = arena.snapshot(units=False)
        bands = [band.name for band in last.bands]
        ended = counter_values(last.counters, bands, self.callers)
        # A new dictionary: the old one may be in readers' hands.
        self._earlier = add_values(self._earlier, ended)

    def _look(self, snapshot: Snapshot, real: Arena | None, question: Question) -> Look:
        end = min(question.end_bytes or snapshot.arena_bytes, snapshot.arena_bytes)
        rows = units_between(snapshot, min(question.start_bytes, end), end)
        columns: tuple[UnitColumns, ...] | None = None
        if sum(last - first for first, last in rows) <= question.detail_units:
            columns = tuple(
                columns_of(snapshot, band, first, last - first)
                if real is None
                else real.unit_columns(band, first, last - first)
                for band, (first, last) in enumerate(rows)
                if last > first
            )
        return Look(
            states=tuple(band.states for band in snapshot.bands)
            if real is None
            else real.unit_states(),
            columns=columns,
            timings=None if self.recorder is None else self.recorder.freeze(),
            fit=() if real is None else real.fit_units(),
            clock_s=self._clock(),
            taken_s=self._wall(),
        )

    def _answer(self, arena: Watched, question: Question) -> None:
        real = arena if isinstance(arena, Arena) else None
        snapshot = arena.snapshot(units=real is None)
        if question.detail_units:
            question.answer = (snapshot, self._look(snapshot, real, question))
            return
        if not question.band:
            states = tuple(band.states for band in snapshot.bands)
            question.answer = (snapshot, states if real is None else real.unit_states())
            return
        rows: tuple[UnitRow, ...] = ()
        names = [band.name for band in snapshot.bands]
        if question.band in names:
            band, first, count = names.index(question.band), question.first, question.count
            if real is None:
                rows = unit_rows_of(snapshot, band, first, count)
            else:
                rows = real.unit_rows(band, first, count)
        question.answer = (snapshot, rows)


def columns_of(snapshot: Snapshot, band: int, first: int, count: int) -> UnitColumns:
    """Columns from a snapshot with units: ids; one holder for each, and no flags."""
    here = snapshot.bands[band]
    low = max(first, here.low_unit)
    high = max(low, min(first + count, here.high_unit))
    held = here.ids[low - here.low_unit : high - here.low_unit] if here.ids else (0,) * (high - low)
    ids = np.array(held, "<i8")
    return UnitColumns(
        band, low, ids.tobytes(), (ids != 0).astype("<i4").tobytes(), bytes(high - low)
    )


def units_between(snapshot: Snapshot, start_bytes: int, end_bytes: int) -> list[tuple[int, int]]:
    """Per band the units [first, last) with a byte in [start_bytes, end_bytes)."""
    found = []
    for band in snapshot.bands:
        first = (start_bytes - band.origin_bytes) // band.unit_bytes
        last = -((band.origin_bytes - end_bytes) // band.unit_bytes)
        low = max(first, band.low_unit)
        found.append((low, max(low, min(last, band.high_unit))))
    return found


_STATE_NAMES: Final = ("beyond", "hole", "live", "pending", "vacated")


def unit_rows_of(snapshot: Snapshot, band: int, first: int, count: int) -> tuple[UnitRow, ...]:
    """Rows from a snapshot with units: states and ids; what it does not hold is left at nothing."""
    here = snapshot.bands[band]
    low = max(first, here.low_unit)
    high = min(first + count, here.high_unit)
    rows = []
    for unit in range(low, high):
        at = unit - here.low_unit
        vid = here.ids[at] if here.ids else 0
        rows.append(UnitRow(unit, _STATE_NAMES[here.states[at]], vid, 0, False, False, False))
    return tuple(rows)
