"""A replay as a trace for Perfetto: tracks for host, streams, transfers and bands, with arrows.

The file is the JSON trace-event format, which https://ui.perfetto.dev opens. Time is the order of
events: one event is one microsecond, and says nothing about how long anything takes. Arrows lead
from where an event was recorded to each stream that waits for it and to the host seeing it, and
from a transfer's begin to its end. A missing order is an arrow named so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from onearena.core.device.interface import Space
from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import Violation
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.timeline import HOST, TRANSFERS, Row, Timeline, place_text

EVENT_US: Final = 1
SLICE_US: Final = 0.8
HOST_PID, STREAMS_PID, BANDS_PID = 1, 2, 3
SOURCES: Final = {"record": "event", "begin": "transfer"}
TARGETS: Final = {"wait": "event", "observe": "event", "end": "transfer"}
STATES: Final = ("live", "pending", "vacated", "hole")

Event = dict[str, Any]


def export(spec: RunSpec) -> dict[str, Any]:
    """Replay the recording of `spec` and return the trace document; passing runs are fine."""
    assert spec.recording, "a spec without a recording has nothing to export"
    timeline = Timeline()
    result = run_schedule(replace(spec, state_digests=False), timeline)
    timeline.close()
    events = [*_names(timeline), *_slices(timeline), *_flows(timeline.rows, timeline)]
    events += _bands(timeline)
    race = next((v for v in result.violations if v.oracle == "order"), None)
    if race is not None:
        events += _missing(race, timeline)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "system": result.system,
            "model": result.model,
            "seed": str(result.seed),
            "verdict": result.verdict,
            "rows_left_out": str(timeline.dropped),
        },
    }


def export_text(spec: RunSpec) -> str:
    """`export` as JSON text, one event a line."""
    document = export(spec)
    events = document.pop("traceEvents")
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    rest = json.dumps(document, separators=(",", ":"))[1:]
    return '{"traceEvents":[\n' + lines + "\n]," + rest + "\n"


def _track(row: Row, timeline: Timeline) -> tuple[int, int]:
    """(process, thread) of a row."""
    if row.actor == HOST:
        return HOST_PID, 1
    if row.actor == TRANSFERS:
        return STREAMS_PID, len(timeline.streams) + 1
    return STREAMS_PID, 1 + timeline.streams.index(row.actor)


def _meta(pid: int, tid: int, kind: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _names(timeline: Timeline) -> list[Event]:
    events = [
        _meta(HOST_PID, 0, "process_name", "host"),
        _meta(HOST_PID, 1, "thread_name", "calls of the world"),
        _meta(HOST_PID, 2, "thread_name", "world steps"),
        _meta(STREAMS_PID, 0, "process_name", "streams"),
        _meta(BANDS_PID, 0, "process_name", "bands"),
    ]
    events += [
        _meta(STREAMS_PID, 1 + stream, "thread_name", name)
        for stream, name in enumerate(timeline.streams)
    ]
    events.append(_meta(STREAMS_PID, len(timeline.streams) + 1, "thread_name", TRANSFERS))
    bands = timeline.snapshots[0].bands if timeline.snapshots else ()
    return events + [
        _meta(BANDS_PID, 1 + place, "thread_name", band.name) for place, band in enumerate(bands)
    ]


def _slices(timeline: Timeline) -> list[Event]:
    """A short slice for each row, and one for each world step around its rows."""
    events: list[Event] = []
    spans: dict[int, list[int]] = {}
    for index, row in enumerate(timeline.rows):
        pid, tid = _track(row, timeline)
        args: dict[str, Any] = {"step": row.step}
        if row.order >= 0:
            args["record"] = row.order
        if row.call:
            args["call"] = row.call
        if row.stack:
            args["stack"] = list(row.stack)
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "ts": index * EVENT_US,
                "dur": SLICE_US,
                "name": row.text,
                "cat": row.kind,
                "args": args,
            }
        )
        spans.setdefault(row.step, [index, index])[1] = index
    for step, (first, last) in spans.items():
        label = timeline.labels[step] if step < len(timeline.labels) else "drain"
        events.append(
            {
                "ph": "X",
                "pid": HOST_PID,
                "tid": 2,
                "ts": first * EVENT_US,
                "dur": (last - first) * EVENT_US + SLICE_US,
                "name": f"{step} {label}",
                "cat": "step",
            }
        )
    return events


def _arrow(
    name: str, number: int, start: int, end: int, rows: Sequence[Row], timeline: Timeline
) -> Iterable[Event]:
    """A flow between the slices of two rows."""
    for phase, place in (("s", start), ("f", end)):
        pid, tid = _track(rows[place], timeline)
        event: Event = {
            "ph": phase,
            "pid": pid,
            "tid": tid,
            "ts": place * EVENT_US + SLICE_US / 2,
            "id": number,
            "name": name,
            "cat": "order",
        }
        if phase == "f":
            event["bp"] = "e"
        yield event


def _flows(rows: Sequence[Row], timeline: Timeline) -> list[Event]:
    events: list[Event] = []
    starts: dict[tuple[str, int], int] = {}
    arrows = 0
    for index, row in enumerate(rows):
        if row.kind in SOURCES:
            starts[SOURCES[row.kind], row.number] = index
        start = starts.get((TARGETS.get(row.kind, ""), row.number))
        if start is not None:
            arrows += 1
            name = f"{TARGETS[row.kind]} {row.number}"
            events += _arrow(name, arrows, start, index, rows, timeline)
    return events


def _missing(race: Violation, timeline: Timeline) -> list[Event]:
    """The order that nothing establishes, as an arrow of its own name."""
    places: list[int] = []
    for name in ("earlier", "later"):
        party: Any = race.details.get(name)
        index = party.get("index") if isinstance(party, dict) else None
        places += [i for i, row in enumerate(timeline.rows) if row.order == index]
    if len(places) != 2:
        return []
    return list(_arrow("MISSING ORDER", 0, places[0], places[1], timeline.rows, timeline))


def _bands(timeline: Timeline) -> list[Event]:
    """Units by state after each step, and each operation on the tracks of the bands it touches."""
    events: list[Event] = []
    ends: dict[int, int] = {}
    for index, row in enumerate(timeline.rows):
        ends[row.step] = index + 1
    at = 0
    for step, shot in enumerate(timeline.snapshots):
        at = max(at, ends.get(step, at))
        events += _counters(shot, at)
    done = {
        row.number: index for index, row in enumerate(timeline.rows) if row.kind in {"done", "end"}
    }
    for index, row in enumerate(timeline.rows):
        if row.kind in {"enqueue", "begin"}:
            last = done.get(row.number, len(timeline.rows))
            events += _touches(row, index, last, timeline.snapshots)
    return events


def _counters(shot: Snapshot, at: int) -> list[Event]:
    return [
        {
            "ph": "C",
            "pid": BANDS_PID,
            "tid": 1 + place,
            "ts": at * EVENT_US,
            "name": f"{band.name} units",
            "args": {state: getattr(band, f"{state}_units") for state in STATES},
        }
        for place, band in enumerate(shot.bands)
    ]


def _touches(row: Row, first: int, last: int, snapshots: Sequence[Snapshot]) -> list[Event]:
    """From enqueue to end, on each band's track; those of one band overlap, so they are async."""
    if not snapshots:
        return []
    step = min(row.step, len(snapshots) - 1)
    pictures = [snapshots[step], snapshots[max(0, step - 1)]]
    units: dict[str, set[tuple[bool, int]]] = {}
    for access in row.accesses:
        if access.space is Space.ARENA:
            name, unit = place_text(access, pictures)
            if unit >= 0:
                units.setdefault(name, set()).add((access.writes, unit))
    events: list[Event] = []
    for place, band in enumerate(snapshots[0].bands):
        found = sorted(units.get(band.name, ()))
        if not found:
            continue
        verb = "writes" if any(writes for writes, _ in found) else "reads"
        common = {
            "pid": BANDS_PID,
            "tid": 1 + place,
            "cat": band.name,
            "id": row.number,
            "name": f"{row.text.partition(';')[0]} {verb}",
        }
        numbers = {
            "reads": [unit for writes, unit in found if not writes],
            "writes": [unit for writes, unit in found if writes],
        }
        events.append({"ph": "b", "ts": first * EVENT_US, "args": numbers, **common})
        events.append({"ph": "e", "ts": max(last, first + 1) * EVENT_US, **common})
    return events
