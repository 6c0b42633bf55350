"""Fences: byte ranges beyond a retreated frontier whose uses are unfinished (lifecycle rule 5).

The next owner of such bytes may be another band with another unit, so a fence is a range of arena
bytes, not of units. Ranges are disjoint: bytes beyond every frontier belong to no band, and bytes
that a band grows over leave the fences and go into the ledger rows of the units that took them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]


@dataclass(slots=True)
class Fence:
    """[start_bytes, end_bytes) with the latest read and write word of each stream (`ticket << 3 |
    kind`).
    """

    start_bytes: int
    end_bytes: int
    words: Words

    def outstanding(self, retired: Sequence[int]) -> bool:
        """Whether a use is not retired; `retired[s]` is the last retired ticket of stream s."""
        return any(
            int(word) >> 3 > retired[column >> 1] for column, word in enumerate(self.words) if word
        )


class Fences:
    """The disjoint fences of one arena, in address order. Control thread only; costs O(fences
    touched).
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._fences: list[Fence] = []

    def __len__(self) -> int:
        return len(self._fences)

    def __iter__(self) -> Iterator[Fence]:
        return iter(self._fences)

    def add(self, start_bytes: int, end_bytes: int, words: Words) -> None:
        """Fence bytes that just left a band. They cannot be fenced already; an equal neighbour is
        extended.
        """
        assert start_bytes < end_bytes, (start_bytes, end_bytes)
        at = bisect_left(self._starts, start_bytes)
        if at:
            before = self._fences[at - 1]
            assert before.end_bytes <= start_bytes, (before, start_bytes, end_bytes)
            if before.end_bytes == start_bytes and np.array_equal(before.words, words):
                before.end_bytes = end_bytes
                return
        if at < len(self._fences):
            after = self._fences[at]
            assert after.start_bytes >= end_bytes, (after, start_bytes, end_bytes)
            if after.start_bytes == end_bytes and np.array_equal(after.words, words):
                after.start_bytes = self._starts[at] = start_bytes
                return
        self._starts.insert(at, start_bytes)
        self._fences.insert(at, Fence(start_bytes, end_bytes, words))

    def overgrow(self, start_bytes: int, end_bytes: int) -> list[Fence]:
        """Cut [start, end) out of the fences and return the parts cut, in address order.

        A fence partly overgrown is split: what lies outside stays fenced.
        """
        first = bisect_right(self._starts, start_bytes) - 1
        if first < 0 or self._fences[first].end_bytes <= start_bytes:
            first += 1
        last = first
        taken: list[Fence] = []
        kept: list[Fence] = []
        while last < len(self._fences) and self._fences[last].start_bytes < end_bytes:
            fence = self._fences[last]
            low, high = max(fence.start_bytes, start_bytes), min(fence.end_bytes, end_bytes)
            taken.append(Fence(low, high, fence.words))
            if fence.start_bytes < low:
                kept.append(Fence(fence.start_bytes, low, fence.words.copy()))
            if high < fence.end_bytes:
                kept.append(Fence(high, fence.end_bytes, fence.words.copy()))
            last += 1
        if taken:
            self._fences[first:last] = kept
            self._starts[first:last] = [fence.start_bytes for fence in kept]
        return taken

    def erase_retired(self, retired: Sequence[int]) -> None:
        """Drop every fence all of whose uses are retired."""
        kept = [fence for fence in self._fences if fence.outstanding(retired)]
        if len(kept) != len(self._fences):
            self._fences = kept
            self._starts = [fence.start_bytes for fence in kept]
