"""The numbers on the pages: recounted here from the units, not from what the models add up."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from ui_case import HOLE, LIVE, PENDING, VACATED, seeded_snapshot

from onearena.core.rules import UseKind
from onearena.core.snapshot import FenceSnapshot, UseSnapshot
from onearena.dashboard.checked import SourceError
from onearena.dashboard.frame import parse_frame
from onearena.dashboard.map_model import (
    LINES,
    alt_text,
    extent_at,
    line_bytes,
    map_data,
    seen,
    unit_at,
)
from onearena.dashboard.palette import DARK, LIGHT, PATTERNS, STATES
from onearena.dashboard.view_model import status_of, view_model
from onearena.dashboard.words import age_text, bytes_text, plural
from onearena.metrics.frames import (
    DETAIL_UNITS_MAX,
    Moment,
    frame_document,
    unit_fields,
    window_fields,
)
from onearena.metrics.recorder import MoveSeen, Timings, WaitSeen
from onearena.metrics.source import columns_of, units_between


def columns(snapshot, ranges=None):
    ranges = ranges or [(band.low_unit, band.high_unit) for band in snapshot.bands]
    return [columns_of(snapshot, at, a, b - a) for at, (a, b) in enumerate(ranges) if b > a]


def parsed(document):
    """What the dashboard makes of a document that went through JSON."""
    return parse_frame(json.loads(json.dumps(document)), "test")


def recorded(snapshot, moment=None, **more):
    """The frame of a record."""
    document = frame_document(snapshot, moment or Moment())
    document |= unit_fields(tuple(b.states for b in snapshot.bands), columns(snapshot))
    return parsed(document | more)


def live(snapshot, start=0, end=None, *, width=16384, detail=True, **more):
    """The frame of a running process."""
    end = end or snapshot.arena_bytes
    states = [band.states for band in snapshot.bands]
    told = columns(snapshot, units_between(snapshot, start, end)) if detail else None
    document = frame_document(snapshot, Moment(**more)) | window_fields(
        snapshot, states, told, start_bytes=start, end_bytes=end, width=width
    )
    return parsed(document)


def state_of_byte(snapshot, address):
    """The pixel value of one byte, found by looking at every unit and fence: slow and obvious."""
    for fence in snapshot.fences:
        if fence.start_bytes <= address < fence.end_bytes:
            return 5
    for band in snapshot.bands:
        for at, state in enumerate(band.states):
            start = band.origin_bytes + (band.low_unit + at) * band.unit_bytes
            if start <= address < start + band.unit_bytes:
                return state
    return 0


@pytest.fixture(scope="module")
def snapshot():
    return seeded_snapshot(5)


def test_the_band_table_adds_up_to_the_capacity_and_counts_every_unit(snapshot):
    page = view_model(recorded(snapshot))
    table = page.bands.as_columns()
    rows = dict(zip(table["band"], zip(*list(table.values())[1:], strict=True), strict=True))
    for name, state in (("live", LIVE), ("pending", PENDING), ("vacated", VACATED), ("hole", HOLE)):
        for band in snapshot.bands:
            here = [at for at, each in enumerate(table["band"]) if each == band.name]
            wanted = sum(1 for unit in band.states if unit == state) * band.unit_bytes
            assert [table[f"{name}_bytes"][at] for at in here] == [wanted], (name, band.name)
    assert rows["all"][-1] == snapshot.arena_bytes
    assert sum(table["total_bytes"][:-1]) == snapshot.arena_bytes
    assert table["units"][-1] == 1000
    assert page.adds_up
    assert page.notes == ()


def test_rows_stand_in_the_order_of_addresses(snapshot):
    table = view_model(recorded(snapshot)).bands.as_columns()
    assert table["band"] == ["state", "gap", "window_4096", "gap", "full", "all"]
    assert table["end_bytes"][:-2] == table["start_bytes"][1:-1]


def test_a_snapshot_that_does_not_add_up_is_said_to_be_so(snapshot):
    first, *rest = snapshot.bands
    wrong = replace(snapshot, bands=(replace(first, live_units=first.live_units + 1), *rest))
    page = view_model(recorded(wrong))
    assert not page.adds_up
    assert "do not add up" in page.notes[0]


@pytest.mark.parametrize("make", [recorded, live])
def test_what_is_picked_is_told_fact_by_fact(snapshot, make):
    frame = make(snapshot)
    band = snapshot.bands[0]
    at = next(at for at, state in enumerate(band.states) if state == LIVE and at > 2)
    unit = band.low_unit + at
    address = band.origin_bytes + unit * band.unit_bytes + 5
    facts = dict(view_model(frame, picked=address).picked.rows)
    assert facts["band"] == "state"
    assert facts["unit"] == str(unit)
    assert facts["state"] == "live"
    assert facts["virtual id"] == str(band.ids[at])
    assert facts["generation"] == str(band.ids[at] >> 36)
    assert facts["holders"] == "1"
    start = band.origin_bytes + unit * band.unit_bytes
    assert facts["bytes"] == f"{start:,} to {start + 64:,}, 64 in all"


def test_open_uses_of_a_unit_are_named(snapshot):
    band, unit = 1, 9
    here = snapshot.bands[band]
    address = here.origin_bytes + unit * here.unit_bytes
    rows = view_model(recorded(snapshot), picked=address).picked.rows
    assert ("open use", "#12 move on stream 2 writes it") in rows
    assert not any("forward" in value for _, value in rows)


def test_bytes_outside_bands_are_fence_or_gap(snapshot):
    fence = snapshot.fences[0]
    facts = dict(view_model(recorded(snapshot), picked=fence.start_bytes).picked.rows)
    assert facts["state"] == "fenced"
    facts = dict(view_model(recorded(snapshot), picked=fence.end_bytes).picked.rows)
    assert facts["state"] == "free"
    assert view_model(recorded(snapshot), picked=None).picked.rows == ()


def test_waits_name_the_use_that_is_waited_for(snapshot):
    timings = Timings(
        waits=(WaitSeen(UseKind.LOAD, 2, 4, 8.0), WaitSeen(UseKind.FORWARD, 7, 7, 9.5))
    )
    page = view_model(recorded(snapshot, Moment(timings=timings, clock_s=10.0)))
    assert page.waits.rows == (
        ("load", "#12 move on stream 2", "2.0 s"),
        ("forward", "use 7 of stream 7", "0.5 s"),
    )
    assert ("Waiting now", "2") in page.facts


def test_moves_fade_and_are_drawn_where_the_units_are(snapshot):
    timings = Timings(moves=(MoveSeen(1, 0.0, 1, 5, 6), MoveSeen(2, 95.0, 1, 7, 8)))
    frame = recorded(snapshot, Moment(timings=timings, clock_s=100.0))
    (move,) = map_data(frame)["moves"]
    band = snapshot.bands[1]
    assert move["source"] == [band.origin_bytes + 7 * 128, band.origin_bytes + 8 * 128]
    assert move["target"] == [band.origin_bytes + 8 * 128, band.origin_bytes + 9 * 128]
    assert move["strength"] == 0.5
    assert view_model(frame).moves.rows[0] == ("window_4096", 7, 8, "5.0 s")


# -- the map
@pytest.mark.parametrize("make", [recorded, live])
def test_every_pixel_of_the_row_is_the_state_of_its_bytes(make):
    small = seeded_snapshot(3, units=40)
    shown = seen(make(small), (0, small.arena_bytes))
    size = small.arena_bytes
    for pixel in range(0, len(shown.row), 37):
        first = pixel * size // len(shown.row)
        last = -(-(pixel + 1) * size // len(shown.row))
        wanted = max(state_of_byte(small, address) for address in range(first, last))
        assert shown.row[pixel] == wanted, pixel


def test_units_in_the_window_are_told_one_by_one(snapshot):
    start, end = 1000, 30_000
    for frame in (recorded(snapshot), live(snapshot, start, end)):
        shown = seen(frame, (start, end))
        told = {(c.band, c.first + at) for c in shown.columns for at in range(len(c.states))}
        wanted = {
            (index, unit)
            for index, band in enumerate(snapshot.bands)
            for unit in range(band.low_unit, band.high_unit)
            if band.origin_bytes + unit * band.unit_bytes < end
            and band.origin_bytes + (unit + 1) * band.unit_bytes > start
        }
        assert told == wanted
        for column in shown.columns:
            band = snapshot.bands[column.band]
            at = column.first - band.low_unit
            assert column.states.tobytes() == band.states[at : at + len(column.states)]
            assert column.ids.tolist() == list(band.ids[at : at + len(column.ids)])


def test_too_many_units_are_shown_as_pixels():
    many = seeded_snapshot(2, units=DETAIL_UNITS_MAX + 100)
    page = view_model(recorded(many))
    assert page.map["columns"] is None
    assert "zoom in" in page.notes[-1]
    assert view_model(recorded(many), view=(0, 4096)).map["columns"] is not None


@pytest.mark.parametrize("size", [1, 16, 100, 73_856, 10**9 + 7, 80 * 2**30])
def test_lines_are_round_and_the_window_fits(size):
    line = line_bytes(size)
    assert line * LINES >= size
    assert line % 16 == 0
    assert line % (1 << max(0, (line // 16).bit_length() - 2)) == 0 or line < 256
    # Round, and no more than a sixteenth (or 16 bytes) too long.
    least = -(-size // LINES)
    assert line - least <= max(16, least // 8)


def test_a_view_beyond_the_arena_shows_all_of_it(snapshot):
    page = view_model(recorded(snapshot), view=(5, snapshot.arena_bytes + 1))
    assert page.map["window"] == [0, snapshot.arena_bytes]


def test_extents_are_those_of_the_unit_the_fence_or_the_gap(snapshot):
    frame = recorded(snapshot)
    band = snapshot.bands[2]
    assert extent_at(frame, band.start_bytes + 33) == (band.start_bytes + 32, band.start_bytes + 64)
    assert unit_at(frame, band.start_bytes + 33) == (2, band.low_unit + 1)
    fence = snapshot.fences[1]
    assert extent_at(frame, fence.start_bytes + 1) == (fence.start_bytes, fence.end_bytes)


def test_the_map_holds_the_same_facts_in_words(snapshot):
    words = alt_text(recorded(snapshot))
    for band in snapshot.bands:
        assert f"Band {band.name}: bytes {band.start_bytes} to {band.end_bytes}" in words
        assert plural(band.states.count(bytes([PENDING])), "pending unit") in words
    free = sum(gap.free_bytes for gap in snapshot.gaps)
    assert f"{free} bytes free, 384 fenced" in words
    assert words in map_data(recorded(snapshot))["label"]


def test_the_data_of_a_million_units_stays_small():
    many = seeded_snapshot(4, units=1_000_000)
    data = map_data(recorded(many))
    assert len(base64.b64decode(data["row"])) == 16384
    assert sum(len(str(value)) for value in data.values()) < 100_000


# -- colours
def _luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _simulated(colour, matrix):
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]) ** 2.2
    return np.clip(matrix @ rgb, 0, 1) ** (1 / 2.2)


# Viénot, Brettel and Mollon (1999): what a protanope and a deuteranope see, in linear RGB.
PROTAN = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
DEUTAN = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_marks_and_words_have_contrast(palette):
    assert _contrast(palette.ink, palette.paper) >= 4.5
    assert _contrast(palette.dim, palette.paper) >= 4.5
    for state in range(1, len(STATES)):
        # What tells a state from the paper: its fill, or the mark on it.
        best = max(
            _contrast(c, palette.paper) for c in (palette.fills[state], palette.marks[state])
        )
        assert best >= 3.0, STATES[state]


@pytest.mark.parametrize("palette", [LIGHT, DARK])
@pytest.mark.parametrize("matrix", [np.eye(3), PROTAN, DEUTAN])
def test_states_differ_for_the_colour_blind_too(palette, matrix):
    fills = [_simulated(colour, matrix) for colour in palette.fills]
    for one in range(len(fills)):
        for other in range(one):
            apart = float(np.linalg.norm(fills[one] - fills[other]))
            assert apart > 0.12, (STATES[one], STATES[other], apart)
    assert len(set(PATTERNS)) == len(STATES)


# -- words
def test_status_says_the_worst_first():
    assert status_of(taken_s=99.0, now_s=100.0).text == "live, 1.0 s old"
    assert status_of(taken_s=80.0, now_s=100.0).state == "stale"
    assert status_of(taken_s=99.0, now_s=100.0, paused=True).text == "paused, 1.0 s old"
    gone = status_of(taken_s=99.0, now_s=100.0, trouble="disconnected", reason="nobody answers")
    assert gone.text == "disconnected, 1.0 s old: nobody answers"
    assert status_of(taken_s=None, now_s=1.0).state == "waiting"
    wrong = status_of(taken_s=None, now_s=1.0, trouble="unusable", reason="version 7")
    assert wrong.text == "version 7"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (45, "45 s"), (400, "6.7 min"), (1e5, "28 h")]
)
def test_ages(seconds, text):
    assert age_text(seconds) == text


def test_sizes():
    assert bytes_text(10_239) == "10,239 B"
    assert bytes_text(73_856) == "72.1 KiB"


# -- frames that nobody vouches for
def test_a_frame_of_another_version_is_refused_in_one_line(snapshot):
    document = frame_document(snapshot, Moment()) | {"version": 2}
    with pytest.raises(SourceError, match="version 1 are understood, and this one is 2") as caught:
        parse_frame(document, "here")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arena_bytes", -1),
        ("arena_bytes", True),
        ("bands", "none"),
        ("bands", [{}] * 33),
        ("taken_s", float("inf")),
        ("uses", [{"serial": "x"}]),
        ("states", ["AAAA"] * 3),
        ("states", ["!"] * 3),
        ("totals", [[1, 2, 3]]),
        ("fences", [{"start_bytes": 9, "end_bytes": 3, "uses": []}]),
        ("units", [{"band": 7}]),
    ],
)
def test_a_wrong_field_is_named(snapshot, field, value):
    document = frame_document(snapshot, Moment())
    document |= unit_fields(tuple(b.states for b in snapshot.bands), columns(snapshot))
    with pytest.raises(SourceError, match=field.removesuffix("s")):
        parse_frame(json.loads(json.dumps(document)) | {field: value}, "here")


def test_a_compressed_bomb_makes_no_more_than_the_band_has(snapshot):
    import zlib

    document = frame_document(snapshot, Moment())
    bomb = base64.b64encode(zlib.compress(b"\x02" * 50_000_000)).decode()
    with pytest.raises(SourceError, match="bytes were expected"):
        parsed(document | {"states": [bomb] * 3})


def test_uses_are_told_as_runs_and_counted_exactly(snapshot):
    units = tuple((0, unit) for unit in (9, 3, 4, 5, 7, 7))
    use = UseSnapshot(1, int(UseKind.FORWARD), 0, 1, True, reads=units)
    (row,) = recorded(replace(snapshot, uses=(use,))).uses
    assert row.reads == ((0, 3, 3), (0, 7, 1), (0, 9, 1))
    assert row.read_units == 6
    assert row.touches(0, 5) == "reads"
    assert row.touches(0, 6) == ""


def test_many_fences_are_counted_and_cut(snapshot):
    fences = tuple(FenceSnapshot(at * 2, at * 2 + 1, ()) for at in range(400))
    page = view_model(recorded(replace(snapshot, fences=fences)))
    assert "256 of 400 fences are shown." in page.notes
