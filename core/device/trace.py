"""The device's own account of what happened: records, their JSON lines, and a hash over all of them.

Records appear in host order for calls and in device order for execution. Happens-before is decided by
`Enqueue`, `Record`, `WaitEvent`, `Observe`, `TransferBegin` and `TransferEnd` alone; `Start`, `Effect` and
`End` tell when things really ran and what they really touched.

An access inside a record is a tuple `(space, start, end, writes)`, bytes.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from onearena.core.errors import UsageError

if TYPE_CHECKING:
    from onearena.core.device.interface import Access

TRACE_VERSION: Final = 1


class Enqueue(NamedTuple):
    """The host put `op` on `stream`. `accesses` is what the host recorded that it touches."""

    op: int
    stream: int
    kind: int
    label: str
    accesses: tuple[Access, ...]


class Record(NamedTuple):
    """`event` marks everything enqueued on `stream` so far."""

    event: int
    stream: int


class WaitEvent(NamedTuple):
    """What is enqueued on `stream` later runs after `event`."""

    stream: int
    event: int


class Observe(NamedTuple):
    """The host has seen `event` complete: its later calls, and what they enqueue, are after it."""

    event: int


class TransferBegin(NamedTuple):
    """The peer may access from now on. Transfers and ops share one numbering."""

    transfer: int
    kind: int
    accesses: tuple[Access, ...]


class TransferEnd(NamedTuple):
    """The host has seen the transfer end. `status` is a `TransferStatus`: done, failed or cancelled."""

    transfer: int
    status: int


class Start(NamedTuple):
    """`op` (or transfer) begins to run."""

    op: int


class Effect(NamedTuple):
    """`op` (or transfer) touches bytes: effect number `piece`, counted from 0 in each op."""

    op: int
    piece: int
    accesses: tuple[Access, ...]


class End(NamedTuple):
    """`op` (or transfer) touches nothing any more."""

    op: int


TraceRecord: TypeAlias = (
    Enqueue | Record | WaitEvent | Observe | TransferBegin | TransferEnd | Start | Effect | End
)

RECORD_TYPES: Final[tuple[type[Any], ...]] = (
    Enqueue,
    Record,
    WaitEvent,
    Observe,
    TransferBegin,
    TransferEnd,
    Start,
    Effect,
    End,
)
"""In the order of their tags in the hash: append only."""

_WITH_ACCESSES: Final = (Enqueue, TransferBegin, Effect)
_FLUSH_BYTES: Final = 1 << 16


def _packer(kind: type[Any], tag: int) -> Callable[[Any], bytes]:
    """Unambiguous bytes of one record: tag and numbers, then counted accesses, then a counted label."""
    if kind not in _WITH_ACCESSES:
        fixed = Struct(f"<{1 + len(kind._fields)}q").pack
        return lambda record: fixed(tag, *record)
    head = Struct("<5q").pack
    flat = chain.from_iterable

    if kind is Enqueue:

        def pack_enqueue(record: Enqueue) -> bytes:
            label = record.label.encode()
            accesses = array("q", flat(record.accesses)).tobytes()
            first = head(tag, record.op, record.stream, record.kind, len(accesses))
            return first + accesses + len(label).to_bytes(8, "little") + label

        return pack_enqueue

    def pack_accesses(record: TransferBegin | Effect) -> bytes:
        accesses = array("q", flat(record[2])).tobytes()
        return head(tag, record[0], record[1], 0, len(accesses)) + accesses

    return pack_accesses


_PACKERS: Final[dict[type[Any], Callable[[Any], bytes]]] = {
    kind: _packer(kind, tag) for tag, kind in enumerate(RECORD_TYPES)
}


class Trace:
    """Collects the records of one device: hashes them, hands them to subscribers, keeps them if asked.

    One thread emits. Subscribers run inside `emit`, in the order in which they subscribed, and must not
    call the device. Cost of a record nobody reads: about 1 us, plus 0.1 us for each access.
    """

    __slots__ = ("_buffer", "_by_type", "_hash", "_keep", "count", "records", "stream_names")

    def __init__(self, *, keep: bool = False) -> None:
        """With `keep`, `records` holds everything; without, memory stays constant."""
        self.count = 0
        self.records: list[TraceRecord] = []
        self.stream_names: list[str] = []
        self._keep = keep
        self._hash = hashlib.blake2b(digest_size=16)
        self._buffer = bytearray()
        self._by_type: dict[type[Any], list[Callable[[Any], object]]] = {
            kind: [] for kind in RECORD_TYPES
        }

    def subscribe(
        self, callback: Callable[[Any], object], kinds: Iterable[type[Any]] = RECORD_TYPES
    ) -> None:
        """Call `callback(record)` for every later record of these types; its answer is ignored."""
        for kind in kinds:
            self._by_type[kind].append(callback)

    def emit(self, record: TraceRecord) -> None:
        """Take the next record. The only way into the trace."""
        kind = type(record)
        self.count += 1
        buffer = self._buffer
        buffer += _PACKERS[kind](record)
        if len(buffer) >= _FLUSH_BYTES:
            self._hash.update(buffer)
            buffer.clear()
        if self._keep:
            self.records.append(record)
        for callback in self._by_type[kind]:
            callback(record)

    def digest(self) -> str:
        """32 hex digits over everything emitted so far; equal traces and only those have equal digests."""
        self._hash.update(self._buffer)
        self._buffer.clear()
        return self._hash.hexdigest()


def to_json_line(record: TraceRecord) -> str:
    """One record as one line of JSON, without the newline: `["Record",3,0]`, fields in their order."""
    return json.dumps([type(record).__name__, *record], separators=(",", ":"))


def json_lines(trace: Trace) -> Iterator[str]:
    """A kept trace as lines: a header with version and stream names, then one line a record."""
    header = {"onearena_trace": TRACE_VERSION, "streams": trace.stream_names}
    yield json.dumps(header, separators=(",", ":"))
    for record in trace.records:
        yield to_json_line(record)
