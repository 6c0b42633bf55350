"""The promise oracle: a capacity answer is exact, and a yes is kept.

From what the calls left (units handed out, units under a transfer or pinned) the answer to a demand
follows by arithmetic: `Infeasible` if and only if the packing inequality fails, missing exactly so
many bytes; else `Blocked` if and only if no layout holds it while the fixed units stay where they
are, naming only such units; else it fits, and an allocate grants it. `fits` and `allocate` are
judged alike, so a yes followed by a refusal cannot pass.

Where the place of a pinned unit is not known, or a torn-down connection's transfer was not ended
yet, `fits` and `blocked` are both accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.stress.oracles.base import NO_VIOLATIONS, Violation
from onearena.stress.oracles.capacity import Fixed, fits_around, shortfall
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import Grant

ASKING: Final = frozenset(("fits", "allocate", "fork"))


class PromiseOracle:
    """Feed `CallFacts`. Cost: the bands, and the units under a transfer or pinned."""

    name = "promise"
    calls = ASKING

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one answer."""
        call = facts.call
        if call.name not in ASKING or call.error is not None:
            return NO_VIOLATIONS
        demand = self._demand(facts)
        # The facts already count what this call granted, and no longer what a fork freed, unless
        # that is quarantined: it is handed out still.
        counts = self.facts.handed_out()
        if facts.freed:
            quarantined = set(self.facts.quarantined())
            for fact in facts.freed:
                counts[fact.band] += (fact.band, fact.unit) not in quarantined
        if not isinstance(call.answer, Grant):
            counts = [have + more for have, more in zip(counts, demand, strict=True)]
        missing = shortfall(self.facts.bands, self.facts.plan.arena_bytes, counts)
        said = type(call.answer).__name__.lower()
        if isinstance(call.answer, Infeasible):
            if not missing:
                return self._report(facts, f"{demand} fits in some layout, and was infeasible.")
            if call.answer.missing_bytes != missing:
                said = f"{demand} lacks {missing} bytes, not {call.answer.missing_bytes}."
                return self._report(facts, said)
            return self._judge_binding(facts, counts, demand, call.answer.binding_band)
        if call.name == "fork" and isinstance(call.answer, Blocked):
            return NO_VIOLATIONS  # an unfinished receive of its source blocks a fork first
        if missing:
            return self._report(facts, f"{demand} fits in no layout, and the answer was {said}.")
        if call.name == "fork":
            return NO_VIOLATIONS
        return self._judge_blocked(facts, counts, demand)

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _demand(self, facts: CallFacts) -> list[int]:
        if facts.call.name != "fork":
            asked = facts.call.args[0]
            assert isinstance(asked, tuple)
            return list(asked)
        demand = [0] * len(self.facts.bands)
        for name in facts.call.args[0]:  # type: ignore[attr-defined]
            fact = self.facts.ids.get(name)
            if fact is not None:
                demand[fact.band] += 1
        return demand

    def _judge_binding(
        self, facts: CallFacts, counts: Sequence[int], demand: Sequence[int], said: int
    ) -> tuple[Violation, ...]:
        """The binding sub-pool is the first, in chain order, whose own demand fits no more."""
        so_far = [whole - more for whole, more in zip(counts, demand, strict=True)]
        for band, more in enumerate(demand):
            so_far[band] += more
            if more and shortfall(self.facts.bands, self.facts.plan.arena_bytes, so_far):
                if band == said:
                    return NO_VIOLATIONS
                text = f"{list(demand)} is bound by band {band}, and band {said} was named."
                return self._report(facts, text)
        return NO_VIOLATIONS

    def _judge_blockers(
        self, facts: CallFacts, counts: Sequence[int], fixed: Sequence[Fixed], answer: Blocked
    ) -> tuple[Violation, ...]:
        """Each blocker is what it is called; with all gone the demand fits, with one left not."""
        known = self.facts
        lost = set(known.quarantined())
        under = {place for use in known.transfers.values() for place in use.units}
        pinned = {(known.ids[n].band, known.ids[n].unit) for n in known.pinned if n in known.ids}
        places: dict[str, set[Any]] = {"quarantined": lost, "transfer": under, "pinned": pinned}
        named = [(blocker.band, blocker.unit) for blocker in answer.blockers]
        for blocker, place in zip(answer.blockers, named, strict=True):
            if place not in places.get(blocker.reason, ()):
                text = f"{known.name(*place)} is named as {blocker.reason}, which it is not."
                return self._report(facts, text)
        for kept in (None, *named):
            stay = [
                Fixed(
                    tuple(u for u in here.held if (band, u) == kept or (band, u) not in named),
                    tuple(u for u in here.freed if (band, u) == kept or (band, u) not in named),
                )
                for band, here in enumerate(fixed)
            ]
            able = fits_around(known.bands, known.plan.arena_bytes, counts, stay)
            if able is (kept is None):
                continue
            text = "the named blockers do not tell all that blocks the demand."
            if kept is not None:
                text = f"{known.name(*kept)} is named as a blocker, and is none."
            return self._report(facts, text)
        return NO_VIOLATIONS

    def _judge_blocked(
        self, facts: CallFacts, counts: Sequence[int], demand: Sequence[int]
    ) -> tuple[Violation, ...]:
        fixed = fixed_units(self.facts)
        answer = facts.call.answer
        if fixed is None:
            return NO_VIOLATIONS
        able = fits_around(self.facts.bands, self.facts.plan.arena_bytes, counts, fixed)
        if isinstance(answer, Blocked):
            if able:
                return self._report(
                    facts, f"{list(demand)} fits around all fixed units, and was blocked."
                )
            known = [{*stay.held, *stay.freed} for stay in fixed]
            for blocker in answer.blockers:
                if blocker.unit not in known[blocker.band]:
                    unit = self.facts.name(blocker.band, blocker.unit)
                    return self._report(facts, f"{unit} is named as a blocker, and may move.")
            return self._judge_blockers(facts, counts, fixed, answer)
        if not able:
            said = "granted" if isinstance(answer, Grant) else type(answer).__name__.lower()
            assert isinstance(answer, Grant | Fits), f"answer {answer!r}"
            return self._report(
                facts, f"{list(demand)} cannot fit around the fixed units, and was {said}."
            )
        return NO_VIOLATIONS

    def _report(self, facts: CallFacts, message: str) -> tuple[Violation, ...]:
        call = facts.call
        return (
            Violation(
                self.name,
                "capacity",
                message,
                events=(f"call #{call.serial} {call.name} {call.args[0]}: {call.answer}",),
                details={"call": call.serial, "step": call.step},
            ),
        )


def fixed_units(facts: Facts) -> list[Fixed] | None:
    """Units that may not move, by band; None where the calls alone do not tell."""
    held: list[set[int]] = [set() for _ in facts.bands]
    freed: list[set[int]] = [set() for _ in facts.bands]
    for transfer in facts.transfers.values():
        if transfer.outcome == "disconnected":
            return None
        for band, unit in transfer.units:
            live = unit in facts.at[band] or transfer.outcome == "lost"
            (held if live else freed)[band].add(unit)
    for name in facts.pinned:
        fact = facts.ids.get(name)
        if fact is None:
            continue
        if fact.unit is None or max(fact.seen, facts.placed) < fact.pin_floor:
            return None
        held[fact.band].add(fact.unit)
    # A unit under two transfers, one of them lost, is held.
    return [
        Fixed(tuple(sorted(stay)), tuple(sorted(gone - stay)))
        for stay, gone in zip(held, freed, strict=True)
    ]
