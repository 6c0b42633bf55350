"""The facts of a log, kept within bounds: what `Facts` knows, without snapshots and without past.

A log lists what happened to units, where a schedule's snapshots show it. So units are followed line
by line here, and everything about lives and operations that are over is dropped: what is kept grows
with live and unfinished units, unfinished work and open uses, not with the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onearena.core.device.interface import Access
from onearena.stress.engine_log import LogBand
from onearena.stress.log_lines import LogHeader
from onearena.stress.oracles.base import UnitName
from onearena.stress.oracles.fact_types import (
    HOLE,
    LIVE,
    PENDING,
    VACATED,
    Change,
    IdFact,
    Relocation,
)
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import BandFacts, PlanFacts, Use

Piece = tuple[int, int, int]
"""(id, start, end): the part of an access inside one live unit; id 0: in none."""


@dataclass(slots=True)
class OpenUse:
    """A recorded use not over yet: its ranges, how many of its operations are unfinished, and what
    the oracles know its latest operation as.
    """

    number: int
    kind: int
    stream: int
    accesses: tuple[Access, ...]
    unfinished: int = 0
    launched: Use | None = None


def plan_of(header: LogHeader, schedule_stream: int) -> PlanFacts:
    """What oracles want to know of a plan, as far as a log's header says it."""
    return PlanFacts(
        arena_bytes=header.arena_bytes,
        bands=tuple(_band_facts(band) for band in header.bands),
        host_units=(0,) * len(header.bands),
        schedule_stream=schedule_stream,
        model="log",
    )


def _band_facts(band: LogBand) -> BandFacts:
    return BandFacts(
        name=band.name,
        placement="floating",
        unit_bytes=band.unit_bytes,
        entries_per_unit=1,
        origin_bytes=band.origin_bytes,
        first_unit=band.first_unit,
        capacity_units=band.units,
        lifetime="context",
    )


class LogFacts(Facts):
    """`Facts` fed by lines. `states` holds units that are live, pending or vacated: (state, id).

    Cost of an access: the units of every band that its bytes cover.
    """

    def __init__(self, plan: PlanFacts) -> None:
        super().__init__(plan)
        self.states: dict[tuple[int, int], tuple[int, int]] = {}
        self.moved: list[Relocation] = []
        self._lives = 0
        self._before: dict[tuple[int, int], tuple[int, int]] = {}
        self._left: dict[tuple[int, int], int] = {}

    # -- units
    def state(self, band: int, unit: int) -> int:
        """The unit's state; a hole stands for all that nobody holds."""
        return self.states.get((band, unit), (HOLE, 0))[0]

    def hand_out(self, band: int, unit: int, call: int) -> None:
        """A new life begins at a unit."""
        self._lives += 1
        fact = self.ids[self._lives] = IdFact(self._lives, band, call)
        self.live[band] += 1
        self.locate(fact, unit, call)
        self._put((band, unit), LIVE, fact.id)

    def free_unit(self, band: int, unit: int, call: int) -> None:
        """The life at a live unit ends; the unit is pending."""
        fact = self.at[band][unit]
        fact.references = 0
        del self.ids[fact.id]
        self.live[band] -= 1
        self._leave(fact, "pending", call)
        self._put((band, unit), PENDING)

    def move_units(self, band: int, moves: Sequence[tuple[int, int]], call: int) -> None:
        """The lives at the sources go on at the targets, all at once; the sources are vacated."""
        facts = [self.at[band][source] for source, _ in moves]
        self.relocations.clear()
        for fact, (_, target) in zip(facts, moves, strict=True):
            self.locate(fact, target, call)
        self.moved += self.relocations
        for source, _ in moves:
            self._put((band, source), VACATED)
        for fact, (_, target) in zip(facts, moves, strict=True):
            self._put((band, target), LIVE, fact.id)

    def leave(self, band: int, unit: int, state: int) -> None:
        """A freed or vacated unit becomes a hole, or lies beyond the band."""
        self._put((band, unit), state)

    def take_changes(self) -> list[Change]:
        """Units that changed since the last time; `relocations` are those of the same time."""
        changes = []
        for key, (old_state, old_name) in self._before.items():
            state, name = self.states.get(key, (self._left.get(key, HOLE), 0))
            if (state, name) != (old_state, old_name):
                changes.append((*key, old_state, state, old_name, name))
        self._before.clear()
        self._left.clear()
        self.relocations[:], self.moved = self.moved, []
        return changes

    def forget(self) -> None:
        """Drop what only a schedule's other oracles ask for, and touches of what is retired."""
        self._strays.clear()
        self.use_of_op.clear()
        self.arena.sweep_if_large(self._is_told)
        self.host.sweep_if_large(self._is_told)

    def drop_events(self) -> None:
        """Drop what the next call would be told of waits and events; the clocks have it."""
        for told in (self.since.waits, self.since.events, self.since.observed):
            told.clear()

    def written(self, spans: Sequence[Access], call: int) -> None:
        """Copies into these bytes define the units that live there."""
        for span in spans:
            for name, _, _ in self.pieces(span):
                if name:
                    self._mark_written(self.ids[name], call)

    def _put(self, key: tuple[int, int], state: int, name: int = 0) -> None:
        self._before.setdefault(key, self.states.get(key, (HOLE, 0)))
        if state in (LIVE, PENDING, VACATED):
            self.states[key] = (state, name)
        else:
            self.states.pop(key, None)
            self._left[key] = state

    # -- bytes
    def pieces(self, span: Access) -> Iterator[Piece]:
        """The parts of an arena range in live units, and then what is in none (id 0)."""
        _, start, end, _ = span
        if end <= 0 or start >= end:
            return
        found: list[Piece] = []
        for band, facts in enumerate(self.bands):
            located = self.at[band]
            if not located:
                continue
            first = (start - facts.origin_bytes) // facts.unit_bytes
            last = (end - 1 - facts.origin_bytes) // facts.unit_bytes
            first = max(first, facts.first_unit)
            last = min(last, facts.first_unit + facts.capacity_units - 1)
            for unit in range(first, last + 1):
                fact = located.get(unit)
                if fact is not None and fact.id in self.ids:
                    low, high = self.unit_range(band, unit)
                    found.append((fact.id, max(start, low), min(end, high)))
        yield from found
        yield from ((0, low, high) for low, high in _rest(max(0, start), end, found))

    def unit_at(self, start: int, end: int) -> UnitName | None:
        """The unit that holds all of [start, end), live ones first; for reports."""
        best: UnitName | None = None
        for band, facts in enumerate(self.bands):
            unit = (start - facts.origin_bytes) // facts.unit_bytes
            state = self.state(band, unit)
            if state == HOLE or end > self.unit_range(band, unit)[1]:
                continue
            if state == LIVE:
                return self.name(band, unit)
            best = best or self.name(band, unit)
        return best

    def sizes(self) -> dict[str, int]:
        """What is kept now, by count."""
        return {
            "units": len(self.states),
            "lives": len(self.ids),
            "limbo": sum(map(len, self.limbo)),
            "located": sum(map(len, self.at)),
            "touch_cells": self.arena.cells + self.host.cells,
            "uses": len(self.uses),
            "events": len(self._events),
            "untold": len(self.since.waits) + len(self.since.events) + len(self.since.observed),
            "others": len(self.ever) + len(self.use_of_op) + len(self._strays),
        }


def _rest(start: int, end: int, found: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """What of [start, end) no piece covers."""
    for _, low, high in sorted(found, key=lambda piece: piece[1]):
        if start < low:
            yield start, low
        start = max(start, high)
    if start < end:
        yield start, end
