"""Write docs/img/arena.svg, the picture in README.md; with --check, compare it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "img" / "arena.svg"

WIDTH = 960
HEIGHT = 336
LEFT = 40  # x of address 0; one pixel stands for one step of the address axis
TOP = 118  # y of the arena
TALL = 64
ARENA = 880

FILL = {
    "live": "#2f6f9f",
    "hole": "#ffffff",
    "pending": "#e0a030",
    "vacated": "#b9c4cc",
    "fenced": "url(#hatch)",
    "gap": "#f3f0e8",
}
INK = "#22303a"
MUTED = "#5b6a74"
MOVE = "#b03a2e"


@dataclass(frozen=True)
class Band:
    """One band of the picture: where it starts, how wide its units are, and their states."""

    name: str
    place: str
    start: int
    unit: int
    states: tuple[str, ...]

    @property
    def end(self) -> int:
        """The address after its last unit."""
        return self.start + self.unit * len(self.states)


LOW = Band("recurrent state", "low end", 0, 56, ("live", "live", "pending", "live"))
FLOAT = Band(
    "sliding-window KV", "floating", 356, 48, ("live", "live", "live", "pending", "vacated")
)
HIGH = Band(
    "full-attention KV",
    "high end",
    ARENA - 9 * 24,
    24,
    ("live", "live", "hole", "live", "live", "hole", "live", "live", "live"),
)
FENCED = (LOW.end, LOW.end + LOW.unit)
MOVED = (4, 1)  # of the floating band: source and target unit


def _rect(x: int, width: int, state: str) -> str:
    return (
        f'<rect x="{LEFT + x}" y="{TOP}" width="{width}" height="{TALL}" '
        f'fill="{FILL[state]}" stroke="{INK}" stroke-width="1.2"/>'
    )


def _text(x: int, y: int, text: str, *, anchor: str = "middle", color: str = INK) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{text}</text>'


def _band(band: Band) -> list[str]:
    middle = LEFT + (band.start + band.end) // 2
    parts = [
        _rect(band.start + number * band.unit, band.unit, state)
        for number, state in enumerate(band.states)
    ]
    y = TOP + TALL + 46
    parts.append(
        f'<path d="M{LEFT + band.start + 1} {y - 20}v6H{LEFT + band.end - 1}v-6" fill="none" '
        f'stroke="{MUTED}"/>'
    )
    parts.append(_text(middle, y + 4, f"{band.name} band"))
    parts.append(_text(middle, y + 21, f"{band.place}, units of its own size", color=MUTED))
    return parts


def _frontier(address: int) -> str:
    x = LEFT + address
    return (
        f'<path d="M{x} {TOP - 12}v{TALL + 24}" stroke="{MOVE}" stroke-width="2.4" '
        f'stroke-dasharray="5 3"/>'
    )


def _move() -> list[str]:
    source, target = (LEFT + FLOAT.start + unit * FLOAT.unit + FLOAT.unit // 2 for unit in MOVED)
    peak = TOP - 62
    arrow = (
        f'<path d="M{source} {TOP - 4}C{source} {peak} {target} {peak} {target} {TOP - 6}" '
        f'fill="none" stroke="{MOVE}" stroke-width="2" marker-end="url(#tip)"/>'
    )
    return [
        arrow,
        _text(
            (source + target) // 2,
            42,
            "a page moves while forwards launched earlier still read its source:",
        ),
        _text(
            (source + target) // 2,
            59,
            "the source stays vacated until every one of them is over",
        ),
    ]


def _legend() -> list[str]:
    words = {
        "live": "live",
        "hole": "hole",
        "pending": "pending (freed, still in use)",
        "vacated": "vacated",
        "fenced": "fenced bytes",
        "gap": "gap",
    }
    widths = {"live": 70, "hole": 74, "pending": 212, "vacated": 94, "fenced": 122, "gap": 68}
    y = HEIGHT - 34
    x = LEFT
    parts = []
    for state, word in words.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="16" height="16" fill="{FILL[state]}" stroke="{INK}"/>'
        )
        parts.append(_text(x + 23, y + 13, word, anchor="start"))
        x += widths[state] + 10
    parts.append(
        f'<path d="M{x + 6} {y - 3}v22" stroke="{MOVE}" stroke-width="2.4" stroke-dasharray="5 3"/>'
    )
    parts.append(_text(x + 16, y + 13, "frontier (moves)", anchor="start"))
    return parts


def render() -> str:
    """The picture as SVG text."""
    label = (
        "One arena of S bytes. From low to high addresses: a recurrent state band, fenced bytes, a "
        "gap, a floating sliding-window band in which a page moves, a gap, a full-attention band."
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="14" role="img" aria-label="{label}">'
        '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8" fill="{FILL["gap"]}"/>'
        '<path d="M-2 2L2 -2M0 8L8 0M6 10L10 6" stroke="#c0651a" stroke-width="1.6"/></pattern>'
        '<marker id="tip" markerWidth="9" markerHeight="8" refX="6" refY="4" orient="auto">'
        f'<path d="M0 0L9 4L0 8z" fill="{MOVE}"/></marker></defs>'
    )
    parts = [
        head,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fdfdfb"/>',
        _rect(0, ARENA, "gap"),
        _rect(FENCED[0], FENCED[1] - FENCED[0], "fenced"),
    ]
    for band in (LOW, FLOAT, HIGH):
        parts += _band(band)
    parts += [_frontier(at) for at in (LOW.end, FLOAT.start, FLOAT.end, HIGH.start)]
    parts += [
        _text(LEFT + (a + b) // 2, TOP + TALL // 2 + 5, "gap", color=MUTED) for a, b in _gaps()
    ]
    parts += _move()
    parts.append(_text(LEFT, TOP - 12, "address 0", anchor="start", color=MUTED))
    parts.append(_text(LEFT + ARENA, TOP - 12, "S", anchor="end", color=MUTED))
    parts += _legend()
    return "\n".join([*parts, "</svg>"]) + "\n"


def _gaps() -> tuple[tuple[int, int], tuple[int, int]]:
    return (FENCED[1], FLOAT.start), (FLOAT.end, HIGH.start)


def main() -> int:
    """Write the picture, or with --check compare it."""
    text = render()
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(text, encoding="utf-8")
        return 0
    if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != text:
        print(f"docs/img/{PICTURE.name} is out of date; run: python ci/generate_picture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
