"""Hazards of admission, eviction and pricing: questions to the price and the arena's walk."""

from __future__ import annotations

from onearena.core.arena import Arena
from onearena.core.demand import Caller, RequestShape, ServingPolicy, price
from onearena.core.device.modeled import ModeledDevice
from onearena.core.eviction import Candidate
from onearena.core.geometry import chain_geometry
from onearena.core.models import known_declaration
from onearena.core.rules import UseKind
from onearena.core.sub_pools import SubPoolPlan, sub_pools_of

PAGE = 16


def pools() -> tuple[SubPoolPlan, ...]:
    declaration = known_declaration("inkling")  # state, a window of 512, full
    assert declaration is not None
    return sub_pools_of(declaration, page_size=PAGE)


def test_02_the_walk_stops_at_the_first_victim_after_which_the_demand_fits() -> None:
    arena = Arena(chain_geometry(1024, [("state", 64), ("full", 32)]), ModeledDevice())
    arena.allocate((0, 32), writer=UseKind.FORWARD, stream=0)
    # The second victim frees a full page too, and with the first makes room for the state.
    cache = [Candidate(name, (0, 1)) for name in ("oldest", "older", "young")]
    walk = arena.evict((1, 0), cache, evictable=(0, 3))
    assert walk.victims == ("oldest", "older")


def test_34_a_host_hit_is_priced_before_it_is_loaded() -> None:
    hit = RequestShape(prompt_tokens=4096, output_tokens=64, computed_tokens=2048)
    state, window, full = price(pools(), hit, ServingPolicy(), Caller.LOAD_BACK)
    assert (state, full) == (1, 2048 // PAGE)
    assert window >= 512 // PAGE


def test_35_a_prefix_longer_than_the_window_is_charged_one_window() -> None:
    policy = ServingPolicy(chunk_tokens=256, steps_in_flight=1)
    cached = RequestShape(
        prompt_tokens=8192, output_tokens=16, computed_tokens=8000, shared_tokens=8000
    )
    _, window, _ = price(pools(), cached, policy, Caller.PREFILL)
    assert window <= (512 + 256) // PAGE + 2


def test_38_the_page_that_rounding_adds_is_asked_for() -> None:
    exact = RequestShape(prompt_tokens=10 * PAGE, output_tokens=0)
    one_more = RequestShape(prompt_tokens=10 * PAGE, output_tokens=1)
    assert price(pools(), exact, ServingPolicy(), Caller.PREFILL)[2] == 10
    assert price(pools(), one_more, ServingPolicy(), Caller.PREFILL)[2] == 11


def test_56_rows_back_to_the_last_checkpoint_are_in_the_price() -> None:
    shape = RequestShape(prompt_tokens=8192, output_tokens=16)
    plain = ServingPolicy(chunk_tokens=256)
    kept = ServingPolicy(chunk_tokens=256, checkpoint_tokens=1024)
    without = price(pools(), shape, plain, Caller.PREFILL)[1]
    assert price(pools(), shape, kept, Caller.PREFILL)[1] >= without + 1024 // PAGE
