"""The small world of the exhaustive search: a host program, call by call, on four units.

A step is a plain tuple. Calls are the eight kinds of `CALLS`; `see` and `see_own` are the host's
observation that a use has ended (it retires it, or ends its transfer), and `device` one step of the
device. Units are named a, b, c, ... in the order they were handed out, uses by their number.

The world lists what the host may do next (`options`) and does it (`take`). It obeys the duties of
an engine and no more: content is read only once a write of it was launched, an undefined unit is
not read, a use is retired after its end was seen. Everything is legal for a correct system; a
refused call must change nothing, so nothing follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from onearena.core.answers import Blocked
from onearena.core.device.interface import TransferStatus
from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.modeled import Step as DeviceStep
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use
from onearena.stress.calls import LoggedSut
from onearena.stress.forwards import (
    NOTHING,
    Runs,
    UnitState,
    copy_work,
    forward_work,
    transfer_work,
)
from onearena.stress.world import StuckError

Step = tuple[str | int, ...]

CALLS: Final = ("allocate", "free", "launch", "process", "settle", "move", "publish", "copy")
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
PEER: Final = 1
STEPS_MAX: Final = 1_000
"""Device steps after which a program's device is taken to be stuck."""


class SmallUnit:
    """One held unit. `history` lists the numbers of the calls that touched it, and how."""

    __slots__ = ("history", "id", "name", "state")

    def __init__(self, name: str, vid: int, band: int, nbytes: int, call: int) -> None:
        self.name = name
        self.id = vid
        self.state = UnitState(band, nbytes)
        self.history: tuple[str, ...] = (f"{call}",)


@dataclass(slots=True)
class SmallUse:
    """A launched use that the host has not seen end. `end` is an event, or a transfer."""

    number: int
    use: Use
    end: int
    unit: SmallUnit | None
    content: Runs = NOTHING  # of a receive: what the unit holds once its end was seen
    processed: bool = False
    settled: bool = False

    @property
    def is_transfer(self) -> bool:
        """Whether no stream orders it."""
        return self.use.stream < 0


@dataclass(slots=True)
class HostCopy:
    """Content saved in the host tier."""

    host: int
    band: int
    runs: Runs
    stamp: int


