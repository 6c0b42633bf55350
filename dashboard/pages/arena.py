"""The Arena page: the whole arena at true scale, now, and the same facts as tables.

While a running process is shown, the script runs once and the browser asks for the rest itself
(`onearena.dashboard.live`). The script runs again where the browser cannot go on alone: when the
user looks elsewhere, while paused, and until there is a first snapshot.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from onearena.dashboard import shell
from onearena.dashboard.checked import SourceError
from onearena.dashboard.components.arena_map import arena_map
from onearena.dashboard.components.facts import facts
from onearena.dashboard.components.live_line import live_line
from onearena.dashboard.feed import Reading
from onearena.dashboard.frame import Frame
from onearena.dashboard.live import FEEDS, notes_of, poll_path, status_data, tables_of
from onearena.dashboard.view_model import ArenaView, view_model

# Components that listen to the status line: numbers, map, tables. (Not a text under it: what stands
# alone in a page's script is drawn on the page.)
PLACES: Final = 3


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("Arena")
    if chosen is None:
        return
    again = not chosen.recorded and not _polled(chosen)
    shell.refreshing(lambda: _draw(chosen, again=again), again=again)


def _polled(chosen: shell.Chosen) -> bool:
    """Whether the browser can go on alone from here."""
    if chosen.recorded or st.session_state.get("paused"):
        return False
    view, _ = shell.looked()
    return shell.feed_of(chosen.url).read(view).frame is not None


def _draw(chosen: shell.Chosen, *, again: bool) -> None:
    view, picked = shell.looked()
    reading = _reading(chosen, view)
    status = shell.status_of_reading(reading, recorded=chosen.recorded)
    if reading.frame is None:
        live_line(status_data(status), key="arena-status")
        return
    if again and not st.session_state.get("paused"):
        st.rerun()  # the first snapshot came
    polled = not chosen.recorded and not again
    poll = poll_path(FEEDS.of(chosen.url).token, view=view, picked=picked) if polled else ""
    page = view_model(reading.frame, view=view, picked=picked)
    live_line(
        status_data(status, page.title),
        key="arena-status",
        poll=poll,
        every_s=shell.REFRESH_S,
        places=PLACES,
    )
    _place(page, live=polled)


def _reading(chosen: shell.Chosen, view: tuple[int, int] | None) -> Reading:
    """The latest frame; while paused, the one that was there when the pause began."""
    if chosen.recorded:
        return _recorded(chosen)
    feed = shell.feed_of(chosen.url)
    if not st.session_state.get("paused"):
        st.session_state.pop("kept", None)
        return feed.read(view)
    kept: Frame | None = st.session_state.get("kept")
    if kept is None:
        reading = feed.last(view) or feed.read(view)
        if reading.frame is None:
            return reading
        kept = st.session_state["kept"] = reading.frame
    return Reading(kept)


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


def _place(page: ArenaView, *, live: bool) -> None:
    numbers = ("numbers",) if live else ()
    facts(key="arena-numbers", numbers=page.facts, live=numbers)
    arena_map(page.map, key=shell.MAP_KEY, live=live)
    facts(
        key="arena-tables",
        tables=tables_of(page),
        notes=notes_of(page),
        words=page.alt,
        live=("tables", "notes", "words") if live else (),
    )


if __name__ == "__main__":
    show()
