"""What History, Campaign, Failure and Plan say: hand-made inputs whose answers are plain to see."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui_case import seeded_snapshot

from onearena.core.errors import UsageError
from onearena.core.requests import RequestClass
from onearena.dashboard import charts
from onearena.dashboard.campaign_model import campaign_point, campaign_view, mutants_table
from onearena.dashboard.checked import SourceError
from onearena.dashboard.failure_model import event_table, parse_failure, timeline_svg
from onearena.dashboard.frame import parse_frame
from onearena.dashboard.history_model import (
    Sample,
    demand_table,
    events_of,
    history_view,
    jump,
    nearest,
    reuse_table,
    sample_of,
    thinned,
)
from onearena.dashboard.plan_model import (
    PlanWish,
    mix_of_arrivals,
    plan_of,
    plan_view,
    split_units,
    verdict,
)
from onearena.metrics.frames import Moment, frame_document, unit_fields
from onearena.metrics.metric import SECONDS


def sample(at, **more):
    base = Sample(
        taken_s=100.0 + at,
        schedule=1,
        step=at,
        epoch=at,
        arena_bytes=1000,
        by_state={"live": 400, "free": 600},
        by_band={"full": 400, "gaps": 600},
        demands={},
        moved_units=0,
        moved_bytes=0,
        relayouts=0,
        waits=0,
        fences=0,
        reuse={},
    )
    return replace(base, **more)


# -- history
def test_a_sample_adds_up_by_state_and_by_band():
    snapshot = seeded_snapshot(9)
    document = frame_document(snapshot, Moment(taken_s=5.0))
    document |= unit_fields(tuple(b.states for b in snapshot.bands), None)
    found = sample_of(parse_frame(json.loads(json.dumps(document)), "test"))
    assert sum(found.by_state.values()) == snapshot.arena_bytes
    assert sum(found.by_band.values()) == snapshot.arena_bytes
    assert found.by_state["fenced"] == 384
    assert found.by_band["state"] == 200 * 64
    assert found.demands == {("none", "fits"): 5, ("none", "blocked"): 2}


def test_demands_are_those_between_the_first_and_the_last():
    fits, blocked = ("none", "fits"), ("compact", "blocked")
    rows = demand_table(
        [
            sample(0, demands={fits: 10}),
            sample(1, demands={fits: 12, blocked: 1}),
            sample(2, demands={fits: 3, blocked: 1}),  # another arena: counters begin anew
        ]
    ).rows
    assert rows == (("none", 5, 0, 0), ("compact", 0, 1, 0), ("relayout", 0, 0, 0))


def test_events_are_found_and_jumped_to():
    samples = [
        sample(0),
        sample(1, moved_units=2),
        sample(2, moved_units=2, demands={("none", "infeasible"): 1}),
        sample(3, moved_units=5, relayouts=3, demands={("none", "infeasible"): 1}, fences=1),
        sample(4, moved_units=0, schedule=2),
    ]
    events = events_of(samples)
    assert sorted(events) == [
        (1, "move"),
        (2, "refusal"),
        (3, "fence"),
        (3, "move"),
        (3, "relayout"),
        (4, "next schedule"),
    ]
    assert jump(events, "move", 1, forward=True) == 3
    assert jump(events, "move", 3, forward=False) == 1
    assert jump(events, "move", 3, forward=True) == 3
    assert jump(events, "refusal", 0, forward=False) == 0


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30), st.integers(-5, 10_005))
def test_the_nearest_moment_is_nearest(offsets, moment):
    samples = [sample(0, taken_s=at / 1000) for at in sorted(offsets)]
    at = nearest(samples, moment)
    least = min(abs(each.moment - moment) for each in samples)
    assert abs(samples[at].moment - moment) == least


def test_many_samples_are_thinned_evenly_and_the_ends_stay():
    samples = [sample(at) for at in range(1000)]
    kept = thinned(samples, 200)
    assert (kept[0], kept[-1], len(kept)) == (samples[0], samples[-1], 200)
    steps = {b.step - a.step for a, b in pairwise(kept)}
    assert steps <= {5, 6}
    page = history_view(samples)
    assert len(page.by_state.rows) == 400
    assert page.seconds[-1] == 999.0


def test_time_to_reuse_gives_bounds_of_quantiles():
    counts = [0] * (len(SECONDS) + 1)
    counts[3], counts[8] = 90, 10
    rows = reuse_table([sample(0, reuse={"full": (tuple(counts), 5.0)})]).rows
    assert rows[0][:3] == ("full", 100, "50.0 ms")
    assert rows[0][3] != rows[0][4]


def test_charts_hold_every_row_and_a_rule_where_one_looks():
    page = history_view([sample(0), sample(4)])
    spec = charts.stacked(page.by_state, "state", at=4.0, dark=False, states=True)
    assert len(spec["layer"][0]["data"]["values"]) == 4
    assert spec["layer"][1]["data"]["values"] == [{"seconds": 4.0}]
    assert len(charts.lines(page.rates)["layer"]) == 1


# -- campaign
def document(**more):
    summary = {
        "version": 1,
        "schedules": 50,
        "schedules_per_second": 12.5,
        "steps_per_second": 2000.0,
        "seconds": 4.0,
        "steps": {"median": 210},
        "share_above_90_percent": 0.25,
        "share_three_forwards": 0.5,
        "rechecked": 1,
        "planned": {"abort.in_flight": 3, "rung.relayout": 0},
        "reach": {"abort.in_flight": 3, "free.live": 9},
        "strategies": {"random": 50},
        "models": {"qwen": 50},
        "failures": [],
        "nondeterministic_seeds": [],
    }
    return {"taken_s": 1.0, "summary": summary | more}


def failed(seed, rule, oracle="order"):
    found = {"rule": rule, "oracle": oracle, "message": "m"}
    violations = [found] if rule else []
    return {"seed": seed, "verdict": "crash", "step": 7, "violations": violations, "crash": "boom"}


def test_a_campaign_is_told_by_what_it_reached_and_what_it_did_not():
    page = campaign_view(document())
    assert page.missing == ("rung.relayout",)
    assert ("Planned reached", "1 of 2") in page.facts
    assert page.planned.rows[0] == ("rung.relayout", 0)
    assert "no proof" in page.verdict


def test_failures_are_counted_by_rule():
    rows = [failed(1, "6"), failed(2, "6"), failed(3, "2"), failed(4, "")]
    page = campaign_view(document(failures=rows))
    assert dict(page.rules.rows) == {"rule 6": 2, "rule 2": 1, "crash": 1}
    assert page.failures.rows[3][1:] == ("", "crash", 7, "boom")
    assert page.verdict == "4 schedules failed"
    assert "another trace" in campaign_view(document(nondeterministic_seeds=[3])).verdict


def test_growth_begins_anew_with_another_campaign():
    old = campaign_point(document(schedules=900, seconds=99.0))
    young = campaign_point(document(schedules=10, seconds=1.0))
    rows = campaign_view(document(), [old, young]).growth.rows
    assert [row[0] for row in rows] == [1.0, 1.0, 4.0, 4.0]


def test_a_summary_of_another_version_is_refused():
    with pytest.raises(SourceError, match="version 1 are understood, and this one is 2"):
        campaign_view(document(version=2))


def test_missed_faults_come_first(root):
    mutant = {"id": "W-a", "title": "t", "rule": "6", "intended": "order", "schedules": 3}
    rows = [mutant | {"caught": True, "by": "order"}, mutant | {"id": "W-b", "caught": False}]
    table = mutants_table({"name": "mutants", "version": 1, "mutants": rows}, "here")
    assert [row[:2] for row in table.rows] == [("missed", "W-b"), ("caught", "W-a")]
    real = json.loads((root / "docs/evidence/mutants.json").read_text())
    assert len(mutants_table(real, "evidence").rows) == len(real["mutants"])
    with pytest.raises(SourceError, match="no evidence of planted faults"):
        mutants_table({"name": "fit"}, "here")


# -- failure
def failure(**more):
    row = {"step": 1, "actor": "host", "kind": "call", "number": 0, "call": "", "order": -1}
    rows = [
        row | {"text": "record <b>x</b>", "mark": ""},
        row | {"actor": "f0", "kind": "enqueue", "text": "op 0", "mark": "A", "order": 0},
        row | {"actor": "f0", "kind": "record", "number": 4, "text": "event 4", "mark": ""},
        row | {"actor": "f1", "kind": "wait", "number": 4, "text": "waits", "mark": "", "step": 2},
        row | {"actor": "f1", "kind": "enqueue", "text": "op 1", "mark": "B", "step": 3},
    ]
    plain = {
        "version": 1,
        "seed": 12,
        "system": "arena",
        "model": "m",
        "verdict": "violation",
        "step": 3,
        "rule": "6",
        "rule_text": "who writes waits",
        "oracle": "order",
        "message": "m",
        "text": "t",
        "minimal": True,
        "edge": "f1 must wait",
        "fix": "wait",
        "bytes": [64, 128],
        "rows": rows,
        "sides": [],
        "labels": ["setup", "admit", "step", "forward"],
        "repro": ["reproduce: onearena stress --seed 12"],
        "left_out": 0,
        "pictures": [],
    }
    return plain | more


def test_a_failure_is_titled_and_stepped_through():
    found = parse_failure(failure(), "here")
    assert found.title == "Rule 6 broken: seed 12 of arena, made small"
    assert found.steps == (1, 2, 3)
    assert found.label(3) == "forward"
    assert found.label(99) == "drain"
    assert found.bytes == (64, 128)
    assert event_table(found).rows[1] == (1, "admit", "#0", "A", "f0", "op 0")


def test_pictures_are_those_of_the_step_or_the_last_before_it():
    snapshot = seeded_snapshot(1, units=30)
    states = tuple(band.states for band in snapshot.bands)
    shots = [
        frame_document(snapshot, Moment(serial=step)) | unit_fields(states, None) | {"step": step}
        for step in (1, 3)
    ]
    found = parse_failure(json.loads(json.dumps(failure(pictures=shots))), "here")
    assert [found.picture(step).step for step in (0, 1, 2, 3)] == [1, 1, 1, 3]
    assert parse_failure(failure(), "here").picture(1) is None


def test_the_missing_edge_is_drawn_and_words_stay_words():
    found = parse_failure(failure(), "here")
    svg = timeline_svg(found, 1)
    assert svg.count('class="missing"') == 1
    assert "<b>" not in svg
    assert "&lt;b&gt;" in svg
    # Events after the step looked at are pale; the record is joined to its wait.
    assert svg.count('opacity=".35"') == 2
    assert svg.count("<path") == 2
    assert 'class="missing"' not in timeline_svg(parse_failure(failure(edge=""), "here"), 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("version", 2), ("seed", -1), ("rows", [{}]), ("bytes", [9]), ("repro", [3]), ("labels", 3)],
)
def test_a_failure_that_cannot_be_is_one_line(field, value):
    with pytest.raises(SourceError, match=field.removesuffix("s")):
        parse_failure(failure(**{field: value}), "here")


# -- plan
def fits_split(plan, limits, mix, requests):
    """Whether that many requests, in rounds of the weights, have their units in each pool."""
    rounds = [request for request in mix for _ in range(request.weight)]
    used = [0] * len(limits)
    for at in range(requests):
        for band, units in enumerate(plan.peak_demand(rounds[at % len(rounds)].tokens)):
            used[band] += units
    return all(have <= most for have, most in zip(used, limits, strict=True))


@pytest.mark.parametrize("model", ["qwen3.5-4b", "gpt-oss-20b"])
def test_the_fixed_split_holds_as_many_as_it_says_and_no_more(model):
    wish = PlanWish(model=model, budget="24GiB")
    plan = plan_of(wish)
    mix = (
        RequestClass(input_tokens=1024, output_tokens=256, weight=3),
        RequestClass(input_tokens=16384, output_tokens=4096, weight=1),
    )
    limits = split_units(plan, window_ppm=800_000, state_ppm=900_000)
    sizes = [limit * pool.unit_bytes for limit, pool in zip(limits, plan.sub_pools, strict=True)]
    assert sum(sizes) <= plan.arena_bytes
    view = plan_view(wish)
    split = int(view.fits.rows[-1][-1])
    assert fits_split(plan, limits, mix, split)
    assert not fits_split(plan, limits, mix, split + 1)
    # One arena holds at least what any split of its bytes holds, up to the floats' grids.
    assert int(view.fits.rows[-1][-2]) >= split - 1


def test_the_ratio_moves_bytes_between_the_pools():
    plan = plan_of(PlanWish(model="gpt-oss-20b", budget="24GiB"))
    names = [pool.lifetime.text for pool in plan.sub_pools]
    window = next(at for at, text in enumerate(names) if "window" in text)
    small = split_units(plan, window_ppm=100_000, state_ppm=900_000)
    large = split_units(plan, window_ppm=1_000_000, state_ppm=900_000)
    assert small[window] < large[window]
    assert sum(small) != sum(large)


def test_the_picture_holds_what_the_mix_holds():
    view = plan_view(PlanWish(model="gpt-oss-20b", budget="24GiB"))
    snapshot = view.frame.snapshot
    assert [band.live_units for band in snapshot.bands] == [row[1] for row in view.pools.rows]
    ends = [(band.start_bytes, band.end_bytes) for band in snapshot.bands if band.has_units]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    used = sum(end - start for start, end in ends) + sum(
        gap.end_bytes - gap.start_bytes for gap in snapshot.gaps
    )
    assert used == snapshot.arena_bytes


def test_a_pasted_config_is_read():
    config = json.dumps(
        {
            "model_type": "qwen3",
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "num_attention_heads": 8,
            "head_dim": 64,
            "hidden_size": 512,
            "max_position_embeddings": 4096,
            "torch_dtype": "bfloat16",
        }
    )
    plan = plan_of(PlanWish(model="", config=config, budget="1GiB"))
    assert len(plan.declaration.layers) == 4


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (PlanWish(model="nobody"), "model"),
        (PlanWish(model="qwen3.5-4b", budget="lots"), "bytes"),
        (PlanWish(model="qwen3.5-4b", budget="1KiB"), "budget"),
        (PlanWish(model="qwen3.5-4b", page_size="0"), "page size"),
        (PlanWish(model="qwen3.5-4b", mix="a+b"), "request mix"),
        (PlanWish(model="qwen3.5-4b", window_ratio="-1"), "window ratio"),
        (PlanWish(model="qwen3.5-4b", config="{"), "config"),
        (PlanWish(model="qwen3.5-4b", config="x" * (1 << 21)), "config"),
    ],
)
def test_a_wish_that_cannot_be_names_its_field(wish, field):
    with pytest.raises(UsageError, match=field):
        plan_view(wish)


def test_the_comparison_is_said_in_one_line():
    assert verdict(30, 20) == (
        "One arena holds 30 requests at once, the fixed split 20 (1.50 times as many)."
    )
    assert "the same: 7" in verdict(7, 7)
    assert verdict(7, 0).endswith("the fixed split 0.")


def test_arrivals_become_groups_of_equal_number():
    lines = [json.dumps({"input_length": n, "output_length": 10}) for n in range(1, 17)]
    mix = mix_of_arrivals("\n".join(lines))
    assert [each.weight for each in mix] == [1] * 8
    assert [each.input_tokens for each in mix] == [2, 4, 6, 8, 10, 12, 14, 16]
    table = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,100,7\n"
    assert mix_of_arrivals(table) == (RequestClass(input_tokens=100, output_tokens=7, weight=1),)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "CSV"),
        ("a,b\n1,2\n", "CSV"),
        ('{"input_length": 1}', "line 1 output_length"),
        ('{"input_length": 1, "output_length": true}', "line 1 output_length"),
        ("{", "line 1"),
        ("ContextTokens,GeneratedTokens\n1,x\n", "line 2 GeneratedTokens"),
    ],
)
def test_arrivals_that_cannot_be_name_their_line(text, word):
    with pytest.raises(UsageError, match=word):
        mix_of_arrivals(text)
