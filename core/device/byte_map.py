"""What every byte of a space holds, as intervals with stamps: 100 GiB cost as much as 100 bytes.

A stamp is a number that says who wrote the bytes; the map never looks inside it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Segment: TypeAlias = tuple[int, int, int]
"""Bytes [start, end) and the stamp they hold."""

LOWEST_ADDRESS: Final = -(1 << 62)


class ByteMap:
    """A total map from addresses to stamps, kept as the fewest intervals.

    Addresses lie in [LOWEST_ADDRESS, -LOWEST_ADDRESS). Every call costs O(log n) for n intervals,
    plus the intervals it touches (plus, when their number changes, one memmove of the tail of two
    lists).
    """

    # Interval i is [starts[i], starts[i + 1]) and holds stamps[i]; the last one has no end.
    # Invariant: starts ascend strictly, starts[0] is LOWEST_ADDRESS, neighbours differ in their
    # stamps.
    __slots__ = ("_stamps", "_starts")

    def __init__(self, fill: int) -> None:
        """Every byte holds `fill`."""
        self._starts = [LOWEST_ADDRESS]
        self._stamps = [fill]

    def __len__(self) -> int:
        """Number of intervals."""
        return len(self._starts)

    def at(self, address: int) -> int:
        """The stamp of one byte."""
        return self._stamps[bisect_right(self._starts, address) - 1]

    def read(self, start: int, end: int) -> list[Segment]:
        """What [start, end) holds: adjoining segments, ascending, no two neighbours alike."""
        if start >= end:
            return []
        starts = self._starts
        stamps = self._stamps
        first = bisect_right(starts, start) - 1
        after = bisect_left(starts, end, first)
        if after - first == 1:
            return [(start, end, stamps[first])]
        segments = [(start, starts[first + 1], stamps[first])]
        segments += [(starts[i], starts[i + 1], stamps[i]) for i in range(first + 1, after - 1)]
        segments.append((starts[after - 1], end, stamps[after - 1]))
        return segments

    def assign(self, start: int, end: int, stamp: int) -> None:
        """[start, end) holds `stamp` from now on. An empty range changes nothing."""
        if start >= end:
            return
        starts = self._starts
        stamps = self._stamps
        first = bisect_right(starts, start) - 1  # the interval that holds `start`
        after = bisect_left(starts, end, first)  # the first one that begins at `end` or later
        last_stamp = stamps[after - 1]
        new_starts = []
        new_stamps = []
        # What remains of the interval under `start`; the new one joins an equal neighbour below.
        low = first
        if starts[first] < start:
            low = first + 1
        if low == 0 or stamps[low - 1] != stamp:
            new_starts.append(start)
            new_stamps.append(stamp)
        # The same above: either an interval begins exactly at `end`, or the last one is cut there.
        high = after
        if after < len(starts) and starts[after] == end:
            if stamps[after] == stamp:
                high = after + 1
        elif last_stamp != stamp:
            new_starts.append(end)
            new_stamps.append(last_stamp)
        starts[low:high] = new_starts
        stamps[low:high] = new_stamps

    def put(self, segments: Iterable[Segment], *, shift: int = 0) -> None:
        """Assign every segment, moved up by `shift` bytes."""
        for start, end, stamp in segments:
            self.assign(start + shift, end + shift, stamp)

    def copy_range(self, source: ByteMap, start: int, target: int, nbytes: int) -> None:
        """Copy `nbytes` from `start` in `source` (also this map) to `target`, like memmove."""
        self.put(source.read(start, start + nbytes), shift=target - start)

    def segments(self) -> Iterator[Segment]:
        """All intervals, ascending; the last one ends at -LOWEST_ADDRESS."""
        for i, start in enumerate(self._starts):
            last = i + 1 == len(self._starts)
            yield start, -LOWEST_ADDRESS if last else self._starts[i + 1], self._stamps[i]
