"""The Campaign page: how far a campaign is, what it reached, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import streamlit as st

from onearena.dashboard import charts, shell
from onearena.dashboard.campaign_model import (
    CampaignPoint,
    CampaignView,
    campaign_point,
    campaign_view,
    mutants_table,
)
from onearena.dashboard.checked import SourceError, parse_json
from onearena.dashboard.record_source import file_in
from onearena.dashboard.settings import folder_of, settings_of
from onearena.dashboard.view_model import Status, Table, status_of

POINTS_MAX: Final = 120
MUTANTS_FILE: Final = "mutants.json"
MUTANTS_BYTES_MAX: Final = 16 << 20


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("Campaign")
    if chosen is not None:
        shell.refreshing(lambda: _draw(chosen), again=not chosen.recorded)
    _mutants()


def _draw(chosen: shell.Chosen) -> None:
    try:
        document, points, status = _campaign(chosen)
        page = campaign_view(document, points)
    except SourceError as error:
        shell.status_line(
            status_of(taken_s=None, now_s=0.0, trouble=error.trouble, reason=error.message)
        )
        return
    shell.status_line(status, page.verdict)
    _place(page)


def _campaign(
    chosen: shell.Chosen,
) -> tuple[Mapping[str, Any], Sequence[CampaignPoint], Status]:
    """The campaign's document, the moments before it, and how old it is."""
    if chosen.recorded:
        record = shell.record_of(chosen)
        if not record.campaigns:
            raise SourceError(f"{record.name}: it holds no campaign")
        last = len(record.campaigns) - 1
        places = sorted({at * last // POINTS_MAX for at in range(POINTS_MAX)} - {last})
        points = [campaign_point(record.campaign(at)) for at in places]
        document = record.campaign()
        return document, points, _age(document, recorded=True)
    reading = shell.feed_of(chosen.url).campaign(paused=bool(st.session_state.get("paused")))
    if reading.document is None:
        raise SourceError(reading.reason, trouble="disconnected")
    points = [campaign_point(earlier) for earlier in reading.earlier]
    status = _age(reading.document, trouble=reading.trouble, reason=reading.reason)
    return reading.document, points, status


def _age(
    document: Mapping[str, Any], *, recorded: bool = False, trouble: str = "", reason: str = ""
) -> Status:
    taken = document.get("taken_s")
    return status_of(
        taken_s=float(taken) if isinstance(taken, int | float) else None,
        now_s=shell.now_s(),
        paused=bool(st.session_state.get("paused")),
        recorded=recorded,
        trouble=trouble,
        reason=reason,
    )


def _place(page: CampaignView) -> None:
    shell.facts(page.facts)
    left, right = st.columns(2)
    with left:
        st.subheader("Situations reached over time")
        st.vega_lite_chart(spec=charts.lines(page.growth))
        st.subheader("Failures by rule")
        shell.table(page.rules, rows=3)
    with right:
        st.subheader("Planned situations, the rarest first")
        shell.table(page.planned, rows=6)
        missing = f"Never reached: {', '.join(page.missing)}." if page.missing else "All reached."
        with st.container(height=120, border=False):
            shell.status_words(missing)
    st.subheader("Failures")
    shell.table(page.failures, rows=4)
    left, middle, right = st.columns(3)
    with left:
        st.subheader("All situations")
        shell.table(page.reached, rows=6)
    with middle:
        st.subheader("Strategies")
        shell.table(page.strategies, rows=6)
    with right:
        st.subheader("Models")
        shell.table(page.models, rows=6)


def _mutants() -> None:
    """Planted faults, if the folder holds the evidence of a mutant run."""
    st.subheader("Planted faults")
    try:
        content = _mutants_file(folder_of(settings_of()))
    except (SourceError, OSError) as error:
        shell.status_words(f"No table of planted faults: {error}")
        return
    shell.table(content, rows=8)


def _mutants_file(folder: Path | None) -> Table:
    if folder is None:
        raise SourceError("start with --folder docs/evidence to see the last run's table here")
    path = file_in(folder, MUTANTS_FILE)
    if path.stat().st_size > MUTANTS_BYTES_MAX:
        raise SourceError(f"{MUTANTS_FILE}: it is larger than {MUTANTS_BYTES_MAX} bytes")
    return mutants_table(parse_json(path.read_bytes(), MUTANTS_FILE), MUTANTS_FILE)


if __name__ == "__main__":
    show()
