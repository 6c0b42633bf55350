"""What the Arena page says: pure functions from a frame to words and tables.

Pages place what they get from here and compute nothing. `view_model` is the whole of it; the map's
own data is in `onearena.dashboard.map_model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from onearena.core.arena_units import PINNED, QUARANTINED, TRANSFERS, WRITTEN
from onearena.core.snapshot import Snapshot
from onearena.dashboard.frame import Column, Frame
from onearena.dashboard.map_model import (
    Window,
    alt_text,
    extent_at,
    map_data,
    seen,
    unit_at,
    use_name,
    window_of,
)
from onearena.dashboard.palette import FENCED, STATES
from onearena.dashboard.words import age_text, bytes_text

STALE_S: Final = 5.0
ROWS_MAX: Final = 200

State = Literal["live", "stale", "paused", "disconnected", "recorded", "unusable", "waiting"]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns; numbers stay numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]

    def as_columns(self) -> dict[str, list[str | int | float]]:
        """By column, as tables are drawn."""
        return {name: [row[at] for row in self.rows] for at, name in enumerate(self.columns)}


@dataclass(frozen=True, slots=True)
class Status:
    """One line about the source: its state, how old what is shown is, and why."""

    state: State
    age_s: float
    reason: str = ""

    @property
    def text(self) -> str:
        """`live, 0.4 s old`."""
        if self.state in ("unusable", "waiting"):
            return self.reason or self.state
        old = f"{self.state}, {age_text(self.age_s)} old"
        return f"{old}: {self.reason}" if self.reason else old


@dataclass(frozen=True, slots=True)
class ArenaView:
    """Everything the Arena page shows of one frame."""

    title: str
    facts: tuple[tuple[str, str], ...]
    adds_up: bool
    bands: Table
    uses: Table
    waits: Table
    moves: Table
    picked: Table
    map: dict[str, Any]
    alt: str
    notes: tuple[str, ...]


def status_of(
    *,
    taken_s: float | None,
    now_s: float,
    paused: bool = False,
    recorded: bool = False,
    trouble: str = "",
    reason: str = "",
) -> Status:
    """What to say of a source. `taken_s` is of the frame shown, None if there is none."""
    age = float("inf") if taken_s is None else max(0.0, now_s - taken_s)
    if trouble == "unusable":
        return Status("unusable", age, reason)
    if trouble == "disconnected":
        return Status("disconnected", age, reason)
    if recorded:
        return Status("recorded", age)
    if paused:
        return Status("paused", age)
    if taken_s is None:
        return Status("waiting", age, "waiting for the first snapshot")
    if age > STALE_S:
        return Status("stale", age, "its control thread has published nothing since")
    return Status("live", age)


def view_model(frame: Frame, *, view: Window | None = None, picked: int | None = None) -> ArenaView:
    """The Arena page of a frame: pure. `view` is the window looked at, `picked` an address."""
    snapshot = frame.snapshot
    bands = band_table(snapshot, frame.fit)
    total = bands.rows[-1][-1]
    place = f"arena {frame.arena}" + (f" on {frame.device}" if frame.device else "")
    if frame.step >= 0:
        place += f", schedule {frame.schedule}, step {frame.step}"
    return ArenaView(
        title=place,
        facts=_facts(frame),
        adds_up=total == snapshot.arena_bytes,
        bands=bands,
        uses=use_table(frame),
        waits=wait_table(frame),
        moves=move_table(frame),
        picked=picked_table(frame, view=view, address=picked),
        map=map_data(frame, view=view, picked=picked),
        alt=alt_text(frame),
        notes=_notes(frame, view, total == snapshot.arena_bytes),
    )


def _facts(frame: Frame) -> tuple[tuple[str, str], ...]:
    snapshot = frame.snapshot
    free = sum(gap.free_bytes for gap in snapshot.gaps)
    fenced = sum(gap.fenced_bytes for gap in snapshot.gaps)
    holes = sum(band.hole_units * band.unit_bytes for band in snapshot.bands)
    return (
        ("Capacity", bytes_text(snapshot.arena_bytes)),
        ("Free in gaps", bytes_text(free)),
        ("Fenced", bytes_text(fenced)),
        ("In holes", bytes_text(holes)),
        ("Slack", bytes_text(snapshot.slack_bytes)),
        ("Open uses", f"{frame.uses_total:,}"),
        ("Waiting now", f"{len(frame.waits):,}"),
    )


def _notes(frame: Frame, view: Window | None, adds_up: bool) -> tuple[str, ...]:  # noqa: FBT001
    notes = []
    if not adds_up:
        notes.append("The bands and gaps of this snapshot do not add up to its capacity.")
    if frame.fences_total > len(frame.snapshot.fences):
        shown = len(frame.snapshot.fences)
        notes.append(f"{shown} of {frame.fences_total} fences are shown.")
    if frame.uses_total > len(frame.uses):
        notes.append(f"The oldest {len(frame.uses)} of {frame.uses_total} uses are shown.")
    if seen(frame, window_of(frame, view)).columns is None:
        notes.append("A pixel stands for several units, the worst of them: zoom in to see each.")
    return tuple(notes)


# -- tables
def band_table(snapshot: Snapshot, fit: tuple[tuple[int, ...], ...]) -> Table:
    """Bytes of every band and gap in order of address, and a last row that adds them up."""
    rows: list[tuple[str | int | float, ...]] = []
    for index, band in enumerate(snapshot.bands):
        units = (band.live_units, band.pending_units, band.vacated_units, band.hole_units)
        sizes = [count * band.unit_bytes for count in units]
        more = fit[index] if index < len(fit) else ()
        fits = " / ".join(f"{count:,}" for count in more) or "unknown"
        fixed = band.transfer_units + band.pinned_units + band.quarantined_units
        start = band.start_bytes if band.has_units else -1
        end = band.end_bytes if band.has_units else -1
        rows.append((band.name, start, end, sum(units), fixed, fits, *sizes, 0, 0, sum(sizes)))
    for gap in snapshot.gaps:
        size = gap.free_bytes + gap.fenced_bytes
        nothing = (0, 0, "", 0, 0, 0, 0)
        sizes = [gap.free_bytes, gap.fenced_bytes, size]
        rows.append(("gap", gap.start_bytes, gap.end_bytes, *nothing, *sizes))
    rows.sort(key=lambda row: (row[1] if int(row[1]) >= 0 else snapshot.arena_bytes, str(row[0])))
    sums = [sum(int(row[at]) for row in rows) for at in (3, 4, 6, 7, 8, 9, 10, 11, 12)]
    rows.append(("all", 0, snapshot.arena_bytes, sums[0], sums[1], "", *sums[2:]))
    return Table(
        (
            "band",
            "start_bytes",
            "end_bytes",
            "units",
            "fixed units",
            "more units fit: none / compact / relayout",
            "live_bytes",
            "pending_bytes",
            "vacated_bytes",
            "hole_bytes",
            "free_bytes",
            "fenced_bytes",
            "total_bytes",
        ),
        tuple(rows),
    )


def use_table(frame: Frame) -> Table:
    """Open uses, the oldest first."""
    rows = [
        (
            use.serial,
            use.kind,
            "transfer" if use.stream < 0 else f"stream {use.stream}",
            use.ticket,
            use.read_units,
            use.write_units,
            "yes" if use.processed else "no",
        )
        for use in frame.uses[:ROWS_MAX]
    ]
    names = ("use", "kind", "where", "ticket", "reads units", "writes units", "processed")
    return Table(names, tuple(rows))


def wait_table(frame: Frame) -> Table:
    """Who waits for whom now, the longest first."""
    by_ticket = {(use.stream, use.ticket): use for use in frame.uses}
    rows = []
    for wait in sorted(frame.waits, key=lambda wait: -wait.age_s)[:ROWS_MAX]:
        use = by_ticket.get((wait.stream, wait.ticket))
        what = use_name(use) if use else f"use {wait.ticket} of stream {wait.stream}"
        rows.append((wait.writer, what, age_text(wait.age_s)))
    return Table(("waiting", "for", "since"), tuple(rows))


def move_table(frame: Frame) -> Table:
    """The last moves, the latest first."""
    bands = frame.snapshot.bands
    rows = [
        (bands[move.band].name, move.source, move.target, age_text(move.age_s))
        for move in reversed(frame.moves)
    ]
    return Table(("band", "from unit", "to unit", "ago"), tuple(rows))


def picked_table(frame: Frame, *, view: Window | None, address: int | None) -> Table:
    """What is at an address, fact by fact; empty without one."""
    rows: list[tuple[str, str]] = []
    if address is not None and 0 <= address < frame.snapshot.arena_bytes:
        start, end = extent_at(frame, address)
        rows.append(("bytes", f"{start:,} to {end:,}, {end - start:,} in all"))
        place = unit_at(frame, address)
        if place is None:
            fences = frame.snapshot.fences
            fenced = any(f.start_bytes <= address < f.end_bytes for f in fences)
            rows.append(("state", STATES[FENCED] if fenced else STATES[0]))
        else:
            rows += unit_facts(frame, seen(frame, window_of(frame, view)).columns, *place)
    return Table(("fact", "value"), tuple(rows))


def unit_facts(
    frame: Frame, columns: tuple[Column, ...] | None, band: int, unit: int
) -> list[tuple[str, str]]:
    """What is known of one unit."""
    here = frame.snapshot.bands[band]
    rows = [("band", here.name), ("unit", f"{unit:,}")]
    for column in columns or ():
        at = unit - column.first
        if column.band == band and 0 <= at < len(column.states):
            vid, flags = int(column.ids[at]), int(column.flags[at])
            rows.append(("state", STATES[int(column.states[at])]))
            if vid:
                rows.append(("virtual id", str(vid)))
                rows.append(("generation", f"{vid >> 36:,}"))
                rows.append(("holders", f"{int(column.holders[at]):,}"))
            rows += [("fixed", word) for word in flag_words(flags)]
            rows.append(("written in this life", "yes" if flags & WRITTEN else "no"))
    for use in frame.uses:
        verb = use.touches(band, unit)
        if verb:
            rows.append(("open use", f"{use_name(use)} {verb} it"))
    return rows


def flag_words(flags: int) -> list[str]:
    """Why a unit may not move."""
    names = ((PINNED, "pinned"), (TRANSFERS, "under a transfer"), (QUARANTINED, "quarantined"))
    return [word for bit, word in names if flags & bit]
