"""How far a plan's search looks, and what its arrays hold: no further and no more than needed."""

from __future__ import annotations

import numpy as np

from onearena.core import kernels
from onearena.core.geometry import BandGeometry, Placement, chain_geometry
from onearena.core.relayout import Plan, reach_bytes
from onearena.core.relayout_words import plan_words
from onearena.core.store import Store
from onearena.core.view import ArenaView, BandView

SIZE = 16 * 60


def _empty(band: BandGeometry) -> BandView:
    at = band.grid.end_unit if band.placement is Placement.HIGH_END else band.grid.first_unit
    return BandView(geometry=band, low_unit=at, high_unit=at, live=frozenset())


def test_edges_are_looked_for_as_far_as_the_demand_and_one_unit_of_every_band() -> None:
    geometry = chain_geometry(SIZE, [("low", 16), ("float", 48), ("high", 32)])
    bands = tuple(_empty(band) for band in geometry.bands)
    view = ArenaView(epoch=1, geometry=geometry, bands=bands)
    words = Store(geometry, arena=0).words
    for demand, reach in (
        ((0, 0, 0), 16 + 48 + 32),
        ((1, 0, 0), 2 * 16 + 48 + 32),
        ((0, 2, 0), 16 + 3 * 48 + 32),
        ((3, 1, 4), 4 * 16 + 2 * 48 + 5 * 32),
    ):
        assert reach_bytes(view, demand) == reach, demand
        assert kernels.plan_reach(words, np.array(demand, np.int64)) == reach, demand


def test_a_plan_holds_its_units_in_one_array_and_no_word_more() -> None:
    geometry = chain_geometry(16 * 12, [("low", 16), ("float", 16), ("high", 16)])
    store = Store(geometry, arena=0)
    handout = store.allocate((2, 3, 1))
    assert handout is not None
    store.mark_written(1, handout.units[2:5])
    store.free(handout.ids[3:4])  # a hole inside the float
    demand = (1, 0, 6)
    plan = plan_words(store.words, np.array(demand, np.int64))
    assert isinstance(plan, Plan)
    assert sum(batch.sources.size for batch in plan.batches) > 0
    flat = plan.grants[0].base
    held = sum(2 * batch.sources.size for batch in plan.batches) + sum(demand)
    settling = flat.size - held
    moved = sum(batch.sources.size for batch in plan.batches)
    # Beside batches and grants one word for each unit that lies outside the new frontiers.
    assert settling == moved, (flat.size, held)
