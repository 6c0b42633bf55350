"""The device as everyone else sees it: streams, events, enqueued work, one-sided transfers.

The shape is that of CUDA streams and events and of one-sided network writes, so that the modeled
device, threads and a GPU stand behind the same calls. Every call returns at once; none waits for
the device.

Facts every backend keeps:

* A stream runs what was enqueued on it one after the other, in order. Streams know nothing of
  each other except through `wait`.
* `record` marks everything enqueued on its stream so far, nothing enqueued later.
* A transfer is ordered by nothing: from `begin_transfer` until the host has seen its end, its
  peer may touch its bytes at any moment, in any order.
* The host knows only what it has seen: `query` and `transfer_status` are observations, and what
  was seen once stays seen.

Addresses are arena-relative bytes (0 is the first arena byte; sinks lie below it) in
`Space.ARENA`, byte offsets of the host tier in `Space.HOST`, `table_address` in `Space.TABLE`,
and `buffer_address` in `Space.BUFFER`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from onearena.core.device.trace import Trace

StreamId: TypeAlias = int
EventId: TypeAlias = int
OpId: TypeAlias = int
TransferId: TypeAlias = int

TABLE_ENTRY_BYTES: Final = 8
"""One id-table entry: the physical unit number as an int64."""

BUFFER_SLOT_BYTES: Final = 1 << 20
"""Address distance of two buffer slots; a slot holds the resolved byte ranges of one forward."""

BAND_SHIFT: Final = 26
"""A table key is `band << 26 | index`, the low bits of a virtual id; above them, its arena bits."""

POISON: Final = -1
"""Stamp of bytes that nobody may read: freed, or never handed out."""

UNDEFINED: Final = -2
"""Stamp of bytes never written, or written by something that failed half-way."""

ZERO: Final = 0
"""Stamp of zeroed bytes."""


class Space(enum.IntEnum):
    """The address spaces a use can touch. Values are part of the stored form: append only."""

    ARENA = 0
    HOST = 1
    TABLE = 2
    BUFFER = 3


class OpKind(enum.IntEnum):
    """Work that is no use of units. Its values and those of `UseKind` do not overlap."""

    TABLE_UPDATE = 16  # writes id-table entries
    TRANSLATE = 17  # reads id-table entries, writes one buffer slot


class TransferStatus(enum.IntEnum):
    """What the host can know of a transfer."""

    RUNNING = 0
    DONE = 1
    FAILED = 2
    UNKNOWN = 3  # the peer died: no end will ever be confirmed; ends only by `disconnect`
    CANCELLED = 4  # the peer acknowledged the cancel: it touches nothing any more


class Access(NamedTuple):
    """Bytes [start, end) of one space, read or written. A tuple, because there are millions."""

    space: Space
    start: int
    end: int
    writes: bool


class Touch(NamedTuple):
    """One range a forward, zeroing or transfer touches in the arena.

    `entry` is a position in the byte ranges that a translation left in the work's buffer slot;
    `start` and `end` are then relative to that range. With `entry` -1 they are arena addresses.
    `stamp` is what a write leaves there; reads ignore it.
    """

    entry: int
    start: int
    end: int
    writes: bool
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of device work, complete: a backend needs nothing else to run it.

    kind: a `UseKind` or `OpKind` value.
    accesses: what the host recorded that the work touches; ends up in the trace's `Enqueue`.
    label: for people; no decision reads it.
    touches: FORWARD, ZEROING, SEND, RECEIVE: what is really touched. Empty: the arena ranges of
        `accesses`, written with `stamp`.
    buffer: TRANSLATE fills this buffer slot; a FORWARD takes the addresses of its touches from
        it, on the device, when it runs. -1: none.
    pairs: copies (BACKUP, LOAD, MOVE, FORK): `(source, target, nbytes)`. BACKUP writes and LOAD
        reads the host space; the other side is the arena.
    entries: TABLE_UPDATE: `(table key, physical unit)`.
    keys: TRANSLATE: table keys, in the order in which the buffer slot lists their byte ranges.
    pieces: in how many parts writes and copies take effect, at least 1.
    passes: how often a FORWARD reads all it reads (start, between writes, end), at least 1.
    effects_before_failure: the work stops after this many effects and leaves what it writes
        undefined; -1: it does not fail. Only for copies between arena and host.
    peer: SEND, RECEIVE: whom `disconnect` names.
    body: a host callable that real devices run in the work's place in the stream (a torch forward).
    """

    kind: int
    accesses: tuple[Access, ...] = ()
    label: str = ""
    touches: tuple[Touch, ...] = ()
    buffer: int = -1
    pairs: tuple[tuple[int, int, int], ...] = ()
    entries: tuple[tuple[int, int], ...] = ()
    keys: tuple[int, ...] = ()
    stamp: int = ZERO
    pieces: int = 2
    passes: int = 3
    effects_before_failure: int = -1
    peer: int = 0
    body: Callable[..., Any] | None = None


class Device(Protocol):
    """What an arena and a harness call. One control thread calls; no call waits for the device.

    Unknown, released or foreign ids raise `MisuseError` with nothing changed; a device that
    failed raises `DeviceError` from every call.
    """

    trace: Trace

    def stream(self, name: str) -> StreamId:
        """The stream of that name; made at the first call. Ids count up from 0."""

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """Enqueue `work`; it runs after all enqueued on `stream` before it."""

    def record(self, stream: StreamId) -> EventId:
        """An event that completes once everything enqueued on `stream` so far has ended.

        Ids are never used twice; the events under them are pooled. Whoever gets one calls
        `release` once.
        """

    def wait(self, stream: StreamId, event: EventId) -> None:
        """What is enqueued on `stream` from now on starts after `event` completes."""

    def query(self, event: EventId) -> bool:
        """Whether the host now sees `event` complete. True is an observation, and final."""

    def release(self, event: EventId) -> None:
        """No use names `event` any more. Waits enqueued before keep their meaning."""

    def begin_transfer(self, work: Work) -> TransferId:
        """The peer may touch the transfer's bytes from now on. No stream orders it."""

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """What the host sees of the transfer now. DONE, FAILED and CANCELLED are observations,
        and final.
        """

    def cancel_transfer(self, transfer: TransferId) -> None:
        """Ask the peer to stop. The transfer goes on until it ends or the peer acknowledges."""

    def disconnect(self, peer: int) -> None:
        """Tear the connection down: afterwards no transfer of `peer` touches anything. Ends them
        all FAILED.
        """


def table_key(band: int, index: int) -> int:
    """Key of an id-table entry: the low bits of a virtual id."""
    return band << BAND_SHIFT | index


def table_address(key: int) -> int:
    """Byte address of an id-table entry in `Space.TABLE`."""
    return key * TABLE_ENTRY_BYTES


def table_access(key: int, *, writes: bool) -> Access:
    """The access to one id-table entry."""
    start = key * TABLE_ENTRY_BYTES
    return Access(Space.TABLE, start, start + TABLE_ENTRY_BYTES, writes)


def buffer_address(slot: int) -> int:
    """Byte address of a buffer slot in `Space.BUFFER`."""
    return slot * BUFFER_SLOT_BYTES


def buffer_access(slot: int, *, writes: bool) -> Access:
    """The access to one whole buffer slot."""
    start = slot * BUFFER_SLOT_BYTES
    return Access(Space.BUFFER, start, start + BUFFER_SLOT_BYTES, writes)
