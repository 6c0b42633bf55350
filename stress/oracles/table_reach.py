"""How often each cell of rule 6's two tables was put to the test: what a clean run is worth.

A pass says little if the earlier use was always over long before. So this counts, for each
operation and transfer, the cells (table, its own kind, the kind of an earlier use of the same
bytes) it had to obey:

    cell.writer.ROW.COLUMN          ROW writes what an unfinished COLUMN on another stream uses
    cell.writer.ROW.COLUMN.stream   the same, on the same stream
    cell.reader.ROW.COLUMN          ROW reads what an unfinished COLUMN wrote

*Unfinished* is the ledger's word: the host has not seen it end. Where the table asks that the host
has seen it end, a correct system never comes with an unfinished use; there the cell counts when
the bytes still bear the mark of the earlier use, and `publish.blocked` and its like tell the rest.
Marks that a later access replaced are not counted, so figures are lower bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from onearena.core.device.interface import Access, Space
from onearena.stress.oracles.clocks import Clock
from onearena.stress.oracles.intervals import IntervalShadow, Node
from onearena.stress.oracles.races import kind_name

UNIT_SPACES = (Space.ARENA, Space.HOST)


class TableReach:
    """Counts of cells by name, over one run. Cost of an access: a search and the cells covered."""

    __slots__ = ("_counts", "_met")

    def __init__(self) -> None:
        self._counts: dict[tuple[bool, int, int, bool], int] = {}
        self._met: set[tuple[bool, int, int, bool]] = set()

    def note(self, shadow: IntervalShadow, access: Access, node: Node, host: Clock) -> None:
        """One access of `node` to arena or host tier, before it is made part of the past."""
        index, _, kind, _, stream, _ = node
        _, start, end, writes = access
        for _, component, tick, earlier, _ in shadow.marks(start, end, reads=writes):
            earlier_index, _, earlier_kind, _, earlier_stream, _ = earlier
            if earlier_index == index:
                continue
            by_stream = stream is not None and earlier_stream is not None
            if by_stream and tick <= host[component]:
                continue
            self._met.add((writes, kind, earlier_kind, by_stream and stream == earlier_stream))

    def close(self) -> None:
        """The operation's accesses are all noted: each cell it met counts once."""
        for cell in self._met:
            self._counts[cell] = self._counts.get(cell, 0) + 1
        self._met.clear()

    def counts(self) -> dict[str, int]:
        """Cell name -> operations that met it, sorted by name."""
        return dict(sorted(self._named()))

    def _named(self) -> Iterator[tuple[str, int]]:
        for (writes, kind, earlier_kind, same), count in self._counts.items():
            table = "writer" if writes else "reader"
            suffix = ".stream" if same else ""
            yield f"cell.{table}.{kind_name(kind)}.{kind_name(earlier_kind)}{suffix}", count
