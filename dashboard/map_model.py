"""What the map draws, as plain data: pure functions of a frame and of what is looked at.

The map has a strip of the whole arena and below it the window looked at, wrapped into lines of a
round number of bytes. The component only draws; every address and number on it comes from here.
"""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from onearena.core.snapshot import BandSnapshot
from onearena.dashboard import palette
from onearena.dashboard.frame import Column, Frame, UseRow
from onearena.dashboard.words import bytes_text, plural
from onearena.metrics.frames import DETAIL_UNITS_MAX, WHOLE_WIDTH
from onearena.metrics.pixels import WIDTH_MAX, pixels
from onearena.metrics.source import units_between

LINES: Final = 8
MOVES_DRAWN_MAX: Final = 24
MOVE_FADES_S: Final = 10.0
USES_DRAWN_MAX: Final = 64

Window = tuple[int, int]
"""Arena bytes [start, end)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the map draws what, in CSS pixels. The width is the browser's."""

    left: int = 118
    right: int = 12
    strip_top: int = 30
    strip_height: int = 34
    lines_top: int = 142
    line_height: int = 24
    line_gap: int = 14
    lines: int = LINES

    @property
    def height(self) -> int:
        """Of the whole map; the same whatever it shows."""
        return self.lines_top + self.lines * (self.line_height + self.line_gap) + 6


LAYOUT: Final = Layout()


