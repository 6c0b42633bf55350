"""A slow, obvious ledger written from section 5: which uses touch which units, who waits for what.

It keeps every unfinished use of every unit in plain lists, whole units and their byte ranges, and
never forgets one before the host has seen its end. No clocks are kept here beyond the numbers the
caller gives; whether a wait is implied is the caller's question.

`Needs` has two sizes: what the byte ranges of the uses demand (a missing wait of those is a
race), and what whole units demand (a wait beyond those is needless).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onearena.core.rules import UseKind, Wait
from onearena.stress.oracles.fact_types import TRANSFERS
from onearena.stress.sut import BandFacts, Use

STREAM_KINDS: Final = frozenset(int(kind) for kind in UseKind if kind not in TRANSFERS)


def wait_of(kind: UseKind, earlier: UseKind) -> Wait:
    """The cell of rule 6: what `kind` waits for after an earlier use that it has to come after.

    Written out here and not taken from the product: a product with a wrong table is what this
    has to find. Both tables say the same: a transfer, on either side, needs the host to have seen
    the end of what came first; all else nothing on the same stream, else the event.
    """
    if kind in TRANSFERS or earlier in TRANSFERS:
        return Wait.HOST
    return Wait.EVENT


WAITS: Final = {(int(a), int(b)): wait_of(a, b) for a in UseKind for b in UseKind}


@dataclass(slots=True, eq=False)
class RefUse:
    """One use as the reference knows it. A transfer has stream -1."""

    serial: int
    kind: int
    stream: int
    position: int
    units: list[tuple[int, int]] = field(default_factory=list)


class Part(NamedTuple):
    """One range of one unfinished use, on one unit."""

    use: RefUse
    start: int
    end: int
    writes: bool


class Need(NamedTuple):
    """One earlier use that the next use of a range has to come after, and how."""

    wait: Wait
    use: RefUse
    writes: bool
    start: int
    end: int
    by_write: bool


class ReferenceLedger:
    """Unfinished uses by (band, unit). Host units are keyed by bands counted from -1 down."""

    def __init__(self, bands: tuple[BandFacts, ...]) -> None:
        self.bands = bands
        self.parts: dict[tuple[int, int], list[Part]] = {}
        self._units: list[dict[int, None]] = [{} for _ in bands]  # device units with parts

    def enter(
        self, use: RefUse, key: tuple[int, int], start: int, end: int, *, writes: bool
    ) -> None:
        """A use touches [start, end) of the unit `key`."""
        part = Part(use, start, end, writes)
        parts = self.parts.get(key)
        if parts is None:
            self.parts[key] = [part]
            if key[0] >= 0:
                self._units[key[0]][key[1]] = None
        else:
            parts.append(part)
        use.units.append(key)

    def retire(self, use: RefUse) -> None:
        """The host has seen the use's end: nobody waits for it any more."""
        for key in use.units:
            parts = self.parts.get(key)
            if parts is None:
                continue
            kept = [part for part in parts if part.use is not use]
            if kept:
                self.parts[key] = kept
            else:
                del self.parts[key]
                if key[0] >= 0:
                    del self._units[key[0]][key[1]]
        use.units.clear()

    def around(self, band: int, unit: int) -> list[Part]:
        """Unfinished parts on the bytes of a unit, those of other bands' units included."""
        if band < 0:
            return self.parts.get((band, unit), [])
        own = self.parts.get((band, unit), [])
        start, end = self.range_of(band, unit)
        found = list(own)
        for other, facts in enumerate(self.bands):
            units = self._units[other]
            if other == band or not units:
                continue
            first = (start - facts.origin_bytes) // facts.unit_bytes
            after = -((facts.origin_bytes - end) // facts.unit_bytes)
            near: Sequence[int] = range(first, after)
            if len(near) > len(units):  # a large unit lies over many small ones
                near = sorted(number for number in units if first <= number < after)
            for number in near:
                parts = self.parts.get((other, number))
                if parts:
                    found += [part for part in parts if part.start < end and start < part.end]
        return found

    def range_of(self, band: int, unit: int) -> tuple[int, int]:
        """Arena bytes of a unit."""
        facts = self.bands[band]
        start = facts.origin_bytes + unit * facts.unit_bytes
        return start, start + facts.unit_bytes

    def needs(
        self, kind: UseKind, key: tuple[int, int], start: int, end: int, *, writes: bool
    ) -> tuple[list[Need], list[Need]]:
        """What a use of [start, end) has to come after: by byte ranges, and by whole units."""
        by_bytes: list[Need] = []
        by_units: list[Need] = []
        for use, low, high, written in self.around(*key):
            if not writes and not written:
                continue  # reads after reads wait for nothing
            need = Need(WAITS[kind, use.kind], use, written, low, high, writes)
            by_units.append(need)
            if low < end and start < high:
                by_bytes.append(need)
        return by_bytes, by_units


def ranges_of(use: Use) -> list[tuple[int, int, int, bool]]:
    """(id, start, end, writes) of a use's arena ranges."""
    return [(*span, False) for span in use.reads] + [(*span, True) for span in use.writes]


def host_ranges_of(use: Use) -> list[tuple[int, int, int, bool]]:
    """(id, start, end, writes) of a use's host ranges."""
    return [(*span, False) for span in use.host_reads] + [(*span, True) for span in use.host_writes]
