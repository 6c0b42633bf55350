"""The map: against a slow one that looks at every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_case import band, small_snapshot

from onearena.core.snapshot import FenceSnapshot
from onearena.metrics.pixels import FENCED, FREE, pixels


def slow(snapshot, states, width, start, end):
    """Every byte of every pixel, and the greatest code among them."""
    size = end - start
    row = []
    for p in range(width):
        low = start + p * size // width
        high = start + -(-(p + 1) * size // width)
        worst = FREE
        for byte in range(low, high):
            for each, text in zip(snapshot.bands, states, strict=True):
                if text and each.start_bytes <= byte < each.end_bytes:
                    worst = max(worst, text[(byte - each.start_bytes) // each.unit_bytes])
            for fence in snapshot.fences:
                if fence.start_bytes <= byte < fence.end_bytes:
                    worst = FENCED
        row.append(worst)
    return bytes(row)


STATES = st.lists(st.integers(1, 4), max_size=12)


@given(
    low=STATES,
    high=STATES,
    offset=st.integers(0, 9),
    width=st.integers(1, 90),
    window=st.tuples(st.integers(0, 399), st.integers(1, 400)),
    fence=st.tuples(st.integers(0, 380), st.integers(1, 20)),
)
def test_equal_to_looking_at_every_byte(low, high, offset, width, window, fence):
    bands = (
        band("a", "low_end", 13, 0, low),
        band("b", "high_end", 16, 200 + offset, high),
    )
    start, size = window
    end = min(400, start + size)
    snapshot = small_snapshot(
        bands=bands, fences=(FenceSnapshot(fence[0], fence[0] + fence[1], ()),), arena_bytes=400
    )
    states = [each.states for each in bands]
    row = pixels(snapshot, states, width=width, start_bytes=start, end_bytes=end)
    assert row == slow(snapshot, states, width, start, end)


def test_one_pixel_shows_the_worst_and_one_byte_shows_itself():
    snapshot = small_snapshot()
    states = [each.states for each in snapshot.bands]
    assert pixels(snapshot, states, width=1, start_bytes=0, end_bytes=1600) == bytes([FENCED])
    assert pixels(snapshot, states, width=1, start_bytes=1599, end_bytes=1600) == b"\x01"
    assert pixels(snapshot, states, width=3, start_bytes=1599, end_bytes=1600) == b"\x01" * 3


def test_a_range_outside_the_arena_is_a_bug_of_the_caller():
    snapshot = small_snapshot()
    states = [each.states for each in snapshot.bands]
    with pytest.raises(AssertionError):
        pixels(snapshot, states, width=1, start_bytes=0, end_bytes=1601)
