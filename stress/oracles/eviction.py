"""The eviction oracle: who asks for victims gets none, the first that are enough, or none at all.

Section 6: nothing is evicted if the demand fits already, or cannot fit even with every cached entry
gone; victims go in the cache's own order; the walk stops at the first victim after which the demand
fits, counting what that victim releases in every sub-pool. Judged from the call alone, with the
packing inequality of `capacity.shortfall`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.eviction import Candidate, Eviction
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.capacity import shortfall
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts

EVICT: Final = "evict"


class EvictionOracle:
    """Feed `CallFacts`. Cost: one packing per candidate."""

    name = "eviction"
    calls = frozenset((EVICT,))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one `evict(demand, candidates, evictable)`."""
        call = facts.call
        if call.name != EVICT or call.error is not None:
            return NO_VIOLATIONS
        demand, candidates, _ = call.args
        assert isinstance(demand, tuple), demand
        assert isinstance(candidates, tuple), candidates
        assert isinstance(call.answer, Eviction), call.answer
        chosen, fits = call.answer.victims, call.answer.fits
        wanted, possible = self._walk(demand, candidates)
        if chosen != wanted:
            said = f"for {demand} the victims are {list(wanted)}, in this order, not {list(chosen)}"
        elif fits != possible:
            said = f"for {demand} the answer says fits={fits}, and it is {possible}"
        else:
            return NO_VIOLATIONS
        return (
            Violation(
                self.name,
                "capacity",
                f"{said}.",
                bytes=ByteRange("arena", 0, self.facts.plan.arena_bytes),
                events=(f"call #{call.serial} evict",),
            ),
        )

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _walk(
        self, demand: Sequence[int], candidates: Sequence[Candidate[int]]
    ) -> tuple[tuple[int, ...], bool]:
        """The victims the rule asks for, and whether the demand fits after them."""
        counts = self.facts.handed_out()
        left = [have + more for have, more in zip(counts, demand, strict=True)]
        if self._fits(left):
            return (), True
        for number, candidate in enumerate(candidates, start=1):
            left = [have - fewer for have, fewer in zip(left, candidate.releases, strict=True)]
            if self._fits(left):
                return tuple(each.victim for each in candidates[:number]), True
        return (), False

    def _fits(self, counts: Sequence[int]) -> bool:
        return not shortfall(self.facts.bands, self.facts.plan.arena_bytes, counts)
