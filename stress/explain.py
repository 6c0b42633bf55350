"""A failure explained to a person: what happened, in which order, which edge was missing.

`explain` replays a recording with a `Timeline` looking on and returns an `Explanation`: plain data
that `explain_text` and `stress/explain_html.py` draw. The two accesses of a race are found in the
order oracle's report; other oracles' reports name a call, and that call is marked.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from onearena.core.device.interface import Access
from onearena.core.errors import UsageError
from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.choices import StepRecord
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.fact_types import HOLE
from onearena.stress.report import repro_lines
from onearena.stress.rule_texts import rule_text
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.terminal import COLUMNS_MAX
from onearena.stress.timeline import HOST, Row, Timeline, place_text

ROWS_SHOWN_MAX: Final = 90
BAR_COLUMNS: Final = 88
EARLIER, LATER, ALONE = "A", "B", "X"
OTHERS_SHOWN_MAX: Final = 4
_CALL_SERIAL: Final = re.compile(r"call #(\d+)")
# How the legality oracle names a use that is not over.
_UNFINISHED: Final = re.compile(r"call #\d+: (\w+) on stream (\d+), operation (\d+), \w+")
SIGNS: Final = {1: ".", 2: "L", 3: "p", 4: "v"}
LEGEND: Final = "L live, p pending, v vacated, . hole, blank gap, ~ fenced, ^ the bytes in question"


@dataclass(frozen=True, slots=True)
class Picture:
    """The arena at one moment."""

    title: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two events: where it is in the timeline, and who enqueued it."""

    mark: str
    row: int
    title: str
    where: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything a page about one failure says.

    `rows` are the rows shown; `sides` none, one (a call) or two (earlier, later); `edge` and `fix`
    the missing order in words ("" where the report is about none); `message` names streams. `bytes`
    is (start, end) in the arena, if the report names any. `reports` are all reports, the one
    explained first.
    """

    file: str
    result: RunResult
    violation: Violation | None
    rule: str
    message: str
    reports: tuple[Violation, ...]
    rows: tuple[Row, ...]
    left_out: int
    sides: tuple[Side, ...]
    edge: str
    fix: str
    bytes: tuple[int, int] | None
    pictures: tuple[Picture, ...]
    blind: str
    steps: tuple[StepRecord, ...]
    labels: tuple[str, ...]
    repro: tuple[str, ...]
    others: tuple[str, ...] = ()
    """What else was wrong, a sentence each: other oracles' reports, other pairs without order."""
    host_unit: str = ""
    """The name of the host unit that a report is about; "" for other reports."""


def explain(spec: RunSpec, *, file: str = "") -> Explanation:
    """Replay the recording of `spec` and explain its failure; `UsageError` if it does not fail."""
    assert spec.recording, "a spec without a recording has nothing to explain"
    timeline = Timeline()
    result = run_schedule(replace(spec, state_digests=False), timeline)
    timeline.close()
    if result.verdict == "pass":
        raise UsageError(
            file or "FILE", "passes", "give a schedule that fails on this code, or replay it"
        )
    violation = min(result.violations, key=lambda v: v.oracle != "order", default=None)
    sides = _sides(violation, timeline)
    extent = _bytes(violation, timeline.snapshots)
    rows, left_out = _shown(timeline.rows, sides, extent)
    place = {id(row): index for index, row in enumerate(rows)}
    moved = tuple(
        replace(side, row=place[id(timeline.rows[side.row])])
        for side in sides
        if id(timeline.rows[side.row]) in place
    )
    edge, fix = _edge(violation)
    if not edge and len(sides) == 2:
        edge, fix = _unsettled(sides, timeline)
    reports = tuple(sorted(result.violations, key=lambda v: v is not violation))
    return Explanation(
        file=file,
        result=result,
        violation=violation,
        rule="" if violation is None else violation.rule,
        message="" if violation is None else named(violation.message, timeline.streams),
        reports=reports,
        rows=rows,
        left_out=left_out + timeline.dropped,
        sides=moved,
        edge=named(edge, timeline.streams),
        fix=named(fix, timeline.streams),
        bytes=extent,
        pictures=_pictures(timeline, sides),
        blind=timeline.blind,
        steps=result.recording,
        labels=tuple(timeline.labels),
        repro=tuple(repro_lines(result, path=file)),
        others=tuple(_others(reports, timeline)),
        host_unit=_host_unit(violation, timeline),
    )


