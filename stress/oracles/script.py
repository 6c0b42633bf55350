"""Runs written by hand: calls and device records of a system that exists only on paper.

For tests of oracles and for examples in the documentation. A script says what a system did, right
or wrong; the oracles say what they make of it. Nothing here checks anything.

The default arena has 512 bytes and three bands: `state` (low end, units of 64 bytes), `window`
(floating, 64) and `full` (high end, 32). Stream 0 is the schedule stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from onearena.core.device.interface import Access, Space, Touch, Work
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import TRANSFER_KINDS, UseKind
from onearena.core.snapshot import BandSnapshot, FenceSnapshot, GapSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.suite import CallOracles
from onearena.stress.sut import BandFacts, Grant, PlanFacts, Use

STATE, WINDOW, FULL = range(3)
STATES: Final = {".": 1, "L": 2, "P": 3, "V": 4}
BANDS: Final = (
    BandFacts("state", "low_end", 64, 1, -64, 1, 8, "request"),
    BandFacts("window", "floating", 64, 4, -256, 4, 8, "window", 8),
    BandFacts("full", "high_end", 32, 4, -160, 5, 16, "context"),
)


@dataclass(frozen=True, slots=True)
class Launched:
    """A use on its way: its operation or transfer, and its event (-1 for a transfer)."""

    use: Use
    op: int
    event: int


class Script:
    """Feeds what it is told to a fresh set of call oracles, and keeps what they find."""

    def __init__(self, bands: Sequence[BandFacts] = BANDS, **options: Any) -> None:
        """`options` go to `CallOracles`."""
        self.plan = PlanFacts(512, tuple(bands), (4,) * len(bands), 0)
        self.oracles = CallOracles(self.plan, **options)
        self.violations: list[Violation] = []
        self.units: dict[int, tuple[int, int]] = {}
        self.hosts: dict[int, int] = {}
        self._calls = self._ops = self._events = self._uses = 0

    @property
    def found(self) -> set[tuple[str, str]]:
        """(oracle, rule) of every violation so far."""
        return {(violation.oracle, violation.rule) for violation in self.violations}

    def emit(self, record: object) -> None:
        """Feed any record."""
        self.violations += self.oracles.feed(record)

    def call(
        self,
        name: str,
        *args: object,
        answer: object = None,
        error: Exception | None = None,
        probe: bool = False,
    ) -> None:
        """Feed a call."""
        self._calls += 1
        self.emit(Call(self._calls, self._calls, name, args, answer, error, probe))

    def finish(self) -> set[tuple[str, str]]:
        """End the run; all that was found."""
        self.violations += self.oracles.finish()
        return self.found

    # -- ids -------------------------------------------------------------------------------------
    def span(self, name: int) -> tuple[int, int, int]:
        """(id, start, end) of an id at its present unit."""
        band, unit = self.units[name]
        start = self.plan.bands[band].origin_bytes + unit * self.plan.bands[band].unit_bytes
        return name, start, start + self.plan.bands[band].unit_bytes

    def grant(self, places: Mapping[int, tuple[int, int]], **options: Any) -> None:
        """`places` maps new ids to (band, unit): an allocate that hands them out there."""
        self.units.update(places)
        ids = self._by_band(places)
        demand = tuple(len(of_band) for of_band in ids)
        writer = options.get("writer", UseKind.FORWARD)
        stream = options.get("stream", 1)
        self.call("allocate", demand, writer, stream, "script", answer=Grant(ids))

    def fork(self, sources: Sequence[int], places: Mapping[int, tuple[int, int]]) -> None:
        """A fork of `sources` whose copies are `places`."""
        self.units.update(places)
        self.call("fork", tuple(sources), 1, answer=Grant(self._by_band(places)))

    def _by_band(self, places: Mapping[int, tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(name for name, (of_band, _) in places.items() if of_band == band)
            for band in range(len(self.plan.bands))
        )

    # -- uses ------------------------------------------------------------------------------------
    def record(
        self,
        kind: UseKind,
        stream: int,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        host_reads: Sequence[int] = (),
        host_writes: Sequence[int] = (),
    ) -> Use:
        """A recorded use, resolved at the present units. Host id n has bytes [64 n, 64 n + 64)."""
        self._uses += 1
        use = Use(
            self._uses,
            kind,
            stream,
            tuple(self.span(name) for name in reads),
            tuple(self.span(name) for name in writes),
            tuple((name, 64 * name, 64 * name + 64) for name in host_reads),
            tuple((name, 64 * name, 64 * name + 64) for name in host_writes),
        )
        args = (tuple(reads), tuple(writes), tuple(host_reads), tuple(host_writes))
        self.call("record", kind, stream, *args, answer=use)
        return use

    def launch(self, use: Use, **work: Any) -> Launched:
        """Enqueue the work of a use and record its event; `work` overrides fields of the work."""
        made = replace(Work(use.kind, accesses_of(use)), **work)
        self._ops += 1
        op = self._ops
        if use.kind in TRANSFER_KINDS:
            self.emit(TransferBegin(op, int(use.kind), made.accesses))
            self.call("launch", use, made, answer=op)
            return Launched(use, op, -1)
        self.emit(Enqueue(op, use.stream, int(use.kind), "", made.accesses))
        event = self.event(use.stream)
        self.call("launch", use, made, answer=event)
        return Launched(use, op, event)

    def run(
        self, kind: UseKind, stream: int, reads: Sequence[int] = (), writes: Sequence[int] = ()
    ) -> Launched:
        """Record and launch."""
        return self.launch(self.record(kind, stream, reads, writes))

    def forward(
        self, stream: int, reads: Sequence[int] = (), writes: Sequence[int] = ()
    ) -> Launched:
        """Record and launch a forward."""
        return self.run(UseKind.FORWARD, stream, reads, writes)

    def publish(self, kind: UseKind, ids: Sequence[int], peer: int = 1) -> Use:
        """A published transfer, not begun yet."""
        self._uses += 1
        spans = tuple(self.span(name) for name in ids)
        sends = kind is UseKind.SEND
        use = Use(self._uses, kind, -1, spans if sends else (), () if sends else spans, peer=peer)
        self.call("publish", kind, tuple(ids), peer, answer=use)
        return use

    def transfer(self, kind: UseKind, ids: Sequence[int], peer: int = 1) -> Launched:
        """Publish and begin a transfer."""
        return self.launch(self.publish(kind, ids, peer))

    # -- the device ------------------------------------------------------------------------------
    def own(self, kind: UseKind, stream: int, *accesses: tuple[int, int, bool]) -> int:
        """Work of the system itself, before the call it belongs to; its event."""
        self._ops += 1
        made = tuple(Access(Space.ARENA, start, end, writes) for start, end, writes in accesses)
        self.emit(Enqueue(self._ops, stream, int(kind), "", made))
        return self.event(stream)

    def move_copy(self, stream: int, source: tuple[int, int], target: tuple[int, int]) -> int:
        """The copy of a move from (band, unit) to (band, unit)."""
        (low, high), (to, end) = self.range(source), self.range(target)
        return self.own(UseKind.MOVE, stream, (low, high, False), (to, end, True))

    def range(self, place: tuple[int, int]) -> tuple[int, int]:
        """Bytes of (band, unit)."""
        facts = self.plan.bands[place[0]]
        start = facts.origin_bytes + place[1] * facts.unit_bytes
        return start, start + facts.unit_bytes

    def event(self, stream: int) -> int:
        """Record an event on a stream."""
        self._events += 1
        self.emit(Record(self._events, stream))
        return self._events

    def wait(self, stream: int, event: int) -> None:
        """A stream waits for an event."""
        self.emit(WaitEvent(stream, event))

    def observe(self, event: int) -> None:
        """The host sees an event."""
        self.emit(Observe(event))

    # -- logical progress ------------------------------------------------------------------------
    def process(self, launched: Launched) -> None:
        """The host processed a forward's result."""
        self.call("process", launched.use)

    def settle(self, launched: Launched) -> None:
        """The schedule stream waits for the use."""
        self.wait(0, launched.event)
        self.call("settle", launched.use)

    def retire(self, launched: Launched, *, failed: bool = False) -> None:
        """The host has seen the use's event."""
        self.observe(launched.event)
        self.call("retire", launched.use, failed)

    def end(self, launched: Launched, outcome: str = "done") -> None:
        """The host has seen the transfer's end."""
        if outcome != "lost":
            self.emit(TransferEnd(launched.op, 1))
        self.call("end_transfer", launched.use, outcome)

    # -- snapshots -------------------------------------------------------------------------------
    def snapshot(
        self,
        bands: Mapping[int, tuple[int, str]],
        *,
        fences: Sequence[tuple[int, int]] = (),
        ids: Mapping[tuple[int, int], int] | None = None,
    ) -> Snapshot:
        """Feed a snapshot: band -> (lowest unit, one letter a unit: `.` hole, L, P, V).

        Live units show the id the script placed there, or what `ids` says.
        """
        at = {place: name for name, place in self.units.items()} | dict(ids or {})
        made = tuple(
            _band(facts, band, *bands.get(band, (0, "")), at)
            for band, facts in enumerate(self.plan.bands)
        )
        # Of a script's fences only the bytes are told: they hold whatever was used there.
        held = tuple((0, stream, 1 << 30, w) for stream in range(8) for w in (False, True))
        fenced = tuple(FenceSnapshot(low, high, held) for low, high in fences)
        snapshot = Snapshot(self._calls, 512, made, _gaps(made), fenced, ())
        self.call("snapshot", True, answer=snapshot)
        return snapshot


