"""A frame: the arena at one moment as one JSON document, for `/frame` and for recorded files.

What a frame shows comes from one look at the arena, so its numbers and its map agree. It is
bounded whatever the arena holds: so many uses, runs of units, fences, waits and moves, and single
units only where there are few enough. `docs/dashboard.md` describes every field.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from onearena.core.arena_units import UnitColumns
from onearena.core.snapshot import BandSnapshot, Snapshot, UseSnapshot
from onearena.metrics.counters import Values, add_values, counter_values
from onearena.metrics.pixels import pixels
from onearena.metrics.recorder import Timings
from onearena.metrics.source import Look, Published, SnapshotSource

FRAME_VERSION: Final = 1
DETAIL_UNITS_MAX: Final = 4096
"""Units of a window that are told one by one: id, holders, flags."""

USES_MAX: Final = 128
RUNS_MAX: Final = 64
"""Runs of neighbouring units told of one use; the use's unit counts are exact anyway."""

FENCES_MAX: Final = 256
WHOLE_WIDTH: Final = 2048
"""Pixels of the picture of the whole arena that every window comes with."""

TIMES: Final = ("onearena_unit_pending_seconds", "onearena_wait_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a frame says besides a snapshot: whose it is, when it was, and what was known then.

    `clock_s` is on the clock of the timings, `taken_s` in seconds since 1970.
    """

    arena: str = "0"
    device: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    callers: tuple[str, ...] = ()
    taken_s: float = 0.0
    clock_s: float = 0.0
    serial: int = 0
    fit: tuple[tuple[int, int, int], ...] = ()
    timings: Timings | None = None
    earlier: Mapping[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)


def moment_of(source: SnapshotSource, published: Published, look: Look | None = None) -> Moment:
    """The moment of a look, or of what was published."""
    return Moment(
        arena=source.name,
        device=published.device,
        labels=source.labels,
        callers=source.callers,
        taken_s=published.taken_s if look is None else look.taken_s,
        clock_s=published.clock_s if look is None else look.clock_s,
        serial=published.serial,
        fit=published.fit if look is None else look.fit,
        timings=published.timings if look is None else look.timings,
        earlier=published.earlier,
    )


def frame_document(snapshot: Snapshot, moment: Moment) -> dict[str, Any]:
    """The part of a frame that does not depend on a window. O(bands + uses + fences)."""
    names = [band.name for band in snapshot.bands]
    totals = counter_values(snapshot.counters, names, moment.callers)
    fit = moment.fit
    return {
        "version": FRAME_VERSION,
        "kind": "frame",
        "snapshot_version": snapshot.version,
        "arena": moment.arena,
        "labels": dict(moment.labels),
        "device": moment.device,
        "taken_s": moment.taken_s,
        "serial": moment.serial,
        "epoch": snapshot.epoch,
        "arena_bytes": snapshot.arena_bytes,
        "slack_bytes": snapshot.slack_bytes,
        "bands": [_band(band, fit[at] if fit else ()) for at, band in enumerate(snapshot.bands)],
        "gaps": [asdict(gap) for gap in snapshot.gaps],
        "fences": [asdict(fence) for fence in snapshot.fences[:FENCES_MAX]],
        "fences_total": len(snapshot.fences),
        "uses": [_use(use) for use in snapshot.uses[:USES_MAX]],
        "uses_total": len(snapshot.uses),
        "waits": _waits(moment.timings, moment.clock_s),
        "moves": _moves(moment.timings, moment.clock_s),
        "times": _times(moment.timings),
        "totals": _totals(add_values(moment.earlier, totals)),
    }


def window_fields(
    snapshot: Snapshot,
    states: Sequence[bytes],
    columns: Iterable[UnitColumns] | None,
    *,
    start_bytes: int,
    end_bytes: int,
    width: int,
) -> dict[str, Any]:
    """The part of a frame about arena bytes [start_bytes, end_bytes): `width` pixels as `/map` has
    them, and single units where `columns` has any. O(width * bands + units shown).
    """
    row = pixels(snapshot, states, width=width, start_bytes=start_bytes, end_bytes=end_bytes)
    size = snapshot.arena_bytes
    whole = pixels(snapshot, states, width=WHOLE_WIDTH, start_bytes=0, end_bytes=size)
    told = None
    if columns is not None:
        told = [_columns(each, snapshot, states) for each in columns]
    return {
        "window": {"start_bytes": start_bytes, "end_bytes": end_bytes, "width": width},
        "row": _text(row),
        "whole": _text(whole),
        "columns": told,
    }


def unit_fields(states: Sequence[bytes], columns: Iterable[UnitColumns] | None) -> dict[str, Any]:
    """All units' states, compressed, and their ids where `columns` has them: for files."""
    packed = [_text(zlib.compress(text, 1)) for text in states]
    ids = None
    if columns is not None:
        ids = [
            {
                "band": each.band,
                "first": each.first,
                "ids": _text(zlib.compress(each.ids, 1)),
                "holders": _text(zlib.compress(each.holders, 1)),
                "flags": _text(zlib.compress(each.flags, 1)),
            }
            for each in columns
        ]
    return {"states": packed, "units": ids}


def _band(band: BandSnapshot, fit: tuple[int, ...]) -> dict[str, Any]:
    row = {name: getattr(band, name) for name in band.__slots__ if name not in ("states", "ids")}
    return row | {"fit_units": list(fit)}


def _use(use: UseSnapshot) -> dict[str, Any]:
    reads, more_reads = _runs(use.reads)
    writes, more_writes = _runs(use.writes)
    return {
        "serial": use.serial,
        "kind": use.kind,
        "stream": use.stream,
        "ticket": use.ticket,
        "processed": use.processed,
        "read_units": len(use.reads),
        "write_units": len(use.writes),
        "reads": reads,
        "writes": writes,
        "cut": more_reads or more_writes,
    }


def _runs(units: Sequence[tuple[int, int]]) -> tuple[list[list[int]], bool]:
    """[band, first unit, count] of runs of neighbours, and whether some were left out."""
    runs: list[list[int]] = []
    for band, unit in sorted(units):
        if runs and runs[-1][0] == band and runs[-1][1] + runs[-1][2] == unit:
            runs[-1][2] += 1
        elif runs and runs[-1][0] == band and runs[-1][1] + runs[-1][2] > unit:
            continue  # named twice
        elif len(runs) >= RUNS_MAX:
            return runs, True
        else:
            runs.append([band, unit, 1])
    return runs, False


def _waits(timings: Timings | None, clock_s: float) -> list[dict[str, Any]]:
    if timings is None:
        return []
    return [
        {
            "writer": int(wait.writer),
            "stream": wait.stream,
            "ticket": wait.ticket,
            "age_s": round(max(0.0, clock_s - wait.since_s), 6),
        }
        for wait in timings.waits
    ]


def _moves(timings: Timings | None, clock_s: float) -> list[dict[str, Any]]:
    if timings is None:
        return []
    return [
        {
            "serial": move.serial,
            "age_s": round(max(0.0, clock_s - move.at_s), 6),
            "band": move.band,
            "source": move.source,
            "target": move.target,
        }
        for move in timings.moves
    ]


def _times(timings: Timings | None) -> list[list[Any]]:
    if timings is None:
        return []
    return [
        [metric, label, list(counts), round(total, 6)]
        for (metric, label), (counts, total) in sorted(timings.histograms.items())
        if metric in TIMES
    ]


def _totals(values: Values | Mapping[tuple[str, tuple[str, ...]], float]) -> list[list[Any]]:
    """Counters that are not 0, by metric and label values."""
    return [[name, list(labels), int(n)] for (name, labels), n in sorted(values.items()) if n]


def _columns(columns: UnitColumns, snapshot: Snapshot, states: Sequence[bytes]) -> dict[str, Any]:
    at = columns.first - snapshot.bands[columns.band].low_unit
    shown = states[columns.band][at : at + len(columns.flags)]
    return {
        "band": columns.band,
        "first": columns.first,
        "states": _text(shown),
        "ids": _text(columns.ids),
        "holders": _text(columns.holders),
        "flags": _text(columns.flags),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
