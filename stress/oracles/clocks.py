"""Vector clocks of streams, events, transfers and the host, from the host's part of a trace.

A clock is a list of ticks, one a *component*. Every stream owns a component whose tick counts the
stream's operations; a transfer borrows one while it runs. Something with clock C is ordered after
the operation (component, tick) exactly if `C[component] >= tick`.

Three facts keep this small:

* The host needs no component. It makes no access of its own, and all that follows one of its calls
  is ordered after everything the host knew then, so its clock is a join of others.
* The host's clock never falls. Whatever it contains is ordered before all that comes later, so
  nothing about it has to be kept: that is the harness's own notion of *retired*.
* A component of an ended transfer can be lent again. The host has seen the end, so every clock
  made from then on contains the old tick, and the next transfer gets a higher one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

Clock = list[int]

FIRST_SWEEP_EVENTS: Final = 64
"""With this many events, and then at each doubling, those the host already knows are dropped."""


class IdSet:
    """A set of integers kept as disjoint runs: consecutive ids cost one run together."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, value: int) -> bool:
        run = bisect_right(self._starts, value) - 1
        return run >= 0 and value < self._ends[run]

    def __len__(self) -> int:
        """Number of runs: the memory in use."""
        return len(self._starts)

    def add(self, value: int) -> None:
        """Add one value; joins the runs it touches."""
        run = bisect_right(self._starts, value)
        if run and value < self._ends[run - 1]:
            return
        joins_left = run > 0 and self._ends[run - 1] == value
        joins_right = run < len(self._starts) and self._starts[run] == value + 1
        if joins_left and joins_right:
            self._ends[run - 1] = self._ends.pop(run)
            del self._starts[run]
        elif joins_left:
            self._ends[run - 1] = value + 1
        elif joins_right:
            self._starts[run] = value
        else:
            self._starts.insert(run, value)
            self._ends.insert(run, value + 1)


class StreamClock:
    """The tail of one stream: the clock that the next operation put on it will have."""

    __slots__ = ("clock", "component", "host_version", "stream")

    def __init__(self, stream: int, component: int, clock: Clock) -> None:
        self.stream = stream
        self.component = component
        self.clock = clock
        self.host_version = 0


class EventClock:
    """One recording of an event: its clock, and the place on the stream it was recorded at."""

    __slots__ = ("clock", "index", "stream", "tick")

    def __init__(self, *, clock: Clock, stream: int, tick: int, index: int) -> None:
        self.clock = clock
        self.stream = stream
        self.tick = tick
        self.index = index


class TransferClock:
    """One running transfer: a component of its own, and what the host knew when it began."""

    __slots__ = ("clock", "component", "tick")

    def __init__(self, *, component: int, tick: int, clock: Clock) -> None:
        self.component = component
        self.tick = tick
        self.clock = clock


class Clocks:
    """All clocks of one run. Every method takes time proportional to the number of components."""

    __slots__ = (
        "_events",
        "_forgotten",
        "_free_components",
        "_host_version",
        "_streams",
        "_sweep_events",
        "_transfers",
        "host",
    )

    def __init__(self) -> None:
        self.host: Clock = []
        self._host_version = 0
        self._streams: dict[int, StreamClock] = {}
        self._events: dict[int, EventClock] = {}
        self._forgotten = IdSet()
        self._transfers: dict[int, TransferClock] = {}
        self._free_components: list[int] = []
        self._sweep_events = FIRST_SWEEP_EVENTS

    @property
    def components(self) -> int:
        """Streams seen, plus the most transfers that ran at once."""
        return len(self.host)

    @property
    def events_kept(self) -> int:
        """Events whose clock is still stored."""
        return len(self._events)

    def enqueue(self, stream: int) -> StreamClock:
        """An operation is put on `stream`; the tail's clock is now that operation's."""
        tail = self._tail(stream)
        self._follow_host(tail)
        tail.clock[tail.component] += 1
        return tail

    def record(self, event: int, stream: int, index: int) -> None:
        """`event` now stands for everything on `stream` so far; a former recording is replaced."""
        tail = self._tail(stream)
        self._follow_host(tail)
        tick = tail.clock[tail.component]
        self._events[event] = EventClock(
            clock=tail.clock.copy(), stream=stream, tick=tick, index=index
        )
        if len(self._events) > self._sweep_events:
            self.forget_known_events()

    def wait(self, stream: int, event: int) -> bool:
        """Later operations of `stream` follow `event`. False: the event was never recorded."""
        known = self._events.get(event)
        if known is None:
            return event in self._forgotten
        _join(self._tail(stream).clock, known.clock)
        return True

    def observe(self, event: int) -> bool:
        """The host has seen `event`. False: the event was never recorded."""
        known = self._events.get(event)
        if known is None:
            return event in self._forgotten
        if _join(self.host, known.clock):
            self._host_version += 1
        return True

    def begin_transfer(self, transfer: int) -> TransferClock:
        """A transfer starts, after all that the host knows."""
        if transfer in self._transfers:
            raise ValueError(f"transfer {transfer} begins twice")
        free = self._free_components
        component = free.pop() if free else self._new_component()
        # The tick counts from what the host knows of the component's former users: see the
        # module's text.
        tick = self.host[component] + 1
        clock = self.host.copy()
        clock[component] = tick
        running = TransferClock(component=component, tick=tick, clock=clock)
        self._transfers[transfer] = running
        return running

    def end_transfer(self, transfer: int) -> None:
        """The host has seen the transfer's end."""
        running = self._transfers.pop(transfer, None)
        if running is None:
            raise ValueError(f"transfer {transfer} ends but is not running")
        self.host[running.component] = running.tick
        self._host_version += 1
        self._free_components.append(running.component)

    def first_event_covering(self, stream: int, tick: int) -> int | None:
        """The event that was recorded first on `stream` at or after its operation `tick`.

        An event that was recorded again since counts for its latest recording only.
        """
        best: int | None = None
        best_index = -1
        for event, known in self._events.items():
            covers = known.stream == stream and known.tick >= tick
            if covers and (best is None or known.index < best_index):
                best, best_index = event, known.index
        return best

    def forget_known_events(self) -> None:
        """Drop the clocks of events that the host has caught up with: waiting adds nothing."""
        host = self.host
        for event in [e for e, known in self._events.items() if _within(known.clock, host)]:
            del self._events[event]
            self._forgotten.add(event)
        self._sweep_events = max(FIRST_SWEEP_EVENTS, 2 * len(self._events))

    def _tail(self, stream: int) -> StreamClock:
        tail = self._streams.get(stream)
        if tail is None:
            component = self._new_component()
            tail = StreamClock(stream, component, [0] * len(self.host))
            self._streams[stream] = tail
        return tail

    def _new_component(self) -> int:
        # All tails and the host have the same length, so checks index clocks without asking.
        component = len(self.host)
        self.host.append(0)
        for tail in self._streams.values():
            tail.clock.append(0)
        return component

    def _follow_host(self, tail: StreamClock) -> None:
        if tail.host_version != self._host_version:
            _join(tail.clock, self.host)
            tail.host_version = self._host_version


def _join(target: Clock, source: Clock) -> bool:
    """Raise each tick of `target` to at least that of `source`; whether anything rose.

    `source` may be shorter: it is older than the missing components and knows nothing of them.
    """
    rose = False
    for component, tick in enumerate(source):
        if tick > target[component]:
            target[component] = tick
            rose = True
    return rose


def _within(clock: Clock, other: Clock) -> bool:
    return all(tick <= other[component] for component, tick in enumerate(clock))
