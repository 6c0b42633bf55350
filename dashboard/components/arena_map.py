"""The map component: registered once, mounted with the data of `onearena.dashboard.map_model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import streamlit as st

from onearena.dashboard.map_model import LAYOUT

HERE: Final = Path(__file__).resolve().parent
NAME: Final = "onearena.arena_map"
BAR_HEIGHT: Final = 40
UNTOUCHED: Final = "untouched"
"""What the map says before its user has done anything: then the page's link counts."""


def _file(suffix: str) -> str:
    return (HERE / f"arena_map.{suffix}").read_text(encoding="utf-8")


_MOUNT: Final = st.components.v2.component(
    NAME, html=_file("html"), css=_file("css"), js=_file("js")
)


def _nothing() -> None:
    """A change is read from the session's state in the run that it causes."""


def arena_map(
    data: Mapping[str, Any],
    *,
    key: str,
    changed: Callable[[], None] = _nothing,
    live: bool = False,
) -> None:
    """Draw the map; what the user looks at and picks is in `looked_at(key)` from the next run on.

    `changed` is called first when the view or the pick changed. The height never changes. With
    `live` the map goes on with what the page's `live_line` is answered.
    """
    _MOUNT(
        key=key,
        data=dict(data) | {"live": live},
        default={"view": UNTOUCHED, "picked": UNTOUCHED},
        height=LAYOUT.height + BAR_HEIGHT,
        on_view_change=changed,
        on_picked_change=changed,
    )


def looked_at(key: str) -> tuple[tuple[int, int] | None, bool, int | None, bool]:
    """The window looked at and whether the user chose it, the address picked and whether so too.

    None where there is none.
    """
    state = st.session_state.get(key)
    view = _value(state, "view")
    picked = _value(state, "picked")
    window = None
    if isinstance(view, list | tuple) and len(view) == 2:
        window = (int(view[0]), int(view[1]))
    address = int(picked) if isinstance(picked, int | float) else None
    return window, view != UNTOUCHED, address, picked != UNTOUCHED


def _value(state: object, name: str) -> Any:
    if isinstance(state, Mapping):
        return state.get(name, UNTOUCHED)
    return getattr(state, name, UNTOUCHED)
