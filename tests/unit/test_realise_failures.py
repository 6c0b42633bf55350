"""A device that fails at any step of a realisation: typed error, arena stopped, no content lost."""

from __future__ import annotations

from typing import Any

import pytest

from onearena.core.arena import Arena
from onearena.core.device.interface import Touch, Work
from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import DeviceError
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use

STEPS = ("launch", "record", "wait")


class FailingDevice(ModeledDevice):
    """Fails at the n-th host call of `STEPS` after it is armed (0: the next one)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.left = -1
        self.calls = 0

    def arm(self, calls: int) -> None:
        self.left, self.calls = calls, 0

    def _count(self) -> None:
        self.calls += 1
        if self.left == 0:
            raise DeviceError("the device failed, as the test asked")
        self.left -= 1

    def launch(self, stream: int, work: Work) -> int:
        self._count()
        return super().launch(stream, work)

    def record(self, stream: int) -> int:
        self._count()
        return super().record(stream)

    def wait(self, stream: int, event: int) -> None:
        self._count()
        super().wait(stream, event)


class Scene:
    """State low, two windows floating, full high; holes everywhere, so a demand moves both windows
    while forwards on two streams still use what moves.
    """

    def __init__(self) -> None:
        geometry = chain_geometry(
            64 * 62, [("state", 192), ("near", 128), ("far", 256), ("full", 64)]
        )
        grids = {
            band: (shape.grid.origin_bytes, shape.grid.unit_bytes)
            for band, shape in enumerate(geometry.bands)
        }
        self.device = FailingDevice(grids=grids, eager=True)
        self.arena = Arena(geometry, self.device)
        self.streams = [self.device.stream("a"), self.device.stream("b")]
        counts = (4, 9, 5, 10)
        granted = self.arena.allocate(counts, writer=UseKind.FORWARD, stream=self.streams[0])
        assert isinstance(granted, Grant)
        self.stamps: dict[int, int] = {}
        self.write([vid for band in granted.ids for vid in band])
        self.device.run_until_idle()
        gone = [*granted.ids[1][::2], *granted.ids[2][1:4:2], *granted.ids[3][1:6:2]]
        self.kept = [vid for band in granted.ids for vid in band if vid not in gone]
        self.read(self.kept)  # unfinished readers of everything that may move
        self.arena.free(gone)

    def write(self, ids: list[int]) -> None:
        use = self.arena.record(UseKind.FORWARD, self.streams[0], writes=ids)
        assert isinstance(use, Use)
        self.stamps = {vid: 100 + number for number, vid in enumerate(ids)}
        touches = tuple(
            Touch(entry, 0, end - start, True, self.stamps[vid])
            for entry, (vid, start, end) in enumerate(use.writes)
        )
        self.arena.launch(
            use, Work(UseKind.FORWARD, use.accesses, touches=touches, buffer=use.buffer)
        )

    def read(self, ids: list[int]) -> None:
        use = self.arena.record(UseKind.FORWARD, self.streams[1], reads=ids)
        assert isinstance(use, Use)
        touches = tuple(
            Touch(entry, 0, end - start, False) for entry, (_, start, end) in enumerate(use.reads)
        )
        self.arena.launch(
            use, Work(UseKind.FORWARD, use.accesses, touches=touches, buffer=use.buffer)
        )

    def demand(self) -> object:
        return self.arena.allocate(DEMAND, writer=UseKind.FORWARD, stream=self.streams[0])

    def check_content(self) -> None:
        """Every id kept maps to bytes that hold, or will hold, what was written under it."""
        self.device.left = -1
        self.device.run_until_idle()
        for vid, start, end in self.arena.resolve(self.kept):
            held = list(self.device.memory.arena.read(start, end))
            assert held == [(start, end, self.stamps[vid])], (vid, start, end, held)


DEMAND = (1, 0, 0, 14)


def calls_of_a_whole_realisation() -> int:
    scene = Scene()
    scene.device.arm(-1)
    assert isinstance(scene.demand(), Grant)
    moves = [name for name in scene.arena.counters if name.startswith("moves/")]
    assert len(moves) >= 2, f"the scene moves too little to test anything: {moves}"
    scene.check_content()
    return scene.device.calls


CALLS = calls_of_a_whole_realisation()


@pytest.mark.parametrize("calls", range(CALLS))
def test_a_failure_at_any_step_stops_the_arena_and_loses_nothing(calls: int) -> None:
    scene = Scene()
    scene.device.arm(calls)
    with pytest.raises(DeviceError):
        scene.demand()
    with pytest.raises(DeviceError, match="stopped"):
        scene.arena.allocate((0, 0, 0, 1), writer=UseKind.FORWARD, stream=scene.streams[0])
    scene.check_content()
    snapshot = scene.arena.snapshot()
    for band in snapshot.bands:
        units = band.live_units + band.pending_units + band.vacated_units + band.hole_units
        assert units == band.high_unit - band.low_unit
    live = sorted(vid for band in snapshot.bands for vid in band.ids if vid)
    assert live == sorted(scene.kept), "units were handed out by a realisation that failed"
