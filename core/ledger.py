"""The page-use ledger: every use of every unit, and who has to wait for what.

Time on a stream is a ticket: the n-th use recorded on it has ticket n. Since a stream runs in
order, "stream w has waited for ticket t of stream s" covers all earlier tickets of s, and waits
imply waits: the ledger keeps a vector clock per stream (`known[w][s]`), so it asks for a wait only
where none is implied yet.

Per unit it keeps the latest read and the latest write on each stream, plus every transfer (rule 8);
memory is bounded by streams and units, never by forwards in flight. The ledger holds no device: it
says which events to wait for and the arena makes the waits. One control thread.

A *domain* is a set of rows: one per device band, then one per host band, then the buffer slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.answers import BlockReason
from onearena.core.errors import MisuseError
from onearena.core.fences import Fence, Fences
from onearena.core.rules import (
    READER_WAITS,
    TRANSFER_KINDS,
    WRITER_WAITS,
    UseKind,
    Wait,
)
from onearena.core.snapshot import UseSnapshot

Units = NDArray[np.int64]
Touch = tuple[int, Units]  # (domain, units)

STREAMS_MAX: Final = 16
OUTSTANDING_MAX: Final = 1 << 12  # uses of one stream that may be unretired; a power of two
NO_UNITS: Final[Units] = np.zeros(0, np.int64)


@dataclass(slots=True)
class UseRecord:
    """One use, from its recording until it is retired. `event` is None until its work is
    enqueued.
    """

    serial: int
    kind: UseKind
    stream: int
    ticket: int
    reads: tuple[Touch, ...]
    writes: tuple[Touch, ...]
    event: int | None = None
    clock: list[int] = field(default_factory=list)
    processed: bool = False
    ended: bool = False
    seen: UseSnapshot | None = None  # its plain form, once a snapshot was taken


@dataclass(frozen=True, slots=True)
class Needs:
    """What a use has to wait for: events by (stream, ticket), and units the host has to see
    finished first.
    """

    waits: tuple[tuple[int, int], ...]
    blockers: tuple[tuple[int, int, BlockReason], ...]  # (domain, unit, 'use' | 'transfer')


def _vectors(table: dict[UseKind, dict[UseKind, Wait]]) -> dict[UseKind, Units]:
    """The rows of a table as the kernels read them, indexed by kind."""
    return {
        kind: np.array([row[earlier] for earlier in UseKind], np.int64)
        for kind, row in table.items()
    }


# Made once, from the tables and nothing else.
_TABLES: Final = (
    (True, READER_WAITS, _vectors(READER_WAITS)),
    (False, WRITER_WAITS, _vectors(WRITER_WAITS)),
)


class Ledger:
    """Uses, vector clocks, fences and watchers of one arena (control thread only)."""

    def __init__(self, rows: Sequence[int], *, schedule_stream: int) -> None:
        self.schedule_stream = schedule_stream
        self.streams = 0
        self.last = [np.zeros((count, 2 * STREAMS_MAX), np.int64) for count in rows]
        self.tickets = np.zeros(STREAMS_MAX, np.int64)
        self.retired = np.zeros(STREAMS_MAX, np.int64)
        # settled or retired: what a unit's uses are compared with to be over
        self.over = np.zeros(STREAMS_MAX, np.int64)
        self.processed = np.zeros((STREAMS_MAX, OUTSTANDING_MAX), np.uint8)
        self.known = [[0] * STREAMS_MAX for _ in range(STREAMS_MAX)]
        # what the host's own observations imply, transitively: whatever it enqueues now is after
        # that
        self.host_known = np.zeros(STREAMS_MAX, np.int64)
        self.uses: dict[tuple[int, int], UseRecord] = {}  # stream-ordered, by (stream, ticket)
        self.transfers: dict[int, UseRecord] = {}  # by serial
        self.transfer_units: dict[tuple[int, int], list[UseRecord]] = {}
        self.fences = Fences()
        # Bytes in bands whose rows inherited uses from fences: should their unit leave its band
        # again, those uses go back to these bytes, not to all of the unit's.
        self.inherited = Fences()
        # stream -> ticket -> units that wait for it
        self._watch: dict[int, dict[int, list[Touch]]] = {}
        self._serial = 0
        self.open_use: UseRecord | None = None
        self.require_stream(schedule_stream)

    def require_stream(self, stream: int) -> None:
        """Make room for `stream` (numbers are small and dense)."""
        if not 0 <= stream < STREAMS_MAX:
            raise MisuseError(
                f"stream {stream}: an arena orders at most {STREAMS_MAX} streams; share streams",
                argument="stream",
            )
        self.streams = max(self.streams, stream + 1)

    # -- what to wait for --------------------------------------------------------------------------

    def needs(
        self, kind: UseKind, stream: int, reads: Iterable[Touch], writes: Iterable[Touch]
    ) -> Needs:
        """Rule 6 for a use of `kind` on `stream` (-1: a transfer). Pure. O(units)."""
        blockers: list[tuple[int, int, BlockReason]] = []
        wanted = np.zeros(self.streams, np.int64)
        for touches, (writes_only, table, vectors) in zip((reads, writes), _TABLES, strict=True):
            for domain, units in touches:
                self._need_transfers(blockers, domain, units, table[kind], writes_only=writes_only)
                for_host = kernels.ledger_gather(
                    self.last[domain],
                    units,
                    self.streams,
                    writes_only,
                    vectors[kind],
                    self.host_known,
                    wanted,
                )
                if for_host:
                    self._block_unseen(blockers, domain, units, writes_only=writes_only)
        return Needs(self._uncovered(stream, wanted.tolist()), tuple(dict.fromkeys(blockers)))

    def _need_transfers(
        self,
        blockers: list[tuple[int, int, BlockReason]],
        domain: int,
        units: Units,
        row: dict[UseKind, Wait],
        *,
        writes_only: bool,
    ) -> None:
        if not self.transfer_units:
            return
        for unit in units.tolist():
            for use in self.transfer_units.get((domain, unit), ()):
                if writes_only and use.kind is UseKind.SEND:
                    continue
                if row[use.kind] is Wait.HOST and not use.ended:
                    blockers.append((domain, unit, "transfer"))

    def _block_unseen(
        self,
        blockers: list[tuple[int, int, BlockReason]],
        domain: int,
        units: Units,
        *,
        writes_only: bool,
    ) -> None:
        unfinished = np.zeros(len(units), np.int64)
        kernels.ledger_unfinished(
            self.last[domain], units, self.streams, self.host_known, unfinished
        )
        threshold = 2 if writes_only else 1
        found = units[unfinished >= threshold].tolist()
        blockers.extend((domain, unit, "use") for unit in found)

    def _uncovered(self, stream: int, wanted: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The (stream, ticket) pairs not yet known to `stream`, less those another of them
        implies.
        """
        if stream < 0:
            return ()
        known = self.known[stream]
        pairs = [
            (other, ticket)
            for other, ticket in enumerate(wanted)
            if ticket > known[other] and other != stream
        ]
        if len(pairs) < 2:
            return tuple(pairs)
        kept = []
        for pair in pairs:
            implied = any(
                self.uses[rival].clock[pair[0]] >= pair[1] for rival in pairs if rival != pair
            )
            if not implied:
                kept.append(pair)
        return tuple(kept)

    # -- recording ---------------------------------------------------------------------------------

    def note_wait(self, stream: int, other: int, ticket: int) -> int:
        """Stream `stream` waits for `ticket` of `other` now; returns the event to wait on."""
        use = self.uses[(other, ticket)]
        if use.event is None:
            raise MisuseError(
                f"use {use.serial} is recorded but not enqueued; launch it before waiting on it",
                argument="use",
            )
        known = self.known[stream]
        for s in range(self.streams):
            known[s] = max(known[s], use.clock[s])
        return use.event

    def open(
        self, kind: UseKind, stream: int, reads: tuple[Touch, ...], writes: tuple[Touch, ...]
    ) -> UseRecord:
        """Enter a use before its work is enqueued (rule 8). Its waits have been made already."""
        assert self.open_use is None, f"use {self.open_use} is recorded but not launched"
        ticket = int(self.tickets[stream]) + 1
        if ticket - int(self.retired[stream]) >= OUTSTANDING_MAX:
            raise MisuseError(
                f"stream {stream}: {OUTSTANDING_MAX} uses are outstanding; retire some first",
                argument="stream",
            )
        self.tickets[stream] = ticket
        self.processed[stream, ticket & (OUTSTANDING_MAX - 1)] = 0
        word = ticket << 3 | kind
        for domain, units in reads:
            kernels.ledger_note(self.last[domain], units, 2 * stream, word)
        for domain, units in writes:
            kernels.ledger_note(self.last[domain], units, 2 * stream + 1, word)
        self._serial += 1
        use = UseRecord(self._serial, kind, stream, ticket, reads, writes)
        self.uses[(stream, ticket)] = self.open_use = use
        return use

    def close(self, use: UseRecord, event: int) -> None:
        """The work is enqueued and `event` recorded behind it."""
        assert use is self.open_use, (use, self.open_use)
        self.open_use = None
        use.event = event
        known = self.known[use.stream]
        known[use.stream] = use.ticket
        use.clock = list(known)

    def open_transfer(
        self, kind: UseKind, reads: tuple[Touch, ...], writes: tuple[Touch, ...]
    ) -> UseRecord:
        """Enter a transfer; its units are under a transfer until `end_transfer`."""
        assert kind in TRANSFER_KINDS, kind
        assert self.open_use is None, f"use {self.open_use} is recorded but not launched"
        self._serial += 1
        use = UseRecord(self._serial, kind, -1, 0, reads, writes)
        self.transfers[use.serial] = self.open_use = use
        for domain, units in (*reads, *writes):
            for unit in units.tolist():
                self.transfer_units.setdefault((domain, unit), []).append(use)
        return use

    def close_transfer(self, use: UseRecord, transfer: int) -> None:
        """The transfer has begun under the device's number `transfer`."""
        assert use is self.open_use, (use, self.open_use)
        self.open_use = None
        use.event = transfer

    def end_transfer(self, use: UseRecord) -> None:
        """The host has seen the transfer end: it touches its units no more."""
        assert not use.ended, use
        use.ended = True
        del self.transfers[use.serial]
        for domain, units in (*use.reads, *use.writes):
            for unit in units.tolist():
                users = self.transfer_units[(domain, unit)]
                users.remove(use)
                if not users:
                    del self.transfer_units[(domain, unit)]

    # -- ends of uses ------------------------------------------------------------------------------

    def process(self, use: UseRecord) -> list[Touch]:
        """Mark a forward processed; returns units all of whose uses are over now."""
        use.processed = True
        if use.ended:
            return []
        self.processed[use.stream, use.ticket & (OUTSTANDING_MAX - 1)] = 1
        return self._over_now(use.stream, exact=use.ticket)

    def settle(self, use: UseRecord) -> None:
        """The schedule stream has waited on the use (or runs it): over for what that stream
        orders.
        """
        if use.stream == self.schedule_stream:
            self.over[use.stream] = max(int(self.over[use.stream]), use.ticket)

    def settled_units(self) -> list[Touch]:
        """Carry what the schedule stream knows into `over`; returns units whose uses are over
        now.
        """
        known = self.known[self.schedule_stream]
        released: list[Touch] = []
        for stream in range(self.streams):
            if stream != self.schedule_stream:
                self.over[stream] = max(int(self.over[stream]), known[stream])
        for stream in list(self._watch):
            released.extend(self._over_now(stream))
        return released

    def retire(self, use: UseRecord) -> list[Touch]:
        """The host has seen the use's event; returns units whose uses are over now. Erases
        fences.
        """
        assert not use.ended, use
        use.ended = True
        del self.uses[(use.stream, use.ticket)]
        np.maximum(self.host_known, use.clock, out=self.host_known)
        if use.ticket > self.retired[use.stream]:
            self.retired[use.stream] = use.ticket
            self.over[use.stream] = max(int(self.over[use.stream]), use.ticket)
            for ranges in (self.fences, self.inherited):
                if len(ranges):
                    ranges.erase_retired(self.retired.tolist())
        return self._over_now(use.stream)

    def watch(self, domain: int, units: Units) -> tuple[Units, Units]:
        """Split freed units into (over, not over); the latter are watched until `_over_now`
        reports them.

        Units under a transfer are never over; they are asked for again when the transfer ends.
        """
        if not len(units):
            return units, NO_UNITS
        blocked = np.zeros(len(units), np.int64)
        count = kernels.ledger_blockers(
            self.last[domain], units, self.streams, self.over, self.processed, blocked
        )
        if self.transfer_units:
            for i, unit in enumerate(units.tolist()):
                if (domain, unit) in self.transfer_units:
                    blocked[i] = -1
                    count += 1
        if not count:
            return units, NO_UNITS
        pending = units[blocked != 0]
        for key in np.unique(blocked[blocked > 0]).tolist():
            watchers = self._watch.setdefault(key & 0xFF, {})
            watchers.setdefault(key >> 8, []).append((domain, units[blocked == key]))
        return units[blocked == 0], pending

    def _over_now(self, stream: int, *, exact: int = 0) -> list[Touch]:
        watchers = self._watch.get(stream)
        if not watchers:
            return []
        limit = int(self.over[stream])
        tickets = sorted(t for t in watchers if t <= limit or t == exact)
        released: list[Touch] = []
        for ticket in tickets:
            for domain, units in watchers.pop(ticket):
                over, _ = self.watch(domain, units)
                if len(over):
                    released.append((domain, over))
        if not watchers:
            del self._watch[stream]
        return released

    def blocking(self, domain: int, units: Units) -> list[tuple[int, int]]:
        """The latest use per stream among those first found to keep `units` from being over.

        Settling these and asking again until there are none settles all, and none needlessly.
        """
        blocked = np.zeros(len(units), np.int64)
        kernels.ledger_blockers(
            self.last[domain], units, self.streams, self.over, self.processed, blocked
        )
        latest: dict[int, int] = {}
        for key in np.unique(blocked[blocked > 0]).tolist():
            latest[key & 0xFF] = max(latest.get(key & 0xFF, 0), key >> 8)
        return sorted(latest.items())

    def has_unfinished_write(self, domain: int, units: Units) -> NDArray[np.bool_]:
        """Per unit: whether a write of it is not retired."""
        unfinished = np.zeros(len(units), np.int64)
        kernels.ledger_unfinished(self.last[domain], units, self.streams, self.retired, unfinished)
        writes: NDArray[np.bool_] = unfinished == 2
        return writes

    # -- fences ------------------------------------------------------------------------------------

    def fence(self, domain: int, low_unit: int, high_unit: int, *, origin: int, size: int) -> None:
        """Units [low, high) left the band: fence the bytes of those with an unfinished use (rule
        5).
        """
        rows = self.last[domain][low_unit:high_unit]
        tickets = rows[:, : 2 * self.streams] >> 3
        limits = np.repeat(self.retired[: self.streams], 2)
        open_rows = (tickets > limits).any(axis=1)
        for offset in np.flatnonzero(open_rows).tolist():
            start = origin + (low_unit + offset) * size
            self._fence_unit(start, start + size, rows[offset].copy())
        if len(self.inherited):
            self.inherited.overgrow(origin + low_unit * size, origin + high_unit * size)
        rows[open_rows] = 0

    def _fence_unit(self, start: int, end: int, words: Units) -> None:
        """Fence [start, end): with the unit's own uses all of it, with inherited ones their bytes.

        What a unit inherited is older than any use of its own on the same stream, so a word that
        equals an inherited one is no use of the unit's.
        """
        parts = self.inherited.overgrow(start, end) if len(self.inherited) else []
        own = words
        if parts:
            oldest = np.max([part.words for part in parts], axis=0)
            own = np.where(words > oldest, words, 0)
        retired = self.retired.tolist()
        at = start
        for part in (*parts, None):
            after = end if part is None else part.start_bytes
            rest = Fence(at, after, own.copy())
            if at < after and rest.outstanding(retired):
                self.fences.add(at, after, rest.words)
            if part is not None:
                both = Fence(part.start_bytes, part.end_bytes, np.maximum(own, part.words))
                if both.outstanding(retired):
                    self.fences.add(both.start_bytes, both.end_bytes, both.words)
                at = part.end_bytes

    def overgrow(
        self, domain: int, low_unit: int, high_unit: int, *, origin: int, size: int
    ) -> None:
        """Units [low, high) joined the band: their next writers inherit the uses of fenced
        bytes.
        """
        if not len(self.fences):
            return
        cut: list[Fence] = self.fences.overgrow(origin + low_unit * size, origin + high_unit * size)
        for fence in cut:
            first = (fence.start_bytes - origin) // size
            last = (fence.end_bytes - 1 - origin) // size
            for unit in range(first, last + 1):
                kernels.ledger_merge(self.last[domain], unit, fence.words)
            self.inherited.add(fence.start_bytes, fence.end_bytes, fence.words.copy())
