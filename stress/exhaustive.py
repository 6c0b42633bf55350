"""Exhaustive search at small scope: every host program, every order in which its ends are seen.

Four units, two forward streams, a copy stream, the schedule stream, one peer, two arenas of the
arena under test (one band; two bands of different units at the two ends) or the toy. See
`docs/exploration.md` for what is enumerated, what is left out, and why that loses nothing.

The search is depth first, all oracles of calls and traces looking on. What programs have in common
at their beginning is run once: the system is then put back to where they part (`Moment`), and it
and its oracles are as they were, as if the program had run from a fresh one. Nothing is drawn:
equal arguments give equal counts.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onearena.core.arena import Arena
from onearena.core.arena_state import ArenaOptions
from onearena.core.device.interface import Device
from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import UsageError
from onearena.core.geometry import chain_geometry
from onearena.core.snapshot import Snapshot
from onearena.stress.calls import Call, LoggedSut
from onearena.stress.exhaustive_programs import NAMED
from onearena.stress.exhaustive_state import Moment
from onearena.stress.exhaustive_world import CALLS, SmallWorld, Step
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.conservation import ConservationOracle
from onearena.stress.oracles.geometry import GeometryOracle
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.suite import CallOracles
from onearena.stress.oracles.table_reach import TableReach
from onearena.stress.run import ORDER_RECORDS
from onearena.stress.sut import BandFacts, Capabilities, PlanFacts, SystemUnderTest
from onearena.stress.systems import locator
from onearena.stress.toy import BUGS, Toy
from onearena.stress.toy_parts import ToyBand

SCOPES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "one": (("context", 32),),
    "two": (("state", 32), ("context", 64)),
}
"""Bands (name, unit bytes) in chain order; each arena has `UNITS` units of the smallest kind."""

UNITS: Final = 4
PREFIX_CALLS: Final = 2
REST_CALLS: Final = 2
CALLS_MAX: Final = 5
HOST_UNITS: Final = 2
FAILURES_KEPT_MAX: Final = 16


class SmallArena(Arena):
    """The arena of one scope, with the facts a harness may know of it."""

    capabilities = Capabilities()

    def __init__(self, scope: str) -> None:
        bands = SCOPES[scope]
        geometry = chain_geometry(UNITS * min(size for _, size in bands), bands)
        grids = {
            index: (band.grid.origin_bytes, band.grid.unit_bytes)
            for index, band in enumerate(geometry.bands)
        }
        device = ModeledDevice(grids=grids, eager=True)
        options = ArenaOptions(host_units=(HOST_UNITS,) * len(bands), buffer_slots=8)
        super().__init__(geometry, device, options)
        self.device: Device = device
        self.modeled = device
        self.plan = PlanFacts(
            arena_bytes=geometry.arena_bytes,
            bands=tuple(
                BandFacts(
                    name=band.name,
                    placement=band.placement.value,
                    unit_bytes=band.grid.unit_bytes,
                    entries_per_unit=1,
                    origin_bytes=band.grid.origin_bytes,
                    first_unit=band.grid.first_unit,
                    capacity_units=band.grid.capacity_units,
                    lifetime="context",
                )
                for band in geometry.bands
            ),
            host_units=options.host_units,
            schedule_stream=self.schedule_stream,
        )


def small_system(system: str, scope: str) -> tuple[SystemUnderTest, ModeledDevice]:
    """A fresh system of a scope. Raises `UsageError` for one that has none."""
    if system == "arena":
        arena = SmallArena(scope)
        return arena, arena.modeled
    name, _, bug = system.partition(":")
    if name != "toy" or bug not in ("", *BUGS):
        raise UsageError("--system", system, "give arena, toy, or toy:BUG")
    device = ModeledDevice(eager=True)
    size = SCOPES[scope]
    bands = [ToyBand(band, nbytes, UNITS // len(size)) for band, nbytes in size]
    return Toy(device, bands, host_units=HOST_UNITS, bug=bug), device


class Rig:
    """One fresh system with its oracles; `found` gets what they report."""

    def __init__(
        self, system: str, scope: str, *, symmetric: bool = True, latest: bool = True
    ) -> None:
        inner, self.device = small_system(system, scope)
        self.found: list[Violation] = []
        self.cells = TableReach()
        self._calls = CallOracles(inner.plan, capabilities=inner.capabilities)
        self._calls.watch(self.device.memory)
        order = OrderOracle(locate=locator(inner), reach=self.cells)
        trace = self.device.trace
        trace.subscribe(self._watch(order.feed), ORDER_RECORDS)
        for kind, handler in self._calls.facts.trace_handlers.items():
            trace.subscribe(handler, (kind,))
        self._shape = GeometryOracle(inner.plan, frontiers_retreat=inner.capabilities.moves)
        self._sums = ConservationOracle()
        self.sut = LoggedSut(inner, self._watch(self._judge))
        self.world = SmallWorld(self.sut, self.device, symmetric=symmetric, latest=latest)

    def _watch(self, feed: Callable[[Any], tuple[Violation, ...]]) -> Callable[[Any], None]:
        def follow(record: Any) -> None:
            self.found.extend(feed(record))

        return follow

    def _judge(self, call: Call) -> tuple[Violation, ...]:
        found = self._calls.feed(call)
        if isinstance(call.answer, Snapshot):
            found += self._shape.feed(call.answer) + self._sums.feed(call.answer)
        return found

    def finish(self) -> None:
        """The program is over: look, let all end, look again."""
        self.sut.snapshot()
        if self.found:
            return
        self.world.end()
        if self.found:
            return
        last = self.sut.snapshot()
        self.found.extend(self._calls.finish())
        for band in last.bands:
            left = band.live_units + band.pending_units + band.vacated_units
            if left and not self.found:
                text = f"{left} units of {band.name} are left after all was freed and all ended."
                self.found.append(Violation("liveness", "1", text))


@dataclass(frozen=True, slots=True)
class Program:
    """A program that broke a rule: its steps, and what was reported."""

    system: str
    scope: str
    steps: tuple[Step, ...]
    violations: tuple[Violation, ...]
    crash: str = ""

    def text(self) -> str:
        """For people: the steps one a line, then the first report."""
        lines = [f"{self.scope} arena, {self.system}:"]
        lines += [f"  {place:2} {words(step)}" for place, step in enumerate(self.steps, 1)]
        lines += [self.violations[0].text()] if self.violations else [self.crash]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Plain form."""
        return {
            "scope": self.scope,
            "steps": [list(step) for step in self.steps],
            "violations": [violation.to_json() for violation in self.violations],
            "crash": self.crash,
        }


