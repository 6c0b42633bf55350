"""The modeled contents of every space, and whether what was recorded covers what is touched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from onearena.core.device.byte_map import ByteMap, Segment
from onearena.core.device.interface import UNDEFINED, Access, Space

ReadHook: TypeAlias = Callable[[int, Access, Sequence[Segment]], object]
WriteHook: TypeAlias = Callable[[int, Access, Sequence[Segment]], object]
UndeclaredHook: TypeAlias = Callable[[int, Access], object]
Grids: TypeAlias = Mapping[int, tuple[int, int]]
"""Table key >> BAND_SHIFT -> (origin, unit) in bytes: where unit 0 starts, and how long a unit is.
"""

WILD_ADDRESS: Final = -(1 << 60)
"""Where a forward ends up whose buffer slot was never filled: bytes that nobody owns."""

UNDECLARED_KEPT_MAX: Final = 1024
SPACES: Final = len(Space)


class Memory:
    """The modeled contents of every space, and the hooks that see each access as it happens."""

    __slots__ = (
        "arena",
        "buffers",
        "grids",
        "host",
        "on_read",
        "on_undeclared",
        "on_write",
        "table",
        "undeclared",
        "undeclared_count",
    )

    def __init__(self, grids: Grids) -> None:
        """Everything undefined; every table entry 0, the band's sink."""
        self.arena = ByteMap(UNDEFINED)
        self.host = ByteMap(UNDEFINED)
        self.table: dict[int, int] = {}
        self.buffers: dict[int, tuple[tuple[int, int], ...]] = {}
        self.grids = grids
        self.on_read: ReadHook | None = None
        self.on_write: WriteHook | None = None
        self.on_undeclared: UndeclaredHook | None = None
        self.undeclared: list[tuple[int, Access]] = []
        self.undeclared_count = 0

    def write(self, number: int, access: Access, stamp: int) -> None:
        """One op or transfer leaves `stamp` in a range of arena or host."""
        held = self.arena if access[0] == 0 else self.host
        held.assign(access[1], access[2], stamp)
        if self.on_write is not None:
            self.on_write(number, access, ((access[1], access[2], stamp),))

    def report_undeclared(self, number: int, access: Access) -> None:
        """Op or transfer `number` touches bytes that the host did not record for it."""
        self.undeclared_count += 1
        if len(self.undeclared) < UNDECLARED_KEPT_MAX:
            self.undeclared.append((number, access))
        if self.on_undeclared is not None:
            self.on_undeclared(number, access)


class Cover:
    """Whether the accesses a host recorded for one op cover what the op really touches.

    A recorded write covers reads too: whoever may write bytes was ordered after all who used them.
    """

    __slots__ = ("_accesses", "_merged", "exact")

    def __init__(self, accesses: Sequence[Access]) -> None:
        """O(accesses)."""
        self._accesses = accesses
        # Most touches lie in one recorded range whose start is known: one look-up settles them.
        # start * SPACES + space -> (end, writes) of one range recorded there.
        self.exact: dict[int, tuple[int, bool]] = {}
        exact = self.exact
        for space, start, end, writes in accesses:
            key = start * SPACES + space
            known = exact.get(key)
            if known is None or (writes, end) > (known[1], known[0]):
                exact[key] = (end, writes)
        self._merged: dict[tuple[int, bool], tuple[list[int], list[int]]] = {}

    def covers(self, space: int, start: int, end: int, *, writes: bool, base: int) -> bool:
        """Whether recorded ranges together hold [start, end). O(1) mostly, else O(log n) after a
        sort. `base` is where the recorded range probably starts.
        """
        known = self.exact.get(base * SPACES + space)
        if known is not None and end <= known[0] and (known[1] or not writes) and base <= start:
            return True
        merged = self._merged.get((space, writes))
        if merged is None:
            merged = self._merged[space, writes] = self._merge(space, writes=writes)
        starts, ends = merged
        i = bisect_right(starts, start) - 1
        return start >= end or (i >= 0 and end <= ends[i])

    def _merge(self, space: int, *, writes: bool) -> tuple[list[int], list[int]]:
        starts: list[int] = []
        ends: list[int] = []
        ranges = [(a[1], a[2]) for a in self._accesses if a[0] == space and (a[3] or not writes)]
        for start, end in sorted(ranges):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        return starts, ends