def line_bytes(window_bytes: int) -> int:
    """Bytes of one line: the least round number with which the window fits into `LINES` lines.

    Round is a multiple of a power of two that is at most a sixteenth of it, and of 16.
    """
    least = -(-window_bytes // LINES)
    step = max(16, 1 << max(0, least.bit_length() - 5))
    return -(-least // step) * step


def window_of(frame: Frame, view: Window | None) -> Window:
    """The window to show: the view as far as the arena has it, or all of it."""
    size = frame.snapshot.arena_bytes
    if view is None or not 0 <= view[0] < view[1] <= size:
        return 0, size
    return view


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Pixels of a window and of the whole, and the window's units where they are few."""

    window: Window
    row: bytes
    whole: bytes
    columns: tuple[Column, ...] | None


def seen(frame: Frame, window: Window) -> Seen:
    """What a frame shows of a window. O(width * bands + units shown).

    A live frame has the window that was asked for; a recorded one is cut to it here.
    """
    if not frame.complete:
        return Seen(frame.window, frame.row, frame.whole, frame.columns)
    snapshot = frame.snapshot
    states = [band.states for band in snapshot.bands]
    start, end = window
    row = pixels(snapshot, states, width=WIDTH_MAX, start_bytes=start, end_bytes=end)
    size = snapshot.arena_bytes
    whole = pixels(snapshot, states, width=WHOLE_WIDTH, start_bytes=0, end_bytes=size)
    return Seen(window, row, whole, _cut(frame, window))


def _cut(frame: Frame, window: Window) -> tuple[Column, ...] | None:
    ranges = units_between(frame.snapshot, *window)
    if sum(last - first for first, last in ranges) > DETAIL_UNITS_MAX:
        return None
    told = {column.band: column for column in frame.columns or ()}
    found = []
    for band, (first, last) in enumerate(ranges):
        if last == first:
            continue
        here = frame.snapshot.bands[band]
        at = slice(first - here.low_unit, last - here.low_unit)
        states = np.frombuffer(here.states, np.uint8)[at]
        column = told.get(band)
        nothing = np.zeros(last - first, np.int64)
        found.append(
            Column(
                band,
                first,
                states,
                nothing if column is None else column.ids[at],
                nothing.astype(np.int32) if column is None else column.holders[at],
                nothing.astype(np.uint8) if column is None else column.flags[at],
            )
        )
    return tuple(found)


def map_data(
    frame: Frame,
    *,
    view: Window | None = None,
    picked: int | None = None,
    mark: Window | None = None,
    moves: bool = True,
    label: str = "",
) -> dict[str, Any]:
    """Everything the map component needs, as JSON data.

    `picked` is the address of what is selected, `mark` bytes to frame in red. `label` names the
    picture for those who cannot see it; the facts follow.
    """
    shown = seen(frame, window_of(frame, view))
    snapshot = frame.snapshot
    start, end = shown.window
    return {
        "version": 1,
        "key": f"{frame.arena}/{frame.serial}/{snapshot.epoch}/{frame.step}",
        "arena_bytes": snapshot.arena_bytes,
        "window": [start, end],
        "line_bytes": line_bytes(end - start),
        "row": _text(shown.row),
        "whole": _text(shown.whole),
        "columns": None if shown.columns is None else [_column(c) for c in shown.columns],
        "bands": [_band(band) for band in snapshot.bands],
        "fences": [[fence.start_bytes, fence.end_bytes] for fence in snapshot.fences],
        "uses": [_use(use) for use in frame.uses[:USES_DRAWN_MAX]],
        "moves": _moves(frame) if moves else [],
        "picked": list(extent_at(frame, picked)) if picked is not None else None,
        "mark": list(mark) if mark is not None else None,
        "layout": asdict(LAYOUT) | {"height": LAYOUT.height},
        "states": list(palette.STATES),
        "meanings": list(palette.MEANINGS),
        "light": palette.plain(palette.LIGHT),
        "dark": palette.plain(palette.DARK),
        "label": f"{label or 'Map of the arena'}. {alt_text(frame)}",
    }


def extent_at(frame: Frame, address: int) -> Window:
    """Bytes of the unit at an address, or of the gap or fence there."""
    snapshot = frame.snapshot
    place = unit_at(frame, address)
    if place is not None:
        band = snapshot.bands[place[0]]
        start = band.origin_bytes + place[1] * band.unit_bytes
        return start, start + band.unit_bytes
    for fence in snapshot.fences:
        if fence.start_bytes <= address < fence.end_bytes:
            return fence.start_bytes, fence.end_bytes
    for gap in snapshot.gaps:
        if gap.start_bytes <= address < gap.end_bytes:
            return gap.start_bytes, gap.end_bytes
    return address, min(address + 1, snapshot.arena_bytes)


def unit_at(frame: Frame, address: int) -> tuple[int, int] | None:
    """(band, unit) of an address inside a band's frontiers."""
    for index, band in enumerate(frame.snapshot.bands):
        if band.has_units and band.start_bytes <= address < band.end_bytes:
            return index, (address - band.origin_bytes) // band.unit_bytes
    return None


def alt_text(frame: Frame) -> str:
    """The picture in words: every band with its bytes and units, then what is free."""
    snapshot = frame.snapshot
    parts = [f"{bytes_text(snapshot.arena_bytes)} arena, low to high address."]
    for band in snapshot.bands:
        if not band.has_units:
            parts.append(f"Band {band.name}: no unit.")
            continue
        counts = [
            plural(count, name)
            for name, count in (
                ("live unit", band.live_units),
                ("pending unit", band.pending_units),
                ("vacated unit", band.vacated_units),
                ("hole", band.hole_units),
            )
            if count
        ]
        parts.append(
            f"Band {band.name}: bytes {band.start_bytes} to {band.end_bytes}, {', '.join(counts)}."
        )
    free = sum(gap.free_bytes for gap in snapshot.gaps)
    fenced = sum(gap.fenced_bytes for gap in snapshot.gaps)
    parts.append(f"Gaps: {free} bytes free, {fenced} fenced.")
    return " ".join(parts)


def _band(band: BandSnapshot) -> dict[str, Any]:
    return {
        "name": band.name,
        "placement": band.placement,
        "start": band.start_bytes,
        "end": band.end_bytes,
        "origin": band.origin_bytes,
        "unit_bytes": band.unit_bytes,
        "low": band.low_unit,
        "high": band.high_unit,
    }


def _column(column: Column) -> dict[str, Any]:
    return {
        "band": column.band,
        "first": column.first,
        "states": _text(column.states.tobytes()),
        "ids": _text(column.ids.astype("<i8").tobytes()),
        "holders": _text(column.holders.astype("<i4").tobytes()),
        "flags": _text(column.flags.tobytes()),
    }


def _use(use: UseRow) -> dict[str, Any]:
    return {"text": use_name(use), "reads": use.reads, "writes": use.writes}


def use_name(use: UseRow) -> str:
    """`#12 forward on stream 3`."""
    where = "" if use.stream < 0 else f" on stream {use.stream}"
    return f"#{use.serial} {use.kind}{where}"


def _moves(frame: Frame) -> list[dict[str, Any]]:
    """The last moves that have not faded, as byte ranges; `strength` from 1 down to 0."""
    found = []
    for move in frame.moves[-MOVES_DRAWN_MAX:]:
        strength = 1.0 - move.age_s / MOVE_FADES_S
        band = frame.snapshot.bands[move.band]
        source = band.origin_bytes + move.source * band.unit_bytes
        target = band.origin_bytes + move.target * band.unit_bytes
        inside = 0 <= min(source, target) <= frame.snapshot.arena_bytes - band.unit_bytes
        if strength > 0 and inside:
            found.append(
                {
                    "source": [source, source + band.unit_bytes],
                    "target": [target, target + band.unit_bytes],
                    "strength": round(strength, 2),
                }
            )
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
