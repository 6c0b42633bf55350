"""The History page: what the arena did over time, and the arena at any moment of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import streamlit as st

from onearena.dashboard import charts, shell
from onearena.dashboard.checked import SourceError
from onearena.dashboard.components.arena_map import arena_map
from onearena.dashboard.feed import Reading
from onearena.dashboard.frame import Frame
from onearena.dashboard.history_model import (
    EVENTS,
    HistoryView,
    Sample,
    history_view,
    jump,
    nearest,
    sample_of,
)
from onearena.dashboard.view_model import view_model

PLAY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Past:
    """Samples of a source, oldest first; frames of the same indices where they are at hand."""

    samples: Sequence[Sample]
    frames: Sequence[Frame]
    reading: Reading


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("History")
    if chosen is not None:
        playing = bool(st.session_state.get("play"))
        st.fragment(_draw, run_every=_period(chosen, playing=playing))(chosen)


def _period(chosen: shell.Chosen, *, playing: bool) -> float | None:
    if playing:
        return PLAY_S
    return None if chosen.recorded or st.session_state.get("paused") else shell.REFRESH_S


def _draw(chosen: shell.Chosen) -> None:
    if st.session_state.pop("play-changed", False):
        st.rerun()
    try:
        past = _past(chosen)
    except SourceError as error:
        past = _Past((), (), Reading(None, error.trouble, error.message))
    shell.status_line(shell.status_of_reading(past.reading, recorded=chosen.recorded))
    if not past.samples:
        if not past.reading.reason:
            st.info("Nothing recorded yet.")
        return
    page = history_view(past.samples)
    at = _scrubber(past.samples, page)
    frame = past.frames[at] if past.frames else shell.record_of(chosen).frame(at)
    _moment(frame, at, len(past.samples))
    _curves(page, page.seconds[at])


def _past(chosen: shell.Chosen) -> _Past:
    if chosen.recorded:
        record = shell.record_of(chosen)
        samples = record.samples()
        if not samples:
            raise SourceError(f"{record.name}: it holds no frame")
        return _Past(samples, (), Reading(record.frame(len(samples) - 1)))
    feed = shell.feed_of(chosen.url)
    reading = Reading(None)
    if not st.session_state.get("paused"):
        reading = feed.read()
    frames = feed.history()
    if reading.frame is None and frames:
        reading = Reading(frames[-1], reading.trouble, reading.reason)
    return _Past([sample_of(frame) for frame in frames], frames, reading)


def _scrubber(samples: Sequence[Sample], page: HistoryView) -> int:
    """The index looked at; it is kept as a moment, since indices shift when a record shrinks."""
    last = len(samples) - 1
    moment = st.session_state.get("moment", shell.linked_number("step"))
    at = last if moment is None else nearest(samples, int(moment))
    if st.session_state.get("play"):
        at = min(last, at + 1)
    st.session_state["place"] = at
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = (("|<", 0), ("<", at - 1), (">", at + 1), (">|", last))
        names = ("First moment", "Step back", "Step forward", "Last moment")
        for (sign, target), name in zip(step, names, strict=True):
            st.button(
                name,
                key=f"go-{sign}",
                on_click=_go,
                args=(samples, target),
                disabled=not 0 <= target <= last or target == at,
            )
        st.toggle("Play", key="play", on_change=_replay)
        kind = st.selectbox("Event", EVENTS, key="event-kind", width=180)
        for name, forward in (("Previous event", False), ("Next event", True)):
            target = jump(page.events, str(kind), at, forward=forward)
            st.button(name, on_click=_go, args=(samples, target), disabled=target == at)
    if last > 0:
        st.slider(
            "Moment",
            0,
            last,
            key="place",
            on_change=_slid,
            args=(samples,),
            help="Each is one recorded look at the arena.",
        )
    if at < last or st.session_state.get("play"):
        st.session_state["moment"] = samples[at].moment
        shell.write_link(step=samples[at].moment)
    else:
        # At the end: what comes next is followed.
        st.session_state.pop("moment", None)
        shell.write_link(step=None)
    return at


def _go(samples: Sequence[Sample], target: int) -> None:
    st.session_state["moment"] = samples[min(max(0, target), len(samples) - 1)].moment


def _replay() -> None:
    """Play began or ended: the page's period changes, which a part of it cannot do."""
    st.session_state["play-changed"] = True


def _slid(samples: Sequence[Sample]) -> None:
    _go(samples, int(st.session_state["place"]))


def _moment(frame: Frame, at: int, count: int) -> None:
    view, picked = shell.looked()
    arena = view_model(frame, view=view, picked=picked)
    shell.status_words(f"moment {at + 1} of {count}: {arena.title} {frame.label}")
    arena_map(arena.map, key=shell.MAP_KEY)
    for note in arena.notes:
        shell.status_words(note)


def _curves(page: HistoryView, at: float) -> None:
    if len(page.seconds) < 2:
        shell.status_words("There is one moment only: curves need two.")
        return
    dark = shell.is_dark()
    left, right = st.columns(2)
    with left:
        st.subheader("Bytes by state")
        st.vega_lite_chart(
            spec=charts.stacked(page.by_state, "state", at=at, dark=dark, states=True)
        )
        st.subheader("Moves and waits")
        st.vega_lite_chart(spec=charts.lines(page.rates, at=at))
    with right:
        st.subheader("Bytes by band")
        st.vega_lite_chart(
            spec=charts.stacked(page.by_band, "band", at=at, dark=dark, states=False)
        )
        st.subheader("Demands by rung and answer")
        shell.table(page.demands, rows=3)
        st.subheader("From free to reuse")
        shell.table(page.reuse, rows=3)


if __name__ == "__main__":
    show()