def words(step: Step) -> str:
    """One step as a line."""
    return " ".join(str(part) for part in step)


@dataclass(slots=True)
class Count:
    """What a search adds up to. `programs` counts host programs by their calls (a program with
    other ends in between is the same program), `runs` runs of them, one for each order of ends.
    """

    runs: dict[int, int] = field(default_factory=dict)
    programs: dict[int, int] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    ends: int = 0
    steps: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    failures: list[Program] = field(default_factory=list)
    failed: int = 0

    def add(self, other: Count, *, lengths: bool = True) -> None:
        """Join the counts of another part of the search; runs by length only with `lengths`."""
        if lengths:
            for length, count in other.runs.items():
                self.runs[length] = self.runs.get(length, 0) + count
            for length, count in other.programs.items():
                self.programs[length] = self.programs.get(length, 0) + count
        self.calls.update(other.calls)
        self.refused += other.refused
        self.ends += other.ends
        self.steps += other.steps
        self.cells.update(other.cells)
        self.failed += other.failed
        self.failures += other.failures[: FAILURES_KEPT_MAX - len(self.failures)]


Seen = Callable[[tuple[Step, ...], Rig], None]


class Search:
    """Every continuation of `prefix` to exactly `length` calls, depth first.

    With `named`, the calls are these and no others, and only the ends vary, after the last call
    too. `symmetric` and `latest`: see `SmallWorld.options`. `seen` is told of every finished run.
    """

    def __init__(
        self,
        system: str,
        scope: str,
        length: int,
        *,
        prefix: Sequence[Step] = (),
        named: Sequence[Step] = (),
        symmetric: bool = True,
        latest: bool = True,
        seen: Seen | None = None,
    ) -> None:
        self.system = system
        self.scope = scope
        self.length = length
        self.prefix = tuple(prefix)
        self.named = tuple(named)
        self.symmetric = symmetric
        self.latest = latest
        self.seen = seen
        self.count = Count()
        self._rig: Rig

    def run(self) -> Count:
        """All of them."""
        self._rig = Rig(self.system, self.scope, symmetric=self.symmetric, latest=self.latest)
        taken: list[Step] = []
        crash = ""
        for step in self.prefix:
            taken.append(step)
            crash = crash or self._did(self._rig.world.take, step)
        self._go_on(taken, crash)
        return self.count

    def _go_on(self, taken: list[Step], crash: str) -> None:
        """Run every continuation of what was taken; the system may be left anywhere."""
        rig = self._rig
        options: list[Step] = []
        if not rig.found and not crash:
            crash = self._did(lambda: options.extend(self._options(rig.world)))
            if not options and not crash:
                crash = self._did(rig.finish)
        if not options:
            self._note(tuple(taken), rig, crash)
            return
        moment = Moment(rig) if len(options) > 1 else None
        for place, step in enumerate(options):
            if place and moment is not None:
                moment.again()
            taken.append(step)
            self._go_on(taken, self._did(rig.world.take, step))
            taken.pop()

    @staticmethod
    def _did(call: Callable[..., None], *args: object) -> str:
        """Make a call; where it raised, if it did: that is a result, and not our end."""
        try:
            call(*args)
        except Exception:  # noqa: BLE001 - whatever a system raises
            return traceback.format_exc(limit=8)
        return ""

    def _options(self, world: SmallWorld) -> list[Step]:
        """What may come next; nothing once the program is over."""
        if self.named:
            while world.calls < len(self.named) and not world.can(self.named[world.calls]):
                world.calls += 1  # what it names is gone in this order: the next one
            return [*self.named[world.calls : world.calls + 1], *world.ends_now()]
        if world.refused:
            return []
        if world.calls < self.length:
            return world.options()
        # The program is over; what was launched still runs, in every order.
        return [] if self.latest else [step for step in world.ends_now() if step[0] == "device"]

    def _note(self, taken: tuple[Step, ...], rig: Rig, crash: str) -> None:
        count, length = self.count, rig.world.calls
        if length < self.length and not rig.found and not crash:
            return  # it ends with a refused call: a program of that length, counted there
        count.runs[length] = count.runs.get(length, 0) + 1
        calls = [str(step[0]) for step in taken if step[0] in CALLS]
        if len(calls) == len(taken):
            count.programs[length] = count.programs.get(length, 0) + 1
        count.calls.update(calls)
        count.refused += rig.world.refused
        count.ends += len(taken) - len(calls)
        count.steps += rig.device.steps
        count.cells.update(rig.cells.counts())
        if rig.found or crash:
            count.failed += 1
            if len(count.failures) < FAILURES_KEPT_MAX:
                found = tuple(rig.found[:4])
                count.failures.append(Program(self.system, self.scope, taken, found, crash))
        if self.seen is not None:
            self.seen(taken, rig)


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the whole search; parts are numbered in the order of `items`."""

    scope: str
    length: int
    prefix: tuple[Step, ...] = ()
    name: str = ""  # of a named program

    def search(self, system: str) -> Count:
        """Run it."""
        named = NAMED[self.name][1] if self.name else ()
        return Search(system, self.scope, self.length, prefix=self.prefix, named=named).run()


def items(system: str, calls_max: int) -> list[Item]:
    """The whole search, in parts: short programs by length, longer ones by their first calls (and
    the ends between them), then the named programs. Programs of 5 calls share 3 of them in a part,
    of 3 and 4 calls 2.
    """
    found: list[Item] = []
    for length in range(1, calls_max + 1):
        for scope in SCOPES:
            if length <= PREFIX_CALLS:
                found.append(Item(scope, length))
            else:
                calls = max(PREFIX_CALLS, length - REST_CALLS)
                prefixes = _prefixes(system, scope, calls)
                found += [Item(scope, length, prefix) for prefix in prefixes]
    named = [Item(scope, len(calls), (), name) for name, (scope, calls) in NAMED.items()]
    # Another allocator may have walls between its bands, and no moves: other programs, no others.
    return found + (named if system == "arena" else [])


def _prefixes(system: str, scope: str, calls: int) -> list[tuple[Step, ...]]:
    """Every accepted start of so many calls."""
    found: list[tuple[Step, ...]] = []

    def seen(taken: tuple[Step, ...], rig: Rig) -> None:
        if not (rig.world.refused or rig.found):
            found.append(taken)

    Search(system, scope, calls, seen=seen).run()
    return found
