"""A small host program's tools: an arena on a modeled device, with the order oracle listening.

Nothing runs on the device until `run`: so whatever was launched is in flight until then, and what a
call did to the device can be read off the trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from onearena.core.answers import Fits
from onearena.core.arena import Arena
from onearena.core.arena_state import ArenaOptions
from onearena.core.device.interface import Space, Touch, TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.trace import Enqueue
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.order import OrderOracle

HOLE, LIVE, PENDING, VACATED = 1, 2, 3, 4

Launched = tuple[Use, int]
"""A use, and its event or the device's number of its transfer."""


class Rig:
    """Bands of `unit_bytes`, chain order low to high, over `arena_bytes`."""

    def __init__(
        self,
        arena_bytes: int,
        *unit_bytes: int,
        anchors: Sequence[int] = (),
        zero_bands: tuple[int, ...] = (),
        host_units: int = 0,
        move_stream: str = "schedule",
    ) -> None:
        names = [(f"band{index}", size) for index, size in enumerate(unit_bytes)]
        self.geometry = chain_geometry(arena_bytes, names, float_anchor_bytes=anchors)
        grids = {
            band: (shape.grid.origin_bytes, shape.grid.unit_bytes)
            for band, shape in enumerate(self.geometry.bands)
        }
        self.device = ModeledDevice(grids=grids, eager=True)
        self.races: list[Violation] = []
        self.work: list[Enqueue] = []
        self._order = OrderOracle()
        self.device.trace.subscribe(self._follow)
        self.arena = Arena(
            self.geometry,
            self.device,
            ArenaOptions(
                zero_bands=zero_bands,
                host_units=(host_units,) * len(unit_bytes),
                move_stream=move_stream,
            ),
        )
        self.forwards = self.device.stream("forward")
        self.others = self.device.stream("other")
        self.copies = self.device.stream("copies")

    def _follow(self, record: object) -> None:
        self.races.extend(self._order.feed(record))
        if isinstance(record, Enqueue):
            self.work.append(record)

    # -- calls
    def take(self, *demand: int) -> list[list[int]]:
        """Ids by band; the demand has to fit."""
        grant = self.arena.allocate(demand, writer=UseKind.FORWARD, stream=self.forwards)
        assert isinstance(grant, Grant), f"{demand} was to fit, and the answer was {grant}"
        return [list(ids) for ids in grant.ids]

    def fits(self, *demand: int) -> bool:
        """Whether the arena says that some layout serves the demand."""
        return isinstance(self.arena.fits(demand), Fits)

    def forward(
        self,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        *,
        stream: int | None = None,
        stamp: int = 1,
    ) -> Launched:
        """A forward that reads all of `reads` and writes all of `writes`."""
        on = self.forwards if stream is None else stream
        use = self.arena.record(UseKind.FORWARD, on, reads=reads, writes=writes)
        assert isinstance(use, Use), f"the forward was to be recorded, and the answer was {use}"
        touches = [Touch(i, 0, end - start, False) for i, (_, start, end) in enumerate(use.reads)]
        first = len(use.reads)
        touches += [
            Touch(first + i, 0, end - start, True, stamp)
            for i, (_, start, end) in enumerate(use.writes)
        ]
        work = Work(UseKind.FORWARD, use.accesses, touches=tuple(touches), buffer=use.buffer)
        return use, self.arena.launch(use, work)

    def backup(self, ids: Sequence[int], hosts: Sequence[int]) -> Launched:
        """A copy of whole units to the host."""
        use = self.arena.record(UseKind.BACKUP, self.copies, reads=ids, host_writes=hosts)
        assert isinstance(use, Use), f"the backup was to be recorded, and the answer was {use}"
        pairs = tuple(
            (source, target, end - source)
            for (_, source, end), (_, target, _) in zip(use.reads, use.host_writes, strict=True)
        )
        return use, self.arena.launch(use, Work(UseKind.BACKUP, use.accesses, pairs=pairs))

    def load(self, ids: Sequence[int], hosts: Sequence[int]) -> Launched:
        """A copy of whole units from the host."""
        use = self.arena.record(UseKind.LOAD, self.copies, writes=ids, host_reads=hosts)
        assert isinstance(use, Use), f"the load was to be recorded, and the answer was {use}"
        pairs = tuple(
            (source, target, end - source)
            for (_, source, end), (_, target, _) in zip(use.host_reads, use.writes, strict=True)
        )
        return use, self.arena.launch(use, Work(UseKind.LOAD, use.accesses, pairs=pairs))

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int = 1) -> Launched:
        """Begin a transfer; nothing may forbid it."""
        use = self.arena.publish(kind, ids, peer=peer)
        assert isinstance(use, Use), f"{kind.name} was to be published, and the answer was {use}"
        work = Work(int(kind), use.accesses, peer=peer)
        return use, self.arena.launch(use, work)

    # -- ends
    def run(self) -> None:
        """Let the device finish everything."""
        self.device.run_until_idle()

    def retire(self, launched: Launched) -> None:
        """The host sees the end of a use."""
        use, event = launched
        assert self.device.query(event), f"use {use.serial} has not ended"
        self.arena.retire(use)

    def finish(self, *launched: Launched) -> None:
        """Run the device dry and see these uses end."""
        self.run()
        for each in launched:
            self.retire(each)

    def end(self, launched: Launched) -> None:
        """The host sees a transfer end well."""
        use, number = launched
        assert self.device.transfer_status(number) is TransferStatus.DONE
        self.arena.end_transfer(use, outcome="done")

    # -- facts
    def place(self, vid: int) -> int:
        """The physical unit of an id now, by its address."""
        ((_, start, _),) = self.arena.resolve([vid])
        grid = self.geometry.bands[vid >> 26 & 31].grid
        assert (start - grid.origin_bytes) % grid.unit_bytes == 0, f"{start} is no unit's start"
        return (start - grid.origin_bytes) // grid.unit_bytes

    def state(self, band: int, unit: int) -> int:
        """State of a unit: 0 beyond, else as in snapshots."""
        seen = self.arena.snapshot().bands[band]
        return seen.states[unit - seen.low_unit] if seen.low_unit <= unit < seen.high_unit else 0

    def moved_bytes(self) -> int:
        """Bytes that moves have copied so far."""
        return sum(
            access.end - access.start
            for record in self.work
            if record.kind == UseKind.MOVE
            for access in record.accesses
            if access.writes and access.space == Space.ARENA
        )
