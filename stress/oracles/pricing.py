"""The pricing oracle: no price is below what such a request comes to hold, and none is idle talk.

Each `price` call is judged by a small simulation written from the parts' lifetimes: rows of tokens
appear when a forward is launched and go when no later token can read them and their forward was
processed. A price below the peak is a broken promise; a price of a slot or of a context part, which
are known exactly, must be exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onearena.core.demand import Caller, RequestShape, ServingPolicy
from onearena.stress.oracles.base import NO_VIOLATIONS, UnitName, Violation
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import BandFacts

PRICE: Final = "price"
WHOLE_REQUEST: Final = (Caller.CLIP, Caller.PREFILL, Caller.CHUNK, Caller.PREALLOC)


class PricingOracle:
    """Feed `CallFacts`. Cost: the launches of the request."""

    name = "pricing"
    calls = frozenset((PRICE,))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one `price(shape, policy, caller)`."""
        call = facts.call
        if call.name != PRICE or call.error is not None:
            return NO_VIOLATIONS
        shape, policy, caller = call.args
        assert isinstance(shape, RequestShape), shape
        assert isinstance(policy, ServingPolicy), policy
        assert isinstance(caller, Caller), caller
        answer: tuple[int, ...] = call.answer  # type: ignore[assignment]
        for band, (fact, cost) in enumerate(zip(self.facts.bands, answer, strict=True)):
            held = shape.held[band] if shape.held else 0
            least = max(0, peak_units(fact, shape, policy, caller) - held)
            exact = fact.lifetime in ("context", "request")
            if cost < least or (exact and cost != least):
                said = f"{caller.value} of {shape} priced {cost} units of {fact.name}, not {least}"
                return (
                    Violation(
                        self.name,
                        "capacity",
                        f"{said}.",
                        unit=UnitName(fact.name, fact.first_unit),
                        events=(f"call #{call.serial} price",),
                    ),
                )
        return NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS


def peak_units(band: BandFacts, shape: RequestShape, policy: ServingPolicy, caller: Caller) -> int:
    """Most units of `band` that the request holds while what `caller` asks about goes on."""
    if band.lifetime == "request":
        if caller is Caller.LOAD_BACK:
            return 1
        return 1 + policy.tracking_slots + int(shape.shares_slot)
    peak = 0
    for written, needed_from in _launches(band, shape, policy, caller):
        last = -(-written // band.entries_per_unit)
        first = needed_from // band.entries_per_unit
        if band.lifetime == "context":
            first = shape.shared_tokens // band.entries_per_unit
        peak = max(peak, last - first)
    return peak


def _launches(
    band: BandFacts, shape: RequestShape, policy: ServingPolicy, caller: Caller
) -> Iterator[tuple[int, int]]:
    """Per launch: tokens with rows right after it, and the first token whose row is still kept."""
    whole = shape.prompt_tokens + shape.output_tokens
    computed = shape.computed_tokens
    in_flight = [shape.in_flight_tokens] if shape.in_flight_tokens else []
    if caller is Caller.LOAD_BACK:
        # What is loaded is resumed where it ends: nothing before it is computed again.
        kept = computed % band.span if band.lifetime == "chunk" else band.span
        yield computed, max(0, computed - kept)
        return
    drafts = policy.lookahead_tokens
    if caller is Caller.DECODE:
        # Every step writes a token and its drafts, and all may be accepted.
        for _ in range(policy.steps_in_flight):
            written = min(computed + 1 + drafts, whole + drafts)
            while len(in_flight) >= policy.steps_in_flight:
                in_flight.pop(0)
            in_flight.append(written - computed)
            computed = written
            yield computed, _kept_from(band, computed - sum(in_flight), policy)
        return
    if caller is Caller.EVICT:
        end = min(whole, computed + policy.chunk_tokens)
    else:
        assert caller in WHOLE_REQUEST, caller
        end = whole
    yield (
        computed + (drafts if computed == end else 0),
        _kept_from(band, computed - sum(in_flight), policy),
    )
    while computed < end:
        size = 1
        if computed < shape.prompt_tokens:
            size = min(policy.chunk_tokens, shape.prompt_tokens - computed, end - computed)
        while len(in_flight) >= policy.steps_in_flight:
            in_flight.pop(0)
        in_flight.append(size)
        computed += size
        yield computed + drafts, _kept_from(band, computed - sum(in_flight), policy)


def _kept_from(band: BandFacts, processed: int, policy: ServingPolicy) -> int:
    """First token that a request resumed at `processed` (or at its checkpoint) still reads."""
    resumed = processed
    if policy.checkpoint_tokens:
        resumed -= processed % policy.checkpoint_tokens
    if band.lifetime == "chunk":
        return resumed - resumed % band.span
    return max(0, resumed - band.span)
