"""Grids, sinks and the packing inequality, against definitions written out in full."""

from __future__ import annotations

import ast
import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core import geometry
from onearena.core.geometry import (
    ALIGN_BYTES,
    GUARD_BYTES,
    ArenaGeometry,
    Grid,
    Placement,
    chain_geometry,
    pack,
    packed_bytes,
)

sixteens = st.integers(1, 40).map(lambda n: n * ALIGN_BYTES)


@st.composite
def chains(draw: st.DrawFn) -> tuple[int, list[tuple[str, int]], list[int]]:
    """Arena bytes, units and float anchors of a small random chain."""
    units = draw(st.lists(sixteens, min_size=1, max_size=6))
    floats = max(0, len(units) - 2)
    anchors = draw(st.lists(sixteens, min_size=floats, max_size=floats))
    arena_bytes = draw(st.integers(0, 300)) * ALIGN_BYTES
    return arena_bytes, [(f"b{i}", size) for i, size in enumerate(units)], anchors


def build(chain: tuple[int, list[tuple[str, int]], list[int]]) -> ArenaGeometry:
    arena_bytes, units, anchors = chain
    return chain_geometry(arena_bytes, units, float_anchor_bytes=anchors)


@given(chains())
def test_grid_queries_equal_a_walk_over_all_units(chain):
    made = build(chain)
    for band in made.bands:
        grid = band.grid
        starts = {unit: grid.origin_bytes + unit * grid.unit_bytes for unit in range(200)}
        for address in range(0, min(made.arena_bytes, 800) + 1, ALIGN_BYTES):
            after = [unit for unit, start in starts.items() if start >= address]
            within = [unit for unit, start in starts.items() if start + grid.unit_bytes <= address]
            if after:
                assert grid.first_at_or_after(address) == after[0]
                assert grid.last_ending_by(address) == (within[-1] + 1 if within else 0)


@given(chains())
def test_capacity_counts_every_grid_unit_inside_the_arena_and_no_other(chain):
    arena_bytes, units, anchors = chain
    made = build(chain)
    for index, (band, (_, size)) in enumerate(zip(made.bands, units, strict=True)):
        if index == 0:
            points = range(0, arena_bytes + 1, size)
        elif index == len(units) - 1:
            points = range(arena_bytes % size, arena_bytes + 1, size)
        else:
            points = range(anchors[index - 1] % size, arena_bytes + 1, size)
        inside = [start for start in points if start + size <= arena_bytes]
        grid = band.grid
        numbers = range(grid.first_unit, grid.first_unit + grid.capacity_units)
        assert [grid.start(unit) for unit in numbers] == inside


@given(chains())
def test_sinks_and_guards_are_disjoint_outside_the_arena_and_inside_the_buffer(chain):
    made = build(chain)
    owned = [made.sink_range(index) for index in range(len(made.bands))]
    owned += list(made.guard_ranges())
    owned.append((0, made.arena_bytes))
    owned.sort()
    for (_, left_end), (right_start, _) in itertools.pairwise(owned):
        assert left_end <= right_start
    assert owned[0][0] >= -made.prefix_bytes
    assert owned[-1][1] == made.buffer_bytes - made.prefix_bytes
    edges = {edge for guard in made.guard_ranges() for edge in guard}
    for index in range(len(made.bands)):
        start, end = made.sink_range(index)
        assert {start, end} <= edges, "a guard touches both ends of every sink"
    assert {0, made.arena_bytes} <= edges
    for start, end in made.guard_ranges():
        assert end - start >= GUARD_BYTES
        assert start % ALIGN_BYTES == 0


@given(chains())
def test_each_sink_takes_the_highest_free_place_of_its_own_grid(chain):
    made = build(chain)
    order = sorted(range(len(made.bands)), key=lambda i: (-made.bands[i].grid.unit_bytes, i))
    placed: list[tuple[int, int]] = []
    for index in order:
        start, end = made.sink_range(index)
        size = made.bands[index].grid.unit_bytes
        # Every higher grid place below the arena clashes with a guard or an earlier sink.
        for higher in range(start + size, 0, size):
            reach = higher + size + GUARD_BYTES
            clash = [p for p in placed if higher - GUARD_BYTES < p[1] and p[0] < reach]
            assert reach > 0 or clash, f"sink of band {index} could start at {higher}"
        placed.append((start, end))


def brute_feasible(made: ArenaGeometry, counts: tuple[int, ...]) -> bool:
    """Whether some choice of grid positions puts the counts in order without overlap.

    Tries every start of every floating run: no packing, no inequality.
    """
    low_end = counts[0] * made.bands[0].grid.unit_bytes
    high_start = made.arena_bytes
    if len(made.bands) > 1:
        high_start -= counts[-1] * made.bands[-1].grid.unit_bytes
    reach = {low_end}
    for band, count in zip(made.bands[1:-1], counts[1:-1], strict=True):
        if not count:
            continue
        grid = band.grid
        ends = set()
        for unit in range(grid.first_unit, grid.end_unit):
            if any(grid.start(unit) >= end for end in reach):
                ends.add(grid.start(unit) + count * grid.unit_bytes)
        reach = ends
    return any(end <= high_start for end in reach)


