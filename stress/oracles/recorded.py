"""The recorded-use oracle: work touches what the host recorded for it, and nothing else (rule 8).

The order oracle judges what a record *declares*. This one closes the gap: it holds the accesses
that a device reports when they really happen (`Effect`) against those declared at the enqueue. A
declared write covers a read of the same bytes, since whoever may write was ordered after all users;
a declared read covers no write. Sinks need no record. Other bytes outside [0, S) belong to nobody:
guards, or addresses gone wild.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final

from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import Effect, End, Enqueue, TransferBegin
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.races import kind_name, space_name
from onearena.stress.sut import PlanFacts

Locate = Callable[[Space, int, int], UnitName | None]

Runs = tuple[list[int], list[int]]
"""Disjoint runs of bytes, low to high: their starts, and their ends."""

NO_RUNS: Final[Runs] = ([], [])


class _Declared:
    """One operation or transfer that has not ended; its cover is worked out at its first effect."""

    __slots__ = ("accesses", "cover", "name")

    def __init__(self, name: str, accesses: tuple[Access, ...]) -> None:
        self.name = name
        self.accesses = accesses
        self.cover: dict[tuple[int, bool], Runs] | None = None


class RecordedOracle:
    """Every effect against the record of its operation or transfer.

    `plan` names the arena's size and its sinks; without it every arena address counts as inside.
    A device that makes this comparison itself may call `undeclared` in place of logging effects.

    Cost: of an effect, a binary search for each access; of an operation's first effect, a sort of
    its accesses. Memory: operations enqueued and not ended.
    """

    name = "recorded"

    def __init__(self, plan: PlanFacts | None = None, *, locate: Locate | None = None) -> None:
        self._arena_bytes = plan.arena_bytes if plan is not None else None
        bands = plan.bands if plan is not None else ()
        self._sinks = _runs((b.origin_bytes, b.origin_bytes + b.unit_bytes) for b in bands)
        self._locate = locate
        self._open: dict[int, _Declared] = {}
        self._handlers: dict[type[Any], Callable[[Any], tuple[Violation, ...]]] = {
            Enqueue: self._enqueue,
            TransferBegin: self._transfer_begin,
            Effect: self._effect,
            End: self._end,
        }

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Take the next record of the trace; ignore those that say nothing about accesses."""
        handler = self._handlers.get(type(record))
        return handler(record) if handler is not None else NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    @property
    def open_works(self) -> int:
        """Operations and transfers that have not ended."""
        return len(self._open)

    def undeclared(self, number: int, access: Access) -> tuple[Violation, ...]:
        """The device itself found that `number` touches bytes it did not declare."""
        known = self._open.get(number)
        who = known.name if known is not None else f"op {number}"
        space, start, end, writes = access
        verb = "writes" if writes else "reads"
        extent = ByteRange(space_name(space), start, end)
        unit = self._locate(space, start, end) if self._locate is not None else None
        return (
            Violation(
                oracle=self.name,
                rule="8",
                message=f"{who} {verb} {extent}, and no recorded use says so.",
                unit=unit,
                bytes=extent,
                events=(f"{who} {verb} {extent}",),
                details={"number": number, "writes": writes},
            ),
        )

    def _enqueue(self, record: Enqueue) -> tuple[Violation, ...]:
        name = f"op {record.op} ({kind_name(record.kind)} on stream {record.stream})"
        self._open[record.op] = _Declared(name, record.accesses)
        return NO_VIOLATIONS

    def _transfer_begin(self, record: TransferBegin) -> tuple[Violation, ...]:
        name = f"transfer {record.transfer} ({kind_name(record.kind)})"
        self._open[record.transfer] = _Declared(name, record.accesses)
        return NO_VIOLATIONS

    def _end(self, record: End) -> tuple[Violation, ...]:
        self._open.pop(record.op, None)
        return NO_VIOLATIONS

    def _effect(self, record: Effect) -> tuple[Violation, ...]:
        found: list[Violation] = []
        known = self._open.get(record.op)
        for access in record.accesses:
            space, start, end, writes = access
            if start >= end:
                continue
            if space == Space.ARENA and self._arena_bytes is not None:
                if _covers(self._sinks, start, end):
                    continue
                if start < 0 or end > self._arena_bytes:
                    found += self._outside(record.op, access)
                    continue
            if known is None:
                found += self._not_running(record.op, access)
                continue
            if known.cover is None:
                known.cover = _cover(known.accesses)
            if _covers(known.cover.get((space, True), NO_RUNS), start, end):
                continue
            if writes or not _covers(known.cover.get((space, False), NO_RUNS), start, end):
                found += self.undeclared(record.op, access)
        return tuple(found) if found else NO_VIOLATIONS

    def _outside(self, number: int, access: Access) -> tuple[Violation, ...]:
        known = self._open.get(number)
        who = known.name if known is not None else f"op {number}"
        extent = ByteRange("arena", access[1], access[2])
        verb = "writes" if access[3] else "reads"
        return (
            Violation(
                oracle=self.name,
                rule="geometry",
                message=f"{who} {verb} {extent}, outside the arena and in no sink.",
                bytes=extent,
                events=(f"{who} {verb} {extent}",),
                details={"number": number, "writes": access[3]},
            ),
        )

    def _not_running(self, number: int, access: Access) -> tuple[Violation, ...]:
        extent = ByteRange(space_name(access[0]), access[1], access[2])
        return (
            Violation(
                oracle=self.name,
                rule="8",
                message=f"op or transfer {number} touches {extent}: never enqueued, or ended.",
                bytes=extent,
                details={"number": number, "writes": access[3]},
            ),
        )


def _cover(accesses: tuple[Access, ...]) -> dict[tuple[int, bool], Runs]:
    """(space, False) -> bytes that may be read, (space, True) -> bytes that may be written."""
    ranges: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    for space, start, end, writes in accesses:
        ranges.setdefault((int(space), False), []).append((start, end))
        if writes:
            ranges.setdefault((int(space), True), []).append((start, end))
    return {key: _runs(listed) for key, listed in ranges.items()}


def _runs(ranges: Iterable[tuple[int, int]]) -> Runs:
    """The union of `ranges`; neighbours that touch are one run."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(ranges):
        if starts and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        elif start < end:
            starts.append(start)
            ends.append(end)
    return starts, ends


def _covers(runs: Runs, start: int, end: int) -> bool:
    place = bisect_right(runs[0], start) - 1
    return place >= 0 and end <= runs[1][place]
