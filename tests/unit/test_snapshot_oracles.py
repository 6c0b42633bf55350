"""Geometry and conservation oracles: a sound snapshot passes, each broken fact is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onearena.core.snapshot import BandSnapshot, FenceSnapshot, GapSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import Violation, feed_all
from onearena.stress.oracles.conservation import ConservationOracle
from onearena.stress.oracles.geometry import GeometryOracle
from onearena.stress.sut import BandFacts, PlanFacts

ARENA_BYTES = 1_024
# Grids: units of 64 from 0; units of 96 from 16 - 96, the first inside at 16; units of 48 to 1,024.
STATE = BandFacts("state", "low_end", 64, 1, -64, 1, 16, "request")
WINDOW = BandFacts("window", "floating", 96, 4, 16 - 192, 2, 10, "window", 8)
FULL = BandFacts("full", "high_end", 48, 4, 16 - 96, 2, 21, "context")
PLAN = PlanFacts(ARENA_BYTES, (STATE, WINDOW, FULL), (0, 0, 0), 0)

# Used: state 1 to 3 at [0, 192), window 4 to 6 at [208, 496), full 20 to 22 at [880, 1024).
LIVE, HOLE, PENDING, VACATED = 2, 1, 3, 4
FENCE = FenceSnapshot(496, 592, ((0, 1, 7, True),))


def band(facts: BandFacts, low_unit: int, states: tuple[int, ...]) -> BandSnapshot:
    return BandSnapshot(
        name=facts.name,
        placement=facts.placement,
        unit_bytes=facts.unit_bytes,
        origin_bytes=facts.origin_bytes,
        first_unit=facts.first_unit,
        capacity_units=facts.capacity_units,
        low_unit=low_unit,
        high_unit=low_unit + len(states),
        live_units=states.count(LIVE),
        pending_units=states.count(PENDING),
        vacated_units=states.count(VACATED),
        hole_units=states.count(HOLE),
        states=bytes(states),
    )


BANDS = (
    band(STATE, 1, (HOLE, LIVE, PENDING)),
    band(WINDOW, 4, (VACATED, HOLE, LIVE)),
    band(FULL, 20, (LIVE, HOLE, HOLE)),
)
GAPS = (GapSnapshot(192, 208, 16, 0), GapSnapshot(496, 880, 288, 96))
SOUND = Snapshot(1, ARENA_BYTES, BANDS, GAPS, (FENCE,), ())


def with_band(index: int, **changes: Any) -> Snapshot:
    bands = list(BANDS)
    bands[index] = replace(bands[index], **changes)
    return replace(SOUND, bands=tuple(bands))


def geometry(snapshot: Snapshot, plan: PlanFacts = PLAN) -> list[Violation]:
    return feed_all(GeometryOracle(plan), [snapshot])


def conservation(snapshot: Snapshot) -> list[Violation]:
    return feed_all(ConservationOracle(), [snapshot])


def test_sound_snapshot_passes() -> None:
    assert [(b.start_bytes, b.end_bytes) for b in BANDS] == [(0, 192), (208, 496), (880, 1_024)]
    assert not geometry(SOUND)
    assert not conservation(SOUND)


def test_snapshot_without_units_passes_and_still_counts() -> None:
    bands = tuple(replace(one, states=b"") for one in BANDS)
    assert not geometry(replace(SOUND, bands=bands))
    assert not conservation(replace(SOUND, bands=bands))
    bad = replace(bands[0], live_units=2)
    assert conservation(replace(SOUND, bands=(bad, *bands[1:])))


def test_empty_arena_and_empty_float_pass() -> None:
    empty = (band(STATE, 1, ()), replace(band(WINDOW, 4, ()), low_unit=0, high_unit=0))
    bands = (*empty, band(FULL, 23, ()))
    snapshot = Snapshot(0, ARENA_BYTES, bands, (GapSnapshot(0, 1_024, 1_024, 0),), (), ())
    assert not geometry(snapshot)
    assert not conservation(snapshot)
    assert not conservation(replace(snapshot, gaps=(*snapshot.gaps, GapSnapshot(0, 0, 0, 0))))


def test_snapshot_calls_are_judged_and_others_are_not() -> None:
    bad = with_band(0, live_units=3)
    assert feed_all(ConservationOracle(), [Call(1, 0, "snapshot", (), bad)])
    assert not feed_all(ConservationOracle(), [Call(1, 0, "free", ((1,),), None), "anything"])


SHIFTED = {"low_unit": 3, "high_unit": 6}  # window at [112, 400): inside state


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (with_band(1, **SHIFTED), "state reaches into window"),
        (with_band(1, low_unit=9, high_unit=12), "window reaches into full"),
        (with_band(0, low_unit=2, high_unit=4), "the low end state starts at unit 2"),
        (with_band(2, low_unit=19, high_unit=22), "the high end full ends before unit 22"),
        (with_band(2, high_unit=24), "full leaves [0, 1024)"),
        (with_band(0, low_unit=0, high_unit=3), "state has units [0, 3) of a grid"),
        (with_band(1, high_unit=3), "window has units [4, 3)"),
        (with_band(1, unit_bytes=112), "unit_bytes of window changed from 96 to 112"),
        (with_band(1, origin_bytes=-160), "origin_bytes of window changed"),
        (with_band(2, capacity_units=20), "capacity_units of full changed"),
        (with_band(0, states=bytes((LIVE, LIVE, HOLE))), "retreat over the hole 3"),
        (with_band(1, states=bytes((HOLE, LIVE, LIVE))), "retreat over the hole 4"),
        (with_band(1, states=bytes((LIVE, LIVE, HOLE))), "retreat over the hole 6"),
        (with_band(2, states=bytes((HOLE, LIVE, LIVE))), "retreat over the hole 20"),
        (replace(SOUND, arena_bytes=1_040), "S changed from 1024 to 1040"),
        (replace(SOUND, bands=BANDS[:2]), "2 bands, planned were 3"),
        (replace(SOUND, fences=(replace(FENCE, start_bytes=480),)), "a fence lies in window"),
        (replace(SOUND, fences=(replace(FENCE, end_bytes=881),)), "a fence lies in full"),
        (replace(SOUND, fences=(FENCE, FENCE)), "a fence lies in another fence"),
        (replace(SOUND, fences=(replace(FENCE, end_bytes=496),)), "no byte range"),
    ],
)
def test_geometry_reports(snapshot: Snapshot, words: str) -> None:
    found = geometry(snapshot)
    assert any(words in violation.message for violation in found), found
    assert all(violation.oracle == "geometry" for violation in found)


def test_frontier_hole_is_reported_with_its_unit() -> None:
    (violation,) = geometry(with_band(1, states=bytes((LIVE, LIVE, HOLE))))
    assert str(violation.unit) == "window[6]"
    fixed_bands = GeometryOracle(PLAN, frontiers_retreat=False)
    assert not feed_all(fixed_bands, [with_band(1, states=bytes((LIVE, LIVE, HOLE)))])


@pytest.mark.parametrize(
    ("index", "changes", "words"),
    [
        (0, {"placement": "floating"}, "band state, number 0, is floating"),
        (2, {"placement": "floating"}, "band full, number 2, is floating"),
        (1, {"placement": "high_end"}, "band window, number 1, is high_end"),
        (1, {"unit_bytes": 100}, "units of window have 100 bytes"),
        (1, {"origin_bytes": -168}, "the grid of window starts at -168"),
        (0, {"origin_bytes": -48, "first_unit": 1, "capacity_units": 15}, "the sink of state"),
        (1, {"capacity_units": 9}, "other whole units fit"),
        (1, {"capacity_units": 11}, "other whole units fit"),
        (1, {"first_unit": 3, "capacity_units": 9}, "other whole units fit"),
        (0, {"origin_bytes": -48, "capacity_units": 15}, "anchored at 16, not at 0"),
        (2, {"origin_bytes": -96, "capacity_units": 21}, "ends at 1008, not at 1024"),
    ],
)
def test_geometry_reports_a_bad_grid(index: int, changes: dict[str, Any], words: str) -> None:
    bands = list(PLAN.bands)
    bands[index] = replace(bands[index], **changes)
    found = geometry(SOUND, replace(PLAN, bands=tuple(bands)))
    assert any(words in violation.message for violation in found), found


def with_gap(index: int, **changes: Any) -> Snapshot:
    gaps = list(GAPS)
    gaps[index] = replace(gaps[index], **changes)
    return replace(SOUND, gaps=tuple(gaps))


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (with_band(0, live_units=2), "are not the 3 units of the band"),
        (with_band(0, live_units=2, hole_units=0), "live_units is 2, a recount says 1"),
        (with_band(0, pending_units=2, hole_units=0), "pending_units is 2, a recount says 1"),
        (with_band(1, vacated_units=0, hole_units=2), "vacated_units is 0, a recount says 1"),
        (with_band(0, live_units=4, hole_units=-2), "are not the 3 units of the band"),
        (with_band(0, states=bytes((HOLE, LIVE))), "2 unit states for 3 units"),
        (with_band(0, states=bytes((HOLE, LIVE, 0))), "pending_units is 1, a recount says 0"),
        (with_band(0, transfer_units=4), "4 transfer_units of 3 units"),
        (with_band(0, pinned_units=-1), "-1 pinned_units of 3 units"),
        (with_band(0, quarantined_units=4), "4 quarantined_units of 3 units"),
        (with_gap(1, free_bytes=287), "287 free + 96 fenced bytes"),
        (with_gap(1, free_bytes=384, fenced_bytes=0), "0 bytes are fenced, a recount says 96"),
        (with_gap(1, free_bytes=480, fenced_bytes=-96), "480 free + -96 fenced bytes"),
        (with_gap(0, end_bytes=207, free_bytes=15), "arena[207:208)"),
        (with_gap(0, start_bytes=191, free_bytes=17), "are counted twice"),
        (replace(SOUND, gaps=GAPS[:1]), "arena[496:880)"),
        (replace(SOUND, gaps=(*GAPS, GAPS[0])), "are counted twice"),
        (replace(SOUND, arena_bytes=1_040), "arena[1024:1040)"),
        (replace(SOUND, fences=()), "96 bytes are fenced, a recount says 0"),
        (replace(SOUND, fences=(replace(FENCE, uses=()),)), "outlived its last use"),
    ],
)
def test_conservation_reports(snapshot: Snapshot, words: str) -> None:
    found = conservation(snapshot)
    assert any(words in violation.message for violation in found), found
    assert all(violation.oracle == "conservation" for violation in found)
