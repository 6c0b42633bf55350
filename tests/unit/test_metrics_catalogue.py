"""The catalogue itself: naming rules, bounds, and a bound on series that a full scrape keeps."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from metrics_case import band, samples, shown, small_snapshot
from prometheus_client.registry import CollectorRegistry

from onearena.core.snapshot import GapSnapshot
from onearena.metrics.catalogue import (
    BY_NAME,
    CATALOGUE,
    PER_ARENA,
    SERIES_MAX,
    SERIES_PER_ARENA_MAX,
)
from onearena.metrics.counters import CALLERS
from onearena.metrics.exposition import render
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.metric import (
    ANSWERS,
    ARENAS_MAX,
    BANDS_MAX,
    CALLERS_MAX,
    CHECKS,
    KINDS,
    LONG_SECONDS,
    OUTCOMES,
    PLAN_RUNGS,
    REASONS,
    RUNGS,
    SECONDS,
)
from onearena.metrics.recorder import Timings
from onearena.metrics.rows_harness import CODES, ENDPOINTS
from onearena.metrics.stats import ExporterStats

BASE_UNITS = ("bytes", "seconds")


def test_names_follow_prometheus_rules():
    assert len(BY_NAME) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert re.fullmatch(r"onearena_[a-z]+(_[a-z]+)*", metric.name), metric.name
        assert not metric.name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        if metric.unit in BASE_UNITS:
            assert metric.name.endswith(f"_{metric.unit}"), metric.name
        for word in ("ratio", "percent", "milli", "_ms", "_kb", "_mib"):
            assert word not in metric.name, metric.name
        assert metric.help.endswith("."), metric.name
        assert "\n" not in metric.help
        assert metric.meaning, metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))


def test_every_label_is_bounded_and_none_names_a_single_thing():
    for metric in CATALOGUE:
        for label in metric.labels:
            assert 0 < label.bound <= 32, (metric.name, label.name)
            assert label.name not in ("unit", "page", "id", "request", "seed", "address", "peer")


def test_sums_name_metrics_that_exist():
    for metric in CATALOGUE:
        for name in re.findall(r"onearena_\w+", f"{metric.sums} {metric.meaning} {metric.help}"):
            assert any(name in (row.name, row.exposed) for row in CATALOGUE) or name.startswith(
                "onearena_harness_"
            ), (metric.name, name)


def _full_arena(at):
    """An arena with as many bands, uses, counters and histograms as the catalogue allows."""
    names = [f"window_{8 + index}" for index in range(BANDS_MAX)]
    bands = tuple(
        band(name, "floating", 16, 100 * index, [2, 1, 3, 4]) for index, name in enumerate(names)
    )
    counters = {f"waits/{kind}": 1 for kind in KINDS} | {f"uses/{kind}": 1 for kind in KINDS}
    callers = [*CALLERS, *(f"more{index}" for index in range(40))]
    for caller in callers:
        for rung in RUNGS:
            counters |= {f"demands/{caller}/{rung}/{answer}": 1 for answer in ANSWERS}
    for index in range(BANDS_MAX):
        counters[f"bound/{index}"] = counters[f"allocated_units/{index}"] = 1
        counters |= {f"moves/{index}/{reason}": 1 for reason in REASONS}
    gaps = tuple(GapSnapshot(100 * i + 64, 100 * i + 100, 36, 0) for i in range(BANDS_MAX))
    snapshot = small_snapshot(bands=bands, counters=counters, gaps=gaps, arena_bytes=800)
    one = ((1,) * (len(SECONDS) + 1), 1.0)
    histograms = {("onearena_wait_seconds", kind): one for kind in KINDS}
    histograms |= {("onearena_plan_seconds", rung): one for rung in PLAN_RUNGS}
    histograms |= {("onearena_copy_seconds", name): one for name in names}
    histograms |= {("onearena_unit_pending_seconds", name): one for name in names}
    timings = Timings(histograms, dict.fromkeys(KINDS, 1.0), 1, dict.fromkeys(names, 1), 1, 1)
    return str(at), snapshot, timings, callers


def _full_registry():
    registry = CollectorRegistry()
    for at in range(ARENAS_MAX):
        name, snapshot, timings, callers = _full_arena(at)
        source = shown(registry, snapshot, name=name, fit=((1, 2, 3),) * BANDS_MAX, callers=callers)
        source.receive(replace(source.latest, timings=timings, device="modeled"))
    from onearena.metrics.collector import collector_of

    collector = collector_of(registry)
    collector.harness = HarnessSource()
    strategies = [f"s{index}" for index in range(16)]
    seconds = {name: ((1,) * (len(LONG_SECONDS) + 1), 1.0) for name in strategies}
    collector.harness.publish(
        Progress(
            schedules={(s, outcome): 1 for s in strategies for outcome in OUTCOMES},
            steps=dict.fromkeys(strategies, 1),
            seconds=seconds,
            failures_by_oracle={f"oracle{index}": 1 for index in range(32)},
        )
    )
    collector.exporter = ExporterStats()
    collector.exporter.requests.update((e, code) for e in ENDPOINTS for code in CODES)
    return registry


@pytest.fixture(scope="module")
def full_scrape():
    return samples(render(_full_registry()).decode())


def test_the_fullest_scrape_has_exactly_the_stated_number_of_series(full_scrape):
    assert len(full_scrape) == SERIES_MAX
    of_one = [key for key in full_scrape if ("arena", "3") in key[1]]
    assert len(of_one) == SERIES_PER_ARENA_MAX
    assert {metric.name for metric in CATALOGUE if metric.name in PER_ARENA}


def test_the_fullest_scrape_has_every_metric_and_no_other(full_scrape):
    suffixes = ("_bucket", "_count", "_sum")
    expected = set()
    for metric in CATALOGUE:
        if metric.kind == "histogram":
            expected |= {metric.name + suffix for suffix in suffixes}
        else:
            expected.add(metric.exposed)
    assert {name for name, _ in full_scrape} == expected


def test_callers_beyond_the_bound_share_one_label_value(full_scrape):
    callers = {
        dict(labels)["caller"] for name, labels in full_scrape if name == "onearena_demands_total"
    }
    assert len(callers) == CALLERS_MAX
    other = dict.fromkeys(("arena", "caller", "rung", "answer"))
    other |= {"arena": "0", "caller": "other", "rung": "none", "answer": "fits"}
    # `other` itself, and the 40 + len(CALLERS) - CALLERS_MAX that found no place.
    beyond = 40 + len(CALLERS) - CALLERS_MAX
    assert full_scrape["onearena_demands_total", frozenset(other.items())] == 1 + beyond


def test_checks_are_those_of_the_catalogue():
    assert {"band_units", "gap_bytes", "arena_bytes", "negative"} == set(CHECKS)