def accesses_of(use: Use) -> tuple[Access, ...]:
    """The accesses a use was recorded with."""
    return (
        *(Access(Space.ARENA, start, end, False) for _, start, end in use.reads),
        *(Access(Space.ARENA, start, end, True) for _, start, end in use.writes),
        *(Access(Space.HOST, start, end, False) for _, start, end in use.host_reads),
        *(Access(Space.HOST, start, end, True) for _, start, end in use.host_writes),
    )


def touch(use: Use, entry: int, start: int, end: int, *, stamp: int = 0) -> Touch:
    """A touch of the entry-th range of a use (reads first), bytes relative to the unit."""
    ranges = (*use.reads, *use.writes)
    base = ranges[entry][1]
    return Touch(-1, base + start, base + end, entry >= len(use.reads), stamp)


def _band(
    facts: BandFacts, band: int, low: int, states: str, at: Mapping[tuple[int, int], int]
) -> BandSnapshot:
    codes = bytes(STATES[letter] for letter in states)
    return BandSnapshot(
        name=facts.name,
        placement=facts.placement,
        unit_bytes=facts.unit_bytes,
        origin_bytes=facts.origin_bytes,
        first_unit=facts.first_unit,
        capacity_units=facts.capacity_units,
        low_unit=low,
        high_unit=low + len(states),
        live_units=states.count("L"),
        pending_units=states.count("P"),
        vacated_units=states.count("V"),
        hole_units=states.count("."),
        states=codes,
        ids=tuple(
            at.get((band, low + i), 0) if letter == "L" else 0 for i, letter in enumerate(states)
        ),
    )


def _gaps(bands: Sequence[BandSnapshot]) -> tuple[GapSnapshot, ...]:
    edges = sorted((b.start_bytes, b.end_bytes) for b in bands if b.has_units)
    gaps, cursor = [], 0
    for start, end in (*edges, (512, 512)):
        if start > cursor:
            gaps.append(GapSnapshot(cursor, start, start - cursor, 0))
        cursor = end
    return tuple(gaps)
