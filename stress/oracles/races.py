"""What the order oracle says: two accesses, the bytes both touch, the missing edge, the words.

Rule 6 has two tables. Here they are written down again, from the rule, so that a wrong cell in the
product's own tables cannot hide from its check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from onearena.core.device.interface import OpKind, Space
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import ByteRange, Plain, UnitName, Violation

Need = Literal["event", "retire", "transfer_end"]
"""What would have ordered the pair: a stream's wait, the host seeing an event, the host seeing an
end.
"""


@dataclass(frozen=True, slots=True)
class Party:
    """One of the two accesses.

    `index` counts the records that bear on order (enqueue, record, wait, observe, transfer begin
    and end) from 0; `position` is the access's place among those of its operation or transfer.
    `stream` is None for a transfer. `start_bytes` and `end_bytes` are the access's own range.
    """

    index: int
    position: int
    number: int
    kind: int
    label: str
    stream: int | None
    writes: bool
    start_bytes: int
    end_bytes: int

    @property
    def name(self) -> str:
        """`op 17` or `transfer 3`."""
        return f"{'op' if self.stream is not None else 'transfer'} {self.number}"

    def describe(self, space: Space) -> str:
        """One line: what did it, where it was put, and what it touches."""
        label = f" '{self.label}'" if self.label else ""
        place = f"on stream {self.stream}" if self.stream is not None else "ordered by no stream"
        verb = "writes" if self.writes else "reads"
        extent = ByteRange(space_name(space), self.start_bytes, self.end_bytes)
        return f"#{self.index} {self.name} ({kind_name(self.kind)}{label}, {place}) {verb} {extent}"

    def plain(self) -> dict[str, Plain]:
        """The JSON form."""
        return {
            "index": self.index,
            "position": self.position,
            "number": self.number,
            "kind": kind_name(self.kind),
            "label": self.label,
            "stream": self.stream,
            "writes": self.writes,
            "start_bytes": self.start_bytes,
            "end_bytes": self.end_bytes,
        }


@dataclass(frozen=True, slots=True)
class MissingEdge:
    """The order that nothing establishes, and what would.

    `from_stream` and `to_stream` are None where that side is a transfer. `nearest_event` is the
    event recorded first on `from_stream` at or after the earlier operation, if one has been by the
    time of the later access; None if none has, or where no event can help.
    """

    need: Need
    from_stream: int | None
    from_number: int
    to_stream: int | None
    to_number: int
    nearest_event: int | None

    def words(self) -> str:
        """The edge as a sentence."""
        target = f"op {self.to_number} is put on stream {self.to_stream}"
        if self.to_stream is None:
            target = f"transfer {self.to_number} is published"
        if self.need == "transfer_end":
            return f"the host must see transfer {self.from_number} end before {target}"
        nearest = "none is recorded yet"
        if self.nearest_event is not None:
            nearest = f"the nearest recorded is event {self.nearest_event}"
        source = f"an event recorded on stream {self.from_stream} at or after op {self.from_number}"
        if self.need == "retire":
            return f"the host must see {source} before {target} ({nearest})"
        return (
            f"stream {self.to_stream} must wait for {source} before op {self.to_number} ({nearest})"
        )

    def fix(self) -> str:
        """The call that was left out, as a person would write it."""
        before = f"before {'op' if self.to_stream is not None else 'transfer'} {self.to_number}"
        if self.need == "transfer_end":
            return f"see transfer_status({self.from_number}) final {before}"
        event = f"event {self.nearest_event}"
        record = ""
        if self.nearest_event is None:
            event = "it"
            record = f"record an event on stream {self.from_stream} after op {self.from_number}; "
        if self.need == "retire":
            return f"{record}see query({event}) answer True {before}"
        return f"{record}wait(stream {self.to_stream}, {event}) {before}"

    def plain(self) -> dict[str, Plain]:
        """The JSON form."""
        return {
            "need": self.need,
            "from_stream": self.from_stream,
            "from_number": self.from_number,
            "to_stream": self.to_stream,
            "to_number": self.to_number,
            "nearest_event": self.nearest_event,
        }


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses that touch the same bytes, one of them writing, with no order between them.

    `start_bytes` and `end_bytes` bound the lowest run of bytes that both touch (exempt bytes left
    out).
    """

    earlier: Party
    later: Party
    space: Space
    start_bytes: int
    end_bytes: int
    edge: MissingEdge

    @property
    def rule(self) -> str:
        """The lifecycle rule: 9 for the id table and its copies, 7 for publishing, else 6."""
        if self.space in (Space.TABLE, Space.BUFFER):
            return "9"
        return "7" if self.later.stream is None else "6"

    @property
    def cell(self) -> tuple[str, str, str, str] | None:
        """The broken cell of rule 6: table, row, column, what it asks. None under rule 9."""
        if self.rule == "9":
            return None
        table = "writer" if self.later.writes else "reader"
        row, column = kind_name(self.later.kind), kind_name(self.earlier.kind)
        to_transfer, from_transfer = self.later.stream is None, self.earlier.stream is None
        return table, row, column, CELLS[table][to_transfer][from_transfer]

    def violation(self, oracle: str, unit: UnitName | None = None) -> Violation:
        """The report."""
        extent = ByteRange(space_name(self.space), self.start_bytes, self.end_bytes)
        cell = self.cell
        why = "the id table and its resolved copies are uses too"
        if cell is not None:
            verb = "next writer" if cell[0] == "writer" else "reader"
            earlier = "earlier use" if cell[0] == "writer" else "write"
            why = f"{verb} {cell[1]}, {earlier} {cell[2]}: {cell[3]}"
        return Violation(
            oracle=oracle,
            rule=self.rule,
            message=(
                f"{self.later.name} is not ordered after {self.earlier.name} on {extent} ({why}). "
                f"Missing: {self.edge.words()}."
            ),
            unit=unit,
            bytes=extent,
            events=(
                self.earlier.describe(self.space),
                self.later.describe(self.space),
                f"would have ordered them: {self.edge.fix()}",
            ),
            details={
                "earlier": self.earlier.plain(),
                "later": self.later.plain(),
                "edge": self.edge.plain(),
                "cell": None if cell is None else list(cell),
            },
        )


