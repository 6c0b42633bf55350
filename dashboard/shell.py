"""What every page shares: the choice of source, pause, and the link that leads back here.

Query parameters carry `source`, `step`, `view` and `pick`; the page is the path. They are read
once, when a session starts, and written in every run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from onearena.dashboard.checked import SourceError
from onearena.dashboard.feed import Feed
from onearena.dashboard.http_source import HttpSource
from onearena.dashboard.settings import Settings, settings_of
from onearena.dashboard.view_model import Status

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
    """The source of a session: a running process or a file of the folder."""

    name: str
    url: str = ""
    file: str = ""


@st.cache_resource(max_entries=16, show_spinner=False)
def feed_of(url: str) -> Feed:
    """The feed of a running process, one for all sessions. `SourceError` if it is no address."""
    return Feed(HttpSource(url))


def choices(settings: Settings) -> list[Chosen]:
    """Sources to choose from: those of the command line, then the files of the folder."""
    found = []
    for url in settings.sources:
        try:
            found.append(Chosen(HttpSource(url).name, url=url))
        except SourceError:
            found.append(Chosen(url, url=url))
    return found


def chosen_by_link(name: str, known: list[Chosen]) -> Chosen:
    """The source that a link or a person names: a known one, or an address of this machine."""
    for each in known:
        if each.name == name:
            return each
    source = HttpSource(name)
    if not source.loopback:
        raise SourceError(
            f"source {source.name!r}: it is on another machine; name it in --source to allow it"
        )
    return Chosen(source.name, url=name)


def start() -> Chosen | None:
    """Draw the side bar; the session's source, or None after one line that says what is wrong."""
    settings = settings_of()
    known = choices(settings)
    remember_link()
    names = [each.name for each in known]
    wanted = str(st.session_state.get("source", "")) or (names[0] if names else "")
    with st.sidebar:
        st.markdown("**Source**")
        if names:
            options = names if wanted in names or not wanted else [*names, wanted]
            picked = st.selectbox(
                "Choose a source",
                options,
                index=options.index(wanted) if wanted in options else 0,
                label_visibility="collapsed",
            )
            wanted = picked or wanted
        typed = st.text_input(
            "Address of a running process on this machine",
            placeholder="http://127.0.0.1:9464",
            key="typed-source",
        )
        st.toggle("Pause", key="paused", help="Keep what is shown; the source runs on.")
    if typed.strip():
        wanted = typed.strip()
    if not wanted:
        st.info(
            "No source yet. Start a campaign with `onearena stress --jobs 1 --metrics-port 9464` "
            "and give its address on the left, or start `onearena dashboard --source FILE`."
        )
        return None
    try:
        chosen = chosen_by_link(wanted, known)
    except SourceError as error:
        st.error(error.message)
        return None
    if st.session_state.get("source") != chosen.name:
        for name in ("kept", "step"):
            st.session_state.pop(name, None)
    st.session_state["source"] = chosen.name
    write_link(source=chosen.name)
    return chosen


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
    words = f"{STATUS_ICONS[status.state]} **{_safe(status.text)}**"
    st.markdown(f"{words} &nbsp; {_safe(title)}" if title else words)


def _safe(text: str) -> str:
    """Words of a source as plain text: nothing in them is markup."""
    return re.sub(r"([\\`*_{}\[\]()#+!|<>~$:])", r"\\\1", text)


def refreshing(draw: Callable[[], None], *, live: bool) -> None:
    """Draw, and again every `REFRESH_S` while the source is a running process."""
    st.fragment(draw, run_every=REFRESH_S if live else None)()
