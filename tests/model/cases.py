"""Random small arenas in plain integers, and their forms for the product and for the oracles.

A case counts in small bytes (units of 1 to 7, S to 28); the product's geometry wants multiples of
16, so its form is the same arena 16 times as large.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from brute_force import BruteForce

from onearena.core.geometry import ALIGN_BYTES, ArenaGeometry, chain_geometry
from onearena.core.view import ArenaView, BandView

SCALE = ALIGN_BYTES
LIVE, HOLE, PENDING, VACATED = "L", "h", "p", "v"
PINNED, SENDING, FREED_SENDING = "P", "T", "f"
QUARANTINED, FREED_QUARANTINED = "Q", "q"
COUNTED = frozenset((LIVE, PINNED, SENDING, QUARANTINED, FREED_QUARANTINED))
FIXED = frozenset((PINNED, SENDING, FREED_SENDING, QUARANTINED, FREED_QUARANTINED))


@dataclass(frozen=True, slots=True)
class CaseBand:
    """One band: unit bytes, the address of its first cell in [0, S), and the cells it holds.

    ``cells`` maps the start byte of every cell between the frontiers to its letter above.
    """

    unit: int
    anchor: int
    cells: tuple[tuple[int, str], ...]

    def count(self, letters: frozenset[str] | str) -> int:
        return sum(letter in letters for _, letter in self.cells)


@dataclass(frozen=True, slots=True)
class Case:
    """One arena and one demand."""

    size: int
    bands: tuple[CaseBand, ...]
    demand: tuple[int, ...]

    @property
    def floats(self) -> range:
        return range(1, len(self.bands) - 1)


Frame = tuple[int, tuple[tuple[int, int], ...]]
"""S, and (unit, anchor) of every band: what a geometry depends on."""


def random_frame(rng: random.Random, *, sizes: tuple[int, int] = (4, 18)) -> Frame:
    count = rng.choice((2, 3, 3, 4, 4, 5))
    size = max(rng.randint(*sizes), rng.randint(*sizes))
    largest = rng.choice((2, 3, 3, 4, 7))
    units = [rng.randint(1, largest) for _ in range(count)]
    anchors = [0, *(rng.randrange(unit) for unit in units[1:-1]), size % units[-1]]
    return size, tuple(zip(units, anchors, strict=True))


def random_case(
    rng: random.Random, *, sizes: tuple[int, int] = (4, 18), frame: Frame | None = None
) -> Case:
    """A random arena in a valid layout, with a demand near what its free bytes could hold."""
    size, grids = random_frame(rng, sizes=sizes) if frame is None else frame
    fullness = rng.choice((0.3, 0.5, 0.7, 0.9))
    fixing = rng.choice((0.0, 0.12, 0.16, 0.2))
    freeing = rng.choice((0.0, 0.1, 0.3))
    count = len(grids)
    edges = [0, *sorted(rng.randint(0, size) for _ in range(count - 1)), size]
    bands = []
    for index, (unit, anchor) in enumerate(grids):
        low, high = edges[index], edges[index + 1]
        starts = range(low + (anchor - low) % unit, high - unit + 1, unit)
        # Every other band leaves a gap at an edge that is not its anchor.
        skip = rng.randint(0, len(starts)) if index > 0 and rng.random() < 0.5 else 0
        stop = len(starts)
        if (index == 0 or index < count - 1) and rng.random() < 0.5:
            stop = rng.randint(skip, stop)
        cells = tuple(
            (start, _letter(rng, fullness=fullness, fixing=fixing, freeing=freeing))
            for start in starts[skip:stop]
        )
        bands.append(CaseBand(unit, anchor, cells))
    return Case(size, tuple(bands), _demand(rng, size, bands))


def _letter(rng: random.Random, *, fullness: float, fixing: float, freeing: float) -> str:
    if rng.random() < fixing:
        # A pin in a band that has to move is the rarest case of interest: four in nine.
        return rng.choice(
            (*4 * (PINNED,), SENDING, SENDING, FREED_SENDING, QUARANTINED, FREED_QUARANTINED)
        )
    if rng.random() < fullness:
        return LIVE
    return rng.choice((PENDING, VACATED)) if rng.random() < freeing else HOLE


def _demand(rng: random.Random, size: int, bands: list[CaseBand]) -> tuple[int, ...]:
    """One to three bands ask for what the free bytes hold, give or take a unit."""
    free = size - sum(band.count(COUNTED) * band.unit for band in bands)
    free += rng.randint(-4, 1)
    demand = [0] * len(bands)
    for index in rng.sample(range(len(bands)), rng.randint(1, min(3, len(bands)))):
        most = max(0, free // bands[index].unit)
        demand[index] = most if rng.random() < 0.4 else rng.randint(0, most)
        free -= demand[index] * bands[index].unit
    if not any(demand):
        demand[rng.randrange(len(demand))] = 1
    return tuple(demand)


def geometry_of(case: Case) -> ArenaGeometry:
    return geometry_of_frame((case.size, tuple((band.unit, band.anchor) for band in case.bands)))


@lru_cache(maxsize=8)
def geometry_of_frame(frame: Frame) -> ArenaGeometry:
    size, grids = frame
    return chain_geometry(
        size * SCALE,
        [(f"band{index}", unit * SCALE) for index, (unit, _) in enumerate(grids)],
        float_anchor_bytes=[anchor * SCALE for _, anchor in grids[1:-1]],
    )


def view_of(case: Case, *, epoch: int = 7) -> ArenaView:
    """The case as the pure functions see it."""
    geometry = geometry_of(case)
    bands = []
    for index, band in enumerate(case.bands):
        grid = geometry.bands[index].grid
        units = {grid.first_at_or_after(start * SCALE): letter for start, letter in band.cells}
        edge = 0
        if index == 0:
            edge = grid.first_unit
        elif index == len(case.bands) - 1:
            edge = grid.end_unit

        def having(*letters: str, units: dict[int, str] = units) -> frozenset[int]:
            return frozenset(unit for unit, letter in units.items() if letter in letters)

        bands.append(
            BandView(
                geometry=geometry.bands[index],
                low_unit=min(units, default=edge),
                high_unit=max(units) + 1 if units else edge,
                live=having(LIVE, PINNED, SENDING, QUARANTINED),
                pending=having(PENDING, FREED_SENDING, FREED_QUARANTINED),
                vacated=having(VACATED),
                transfer=having(SENDING, FREED_SENDING),
                quarantined=having(QUARANTINED, FREED_QUARANTINED),
                pinned=having(PINNED),
            )
        )
    return ArenaView(epoch=epoch, geometry=geometry, bands=tuple(bands))


def brute_bytes(
    brute: BruteForce,
    case: Case,
    *,
    demand: tuple[int, ...] | None = None,
    size: int | None = None,
    fixed: frozenset[tuple[int, int]] | None = None,
    emptied: frozenset[int] = frozenset(),
) -> int:
    """Least bytes of moves that serve the demand, in the case's bytes; -1: none does.

    ``fixed`` are (band, start byte) that may not move (default: as the case says); a freed unit
    under a transfer is in the way only while it is one of them. ``size`` grows the arena at its
    high end, which moves with it. ``emptied`` bands have no unit and ask for none.
    """
    fixed = fixed_of(case) if fixed is None else fixed
    wanted = case.demand if demand is None else demand
    grown = 0 if size is None else size - case.size
    occupied = held = 0
    counts = []
    last = len(case.bands) - 1
    for index, band in enumerate(case.bands):
        count = 0
        for start, letter in band.cells:
            stays = (index, start) in fixed
            if index in emptied or not (letter in COUNTED or (stays and letter in FIXED)):
                continue
            count += 1
            bit = 1 << (start + (grown if index == last else 0))
            occupied |= bit
            held |= bit if stays else 0
        counts.append(count)
    return brute.least_bytes(
        case.size + grown,
        np.array([band.unit for band in case.bands], dtype=np.int64),
        np.array(
            [band.anchor + (grown if i == last else 0) for i, band in enumerate(case.bands)],
            dtype=np.int64,
        ),
        np.array(counts, dtype=np.int64),
        np.array([0 if i in emptied else more for i, more in enumerate(wanted)], dtype=np.int64),
        occupied,
        held,
    )


def fixed_of(case: Case) -> frozenset[tuple[int, int]]:
    """(band, start byte) of every fixed unit."""
    return frozenset(
        (index, start)
        for index, band in enumerate(case.bands)
        for start, letter in band.cells
        if letter in FIXED
    )
