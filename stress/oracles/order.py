"""The order oracle: every pair of conflicting accesses must be ordered, whatever the timing was.

It reads the host-order part of a device trace, and from it alone builds happens-before:

    enqueue         the operation follows the host's call, all that was put on its stream before,
                    and the events its stream was told to wait for before
    record          the event follows all that was put on its stream before
    wait            what is put on the stream later follows the event
    observe         what the host calls later follows the event
    transfer begin  the transfer follows the host's call, and nothing else
    transfer end    what the host calls later follows the transfer

Two accesses conflict if they share a byte of one space and at least one writes. A conflicting pair
without order is reported when its later access is *enqueued*, so a race is found even in a run
whose timing hid it. `docs/order-oracle.md` has the argument for what is kept and dropped, the
figures, and what a pass leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from onearena.core.device.interface import Space
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.stress.oracles.base import NO_VIOLATIONS, UnitName, Violation
from onearena.stress.oracles.clocks import Clock, Clocks
from onearena.stress.oracles.intervals import LIMIT_BYTES, IntervalShadow, Node, Stamp
from onearena.stress.oracles.races import Party, Race, missing_edge
from onearena.stress.oracles.table_reach import UNIT_SPACES, TableReach

Ranges = tuple[tuple[int, int], ...]
Locate = Callable[[Space, int, int], UnitName | None]

SINKS: Final[Mapping[Space, Ranges]] = {Space.ARENA: ((-LIMIT_BYTES, 0),)}
"""Bytes that are written from several streams by design: all arena addresses below 0."""

REPORT_LIMIT: Final = 1_000
"""Most reports of one run with `multiple`; after them the oracle is silent."""


class OrderOracle:
    """Finds the first unordered conflicting pair of a trace, or all of them with `multiple`.

    *First* is the pair whose later access comes first (by record, then by place among the record's
    accesses); among those, the one whose earlier access comes last; then the lowest run of bytes
    both touch. With `multiple`, each later access that races is reported once, with its latest
    partner, up to `REPORT_LIMIT`.

    `exempt` names the byte ranges of each space where nothing is checked. `locate`, if given,
    names the unit that a range of bytes belongs to, for reports only. `reach`, if given, counts
    the cells of rule 6 that were put to the test.

    Cost of a record: the components of a clock (streams, and transfers running at once), plus for
    each access a binary search and the cells it covers. Memory: bounded by streams, running
    transfers, and distinct ranges not yet retired; not by the length of the run.
    """

    name = "order"

    def __init__(
        self,
        *,
        exempt: Mapping[Space, Ranges] = SINKS,
        multiple: bool = False,
        locate: Locate | None = None,
        reach: TableReach | None = None,
    ) -> None:
        self.races: list[Race] = []
        self.accesses = 0
        self._exempt: dict[int, Ranges] = {
            space: tuple(sorted(exempt.get(space, ()))) for space in Space
        }
        # Below this address an access may touch exempt bytes; the usual access lies wholly above
        # it.
        self._exempt_end: dict[int, int] = {
            space: max((end for _, end in ranges), default=-LIMIT_BYTES)
            for space, ranges in self._exempt.items()
        }
        self._locate = locate
        self._reach = reach
        self._reports_left = REPORT_LIMIT if multiple else 1
        self._clocks = Clocks()
        self._shadows: dict[int, IntervalShadow] = {space: IntervalShadow() for space in Space}
        self._index = -1
        self._handlers: dict[type[Any], Callable[[Any], tuple[Violation, ...]]] = {
            Enqueue: self._enqueue,
            Record: self._record,
            WaitEvent: self._wait,
            Observe: self._observe,
            TransferBegin: self._transfer_begin,
            TransferEnd: self._transfer_end,
        }

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Take the next record of the trace; records of execution are ignored and not counted."""
        handler = self._handlers.get(type(record))
        if handler is None or not self._reports_left:
            return NO_VIOLATIONS
        self._index += 1
        return handler(record)

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say: every pair was judged when its later access was enqueued."""
        return NO_VIOLATIONS

    def sweep(self) -> None:
        """Drop now what the host knows to be over; it happens by itself as cells accumulate."""
        for shadow in self._shadows.values():
            shadow.sweep(self._clocks.host)
        self._clocks.forget_known_events()

    @property
    def cells(self) -> int:
        """Cells kept over all spaces."""
        return sum(shadow.cells for shadow in self._shadows.values())

    @property
    def events_kept(self) -> int:
        """Event clocks kept."""
        return self._clocks.events_kept

    def _enqueue(self, record: Enqueue) -> tuple[Violation, ...]:
        op, stream, kind, label, accesses = record
        tail = self._clocks.enqueue(stream)
        node = (self._index, op, kind, label, stream, accesses)
        return self._check(node, tail.component, tail.clock)

    def _transfer_begin(self, record: TransferBegin) -> tuple[Violation, ...]:
        transfer, kind, accesses = record
        running = self._clocks.begin_transfer(transfer)
        node = (self._index, transfer, kind, "", None, accesses)
        return self._check(node, running.component, running.clock)

    def _record(self, record: Record) -> tuple[Violation, ...]:
        self._clocks.record(record.event, record.stream, self._index)
        return NO_VIOLATIONS

    def _wait(self, record: WaitEvent) -> tuple[Violation, ...]:
        if self._clocks.wait(record.stream, record.event):
            return NO_VIOLATIONS
        return self._unrecorded(record.event, f"stream {record.stream} waits for it")

    def _observe(self, record: Observe) -> tuple[Violation, ...]:
        if self._clocks.observe(record.event):
            return NO_VIOLATIONS
        return self._unrecorded(record.event, "the host sees it complete")

    def _transfer_end(self, record: TransferEnd) -> tuple[Violation, ...]:
        self._clocks.end_transfer(record.transfer)
        return NO_VIOLATIONS

    def _check(self, node: Node, component: int, clock: Clock) -> tuple[Violation, ...]:
        """Compare each access of one operation with the past, then make it part of the past.

        Accesses of one operation never race: the clock contains the operation's own tick.
        """
        found: list[Violation] = []
        tick = clock[component]
        order, accesses = self.accesses, node[5]
        shadows, exempt_end = self._shadows, self._exempt_end
        used: set[int] = set()
        for position, (space, start, end, writes) in enumerate(accesses):
            if start >= end or start < -LIMIT_BYTES or end > LIMIT_BYTES:
                if start == end:
                    continue
                raise ValueError(
                    f"access {position} of #{node[0]}: [{start}, {end}) is no byte range"
                )
            if self._reach is not None and space in UNIT_SPACES:
                self._reach.note(shadows[space], accesses[position], node, self._clocks.host)
            stamp = (order + position, component, tick, node, position)
            if start < exempt_end[space]:
                other = self._check_pieces(space, stamp, clock)
            elif writes:
                other = shadows[space].write(start, end, stamp, clock)
            else:
                other = shadows[space].read(start, end, stamp, clock)
            used.add(space)
            if other is not None and self._reports_left:
                found.append(self._report(space, other, stamp))
        self.accesses = order + len(accesses)
        if self._reach is not None:
            self._reach.close()
        for touched in used:
            shadows[touched].sweep_if_large(self._clocks.host)
        return tuple(found) if found else NO_VIOLATIONS

    def _check_pieces(self, space: int, stamp: Stamp, clock: Clock) -> Stamp | None:
        """`_check` for an access that may touch exempt bytes: only what is left of it counts."""
        _, start, end, writes = stamp[3][5][stamp[4]]
        shadow = self._shadows[space]
        check = shadow.write if writes else shadow.read
        latest: Stamp | None = None
        for piece_start, piece_end in _outside(start, end, self._exempt[space]):
            other = check(piece_start, piece_end, stamp, clock)
            if other is not None and (latest is None or other[0] > latest[0]):
                latest = other
        return latest

    def _report(self, space: int, earlier_stamp: Stamp, later_stamp: Stamp) -> Violation:
        earlier, later = _party(earlier_stamp), _party(later_stamp)
        shared = _outside(
            max(earlier.start_bytes, later.start_bytes),
            min(earlier.end_bytes, later.end_bytes),
            self._exempt[space],
        )
        start, end = next(shared, (0, 0))
        assert start < end, f"reported a race without a shared byte: {earlier} and {later}"
        event = None
        if earlier.stream is not None:
            event = self._clocks.first_event_covering(earlier.stream, earlier_stamp[2])
        race = Race(
            earlier=earlier,
            later=later,
            space=Space(space),
            start_bytes=start,
            end_bytes=end,
            edge=missing_edge(earlier, later, event),
        )
        self.races.append(race)
        self._reports_left -= 1
        unit = self._locate(race.space, start, end) if self._locate is not None else None
        return race.violation(self.name, unit)

    def _unrecorded(self, event: int, what: str) -> tuple[Violation, ...]:
        self._reports_left -= 1
        return (
            Violation(
                oracle=self.name,
                rule="8",
                message=f"event {event} was never recorded, but {what}.",
                events=(f"#{self._index} event {event}: {what}",),
                details={"event": event, "index": self._index},
            ),
        )


def _outside(start: int, end: int, exempt: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The runs of [start, end) that lie in no range of `exempt` (sorted), low to high."""
    for exempt_start, exempt_end in exempt:
        if exempt_start >= end:
            break
        if start < exempt_start:
            yield start, exempt_start
        start = max(start, exempt_end)
    if start < end:
        yield start, end


def _party(stamp: Stamp) -> Party:
    _, _, _, (index, number, kind, label, stream, accesses), position = stamp
    _, start, end, writes = accesses[position]
    return Party(
        index=index,
        position=position,
        number=number,
        kind=kind,
        label=label,
        stream=stream,
        writes=writes,
        start_bytes=start,
        end_bytes=end,
    )
