"""The largest request and how many of a mix fit, against adding requests one by one."""

from __future__ import annotations

import random

import pytest

from onearena.core.declaration import LayerDeclaration, ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.layout import CONTEXT, REQUEST, Dtype, Part, chunk, window
from onearena.core.models import known_declaration
from onearena.core.plan import PlanSettings, StoragePlan
from onearena.core.requests import RequestClass, fit_mix, largest_request, parse_mix


def small_plan(rng: random.Random, *, bounded: bool = False) -> StoragePlan:
    """One to five kinds, entries of 16 to 64 bytes, an arena of a few hundred units."""
    kinds = [window(rng.randint(1, 9)), chunk(rng.randint(1, 9)), REQUEST]
    if not bounded:
        kinds.append(CONTEXT)
    picked = rng.sample(kinds, rng.randint(1, len(kinds)))
    layers = tuple(
        LayerDeclaration(
            kind="l",
            parts=(
                Part(name="x", shape=(8 * rng.randint(1, 4),), dtype=Dtype.BF16, lifetime=life),
            ),
        )
        for life in picked
    )
    return StoragePlan.from_units(
        ModelDeclaration(name="m", max_context_tokens=99, layers=layers),
        page_size=rng.randint(1, 4),
        arena_bytes=16 * rng.randint(0, 200),
        float_anchor_bytes=[16 * rng.randint(0, 9)] * max(0, len(picked) - 2),
        allow_tiny=True,
    )


def test_the_largest_request_is_the_last_that_fits_and_all_shorter_ones_do():
    rng = random.Random(11)
    seen = set()
    for _ in range(80):
        plan = small_plan(rng)
        largest = largest_request(plan)
        fitting = [tokens for tokens in range(1, 850) if plan.fits(plan.peak_demand(tokens))]
        if largest is None:
            assert fitting == list(range(1, 850))
        else:
            assert fitting == list(range(1, largest + 1))
        seen.add("none" if largest == 0 else "any" if largest is None else "some")
    assert seen == {"none", "any", "some"}


def test_a_mix_is_filled_request_by_request_until_one_does_not_fit():
    rng = random.Random(12)
    numbers = []
    for _ in range(300):
        plan = small_plan(rng)
        mix = [
            RequestClass(
                input_tokens=rng.randint(0, 8),
                output_tokens=rng.randint(1, 5),
                weight=rng.randint(1, 3),
            )
            for _ in range(rng.randint(1, 3))
        ]
        order = [index for index, request in enumerate(mix) for _ in range(request.weight)]
        held = [0] * len(plan.sub_pools)
        per_class = [0] * len(mix)
        number = 0
        while True:
            index = order[number % len(order)]
            more = plan.peak_demand(mix[index].tokens)
            grown = [a + b for a, b in zip(held, more, strict=True)]
            if not plan.fits(grown):
                break
            held, number = grown, number + 1
            per_class[index] += 1
        fit = fit_mix(plan, mix)
        assert (fit.requests, list(fit.per_class), list(fit.counts)) == (number, per_class, held)
        numbers.append(number)
    assert max(numbers) > 30
    assert min(numbers) == 0


def test_a_mix_of_a_real_model():
    plan = StoragePlan.build(known_declaration("qwen3.5-4b"), PlanSettings(budget_bytes=100 << 30))
    fit = fit_mix(plan, parse_mix("1024+256:3,16384+4096:1", field="--mix"))
    # 20 pages and a slot each, or 320 pages and a slot: 4 requests hold 380 pages and 4 slots.
    slot, page = 51_511_296, 64 * 32_768
    rounds = plan.arena_bytes // (380 * page + 4 * slot)
    assert 4 * rounds <= fit.requests < 4 * rounds + 4
    assert fit.counts[0] == fit.requests
    assert fit.counts[1] == 20 * fit.per_class[0] + 320 * fit.per_class[1]


def test_several_state_slots_of_a_request_are_counted():
    settings = PlanSettings(budget_bytes=100 << 30, state_slots_per_request=3)
    plan = StoragePlan.build(known_declaration("qwen3.5-4b"), settings)
    assert plan.peak_demand(64) == (3, 1)
    assert plan.peak_demand(0) == (0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024+256:3", [(1024, 256, 3)]),
        ("1024+256", [(1024, 256, 1)]),
        ("0+1:2, 5+0:1", [(0, 1, 2), (5, 0, 1)]),
    ],
)
def test_mixes_are_read(text, expected):
    mix = parse_mix(text, field="--mix")
    assert [(r.input_tokens, r.output_tokens, r.weight) for r in mix] == expected


@pytest.mark.parametrize(
    "text",
    ["", "1024", "1024+", "+5", "1+2:0", "1+2:-1", "1+2:x", "0+0:1", "1e3+5:1", "1+2:", "1+2:3:4",
     "9999999999999999+1:1", ",", "1+2,,3+4", "٣+1:1"],
)  # fmt: skip
def test_other_mixes_are_refused_by_field(text):
    with pytest.raises(UsageError, match="--mix"):
        parse_mix(text, field="--mix")
    with pytest.raises(UsageError, match="at most 64"):
        parse_mix(",".join(["1+1"] * 65), field="--mix")