def _sides(violation: Violation | None, timeline: Timeline) -> tuple[Side, ...]:
    """The events that the report is about, as places in all rows."""
    rows = timeline.rows
    if violation is None:
        return (_side(ALONE, len(rows) - 1, timeline),) if rows else ()
    found: list[Side] = []
    by_order = {row.order: index for index, row in enumerate(rows) if row.order >= 0}
    for mark, name in ((EARLIER, "earlier"), (LATER, "later")):
        party: Any = violation.details.get(name)
        if isinstance(party, dict) and party.get("index") in by_order:
            found.append(_side(mark, by_order[party["index"]], timeline))
    if found:
        return tuple(found)
    serials = {int(n) for event in violation.events for n in _CALL_SERIAL.findall(event)}
    if isinstance(call := violation.details.get("call"), int):
        serials.add(call)
    # A snapshot shows what an earlier call did, and is no row: the latest call before it is meant.
    latest = max(serials, default=0)
    calls = [i for i, row in enumerate(rows) if row.kind == "call" and row.number <= latest]
    place = calls[-1] if calls else len(rows) - 1
    unfinished = _unfinished(violation, timeline)
    if unfinished is not None and unfinished < place:
        place = _let_go(violation, timeline, unfinished) or place
        return _side(EARLIER, unfinished, timeline), _side(LATER, place, timeline)
    return (_side(ALONE, place, timeline),) if rows else ()


def _unfinished(violation: Violation, timeline: Timeline) -> int | None:
    """The row of the work that a report of the legality oracle says is not over."""
    for event in violation.events:
        match = _UNFINISHED.fullmatch(event)
        if match is None or int(match[2]) >= len(timeline.streams):
            continue
        actor = timeline.streams[int(match[2])]
        work = [
            index
            for index, row in enumerate(timeline.rows)
            if row.kind == "enqueue" and row.actor == actor
        ]
        # Positions on a stream count from 1, and rows may have been dropped in a very long run.
        if 0 < int(match[3]) <= len(work) and not timeline.dropped:
            return work[int(match[3]) - 1]
    return None


def _let_go(violation: Violation, timeline: Timeline, after: int) -> int | None:
    """The last call of the step in which the unit was let go: the report came with a snapshot,
    which may have been taken some steps later.
    """
    wanted = violation.unit
    first = timeline.rows[after].step
    before: tuple[int, int] | None = None
    for step in range(first, len(timeline.snapshots)):
        now = None
        for band in timeline.snapshots[step].bands:
            if wanted is not None and band.name == wanted.band and band.states:
                place = wanted.unit - band.low_unit
                if 0 <= place < len(band.states):
                    now = (band.states[place], band.ids[place])
        is_live_again = before is not None and before[1] != 0 and now is not None and now[1] != 0
        if now is not None and now != before and (now[0] == HOLE or is_live_again):
            calls = [i for i, r in enumerate(timeline.rows) if r.kind == "call" and r.step == step]
            return calls[-1] if calls and calls[-1] > after else None
        before = now if now is not None and now[1] != 0 else before
    return None


def _unsettled(sides: Sequence[Side], timeline: Timeline) -> tuple[str, str]:
    """What would have ended an unfinished use in time, for reports that are about no race."""
    earlier, later = (timeline.rows[side.row] for side in sides)
    after = timeline.rows[sides[0].row : sides[1].row]
    events = [row.number for row in after if row.kind == "record" and row.actor == earlier.actor]
    work = f"op {earlier.number} on {earlier.actor}"
    event = f"event {events[0]}, recorded after it" if events else "an event recorded after it"
    end = f"`{later.call or later.text}` in step {later.step}"
    if earlier.actor == timeline.schedule:
        edge = f"{work} must be over before {end}"
    else:
        edge = f"{timeline.schedule} must wait for {work} ({event}) before the end of {end}"
    return edge, "or the host must have processed its use, or seen it end and retired it, by then"


def _others(reports: Sequence[Violation], timeline: Timeline) -> Iterator[str]:
    """Other reports, and the pairs that have no order either."""
    for violation in reports[1:]:
        at = f" at {violation.unit}" if violation.unit is not None else ""
        message = violation.message.partition(" Missing: ")[0]
        yield named(f"{violation.oracle}, rule {violation.rule}{at}: {message}", timeline.streams)
    first = reports[0].details if reports and reports[0].oracle == "order" else {}
    for race in timeline.order.races:
        if race.earlier.plain() == first.get("earlier") and race.later.plain() == first.get(
            "later"
        ):
            continue
        access = Access(race.space, race.start_bytes, race.end_bytes, race.later.writes)
        name, unit = place_text(access, timeline.snapshots[-1:], timeline.host_units)
        where = f"{name}[{unit}]" if unit >= 0 else name
        yield f"no order either: {race.later.name} after {race.earlier.name} on {where}"


def _host_unit(violation: Violation | None, timeline: Timeline) -> str:
    if violation is None or violation.bytes is None or violation.bytes.space != "host":
        return ""
    extent = (violation.bytes.start_bytes, violation.bytes.end_bytes)
    return timeline.host_units.get(extent, "")


