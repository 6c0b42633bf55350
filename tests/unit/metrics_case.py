"""Hand-made snapshots, and scrapes as a dictionary, for the tests of the metrics."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from onearena.core.snapshot import (
    BandSnapshot,
    FenceSnapshot,
    GapSnapshot,
    Snapshot,
    UseSnapshot,
)
from onearena.metrics.source import SnapshotSource

HOLE, LIVE, PENDING, VACATED = 1, 2, 3, 4


def band(name, placement, unit_bytes, start, states, *, capacity_units=64):
    """A band whose units, from address `start` on, have these states."""
    count = {state: states.count(state) for state in (HOLE, LIVE, PENDING, VACATED)}
    return BandSnapshot(
        name=name,
        placement=placement,
        unit_bytes=unit_bytes,
        origin_bytes=start,
        first_unit=0,
        capacity_units=capacity_units,
        low_unit=0,
        high_unit=len(states),
        live_units=count[LIVE],
        pending_units=count[PENDING],
        vacated_units=count[VACATED],
        hole_units=count[HOLE],
        states=bytes(states),
        ids=tuple(100 + at if state == LIVE else 0 for at, state in enumerate(states)),
    )


def small_snapshot(**changes):
    """1,600 bytes: state [0, 64), gap to 160, window [160, 352), gap to 1440, full [1440, 1600)."""
    bands = (
        band("state", "low_end", 32, 0, [LIVE, PENDING]),
        band("window_8", "floating", 64, 160, [LIVE, HOLE, VACATED]),
        band("full", "high_end", 16, 1440, [LIVE] * 9 + [HOLE]),
    )
    whole = Snapshot(
        epoch=7,
        arena_bytes=1600,
        bands=bands,
        gaps=(GapSnapshot(64, 160, 80, 16), GapSnapshot(352, 1440, 1088, 0)),
        fences=(FenceSnapshot(64, 80, ((0, 1, 4, False),)),),
        uses=(UseSnapshot(3, 0, 1, 4, False), UseSnapshot(4, 7, -1, 0, False)),
        slack_bytes=48,
        counters={
            "demands/decode/none/fits": 5,
            "demands/who-is-that/none/blocked": 2,
            "demands/a/b/compact/fits": 1,
            "demands/decode/none/infeasible": 3,
            "bound/2": 3,
            "moves/1/compact": 4,
            "moved_bytes/1/compact": 256,
            "waits/forward": 6,
            "uses/forward": 11,
            "allocated_units/2": 20,
            "freed_units/2": 11,
            "settles": 8,
            "freed": 11,
        },
    )
    return replace(whole, **changes)


def shown(registry, snapshot, *, name="0", fit=((4, 5, 6), (1, 1, 2), (60, 70, 70)), **settings):
    """A source of this registry that shows the snapshot."""
    from onearena.metrics.collector import collector_of

    source = SnapshotSource(name, wall=lambda: 1000.0, clock=lambda: 10.0, **settings)
    collector_of(registry).add(source)
    source.show(snapshot, fit=fit)
    return source


def samples(text):
    """A scrape as {(name, frozenset of labels): value}; fails on a sample that stands twice."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def value(found, name, **labels):
    """One sample of `samples`."""
    return found[name, frozenset(labels.items())]
