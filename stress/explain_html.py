"""The page of `onearena explain --html`: one file, no script, nothing fetched; light and dark."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import Final

from onearena.core.snapshot import BandSnapshot
from onearena.stress.explain import OTHERS_SHOWN_MAX, Explanation, Picture
from onearena.stress.report import RULES
from onearena.stress.rule_texts import rule_text
from onearena.stress.timeline import HOST, TRANSFERS, Row

LANE_WIDTH: Final = 190
ROW_HEIGHT: Final = 26
LEFT: Final = 70
TOP: Final = 34
BAR_WIDTH: Final = 900
LANE_TEXT_MAX: Final = 28
STATE_CLASSES: Final = {1: "hole", 2: "live", 3: "pending", 4: "vacated"}
STATE_NAMES: Final = ("live", "pending", "vacated", "hole", "fenced")

STYLE: Final = """
:root { --ink:#1c2330; --dim:#5a6474; --paper:#ffffff; --line:#d5dae3; --bad:#b3261e;
  --live:#2f6fb0; --pending:#b8860b; --vacated:#7a4fa0; --hole:#e6eaf0; --fenced:#8a5a44; }
@media (prefers-color-scheme: dark) { :root { --ink:#e8ebf0; --dim:#a4adbb; --paper:#14181f;
  --line:#39414f; --bad:#ff8a80; --live:#5fa3e6; --pending:#e0b34d; --vacated:#b48ad9;
  --hole:#2a313c; --fenced:#c08a70; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.dim { color: var(--dim); } .bad { color: var(--bad); font-weight: 600; }
pre, code { font: 13px/1.45 ui-monospace, monospace; } pre { overflow-x: auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
td, th { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink);
  paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
svg .small { font-size: 11px; fill: var(--dim); } svg .badtext { fill: var(--bad); }
.lane { stroke: var(--line); } .edge { stroke: var(--dim); fill: none; }
.missing { stroke: var(--bad); stroke-width: 2.5; stroke-dasharray: 6 5; fill: none; }
.dot { fill: var(--dim); } .hot { fill: var(--bad); }
.live { fill: var(--live); } .pending { fill: var(--pending); } .vacated { fill: var(--vacated); }
.hole { fill: var(--hole); } .fenced { fill: var(--fenced); }
.arena { fill: none; stroke: var(--line); } .unit { stroke: var(--paper); stroke-width: .5; }
.mark { fill: none; stroke: var(--bad); stroke-width: 2.5; }
.step td { padding-top: .7rem; font-weight: 600; }
"""


def explain_html(page: Explanation) -> str:
    """The whole page; UTF-8 text."""
    body = [
        *_head(page),
        "<h2>The order of events</h2>",
        "<p class='dim'>Down is later. Grey curves: an event recorded, and who waited for it or "
        "saw it. The dashed red line is the order that was missing.</p>"
        if page.edge
        else "<p class='dim'>Down is later. The event reported is red.</p>",
        f"<div class='scroll'>{_lanes(page)}</div>",
        *_sides(page),
        "<h2>The arena, true to scale</h2>",
        _legend(),
        *(_picture(picture, page.bytes) for picture in page.pictures),
        *([f"<p class='bad'>No further picture: {_t(page.blind)}</p>"] if page.blind else []),
        "<h2>Everything, in words</h2>",
        f"<div class='scroll'>{_table(page)}</div>",
        "<h2>See it again</h2>",
        f"<pre>{_t(chr(10).join(page.repro))}</pre>",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            "<html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{_t(_title(page))}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def _t(words: object) -> str:
    return escape(str(words), quote=True)


def _title(page: Explanation) -> str:
    if page.violation is None:
        return f"{page.result.verdict}: seed {page.result.seed}"
    at = f" at {page.violation.unit}" if page.violation.unit is not None else ""
    return f"Rule {page.violation.rule} broken{at}"


def _head(page: Explanation) -> list[str]:
    result, violation = page.result, page.violation
    parts = [
        f"<h1>{_t(_title(page))}</h1>",
        (
            f"<p class='dim'>seed {result.seed}, {_t(result.system)} ({_t(result.model)}), "
            f"world step {result.steps}</p>"
        ),
    ]
    if violation is None:
        return [*parts, f"<pre>{_t(result.crash)}</pre>"]
    parts.append(f"<p>{_t(page.message)}</p>")
    if page.bytes is not None:
        start, end = page.bytes
        parts.append(f"<p>Bytes {start} to {end - 1} of the arena, {end - start} in all.</p>")
    if page.host_unit:
        parts.append(f"<p>In the host tier: the unit that is called {_t(page.host_unit)} here.</p>")
    short = RULES.get(violation.rule)
    title = f"Rule {violation.rule}" + (f": {short}" if short else "")
    parts.append(f"<h2>{_t(title)}</h2><p>{_t(rule_text(violation.rule))}</p>")
    if page.edge:
        parts.append(f"<p class='bad'>Missing: {_t(page.edge)}.</p><p>{_t(page.fix)}.</p>")
    if page.others:
        rest = len(page.others) - OTHERS_SHOWN_MAX
        items = "".join(f"<li>{_t(other)}</li>" for other in page.others[:OTHERS_SHOWN_MAX])
        more = f"<li>and {rest} more</li>" if rest > 0 else ""
        parts.append(f"<p>Also:</p><ul>{items}{more}</ul>")
    parts.append(f"<p class='dim'>{_t(f'Seen by the oracle {violation.oracle}')}.</p>")
    return parts


# -- lanes
def _lanes(page: Explanation) -> str:
    """Host, streams and transfers side by side, events in rows."""
    used = list(dict.fromkeys(row.actor for row in page.rows))
    inner = sorted(actor for actor in used if actor not in {HOST, TRANSFERS})
    lanes = [HOST, *inner, *([TRANSFERS] if TRANSFERS in used else [])]
    x = {actor: LEFT + LANE_WIDTH * place + 10 for place, actor in enumerate(lanes)}
    width = LEFT + LANE_WIDTH * len(lanes)
    height = TOP + ROW_HEIGHT * len(page.rows) + 10
    parts = [
        (
            f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img' "
            f"aria-label='Timeline of {len(page.rows)} events on {len(lanes)} lanes'>"
        )
    ]
    for actor in lanes:
        parts.append(f"<text x='{x[actor] - 5}' y='16' font-weight='600'>{_t(actor)}</text>")
        parts.append(f"<line class='lane' x1='{x[actor]}' y1='24' x2='{x[actor]}' y2='{height}'/>")
    parts += _edges(page, x)
    marks = {side.row: side.mark for side in page.sides}
    step = -1
    for index, row in enumerate(page.rows):
        y = _y(index)
        if row.step != step:
            step = row.step
            parts.append(f"<text class='small' x='0' y='{y + 4}'>step {step}</text>")
        hot = index in marks
        parts.append(
            f"<circle class='{'hot' if hot else 'dot'}' cx='{x[row.actor]}' cy='{y}' "
            f"r='{6 if hot else 3}'><title>{_t(row.text)}</title></circle>"
        )
        words = f"{marks[index]}: {row.text}" if hot else row.text
        words = words if len(words) <= LANE_TEXT_MAX else words[: LANE_TEXT_MAX - 1] + "…"
        style = " class='badtext'" if hot else ""
        parts.append(f"<text{style} x='{x[row.actor] + 10}' y='{y + 4}'>{_t(words)}</text>")
    return "\n".join([*parts, "</svg>"])


def _y(index: int) -> int:
    return TOP + ROW_HEIGHT * index + ROW_HEIGHT // 2


def _edges(page: Explanation, x: dict[str, int]) -> list[str]:
    """Record to wait or observe, begin to end; and the missing one."""
    parts: list[str] = []
    starts: dict[tuple[str, int], tuple[int, int]] = {}
    sources = {"record": "event", "begin": "transfer"}
    targets = {"wait": "event", "observe": "event", "end": "transfer"}
    for index, row in enumerate(page.rows):
        at = (x[row.actor], _y(index))
        if row.kind in sources:
            starts[sources[row.kind], row.number] = at
        start = starts.get((targets.get(row.kind, ""), row.number))
        if start is not None:
            parts.append(_curve("edge", start, at))
    if page.edge and len(page.sides) == 2:
        first, last = (page.rows[side.row] for side in page.sides)
        a, b = (x[first.actor], _y(page.sides[0].row)), (x[last.actor], _y(page.sides[1].row))
        parts.append(_curve("missing", a, b))
    return parts


def _curve(name: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = start, end
    bend = 40 if x1 == x2 else 0
    middle = (y1 + y2) // 2
    curve = f"M{x1},{y1} C{x1 - bend},{middle} {x2 - bend},{middle} {x2},{y2}"
    return f"<path class='{name}' d='{curve}'/>"


def _sides(page: Explanation) -> list[str]:
    parts: list[str] = []
    for side in page.sides:
        frames = "\n".join(f"at {frame}" for frame in side.stack)
        parts.append(
            f"<h2>{side.mark}: {_t(side.title)}</h2><p class='dim'>{_t(side.where)}</p>"
            + (f"<pre>{_t(frames)}</pre>" if frames else "")
        )
    return parts


# -- pictures
def _legend() -> str:
    cells = [
        f"<svg width='14' height='14' aria-hidden='true'><rect class='{name}' width='14' "
        f"height='14'/></svg> {name}"
        for name in STATE_NAMES
    ]
    return f"<p class='dim'>{' &nbsp; '.join(cells)} &nbsp; red frame: the bytes in question</p>"


def _picture(picture: Picture, extent: tuple[int, int] | None) -> str:
    shot = picture.snapshot
    scale = BAR_WIDTH / max(1, shot.arena_bytes)
    parts = [
        f"<h3>{_t(picture.title)}</h3><div class='scroll'>",
        f"<svg width='{BAR_WIDTH + 4}' height='74' role='img' aria-label='The arena'>",
        f"<rect class='arena' x='1' y='20' width='{BAR_WIDTH}' height='30'/>",
    ]
    parts += [_rect("fenced", f.start_bytes, f.end_bytes, scale) for f in shot.fences]
    for band in shot.bands:
        parts += _band(band, scale)
    if extent is not None:
        start, end = extent
        parts.append(
            f"<rect class='mark' x='{1 + start * scale:.2f}' y='17' "
            f"width='{max(2.0, (end - start) * scale):.2f}' height='36'/>"
        )
    rows = "".join(
        f"<tr><td>{_t(band.name)}</td><td>bytes {band.start_bytes} to {band.end_bytes}</td>"
        f"<td>unit {band.unit_bytes}</td><td>{band.live_units} live, {band.pending_units} pending, "
        f"{band.vacated_units} vacated, {band.hole_units} holes</td></tr>"
        for band in shot.bands
    )
    return "\n".join([*parts, f"</svg></div><table>{rows}</table>"])


def _band(band: BandSnapshot, scale: float) -> list[str]:
    """Runs of units in the same state, and the band's name."""
    if not band.has_units:
        return []
    parts: list[str] = []
    states = band.states
    edges = [0, *(i for i in range(1, len(states)) if states[i] != states[i - 1]), len(states)]
    # Thousands of units are drawn as runs; a few, one by one, so that each can be seen.
    if len(states) <= 200:
        edges = list(range(len(states) + 1))
    for first, last in pairwise(edges):
        start = band.start_bytes + first * band.unit_bytes
        end = band.start_bytes + last * band.unit_bytes
        parts.append(_rect(STATE_CLASSES.get(states[first], "hole"), start, end, scale))
    parts.append(
        f"<text class='small' x='{1 + band.start_bytes * scale:.1f}' y='66'>{_t(band.name)}</text>"
    )
    return parts


def _rect(name: str, start: int, end: int, scale: float) -> str:
    return (
        f"<rect class='unit {name}' x='{1 + start * scale:.2f}' y='20' "
        f"width='{max(0.5, (end - start) * scale):.2f}' height='30'/>"
    )


def _table(page: Explanation) -> str:
    marks = {side.row: side.mark for side in page.sides}
    rows: list[str] = []
    step = -1
    for index, row in enumerate(page.rows):
        if row.step != step:
            step = row.step
            label = page.labels[step] if step < len(page.labels) else "drain"
            rows.append(f"<tr class='step'><td colspan='4'>step {step}: {_t(label)}</td></tr>")
        rows.append(_table_row(row, marks.get(index, "")))
    if page.left_out:
        rows.append(f"<tr><td colspan='4'>{page.left_out} rows that say less: left out</td></tr>")
    return "<table>" + "\n".join(rows) + "</table>"


def _table_row(row: Row, mark: str) -> str:
    order = f"#{row.order}" if row.order >= 0 else ""
    style = " class='bad'" if mark else ""
    return (
        f"<tr{style}><td>{mark}</td><td>{order}</td><td>{_t(row.actor)}</td>"
        f"<td>{_t(row.text)}</td></tr>"
    )