def _side(mark: str, place: int, timeline: Timeline) -> Side:
    row = timeline.rows[place]
    label = timeline.labels[row.step] if row.step < len(timeline.labels) else "drain"
    where = f"world step {row.step} ({label})"
    if row.call and row.kind != "call":
        where += f", inside the call {row.call}"
    return Side(mark, place, f"{row.actor}: {row.text}", where, row.stack)


def _edge(violation: Violation | None) -> tuple[str, str]:
    """The missing order, and what would have made it, from the order oracle's words."""
    if violation is None or violation.oracle != "order":
        return "", ""
    _, found, edge = violation.message.partition("Missing: ")
    fix = next((e for e in violation.events if e.startswith("would have ordered")), "")
    return (edge.rstrip(".") if found else ""), fix


def named(text: str, streams: Sequence[str]) -> str:
    """`stream 4` with the stream's name behind it."""

    def name(match: re.Match[str]) -> str:
        number = int(match[1])
        known = f" ({streams[number]})" if number < len(streams) else ""
        return match[0] + known

    return re.sub(r"stream (\d+)", name, text)


def _bytes(violation: Violation | None, snapshots: Sequence[Snapshot]) -> tuple[int, int] | None:
    """The arena bytes a report names, or those of the unit it names."""
    if violation is None:
        return None
    if violation.bytes is not None:
        extent = violation.bytes
        return (extent.start_bytes, extent.end_bytes) if extent.space == "arena" else None
    if violation.unit is None or not snapshots:
        return None
    for band in snapshots[-1].bands:
        if band.name == violation.unit.band:
            start = band.origin_bytes + violation.unit.unit * band.unit_bytes
            return start, start + band.unit_bytes
    return None


def _touches(row: Row, extent: tuple[int, int] | None) -> bool:
    if extent is None:
        return False
    start, end = extent
    return any(a.space == 0 and a.start < end and start < a.end for a in row.accesses)


def _shown(
    rows: Sequence[Row], sides: Sequence[Side], extent: tuple[int, int] | None
) -> tuple[tuple[Row, ...], int]:
    """All rows of a small run; of a large one, those about the bytes, the streams and the steps of
    the two events, the latest first when even these are too many.
    """
    if len(rows) <= ROWS_SHOWN_MAX:
        return tuple(rows), 0
    marked = {side.row for side in sides}
    steps = {rows[place].step for place in marked}
    actors = {rows[place].actor for place in marked}
    first = min(marked, default=0)

    def rank(place: int) -> int:
        row = rows[place]
        if place in marked:
            return 0
        if row.kind in {"enqueue", "begin"} and _touches(row, extent):
            return 1
        if row.step in steps and row.kind in {"call", "wait", "record"}:
            return 2
        if place > first and row.actor in {*actors, HOST} and row.kind in {"wait", "observe"}:
            return 3
        return 4 if _touches(row, extent) else 5 if row.kind == "call" else 6

    order = sorted(range(len(rows)), key=lambda place: (rank(place), -place))
    kept = sorted(place for place in order[:ROWS_SHOWN_MAX] if rank(place) < 6)
    return tuple(rows[place] for place in kept), len(rows) - len(kept)


def _pictures(timeline: Timeline, sides: Sequence[Side]) -> tuple[Picture, ...]:
    """Before the step of each marked event, and at the end."""
    shots = timeline.snapshots
    if not shots:
        return ()
    found: list[Picture] = []
    for side in sides:
        step = timeline.rows[side.row].step
        if 0 < step <= len(shots):
            title = f"before step {step} ({timeline.labels[step]}), where {side.mark} happens"
            found.append(Picture(title, shots[step - 1]))
    last = len(shots) - 1
    found.append(Picture(f"after step {last} ({timeline.labels[last]})", shots[last]))
    unique = {picture.title: picture for picture in found}
    return tuple(unique.values())


# -- text
def explain_text(page: Explanation) -> str:
    """The page for a terminal, at most 100 columns."""
    lines = [*_head(page), "", *_timeline(page), ""]
    for side in page.sides:
        lines += _wrapped(f"{side.mark}  {side.title}", "   ")
        lines.append(f"   {side.where}")
        lines += [f"     at {frame}"[:COLUMNS_MAX] for frame in side.stack[:8]]
    if page.edge:
        lines += ["", *_wrapped(f"MISSING  {page.edge}.", "         ")]
        lines += _wrapped(f"         {page.fix}.", "         ")
    lines += ["", "The arena, true to scale:"]
    lines += [line for picture in page.pictures for line in picture_lines(picture, page.bytes)]
    if page.blind:
        lines.append(f"no further picture: the system could not say ({page.blind})"[:COLUMNS_MAX])
    lines += [f"  {LEGEND}", "", *page.repro]
    return "\n".join(lines)


