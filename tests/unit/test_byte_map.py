"""The interval map against a plain list with one stamp a byte."""

from __future__ import annotations

import random
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core.device.byte_map import LOWEST_ADDRESS, ByteMap, Segment

LOW, HIGH, FILL = -8, 24, -2


class Bytes:
    """One stamp a byte: slow and obvious."""

    def __init__(self) -> None:
        self.held = dict.fromkeys(range(LOW, HIGH), FILL)

    def read(self, start: int, end: int) -> list[Segment]:
        segments = []
        for stamp, run in groupby(range(start, end), self.held.__getitem__):
            addresses = list(run)
            segments.append((addresses[0], addresses[-1] + 1, stamp))
        return segments


def check_form(held: ByteMap) -> None:
    segments = list(held.segments())
    assert segments[0][0] == LOWEST_ADDRESS
    assert segments[-1][1] == -LOWEST_ADDRESS
    assert len(segments) == len(held)
    assert all(start < end for start, end, _ in segments)
    for below, above in pairwise(segments):
        assert below[1] == above[0]
        assert below[2] != above[2], "neighbours with one stamp are one interval"


RANGE = st.tuples(st.integers(LOW, HIGH), st.integers(LOW, HIGH)).map(sorted).map(tuple)
STEP = st.one_of(
    st.tuples(st.just("assign"), RANGE, st.integers(0, 3)),
    st.tuples(st.just("copy"), RANGE, st.integers(LOW, HIGH)),
)


@given(st.lists(STEP, max_size=30), RANGE)
def test_equals_one_stamp_a_byte(
    steps: list[tuple[str, tuple[int, int], int]], looked_at: tuple[int, int]
) -> None:
    held, plain = ByteMap(FILL), Bytes()
    for name, (start, end), value in steps:
        if name == "assign":
            held.assign(start, end, value)
            for address in range(start, end):
                plain.held[address] = value
        else:
            nbytes = min(end - start, HIGH - value)
            held.copy_range(held, start, value, nbytes)
            moved = [plain.held[start + k] for k in range(nbytes)]
            for k, stamp in enumerate(moved):
                plain.held[value + k] = stamp
        check_form(held)
        assert held.read(LOW, HIGH) == plain.read(LOW, HIGH)
    assert held.read(*looked_at) == plain.read(*looked_at)
    assert [held.at(address) for address in range(LOW, HIGH)] == list(plain.held.values())


def test_all_assignments_of_three_ranges() -> None:
    """Every way in which a third range can meet the borders of two others, with and without equal
    stamps.
    """
    ranges = [(start, end) for start in range(6) for end in range(start + 1, 7)]
    for second in ranges:
        for third in ranges:
            for stamp in (1, 2, 3):
                held, plain = ByteMap(FILL), Bytes()
                for (start, end), value in (((2, 4), 1), (second, 2), (third, stamp)):
                    held.assign(start, end, value)
                    for address in range(start, end):
                        plain.held[address] = value
                check_form(held)
                assert held.read(LOW, HIGH) == plain.read(LOW, HIGH)


def test_an_overlapping_copy_is_a_memmove() -> None:
    for target in (0, 1, 2, 3):
        held = ByteMap(FILL)
        for k in range(4):
            held.assign(1 + k, 2 + k, k)
        held.copy_range(held, 1, target, 4)
        assert held.read(target, target + 4) == [(target + k, target + k + 1, k) for k in range(4)]


def test_a_copy_between_two_maps_leaves_the_source_alone() -> None:
    source, target = ByteMap(FILL), ByteMap(7)
    source.assign(100, 150, 1)
    target.copy_range(source, 90, 10, 80)
    assert target.read(0, 100) == [
        (0, 10, 7),
        (10, 20, FILL),
        (20, 70, 1),
        (70, 90, FILL),
        (90, 100, 7),
    ]
    assert source.read(90, 170) == [(90, 100, FILL), (100, 150, 1), (150, 170, FILL)]


def test_empty_ranges_change_and_show_nothing() -> None:
    held = ByteMap(FILL)
    held.assign(5, 5, 1)
    held.assign(9, 5, 1)
    held.copy_range(held, 3, 9, 0)
    assert len(held) == 1
    assert held.read(5, 5) == []
    assert held.read(9, 5) == []


@pytest.mark.parametrize("unit_bytes", [16, 1 << 20])
def test_intervals_follow_the_units_and_not_the_bytes(unit_bytes: int) -> None:
    draw = random.Random(7)
    held = ByteMap(FILL)
    expected: dict[int, int] = {}
    for _ in range(5_000):
        unit, stamp = draw.randrange(4096), draw.randrange(1, 1 << 40)
        held.assign(unit * unit_bytes, (unit + 1) * unit_bytes, stamp)
        expected[unit] = stamp
        assert len(held) <= 2 * len(expected) + 1
    for unit, stamp in expected.items():
        start, end = unit * unit_bytes, (unit + 1) * unit_bytes
        assert held.read(start, end) == [(start, end, stamp)]
