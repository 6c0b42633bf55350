"""The geometry oracle: where bands and fences may lie, from snapshots alone.

Written from the arena geometry of the specification: S bytes, bands in chain order on grids of
their own, the low end anchored at 0, the high end's grid ending at S, frontiers at the outermost
unit in use. Integers only; nothing here is computed by the code it checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Final

from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import (
    NO_VIOLATIONS,
    ByteRange,
    UnitName,
    Violation,
)
from onearena.stress.sut import BandFacts, PlanFacts

ALIGN_BYTES: Final = 16
HOLE: Final = 1
STATIC: Final = (
    "name",
    "placement",
    "unit_bytes",
    "origin_bytes",
    "first_unit",
    "capacity_units",
)
_static = attrgetter(*STATIC)


class GeometryOracle:
    """Bands and fences of every snapshot against the plan.

    `frontiers_retreat`: a frontier stands exactly at the outermost unit that is not a hole. False
    for a system of fixed bands, whose frontiers never move.

    Cost of a snapshot: bands and fences. Other records cost one type test.
    """

    name = "geometry"

    def __init__(self, plan: PlanFacts, *, frontiers_retreat: bool = True) -> None:
        self._plan = plan
        self._frontiers_retreat = frontiers_retreat
        self._found: list[Violation] = []
        self._judge_plan()

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Judge a `Snapshot`, or the answer of a `snapshot` call; ignore all else."""
        snapshot = snapshot_of(record)
        if snapshot is not None:
            self._judge(snapshot)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    # -- the plan ---------------------------------------------------------------------------------

    def _judge_plan(self) -> None:
        """Grids are fixed, so their own shape is judged once; reported at the first record."""
        plan, bands = self._plan, self._plan.bands
        if plan.arena_bytes % ALIGN_BYTES:
            self._say(f"S is {plan.arena_bytes}, no multiple of {ALIGN_BYTES}")
        if plan.budget_bytes and plan.arena_bytes != plan.budget_bytes:
            edges = sorted((plan.arena_bytes, plan.budget_bytes))
            self._say(
                f"S is {plan.arena_bytes}, the budget was {plan.budget_bytes}",
                extent=ByteRange("arena", *edges),
            )
        for index, band in enumerate(bands):
            expected = "floating"
            if index == 0:
                expected = "low_end"
            elif index == len(bands) - 1:
                expected = "high_end"
            if band.placement != expected:
                self._say(f"band {band.name}, number {index}, is {band.placement}")
            if band.unit_bytes <= 0 or band.unit_bytes % ALIGN_BYTES:
                self._say(f"units of {band.name} have {band.unit_bytes} bytes")
                continue
            self._judge_grid(band)

    def _judge_grid(self, band: BandFacts) -> None:
        size, unit = self._plan.arena_bytes, band.unit_bytes
        first = band.origin_bytes + band.first_unit * unit
        end = first + band.capacity_units * unit
        if band.origin_bytes % ALIGN_BYTES:
            self._say(f"the grid of {band.name} starts at {band.origin_bytes}")
        if band.origin_bytes + unit > 0:
            self._say(f"the sink of {band.name} reaches into the arena")
        if not 0 <= first < unit or not size - unit < end <= size:
            self._say(
                f"the grid of {band.name} has {band.capacity_units} units in [{first}, {end}); "
                f"other whole units fit into [0, {size})"
            )
        if band.placement == "low_end" and first != 0:
            self._say(f"the low end {band.name} is anchored at {first}, not at 0")
        if band.placement == "high_end" and end != size:
            self._say(f"the grid of the high end {band.name} ends at {end}, not at {size}")

    # -- snapshots --------------------------------------------------------------------------------

    def _judge(self, snapshot: Snapshot) -> None:
        plan = self._plan
        if snapshot.arena_bytes != plan.arena_bytes:
            self._say(f"S changed from {plan.arena_bytes} to {snapshot.arena_bytes}")
        if len(snapshot.bands) != len(plan.bands):
            self._say(f"{len(snapshot.bands)} bands, planned were {len(plan.bands)}")
            return
        below: BandSnapshot | None = None
        for facts, band in zip(plan.bands, snapshot.bands, strict=True):
            if _static(facts) != _static(band):
                for field, old, new in zip(STATIC, _static(facts), _static(band), strict=True):
                    if old != new:
                        self._say(f"{field} of {facts.name} changed from {old} to {new}")
            if band.high_unit < band.low_unit:
                self._say(f"{band.name} has units [{band.low_unit}, {band.high_unit})")
            if not band.has_units:
                continue
            self._judge_band(band)
            if below is not None and below.end_bytes > band.start_bytes:
                shared = ByteRange("arena", band.start_bytes, below.end_bytes)
                self._say(f"{below.name} reaches into {band.name}", extent=shared)
            below = band
        self._judge_fences(snapshot)

    def _judge_band(self, band: BandSnapshot) -> None:
        end_unit = band.first_unit + band.capacity_units
        if not band.first_unit <= band.low_unit < band.high_unit <= end_unit:
            self._say(
                f"{band.name} has units [{band.low_unit}, {band.high_unit}) of a grid with "
                f"[{band.first_unit}, {end_unit})",
                extent=ByteRange("arena", band.start_bytes, band.end_bytes),
            )
        if band.start_bytes < 0 or band.end_bytes > self._plan.arena_bytes:
            extent = ByteRange("arena", band.start_bytes, band.end_bytes)
            self._say(f"{band.name} leaves [0, {self._plan.arena_bytes})", extent=extent)
        if band.placement == "low_end" and band.low_unit != band.first_unit:
            self._say(f"the low end {band.name} starts at unit {band.low_unit}")
        if band.placement == "high_end" and band.high_unit != end_unit:
            self._say(f"the high end {band.name} ends before unit {band.high_unit}")
        if self._frontiers_retreat and band.states:
            for unit in _frontier_units(band):
                if band.states[unit - band.low_unit] == HOLE:
                    self._say(
                        f"the frontier of {band.name} did not retreat over the hole {unit}",
                        unit=UnitName(band.name, unit),
                    )

    def _judge_fences(self, snapshot: Snapshot) -> None:
        """Fences lie in [0, S), are disjoint, and no band has grown over what they cover."""
        if not snapshot.fences:
            return
        taken = [(b.start_bytes, b.end_bytes, b.name) for b in snapshot.bands if b.has_units]
        taken += [(fence.start_bytes, fence.end_bytes, "") for fence in snapshot.fences]
        for fence in snapshot.fences:
            extent = ByteRange("arena", fence.start_bytes, fence.end_bytes)
            if not 0 <= fence.start_bytes < fence.end_bytes <= snapshot.arena_bytes:
                self._say("a fence is no byte range of the arena", extent=extent)
        taken.sort()
        for (_, end, name), (start, other_end, other) in pairwise(taken):
            if end > start and not (name and other):
                extent = ByteRange("arena", start, min(end, other_end))
                what = name or other
                self._say(f"a fence lies in {what or 'another fence'}", extent=extent)

    def _say(
        self, message: str, *, extent: ByteRange | None = None, unit: UnitName | None = None
    ) -> None:
        self._found.append(
            Violation(
                oracle=self.name, rule="geometry", message=f"{message}.", unit=unit, bytes=extent
            )
        )


def _frontier_units(band: BandSnapshot) -> Iterator[int]:
    if band.placement != "low_end":
        yield band.low_unit
    if band.placement != "high_end":
        yield band.high_unit - 1


def snapshot_of(record: object) -> Snapshot | None:
    """The snapshot that a record is or carries: itself, or the answer of a `snapshot` call."""
    answer = record.answer if type(record) is Call else record
    return answer if isinstance(answer, Snapshot) else None
