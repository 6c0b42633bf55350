"""Fences: disjoint byte ranges that split, merge and end at retirement."""

from __future__ import annotations

import numpy as np
import pytest

from onearena.core.fences import Fence, Fences


def words(**columns: int) -> np.ndarray:
    """A row with `ticket` in the named columns (c0, c1, ...), kind 0."""
    row = np.zeros(8, np.int64)
    for name, ticket in columns.items():
        row[int(name[1:])] = ticket << 3
    return row


def ranges(fences: Fences) -> list[tuple[int, int]]:
    return [(fence.start_bytes, fence.end_bytes) for fence in fences]


def test_equal_neighbours_become_one_fence_and_unequal_ones_stay_two() -> None:
    fences = Fences()
    fences.add(64, 96, words(c0=1))
    fences.add(32, 64, words(c0=1))
    fences.add(96, 128, words(c0=2))
    assert ranges(fences) == [(32, 96), (96, 128)]


def test_a_fence_partly_overgrown_is_split_and_both_rests_keep_the_uses() -> None:
    fences = Fences()
    fences.add(0, 160, words(c2=7))
    taken = fences.overgrow(48, 112)
    assert [(part.start_bytes, part.end_bytes) for part in taken] == [(48, 112)]
    assert ranges(fences) == [(0, 48), (112, 160)]
    assert all(fence.words[2] >> 3 == 7 for fence in (*fences, *taken))


def test_overgrowing_takes_parts_of_several_fences_and_nothing_outside() -> None:
    fences = Fences()
    fences.add(0, 32, words(c0=1))
    fences.add(48, 80, words(c0=2))
    fences.add(96, 128, words(c0=3))
    taken = fences.overgrow(16, 112)
    assert [(p.start_bytes, p.end_bytes, int(p.words[0]) >> 3) for p in taken] == [
        (16, 32, 1),
        (48, 80, 2),
        (96, 112, 3),
    ]
    assert ranges(fences) == [(0, 16), (112, 128)]
    assert fences.overgrow(32, 96) == []


def test_a_fence_ends_when_its_last_use_is_retired_not_after_the_first() -> None:
    fences = Fences()
    fences.add(0, 16, words(c0=3, c3=5))  # stream 0 reads, stream 1 writes
    fences.erase_retired([3, 4])
    assert len(fences) == 1
    fences.erase_retired([3, 5])
    assert len(fences) == 0


def test_bytes_are_fenced_once() -> None:
    fences = Fences()
    fences.add(0, 32, words(c0=1))
    with pytest.raises(AssertionError):
        fences.add(16, 48, words(c0=2))


def test_outstanding_compares_each_column_with_its_own_stream() -> None:
    fence = Fence(0, 16, words(c1=4))
    assert fence.outstanding([3, 9])
    assert not fence.outstanding([4, 0])
