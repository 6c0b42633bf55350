"""Who touched which bytes last, per stream, kept as runs of bytes treated alike.

For the oracles that judge states: for every byte the latest read and the latest write of each
stream, plus every transfer not ended (lifecycle rule 8 says this is enough). A touch is what the
calls and the device trace say happened; nothing here comes from the ledger of the system under
test.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

LIMIT_BYTES: Final = 1 << 62
FIRST_SWEEP_CELLS: Final = 128


class Touch(NamedTuple):
    """One access kept: `position` on `stream`.

    A transfer has stream -1, and its use's serial as position. `call` is the serial of the call
    it belongs to; `kind` the `UseKind` value.
    """

    stream: int
    position: int
    writes: bool
    kind: int
    call: int


Cell = dict[int, Touch]


class TouchMap:
    """Cells over one address space; cell i covers [bounds[i], bounds[i + 1]).

    Cost of `add` and `over`: a binary search plus the cells covered, which are at most the
    distinct ranges somebody named there.
    """

    __slots__ = ("_bounds", "_cells", "_sweep_cells")

    def __init__(self) -> None:
        self._bounds = [-LIMIT_BYTES, LIMIT_BYTES]
        self._cells: list[Cell] = [{}]
        self._sweep_cells = FIRST_SWEEP_CELLS

    @property
    def cells(self) -> int:
        """Number of cells: the memory in use."""
        return len(self._cells)

    def add(self, start: int, end: int, key: int, touch: Touch) -> None:
        """Keep `touch` for [start, end) under `key`; what was there under that key is replaced."""
        first, last = self._cut(start, end)
        cells = self._cells
        for index in range(first, last):
            cells[index][key] = touch

    def drop(self, start: int, end: int, key: int) -> None:
        """Forget the touch under `key` in [start, end)."""
        first, last = self._cut(start, end)
        cells = self._cells
        for index in range(first, last):
            cells[index].pop(key, None)

    def find(self, start: int, end: int) -> Iterator[tuple[int, int, Touch]]:
        """All touches in [start, end), low to high, with the part of the range they cover."""
        bounds, cells = self._bounds, self._cells
        index = bisect_right(bounds, start) - 1
        while bounds[index] < end:
            cell = cells[index]
            if cell:
                low, high = max(start, bounds[index]), min(end, bounds[index + 1])
                for touch in cell.values():
                    yield low, high, touch
            index += 1

    def sweep_if_large(self, is_over: Callable[[Touch], bool]) -> None:
        """Once the cells have doubled: drop touches for which `is_over`, join equal cells."""
        if len(self._cells) <= self._sweep_cells:
            return
        bounds, cells = [-LIMIT_BYTES], list[Cell]()
        for index, cell in enumerate(self._cells):
            kept = {key: touch for key, touch in cell.items() if not is_over(touch)}
            if cells and cells[-1] == kept:
                bounds[-1] = self._bounds[index + 1]
            else:
                cells.append(kept)
                bounds.append(self._bounds[index + 1])
        self._bounds, self._cells = bounds, cells
        self._sweep_cells = max(FIRST_SWEEP_CELLS, 2 * len(cells))

    def _cut(self, start: int, end: int) -> tuple[int, int]:
        """Make `start` and `end` boundaries; the cells [first, last) between them."""
        bounds = self._bounds
        first = bisect_right(bounds, start) - 1
        if bounds[first] != start:
            self._split(first, start)
            first += 1
        if bounds[first + 1] == end:
            return first, first + 1
        last = bisect_left(bounds, end, first)
        if bounds[last] != end:
            self._split(last - 1, end)
        return first, last

    def _split(self, cell: int, at: int) -> None:
        self._bounds.insert(cell + 1, at)
        self._cells.insert(cell + 1, dict(self._cells[cell]))
