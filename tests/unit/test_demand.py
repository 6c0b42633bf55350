"""Prices, the memory clip, the eviction walk and check mode."""

from __future__ import annotations

import pytest

from onearena.core.arena import Arena
from onearena.core.arena_state import ArenaOptions
from onearena.core.demand import (
    Caller,
    RequestShape,
    ServingPolicy,
    clip_output_tokens,
    joint,
    pages_touched,
    price,
)
from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import MisuseError
from onearena.core.eviction import Candidate, choose_victims
from onearena.core.geometry import chain_geometry, pack
from onearena.core.models import known_declaration
from onearena.core.rules import UseKind
from onearena.core.sub_pools import SubPoolPlan, sub_pools_of
from onearena.stress.arrivals import Arrival
from onearena.stress.pricing_replay import replay


def pools_of(model: str, page_size: int) -> tuple[SubPoolPlan, ...]:
    declaration = known_declaration(model)
    assert declaration is not None
    return sub_pools_of(declaration, page_size=page_size)


def test_a_context_part_is_priced_to_the_last_page_and_a_slot_once() -> None:
    pools = pools_of("qwen3.5-4b", 64)
    shape = RequestShape(prompt_tokens=1000, output_tokens=25)
    asked = dict(
        zip(
            [pool.name for pool in pools],
            price(pools, shape, ServingPolicy(), Caller.PREFILL),
            strict=True,
        )
    )
    assert asked["full"] == 17  # ceil(1025 / 64)
    assert sum(asked.values()) == 18


def test_steady_state_of_the_reference_case() -> None:
    pools = pools_of("gemma-3-27b", 64)
    window = next(pool for pool in pools if pool.name.startswith("window"))
    full = next(pool for pool in pools if pool.name == "full")
    assert full.units_for_tokens(32_768) == 512
    assert window.units_for_tokens(32_768) == 1024 // 64


def test_whole_shared_pages_cost_nothing_and_a_part_filled_one_is_forked() -> None:
    pools = pools_of("deepseek-v3.2", 64)
    policy = ServingPolicy()
    whole = RequestShape(prompt_tokens=640, output_tokens=0, computed_tokens=128, shared_tokens=128)
    part = RequestShape(prompt_tokens=640, output_tokens=0, computed_tokens=130, shared_tokens=130)
    assert price(pools, whole, policy, Caller.PREFILL) == (8,)
    assert price(pools, part, policy, Caller.PREFILL) == (8,)


def test_a_window_retains_what_is_in_flight_and_what_a_checkpoint_needs() -> None:
    pools = pools_of("gpt-oss-20b", 1)
    at = next(i for i, pool in enumerate(pools) if pool.name.startswith("window"))
    shape = RequestShape(prompt_tokens=100_000, output_tokens=1000)
    plain = ServingPolicy(chunk_tokens=512, steps_in_flight=2)
    kept = ServingPolicy(chunk_tokens=512, steps_in_flight=2, checkpoint_tokens=256)
    assert price(pools, shape, plain, Caller.PREFILL)[at] == 128 + 2 * 512
    assert price(pools, shape, kept, Caller.PREFILL)[at] == 128 + 2 * 512 + 256


def test_held_units_are_taken_off_and_never_below_zero() -> None:
    pools = pools_of("deepseek-v3.2", 64)
    shape = RequestShape(prompt_tokens=640, output_tokens=0, computed_tokens=320, held=(5,))
    assert price(pools, shape, ServingPolicy(), Caller.CHUNK) == (5,)
    rich = RequestShape(prompt_tokens=640, output_tokens=0, computed_tokens=320, held=(50,))
    assert price(pools, rich, ServingPolicy(), Caller.CHUNK) == (0,)


