"""What every page shares: the choice of source, pause, and the link that leads back here.

Query parameters carry `source`, `step`, `view` and `pick`; the page is the path. They are read
once, when a session starts, and written in every run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import streamlit as st

from onearena.dashboard.checked import SourceError
from onearena.dashboard.components.arena_map import looked_at
from onearena.dashboard.feed import Feed, Reading
from onearena.dashboard.http_source import HttpSource
from onearena.dashboard.live import FEEDS
from onearena.dashboard.record_source import RecordSource, file_in, files_of
from onearena.dashboard.settings import Settings, folder_of, settings_of
from onearena.dashboard.view_model import Status, Table, status_of

REFRESH_S: Final = 1.0
MAP_KEY: Final = "arena-map"
STATUS_ICONS: Final = {
    "live": ":green[●]",
    "stale": ":orange[▲]",
    "paused": ":blue[▮▮]",
    "disconnected": ":red[✕]",
    "recorded": ":violet[◆]",
    "unusable": ":red[✕]",
    "waiting": ":gray[○]",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The source of a session: a running process (`url`) or a file of the folder (`file`)."""

    name: str
    url: str = ""
    file: str = ""

    @property
    def recorded(self) -> bool:
        """Whether it is a file."""
        return bool(self.file)


def feed_of(url: str) -> Feed:
    """The feed of a running process, one for all sessions. `SourceError` if it is no address."""
    return FEEDS.of(url).feed


@st.cache_resource(max_entries=8, show_spinner="reading the record")
def _record_of(path: str) -> RecordSource:
    return RecordSource(Path(path))


def record_of(chosen: Chosen) -> RecordSource:
    """The record of a session's file, with what was added to it since. `SourceError` if none."""
    record = _record_of(chosen.file)
    record.refresh()
    return record


def choices(settings: Settings) -> list[Chosen]:
    """Sources to choose from: those of the command line, then the files of the folder."""
    found = [Chosen(HttpSource(url).name, url=url) for url in settings.sources]
    folder = folder_of(settings)
    if folder is not None:
        names = files_of(folder)
        if settings.file in names:
            names.remove(settings.file)
            names.insert(0, settings.file)
        found += [Chosen(name, file=str(folder / name)) for name in names]
    return found


def chosen_by_link(name: str, known: list[Chosen], settings: Settings) -> Chosen:
    """The source that a link or a person names: a known one, a file of the folder, or an address
    of this machine. `SourceError` for any other.
    """
    folder = folder_of(settings)
    for each in known:
        if each.name == name:
            return each if not each.file or folder is None else _file(folder, name)
    if "://" not in name:
        if folder is None:
            raise SourceError(
                f"source {name[:80]!r}: files are opened from a folder: start the dashboard with "
                "--source FILE or --folder DIR"
            )
        return _file(folder, name)
    source = HttpSource(name)
    if not source.loopback:
        raise SourceError(
            f"source {source.name!r}: it is on another machine; name it in --source to allow it"
        )
    return Chosen(source.name, url=name)


def _file(folder: Path, name: str) -> Chosen:
    return Chosen(name, file=str(file_in(folder, name)))


def start() -> Chosen | None:
    """Draw the side bar; the session's source, or None after one line that says what is wrong."""
    settings = settings_of()
    known = choices(settings)
    remember_link()
    wanted = _wanted([each.name for each in known])
    if not wanted:
        st.info(
            "No source yet. Start a campaign with `onearena stress --jobs 1 --metrics-port 9464` "
            "and give its address on the left, or start `onearena dashboard --source FILE`."
        )
        return None
    try:
        chosen = chosen_by_link(wanted, known, settings)
    except SourceError as error:
        st.error(error.message)
        return None
    if st.session_state.get("source") != chosen.name:
        if "source" in st.session_state:
            write_link(step=None, view=None, pick=None)
        for name in ("kept", "moment", MAP_KEY):
            st.session_state.pop(name, None)
    st.session_state["source"] = chosen.name
    write_link(source=chosen.name)
    return chosen


