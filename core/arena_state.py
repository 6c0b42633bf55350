"""What the parts of one arena share: store, ledger, device, and the steps that keep them in
agreement.

Only `core/arena.py` and the two modules behind it (`recording`, `realise`) use this. One control
thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core.device.guarded import GuardedDevice
from onearena.core.device.interface import Access, Device, Space, StreamId, Work
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.geometry import ArenaGeometry
from onearena.core.host_tier import HostTier
from onearena.core.ledger import Ledger, Touch, Units, UseRecord
from onearena.core.observer import ArenaObserver, first_band
from onearena.core.rules import UseKind
from onearena.core.snapshot import BandSnapshot
from onearena.core.store import Retreat, Store
from onearena.core.uses import ByteSpan
from onearena.core.words import PENDING, VACATED

TABLE_KEY_MASK: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaOptions:
    """How one arena is run. Stream names are made on the device when the arena is.

    zero_bands: bands whose units are zeroed before their first writer (hand-out hygiene).
    host_units: host tier units per band; empty for none.
    buffer_slots: forwards whose resolved ids may be outstanding before a slot is waited for.
    number: this arena among several; part of its ids.
    check_mode: a decision that reads the free count of one sub-pool is refused.
    """

    zero_bands: tuple[int, ...] = ()
    host_units: tuple[int, ...] = ()
    buffer_slots: int = 16
    schedule_stream: str = "schedule"
    move_stream: str = "schedule"
    zero_stream: str = "schedule"
    number: int = 0
    check_mode: bool = False


class ArenaState:
    """Store, ledger, host tier and device of one arena, and the invariants that tie them together.

    A unit that is freed or vacated and not over has use count 1 in the store: the ledger watches
    it, and `released` takes the count away, which makes it a hole. Live units have use count 0.
    """

    def __init__(self, geometry: ArenaGeometry, device: Device, options: ArenaOptions) -> None:
        self.geometry = geometry
        self.stopped: DeviceError | None = None
        self.device = GuardedDevice(device, self._stop)
        self.options = options
        self.store = Store(geometry, arena=options.number)
        bands = [band.grid for band in geometry.bands]
        host_units = options.host_units or (0,) * len(bands)
        assert len(host_units) == len(bands), (host_units, len(bands))
        self.band_count = len(bands)
        self.origin = [grid.origin_bytes for grid in bands]
        self.size = [grid.unit_bytes for grid in bands]
        self.host = HostTier(host_units, self.size)
        self.schedule = device.stream(options.schedule_stream)
        self.move_stream = device.stream(options.move_stream)
        self.zero_stream = device.stream(options.zero_stream)
        rows = [grid.end_unit for grid in bands]
        self.ledger = Ledger(
            [*rows, *host_units, options.buffer_slots], schedule_stream=self.schedule
        )
        for stream in (self.move_stream, self.zero_stream):
            self.ledger.require_stream(stream)
        self.buffer_domain = 2 * self.band_count
        self.uses: dict[int, UseRecord] = {}
        self.own_uses: dict[int, UseRecord] = {}  # moves, zeroing, forks, translations
        self.next_slot = 0
        self.peers: dict[int, int] = {}  # transfer serial -> peer
        self.received: dict[int, tuple[int, ...]] = {}  # transfer serial -> ids it fills
        self.lost: set[int] = set()  # transfers whose units are quarantined
        self.undefined: set[int] = set()
        self.dirty: dict[int, int] = {}  # id-table entries to write: key -> physical unit
        self.counters: Counter[str] = Counter()
        self.observer: ArenaObserver | None = None
        # The demand that was last said to fit, and the epoch: for a counter, never for decisions.
        self.promised: tuple[int, tuple[int, ...]] | None = None
        # What the last snapshot showed: words compared and band as plain data; counts and slack.
        self.seen_bands: list[tuple[tuple[object, ...], BandSnapshot] | None] = [None] * len(bands)
        self.seen_slack: tuple[list[int], int] | None = None
        self.deciding = ""  # who decides on capacity now, for check mode
        self._thread = threading.get_ident()

    def _stop(self, error: DeviceError) -> None:
        self.stopped = error

    # -- preconditions -----------------------------------------------------------------------------

    def enter(self, call: str) -> None:
        """Every public call starts here: the right thread, a working device, no use half
        recorded.
        """
        if self.stopped is not None:
            raise DeviceError(f"{call}: the arena was stopped: {self.stopped}")
        if threading.get_ident() != self._thread:
            raise MisuseError(
                f"{call} was called from another thread; one control thread owns an arena",
                argument="thread",
            )
        if self.ledger.open_use is not None:
            raise MisuseError(
                f"{call} came between record and launch of use {self.ledger.open_use.serial}; "
                "launch it first",
                argument="use",
            )

    # -- addresses ---------------------------------------------------------------------------------

    def by_band(self, ids: Sequence[int], units: Units) -> tuple[Touch, ...]:
        """`units` (of `ids`, in order) grouped by band."""
        if not len(units):
            return ()
        bands = [vid >> 26 & 31 for vid in ids]
        first = bands[0]
        if bands.count(first) == len(bands):
            return ((first, units),)
        of = np.array(bands, np.int64)
        return tuple((band, units[of == band]) for band in sorted(set(bands)))

    def spans(self, ids: Sequence[int], units: Units) -> tuple[ByteSpan, ...]:
        """(id, start, end) of each id, in order."""
        spans = []
        for vid, unit in zip(ids, units.tolist(), strict=True):
            band = vid >> 26 & 31
            start = self.origin[band] + unit * self.size[band]
            spans.append((vid, start, start + self.size[band]))
        return tuple(spans)

    def unit_access(self, band: int, unit: int, *, writes: bool) -> Access:
        """The arena access to one whole unit."""
        start = self.origin[band] + unit * self.size[band]
        return Access(Space.ARENA, start, start + self.size[band], writes)

    # -- uses the arena makes itself ---------------------------------------------------------------

    def make_waits(
        self, stream: StreamId, waits: Sequence[tuple[int, int]], writer: UseKind
    ) -> None:
        """Let `stream` wait for these (stream, ticket) pairs; on the schedule stream that
        settles.
        """
        for other, ticket in waits:
            self.device.wait(stream, self.ledger.note_wait(stream, other, ticket))
            self.counters[f"waits/{writer.name.lower()}"] += 1
            if self.observer is not None:
                self.observer.waited(writer, other, ticket)
        if waits and stream == self.schedule:
            self.released(self.ledger.settled_units())

    def run(
        self,
        kind: UseKind,
        stream: StreamId,
        reads: tuple[Touch, ...],
        writes: tuple[Touch, ...],
        work: Work,
    ) -> UseRecord:
        """Order, record and enqueue work of the arena's own (moves, forks, zeroing) in one step.

        Its units are holes or live and under no transfer, so nothing can block it.
        """
        needs = self.ledger.needs(kind, stream, reads, writes)
        assert not needs.blockers, (
            f"{kind.name} of {reads} to {writes} is blocked: {needs.blockers}"
        )
        self.make_waits(stream, needs.waits, kind)
        use = self.ledger.open(kind, stream, reads, writes)
        self.enqueue(use, work)
        self.counters[f"uses/{kind.name.lower()}"] += 1
        return use

    def enqueue(self, use: UseRecord, work: Work) -> None:
        """Put the work of the open use on its stream and its event behind it."""
        self.device.launch(use.stream, work)
        self.ledger.close(use, self.device.record(use.stream))
        self.outstanding(use)

    def outstanding(self, use: UseRecord) -> None:
        """The use is on its stream, or its transfer has begun."""
        self.uses[use.serial] = use
        if self.observer is not None:
            band = first_band((*use.writes, *use.reads), self.band_count)
            self.observer.launched(use.serial, use.kind, use.stream, use.ticket, band)

    def ended(self, use: UseRecord) -> None:
        """The host has seen the use end."""
        del self.uses[use.serial]
        if self.observer is not None:
            self.observer.retired(use.serial)

    def run_own(
        self,
        kind: UseKind,
        stream: StreamId,
        reads: tuple[Touch, ...],
        writes: tuple[Touch, ...],
        work: Work,
    ) -> UseRecord:
        """`run`, for work whose end follows from what callers observe later."""
        use = self.run(kind, stream, reads, writes, work)
        self.own_uses[use.serial] = use
        return use

    # -- units whose uses are over -----------------------------------------------------------------

    def released(self, touches: Sequence[Touch]) -> None:
        """Freed or vacated units are over: device units become holes, host slots free."""
        for domain, units in touches:
            if domain < self.band_count:
                self.store.add_uses(domain, units, -1)
                self.fence(self.store.retreats())
                self.observe_reusable(domain, units)
            else:
                assert domain < self.buffer_domain, f"buffer slots {units} are never freed"
                self.host.reuse(domain - self.band_count, units)

    def hold_back(self, band: int, units: Units) -> None:
        """Watch the units among `units` (live, about to be freed or vacated) that are not over."""
        _, held = self.ledger.watch(band, units)
        if len(held):
            self.store.add_uses(band, held, 1)

    def transfer_ended(self, touches: Sequence[Touch]) -> None:
        """Units of an ended transfer: those freed or vacated meanwhile are watched for the rest."""
        for band, units in touches:
            self.store.add_transfers(band, units, -1)
            self.fence(self.store.retreats())
            self.observe_reusable(band, units)
            states = self.store.states(band, units)
            waiting = units[(states == PENDING) | (states == VACATED)]
            over, _ = self.ledger.watch(band, waiting)
            if len(over):
                self.released(((band, over),))

    def observe_planning(self) -> None:
        """Tell the observer that a demand did not fit in place."""
        if self.observer is not None:
            self.observer.planning()

    def observe_planned(self, rung: str) -> None:
        """Tell the observer on which rung the plan is, or that there is none."""
        if self.observer is not None:
            self.observer.planned(rung.lower())

    def note_freed(self, ids: Sequence[int], units: Units) -> None:
        """Count logical frees, and tell the observer."""
        for band, freed in self.by_band(ids, units):
            self.counters[f"freed_units/{band}"] += len(freed)
            self.observe_freed(band, freed)

    def observe_freed(self, band: int, units: Units) -> None:
        """Tell the observer which of these units, just freed or vacated, have to wait."""
        if self.observer is not None:
            waiting = self._waiting(band, units)
            self.observer.freed(band, units[waiting], int(np.count_nonzero(~waiting)))

    def observe_reusable(self, band: int, units: Units) -> None:
        """Tell the observer which of these units wait no more."""
        if self.observer is not None:
            self.observer.reusable(band, units[~self._waiting(band, units)])

    def observe_moved(self, band: int, sources: Units, targets: Units) -> None:
        """Tell the observer what was moved where."""
        if self.observer is not None:
            self.observer.moved(band, sources, targets)

    def _waiting(self, band: int, units: Units) -> NDArray[np.bool_]:
        states = self.store.states(band, units)
        waiting: NDArray[np.bool_] = (states == PENDING) | (states == VACATED)
        return waiting

    def fence(self, retreats: Sequence[Retreat]) -> None:
        """Frontiers retreated: fence the bytes with unfinished uses."""
        for band, start, end in retreats:
            self.ledger.fence(band, start, end, origin=self.origin[band], size=self.size[band])

    def frontiers(self) -> list[tuple[int, int]]:
        """(low_unit, high_unit) of every band."""
        return [(band.low_unit, band.high_unit) for band in self.store.bands]

    def overgrow(self, before: Sequence[tuple[int, int]]) -> None:
        """Bands grew since `before`: their new units inherit the fences over their bytes."""
        if not len(self.ledger.fences):
            return
        for band, (low, high) in enumerate(before):
            now_low, now_high = self.frontiers()[band]
            if now_high <= now_low or (now_low, now_high) == (low, high):
                continue
            pieces = [(now_low, now_high)] if high <= low else [(now_low, low), (high, now_high)]
            for start, end in pieces:
                if start < end:
                    self.ledger.overgrow(
                        band, start, end, origin=self.origin[band], size=self.size[band]
                    )

    # -- the id table ------------------------------------------------------------------------------

    def remember(self, ids: Sequence[int], units: Units) -> None:
        """The device's id table has to learn where these ids are, before the next translation."""
        for vid, unit in zip(ids, units.tolist(), strict=True):
            self.dirty[vid & TABLE_KEY_MASK] = unit