class SmallWorld:
    """One program on one fresh system. `symmetric` and `latest` leave out what only repeats: see
    `options`.
    """

    def __init__(
        self, sut: LoggedSut, device: ModeledDevice, *, symmetric: bool = True, latest: bool = True
    ) -> None:
        self.sut = sut
        self.device = device
        self.symmetric = symmetric
        self.latest = latest
        self.bands = sut.plan.bands
        self.streams = (device.stream("forward0"), device.stream("forward1"))
        self.copy_stream = device.stream("copies")
        self.units: list[SmallUnit] = []
        self.uses: list[SmallUse] = []
        self.copies: list[HostCopy] = []
        self.calls = 0
        self.refused = False
        self._born = 0
        self._used = 0
        self._stamp = 0
        self._second = False  # whether the second forward stream may be told from the first
        self._counts = tuple(self._counts_of(facts.unit_bytes) for facts in self.bands)
        self._takes: dict[str, Callable[..., None]] = {
            "allocate": self._allocate,
            "free": self._free,
            "launch": self._launch,
            "process": self._process,
            "settle": self._settle,
            "move": self._move,
            "publish": self._publish,
            "copy": self._copy,
        }

    def _counts_of(self, unit_bytes: int) -> tuple[int, ...]:
        """How many units one call may ask for: one, two, or all there are."""
        most = self.sut.plan.arena_bytes // unit_bytes
        return tuple(sorted({1, min(2, most), most}))

    # -- what may come next
    def options(self) -> list[Step]:
        """Every call the host may make now, and every end it may see.

        `symmetric`: of units with an equal history only those at an end of their row stand for all
        (for a free and a move, one inside too), and the second forward stream comes after the
        first. Without: all units, both streams.

        `latest`: an end may be seen at any moment after its launch, since the device can always
        get there, and it does no more than that. Without: only ends that have come, and every step
        of the device is a choice as well.
        """
        return self.calls_now() + self.ends_now()

    def calls_now(self) -> list[Step]:
        """The calls among `options`."""
        units = self._standing() if self.symmetric else self.units
        inner = self._standing(inner=1) if self.symmetric else self.units
        steps: list[Step] = [
            ("allocate", band, count)
            for band, counts in enumerate(self._counts)
            for count in counts
        ]
        steps += [("free", unit.name) for unit in inner]
        streams = (0, 1) if self._second or not self.symmetric else (0,)
        for stream in streams:
            steps += [("launch", stream, "writes", unit.name) for unit in units]
            steps += [("launch", stream, "reads", unit.name) for unit in units if unit.state.runs]
            if len(self.units) > 1:
                steps.append(("launch", stream, "writes", "all"))
        for use in self.uses:
            if use.use.kind is UseKind.FORWARD and not use.processed:
                steps.append(("process", use.number))
            if not use.is_transfer and not use.settled:
                steps.append(("settle", use.number))
        if self.sut.capabilities.moves:
            steps += [("move", unit.name) for unit in inner if not unit.state.fixed]
        for unit in units:
            steps.append(("publish", "receive", unit.name))
            if unit.state.runs:
                steps += [("publish", "send", unit.name), ("copy", "backup", unit.name)]
        for place, copy in enumerate(self.copies):
            steps += [
                ("copy", "load", unit.name, place) for unit in units if unit.state.band == copy.band
            ]
        return steps

    def _standing(self, inner: int = 0) -> list[SmallUnit]:
        """The units that stand for all: of an equal history, the lowest and the highest."""
        groups: dict[tuple[int, tuple[str, ...]], list[SmallUnit]] = {}
        for unit in self.units:
            groups.setdefault((unit.state.band, unit.history), []).append(unit)
        found: list[SmallUnit] = []
        for group in groups.values():
            if len(group) <= 2 + inner:
                found += group
                continue
            places = self.sut.resolve([unit.id for unit in group])
            start = {vid: first for vid, first, _ in places}
            row = sorted(group, key=lambda unit: start[unit.id])
            found += [*row[: 1 + inner], row[-1]]
        return found

    def ends_now(self) -> list[Step]:
        """The ends among `options`, and the device's steps."""
        steps: list[Step] = [("see", use.number) for use in self.uses if self._may_see(use)]
        for use, event in self.sut.outstanding():
            moved = use.kind in (UseKind.MOVE, UseKind.FORK, UseKind.ZEROING)
            if moved and (self.latest or self.device.complete(event)):
                steps.append(("see_own", use.serial))
        if not self.latest:
            steps += [("device", kind, number) for kind, number in self.device.enabled()]
        return steps

    def _may_see(self, use: SmallUse) -> bool:
        if self.latest:
            return True
        if not use.is_transfer:
            return self.device.complete(use.end)
        return all(step.number != use.end or step.kind < 5 for step in self.device.enabled())

    # -- doing it
    def take(self, step: Step) -> None:
        """Take one step of `options`. Raises what the system raises."""
        kind, *rest = step
        if kind == "see":
            self._see(self._use(rest[0]))
        elif kind == "see_own":
            self._see_own(rest[0])
        elif kind == "device":
            self.device.step(next(s for s in self.device.enabled() if tuple(s) == tuple(rest)))
        else:
            self.calls += 1
            self.sut.step = self.calls
            self._takes[str(kind)](*rest)

    def can(self, step: Step) -> bool:
        """Whether a named call is one: what it names is held, and it keeps an engine's duties."""
        kind, *rest = step
        held = {unit.name: unit for unit in self.units}
        if kind in ("process", "settle"):
            return any(use.number == rest[0] and not use.is_transfer for use in self.uses)
        if kind == "allocate" or rest[-1] == "all":
            return True
        name = rest[1] if kind == "copy" else rest[-1]
        unit = held.get(str(name))
        if unit is None or (kind == "move" and unit.state.fixed):
            return False
        if kind == "copy" and rest[0] == "load":
            return len(self.copies) > int(rest[2])
        if "reads" in rest and unit.state.fixed:
            return True  # refused, or it is under a send
        needs_content = "reads" in rest or "backup" in rest or "send" in rest
        return bool(unit.state.runs) or not needs_content

    def _unit(self, name: str) -> SmallUnit:
        return next(unit for unit in self.units if unit.name == name)

    def _use(self, number: str | int) -> SmallUse:
        return next(use for use in self.uses if use.number == number)

    def _touch(self, unit: SmallUnit, how: str) -> None:
        unit.history = (*unit.history, f"{self.calls}{how}")

    def _opened(self, use: Use, end: int, unit: SmallUnit | None, content: Runs = NOTHING) -> None:
        self._used += 1
        self.uses.append(SmallUse(self._used, use, end, unit, content))

    def _next_stamp(self) -> int:
        self._stamp += 1
        return self._stamp

    def _allocate(self, band: int, count: int) -> None:
        demand = [count if index == band else 0 for index in range(len(self.bands))]
        answer = self.sut.allocate(
            demand, writer=UseKind.FORWARD, stream=self.streams[0], caller="other"
        )
        if not isinstance(answer, Grant):
            self.refused = True
            return
        for vid in answer.ids[band]:
            name = LETTERS[self._born]
            self._born += 1
            self.units.append(SmallUnit(name, vid, band, self.bands[band].unit_bytes, self.calls))

    def _free(self, name: str) -> None:
        unit = self._unit(name)
        self.sut.free([unit.id])
        self.units.remove(unit)

    def _launch(self, stream: int, how: str, name: str) -> None:
        units = self.units if name == "all" else [self._unit(name)]
        ids = [unit.id for unit in units]
        names = {"reads" if how == "reads" else "writes": ids}
        use = self.sut.record(UseKind.FORWARD, self.streams[stream], **names)
        if not isinstance(use, Use):
            self.refused = True
            return
        reads: list[Runs] = []
        writes: list[tuple[int, int, int]] = []
        for unit in units:
            self._touch(unit, f"{how[0]}{stream}")
            if how == "reads":
                reads.append(unit.state.runs)
                continue
            stamp = self._next_stamp()
            writes.append((0, unit.state.nbytes, stamp))
            unit.state.runs, unit.state.stamp = ((0, unit.state.nbytes, stamp),), stamp
        work = forward_work(use, reads, writes, pieces=1, passes=1, label=f"use {self._used + 1}")
        self._second = True
        self._opened(use, self.sut.launch(use, work), units[0] if name != "all" else None)

    def _process(self, number: int) -> None:
        use = self._use(number)
        use.processed = True
        self.sut.process(use.use)

    def _settle(self, number: int) -> None:
        use = self._use(number)
        use.settled = True
        self.sut.settle(use.use)

    def _move(self, name: str) -> None:
        unit = self._unit(name)
        moved = self.sut.move(unit.state.band, [unit.id])
        if isinstance(moved, Blocked) or not moved:
            self.refused = True
            return
        self._touch(unit, "m")

    def _publish(self, how: str, name: str) -> None:
        unit = self._unit(name)
        kind = UseKind.SEND if how == "send" else UseKind.RECEIVE
        use = self.sut.publish(kind, [unit.id], peer=PEER)
        if not isinstance(use, Use):
            self.refused = True
            return
        self._touch(unit, how)
        content = unit.state.runs
        if kind is UseKind.RECEIVE:
            content = ((0, unit.state.nbytes, self._next_stamp()),)
            unit.state.runs = NOTHING
        work = transfer_work(use, [content], pieces=1, peer=PEER, label=f"use {self._used + 1}")
        unit.state.fixed += 1
        self._opened(use, self.sut.launch(use, work), unit, content)

    def _copy(self, how: str, name: str, place: int = 0) -> None:
        unit = self._unit(name)
        if how == "backup":
            hosts = self.sut.reserve_host(unit.state.band, 1)
            use = hosts and self.sut.record(
                UseKind.BACKUP, self.copy_stream, reads=[unit.id], host_writes=hosts
            )
        else:
            copy = self.copies[place]
            use = self.sut.record(
                UseKind.LOAD, self.copy_stream, writes=[unit.id], host_reads=[copy.host]
            )
        if not isinstance(use, Use):
            self.refused = True
            return
        self._touch(unit, how)
        if how == "backup":
            self.copies.append(
                HostCopy(hosts[0], unit.state.band, unit.state.runs, unit.state.stamp)
            )
        else:
            unit.state.runs, unit.state.stamp = copy.runs, copy.stamp
        work = copy_work(
            use, [unit.state.nbytes], pieces=1, fails_after=-1, label=f"use {self._used + 1}"
        )
        self._opened(use, self.sut.launch(use, work), unit)

    # -- ends
    def _see(self, use: SmallUse) -> None:
        """The device gets as far as it must, no further; then the host looks."""
        if use.is_transfer:
            self._run(lambda: self._over(use), lambda step: step.number == use.end)
            status = self.device.transfer_status(use.end)
            assert status is TransferStatus.DONE, f"transfer {use.end} is {status}"
            self.sut.end_transfer(use.use, outcome="done")
            assert use.unit is not None, "a transfer has a unit"
            use.unit.state.fixed -= 1
            if use.use.kind is UseKind.RECEIVE:
                use.unit.state.runs, use.unit.state.stamp = use.content, use.content[0][2]
        else:
            self._reach(use.end, use.use.stream)
            self.sut.retire(use.use)
        self.uses.remove(use)

    def _see_own(self, serial: str | int) -> None:
        use, event = next(pair for pair in self.sut.outstanding() if pair[0].serial == serial)
        self._reach(event, use.stream)
        self.sut.retire_own(use)

    def _reach(self, event: int, stream: int) -> None:
        """Run the device until the event is complete, that stream's steps before others."""
        self._run(
            lambda: self.device.complete(event),
            lambda step: step.kind < 5 and step.number == stream,
        )
        assert self.device.query(event), f"event {event} is complete and not seen"

    def _over(self, use: SmallUse) -> bool:
        return all(step.number != use.end or step.kind < 5 for step in self.device.enabled())

    def _run(self, done: Callable[[], bool], first: Callable[[DeviceStep], bool]) -> None:
        for _ in range(STEPS_MAX):
            if done():
                return
            steps = self.device.enabled()
            if not steps:
                break
            self.device.step(next((s for s in steps if first(s)), steps[0]))
        raise StuckError("what the host waits for cannot end")

    def run_dry(self) -> None:
        """All that was launched runs to its end."""
        self._run(lambda: not self.device.enabled(), lambda _: False)

    def end(self) -> None:
        """After the last call: the ends of all uses are seen, all is freed."""
        while self.uses:
            self._see(self.uses[0])
        self.run_dry()
        for use, event in self.sut.outstanding():
            if self.device.query(event):
                self.sut.retire_own(use)
        if self.units:
            self.sut.free([unit.id for unit in self.units])
            self.units.clear()
        if self.copies:
            self.sut.free_host([copy.host for copy in self.copies])
