"""The Plan page: what a model's state looks like in one arena, and what fits."""

from __future__ import annotations

import streamlit as st

from onearena.core.errors import UsageError
from onearena.dashboard import charts, shell
from onearena.dashboard.components.arena_map import arena_map
from onearena.dashboard.map_model import map_data
from onearena.dashboard.plan_model import (
    ARRIVALS_BYTES_MAX,
    DRAFTS,
    MODELS,
    PlanView,
    PlanWish,
    entry_table,
    mix_of_arrivals,
    plan_view,
)


def show() -> None:
    """Draw the page."""
    st.title("Plan")
    wish, arrivals = _wish()
    try:
        mix = mix_of_arrivals(arrivals) if arrivals else None
        page = plan_view(wish, mix=mix)
    except UsageError as error:
        st.error(shell.plain(error.message))
        return
    _place(page)


def _wish() -> tuple[PlanWish, str]:
    """What the fields say, and the text of an arrivals file."""
    first = MODELS.index("qwen3.5-4b") if "qwen3.5-4b" in MODELS else 0
    left, middle, right = st.columns(3)
    with left:
        model = st.selectbox("Model", MODELS, index=first)
        draft = st.selectbox("Draft", DRAFTS)
        config = st.text_area(
            "Or paste a declaration or a Hugging Face config", height=100, key="plan-config"
        )
    with middle:
        budget = st.text_input("Bytes", "100GiB")
        page_size = st.text_input("Tokens in a page", "64")
        mix = st.text_input(
            "Request mix", "1024+256:3,16384+4096:1", help="INPUT+OUTPUT:WEIGHT, with commas"
        )
    with right:
        window_ratio = st.text_input(
            "Fixed split: window tokens for each full token", "0.8", key="plan-window"
        )
        state_ratio = st.text_input(
            "Fixed split: state bytes for each full byte", "0.9", key="plan-state"
        )
        upload = st.file_uploader(
            "Or an arrivals file (CSV, JSON lines)",
            type=["csv", "jsonl"],
            max_upload_size=ARRIVALS_BYTES_MAX >> 20,
        )
    wish = PlanWish(
        model=str(model),
        config=config,
        draft=str(draft),
        budget=budget,
        page_size=page_size,
        mix=mix,
        window_ratio=window_ratio,
        state_ratio=state_ratio,
    )
    return wish, "" if upload is None else upload.getvalue().decode("utf-8", "replace")


def _place(page: PlanView) -> None:
    st.subheader(page.title)
    shell.facts(page.facts)
    st.success(page.verdict)
    left, right = st.columns(2)
    with left:
        st.subheader("Requests at once")
        shell.table(page.fits, rows=min(9, len(page.fits.rows)))
    with right:
        st.subheader("What they hold")
        shell.table(page.pools, rows=len(page.pools.rows))
    st.subheader("Bands when the arena is full of the mix, packed")
    if page.frame is None:
        shell.status_words("There are too many units to draw.")
    else:
        arena_map(map_data(page.frame, moves=False, label=page.alt), key="plan-map")
    st.subheader("One entry of each sub-pool")
    st.vega_lite_chart(spec=charts.bars(entry_table(page)))
    tabs = st.tabs([name for name, _ in page.lanes])
    for tab, (_, lanes) in zip(tabs, page.lanes, strict=True):
        with tab:
            shell.table(lanes, rows=min(8, len(lanes.rows)))
    st.subheader("Sub-pools, low to high address")
    shell.table(page.sub_pools, rows=len(page.sub_pools.rows))
    st.subheader("Outside the arena")
    shell.table(page.outside, rows=min(8, len(page.outside.rows)))


if __name__ == "__main__":
    show()
