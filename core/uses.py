"""Plain data an arena hands to its callers: grants and recorded uses."""

from __future__ import annotations

from dataclasses import dataclass

from onearena.core.device.interface import Access, StreamId
from onearena.core.rules import UseKind

ByteSpan = tuple[int, int, int]
"""(id, start, end): the bytes an id occupies, arena-relative (of a host id: in the host tier)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Ids handed out, one tuple a band in chain order."""

    ids: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A recorded use: what was resolved, and where.

    `stream` is -1 for a transfer. `buffer` is the slot that device-side translation fills for a
    forward (-1: none): it lists the byte ranges of `reads`, then of `writes`, in this order, so a
    forward's touch of `writes[j]` has entry `len(reads) + j`. `accesses` is everything the use was
    recorded with, the buffer slot included: work launched for it carries exactly these.
    """

    serial: int
    kind: UseKind
    stream: StreamId
    reads: tuple[ByteSpan, ...] = ()
    writes: tuple[ByteSpan, ...] = ()
    host_reads: tuple[ByteSpan, ...] = ()
    host_writes: tuple[ByteSpan, ...] = ()
    buffer: int = -1
    accesses: tuple[Access, ...] = ()
    peer: int = -1
