"""Bitmaps at word and level boundaries against Python sets; the cache guard; frozen constants."""

from __future__ import annotations

import bisect
import random

import numpy as np
import pytest

from onearena.core import kernels, words

# One, two, three and four levels, at and around the sizes where a level is added.
SIZES = [1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 8192, 262_143, 262_144, 262_145]


class Map:
    """A bitmap alone in an array: level offsets first, then the levels."""

    def __init__(self, bits: int) -> None:
        sizes = words.map_level_words(bits)
        self.bits = bits
        self.levels = len(sizes)
        self.words = np.zeros(8 + sum(sizes), dtype=np.int64)
        at = 8
        for level, size in enumerate(sizes):
            self.words[level] = at
            at += size

    def check(self, expected: set[int], probes: list[int]) -> None:
        ordered = sorted(expected)
        for bit in probes:
            after = bisect.bisect_left(ordered, bit)
            first = ordered[after] if after < len(ordered) else -1
            before = bisect.bisect_right(ordered, bit)
            last = ordered[before - 1] if before else -1
            assert kernels.map_first(self.words, 0, self.levels, bit) == first, bit
            assert kernels.map_last(self.words, 0, self.levels, bit) == last, bit
            assert kernels.map_get(self.words, 0, bit) == (bit in expected), bit
        self.check_summaries()

    def check_summaries(self) -> None:
        """Bit k of a level is set if and only if word k below is not zero; spare words are zero."""
        sizes = words.map_level_words(self.bits)
        for level in range(self.levels):
            at = int(self.words[level])
            here = self.words[at : at + sizes[level]]
            assert here[-1] == 0, "the spare word is in use"
            if level + 1 < self.levels:
                above = int(self.words[level + 1])
                for k, word in enumerate(here[:-1].tolist()):
                    bit = int(self.words[above + (k >> 6)]) >> (k & 63) & 1
                    assert bit == (word != 0), (level, k)


def _edges(bits: int) -> list[int]:
    near = {0, bits - 1}
    for border in (64, 128, 4096, 8192, 262_144):
        near |= {border - 1, border, border + 1}
    return sorted(bit for bit in near if 0 <= bit < bits)


@pytest.mark.parametrize("bits", SIZES)
def test_single_bits_at_every_boundary(bits: int) -> None:
    probes = _edges(bits)
    for bit in probes:
        one = Map(bits)
        kernels.map_set(one.words, 0, one.levels, bit)
        one.check({bit}, probes)
        kernels.map_set(one.words, 0, one.levels, bit)
        kernels.map_clear(one.words, 0, one.levels, bit)
        one.check(set(), probes)


@pytest.mark.parametrize("bits", [bits for bits in SIZES if bits <= 8192])
def test_ranges_between_boundaries(bits: int) -> None:
    draw = random.Random(bits)
    edges = [*_edges(bits), bits]
    probes = _edges(bits)
    pairs = [(start, end) for start in edges for end in edges if start < end]
    for start, end in draw.sample(pairs, min(len(pairs), 40)):
        one = Map(bits)
        kernels.map_set_range(one.words, 0, one.levels, start, end)
        one.check(set(range(start, end)), probes)
        full = Map(bits)
        kernels.map_set_range(full.words, 0, full.levels, 0, bits)
        kernels.map_clear_range(full.words, 0, full.levels, start, end)
        full.check(set(range(bits)) - set(range(start, end)), probes)


@pytest.mark.parametrize("bits", [70, 4100, 262_200])
def test_random_walk_of_bits_and_ranges(bits: int) -> None:
    draw = random.Random(bits)
    one = Map(bits)
    expected: set[int] = set()
    for step in range(400):
        start = draw.randrange(bits)
        end = min(bits, start + draw.choice([1, 2, 63, 64, 65, 130, 4097]))
        match draw.randrange(4):
            case 0:
                kernels.map_set(one.words, 0, one.levels, start)
                expected.add(start)
            case 1:
                kernels.map_clear(one.words, 0, one.levels, start)
                expected.discard(start)
            case 2:
                kernels.map_set_range(one.words, 0, one.levels, start, end)
                expected |= set(range(start, end))
            case _:
                kernels.map_clear_range(one.words, 0, one.levels, start, end)
                expected -= set(range(start, end))
        if step % 20 == 0:
            one.check(expected, [*_edges(bits), *(draw.randrange(bits) for _ in range(10))])
    assert expected, "the walk ended on an empty map: it showed little"


def test_clearing_an_empty_range_does_nothing() -> None:
    one = Map(200)
    kernels.map_set_range(one.words, 0, one.levels, 0, 200)
    kernels.map_clear_range(one.words, 0, one.levels, 64, 64)
    one.check(set(range(200)), _edges(200))


def test_cached_kernels_are_of_this_layout() -> None:
    """Kernels freeze the constants of words.py; numba's cache watches kernels.py only."""
    assert words.layout_digest() == kernels.LAYOUT_DIGEST, (
        f"words.py changed: set kernels.LAYOUT_DIGEST to {words.layout_digest()!r}, "
        "so that cached kernels of the old layout are thrown away"
    )


def test_header_fields_do_not_overlap() -> None:
    """Band header: single words, and three maps of up to MAP_LEVELS_MAX words each."""
    taken: dict[int, str] = {}
    for name, value in vars(words).items():
        if name.startswith("B_"):
            for at in range(value, value + (words.MAP_LEVELS_MAX if name.endswith("_MAP") else 1)):
                assert at not in taken, f"{name} and {taken[at]} share word {at}"
                taken[at] = name
    assert max(taken) < words.BAND_HEADER_WORDS
    # Enough levels for as many units as ids can number.
    assert len(words.map_level_words(words.ID_INDEX_MASK)) <= words.MAP_LEVELS_MAX


def test_tables_do_not_overlap() -> None:
    for capacity in (0, 1, 64, 65, 5000):
        table = words.plan_tables(1000, capacity)
        sizes = [
            (table.unit_word, capacity),
            (table.p2v, capacity),
            (table.v2p, table.ids + 1),
            (table.id_word, table.ids + 1),
            (table.ring, table.ids),
        ]
        for levels in (
            table.hole_levels,
            table.occupied_levels,
            table.fixed_levels,
            table.released_levels,
        ):
            sizes += zip(levels, words.map_level_words(capacity), strict=True)
        cursor = 1000
        for start, size in sorted(sizes):
            assert start >= cursor
            cursor = start + size
        assert cursor <= table.end


def test_kernels_compile_without_python_objects_and_release_the_lock() -> None:
    """Every kernel compiles in nopython mode, and releases the interpreter lock."""
    kernels.warm_up()
    for name in ("allocate", "free", "share", "resolve", "move", "count_units", "settle"):
        kernel = getattr(kernels, name)
        assert kernel.nopython_signatures, name
        assert kernel.targetoptions["nogil"], name


def test_units_are_copied_and_zeroed_and_nothing_beside_them() -> None:
    draw = np.random.default_rng(7)
    origin, row = 3, 5
    memory = draw.integers(-(2**62), 2**62, origin + 12 * row + 2)
    expected = memory.copy()
    cells = expected[origin : origin + 12 * row].reshape(12, row)
    cells[[11, 0]] = cells[[4, 7]]
    cells[[2, 9]] = 0
    kernels.copy_units(memory, origin, row, np.array([4, 7]), np.array([11, 0]))
    kernels.zero_units(memory, origin, row, np.array([2, 9]))
    assert memory.tolist() == expected.tolist()
