"""The Arena page: the whole arena at true scale, now, and the same facts as tables."""

from __future__ import annotations

import time

import streamlit as st

from onearena.dashboard import shell
from onearena.dashboard.components.arena_map import arena_map, looked_at
from onearena.dashboard.feed import Reading
from onearena.dashboard.frame import Frame
from onearena.dashboard.view_model import ArenaView, Table, status_of, view_model


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("Arena")
    if chosen is None:
        return
    shell.refreshing(lambda: _draw(chosen), live=True)


def _draw(chosen: shell.Chosen) -> None:
    view, picked = looked_at(shell.MAP_KEY)
    if shell.MAP_KEY not in st.session_state:
        view, picked = shell.linked_view(), shell.linked_number("pick")
    shell.write_link(
        view=None if view is None else f"{view[0]}-{view[1]}",
        pick=picked,
    )
    reading = _reading(chosen, view)
    frame, paused = reading.frame, bool(st.session_state.get("paused"))
    status = status_of(
        taken_s=None if frame is None else frame.taken_s,
        now_s=time.time(),
        paused=paused,
        trouble=reading.trouble,
        reason=reading.reason,
    )
    if frame is None:
        shell.status_line(status)
        return
    page = view_model(frame, view=view, picked=picked)
    shell.status_line(status, page.title)
    _place(page)


def _reading(chosen: shell.Chosen, view: tuple[int, int] | None) -> Reading:
    """The latest frame; while paused, the one that was there when the pause began."""
    kept: Frame | None = st.session_state.get("kept")
    if st.session_state.get("paused") and kept is not None:
        return Reading(kept)
    reading = shell.feed_of(chosen.url).read(view)
    st.session_state["kept"] = reading.frame
    return reading


def _place(page: ArenaView) -> None:
    with st.container(horizontal=True):
        for name, value in page.facts:
            st.metric(name, value, width="content")
    arena_map(page.map, key=shell.MAP_KEY)
    for note in page.notes:
        st.caption(note)
    st.subheader("Bytes by band")
    _table(page.bands, rows=6)
    left, right = st.columns(2)
    with left:
        st.subheader("Selected")
        if page.picked.rows:
            _table(page.picked, rows=7)
        else:
            st.caption("Click a unit, or press Enter on it, to see everything known of it.")
        st.subheader("Who waits for whom")
        _table(page.waits, rows=5)
    with right:
        st.subheader("Open uses")
        _table(page.uses, rows=7)
        st.subheader("Last moves")
        _table(page.moves, rows=5)
    with st.expander("The map in words"):
        st.write(page.alt)


def _table(table: Table, *, rows: int) -> None:
    """A table of fixed height: what comes and goes moves nothing below it."""
    st.dataframe(table.as_columns(), hide_index=True, width="stretch", height=38 + 35 * rows)
