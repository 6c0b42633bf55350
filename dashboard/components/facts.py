"""Numbers and tables of a live page: one component, which redraws only what changed.

Tables of Streamlit's own cost the browser more than the map when they change once a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

from onearena.dashboard.view_model import Table

HERE: Final = Path(__file__).resolve().parent
NAME: Final = "onearena.facts"

_MOUNT: Final = st.components.v2.component(
    NAME,
    html='<div class="facts"></div>',
    css=(HERE / "facts.css").read_text(encoding="utf-8"),
    js=(HERE / "facts.js").read_text(encoding="utf-8"),
)


def table_data(title: str, table: Table, *, shown: int, empty: str = "none") -> dict[str, Any]:
    """A table with its title and the number of rows that it has room for, always the same."""
    return {
        "title": title,
        "columns": list(table.columns),
        "rows": [list(row) for row in table.rows],
        "shown": shown,
        "empty": empty,
    }


def facts(
    *,
    key: str,
    numbers: Sequence[tuple[str, str]] = (),
    tables: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
    words: str = "",
    live: Sequence[str] = (),
) -> None:
    """Draw numbers to be read at a glance, notes, then tables made by `table_data`: the first one
    over the whole width, the others side by side; at the end `words`, folded. What `live` names
    of these is replaced by what the page's `live_line` is answered.
    """
    data = {
        "numbers": [list(pair) for pair in numbers],
        "notes": list(notes),
        "tables": list(tables),
        "words": words,
        "live": list(live),
    }
    _MOUNT(key=key, data=data)