def test_packing_equals_trying_every_position():
    rng = random.Random(20_260)
    verdicts = {True: 0, False: 0}
    for _ in range(6_000):
        units = [(f"b{i}", 16 * rng.randint(1, 5)) for i in range(rng.randint(1, 5))]
        anchors = [16 * rng.randint(0, 9) for _ in units[1:-1]]
        made = chain_geometry(16 * rng.randint(0, 24), units, float_anchor_bytes=anchors)
        counts = tuple(rng.randint(0, 3) for _ in units)
        packing = pack(made, counts)
        assert packing.feasible == brute_feasible(made, counts), (made, counts)
        assert packing.feasible == (packing.missing_bytes == 0)
        assert (packing.binding_band == -1) == packing.feasible
        verdicts[packing.feasible] += 1
    assert min(verdicts.values()) > 1_000, verdicts


@given(chains(), st.data())
def test_packed_bytes_are_the_fewest_that_fit(chain, data):
    _, units, anchors = chain
    counts = data.draw(st.lists(st.integers(0, 4), min_size=len(units), max_size=len(units)))
    size = packed_bytes(units, counts, float_anchor_bytes=anchors)
    assert pack(chain_geometry(size, units, float_anchor_bytes=anchors), counts).feasible
    if size:
        smaller = chain_geometry(size - 16, units, float_anchor_bytes=anchors)
        packing = pack(smaller, counts)
        assert not packing.feasible
        assert packing.missing_bytes == 16


def test_packing_adds_up_to_the_arena():
    made = chain_geometry(
        1024, [("state", 112), ("window", 96), ("full", 32)], float_anchor_bytes=[16]
    )
    packing = pack(made, (1, 2, 5))
    # State 0-112; the window grid has points 16, 112, 208, ...; full takes the last 160 bytes.
    assert packing.starts == (0, 112, 864)
    assert packing.ends == (112, 304, 1024)
    assert packing.grid_slack_bytes == 0
    assert packing.gap_bytes == 560
    assert packing.remainder_bytes == 560 % 32
    packing = pack(made, (2, 2, 5))
    assert packing.starts == (0, 304, 864)
    assert packing.grid_slack_bytes == 304 - 224
    assert packing.slack_bytes == 80 + (864 - 496) % 32


def test_binding_band_is_the_first_that_does_not_fit():
    made = chain_geometry(160, [("a", 32), ("b", 48), ("c", 16)])
    assert pack(made, (6, 0, 0)).binding_band == 0
    assert pack(made, (1, 3, 0)).binding_band == 1
    assert pack(made, (0, 0, 11)).binding_band == 2


def test_one_band_is_the_low_end_and_two_have_no_float():
    assert [b.placement for b in chain_geometry(64, [("a", 16)]).bands] == [Placement.LOW_END]
    two = chain_geometry(64, [("a", 16), ("b", 16)]).bands
    assert [b.placement for b in two] == [Placement.LOW_END, Placement.HIGH_END]


def test_an_arena_of_no_bytes_still_has_sinks_and_two_guards_around_it():
    made = chain_geometry(0, [("a", 32), ("b", 16)])
    assert [band.grid.capacity_units for band in made.bands] == [0, 0]
    assert (-GUARD_BYTES, 0) in made.guard_ranges() or made.guard_ranges()[-2][1] == 0
    assert made.guard_ranges()[-1] == (0, GUARD_BYTES)


@pytest.mark.parametrize("arena_bytes", [2**33 + 48, 2**45 + 16])
def test_addresses_beyond_32_bits_stay_exact(arena_bytes):
    made = chain_geometry(arena_bytes, [("state", 51_511_296), ("full", 2_097_152)])
    high = made.bands[1].grid
    assert high.end(high.end_unit - 1) == arena_bytes
    assert high.first_at_or_after(arena_bytes) == high.end_unit
    low = made.bands[0].grid
    assert low.end(low.end_unit - 1) <= arena_bytes < low.end(low.end_unit)


def test_a_grid_refuses_values_off_its_alignment():
    with pytest.raises(AssertionError, match="unit_bytes 24"):
        Grid(unit_bytes=24, origin_bytes=-48, first_unit=2, capacity_units=1)
    with pytest.raises(AssertionError, match="unit 0 is the sink"):
        Grid(unit_bytes=16, origin_bytes=0, first_unit=0, capacity_units=1)


def test_geometry_imports_nothing_of_the_project():
    tree = ast.parse(Path(geometry.__file__).read_text(encoding="utf-8"))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    assert modules <= {"__future__", "enum", "collections.abc", "dataclasses", "itertools"}
