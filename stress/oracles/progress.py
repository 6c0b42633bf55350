"""Clocks of streams and host from a device trace, and what the system was told of them.

Positions count the operations of a stream: 1, 2, 3, ... A clock holds, for each stream, the last
position that is ordered before something. Three are kept a stream or once:

* what a stream is given next is ordered after (waits, and what the host has seen);
* the same by waits alone: what *settled on a stream* means;
* what the host has seen; and of that, what `retire` calls and the system's own events told it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.stress.oracles.fact_types import Clock, Op, Pending, WaitSeen

EVENTS_KEPT: Final = 256
"""With more events than this, those the host has seen and no open use names are dropped."""


class Progress:
    """Follows the trace's own records. Cost of a record: the streams of a clock."""

    def __init__(self) -> None:
        self._clock: list[Clock] = []
        self._waited: list[Clock] = []
        self._host: Clock = []
        self._host_version = 0
        self._seen_version: list[int] = []
        self.retired: Clock = []
        self.processed: Clock = []
        self._events: dict[int, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        self.use_events: set[int] = set()
        self.since = Pending()  # records since the last call

    def grow(self, stream: int) -> None:
        """Make room for a stream."""
        while len(self._clock) <= stream:
            told = (self._host, self.retired, self.processed)
            for clock in (*self._clock, *self._waited, *told):
                clock.append(0)
            self._clock.append([0] * (len(self._clock) + 1))
            self._waited.append([0] * len(self._clock))
            self._seen_version.append(0)

    def enqueue(self, record: Enqueue) -> None:
        """Work follows its stream and what the host knows."""
        op, stream, kind, _, accesses = record
        if stream >= len(self._clock):
            self.grow(stream)
        clock = self._clock[stream]
        if self._seen_version[stream] != self._host_version:
            join(clock, self._host)
            self._seen_version[stream] = self._host_version
        clock[stream] += 1
        self._waited[stream][stream] += 1
        self.since.ops.append(Op(op, stream, clock[stream], kind, accesses, tuple(clock)))

    def record_event(self, record: Record) -> None:
        """The event stands for all its stream was given so far."""
        event, stream = record
        if stream >= len(self._clock):
            self.grow(stream)
        if len(self._events) > EVENTS_KEPT:
            self._forget_events()
        self._events[event] = (stream, tuple(self._clock[stream]), tuple(self._waited[stream]))
        self.since.events.append(event)

    def _forget_events(self) -> None:
        host, named = self._host, self.use_events
        for event, (stream, clock, _) in list(self._events.items()):
            if clock[stream] <= host[stream] and event not in named:
                del self._events[event]

    def wait(self, record: WaitEvent) -> None:
        """The stream follows the event."""
        stream, event = record
        if stream >= len(self._clock):
            self.grow(stream)
        known = self._events.get(event)
        if known is None:
            return
        clock = self._clock[stream]
        self.since.waits.append(WaitSeen(stream, event, tuple(clock), known[1]))
        join(clock, known[1])
        join(self._waited[stream], known[2])

    def observe(self, record: Observe) -> None:
        """The host has seen the event."""
        known = self._events.get(record.event)
        self.since.observed.append(record.event)
        if known is None:
            return
        if join(self._host, known[1]):
            self._host_version += 1
        # Of a use's event the system may know only what `retire` tells it (rule 10); that of a
        # move, a fork or a zeroing is its own, and so is all that it implies.
        if record.event not in self.use_events:
            join(self.retired, known[1])

    def transfer_begin(self, record: TransferBegin) -> None:
        """Noted for the call that began it."""
        self.since.begun.append(record)

    def transfer_end(self, record: TransferEnd) -> None:
        """The `end_transfer` call says what it means; the device's own record adds no fact here."""

    def clock_of(self, stream: int) -> Sequence[int]:
        """Positions ordered before what `stream` is given next (the host's knowledge included)."""
        if stream >= len(self._clock):
            self.grow(stream)
        clock = self._clock[stream]
        if self._seen_version[stream] != self._host_version:
            join(clock, self._host)
            self._seen_version[stream] = self._host_version
        return clock

    @property
    def host_clock(self) -> Sequence[int]:
        """Positions the host has seen end, by any observation."""
        return self._host

    def event_clock(self, event: int) -> Sequence[int]:
        """Clock of a recorded event; empty when unknown or long over."""
        known = self._events.get(event)
        return known[1] if known is not None else ()

    def waited(self, stream: int) -> Sequence[int]:
        """Positions that `stream` waited for, directly or through others."""
        return self._waited[stream]


def join(target: Clock, source: Sequence[int]) -> bool:
    """Raise each position of `target` to at least that of `source`; whether anything rose."""
    rose = False
    for stream, position in enumerate(source):
        if position > target[stream]:
            target[stream] = position
            rose = True
    return rose
