"""The Arena page: the whole arena at true scale, now, and the same facts as tables."""

from __future__ import annotations

import streamlit as st

from onearena.dashboard import shell
from onearena.dashboard.checked import SourceError
from onearena.dashboard.components.arena_map import arena_map
from onearena.dashboard.components.facts import facts, table_data
from onearena.dashboard.feed import Reading
from onearena.dashboard.frame import Frame
from onearena.dashboard.view_model import ArenaView, view_model


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("Arena")
    if chosen is not None:
        shell.refreshing(lambda: _draw(chosen), live=not chosen.recorded)


def _draw(chosen: shell.Chosen) -> None:
    view, picked = shell.looked()
    reading = _reading(chosen, view)
    status = shell.status_of_reading(reading, recorded=chosen.recorded)
    if reading.frame is None:
        shell.status_line(status)
        return
    page = view_model(reading.frame, view=view, picked=picked)
    shell.status_line(status, page.title)
    _place(page)


def _reading(chosen: shell.Chosen, view: tuple[int, int] | None) -> Reading:
    """The latest frame; while paused, the one that was there when the pause began."""
    if chosen.recorded:
        return _recorded(chosen)
    kept: Frame | None = st.session_state.get("kept")
    if st.session_state.get("paused") and kept is not None:
        return Reading(kept)
    reading = shell.feed_of(chosen.url).read(view)
    st.session_state["kept"] = reading.frame
    return reading


def _recorded(chosen: shell.Chosen) -> Reading:
    """The frame that the link names, or the last one."""
    try:
        record = shell.record_of(chosen)
        if not record.frames:
            return Reading(None, "unusable", f"{record.name}: it holds no frame")
        moments = [entry.moment for entry in record.frames]
        wanted = shell.linked_number("step")
        at = moments.index(wanted) if wanted in moments else len(moments) - 1
        return Reading(record.frame(at))
    except SourceError as error:
        return Reading(None, error.trouble, error.message)


def _place(page: ArenaView) -> None:
    facts(key="arena-numbers", numbers=page.facts)
    arena_map(page.map, key=shell.MAP_KEY)
    hint = "Click a unit, or press Enter on it, to see everything known of it."
    tables = (
        table_data("Bytes by band", page.bands, shown=7),
        table_data("Selected", page.picked, shown=8, empty=hint),
        table_data("Open uses", page.uses, shown=8),
        table_data("Who waits for whom", page.waits, shown=5),
        table_data("Last moves", page.moves, shown=5),
    )
    notes = page.notes or ("Every unit is drawn by itself.",)
    facts(key="arena-tables", tables=tables, notes=notes, words=page.alt)


if __name__ == "__main__":
    show()
