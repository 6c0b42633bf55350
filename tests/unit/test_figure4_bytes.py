"""Figure 4 of the article on bytes: the whole arena, driven by calls, content followed."""

from __future__ import annotations

from itertools import pairwise

from onearena.core.answers import Fits, Infeasible, Rung
from onearena.core.rules import UseKind
from onearena.stress.figure4 import ARENA_BYTES, DEMAND, FULL, FULL_BYTES, WINDOW, Figure4


def test_the_figure_has_three_full_holes_one_window_hole_and_no_gap() -> None:
    snapshot = Figure4().stage("before").snapshot
    assert [band.hole_units for band in snapshot.bands] == [0, 1, 3]
    assert snapshot.gaps == ()
    assert sum(b.end_bytes - b.start_bytes for b in snapshot.bands) == ARENA_BYTES


def test_three_pages_fit_without_a_move_four_by_a_relayout_five_too_and_six_not() -> None:
    arena = Figure4().arena
    assert arena.fits((0, 0, 3)) == Fits(Rung.NONE)
    assert arena.fits((0, 0, 4)) == Fits(Rung.RELAYOUT)
    assert arena.fits((0, 0, 5)) == Fits(Rung.RELAYOUT)
    assert isinstance(arena.fits((0, 0, 6)), Infeasible)


def test_exactly_one_window_page_moves_into_the_windows_own_hole_and_all_content_stays() -> None:
    figure = Figure4()
    before = figure.stage("before")
    kept = [vid for band in figure.live for vid in band]
    window_pages = sorted(before.at[vid] for vid in figure.live[WINDOW])
    hole = next(
        (low_end, high_start)
        for (_, low_end), (high_start, _) in pairwise(window_pages)
        if low_end != high_start
    )
    granted = figure.realise()
    after = figure.stage("after")
    moved = [vid for vid in kept if after.at[vid] != before.at[vid]]
    assert len(moved) == 1
    assert before.at[moved[0]] == window_pages[-1]
    assert after.at[moved[0]] == hole
    for vid in kept:
        start, end = after.at[vid]
        assert figure.content(vid) == [(start, end, figure.stamps[vid])]
    pages = sorted(after.at[vid] for vid in granted.ids[FULL])
    full = after.snapshot.bands[FULL]
    # Three of the four stand in the old holes, the fourth beside them.
    assert sum(start >= before.snapshot.bands[FULL].start_bytes for start, _ in pages) == 3
    assert pages[0] == (full.start_bytes, full.start_bytes + FULL_BYTES)


def test_one_page_is_left_and_no_byte_of_it_is_hidden() -> None:
    figure = Figure4()
    figure.realise()
    # Fenced, not free, until the host has seen the copy that read these bytes.
    assert [gap.fenced_bytes for gap in figure.stage("after").snapshot.gaps] == [FULL_BYTES]
    for use, event in figure.arena.outstanding():
        assert figure.device.query(event)
        figure.arena.retire(use)
    assert [gap.free_bytes for gap in figure.stage("after").snapshot.gaps] == [FULL_BYTES]
    last = figure.arena.allocate((0, 0, 1), writer=UseKind.FORWARD, stream=figure.stream)
    assert not isinstance(last, Infeasible)
    assert figure.stage("full").snapshot.gaps == ()
    assert isinstance(figure.arena.fits((0, 0, 1)), Infeasible)


def test_asking_changes_nothing() -> None:
    figure = Figure4()
    before = figure.arena.snapshot()
    figure.ask()
    assert figure.arena.snapshot() == before
    assert DEMAND == (0, 0, 4)
