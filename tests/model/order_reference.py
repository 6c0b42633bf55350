"""A slow, obvious answer to the order oracle's question, with none of its code.

Happens-before is a graph, written out edge by edge; who comes before whom is its transitive
closure, one bitset a node. Every access is compared with every earlier one, and bytes are bits of
an integer. For small traces and small addresses only: time and memory grow with their squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onearena.core.device.interface import OpKind, Space
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TraceRecord,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.rules import UseKind

LOWEST_BYTES = -4_096
"""No address in a trace given to the reference may be below this."""


@dataclass(frozen=True)
class Finding:
    """One race, in the reference's own form; `cell` is (table, row, column, what is due)."""

    later: tuple[int, int]
    earlier: tuple[int, int]
    space: int
    start_bytes: int
    end_bytes: int
    rule: str
    cell: tuple[str, str, str, str] | None
    edge: tuple[str, int | None, int, int | None, int, int | None]


@dataclass(frozen=True)
class Unrecorded:
    """A wait for, or a sight of, an event that was not recorded before."""

    index: int
    event: int


@dataclass(frozen=True)
class _Use:
    node: int
    index: int
    position: int
    number: int
    kind: int
    stream: int | None
    space: int
    mask: int
    writes: bool


def findings(
    records: Sequence[TraceRecord],
    exempt: Mapping[Space, Sequence[tuple[int, int]]],
) -> list[Finding | Unrecorded]:
    """All races (one a later access, with its latest partner) and unrecorded events, in order."""
    kinds = (Enqueue, Record, WaitEvent, Observe, TransferBegin, TransferEnd)
    order = [record for record in records if isinstance(record, kinds)]
    before, unrecorded = _happens_before(order)
    uses = _uses(order, exempt)
    found: list[Finding | Unrecorded] = list(unrecorded)
    for place, later in enumerate(uses):
        for earlier in reversed(uses[:place]):
            if earlier.index == later.index or earlier.space != later.space:
                continue
            shared = earlier.mask & later.mask
            if not shared or not (earlier.writes or later.writes):
                continue
            if before[later.node] >> earlier.node & 1:
                continue
            found.append(_finding(order, earlier, later, shared))
            break
    return sorted(
        found, key=lambda item: item.later if isinstance(item, Finding) else (item.index,)
    )


def _happens_before(order: Sequence[TraceRecord]) -> tuple[list[int], list[Unrecorded]]:
    """The closure: bit m of entry n says that node m comes before node n.

    Record i has two nodes: 2i is the host making the call, 2i + 1 what the call puts on the device.
    """
    edges: list[list[int]] = [[] for _ in range(2 * len(order))]
    tail: dict[int, int] = {}
    event_node: dict[int, int] = {}
    transfer_node: dict[int, int] = {}
    unrecorded: list[Unrecorded] = []
    for index, record in enumerate(order):
        host, device = 2 * index, 2 * index + 1
        if index:
            edges[host].append(host - 2)
        edges[device].append(host)
        if isinstance(record, Enqueue):
            if record.stream in tail:
                edges[device].append(tail[record.stream])
            tail[record.stream] = device
        elif isinstance(record, Record):
            if record.stream in tail:
                edges[device].append(tail[record.stream])
            event_node[record.event] = device
        elif isinstance(record, WaitEvent):
            if record.event not in event_node:
                unrecorded.append(Unrecorded(index, record.event))
                continue
            edges[device].append(event_node[record.event])
            if record.stream in tail:
                edges[device].append(tail[record.stream])
            tail[record.stream] = device
        elif isinstance(record, Observe):
            if record.event not in event_node:
                unrecorded.append(Unrecorded(index, record.event))
                continue
            edges[host].append(event_node[record.event])
        elif isinstance(record, TransferBegin):
            transfer_node[record.transfer] = device
        elif isinstance(record, TransferEnd):
            edges[host].append(transfer_node[record.transfer])
    before: list[int] = []
    for sources in edges:  # every edge goes from a lower node to a higher one
        closure = 0
        for source in sources:
            closure |= before[source] | 1 << source
        before.append(closure)
    return before, unrecorded


def _uses(
    order: Sequence[TraceRecord], exempt: Mapping[Space, Sequence[tuple[int, int]]]
) -> list[_Use]:
    uses = []
    for index, record in enumerate(order):
        if not isinstance(record, Enqueue | TransferBegin):
            continue
        number = record.op if isinstance(record, Enqueue) else record.transfer
        stream = record.stream if isinstance(record, Enqueue) else None
        for position, (space, start, end, writes) in enumerate(record.accesses):
            mask = _bits(start, end)
            for exempt_start, exempt_end in exempt.get(space, ()):
                mask &= ~_bits(max(exempt_start, LOWEST_BYTES), max(exempt_end, LOWEST_BYTES))
            uses.append(
                _Use(
                    node=2 * index + 1,
                    index=index,
                    position=position,
                    number=number,
                    kind=record.kind,
                    stream=stream,
                    space=space,
                    mask=mask,
                    writes=writes,
                )
            )
    return uses


def _bits(start: int, end: int) -> int:
    assert LOWEST_BYTES <= start <= end, f"[{start}, {end}) is not for the reference"
    return ((1 << (end - start)) - 1) << (start - LOWEST_BYTES)


def _finding(order: Sequence[TraceRecord], earlier: _Use, later: _Use, shared: int) -> Finding:
    lowest = (shared & -shared).bit_length() - 1
    run = shared >> lowest
    length = (~run & (run + 1)).bit_length() - 1  # position of the lowest zero
    rule, cell = _rule(earlier, later)
    return Finding(
        later=(later.index, later.position),
        earlier=(earlier.index, earlier.position),
        space=later.space,
        start_bytes=lowest + LOWEST_BYTES,
        end_bytes=lowest + LOWEST_BYTES + length,
        rule=rule,
        cell=cell,
        edge=_edge(order, earlier, later),
    )


def _rule(earlier: _Use, later: _Use) -> tuple[str, tuple[str, str, str, str] | None]:
    """Rules 6, 7 and 9, case by case."""
    if later.space in (Space.TABLE, Space.BUFFER):
        return "9", None
    by_transfer, after_transfer = later.stream is None, earlier.stream is None
    if after_transfer:
        due = "host has seen it end"
        if not later.writes and not by_transfer:
            due = "host has seen it end, then launch"
    elif by_transfer and later.writes:
        due = "retired before the range is published"
    elif by_transfer:
        due = "host has seen it end"
    else:
        due = "nothing on the same stream, else event"
    table = "writer" if later.writes else "reader"
    return "7" if by_transfer else "6", (table, _word(later.kind), _word(earlier.kind), due)


def _word(kind: int) -> str:
    words = {int(member): member.name.lower() for member in (*UseKind, *OpKind)}
    return words[kind]


def _edge(
    order: Sequence[TraceRecord], earlier: _Use, later: _Use
) -> tuple[str, int | None, int, int | None, int, int | None]:
    need = "retire" if later.stream is None else "event"
    nearest = None
    if earlier.stream is None:
        need = "transfer_end"
    else:
        span = list(enumerate(order))[earlier.index : later.index]
        for index, record in span:
            if not isinstance(record, Record) or record.stream != earlier.stream:
                continue
            again = any(
                isinstance(other, Record) and other.event == record.event and place > index
                for place, other in span
            )
            if not again:
                nearest = record.event
                break
    return need, earlier.stream, earlier.number, later.stream, later.number, nearest
