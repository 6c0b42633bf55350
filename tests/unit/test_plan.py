"""Storage plans: sub-pools, chain order, budget and refusals, each from the rule."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys

import pytest

from onearena.core.declaration import LayerDeclaration, ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.geometry import GUARD_BYTES, Placement, pack
from onearena.core.layout import CONTEXT, REQUEST, Dtype, Lifetime, Part, chunk, window
from onearena.core.model_parts import declare, gqa, mla, replay_rings
from onearena.core.models import KNOWN_MODELS, known_declaration
from onearena.core.plan import PlanSettings, StoragePlan

GIB = 1 << 30


def rows(name: str, lifetime: Lifetime, size: int = 8, **more: object) -> Part:
    return Part(name=name, shape=(size,), dtype=Dtype.BF16, lifetime=lifetime, **more)


def model(*lifetimes: Lifetime, size: int = 8, context: int = 4096) -> ModelDeclaration:
    """One layer per lifetime; the entry of the i-th is (i + 1) * size values wide."""
    layers = [
        LayerDeclaration(kind=f"l{i}", parts=(rows("x", lifetime, size * (i + 1)),))
        for i, lifetime in enumerate(lifetimes)
    ]
    return ModelDeclaration(name="m", max_context_tokens=context, layers=tuple(layers))


def chain(declaration: ModelDeclaration) -> list[tuple[str, str]]:
    plan = StoragePlan.from_units(declaration, arena_bytes=1 << 20)
    return [(pool.name, pool.placement.value) for pool in plan.sub_pools]


def test_the_reference_request_takes_512_full_pages_and_64_window_pages():
    plan = StoragePlan.from_units(model(CONTEXT, window(4096)), page_size=64, arena_bytes=1 << 30)
    assert plan.units_for_tokens(plan.band("full"), 32 * 1024) == 512
    assert plan.units_for_tokens(plan.band("window_4096"), 32 * 1024) == 64


@pytest.mark.parametrize("page", [1, 3, 4, 7, 64])
@pytest.mark.parametrize(
    "lifetime", [CONTEXT, REQUEST, window(1), window(6), window(17), chunk(1), chunk(6), chunk(16)]
)
def test_units_equal_the_pages_that_the_retained_tokens_lie_in(page, lifetime):
    plan = StoragePlan.from_units(model(lifetime), page_size=page, arena_bytes=1 << 16)
    pool = plan.sub_pools[0]
    peak = 0
    reached = False
    for tokens in range(90):
        positions = range(tokens)
        if lifetime.kind.value == "window":
            positions = [p for p in positions if p >= tokens - lifetime.length]
        elif lifetime.kind.value == "chunk":
            last = (tokens - 1) // lifetime.length
            positions = [p for p in positions if p // lifetime.length == last]
        expected = len({p // page for p in positions})
        if lifetime == REQUEST:
            expected = min(tokens, 1)
        assert pool.units_for_tokens(tokens) == expected
        peak = max(peak, expected)
        bound = pool.peak_units(tokens)
        assert peak <= bound <= peak + 1
        reached |= bound == peak and tokens > 64
    if lifetime.length + page < 60:
        assert reached, "the bound is attained by some length"


@pytest.mark.parametrize(
    ("lifetimes", "expected"),
    [
        ([CONTEXT], ["full low_end"]),
        ([REQUEST], ["state low_end"]),
        ([window(8)], ["window_8 low_end"]),
        ([CONTEXT, REQUEST], ["state low_end", "full high_end"]),
        ([CONTEXT, window(8)], ["window_8 low_end", "full high_end"]),
        ([CONTEXT, chunk(8)], ["chunk_8 low_end", "full high_end"]),
        ([REQUEST, window(8)], ["state low_end", "window_8 high_end"]),
        ([window(8), window(99)], ["window_8 low_end", "window_99 high_end"]),
        (
            [CONTEXT, window(8), REQUEST],
            ["state low_end", "window_8 floating", "full high_end"],
        ),
        # Of two windows without a state, the one with the larger entry keeps the low end.
        (
            [CONTEXT, window(8), window(99)],
            ["window_99 low_end", "window_8 floating", "full high_end"],
        ),
        (
            [window(8), chunk(16), REQUEST, CONTEXT],
            ["state low_end", "chunk_16 floating", "window_8 floating", "full high_end"],
        ),
        (
            [REQUEST, window(8), window(16), window(99)],
            ["state low_end", "window_16 floating", "window_8 floating", "window_99 high_end"],
        ),
    ],
)
def test_chain_order(lifetimes, expected):
    found = [" ".join(pair) for pair in chain(model(*lifetimes))]
    assert found == expected
    shuffled = list(reversed(lifetimes))
    sizes = {lifetime: i + 1 for i, lifetime in enumerate(lifetimes)}
    layers = [
        LayerDeclaration(kind="l", parts=(rows("x", lifetime, 8 * sizes[lifetime]),))
        for lifetime in shuffled
    ]
    other = ModelDeclaration(name="m", max_context_tokens=9, layers=tuple(layers))
    assert [" ".join(pair) for pair in chain(other)] == expected


def test_every_place_has_its_reason():
    plan = StoragePlan.from_units(model(CONTEXT, window(8), REQUEST), arena_bytes=1 << 16)
    low, middle, high = (pool.reason for pool in plan.sub_pools)
    assert "per request" in low
    assert "bounded" in middle
    assert "every step" in high


def test_one_layer_with_two_lifetimes_has_lanes_in_two_sub_pools():
    plan = StoragePlan.from_units(known_declaration("falcon-h1-7b"), arena_bytes=1 << 28)
    band, lane = plan.lane("layers.3.k")
    assert (plan.sub_pools[band].name, lane.offset_bytes) == ("full", 3 * 1024)
    band, lane = plan.lane("layers.3.temporal")
    assert (plan.sub_pools[band].name, lane.offset_bytes) == ("state", 3 * 1_594_368 + 21_504)


def test_two_window_lengths_are_two_sub_pools_and_equal_lengths_one():
    parts = (rows("a", window(8)), rows("b", window(8)), rows("c", window(16)))
    layers = (LayerDeclaration(kind="l", parts=parts),)
    declared = ModelDeclaration(name="m", max_context_tokens=9, layers=layers)
    plan = StoragePlan.from_units(declared, arena_bytes=1 << 12)
    assert {p.name: len(p.entry.lanes) for p in plan.sub_pools} == {"window_8": 2, "window_16": 1}


def test_latent_attention_beside_sliding_windows():
    declared = declare(
        "mla-swa",
        8192,
        [("mla", mla(576)), ("window", gqa(8, 64, lifetime=window(512)))] * 2,
    )
    plan = StoragePlan.build(declared, PlanSettings(budget_bytes=GIB))
    assert [(p.name, p.entry.entry_bytes) for p in plan.sub_pools] == [
        ("window_512", 2 * 2048),
        ("full", 2 * 1152),
    ]


def test_replay_rings_lie_in_the_state_entry_and_replace_speculative_copies():
    state = (rows("conv", REQUEST, 64),)
    with_rings = state + replay_rings(4, heads=2, head_dim=8, d_state=16)
    settings = PlanSettings(budget_bytes=GIB, draft_tokens=3, max_running_requests=10)

    def scratch(parts: tuple[Part, ...]) -> tuple[int, int]:
        plan = StoragePlan.build(declare("m", 4096, [("s", parts), ("f", gqa(1, 8))]), settings)
        sizes = {item.name: item.size_bytes for item in plan.outside}
        return plan.sub_pools[0].entry.entry_bytes, sizes["speculative_scratch"]

    assert scratch(state) == (128, 10 * 3 * 128)
    # Ring x has 4 rows of 2 x 8 values of 2 bytes, dt 4 of 2 of 4, B 4 of 2 x 16 of 2.
    assert scratch(with_rings) == (128 + 128 + 32 + 256, 0)


def test_draft_lanes_join_the_targets_entry():
    target, draft = known_declaration("deepseek-v3.2"), known_declaration("deepseek-v3.2-mtp")
    alone = StoragePlan.from_units(target, page_size=64, arena_bytes=GIB)
    fused = StoragePlan.from_units(target, page_size=64, arena_bytes=GIB, draft=draft)
    entry = fused.sub_pools[0].entry
    assert entry.entry_bytes == alone.sub_pools[0].entry.entry_bytes + 1152 + 144
    assert entry.lanes[:-2] == alone.sub_pools[0].entry.lanes
    assert [(lane.name, lane.draft, lane.dtype) for lane in entry.lanes[-2:]] == [
        ("draft.layers.0.mla_kv", True, Dtype.BF16),
        ("draft.layers.0.indexer_key", True, Dtype.UINT8),
    ]


def test_a_draft_whose_lifetime_no_sub_pool_has_is_refused_with_the_reason():
    with pytest.raises(UsageError) as refused:
        StoragePlan.from_units(
            known_declaration("gpt-oss-20b"), arena_bytes=GIB, draft=model(window(64))
        )
    for word in ("draft", "window(64)", "window(128), context", "as long"):
        assert word in refused.value.message


def test_thirty_two_kinds_are_served_and_thirty_three_refused():
    lengths = [window(length) for length in range(1, 31)]
    plan = StoragePlan.from_units(model(CONTEXT, REQUEST, *lengths), arena_bytes=1 << 20)
    assert len(plan.geometry.bands) == 32
    assert sum(b.placement is Placement.FLOATING for b in plan.geometry.bands) == 30
    with pytest.raises(UsageError, match="at most 32 sub-pools"):
        StoragePlan.from_units(model(CONTEXT, REQUEST, *lengths, chunk(5)), arena_bytes=1 << 20)


@pytest.mark.parametrize("known", KNOWN_MODELS, ids=lambda known: known.name)
@pytest.mark.parametrize("page_size", [1, 64, 2096])
def test_the_budget_of_every_model_adds_up(known, page_size):
    settings = PlanSettings(budget_bytes=100 * GIB)
    plan = StoragePlan.build(known.declaration(), settings, page_size=page_size)
    assert plan.arena_bytes + plan.outside_bytes + plan.unused_bytes == 100 * GIB
    # 16 bytes more would move the high end's sink by at most one unit, or need one more id.
    assert 0 <= plan.unused_bytes <= plan.sub_pools[-1].unit_bytes + 512
    sizes = {item.name: item.size_bytes for item in plan.outside}
    assert sizes["sinks"] == sum(pool.unit_bytes for pool in plan.sub_pools)
    assert sizes["guards"] >= GUARD_BYTES * (len(plan.sub_pools) + 2)
    total = sizes["sinks"] + sizes["guards"] + sizes["grid_alignment"]
    assert total == plan.geometry.buffer_bytes - plan.arena_bytes
    for band, pool in zip(plan.geometry.bands, plan.sub_pools, strict=True):
        grid = band.grid
        assert grid.capacity_units * pool.unit_bytes <= plan.arena_bytes
        assert (grid.capacity_units + 2) * pool.unit_bytes > plan.arena_bytes
        assert grid.capacity_units < 1 << 26
        per_unit = pool.page_size if pool.lifetime.per_token else 1
        assert pool.unit_bytes == per_unit * pool.entry.entry_bytes


def test_every_lane_of_every_entry_lies_inside_the_buffer_and_its_own_unit():
    part_names = ("x", "y", "z")
    layers = tuple(
        LayerDeclaration(kind="l", parts=tuple(rows(name, life, 5 + i) for name in part_names))
        for i, life in enumerate([CONTEXT, window(5), REQUEST])
    )
    plan = StoragePlan.from_units(
        ModelDeclaration(name="m", max_context_tokens=99, layers=layers),
        page_size=3,
        counts={"full": 4, "window_5": 2, "state": 3},
        float_anchor_bytes=(48,),
    )
    prefix = plan.geometry.prefix_bytes
    for band, pool in enumerate(plan.sub_pools):
        grid = plan.geometry.bands[band].grid
        for unit, k in itertools.product([0, grid.first_unit, grid.end_unit - 1], range(3)):
            if k >= pool.page_size:
                continue
            for lane in pool.entry.lanes:
                start = plan.lane_byte(band, lane, unit * pool.page_size + k) - prefix
                low = grid.start(unit) + k * pool.entry.entry_bytes
                assert start == low + 16 * part_names.index(lane.part)
                assert grid.start(unit) <= start
                assert start + lane.size_bytes <= grid.end(unit)
                assert -prefix <= start
                assert start + lane.size_bytes <= plan.arena_bytes
    assert plan.geometry.sink_range(0)[1] < 0


def test_small_arenas_exactly_fitting_and_one_unit_short():
    declared = model(CONTEXT, REQUEST)
    fitting = StoragePlan.from_units(declared, page_size=2, counts=[2, 3])
    assert [p.name for p in fitting.sub_pools] == ["state", "full"]
    assert fitting.arena_bytes == 2 * 32 + 3 * 2 * 16
    assert fitting.fits((2, 3))
    assert not fitting.fits((3, 3))
    short = StoragePlan.from_units(declared, page_size=2, arena_bytes=fitting.arena_bytes - 32)
    assert not short.fits((2, 3))
    assert short.fits((1, 3))
    assert short.fits((2, 2))


def test_a_tiny_arena_needs_to_be_asked_for():
    with pytest.raises(UsageError, match=r"arena_bytes: 32 .* at least 48"):
        StoragePlan.from_units(model(CONTEXT, REQUEST), arena_bytes=32)
    tiny = StoragePlan.from_units(model(CONTEXT, REQUEST), arena_bytes=32, allow_tiny=True)
    assert [band.grid.capacity_units for band in tiny.geometry.bands] == [1, 2]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "either counts or arena_bytes"),
        ({"counts": [1], "arena_bytes": 16}, "either counts or arena_bytes"),
        ({"counts": [1]}, "one count per sub-pool"),
        ({"counts": {"swa": 1}}, "full"),
        ({"counts": {"full": -1}}, r"counts\[full\]"),
        ({"arena_bytes": 40}, "multiple of 16"),
        ({"arena_bytes": -16}, "from 0"),
        ({"arena_bytes": 1 << 63}, "arena_bytes"),
        ({"arena_bytes": 160, "float_anchor_bytes": [16]}, "0 values"),
        ({"arena_bytes": 160, "page_size": 0}, "page_size: 0"),
        ({"arena_bytes": 160, "page_size": (1 << 40) + 1}, "page_size"),
    ],
)
def test_from_units_names_the_argument_at_fault(options, word):
    with pytest.raises(UsageError, match=word):
        StoragePlan.from_units(model(CONTEXT, REQUEST), **options)


def test_ids_of_26_bits_bound_the_capacity_and_the_refusal_names_a_page_size_that_works():
    declared = model(CONTEXT)
    with pytest.raises(UsageError, match="page_size") as refused:
        StoragePlan.build(declared, PlanSettings(budget_bytes=8 * GIB), page_size=1)
    enough = int(refused.value.fix.split("at least ")[1].split(":")[0])
    plan = StoragePlan.build(declared, PlanSettings(budget_bytes=8 * GIB), page_size=enough)
    assert plan.geometry.bands[0].grid.capacity_units < 1 << 26
    limit = ((1 << 26) - 1) * 16
    assert StoragePlan.from_units(declared, arena_bytes=limit)
    with pytest.raises(UsageError, match="at least 2"):
        StoragePlan.from_units(declared, arena_bytes=limit + 16)
    with pytest.raises(UsageError, match="slots"):
        StoragePlan.from_units(model(REQUEST), arena_bytes=limit + 16)


def test_units_beyond_64_bits_are_refused():
    huge = Part(name="x", shape=(1 << 39,), dtype=Dtype.BF16, lifetime=CONTEXT)
    layers = (LayerDeclaration(kind="l", parts=(huge,)),) * 64
    declared = ModelDeclaration(name="m", max_context_tokens=9, layers=layers)
    with pytest.raises(UsageError, match="64 bits"):
        StoragePlan.from_units(declared, page_size=1 << 20, arena_bytes=160)


def test_a_budget_below_one_worst_case_request_is_refused_with_every_item():
    declared = known_declaration("qwen3.5-27b")
    settings = PlanSettings(budget_bytes=8 * GIB, max_request_tokens=262_144)
    with pytest.raises(UsageError) as refused:
        StoragePlan.build(declared, settings)
    message = refused.value.message
    for item in (
        "state 1 slot",
        "153,944,064",
        "full 4,096 pages x 4,194,304 = 17,179,869,184",
        "sinks",
        "guards",
        "id_tables",
        "request_rows",
        "captured_workspace",
        "262,144 tokens",
    ):
        assert item in message, item
    assert "\n" not in message
    enough = int(message.split("raise it to ")[1].split(" bytes")[0].replace(",", ""))
    StoragePlan.build(declared, PlanSettings(budget_bytes=enough, max_request_tokens=262_144))


def test_the_advised_budget_is_enough_and_not_wasteful():
    rng = random.Random(7)
    kinds = [CONTEXT, REQUEST, window(64), window(300), chunk(128)]
    refusals = 0
    for _ in range(150):
        picked = rng.sample(kinds, rng.randint(1, 5))
        declared = model(*picked, size=8 * rng.randint(1, 40), context=5000)
        options = {
            "max_request_tokens": rng.choice([None, 100, 3000]),
            "max_running_requests": rng.choice([1, 16]),
            "mem_fraction_static_ppm": rng.choice([1_000_000, 876_543]),
            "draft_tokens": rng.choice([0, 2]),
        }
        page = rng.choice([1, 7, 16])
        small = PlanSettings(budget_bytes=rng.randint(60_000, 400_000), **options)
        try:
            StoragePlan.build(declared, small, page_size=page)
        except UsageError as error:
            if "one request of" not in error.fix:
                continue
            refusals += 1
            enough = int(error.fix.split("raise it to ")[1].split(" bytes")[0].replace(",", ""))
            assert enough > small.budget_bytes
            plan = StoragePlan.build(
                declared, PlanSettings(budget_bytes=enough, **options), page_size=page
            )
            tokens = options["max_request_tokens"] or 1
            assert plan.fits(plan.peak_demand(tokens))
    assert refusals > 20


def test_nothing_left_for_the_arena_is_refused_with_what_takes_the_bytes():
    with pytest.raises(UsageError, match=r"sinks .*request_rows"):
        StoragePlan.build(known_declaration("kimi-k3"), PlanSettings(budget_bytes=1 << 20))


def test_sizing_starts_from_the_static_fraction_less_the_weights():
    settings = PlanSettings(
        budget_bytes=10 * GIB, mem_fraction_static_ppm=900_000, weights_bytes=3 * GIB
    )
    assert settings.static_bytes == 9 * GIB - 3 * GIB
    plan = StoragePlan.build(known_declaration("gpt-oss-20b"), settings)
    assert plan.arena_bytes + plan.outside_bytes + plan.unused_bytes == 6 * GIB
    with pytest.raises(UsageError, match="weights take"):
        PlanSettings(budget_bytes=GIB, weights_bytes=GIB)


def test_ratios_move_hints_and_nothing_else():
    declared = known_declaration("inkling")
    plans = [
        StoragePlan.build(
            declared,
            PlanSettings(
                budget_bytes=100 * GIB,
                swa_full_tokens_ratio_ppm=swa,
                mamba_full_memory_ratio_ppm=mamba,
            ),
        )
        for swa, mamba in ((1, 1), (800_000, 900_000), (5_000_000, 9_000_000))
    ]
    assert len({plan.arena_bytes for plan in plans}) == 1
    assert len({plan.geometry for plan in plans}) == 1
    hints = [plan.placement_hint_bytes for plan in plans]
    assert [hint[0] for hint in hints] == [0, 0, 0]
    assert [hint[2] for hint in hints] == [plans[0].arena_bytes] * 3
    assert hints[0][1] < hints[1][1] < hints[2][1]
    # 0.8 window tokens and 0.9 full-bytes of state per full token, in bytes per full token.
    state, swa, full = 0.9 * 45_056, 0.8 * 450_560, 45_056
    share = state / (state + swa + full)
    assert abs(hints[1][1] - share * plans[1].arena_bytes) < 1_000


def test_max_total_tokens_caps_the_arena_and_never_enlarges_it():
    declared = known_declaration("gpt-oss-20b")
    free = StoragePlan.build(declared, PlanSettings(budget_bytes=10 * GIB))
    capped = StoragePlan.build(
        declared, PlanSettings(budget_bytes=10 * GIB, max_total_tokens=64_000)
    )
    # 1,000 full pages and 0.8 times as many window pages of 64 x 24,576 bytes.
    assert capped.arena_bytes == 1_800 * 64 * 24_576
    assert capped.unused_bytes > 0
    loose = StoragePlan.build(declared, PlanSettings(budget_bytes=10 * GIB, max_total_tokens=10**9))
    assert loose.geometry == free.geometry


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("budget_bytes", 0),
        ("budget_bytes", -5),
        ("budget_bytes", 1 << 63),
        ("budget_bytes", 1.5),
        ("mem_fraction_static_ppm", 0),
        ("mem_fraction_static_ppm", 1_000_001),
        ("max_running_requests", 0),
        ("max_total_tokens", 0),
        ("max_request_tokens", -1),
        ("draft_tokens", True),
        ("swa_full_tokens_ratio_ppm", 0),
    ],
)
def test_settings_out_of_range_are_refused_by_name(field, value):
    with pytest.raises(UsageError, match=field):
        PlanSettings(**{"budget_bytes": GIB, field: value})


def plans() -> list[StoragePlan]:
    settings = PlanSettings(budget_bytes=100 * GIB, max_total_tokens=10**6)
    draft = known_declaration("qwen3.5-4b-mtp")
    return [
        StoragePlan.build(known_declaration("inkling"), settings, float_anchor_bytes=[4096]),
        StoragePlan.build(known_declaration("qwen3.5-4b"), settings, page_size=1, draft=draft),
        StoragePlan.build(known_declaration("deepseek-v3.2"), settings),
        StoragePlan.from_units(
            model(CONTEXT, window(8), REQUEST), counts=[1, 2, 3], float_anchor_bytes=[16]
        ),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_plan_reads_back_from_its_json(number):
    plan = plans()[number]
    text = plan.to_json()
    assert json.loads(text)["version"] == 1
    again = StoragePlan.from_json(text)
    assert again == plan
    assert again.to_json() == text
    assert plans()[number].to_json() == text, "equal inputs give equal text"


def test_a_plan_edited_by_hand_is_refused():
    plain = json.loads(plans()[0].to_json())
    plain["derived"]["sub_pools"][0]["lanes"][3]["offset_bytes"] += 16
    with pytest.raises(UsageError, match=r"plan: derived.*do not follow"):
        StoragePlan.from_json(json.dumps(plain))
    plain = json.loads(plans()[0].to_json())
    plain["settings"]["budget_bytes"] = "lots"
    with pytest.raises(UsageError, match=r"settings\.budget_bytes"):
        StoragePlan.from_json(json.dumps(plain))
    plain = json.loads(plans()[0].to_json())
    plain["version"] = 2
    with pytest.raises(UsageError, match="version"):
        StoragePlan.from_json(json.dumps(plain))


def test_slack_never_exceeds_its_bound():
    rng = random.Random(3)
    kinds = [CONTEXT, REQUEST, window(4), window(9), chunk(5)]
    seen = 0
    for _ in range(400):
        declared = model(*rng.sample(kinds, rng.randint(1, 5)), size=8 * rng.randint(1, 3))
        floats = max(0, len(declared.layers) - 2)
        plan = StoragePlan.from_units(
            declared,
            page_size=rng.randint(1, 4),
            arena_bytes=16 * rng.randint(20, 400),
            float_anchor_bytes=[16 * rng.randint(0, 50) for _ in range(floats)],
            allow_tiny=True,
        )
        counts = [rng.randint(0, 3) for _ in plan.sub_pools]
        packing = pack(plan.geometry, counts)
        if packing.feasible:
            assert packing.slack_bytes <= plan.slack_bound_bytes
            seen += 1
    assert seen > 100


def test_planning_imports_no_torch():
    code = (
        "import sys, onearena.core.models, onearena.core.plan, onearena.core.requests,"
        " onearena.stress.plan_cli, onearena.stress.plan_view;"
        " sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'numba')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
