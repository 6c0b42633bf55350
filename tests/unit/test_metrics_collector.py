"""What is exported equals the snapshot; sums that do not hold are counted, not hidden."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_case import samples, shown, small_snapshot, value
from prometheus_client import Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.registry import CollectorRegistry
from prometheus_client.utils import floatToGoString

from onearena.core.errors import UsageError
from onearena.core.snapshot import GapSnapshot
from onearena.metrics.catalogue import BY_NAME
from onearena.metrics.collector import broken_sums, collector_of
from onearena.metrics.exposition import render
from onearena.metrics.families import RowsFamily, number
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.metric import LONG_SECONDS
from onearena.metrics.source import SnapshotSource


def scrape(registry):
    return samples(render(registry).decode())


@pytest.fixture
def registry():
    return CollectorRegistry()


def test_bands_gaps_and_units_are_those_of_the_snapshot(registry):
    shown(registry, small_snapshot())
    found = scrape(registry)
    expected = {
        ("state", "live"): 32,
        ("state", "pending"): 32,
        ("state", "vacated"): 0,
        ("state", "hole"): 0,
        ("window_8", "live"): 64,
        ("window_8", "pending"): 0,
        ("window_8", "vacated"): 64,
        ("window_8", "hole"): 64,
        ("full", "live"): 144,
        ("full", "pending"): 0,
        ("full", "vacated"): 0,
        ("full", "hole"): 16,
    }
    for (name, state), size in expected.items():
        assert value(found, "onearena_band_bytes", arena="0", band=name, state=state) == size
    gaps = {
        dict(labels)["gap"]: v
        for (metric, labels), v in found.items()
        if metric == "onearena_gap_bytes" and ("state", "free") in labels
    }
    # Named after the band above; no gap lies below `state` or above `full`.
    assert gaps == {"state": 0, "window_8": 80, "full": 1088, "end": 0}
    assert value(found, "onearena_gap_bytes", arena="0", gap="window_8", state="fenced") == 16
    assert value(found, "onearena_band_start_bytes", arena="0", band="full") == 1440
    assert value(found, "onearena_band_end_bytes", arena="0", band="full") == 1600
    assert value(found, "onearena_slack_bytes", arena="0") == 48
    assert value(found, "onearena_fit_units", arena="0", band="full", rung="compact") == 70
    assert value(found, "onearena_snapshot_timestamp_seconds", arena="0") == 1000


def test_bytes_of_one_scrape_add_up_to_the_capacity(registry):
    shown(registry, small_snapshot())
    found = scrape(registry)
    parts = [
        v for (name, _), v in found.items() if name in ("onearena_band_bytes", "onearena_gap_bytes")
    ]
    assert sum(parts) == value(found, "onearena_capacity_bytes", arena="0") == 1600


def test_an_empty_band_and_the_gap_at_the_end(registry):
    whole = small_snapshot()
    empty = replace(whole.bands[2], high_unit=0, live_units=0, hole_units=0, states=b"")
    gaps = (whole.gaps[0], GapSnapshot(352, 1600, 1248, 0))
    shown(registry, replace(whole, bands=(*whole.bands[:2], empty), gaps=gaps))
    found = scrape(registry)
    assert value(found, "onearena_gap_bytes", arena="0", gap="end", state="free") == 1248
    assert value(found, "onearena_gap_bytes", arena="0", gap="full", state="free") == 0
    assert value(found, "onearena_band_end_bytes", arena="0", band="full") == 0


def test_counters_get_their_names(registry):
    shown(registry, small_snapshot())
    found = scrape(registry)

    def demands(**labels):
        return value(found, "onearena_demands_total", arena="0", **labels)

    assert demands(caller="decode", rung="none", answer="fits") == 5
    assert demands(caller="decode", rung="none", answer="infeasible") == 3
    # Callers that nobody announced share a label value, whatever is in their names.
    assert demands(caller="other", rung="none", answer="blocked") == 2
    assert demands(caller="other", rung="compact", answer="fits") == 1
    assert value(found, "onearena_bound_refusals_total", arena="0", band="full") == 3
    assert value(found, "onearena_bound_refusals_total", arena="0", band="state") == 0
    moved = {"arena": "0", "band": "window_8", "reason": "compact"}
    assert value(found, "onearena_moves_total", **moved) == 4
    assert value(found, "onearena_moved_bytes_total", **moved) == 256
    assert value(found, "onearena_waits_total", arena="0", writer="forward") == 6
    assert value(found, "onearena_waits_total", arena="0", writer="load") == 0
    assert value(found, "onearena_uses_total", arena="0", kind="forward") == 11
    assert value(found, "onearena_unfinished_uses", arena="0", kind="receive") == 1
    assert value(found, "onearena_unfinished_uses", arena="0", kind="load") == 0
    assert value(found, "onearena_allocated_units_total", arena="0", band="full") == 20
    assert value(found, "onearena_settles_total", arena="0") == 8


def test_announced_callers_have_their_own_label_value(registry):
    shown(registry, small_snapshot(), callers=("who-is-that",))
    labels = {"caller": "who-is-that", "rung": "none", "answer": "blocked"}
    assert value(scrape(registry), "onearena_demands_total", arena="0", **labels) == 2


def test_totals_go_on_when_a_source_watches_another_arena(registry):
    class Other:
        def __init__(self, snapshot):
            self.told = snapshot

        def snapshot(self, *, units=True):
            return self.told

    source = shown(registry, small_snapshot())
    source.finish(Other(small_snapshot()))
    source.publish(Other(small_snapshot(counters={"settles": 2, "waits/forward": 1})))
    found = scrape(registry)
    assert value(found, "onearena_settles_total", arena="0") == 10
    assert value(found, "onearena_waits_total", arena="0", writer="forward") == 7
    assert value(found, "onearena_bound_refusals_total", arena="0", band="full") == 3


BROKEN = {
    "band_units": lambda s: replace(s, bands=(replace(s.bands[0], live_units=2), *s.bands[1:])),
    "band_units, less": lambda s: replace(
        s, bands=(replace(s.bands[0], live_units=0), *s.bands[1:])
    ),
    "gap_bytes": lambda s: replace(s, gaps=(replace(s.gaps[0], free_bytes=79), s.gaps[1])),
    "arena_bytes": lambda s: replace(s, arena_bytes=1616),
    "negative": lambda s: replace(
        s, bands=(replace(s.bands[0], live_units=-1, pending_units=3), *s.bands[1:])
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_sum_that_does_not_hold_is_counted_and_said_once_a_snapshot(registry, case, caplog):
    check = case.partition(",")[0]
    source = shown(registry, small_snapshot())
    labels = {"arena": "0", "check": check}
    assert value(scrape(registry), "onearena_invariant_violations_total", **labels) == 0
    broken = BROKEN[case](small_snapshot())
    assert check in [name for name, _ in broken_sums(broken)]
    with caplog.at_level(logging.ERROR, "onearena.metrics"):
        source.show(broken)
        for _ in range(3):
            found = scrape(registry)
    assert value(found, "onearena_invariant_violations_total", **labels) == 1
    assert len([r for r in caplog.records if check in r.getMessage()]) == 1
    source.show(BROKEN[case](small_snapshot()))
    assert value(scrape(registry), "onearena_invariant_violations_total", **labels) == 2
    source.show(small_snapshot())
    assert value(scrape(registry), "onearena_invariant_violations_total", **labels) == 2


def test_a_snapshot_in_order_has_no_broken_sum():
    assert broken_sums(small_snapshot()) == []


def test_several_arenas_and_ranks_stand_under_one_head(registry):
    shown(registry, small_snapshot(), name="a", labels={"rank": "0"})
    shown(registry, small_snapshot(slack_bytes=1), name="a", labels={"rank": "1"})
    shown(registry, small_snapshot(slack_bytes=2), name="b")
    text = render(registry).decode()
    assert text.count("# TYPE onearena_slack_bytes gauge") == 1
    found = samples(text)
    assert value(found, "onearena_slack_bytes", arena="a", rank="0") == 48
    assert value(found, "onearena_slack_bytes", arena="a", rank="1") == 1
    assert value(found, "onearena_slack_bytes", arena="b", rank="") == 2


def test_names_and_labels_that_are_taken_are_refused(registry):
    shown(registry, small_snapshot(), name="a")
    collector = collector_of(registry)
    with pytest.raises(UsageError, match="name"):
        collector.add(SnapshotSource("a"))
    for label in ("band", "arena", "state", "le"):
        with pytest.raises(UsageError, match="labels"):
            collector.add(SnapshotSource("c", labels={label: "x"}))
    with pytest.raises(UsageError, match="labels"):
        collector.add(SnapshotSource("c", labels={"not a name": "x"}))


def test_a_source_that_published_nothing_yet_is_left_out(registry):
    collector_of(registry).add(SnapshotSource("later"))
    assert {name for name, _ in scrape(registry)} == {"onearena_build_info"}


def test_progress_of_a_campaign(registry):
    harness = collector_of(registry).harness = HarnessSource()
    assert not any("harness" in name for name, _ in scrape(registry))
    harness.publish(
        Progress(
            schedules={("pct", "pass"): 3},
            steps={"pct": 700},
            failures_by_oracle={"order": 1},
            coverage={"planned": 70, "planned_reached": 60, "reached": 90},
            seconds={"pct": ((0, 1, 0, 2, *(0,) * 10), 0.4)},
        )
    )
    found = scrape(registry)
    labels = {"strategy": "pct", "outcome": "pass"}
    assert value(found, "onearena_harness_schedules_total", **labels) == 3
    assert value(found, "onearena_harness_failures_total", oracle="order") == 1
    assert value(found, "onearena_harness_coverage_points", kind="planned_reached") == 60
    bucket = {"strategy": "pct", "le": "0.025"}
    assert value(found, "onearena_harness_schedule_seconds_bucket", **bucket) == 1
    assert value(found, "onearena_harness_schedule_seconds_count", strategy="pct") == 3


# -- the text format -------------------------------------------------------------------------------


def test_the_text_is_byte_for_byte_that_of_the_client_library(registry):
    shown(registry, small_snapshot(), labels={"rank": "3"})
    Gauge("plain", "help with \\ and\nnewline", registry=registry).set(float("nan"))
    Counter("hits", "a counter", ["who"], registry=registry).labels('q"uo\\te\n').inc(12_345_678)
    Histogram("lag_seconds", "a histogram", registry=registry).observe(0.3)
    Info("thing", "an info", registry=registry).info({"version": "1"})
    assert render(registry) == generate_latest(registry)


VALUES = st.sampled_from([0, 0.0, -0.0, 1, 1.0, 2.5, float("nan"), float("inf"), 1e6])


@given(st.lists(VALUES, min_size=2, max_size=6))
def test_rows_kept_from_the_last_scrape_are_the_ones_of_this(values):
    registry = CollectorRegistry()

    class Rows:
        def collect(self):
            for name, rows in self.rows.items():
                family = RowsFamily(BY_NAME[name], BY_NAME[name].label_names)
                family.rows = rows
                yield family

    collector = Rows()
    collector.rows = {}
    registry.register(collector)
    for drawn in values:
        counts = (int(drawn == 1), *(0,) * len(LONG_SECONDS))
        total = drawn + 0.0  # a sum starts at zero and is never the negative one
        collector.rows = {
            "onearena_slack_bytes": [(("0",), drawn)],
            "onearena_harness_schedule_seconds": [(("pct",), (counts, total))],
        }
        assert render(registry) == generate_latest(registry)


@given(st.floats() | st.integers(-(10**18), 10**18))
def test_numbers_are_written_as_the_client_library_does(given_number):
    assert number(given_number) == floatToGoString(given_number)
