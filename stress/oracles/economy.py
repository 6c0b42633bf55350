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

from typing import Final

from onearena.core.answers import Fits, Rung
from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, Violation
from onearena.stress.oracles.capacity import Fixed, fits_around, least_cost
from onearena.stress.oracles.fact_types import MOVING, CallFacts, IdFact, shows_units
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.promise import fixed_units
from onearena.stress.sut import Grant

CHANGING: Final = MOVING | {"free", "publish", "end_transfer", "disconnect", "pin"}
UNITS_MAX: Final = 160
"""Arenas with more grid units than this are not searched for the least cost."""


class EconomyOracle:
    """Feed `CallFacts`, after the legality oracle has placed the ids of a snapshot.

    Cost: nothing until a unit moved; then O(bands * units^2) on a small arena.
    """

    name = "economy"
    calls = CHANGING | {"fits", "record", "snapshot"}

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._placed = False  # every live unit's place is known, at the last snapshot
        self._alone: CallFacts | None = None
        self._calls = 0
        self._moved: dict[int, tuple[IdFact, int]] = {}  # id -> its facts, its unit before
        units = sum(band.capacity_units for band in facts.bands)
        self._searchable = units <= UNITS_MAX

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        for fact, old, *_ in self.facts.relocations:
            self._moved.setdefault(fact.id, (fact, old))
        if call.name == "snapshot":
            assert isinstance(call.answer, Snapshot)
            found = self._judge_snapshot() if self._moved else NO_VIOLATIONS
            self._placed |= shows_units(call.answer)
            if self._placed:
                self._alone, self._calls = None, 0
                self._moved.clear()
            return found
        if call.name == "fits" and isinstance(call.answer, Fits):
            if self._placed and not self._calls:
                return self._judge_rung(facts, call.answer)
        elif call.name in CHANGING and not facts.refused:
            self._calls += 1
            self._alone = facts
        return NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _judge_snapshot(self) -> tuple[Violation, ...]:
        alone = self._alone
        if not self._placed or alone is None or self._calls != 1:
            return NO_VIOLATIONS
        if alone.call.name == "allocate":
            return self._judge_moves(alone)
        if alone.call.name == "compact":
            budget = alone.call.args[0]
            assert isinstance(budget, int)
            if len(self._moved) > budget:
                text = f"compact moved {len(self._moved)} units; its budget was {budget}."
                return self._report(alone, text)
        return NO_VIOLATIONS

    def _judge_moves(self, alone: CallFacts) -> tuple[Violation, ...]:
        fixed = fixed_units(self.facts)
        if fixed is None or not self._searchable or not isinstance(alone.call.answer, Grant):
            return NO_VIOLATIONS
        bands, serial = self.facts.bands, alone.call.serial
        counts = self.facts.handed_out()
        worst: tuple[int, int] | None = None
        # Section 6 counts live units left outside, a unit not yet written is remapped without a
        # copy: the plan may count either way, and has to be the cheapest in one of them.
        for only_written in (False, True):
            cost = 0
            live: list[list[int]] = [[] for _ in bands]
            for fact in self.facts.ids.values():
                if fact.call >= serial or (only_written and not fact.written_before(serial)):
                    continue
                moved = self._moved.get(fact.id)
                unit = fact.unit if moved is None else moved[1]
                if unit is None:
                    return NO_VIOLATIONS
                live[fact.band].append(unit)
                cost += bands[fact.band].unit_bytes if moved is not None else 0
            least = least_cost(bands, self.facts.plan.arena_bytes, counts, fixed, live)
            if least is None or cost <= least:
                return NO_VIOLATIONS
            if worst is None:
                worst = (cost, least)
        assert worst is not None
        return self._report(
            alone, f"{worst[0]} bytes of live units moved; the cheapest layout asks for {worst[1]}."
        )

    def _judge_rung(self, facts: CallFacts, answer: Fits) -> tuple[Violation, ...]:
        fixed = fixed_units(self.facts)
        if fixed is None:
            return NO_VIOLATIONS
        bands, size = self.facts.bands, self.facts.plan.arena_bytes
        demand = facts.call.args[0]
        assert isinstance(demand, tuple)
        have = self.facts.handed_out()
        counts = [units + more for units, more in zip(have, demand, strict=True)]
        lowest = Rung.RELAYOUT
        for rung in (Rung.COMPACT, Rung.NONE):
            stay = list(fixed)
            for band, located in enumerate(self.facts.at):
                if rung is Rung.NONE or bands[band].placement == "floating":
                    held = sorted({*fixed[band].held, *located})
                    stay[band] = Fixed(tuple(held), fixed[band].freed)
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
