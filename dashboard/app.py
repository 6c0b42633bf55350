"""The dashboard's script: `onearena dashboard` has Streamlit run it."""

from __future__ import annotations

import streamlit as st

from onearena.dashboard.pages import arena


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_title="onearena", layout="wide")
    pages = [
        st.Page(arena.show, title="Arena", url_path="arena", default=True),
    ]
    st.navigation(pages, position="top").run()


main()
