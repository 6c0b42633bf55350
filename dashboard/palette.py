"""Colours and patterns of unit states, for a light and a dark page.

The hues are those of Okabe and Ito, which people with the common kinds of colour blindness tell
apart; every state has a pattern of its own besides, so that colour never carries a fact alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FREE, HOLE, LIVE, PENDING, VACATED, FENCED = range(6)
STATES: Final = ("free", "hole", "live", "pending", "vacated", "fenced")
"""Names by pixel value, as `onearena.metrics.pixels` has them: better to worse."""

PATTERNS: Final = ("blank", "dot", "solid", "hatch", "hollow", "bars")
"""How each state is drawn besides its colour."""

MEANINGS: Final = (
    "bytes of no band",
    "a reusable unit",
    "holds data",
    "freed, a use is outstanding",
    "moved away, a use is outstanding",
    "behind a frontier that retreated, a use is outstanding",
)


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme: `fills` and `marks` by pixel value, the rest for lines and words."""

    fills: tuple[str, ...]
    marks: tuple[str, ...]
    paper: str
    ink: str
    dim: str
    line: str
    accent: str


LIGHT: Final = Palette(
    fills=("#ffffff", "#d9dee6", "#0072b2", "#e69f00", "#cc79a7", "#d55e00"),
    marks=("#ffffff", "#5b6675", "#00466e", "#5c3d00", "#5c1a40", "#5e2700"),
    paper="#ffffff",
    ink="#1b2430",
    dim="#54606f",
    line="#aab3c0",
    accent="#b3261e",
)
DARK: Final = Palette(
    fills=("#0e1117", "#39424f", "#56b4e9", "#f0b93a", "#cc79a7", "#ff8a4d"),
    marks=("#0e1117", "#9aa6b6", "#0b3f5f", "#5a3c00", "#3d0f2b", "#5e2700"),
    paper="#0e1117",
    ink="#eceff4",
    dim="#a9b3c1",
    line="#566172",
    accent="#ff8a80",
)


def plain(palette: Palette) -> dict[str, object]:
    """The palette as JSON data."""
    return {
        "fills": list(palette.fills),
        "marks": list(palette.marks),
        "paper": palette.paper,
        "ink": palette.ink,
        "dim": palette.dim,
        "line": palette.line,
        "accent": palette.accent,
    }
