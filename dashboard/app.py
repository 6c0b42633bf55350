"""The application: its pages, and what they have in common. `onearena dashboard` starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

PAGES: Final = ("arena", "history", "campaign", "failure", "plan")
FOLDER: Final = Path(__file__).resolve().parent / "pages"
SCRIPT: Final = FOLDER.parent / "launch" / "script.py"


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title="onearena", layout="wide")
    pages = [
        st.Page(FOLDER / f"{name}.py", title=name.title(), url_path=name, default=at == 0)
        for at, name in enumerate(PAGES)
    ]
    st.navigation(pages, position="top").run()
