"""The eviction, pricing and boot oracles: silent on a right answer, heard on wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onearena.core.demand import Caller, RequestShape, ServingPolicy, price
from onearena.core.device.modeled import ModeledDevice
from onearena.core.eviction import Candidate, Eviction
from onearena.core.models import known_declaration
from onearena.core.plan import StoragePlan
from onearena.stress.arena_sut import ArenaSut
from onearena.stress.calls import Call
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.suite import CallOracles


class Bench:
    """One small arena, and the oracles fed with calls written by hand."""

    def __init__(self) -> None:
        declaration = known_declaration("inkling")
        assert declaration is not None
        plan = StoragePlan.from_units(declaration, page_size=16, counts=[2, 4, 12], allow_tiny=True)
        self.sut = ArenaSut(plan, ModeledDevice(eager=True))
        self.oracles = CallOracles(self.sut.plan, capabilities=self.sut.capabilities)
        self.serial = 0

    def say(self, name: str, args: tuple[object, ...], answer: object) -> list[str]:
        self.serial += 1
        found: tuple[Violation, ...] = self.oracles.feed(
            Call(self.serial, self.serial, name, args, answer)
        )
        return [violation.oracle for violation in found]


SHAPE = RequestShape(prompt_tokens=900, output_tokens=70, computed_tokens=100, in_flight_tokens=40)
POLICY = ServingPolicy(chunk_tokens=256, lookahead_tokens=3, tracking_slots=1)


@pytest.mark.parametrize("caller", list(Caller))
def test_a_price_one_unit_too_low_is_reported_and_the_price_itself_is_not(caller: Caller) -> None:
    bench = Bench()
    right = bench.sut.price(SHAPE, POLICY, caller)
    assert bench.say("price", (SHAPE, POLICY, caller), right) == []
    state, _, full = 0, 1, 2
    for band in (state, full):
        for wrong in (-1, 1):  # exactly known parts: too low and too high
            answer = tuple(n + wrong * (at == band) for at, n in enumerate(right))
            assert bench.say("price", (SHAPE, POLICY, caller), answer) == ["pricing"]


def test_a_window_priced_at_its_length_alone_is_reported() -> None:
    bench = Bench()
    pools = StoragePlan.from_units(
        known_declaration("inkling"), page_size=16, counts=[2, 4, 12], allow_tiny=True
    ).sub_pools
    bare = price(pools, replace(SHAPE, in_flight_tokens=0), ServingPolicy(), Caller.LOAD_BACK)
    right = bench.sut.price(SHAPE, POLICY, Caller.PREFILL)
    answer = (right[0], 512 // 16, right[2])
    assert bare[1] < right[1]
    assert bench.say("price", (SHAPE, POLICY, Caller.PREFILL), answer) == ["pricing"]


def test_victims_have_to_be_the_shortest_prefix_that_is_enough() -> None:
    # Nothing is handed out: 12 full pages and no more fit beside 4 windows and 2 states.
    bench = Bench()
    fits, over = (0, 0, 3), (2, 4, 14)
    cache = (Candidate(0, (0, 0, 1)), Candidate(1, (0, 0, 1)), Candidate(2, (0, 0, 1)))
    everything = (0, 0, 3)
    assert bench.say("evict", (fits, cache, everything), Eviction((), fits=True)) == []
    assert bench.say("evict", (fits, cache, everything), Eviction((0,), fits=True)) == ["eviction"]
    enough = Eviction((0, 1), fits=True)
    assert bench.say("evict", (over, cache, everything), enough) == []
    for wrong in ((0,), (0, 1, 2), (1, 0), ()):
        answer = Eviction(wrong, fits=True)
        assert bench.say("evict", (over, cache, everything), answer) == ["eviction"]


def test_nothing_goes_for_a_demand_that_never_fits() -> None:
    bench = Bench()
    never = (9, 9, 99)
    cache = (Candidate(0, (0, 0, 1)),)
    assert bench.say("evict", (never, cache, (0, 0, 1)), Eviction((), fits=False)) == []
    for wrong in (Eviction((0,), fits=False), Eviction((), fits=True)):
        assert bench.say("evict", (never, cache, (0, 0, 1)), wrong) == ["eviction"]


def test_a_budget_that_cannot_serve_what_it_admits_is_reported() -> None:
    bench = Bench()
    budget, tokens = 1 << 34, 20_000
    plan = bench.sut.boot(budget, tokens)
    assert plan is not None
    assert bench.say("boot", (budget, tokens), plan) == []
    assert bench.say("boot", (budget, 10**9), plan) == ["boot"]
    assert bench.say("boot", (1 << 20, tokens), plan) == ["boot"]
    assert bench.sut.boot(1 << 20, tokens) is None
    assert bench.say("boot", (1 << 20, tokens), None) == []
