"""The status line component: says how old what is shown is, and asks for what is newer.

Answers go to the other components of the page as an event of the browser's window, so that a
second that passes is no run of the page's script.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import streamlit as st

HERE: Final = Path(__file__).resolve().parent
NAME: Final = "onearena.live_line"
HTML: Final = (
    '<p class="live"><span class="icon" aria-hidden="true"></span> <strong></strong> '
    '<span class="title"></span></p>'
)
_MOUNT: Final = st.components.v2.component(
    NAME,
    html=HTML,
    css=(HERE / "live_line.css").read_text(encoding="utf-8"),
    js=(HERE / "live_line.js").read_text(encoding="utf-8"),
)


def live_line(
    status: Mapping[str, str], *, key: str, poll: str = "", every_s: float = 1.0, places: int = 0
) -> None:
    """Draw the line; with `poll`, a path, ask there every `every_s` seconds until the next run.

    `places` is how many components of the page listen: an answer that one of them did not hear,
    since it was not there yet, is asked for again.
    """
    data: dict[str, Any] = {
        "status": dict(status),
        "poll": poll,
        "every_ms": round(every_s * 1000),
        "places": places,
    }
    _MOUNT(key=key, data=data)