CELLS: Final[dict[str, dict[bool, dict[bool, str]]]] = {
    "writer": {
        False: {
            False: "nothing on the same stream, else event",
            True: "host has seen it end",
        },
        True: {
            False: "retired before the range is published",
            True: "host has seen it end",
        },
    },
    "reader": {
        False: {
            False: "nothing on the same stream, else event",
            True: "host has seen it end, then launch",
        },
        True: {
            False: "host has seen it end",
            True: "host has seen it end",
        },
    },
}
"""Rule 6: table -> the later is a transfer -> the earlier is a transfer -> what is due."""


def missing_edge(earlier: Party, later: Party, nearest_event: int | None) -> MissingEdge:
    """The edge that would have ordered `later` after `earlier`."""
    need: Need = "event"
    if earlier.stream is None:
        need = "transfer_end"
    elif later.stream is None:
        need = "retire"
    return MissingEdge(
        need=need,
        from_stream=earlier.stream,
        from_number=earlier.number,
        to_stream=later.stream,
        to_number=later.number,
        nearest_event=nearest_event if need != "transfer_end" else None,
    )


def kind_name(kind: int) -> str:
    """The lower-case word for a `UseKind` or `OpKind` value; "kind N" for any other N."""
    for names in (UseKind, OpKind):
        try:
            return names(kind).name.lower()
        except ValueError:
            continue
    return f"kind {kind}"


def space_name(space: int) -> str:
    """The lower-case word for a `Space` value."""
    return Space(space).name.lower()
