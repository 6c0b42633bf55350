"""The timeline component: places an SVG picture that a pure model drew, scrolled in its own box."""

from __future__ import annotations

from typing import Final

import streamlit as st

NAME: Final = "onearena.timeline"
HEIGHT: Final = 620

_HTML: Final = '<div class="tl" tabindex="0" role="group" aria-label="Timeline, scrolls"></div>'
_CSS: Final = """
.tl { overflow: auto; max-height: 600px; color: var(--st-text-color); }
.tl:focus-visible { outline: 2px solid var(--st-primary-color, #0072b2); }
"""
# Parsed as SVG and not as HTML, and only an <svg> is taken: words in it stay words.
_JS: Final = """
export default function (component) {
  const box = component.parentElement.querySelector(".tl");
  const parsed = new DOMParser().parseFromString(component.data.svg, "image/svg+xml");
  const picture = parsed.documentElement;
  if (!box || picture.localName !== "svg") return;
  box.replaceChildren(document.importNode(picture, true));
  const at = box.querySelectorAll("circle")[component.data.row];
  if (at) {
    const top = Number(at.getAttribute("cy"));
    if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 30) {
      box.scrollTop = Math.max(0, top - box.clientHeight / 2);
    }
  }
}
"""
_MOUNT: Final = st.components.v2.component(NAME, html=_HTML, css=_CSS, js=_JS)


def timeline(svg: str, *, row: int, key: str) -> None:
    """Draw the picture, scrolled so that event `row` is in sight."""
    _MOUNT(key=key, data={"svg": svg, "row": row}, height=HEIGHT)
