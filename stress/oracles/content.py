"""The content oracle: every byte a use reads holds what logical history says it should.

The history is kept by id, from the calls alone: launches write, forks and host copies carry over,
frees end a life; where a unit lies plays no part. When work is launched, what each of its reads
should find is written down; when the device reads (at the start, between writes, at the end), the
stamps it finds are compared. So a move that loses bytes, a copy through stale addresses, a page
reused too early, a translation too late all show, wherever the arena put things.

A forward may find its own writes; a copy may read bytes never written (it copies whole ranges), a
forward and a send may not: that is reported under the oracle name `poison`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.interface import POISON, UNDEFINED, ZERO, Access, Touch, Work
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.fact_types import (
    ARENA,
    HOST,
    CallFacts,
    UseFact,
)
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.stamps import (
    NOTHING,
    UNKNOWN,
    Run,
    Runs,
    clip,
    difference,
    unwritten,
    write,
)
from onearena.stress.sut import Use

CONSUMERS: Final = frozenset((int(UseKind.FORWARD), int(UseKind.SEND)))
COPIES: Final = frozenset((int(UseKind.BACKUP), int(UseKind.LOAD)))


class Capture:
    """What the reads of one operation or transfer should find."""

    __slots__ = ("by_start", "kind", "own", "serial", "spans")

    def __init__(self, serial: int, kind: int) -> None:
        self.serial = serial
        self.kind = kind
        # (space, start) of a read -> (end, unit base, content, id)
        self.by_start: dict[tuple[int, int], tuple[int, int, Runs | None, int]] = {}
        self.spans: list[tuple[int, int, int, int, Runs | None, int]] = []
        self.own: list[Run] = []  # absolute runs the work writes itself

    def add(
        self, space: int, start: int, end: int, base: int, content: Runs | None, name: int
    ) -> None:
        """A read of [start, end) of the unit of `name` at `base`."""
        self.by_start[space, start] = (end, base, content, name)
        self.spans.append((space, start, end, base, content, name))

    def find(self, space: int, start: int, end: int) -> tuple[int, Runs | None, int] | None:
        """Base, content and id of the read that [start, end) belongs to."""
        exact = self.by_start.get((space, start))
        if exact is not None and end <= exact[0]:
            return exact[1:]
        for other, low, high, base, content, name in self.spans:
            if other == space and low <= start and end <= high:
                return base, content, name
        return None


class ContentOracle:
    """Feed `CallFacts`; the device calls `read_seen` for each read as it happens.

    Cost: of a launch, the ranges it touches; of a read, its segments. Memory: the runs of live
    ids and host units, and the open uses.
    """

    name = "content"
    calls = frozenset(("allocate", "fork", "free", "launch", "retire", "end_transfer"))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.contents: dict[int, Runs | None] = {}
        self.hosts: dict[int, Runs | None] = {}
        self._captures: dict[int, Capture] = {}
        self._of_use: dict[int, int] = {}
        self._receiving: dict[int, list[tuple[int, Runs]]] = {}
        # What the device's reads showed since the last call.
        self.pending: list[Violation] = []

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Follow one call; returns what the device's reads showed since the last one."""
        call = facts.call
        if not facts.refused:
            if facts.granted:
                self._granted(facts)
            if call.name == "launch" and facts.use is not None:
                work = call.args[1]
                assert isinstance(work, Work)
                self._launched(facts.use, work)
            elif call.name in ("retire", "end_transfer") and facts.use is not None:
                self._ended(facts.use, facts)
        for fact in facts.freed:
            self.contents.pop(fact.id, None)
        if not self.pending:
            return NO_VIOLATIONS
        found, self.pending = tuple(self.pending), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """What the last reads showed."""
        found, self.pending = tuple(self.pending), []
        return found

    def expected(self, name: int, start: int, end: int) -> Runs | None:
        """What bytes [start, end) of the unit of id `name` hold after all launches so far."""
        runs = self.contents.get(name, NOTHING)
        return UNKNOWN if runs is None else clip(runs, start, end)

    # -- history ---------------------------------------------------------------------------------
    def _granted(self, facts: CallFacts) -> None:
        for fact in facts.granted:
            band = self.facts.bands[fact.band]
            zeroed = band.zero_on_hand_out
            self.contents[fact.id] = ((0, band.unit_bytes, ZERO),) if zeroed else NOTHING
        if facts.call.name != "fork":
            return
        freed = {fact.id: fact for fact in facts.freed}
        copies = {band: [f for f in facts.granted if f.band == band] for band in self._bands()}
        for name in facts.call.args[0]:  # type: ignore[attr-defined]
            source = self.facts.ids.get(name) or freed.get(name)
            if source is not None and copies[source.band]:
                copy = copies[source.band].pop(0)
                self.contents[copy.id] = self.contents.get(name, NOTHING)

    def _bands(self) -> range:
        return range(len(self.facts.bands))

    def _launched(self, fact: UseFact, work: Work) -> None:
        capture = Capture(fact.serial, fact.kind)
        if fact.kind in COPIES:
            self._copied(fact.use, work, capture)
        else:
            touched = self._touches(fact.use, work)
            for name, base, touch in touched:
                if not touch.writes:
                    content = self.contents.get(name, NOTHING)
                    capture.add(ARENA, touch.start, touch.end, base, content, name)
            written: list[tuple[int, Runs]] = []
            for name, base, touch in touched:
                if touch.writes:
                    capture.own.append((touch.start, touch.end, touch.stamp))
                    before = self.contents.get(name, NOTHING)
                    low, high = touch.start - base, touch.end - base
                    if fact.kind == UseKind.RECEIVE:
                        written.append((name, ((low, high, touch.stamp),)))
                        self.contents[name] = UNKNOWN
                    elif before is not None:
                        self.contents[name] = write(before, low, high, touch.stamp)
            if written:
                self._receiving[fact.serial] = written
        if fact.op >= 0:
            self._captures[fact.op] = capture
            self._of_use[fact.serial] = fact.op

    def _touches(self, use: Use, work: Work) -> list[tuple[int, int, Touch]]:
        """(id, base of its unit, touch with absolute addresses) of the work, sinks left out."""
        spans = (*use.reads, *use.writes)
        touches = work.touches or tuple(
            Touch(-1, start, end, writes, work.stamp)
            for space, start, end, writes in work.accesses
            if space == ARENA
        )
        found = []
        for touch in touches:
            entry, start, end, writes, stamp = touch
            if 0 <= entry < len(spans):
                name, low, _ = spans[entry]
                start, end = low + start, low + end
            else:
                span = next((s for s in spans if s[1] <= start and end <= s[2]), None)
                if span is None:
                    continue  # outside the use: reported where accesses are judged
                name = span[0]
            base = self._base(name, start)
            found.append((name, base, Touch(entry, start, end, writes, stamp)))
        return found

    def _base(self, name: int, address: int) -> int:
        """First byte of the unit of `name` around an address inside it."""
        fact = self.facts.ids.get(name)
        if fact is None:
            return address
        band = self.facts.bands[fact.band]
        return address - (address - band.origin_bytes) % band.unit_bytes

    def _copied(self, use: Use, work: Work, capture: Capture) -> None:
        fails = work.effects_before_failure >= 0
        backs_up = use.kind is UseKind.BACKUP
        spans = use.reads if backs_up else use.writes
        for source, target, nbytes in work.pairs:
            address = source if backs_up else target
            span = next((s for s in spans if s[1] <= address < s[2]), None)
            if span is None:
                continue
            name = span[0]
            base = self._base(name, address)
            offset = address - base
            if backs_up:
                content = self.contents.get(name, NOTHING)
                capture.add(ARENA, source, source + nbytes, base, content, name)
                part = None if content is None else clip(content, offset, offset + nbytes)
                self.hosts[target] = UNKNOWN if fails or part is None else _shift(part, -offset)
                continue
            held = self.hosts.get(source, NOTHING)
            capture.add(HOST, source, source + nbytes, source, held, name)
            before = self.contents.get(name, NOTHING)
            if fails or held is None or before is None:
                self.contents[name] = UNKNOWN
                continue
            for low, high, stamp in clip(held, 0, nbytes):
                before = write(before, offset + low, offset + high, stamp)
            self.contents[name] = before

    def _ended(self, fact: UseFact, facts: CallFacts) -> None:
        op = self._of_use.pop(fact.serial, None)
        if fact.outcome != "lost" and op is not None:
            self._captures.pop(op, None)
        received = self._receiving.pop(fact.serial, None)
        if received is not None and fact.outcome == "done":
            contents: dict[int, Runs] = {}
            for name, runs in received:
                contents[name] = (*contents.get(name, NOTHING), *runs)
            for name, runs in contents.items():
                if name in self.contents:
                    self.contents[name] = tuple(sorted(runs))

    # -- reads -----------------------------------------------------------------------------------
    def read_seen(self, number: int, access: Access, segments: Sequence[Run]) -> None:
        """Operation or transfer `number` has read `access` and found `segments` there."""
        capture = self._captures.get(number)
        if capture is None:
            return
        space, start, end, _ = access
        known = capture.find(space, start, end)
        if known is None:
            self._report(capture, access, "reads bytes that were not resolved for it", rule="9")
            return
        base, content, name = known
        if content is None:
            return
        wrong = difference(content, base, segments, capture.own)
        if wrong is not None:
            (low, high, found), right = wrong
            self._report(
                capture,
                Access(access.space, low, high, False),
                f"reads {_stamp_name(found)} where id {name} should hold stamp {right}",
                oracle="poison" if found in (POISON, UNDEFINED) else self.name,
            )
        elif capture.kind in CONSUMERS:
            missing = unwritten(content, base, start, end)
            if missing is not None and not any(
                low <= missing[0] and missing[1] <= high for low, high, _ in capture.own
            ):
                self._report(
                    capture,
                    Access(access.space, missing[0], missing[1], False),
                    f"reads bytes of id {name} that were never written in its life",
                    oracle="poison",
                )

    def _report(
        self,
        capture: Capture,
        access: Access,
        what: str,
        *,
        rule: str = "6",
        oracle: str = "content",
    ) -> None:
        space = "arena" if access.space == ARENA else "host"
        kind = UseKind(capture.kind).name.lower()
        self.pending.append(
            Violation(
                oracle,
                rule,
                f"use {capture.serial} ({kind}) {what}.",
                bytes=ByteRange(space, access.start, access.end),
                details={"use": capture.serial},
            )
        )


def _shift(runs: Runs, by: int) -> Runs:
    return runs if not by else tuple((low + by, high + by, stamp) for low, high, stamp in runs)


def _stamp_name(stamp: int) -> str:
    return {POISON: "poison", UNDEFINED: "undefined bytes"}.get(stamp, f"stamp {stamp}")
