"""What was last done to each byte of one address space, kept per run of bytes treated alike.

The space is cut at a sorted list of boundaries. Each cell between two boundaries holds the last
writes and the last reads that later accesses still have to be compared with. An access is stamped

    (order, component, tick, node, position)

`order` grows with every access of the run; (component, tick) is the epoch of the operation or
transfer that makes it; `node` and `position` say which access it is, for reports.

What may be dropped. Let x be stored and y a later access that covers the cell and is ordered after
x. If y writes, or if x reads, then every access that races with x races with y as well: it is not
ordered after y, else it would be ordered after x too, and y conflicts with all that x conflicts
with. So x is never the *latest* racing access of any later one, and is dropped. This is why one
epoch a cell is the rule and several are the exception (FastTrack), and why dropping changes no
report.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from onearena.core.device.interface import Access
from onearena.stress.oracles.clocks import Clock

Node = tuple[int, int, int, str, int | None, tuple[Access, ...]]
"""Who makes the accesses of one enqueue or transfer: index, number, kind, label, stream (None: a
transfer), accesses. A plain tuple: one is made for each operation, and almost none is looked at.
"""

Stamp = tuple[int, int, int, Node, int]
Stamps = tuple[Stamp, ...]

LIMIT_BYTES: Final = 1 << 62
"""Addresses lie in [-LIMIT_BYTES, LIMIT_BYTES]."""

FIRST_SWEEP_CELLS: Final = 2_048
"""A sweep comes at this many cells, then whenever they have doubled since the last one."""

NOTHING: Final[Stamps] = ()


class IntervalShadow:
    """The cells of one address space. Cell i covers [bounds[i], bounds[i + 1])."""

    __slots__ = ("_bounds", "_reads", "_sweep_cells", "_writes")

    def __init__(self) -> None:
        self._bounds = [-LIMIT_BYTES, LIMIT_BYTES]
        self._writes: list[Stamps] = [NOTHING]
        self._reads: list[Stamps] = [NOTHING]
        self._sweep_cells = FIRST_SWEEP_CELLS

    @property
    def cells(self) -> int:
        """Number of cells: the memory in use."""
        return len(self._writes)

    def read(self, start: int, end: int, stamp: Stamp, clock: Clock) -> Stamp | None:
        """Note a read of [start, end); the latest stored write not ordered before it, or None.

        Cost: a binary search plus the cells covered; a cut costs a shift of the lists.
        """
        first, last = self._cut(start, end)
        writes, reads = self._writes, self._reads
        own = (stamp,)
        race: Stamp | None = None
        for cell in range(first, last):
            for other in writes[cell]:
                if other[2] > clock[other[1]] and (race is None or other[0] > race[0]):
                    race = other
            kept = NOTHING
            for other in reads[cell]:
                if other[2] > clock[other[1]]:
                    kept = (*kept, other)
            reads[cell] = (*kept, stamp) if kept else own
        return race

    def write(self, start: int, end: int, stamp: Stamp, clock: Clock) -> Stamp | None:
        """Note a write of [start, end); the latest stored access not ordered before it, or None.

        Cost: as `read`. Without a race the cells covered become one.
        """
        first, last = self._cut(start, end)
        writes, reads = self._writes, self._reads
        race: Stamp | None = None
        for cell in range(first, last):
            for other in writes[cell]:
                if other[2] > clock[other[1]] and (race is None or other[0] > race[0]):
                    race = other
            for other in reads[cell]:
                if other[2] > clock[other[1]] and (race is None or other[0] > race[0]):
                    race = other
        if race is None:
            writes[first] = (stamp,)
            reads[first] = NOTHING
            if last - first > 1:
                del self._bounds[first + 1 : last]
                del writes[first + 1 : last]
                del reads[first + 1 : last]
        else:
            for cell in range(first, last):
                writes[cell] = (*_unordered(writes[cell], clock), stamp)
                reads[cell] = _unordered(reads[cell], clock)
        return race

    def marks(self, start: int, end: int, *, reads: bool) -> Iterator[Stamp]:
        """Stored writes, and with `reads` stored reads too, in the cells that meet [start, end)."""
        bounds = self._bounds
        cell = bisect_right(bounds, start) - 1
        while bounds[cell] < end:
            yield from self._writes[cell]
            if reads:
                yield from self._reads[cell]
            cell += 1

    def sweep_if_large(self, host: Clock) -> None:
        """`sweep`, if the number of cells has doubled since the last one."""
        if len(self._writes) > self._sweep_cells:
            self.sweep(host)

    def sweep(self, host: Clock) -> None:
        """Drop what the host knows to be over; join equal neighbours. Cost: all cells."""
        bounds: list[int] = []
        writes: list[Stamps] = []
        reads: list[Stamps] = []
        last_writes: Stamps | None = None
        last_reads: Stamps | None = None
        for at, old_writes, old_reads in zip(self._bounds, self._writes, self._reads, strict=False):
            cell_writes = _unordered(old_writes, host) if old_writes else old_writes
            cell_reads = _unordered(old_reads, host) if old_reads else old_reads
            if cell_writes != last_writes or cell_reads != last_reads:
                bounds.append(at)
                writes.append(cell_writes)
                reads.append(cell_reads)
                last_writes, last_reads = cell_writes, cell_reads
        bounds.append(LIMIT_BYTES)
        self._bounds, self._writes, self._reads = bounds, writes, reads
        self._sweep_cells = max(FIRST_SWEEP_CELLS, 2 * len(writes))

    def _cut(self, start: int, end: int) -> tuple[int, int]:
        """Make `start` and `end` boundaries; the cells [first, last) between them."""
        bounds = self._bounds
        first = bisect_right(bounds, start) - 1
        if bounds[first] != start:
            first += 1
            self._split(first, start)
        if bounds[first + 1] == end:
            return first, first + 1
        last = bisect_left(bounds, end, first)
        if bounds[last] != end:
            self._split(last, end)
        return first, last

    def _split(self, cell: int, at: int) -> None:
        """A new cell number `cell` from `at` on, treated like the one below it so far."""
        self._bounds.insert(cell, at)
        self._writes.insert(cell, self._writes[cell - 1])
        self._reads.insert(cell, self._reads[cell - 1])


def _unordered(stamps: Stamps, clock: Clock) -> Stamps:
    """The stamps that are not ordered before `clock`; the same tuple when that is all of them."""
    for stamp in stamps:
        if stamp[2] <= clock[stamp[1]]:
            return tuple(stamp for stamp in stamps if stamp[2] > clock[stamp[1]])
    return stamps