@pytest.mark.parametrize(
    ("run", "page", "most"), [(1, 64, 1), (2, 64, 2), (65, 64, 2), (66, 64, 3), (0, 4, 0)]
)
def test_a_run_of_tokens_touches_at_most_so_many_pages(run: int, page: int, most: int) -> None:
    brute = (
        max((((s + run - 1) // page - s // page + 1) for s in range(page)), default=0) if run else 0
    )
    assert pages_touched(run, page) == most == brute


def test_the_memory_clip_is_the_largest_that_fits_jointly() -> None:
    pools = pools_of("inkling", 16)
    geometry = chain_geometry(16 * (10**7), [(pool.name, pool.unit_bytes) for pool in pools])
    shape = RequestShape(prompt_tokens=50, output_tokens=10_000)
    policy = ServingPolicy(chunk_tokens=16)

    def fits(demand: tuple[int, ...]) -> bool:
        return pack(geometry, demand).feasible

    best = clip_output_tokens(pools, shape, policy, fits=fits)
    assert best is not None
    assert 0 < best < 10_000

    def priced(tokens: int) -> tuple[int, ...]:
        asked = RequestShape(prompt_tokens=50, output_tokens=tokens)
        return price(pools, asked, policy, Caller.CLIP)

    assert fits(priced(best))
    assert not fits(priced(best + 1))
    assert clip_output_tokens(pools, shape, policy, fits=lambda _: False) is None


def test_the_eviction_walk_stops_at_the_first_victim_after_which_the_demand_fits() -> None:
    # Bytes are shared: 10 in all, full units of 1, state units of 4; 9 bytes of full are held.
    def fits(more: tuple[int, ...]) -> bool:
        return more[0] * 4 + (9 + more[1]) <= 10

    cache = [Candidate("a", (0, -0 + 2)), Candidate("b", (0, 1)), Candidate("c", (0, 3))]
    walk = choose_victims((1, 0), cache, evictable=(0, 6), fits=fits)
    assert (walk.victims, walk.fits) == (("a", "b"), True)


def test_nothing_is_evicted_when_it_fits_already_or_never_will() -> None:
    cache = [Candidate("a", (0, 2))]
    assert choose_victims((0, 1), cache, evictable=(0, 2), fits=lambda _: True).victims == ()
    never = choose_victims((9, 9), cache, evictable=(0, 2), fits=lambda _: False)
    assert (never.victims, never.fits) == ((), False)


def arena(**options: bool) -> Arena:
    geometry = chain_geometry(1024, [("state", 64), ("full", 32)])
    return Arena(geometry, ModeledDevice(), ArenaOptions(**options))


def test_the_arena_evicts_by_the_joint_question() -> None:
    subject = arena()
    subject.allocate((0, 31), writer=UseKind.FORWARD, stream=0)
    cache = [Candidate(name, (0, 1)) for name in "abcd"]
    walk = subject.evict((1, 0), cache, evictable=(0, 4))
    assert (walk.victims, walk.fits) == (("a",), True)
    with pytest.raises(MisuseError, match="releases more"):
        subject.would_fit((0, -32))


def test_check_mode_names_who_decided_on_the_free_count_of_one_sub_pool() -> None:
    subject = arena(check_mode=True)
    assert subject.free_units(1) == 32  # a log or a metric may read it
    with subject.decision("prefill"), pytest.raises(MisuseError, match="prefill read the free"):
        subject.free_units(1)
    assert subject.counters["check_mode/prefill"] == 1


@pytest.mark.parametrize("model", ["inkling", "llama-4-scout", "gpt-oss-20b", "kimi-k3"])
@pytest.mark.parametrize("page_size", [1, 64])
def test_no_request_comes_to_hold_more_than_it_was_priced_at(model: str, page_size: int) -> None:
    arrivals = [
        Arrival(0, prompt, output, ())
        for prompt in (1, 63, 64, 65, 700, 8192, 20_000)
        for output in (1, 2, 130, 900)
    ]
    for policy in (
        ServingPolicy(),
        ServingPolicy(chunk_tokens=256, steps_in_flight=1),
        ServingPolicy(chunk_tokens=100, steps_in_flight=4, lookahead_tokens=5),
        ServingPolicy(chunk_tokens=512, checkpoint_tokens=300, tracking_slots=2),
    ):
        report = replay(pools_of(model, page_size), arrivals, policy)
        assert report.under == []
        assert report.questions > len(arrivals)


def test_a_joint_demand_is_the_sum() -> None:
    assert joint([(1, 2), (3, 0)]) == (4, 2)
