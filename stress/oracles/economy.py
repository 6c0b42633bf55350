"""The economy oracle: nothing moves that need not, and no more bytes than the cheapest plan copies.

Judged where an allocate stands alone between two snapshots with units, so that every unit's place
before and after is known:

* the bytes that moved are the least that any layout asks for (tried out, on arenas small enough);
* `fits` names the lowest rung: `none` if all live units may stay, `compact` if those of the
  floating bands may, `relayout` otherwise;
* `compact` moves no more units than its budget.

Needless waits of `record` are reported under this name by the reference oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.answers import Fits, Rung
from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, Violation
from onearena.stress.oracles.capacity import Fixed, fits_around, least_cost
from onearena.stress.oracles.fact_types import MOVING, CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.promise import fixed_units
from onearena.stress.sut import Grant

CHANGING: Final = MOVING | {"free", "end_transfer", "disconnect", "pin"}
UNITS_MAX: Final = 160
"""Arenas with more grid units than this are not searched for the least cost."""


class EconomyOracle:
    """Feed `CallFacts`, after the legality oracle has placed the ids of a snapshot.

    Cost: nothing until a unit moved; then O(bands * units^2) on a small arena.
    """

    name = "economy"

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._places: dict[int, tuple[int, int]] | None = None  # id -> (band, unit), at a snapshot
        self._alone: CallFacts | None = None
        self._calls = 0
        self._fixed: list[Fixed] | None = None
        self._counts: list[int] = []
        self._written: frozenset[int] = frozenset()
        units = sum(band.capacity_units for band in facts.bands)
        self._searchable = units <= UNITS_MAX

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        if call.name == "snapshot":
            assert isinstance(call.answer, Snapshot)
            return self._judge_snapshot(facts, call.answer)
        if call.name == "fits" and isinstance(call.answer, Fits) and not self._calls:
            return self._judge_rung(facts, call.answer)
        if call.name in CHANGING and not facts.refused:
            self._calls += 1
            self._alone = facts
        return NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _judge_snapshot(self, facts: CallFacts, now: Snapshot) -> tuple[Violation, ...]:
        if not any(band.states for band in now.bands) and self.facts.ids:
            return NO_VIOLATIONS
        places = {
            name: (band, snap.low_unit + i)
            for band, snap in enumerate(now.bands)
            for i, name in enumerate(snap.ids)
            if name
        }
        before, alone = self._places, self._alone
        found = NO_VIOLATIONS
        if before is not None and alone is not None and self._calls == 1:
            moved = [n for n, place in before.items() if places.get(n, place) != place]
            if moved and alone.call.name == "allocate":
                found = self._judge_moves(alone, before, moved)
            elif alone.call.name == "compact":
                budget = alone.call.args[0]
                assert isinstance(budget, int)
                if len(moved) > budget:
                    text = f"compact moved {len(moved)} units; its budget was {budget}."
                    found = self._report(alone, text)
        self._places, self._alone, self._calls = places, None, 0
        self._fixed = fixed_units(self.facts)
        self._counts = self.facts.handed_out()
        self._written = frozenset(n for n, fact in self.facts.ids.items() if fact.written)
        return found

    def _judge_moves(
        self, alone: CallFacts, before: dict[int, tuple[int, int]], moved: Sequence[int]
    ) -> tuple[Violation, ...]:
        if self._fixed is None or not self._searchable or not isinstance(alone.call.answer, Grant):
            return NO_VIOLATIONS
        bands = self.facts.bands
        counts = [
            have + len(ids) for have, ids in zip(self._counts, alone.call.answer.ids, strict=True)
        ]
        worst: tuple[int, int] | None = None
        # Section 6 counts live units left outside, a unit not yet written is remapped without a
        # copy: the plan may count either way, and has to be the cheapest in one of them.
        for only_written in (False, True):
            movers = [n for n in moved if not only_written or n in self._written]
            cost = sum(bands[before[name][0]].unit_bytes for name in movers)
            live: list[list[int]] = [[] for _ in bands]
            for name, (band, unit) in before.items():
                if not only_written or name in self._written:
                    live[band].append(unit)
            least = least_cost(bands, self.facts.plan.arena_bytes, counts, self._fixed, live)
            if least is None or cost <= least:
                return NO_VIOLATIONS
            if worst is None:
                worst = (cost, least)
        assert worst is not None
        return self._report(
            alone, f"{worst[0]} bytes of live units moved; the cheapest layout asks for {worst[1]}."
        )

    def _judge_rung(self, facts: CallFacts, answer: Fits) -> tuple[Violation, ...]:
        if self._places is None or self._fixed is None:
            return NO_VIOLATIONS
        bands, size = self.facts.bands, self.facts.plan.arena_bytes
        demand = facts.call.args[0]
        assert isinstance(demand, tuple)
        counts = [have + more for have, more in zip(self._counts, demand, strict=True)]
        lowest = Rung.RELAYOUT
        for rung in (Rung.COMPACT, Rung.NONE):
            staying = [set(fixed.held) for fixed in self._fixed]
            for band, unit in self._places.values():
                if rung is Rung.NONE or bands[band].placement == "floating":
                    staying[band].add(unit)
            stay = [
                Fixed(tuple(sorted(held)), fixed.freed)
                for held, fixed in zip(staying, self._fixed, strict=True)
            ]
            if fits_around(bands, size, counts, stay):
                lowest = rung
        if answer.rung is lowest:
            return NO_VIOLATIONS
        text = f"{demand} fits on rung {lowest.name.lower()}, said was {answer.rung.name.lower()}."
        return self._report(facts, text)

    def _report(self, facts: CallFacts, message: str) -> tuple[Violation, ...]:
        call = facts.call
        return (
            Violation(
                self.name,
                "capacity",
                message,
                events=(f"call #{call.serial} {call.name} {call.args}",),
                details={"call": call.serial, "step": call.step},
            ),
        )
