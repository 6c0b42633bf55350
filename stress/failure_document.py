"""A failure as one JSON document: what an explanation says, and the arena after each of its steps.

The dashboard reads snapshots and knows no harness, so what it shows of a failure is made here and
served or recorded. The document is bounded: the explanation's rows, and the latest pictures.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.core.snapshot import Snapshot
from onearena.metrics.frames import Moment, frame_document, unit_fields
from onearena.metrics.source import columns_of
from onearena.stress.explain import Explanation, explain
from onearena.stress.report import failure_text
from onearena.stress.rule_texts import rule_text
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.timeline import Timeline

VERSION: Final = 1
PICTURES_MAX: Final = 64
DOCUMENT_BYTES_MAX: Final = 200_000
"""Below what the exporter serves of one failure."""

TEXT_MAX: Final = 1 << 15


def short_failure(result: RunResult) -> dict[str, Any]:
    """A failure that was not replayed: what it broke, in words."""
    first = min(result.violations, key=lambda v: v.oracle != "order", default=None)
    return {
        "version": VERSION,
        "seed": result.seed,
        "model": result.model,
        "system": result.system,
        "verdict": result.verdict,
        "step": result.steps,
        "oracle": "" if first is None else first.oracle,
        "rule": "" if first is None else first.rule,
        "rule_text": "" if first is None else rule_text(first.rule),
        "message": ("" if first is None else first.message)[:TEXT_MAX],
        "text": failure_text(result)[:TEXT_MAX],
        "crash": result.crash[:TEXT_MAX],
        "violations": [violation.to_json() for violation in result.violations],
        "minimal": False,
        "rows": [],
        "sides": [],
        "pictures": [],
        "labels": [],
        "edge": "",
        "fix": "",
        "bytes": None,
        "repro": [],
        "left_out": 0,
    }


def failure_document(result: RunResult, spec: RunSpec | None) -> dict[str, Any]:
    """A failure explained by a replay of `spec` with its recording; its report alone without."""
    document = short_failure(result)
    if spec is None or not result.recording:
        return document
    explained = explained_failure(replace(spec, recording=result.recording))
    if explained is None:
        return document | {"text": f"{document['text']}\nIt did not fail again when replayed."}
    return explained


def explained_failure(
    spec: RunSpec, *, file: str = "", minimal: bool = False
) -> dict[str, Any] | None:
    """Replay the recording of `spec` twice and tell its failure; None if it passes now, as a
    schedule on real threads may.
    """
    spec = replace(spec, state_digests=False)
    try:
        page = explain(spec, file=file)
    except UsageError:
        return None
    timeline = Timeline()
    run_schedule(spec, timeline)
    timeline.close()
    document = short_failure(page.result) | {
        "message": page.message[:TEXT_MAX],
        "minimal": minimal,
        "rows": _rows(page),
        "sides": [
            {
                "mark": side.mark,
                "row": side.row,
                "title": side.title,
                "where": side.where,
                "stack": list(side.stack),
            }
            for side in page.sides
        ],
        "labels": list(page.labels)[:4096],
        "edge": page.edge,
        "fix": page.fix,
        "bytes": None if page.bytes is None else list(page.bytes),
        "repro": list(page.repro),
        "left_out": page.left_out,
    }
    return _with_pictures(document, page, timeline)


def _rows(page: Explanation) -> list[dict[str, Any]]:
    marks = {side.row: side.mark for side in page.sides}
    return [
        {
            "order": row.order,
            "step": row.step,
            "actor": row.actor,
            "kind": row.kind,
            "number": row.number,
            "text": row.text[:1024],
            "call": row.call,
            "mark": marks.get(index, ""),
        }
        for index, row in enumerate(page.rows)
    ]


def _with_pictures(
    document: dict[str, Any], page: Explanation, timeline: Timeline
) -> dict[str, Any]:
    """Add the arena after every step that the rows name, the latest first where room is short."""
    shots = timeline.snapshots
    steps = sorted({min(row.step, len(shots) - 1) for row in page.rows if row.step >= 0})
    left = DOCUMENT_BYTES_MAX - len(json.dumps(document))
    pictures: list[dict[str, Any]] = []
    for step in reversed(steps[-PICTURES_MAX:]):
        if step < 0:
            continue
        picture = _picture(shots[step], page.result.seed, step, timeline.labels[step])
        left -= len(json.dumps(picture))
        if left < 0:
            break
        pictures.append(picture)
    return document | {"pictures": pictures[::-1]}


def _picture(snapshot: Snapshot, seed: int, step: int, label: str) -> dict[str, Any]:
    columns = [
        columns_of(snapshot, at, band.low_unit, band.high_unit - band.low_unit)
        for at, band in enumerate(snapshot.bands)
        if band.has_units
    ]
    return {
        **frame_document(snapshot, Moment(serial=step)),
        "schedule": seed,
        "step": step,
        "label": label,
        **unit_fields(tuple(band.states for band in snapshot.bands), columns),
    }
