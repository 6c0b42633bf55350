"""The device's own account of what happened: records, their JSON lines, and a hash over all of
them.

Records appear in host order for calls and in device order for execution. Happens-before is
decided by `Enqueue`, `Record`, `WaitEvent`, `Observe`, `TransferBegin` and `TransferEnd` alone;
`Start`, `Effect` and `End` tell when things really ran and what they really touched.

An access inside a record is a tuple `(space, start, end, writes)`, bytes. Records are tuples too,
for speed: `Start(3) == End(3)`, so whoever compares records compares their types first.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
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
    """The host has seen the transfer end. `status` is a `TransferStatus`: done, failed or
    cancelled.
    """

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


_PACKED_AT_ONCE = 256
# Packing n accesses in one struct call is twice as fast as any other way; the structs are made on
# first need.
_ACCESS_STRUCTS: Final[dict[int, Struct]] = {}


def _pack_accesses(accesses: tuple[Access, ...]) -> bytes:
    count = len(accesses)
    if count > _PACKED_AT_ONCE:
        return array("q", chain.from_iterable(accesses)).tobytes()
    packing = _ACCESS_STRUCTS.get(count)
    if packing is None:
        packing = _ACCESS_STRUCTS[count] = Struct(f"={4 * count}q")
    return packing.pack(*chain.from_iterable(accesses))


def _packer(kind: type[Any], tag: int) -> Callable[..., bytes]:
    """Unambiguous bytes of one record: tag and numbers, then counted accesses, then a counted
    label.

    Takes the record's fields as arguments.
    """
    if kind not in _WITH_ACCESSES:
        return partial(Struct(f"={1 + len(kind._fields)}q").pack, tag)
    head = Struct("=5q").pack

    if kind is Enqueue:

        def pack_enqueue(
            op: int, stream: int, work_kind: int, label: str, accesses: tuple[Access, ...]
        ) -> bytes:
            text = label.encode()
            first = head(tag, op, stream, work_kind, len(accesses))
            return first + _pack_accesses(accesses) + len(text).to_bytes(8, "little") + text

        return pack_enqueue

    def pack_with_accesses(number: int, second: int, accesses: tuple[Access, ...]) -> bytes:
        return head(tag, number, second, 0, len(accesses)) + _pack_accesses(accesses)

    return pack_with_accesses


_PACKERS: Final[dict[type[Any], Callable[..., bytes]]] = {
    kind: _packer(kind, tag) for tag, kind in enumerate(RECORD_TYPES)
}


class Trace:
    """Collects the records of one device: hashes them, hands them to subscribers, keeps them if
    asked.

    One thread emits. Subscribers run inside `emit`, in the order in which they subscribed, and
    must not call the device. Cost of a record nobody reads: about 1 us, plus 0.1 us for each
    access.
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
        buffer += _PACKERS[kind](*record)
        if len(buffer) >= _FLUSH_BYTES:
            self._hash.update(buffer)
            buffer.clear()
        if self._keep:
            self.records.append(record)
        for callback in self._by_type[kind]:
            callback(record)

    def digest(self) -> str:
        """32 hex digits over everything emitted so far; equal traces and only those have equal
        digests.
        """
        self._hash.update(self._buffer)
        self._buffer.clear()
        return self._hash.hexdigest()


def to_json_line(record: TraceRecord) -> str:
    """One record as JSON, one line without its newline: `["Record",3,0]`, fields in order."""
    return json.dumps([type(record).__name__, *record], separators=(",", ":"))


def json_lines(trace: Trace) -> Iterator[str]:
    """A kept trace as lines: a header with version and stream names, then one line a record."""
    header = {"onearena_trace": TRACE_VERSION, "streams": trace.stream_names}
    yield json.dumps(header, separators=(",", ":"))
    for record in trace.records:
        yield to_json_line(record)


def read_json_lines(lines: Iterable[str]) -> Trace:
    """A trace back from its lines, with records, stream names and digest.

    Raises `UsageError` naming the line and what is wrong with it.
    """
    numbered = enumerate(lines, start=1)
    trace = Trace(keep=True)
    _, first = next(numbered, (1, ""))
    trace.stream_names = _read_header(_parsed(first, 1))
    for number, line in numbered:
        trace.emit(_read_record(_parsed(line, number), number))
    return trace


def _parsed(line: str, number: int) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(f"trace line {number}", line, "give one JSON value a line") from None


def _read_header(value: object) -> list[str]:
    if not isinstance(value, dict) or value.get("onearena_trace") != TRACE_VERSION:
        fix = f'start the trace with {{"onearena_trace": {TRACE_VERSION}, "streams": [...]}}'
        raise UsageError("trace line 1", value, fix)
    names = value.get("streams")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError("trace line 1, streams", names, "give a list of stream names")
    return names


_BY_NAME: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in RECORD_TYPES}
_INT64_MAX: Final = (1 << 63) - 1


def _is_int64(value: object) -> bool:
    return type(value) is int and -_INT64_MAX - 1 <= value <= _INT64_MAX


def _read_record(value: object, number: int) -> TraceRecord:
    where = f"trace line {number}"
    kind = None
    if isinstance(value, list) and value and isinstance(value[0], str):
        kind = _BY_NAME.get(value[0])
    if kind is None or not isinstance(value, list):
        raise UsageError(where, value, f"start with one of {', '.join(_BY_NAME)}")
    names = kind._fields
    if len(value) != 1 + len(names):
        raise UsageError(where, value, f"give {value[0]} the fields {', '.join(names)}")
    fields: list[object] = []
    for name, field in zip(names, value[1:], strict=True):
        if name == "accesses":
            fields.append(_read_accesses(field, where))
        elif name == "label":
            if not isinstance(field, str):
                raise UsageError(f"{where}, {name}", field, "give a text")
            fields.append(field)
        elif _is_int64(field):
            fields.append(field)
        else:
            raise UsageError(f"{where}, {name}", field, "give a 64-bit integer")
    record: TraceRecord = kind(*fields)
    return record


def _read_accesses(value: object, where: str) -> tuple[Access, ...]:
    # Here, not at the top: the interface imports this file for its own types.
    from onearena.core.device.interface import Access, Space

    if not isinstance(value, list):
        raise UsageError(f"{where}, accesses", value, "give a list")
    accesses: list[Access] = []
    for item in value:
        right = isinstance(item, list) and len(item) == 4 and type(item[3]) is bool
        if not right or not all(_is_int64(field) for field in item[:3]):
            fix = "give [space, start, end, true if it writes]"
            raise UsageError(f"{where}, accesses", item, fix)
        if item[0] not in Space._value2member_map_ or item[1] > item[2]:
            raise UsageError(f"{where}, accesses", item, "give a known space and start <= end")
        accesses.append(Access(Space(item[0]), item[1], item[2], item[3]))
    return tuple(accesses)
