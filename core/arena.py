"""`Arena`: the one object that changes anything.

Everything that changes units goes through it, and everything that touches units is recorded in its
ledger. One control thread owns an arena; calls from another raise `MisuseError`. No call waits for
the device; costs follow the units a call names and the number of bands.

Answers about capacity are values (`Fits`, `Blocked`, `Infeasible`, `Grant`); broken rules raise
`MisuseError` with nothing changed (rule 13); a failed device stops the arena with `DeviceError`
(rule 12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from onearena.core import realise, recording
from onearena.core.answers import Answer, Blocked, Fits, Infeasible
from onearena.core.arena_snapshot import take_snapshot
from onearena.core.arena_state import ArenaOptions, ArenaState
from onearena.core.arena_units import UnitColumns, UnitRow, unit_columns, unit_rows, unit_states
from onearena.core.device.interface import Device, EventId, StreamId, TransferId, Work
from onearena.core.errors import MisuseError
from onearena.core.eviction import Candidate, Eviction, Victim, choose_victims
from onearena.core.fit_words import more_by_rung, more_units_words
from onearena.core.geometry import ArenaGeometry, pack
from onearena.core.ledger import UseRecord
from onearena.core.observer import ArenaObserver
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.core.store import Handout
from onearena.core.uses import ByteSpan, Grant, Use


class Arena:
    """Bands, ids, uses and moves of one arena on one device.

    `geometry` comes from a storage plan; `device` runs what the arena enqueues (settles, moves,
    zeroing, id table). Demands are units per band in chain order.
    """

    def __init__(
        self, geometry: ArenaGeometry, device: Device, options: ArenaOptions | None = None
    ) -> None:
        self._state = ArenaState(geometry, device, options or ArenaOptions())

    @property
    def geometry(self) -> ArenaGeometry:
        """Grids and chain, as planned."""
        return self._state.geometry

    @property
    def schedule_stream(self) -> StreamId:
        """The stream that settles, updates the id table and translates."""
        return self._state.schedule

    @property
    def counters(self) -> Counter[str]:
        """What happened so far, by name; for metrics, never for decisions."""
        return self._state.counters

    # -- capacity ----------------------------------------------------------------------------------

    def fits(self, demand: Sequence[int]) -> Answer:
        """Whether some layout serves `demand`, and on which rung. Pure."""
        state = self._state
        state.enter("fits")
        wanted = self._demand(demand)
        answer = realise.query(state, wanted)
        if isinstance(answer, Fits):
            state.promised = (state.store.epoch, wanted)
        return answer

    def allocate(
        self, demand: Sequence[int], *, writer: UseKind, stream: StreamId, caller: str = "other"
    ) -> Grant | Blocked | Infeasible:
        """Hand out all units of `demand` or none.

        In place if that serves; else the cheapest plan of moves is carried out first, in stream
        order. `writer` on `stream` is going to write first: whatever it is, its own record orders
        it. O(units taken) in place. Zeroes units of bands that ask for it.
        """
        self._state.enter("allocate")
        self._state.ledger.require_stream(max(stream, 0))
        wanted = self._demand(demand)
        handout = realise.allocate(self._state, wanted, caller)
        if isinstance(handout, Handout):
            return realise.grant_of(handout, wanted)
        return handout

    def would_fit(self, more: Sequence[int]) -> bool:
        """Whether some layout holds what is handed out plus `more` units per band. Pure, O(bands).

        `more` may be negative: units that would be released first. Every unit counts as movable,
        so ranks that handed out the same agree: admission and eviction ask this.
        """
        state = self._state
        state.enter("would_fit")
        counts = [
            band.handed_out_units + count
            for band, count in zip(state.store.bands, more, strict=True)
        ]
        if min(counts) < 0:
            raise MisuseError(
                f"{tuple(more)} releases more units than are handed out", argument="more"
            )
        return pack(state.geometry, counts).feasible

    def evict(
        self,
        demand: Sequence[int],
        candidates: Iterable[Candidate[Victim]],
        *,
        evictable: Sequence[int],
    ) -> Eviction[Victim]:
        """Which of `candidates`, in the cache's order, have to go for `demand`. Changes nothing.

        `evictable` is what all of them release together; see `core/eviction.py`.
        """
        wanted = self._demand(demand)
        return choose_victims(wanted, candidates, evictable=tuple(evictable), fits=self.would_fit)

    @contextmanager
    def decision(self, caller: str) -> Iterator[None]:
        """What runs inside decides on capacity for `caller`: in check mode it may not read
        `free_units`.
        """
        state = self._state
        before, state.deciding = state.deciding, caller
        try:
            yield
        finally:
            state.deciding = before

    def free_units(self, band: int) -> int:
        """More units of one band that would fit alone. For logs and metrics only.

        Bands share bytes, so these numbers do not add up and no decision may rest on one. In check
        mode a read inside `decision` raises `MisuseError` naming the caller.
        """
        state = self._state
        self._check_band(band)
        if state.deciding:
            state.counters[f"check_mode/{state.deciding}"] += 1
            if state.options.check_mode:
                raise MisuseError(
                    f"{state.deciding} read the free count of band {band} for a decision; ask "
                    "fits() or would_fit() for the whole demand",
                    argument="band",
                )
        return more_units_words(state.store.words, band)

    def free(self, ids: Sequence[int]) -> None:
        """Drop one reference per id; the last one is the logical free.

        Units whose uses are not all over become pending and count as capacity at once (rules 1 and
        2).
        """
        state = self._state
        state.enter("free")
        vector = np.asarray(ids, dtype=object if _too_large(ids) else np.int64)
        if vector.dtype == object:
            raise MisuseError("an id does not fit an int64; pass ids as given", argument="ids")
        units = state.store.resolve(vector)
        holders = state.store.references(vector)
        last = self._last_references(vector, holders)
        for band, freed in state.by_band(vector[last].tolist(), units[last]):
            state.hold_back(band, freed)
        released = state.store.free(vector)
        state.note_freed(released.ids.tolist(), released.units)
        state.undefined.difference_update(released.ids.tolist())
        state.counters["freed"] += len(released.ids)
        state.fence(released.retreats)

    @staticmethod
    def _last_references(vector: np.ndarray, holders: np.ndarray) -> np.ndarray:
        """Which positions drop the last reference of their id; refuses more drops than
        references.
        """
        if (holders == 1).all() and len(set(vector.tolist())) == len(vector):
            return np.ones(len(vector), np.bool_)
        left = dict(zip(vector.tolist(), holders.tolist(), strict=True))
        last = np.zeros(len(vector), np.bool_)
        for at, vid in enumerate(vector.tolist()):
            left[vid] -= 1
            if left[vid] < 0:
                raise MisuseError(
                    f"free: ids[{at}]: id {vid} is named more often than it has references; "
                    "free each reference once",
                    argument="ids",
                    unit=vid,
                )
            last[at] = left[vid] == 0
        return last

    def share(self, ids: Sequence[int]) -> None:
        """One more reference per id."""
        self._state.enter("share")
        self._state.store.share(ids)  # type: ignore[arg-type]

    def fork(self, ids: Sequence[int], *, stream: StreamId) -> Grant | Blocked | Infeasible:
        """Copies of `ids` under new ids of the same bands; each old id loses one reference (rule
        11).

        The copies run on `stream` behind the last writers of the sources; sources without content
        are not copied. `Blocked` while a source is being received.
        """
        state = self._state
        state.enter("fork")
        state.ledger.require_stream(stream)
        if len(set(ids)) != len(ids):
            raise MisuseError("an id is named twice; fork it once", argument="ids")
        units = state.store.resolve(ids)  # type: ignore[arg-type]
        for vid in ids:
            if vid in state.undefined:
                raise MisuseError(f"id {vid} has undefined content; free it", argument="ids")
        needs = state.ledger.needs(UseKind.FORK, stream, state.by_band(ids, units), ())
        if needs.blockers:
            return recording.blocked(needs.blockers)
        grant = realise.fork(state, ids, stream)
        if isinstance(grant, Grant):
            self.free(ids)
        return grant

    # -- uses --------------------------------------------------------------------------------------

    def record(
        self,
        kind: UseKind,
        stream: StreamId,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        host_reads: Sequence[int] = (),
        host_writes: Sequence[int] = (),
    ) -> Use | Blocked:
        """Resolve, order and record a FORWARD, BACKUP or LOAD; launch it next, before any other
        call.

        Makes the waits of rule 6 on `stream` that nothing implies yet. `Blocked`, with nothing
        changed, while only the host's seeing a transfer end could order it. O(units * streams).
        """
        self._state.enter("record")
        return recording.record(self._state, kind, stream, reads, writes, host_reads, host_writes)

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int) -> Use | Blocked:
        """Record a SEND or RECEIVE whose physical ranges the peer gets; launch it next (rule 7)."""
        self._state.enter("publish")
        return recording.publish(self._state, kind, ids, peer)

    def launch(self, use: Use, work: Work) -> EventId | TransferId:
        """Enqueue the work of the use just recorded, and record its event behind it."""
        return recording.launch(self._state, use, work)

    def process(self, use: Use) -> None:
        """The host has processed the forward's result: logical progress, retires nothing (rule
        1).
        """
        self._state.enter("process")
        recording.process(self._state, use)

    def settle(self, use: Use) -> None:
        """The schedule stream waits on the use's event."""
        self._state.enter("settle")
        recording.settle(self._state, recording.known_use(self._state, use, "settle"))

    def retire(self, use: Use, *, failed: bool = False) -> None:
        """The host has seen the use's event. `failed`: a load or backup whose target is undefined
        now.
        """
        self._state.enter("retire")
        recording.retire(self._state, use, failed=failed)

    def outstanding(self) -> tuple[tuple[Use, EventId], ...]:
        """Uses the arena enqueued itself (moves, forks, zeroing, translations) and their events,
        oldest first.

        Retiring one the host has seen is allowed and never needed: later observations imply their
        ends.
        """
        self._state.enter("outstanding")
        return tuple(_as_use(record) for record in self._state.own_uses.values())

    def end_transfer(self, use: Use, *, outcome: str) -> None:
        """The transfer ended: 'done', 'failed', 'cancelled'; or 'lost': quarantine until
        `disconnect`.
        """
        self._state.enter("end_transfer")
        recording.end_transfer(self._state, use, outcome)

    def disconnect(self, peer: int) -> None:
        """Tear the connection to `peer` down: its transfers end, quarantined units return."""
        self._state.enter("disconnect")
        recording.disconnect(self._state, peer)

    # -- moves, pins, host tier --------------------------------------------------------------------

    def compact(self, *, budget_units: int) -> int:
        """Opportunistic moves at a quiet point, at most `budget_units`; returns units moved."""
        self._state.enter("compact")
        if budget_units < 0:
            raise MisuseError(f"budget_units {budget_units} is negative", argument="budget_units")
        return realise.compact(self._state, budget_units)

    def move(self, band: int, ids: Sequence[int]) -> int:
        """Move live `ids` of `band` into its holes, as many as there are; returns units moved."""
        self._state.enter("move")
        self._check_band(band)
        return realise.move_ids(self._state, band, ids)

    def pin(self, ids: Sequence[int], *, pinned: bool) -> None:
        """Forbid or allow moves of exactly these units."""
        state = self._state
        state.enter("pin")
        units = state.store.resolve(ids)  # type: ignore[arg-type]
        for band, some in state.by_band(ids, units):
            state.store.pin(band, some, on=pinned)

    def reserve_host(self, band: int, count: int) -> tuple[int, ...]:
        """`count` host units of `band`; none if so many are not free."""
        self._state.enter("reserve_host")
        self._check_band(band)
        if count < 0:
            raise MisuseError(f"count {count} is negative", argument="count")
        return self._state.host.reserve(band, count)

    def free_host(self, ids: Sequence[int]) -> None:
        """Give host units back; they are reserved again only after their uses are over."""
        state = self._state
        state.enter("free_host")
        for band, slots in state.host.release(ids):
            domain = state.band_count + band
            over, _ = state.ledger.watch(domain, slots)
            if len(over):
                state.host.reuse(band, over)

    # -- facts -------------------------------------------------------------------------------------

    def resolve(self, ids: Sequence[int]) -> tuple[ByteSpan, ...]:
        """(id, start, end) arena bytes of each id now."""
        units = self._state.store.resolve(ids)  # type: ignore[arg-type]
        return self._state.spans(ids, units)

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Frozen statistics; O(bands + uses + fences), with `units` O(units) too."""
        return take_snapshot(self._state, units=units)

    def fit_units(self) -> tuple[tuple[int, int, int], ...]:
        """Per band: how many more of its units alone fit on rung none, compact, relayout or lower.

        O(bands^2 * log(units)), tens of microseconds a band; for metrics, never for decisions.
        """
        words = self._state.store.words
        return tuple(more_by_rung(words, band) for band in range(self._state.band_count))

    def unit_states(self) -> tuple[bytes, ...]:
        """Per band one byte a unit, as `BandSnapshot.states`: for maps. O(units)."""
        return unit_states(self._state)

    def unit_rows(self, band: int, first: int, count: int) -> tuple[UnitRow, ...]:
        """Units `[first, first + count)` of `band`, as far as the band has them. O(count)."""
        self._check_band(band)
        return unit_rows(self._state, band, first, count)

    def unit_columns(self, band: int, first: int, count: int) -> UnitColumns:
        """The same units as arrays of ids, holders and flags: for maps. O(count)."""
        self._check_band(band)
        return unit_columns(self._state, band, first, count)

    def observe(self, observer: ArenaObserver | None) -> None:
        """Let `observer` watch from now on; None ends it. Decisions do not depend on it."""
        self._state.enter("observe")
        self._state.observer = observer

    def _demand(self, demand: Sequence[int]) -> tuple[int, ...]:
        wanted = tuple(demand)
        if len(wanted) != self._state.band_count or any(count < 0 for count in wanted):
            raise MisuseError(
                f"demand {wanted} is not one non-negative count for each of "
                f"{self._state.band_count} bands",
                argument="demand",
            )
        return wanted

    def _check_band(self, band: int) -> None:
        if not 0 <= band < self._state.band_count:
            raise MisuseError(
                f"band {band} does not exist; there are {self._state.band_count}", argument="band"
            )


def _too_large(ids: Sequence[int]) -> bool:
    return any(not -(1 << 63) <= vid < 1 << 63 for vid in ids)


def _as_use(record: UseRecord) -> tuple[Use, EventId]:
    assert record.event is not None, record
    return Use(record.serial, record.kind, record.stream), record.event
