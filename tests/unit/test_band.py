"""A band's window on single units: their state, their word and their id, one at a time."""

from __future__ import annotations

from onearena.core.geometry import chain_geometry
from onearena.core.store import Store
from onearena.core.words import UnitState


def test_single_units_tell_state_word_and_id_inside_the_frontiers_only() -> None:
    geometry = chain_geometry(16 * 24, [("low", 16), ("float", 32), ("high", 16)])
    store = Store(geometry, arena=3)
    handout = store.allocate((5, 3, 4))
    assert handout is not None
    ids, units = handout.ids.tolist(), handout.units.tolist()
    owner = {(0, units[at]): ids[at] for at in range(5)}
    owner |= {(1, units[at]): ids[at] for at in range(5, 8)}
    owner |= {(2, units[at]): ids[at] for at in range(8, 12)}
    store.mark_written(0, handout.units[1:2])
    store.add_uses(0, handout.units[2:3], 1)
    store.add_uses(0, handout.units[2:3], 1)
    store.add_transfers(1, handout.units[6:7], 1)
    store.free(handout.ids[[0, 2]])  # a hole, and one that two uses keep pending

    words = {
        (0, units[0]): UnitState.HOLE,
        (0, units[1]): UnitState.LIVE + 32,  # written
        (0, units[2]): UnitState.PENDING + (2 << 24),  # uses
        (1, units[6]): UnitState.LIVE + (1 << 8),  # transfers
    }
    live = set(owner) - {(0, units[0]), (0, units[2])}
    for band in store.bands:
        for unit in range(band.grid.first_unit, band.grid.end_unit):
            at = (band.index, unit)
            if at not in owner:
                assert band.state(unit) is UnitState.BEYOND, at
                assert (band.unit_word(unit), band.id_of(unit)) == (0, 0), at
                continue
            word = band.unit_word(unit)
            assert word == words.get(at, UnitState.LIVE), at
            assert band.state(unit) == word % 8, at
            assert band.id_of(unit) == (owner[at] if at in live else 0), at
