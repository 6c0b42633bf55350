"""Figure 4 of the article, as a plan: one window page moves so that four full pages fit.

State is the low end, the window floats, full is the high end. Full has three one-page holes and no
room at its frontier; a window page is two full pages wide, and the window has a hole of its own.
"""

from __future__ import annotations

from onearena.core.answers import Fits, Infeasible, Rung
from onearena.core.fit import fits, more_units
from onearena.core.geometry import chain_geometry
from onearena.core.relayout import Plan, plan
from onearena.core.view import ArenaView, BandView

FULL = 64
WINDOW = 2 * FULL
STATE = 3 * FULL
STATE_UNITS, WINDOW_UNITS, FULL_UNITS = 2, 4, 8
SIZE = STATE_UNITS * STATE + WINDOW_UNITS * WINDOW + FULL_UNITS * FULL


def figure_4() -> ArenaView:
    geometry = chain_geometry(SIZE, [("state", STATE), ("window", WINDOW), ("full", FULL)])
    state, window, full = (band.grid for band in geometry.bands)
    window_low = window.first_at_or_after(STATE_UNITS * STATE)
    full_low = full.end_unit - FULL_UNITS
    full_holes = {full_low + 2, full_low + 4, full_low + 5}
    return ArenaView(
        epoch=1,
        geometry=geometry,
        bands=(
            BandView(
                geometry=geometry.bands[0],
                low_unit=state.first_unit,
                high_unit=state.first_unit + STATE_UNITS,
                live=frozenset(range(state.first_unit, state.first_unit + STATE_UNITS)),
            ),
            BandView(
                geometry=geometry.bands[1],
                low_unit=window_low,
                high_unit=window_low + WINDOW_UNITS,
                live=frozenset(range(window_low, window_low + WINDOW_UNITS)) - {window_low + 1},
            ),
            BandView(
                geometry=geometry.bands[2],
                low_unit=full_low,
                high_unit=full.end_unit,
                live=frozenset(range(full_low, full.end_unit)) - full_holes,
            ),
        ),
    )


def test_figure_4_has_no_room_at_any_frontier() -> None:
    view = figure_4()
    state, window, full = view.bands
    assert state.grid.start(state.high_unit) == window.grid.start(window.low_unit)
    assert window.grid.start(window.high_unit) == full.grid.start(full.low_unit)
    assert full.grid.start(full.high_unit) == SIZE


def test_without_a_float_moving_three_full_pages_fit_and_a_fourth_does_not() -> None:
    view = figure_4()
    assert fits(view, (0, 0, 3)) == Fits(Rung.NONE)
    assert fits(view, (0, 0, 4)) == Fits(Rung.RELAYOUT)


def test_the_plan_copies_one_window_page_into_the_windows_own_hole() -> None:
    view = figure_4()
    window, full = view.bands[1], view.bands[2]
    got = plan(view, (0, 0, 4))
    assert isinstance(got, Plan)
    assert got.rung is Rung.RELAYOUT
    assert got.copied_bytes == WINDOW
    assert [(b.band, b.sources.tolist(), b.targets.tolist()) for b in got.batches] == [
        (1, [window.high_unit - 1], [window.low_unit + 1])
    ]
    # The three holes serve in place (nearest the high end first), the fourth page beside them.
    assert got.grants[2].tolist() == [
        full.low_unit + 5,
        full.low_unit + 4,
        full.low_unit + 2,
        full.low_unit - 1,
    ]
    assert [(f.band, f.low_unit, f.high_unit) for f in got.frontiers] == [
        (1, window.low_unit, window.high_unit - 1),
        (2, full.low_unit - 1, full.high_unit),
    ]
    # The left window page is fenced until its copy has been made.
    start = window.grid.start(window.high_unit - 1)
    assert [(f.band, f.start_bytes, f.end_bytes) for f in got.fenced] == [
        (1, start, start + WINDOW)
    ]


def test_five_fit_four_serve_one_is_left() -> None:
    view = figure_4()
    assert more_units(view, 2) == 5
    assert isinstance(plan(view, (0, 0, 5)), Plan)
    assert fits(view, (0, 0, 6)) == Infeasible(2, FULL)
    got = plan(view, (0, 0, 4))
    assert isinstance(got, Plan)
    frontier = {change.band: change for change in got.frontiers}
    left = view.bands[2].grid.start(frontier[2].low_unit) - view.bands[1].grid.start(
        frontier[1].high_unit
    )
    assert left == FULL
    assert got.holes_left == 0