def _head(page: Explanation) -> list[str]:
    result, violation = page.result, page.violation
    lines = [f"seed {result.seed}, {result.system} ({result.model}), step {result.steps}"]
    if violation is None:
        return [*lines, f"verdict: {result.verdict}", *result.crash.rstrip().splitlines()]
    place = [str(violation.unit)] if violation.unit is not None else []
    if page.host_unit:
        place.append(f"host unit {page.host_unit}")
    if page.bytes is not None:
        place.append(f"arena bytes {page.bytes[0]} to {page.bytes[1] - 1}")
    at = f" at {', '.join(place)}" if place else ""
    lines.append(f"Rule {violation.rule} is broken{at} (seen by the oracle {violation.oracle}).")
    lines += _wrapped(page.message, "")
    lines += ["", *_wrapped(f"Rule {violation.rule}: {rule_text(violation.rule)}", "  ")]
    for other in page.others[:OTHERS_SHOWN_MAX]:
        lines += _wrapped(f"Also: {other.rstrip('.')}.", "  ")
    if len(page.others) > OTHERS_SHOWN_MAX:
        lines.append(f"  and {len(page.others) - OTHERS_SHOWN_MAX} more.")
    return lines


def _timeline(page: Explanation) -> list[str]:
    """Rows in order; a line in the margin joins the two events that nothing orders."""
    marks = {side.row: side.mark for side in page.sides}
    places = sorted(marks)
    joined = len(places) == 2 and bool(page.edge)
    width = max((len(row.actor) for row in page.rows), default=4)
    lines = ["What happened, in order (#n as reports count, s world steps):"]
    if page.left_out:
        lines.append(f"  ({page.left_out} rows that say less are left out; shrink the file first)")
    step = -1
    for index, row in enumerate(page.rows):
        if row.step != step:
            step = row.step
            label = page.labels[step] if step < len(page.labels) else "drain"
            within = joined and places[0] < index <= places[1]
            lines.append(f"{'┊' if within else ' '}   s{step} {label}")
        margin = "  "
        if joined:
            margin = {places[0]: "┌┄", places[1]: "└✗"}.get(
                index, "┊ " if places[0] < index < places[1] else "  "
            )
        mark = marks.get(index, " ")
        order = f"#{row.order}" if row.order >= 0 else ""
        head = f"{margin}{mark} {order:>5} {row.actor:<{width}}  "
        folded = textwrap.wrap(row.text, max(30, COLUMNS_MAX - len(head))) or [""]
        lines.append(head + folded[0])
        rest = ("┊" if joined and places[0] <= index < places[1] else " ") + " " * (len(head) - 1)
        lines += [rest + part for part in folded[1:]]
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS_MAX, subsequent_indent=indent) or [""]


def picture_lines(picture: Picture, extent: tuple[int, int] | None) -> list[str]:
    """One bar at true scale, its bands, and a line that marks the bytes in question."""
    shot = picture.snapshot
    per_column = max(1, -(-shot.arena_bytes // BAR_COLUMNS))
    columns = -(-shot.arena_bytes // per_column)
    cells = [" "] * columns
    for fence in shot.fences:
        for column in _columns(fence.start_bytes, fence.end_bytes, per_column, columns):
            cells[column] = "~"
    for band in shot.bands:
        _draw_band(band, cells, per_column)
    lines = [f"  {picture.title}; one column is {per_column} bytes", f"  |{''.join(cells)}|"]
    if extent is not None:
        marks = [" "] * columns
        for column in _columns(*extent, per_column, columns):
            marks[column] = "^"
        lines.append(f"   {''.join(marks)}".rstrip())
    for band in shot.bands:
        counts = (
            f"{band.live_units} live, {band.pending_units} pending, {band.vacated_units} vacated, "
            f"{band.hole_units} holes"
        )
        where = f"bytes {band.start_bytes} to {band.end_bytes}" if band.has_units else "no unit"
        lines.append(f"     {band.name}: {where}, unit {band.unit_bytes} bytes; {counts}")
    return lines


def _draw_band(band: BandSnapshot, cells: list[str], per_column: int) -> None:
    """States of units; where several share a column, the one that matters most to a reader."""
    rank = " .~Lvp"
    for place, state in enumerate(band.states):
        start = band.origin_bytes + (band.low_unit + place) * band.unit_bytes
        sign = SIGNS.get(state, "?")
        for column in _columns(start, start + band.unit_bytes, per_column, len(cells)):
            if rank.find(sign) >= rank.find(cells[column]):
                cells[column] = sign


def _columns(start: int, end: int, per_column: int, columns: int) -> range:
    return range(max(0, start // per_column), min(columns, -(-end // per_column)))