def _wanted(names: list[str]) -> str:
    """What the side bar says to show: an address typed wins over a choice."""
    before = str(st.session_state.get("source", "")) or (names[0] if names else "")
    options = names if before in names or not before else [before, *names]
    with st.sidebar:
        st.markdown("**Source**")
        picked = before
        if options:
            picked = (
                st.selectbox(
                    "Choose a source",
                    options,
                    index=options.index(before),
                    label_visibility="collapsed",
                )
                or before
            )
        typed = st.text_input(
            "Address of a running process on this machine",
            placeholder="http://127.0.0.1:9464",
            key="typed-source",
        ).strip()
        st.toggle("Pause", key="paused", help="Keep what is shown; the source runs on.")
    # What was typed last counts until something else is chosen.
    if typed and typed != st.session_state.get("typed-before"):
        st.session_state["typed-before"] = typed
        return typed
    return picked


# -- links
_NUMBER: Final = re.compile(r"[0-9]{1,15}")
_LINKED: Final = ("source", "step", "view", "pick")


def remember_link() -> None:
    """Take what the link says into the session, once."""
    if st.session_state.get("linked"):
        return
    st.session_state["linked"] = True
    for name in _LINKED:
        text = st.query_params.get(name)
        if text is not None and len(text) <= 512:
            st.session_state[f"link-{name}"] = text
    if "link-source" in st.session_state:
        st.session_state["source"] = st.session_state.pop("link-source")


def linked_number(name: str) -> int | None:
    """A whole number that the link carries; None if it has none, or no such."""
    text = str(st.session_state.get(f"link-{name}", ""))
    return int(text) if _NUMBER.fullmatch(text) else None


def linked_view() -> tuple[int, int] | None:
    """The window that the link carries."""
    start, dash, end = str(st.session_state.get("link-view", "")).partition("-")
    if dash and _NUMBER.fullmatch(start) and _NUMBER.fullmatch(end) and int(start) < int(end):
        return int(start), int(end)
    return None


def write_link(**values: Any) -> None:
    """Put these into the page's address, and keep them for the next page; None takes one out."""
    for name, value in values.items():
        assert name in _LINKED, f"links do not carry {name}"
        if value is None:
            st.session_state.pop(f"link-{name}", None)
            if name in st.query_params:
                del st.query_params[name]
            continue
        if name != "source":
            st.session_state[f"link-{name}"] = str(value)
        if st.query_params.get(name) != str(value):
            st.query_params[name] = str(value)


# -- parts of pages
def status_line(status: Status, title: str = "") -> None:
    """The state of the source, in words, at the same place of every page."""
    words = f"{STATUS_ICONS[status.state]} **{plain(status.text)}**"
    st.markdown(f"{words} &nbsp; {plain(title)}" if title else words)


def now_s() -> float:
    """Seconds since 1970."""
    return time.time()


def status_words(text: str) -> None:
    """A line of words that a source may have written."""
    st.markdown(plain(text))


def is_dark() -> bool:
    """Whether the page is dark, as far as the browser has said."""
    return st.context.theme.type == "dark"


def plain(text: str) -> str:
    """Words of a source as plain text: nothing in them is markup."""
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~$:])", r"\\\1", text)


def table(content: Table, *, rows: int) -> None:
    """A table of fixed height: what comes and goes moves nothing below it."""
    columns = content.as_columns()
    numbers = {
        name: st.column_config.NumberColumn(format="localized")
        for name, cells in columns.items()
        if cells and all(isinstance(cell, int) for cell in cells)
    }
    height = 38 + 35 * rows
    st.dataframe(columns, hide_index=True, width="stretch", height=height, column_config=numbers)


def facts(pairs: tuple[tuple[str, str], ...]) -> None:
    """Numbers that are read at a glance."""
    with st.container(horizontal=True):
        for name, value in pairs:
            st.metric(name, value, width="content")


def status_of_reading(reading: Reading, *, recorded: bool = False) -> Status:
    """The state of the source after a reading, now."""
    return status_of(
        taken_s=None if reading.frame is None else reading.frame.taken_s,
        now_s=now_s(),
        paused=bool(st.session_state.get("paused")),
        recorded=recorded,
        trouble=reading.trouble,
        reason=reading.reason,
    )


def refreshing(draw: Callable[[], None], *, again: bool) -> None:
    """Draw, and if `again` then once more every `REFRESH_S`."""
    st.fragment(draw, run_every=REFRESH_S if again else None)()


def looked() -> tuple[tuple[int, int] | None, int | None]:
    """The window looked at and the address picked: the link's until the user does something."""
    view, viewed, picked, chosen = looked_at(MAP_KEY)
    if not viewed:
        view = linked_view()
    if not chosen:
        picked = linked_number("pick")
    write_link(view=None if view is None else f"{view[0]}-{view[1]}", pick=picked)
    return view, picked
