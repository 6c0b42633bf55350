"""Figure 4 of the article as a live arena: three holes cannot serve four pages, one move can.

State is the low end, the window floats, full is the high end. Full has three one-page holes and no
room at its frontier. A window page is two full pages wide, and the window has a hole of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from onearena.core.answers import Answer
from onearena.core.arena import Arena
from onearena.core.device.interface import Touch, Work
from onearena.core.device.modeled import ModeledDevice
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.core.uses import Grant, Use

FULL_BYTES = 64
WINDOW_BYTES = 2 * FULL_BYTES
STATE_BYTES = 3 * FULL_BYTES
COUNTS = (2, 4, 8)
ARENA_BYTES = COUNTS[0] * STATE_BYTES + COUNTS[1] * WINDOW_BYTES + COUNTS[2] * FULL_BYTES
DEMAND = (0, 0, 4)
STATE, WINDOW, FULL = range(3)


@dataclass(frozen=True, slots=True)
class Stage:
    """The arena at one moment; `at` maps every live id to its bytes."""

    title: str
    snapshot: Snapshot
    at: dict[int, tuple[int, int]]


class Figure4:
    """Builds the arena of the figure by calls alone, with content in every page."""

    def __init__(self) -> None:
        geometry = chain_geometry(
            ARENA_BYTES, [("state", STATE_BYTES), ("window", WINDOW_BYTES), ("full", FULL_BYTES)]
        )
        grids = {
            band: (shape.grid.origin_bytes, shape.grid.unit_bytes)
            for band, shape in enumerate(geometry.bands)
        }
        self.device = ModeledDevice(grids=grids, eager=True)
        self.arena = Arena(geometry, self.device)
        self.stream = self.device.stream("forward")
        self.stamps: dict[int, int] = {}
        granted = self.arena.allocate(COUNTS, writer=UseKind.FORWARD, stream=self.stream)
        assert isinstance(granted, Grant), granted
        self.live = [list(ids) for ids in granted.ids]
        self._fill()
        by_address = {
            band: [vid for vid, _, _ in sorted(self.arena.resolve(ids), key=lambda span: span[1])]
            for band, ids in enumerate(self.live)
        }
        self.free([by_address[WINDOW][1], *(by_address[FULL][i] for i in (2, 4, 5))])

    def _fill(self) -> None:
        """One forward writes a stamp of its own over every page; the host sees it end."""
        ids = [vid for band in self.live for vid in band]
        use = self.arena.record(UseKind.FORWARD, self.stream, writes=ids)
        assert isinstance(use, Use), use
        self.stamps = {vid: 1000 + number for number, vid in enumerate(ids)}
        touches = tuple(
            Touch(entry, 0, end - start, True, self.stamps[vid])
            for entry, (vid, start, end) in enumerate(use.writes)
        )
        work = Work(UseKind.FORWARD, use.accesses, touches=touches, buffer=use.buffer)
        event = self.arena.launch(use, work)
        self.device.run_until_idle()
        assert self.device.query(event)
        self.arena.retire(use)

    def free(self, ids: list[int]) -> None:
        """Give pages back; nothing uses them any more, so they are holes at once."""
        self.arena.free(ids)
        self.live = [[vid for vid in band if vid not in ids] for band in self.live]

    def ask(self) -> Answer:
        """Whether the four full pages fit, and on which rung."""
        return self.arena.fits(DEMAND)

    def realise(self) -> Grant:
        """Hand the four pages out; the one move it takes is enqueued and run."""
        granted = self.arena.allocate(DEMAND, writer=UseKind.FORWARD, stream=self.stream)
        assert isinstance(granted, Grant), granted
        self.device.run_until_idle()
        self.live[FULL] += granted.ids[FULL]
        return granted

    def stage(self, title: str) -> Stage:
        """What to draw."""
        ids = [vid for band in self.live for vid in band]
        spans = self.arena.resolve(ids)
        return Stage(title, self.arena.snapshot(), {vid: (start, end) for vid, start, end in spans})

    def content(self, vid: int) -> list[tuple[int, int, int]]:
        """(start, end, stamp) of the bytes where `vid` is now."""
        ((_, start, end),) = self.arena.resolve([vid])
        return list(self.device.memory.arena.read(start, end))
