"""A frozen view of one arena's bands: all that feasibility and relayout look at.

The view says what each unit is, not who uses it. It never changes, so any thread may read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onearena.core.geometry import Placement

if TYPE_CHECKING:
    from onearena.core.geometry import ArenaGeometry, BandGeometry, Grid

_NO_UNITS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BandView:
    """One band: its frontiers ``[low_unit, high_unit)`` and the units inside by state.

    ``live``, ``pending`` and ``vacated`` are disjoint; every other unit between the frontiers is a
    hole. ``transfer``, ``quarantined`` and ``pinned`` are separate facts about such units. A
    quarantined unit counts as handed out whatever its state. A pin matters on a live unit only.
    """

    geometry: BandGeometry
    low_unit: int
    high_unit: int
    live: frozenset[int] = _NO_UNITS
    pending: frozenset[int] = _NO_UNITS
    vacated: frozenset[int] = _NO_UNITS
    transfer: frozenset[int] = _NO_UNITS
    quarantined: frozenset[int] = _NO_UNITS
    pinned: frozenset[int] = _NO_UNITS
    handed_out: frozenset[int] = field(init=False)
    freed_fixed: frozenset[int] = field(init=False)
    unsettled: frozenset[int] = field(init=False)
    fixed: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        grid = self.grid
        inside = range(self.low_unit, self.high_unit)
        assert not self.live & self.pending, f"live and pending: {self.live & self.pending}"
        assert not (self.live | self.pending) & self.vacated, (
            "vacated units are not live or pending"
        )
        units = self.live | self.pending | self.vacated
        assert all(unit in inside for unit in units), f"units {sorted(units)} outside {inside}"
        if units or self.geometry.placement is not Placement.FLOATING:
            assert grid.first_unit <= self.low_unit <= self.high_unit <= grid.end_unit, (
                f"frontiers [{self.low_unit}, {self.high_unit}) leave the grid"
            )
        protected = self.transfer | self.quarantined
        assert protected <= units, f"fixed units that hold nothing: {sorted(protected - units)}"
        handed_out = self.live | self.quarantined
        freed_fixed = self.transfer - handed_out
        set_field = object.__setattr__
        set_field(self, "handed_out", handed_out)
        set_field(self, "freed_fixed", freed_fixed)
        set_field(self, "unsettled", (self.pending | self.vacated) - handed_out - freed_fixed)
        set_field(self, "fixed", protected | (self.pinned & self.live))

    @property
    def grid(self) -> Grid:
        """The band's grid."""
        return self.geometry.grid

    @property
    def is_float(self) -> bool:
        """Whether the band floats."""
        return self.geometry.placement is Placement.FLOATING

    @property
    def core_range(self) -> tuple[int, int]:
        """``[low, high)`` without the holes at outer edges that may move; ``(0, 0)`` of a float
        without any other unit.

        An end band keeps its anchored side: the low end starts at its first unit, the high end
        ends at its last.
        """
        used = self.handed_out | self.freed_fixed | self.unsettled
        grid, placement = self.grid, self.geometry.placement
        if placement is Placement.LOW_END:
            return grid.first_unit, max(used) + 1 if used else grid.first_unit
        if placement is Placement.HIGH_END:
            return min(used) if used else grid.end_unit, grid.end_unit
        return (min(used), max(used) + 1) if used else (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaView:
    """All bands in chain order, with the epoch of the arena at which they looked like this."""

    epoch: int
    geometry: ArenaGeometry
    bands: tuple[BandView, ...]

    def __post_init__(self) -> None:
        assert len(self.bands) == len(self.geometry.bands), "one view per band"
        cursor = 0
        for index, band in enumerate(self.bands):
            assert band.geometry == self.geometry.bands[index], f"band {index}: other geometry"
            if band.high_unit > band.low_unit:
                start = band.grid.start(band.low_unit)
                assert start >= cursor, f"band {index} starts at {start}, below {cursor}"
                cursor = band.grid.start(band.high_unit)
