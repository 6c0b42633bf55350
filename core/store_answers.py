"""What `Store` answers: handouts, releases, retreats, frozen views; and its error texts.

Handouts and releases keep the kernel's output as it came and decode it when asked: most callers
look at a part of it, and a call has a few microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from onearena.core.band import Int64s
from onearena.core.geometry import ArenaGeometry
from onearena.core.words import (
    A_EPOCH,
    FREE_LOG,
    FREE_PENDING,
    FREE_RELEASED,
    FREE_RETREATS,
    Code,
    Words,
    band_header,
)


class Handout:
    """Units handed out, in chain order and within a band in the order they were taken."""

    __slots__ = ("_out", "size")

    def __init__(self, out: Int64s, size: int) -> None:
        self._out = out
        self.size = size
        """Units in all bands together."""

    def __repr__(self) -> str:
        return f"Handout(ids={self.ids.tolist()}, units={self.units.tolist()})"

    @property
    def ids(self) -> Int64s:
        """int64[size]: virtual ids, band by band as in the demand."""
        return self._out[: self.size]

    @property
    def units(self) -> Int64s:
        """int64[size]: the physical units of `ids`."""
        return self._out[self.size :]


class Retreat(NamedTuple):
    """Units ``[start_unit, end_unit)`` that a retreating frontier left outside band ``band``."""

    band: int
    start_unit: int
    end_unit: int


class Freed:
    """What a free released. Decoded only when asked for: most callers ignore most of it."""

    __slots__ = ("_out", "_size")

    def __init__(self, out: Int64s, size: int) -> None:
        self._out = out
        self._size = size

    def __repr__(self) -> str:
        return (
            f"Freed(ids={self.ids.tolist()}, units={self.units.tolist()}, "
            f"pending_units={self.pending_units}, retreats={self.retreats})"
        )

    def _tail(self, field: int) -> int:
        return int(self._out[2 * self._size + field])

    @property
    def ids(self) -> Int64s:
        """int64[released]: ids that lost their last reference, in the order of the argument."""
        return self._out[: self._tail(FREE_RELEASED)]

    @property
    def units(self) -> Int64s:
        """int64[released]: the units that `ids` had."""
        return self._out[self._size : self._size + self._tail(FREE_RELEASED)]

    @property
    def pending_units(self) -> int:
        """How many of `units` wait for a blocker; the others are holes or beyond a frontier."""
        return self._tail(FREE_PENDING)

    @property
    def retreats(self) -> tuple[Retreat, ...]:
        """Units that left their band: at most two ranges a band."""
        start = 2 * self._size + FREE_LOG
        return decode_retreats(self._out[start : start + 3 * self._tail(FREE_RETREATS)].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenView:
    """Header words (counts, frontiers) of one epoch, and the live tables they belong to.

    A plan made on it is valid while the store's epoch is ``epoch``. ``headers`` is an immutable
    copy, O(bands); ``words`` are the store's own, for kernels that read bitmaps.
    """

    epoch: int
    geometry: ArenaGeometry
    headers: Int64s
    words: Words

    @property
    def is_current(self) -> bool:
        """Whether no call has changed the store since."""
        return int(self.words[A_EPOCH]) == self.epoch

    def field(self, band: int, field: int) -> int:
        """One word (`words.B_*`) of a band's header at that epoch."""
        return int(self.headers[band_header(band) + field])


def decode_retreats(log: list[int]) -> tuple[Retreat, ...]:
    """The retreat log of a kernel: triples (band, start unit, end unit)."""
    return tuple(Retreat(*log[at : at + 3]) for at in range(0, len(log), 3))


ID_TEXTS = {
    Code.SINK_ID: "is a padding sink, which is never allocated, shared or freed",
    Code.NEGATIVE_ID: "is negative; ids are positive, and padding uses the sink's id",
    Code.FOREIGN_ARENA: "belongs to another arena",
    Code.FOREIGN_BAND: "names a band this arena does not have",
    Code.NEVER_ALLOCATED: "was never handed out",
    Code.STALE_ID: "is stale: it was freed and its index has been handed out again",
    Code.DOUBLE_FREE: "has no reference left: it was freed already",
    Code.TOO_MANY_REFERENCES: "has as many references as can be counted",
}

UNIT_TEXTS = {
    Code.BAD_BAND: "names a band this arena does not have",
    Code.BAD_UNIT: "lies outside the band's grid in the arena",
    Code.NOT_LIVE: "is not in use; only a unit that was handed out can be named here",
    Code.UNDER_TRANSFER: "is under a transfer and fixed until its end is seen",
    Code.PINNED: "is pinned and may not move now",
    Code.QUARANTINED: "is quarantined until its connection is torn down",
    Code.DUPLICATE_UNIT: "is named twice in one call",
    Code.TARGET_NOT_FREE: "is not free; a move goes to a hole or beyond a frontier",
    Code.BEYOND_LIMIT: "lies beyond what the neighbouring bands leave",
    Code.COUNT_UNDERFLOW: "has no such use left to end",
    Code.COUNT_OVERFLOW: "has as many uses as can be counted",
    Code.NOT_RELEASED: "is neither pending nor vacated",
    Code.HAS_BEEN_WRITTEN: "has been written: a move must copy it",
    Code.BAD_COUNT: "(use counts change by one at a time)",
}
