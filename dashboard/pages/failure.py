"""The Failure page: one failure told step by step, with the arena beside it."""

from __future__ import annotations

import streamlit as st

from onearena.dashboard import shell
from onearena.dashboard.checked import SourceError
from onearena.dashboard.components.arena_map import arena_map
from onearena.dashboard.components.timeline import timeline
from onearena.dashboard.failure_model import Failure, event_table, parse_failure, timeline_svg
from onearena.dashboard.map_model import map_data


def show() -> None:
    """Draw the page."""
    chosen = shell.start()
    st.title("Failure")
    if chosen is None:
        return
    try:
        failures = _failures(chosen)
    except SourceError as error:
        st.error(error.message)
        return
    if not failures:
        st.info("No failure: this source has reported none.")
        return
    small = [at for at, failure in enumerate(failures) if failure.minimal]
    number = st.selectbox(
        "Failure",
        range(len(failures)),
        index=small[0] if small else 0,
        format_func=lambda at: failures[at].title,
        key="failure-number",
    )
    _draw(failures[int(number or 0)])


def _failures(chosen: shell.Chosen) -> list[Failure]:
    if chosen.recorded:
        record = shell.record_of(chosen)
        return [
            parse_failure(record.failure(at), f"{record.name}, failure {at}")
            for at in range(len(record.failures))
        ]
    feed = shell.feed_of(chosen.url)
    return [parse_failure(document, f"failure {at}") for at, document in enumerate(feed.failures())]


def _draw(failure: Failure) -> None:
    st.subheader(failure.title)
    shell.status_words(failure.message or failure.text)
    if failure.rule_text:
        shell.status_words(f"Rule {failure.rule}: {failure.rule_text}")
    if failure.edge:
        st.error(shell.plain(f"Missing: {failure.edge}."))
        shell.status_words(failure.fix)
    for line in failure.repro:
        st.code(line.partition(": ")[2] or line, language=None)
    if not failure.rows:
        st.code(failure.text, language=None)
        return
    step = _step(failure)
    left, right = st.columns(2)
    with left:
        st.markdown("**What happened, in order**")
        last = max((at for at, row in enumerate(failure.rows) if row.step <= step), default=0)
        timeline(timeline_svg(failure, step), row=last, key="failure-timeline")
    with right:
        st.markdown(f"**The arena after step {step}**")
        picture = failure.picture(step)
        if picture is None:
            shell.status_words("No picture of the arena came with this failure.")
        else:
            data = map_data(picture, mark=failure.bytes, label=f"The arena after step {step}")
            arena_map(data, key="failure-map")
    for side in failure.sides:
        with st.expander(shell.plain(f"{side.mark}: {side.title}")):
            shell.status_words(side.where)
            st.code("\n".join(f"at {frame}" for frame in side.stack) or "no stack", language=None)
    st.subheader("Everything, in words")
    shell.table(event_table(failure), rows=min(12, len(failure.rows)))
    if failure.left_out:
        shell.status_words(
            f"{failure.left_out} rows that say less are left out; shrink the file first."
        )


def _step(failure: Failure) -> int:
    """The step looked at: buttons and a slider over the steps there are."""
    steps = failure.steps
    known = st.session_state.get("failure-step")
    if known not in steps:
        linked = shell.linked_number("step")
        st.session_state["failure-step"] = linked if linked in steps else steps[-1]
    at = steps.index(st.session_state["failure-step"])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for name, target in (("Step back", at - 1), ("Step forward", at + 1)):
            st.button(
                name,
                on_click=_go,
                args=(steps[max(0, min(target, len(steps) - 1))],),
                disabled=not 0 <= target < len(steps),
            )
        if len(steps) > 1:
            st.select_slider(
                "Step",
                options=steps,
                key="failure-step",
                format_func=lambda step: f"{step}: {failure.label(step)}",
                width=420,
            )
    step = int(st.session_state["failure-step"])
    shell.write_link(step=step)
    return step


def _go(step: int) -> None:
    st.session_state["failure-step"] = step


if __name__ == "__main__":
    show()
