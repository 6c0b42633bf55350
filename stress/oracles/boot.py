"""The boot oracle: a start-up that accepts a budget can serve the longest request it admits.

An arena smaller than one worst-case request retracts for ever, so such a budget is refused.
"""

from __future__ import annotations

from typing import Final

from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.capacity import shortfall
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import BandFacts, PlanFacts

BOOT: Final = "boot"


class BootOracle:
    """Feed `CallFacts`. Cost: the bands."""

    name = "boot"
    calls = frozenset((BOOT,))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one `boot(budget_bytes, request_tokens)`."""
        call = facts.call
        if call.name != BOOT or not isinstance(call.answer, PlanFacts):
            return NO_VIOLATIONS
        budget, tokens = call.args
        assert isinstance(budget, int), budget
        assert isinstance(tokens, int), tokens
        plan = call.answer
        worst = [units_of_longest(band, tokens) for band in plan.bands]
        missing = shortfall(plan.bands, plan.arena_bytes, worst)
        if plan.arena_bytes <= budget and not missing:
            return NO_VIOLATIONS
        said = (
            f"{budget} bytes were accepted for requests of {tokens} tokens: {worst} units do not "
            f"fit {plan.arena_bytes} arena bytes, {missing} are missing"
        )
        return (
            Violation(
                self.name,
                "capacity",
                f"{said}.",
                bytes=ByteRange("arena", 0, plan.arena_bytes),
                events=(f"call #{call.serial} boot",),
            ),
        )

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS


def units_of_longest(band: BandFacts, tokens: int) -> int:
    """Units that a request of `tokens` tokens holds at its worst moment, nothing in flight.

    The retained run ends at any token: it is tried at the last ones, where it is longest.
    """
    page = band.entries_per_unit
    if band.lifetime == "request":
        return 1
    if band.lifetime == "context":
        return -(-tokens // page)
    most = 0
    for length in range(max(1, tokens - band.span - page), tokens + 1):
        first = length - band.span
        if band.lifetime == "chunk":
            first = (length - 1) // band.span * band.span
        most = max(most, (length - 1) // page - max(0, first) // page + 1)
    return most
