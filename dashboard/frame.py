"""A frame as the dashboard holds it: the arena at one moment, checked and typed.

`parse_frame` takes the document that `onearena.metrics.frames` makes, from `/frame` or from a
recorded file. Addresses are bytes of the arena; units are physical unit numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core.rules import UseKind
from onearena.core.snapshot import (
    SNAPSHOT_VERSION,
    BandSnapshot,
    FenceSnapshot,
    GapSnapshot,
    Snapshot,
)
from onearena.dashboard.checked import Checked, SourceError, kind_of, unpacked
from onearena.metrics.frames import FENCES_MAX, FRAME_VERSION, RUNS_MAX, USES_MAX, WHOLE_WIDTH
from onearena.metrics.pixels import WIDTH_MAX
from onearena.metrics.recorder import MOVES_KEPT_MAX, WAITS_SHOWN_MAX

BANDS_MAX: Final = 32
ADDRESS_MAX: Final = 1 << 49
UNITS_MAX: Final = 1 << 24
TOTALS_MAX: Final = 2048
KINDS: Final = tuple(kind.name.lower() for kind in UseKind)

Run = tuple[int, int, int]
"""(band, first unit, count)."""


@dataclass(frozen=True, slots=True)
class UseRow:
    """One unfinished use; `stream` is -1 for a transfer, `cut` says that runs were left out."""

    serial: int
    kind: str
    stream: int
    ticket: int
    processed: bool
    read_units: int
    write_units: int
    reads: tuple[Run, ...]
    writes: tuple[Run, ...]
    cut: bool

    def touches(self, band: int, unit: int) -> str:
        """`reads`, `writes`, `reads and writes`, or nothing."""
        words = [
            word
            for word, runs in (("reads", self.reads), ("writes", self.writes))
            if any(b == band and first <= unit < first + n for b, first, n in runs)
        ]
        return " and ".join(words)


@dataclass(frozen=True, slots=True)
class WaitRow:
    """A use of kind `writer` that waits for use `ticket` of `stream`, for `age_s` by now."""

    writer: str
    stream: int
    ticket: int
    age_s: float


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A unit that was moved `age_s` ago."""

    serial: int
    age_s: float
    band: int
    source: int
    target: int


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Units [first, first + n) of a band, told one by one: arrays of n entries."""

    band: int
    first: int
    states: NDArray[np.uint8]
    ids: NDArray[np.int64]
    holders: NDArray[np.int32]
    flags: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The arena at one moment.

    Of a live source, `row` has one pixel value for each `row_bytes`-wide piece of the window and
    `columns` the units in it, if they are few; the snapshot's bands hold no states. Of a recorded
    one the snapshot's bands hold all of them and `row` is empty.
    """

    arena: str
    device: str
    taken_s: float
    serial: int
    snapshot: Snapshot
    fit: tuple[tuple[int, ...], ...]
    fences_total: int
    uses: tuple[UseRow, ...]
    uses_total: int
    waits: tuple[WaitRow, ...]
    moves: tuple[MoveRow, ...]
    times: Mapping[tuple[str, str], tuple[tuple[int, ...], float]]
    totals: Mapping[tuple[str, tuple[str, ...]], int]
    window: tuple[int, int]
    row: bytes
    whole: bytes
    columns: tuple[Column, ...] | None
    step: int = -1
    schedule: int = -1
    label: str = ""

    @property
    def complete(self) -> bool:
        """Whether the state of every unit is known."""
        return any(band.states for band in self.snapshot.bands) or not self.row


def parse_frame(value: object, where: str) -> Frame:
    """The frame in a document; `SourceError` names the first field that cannot be."""
    doc = Checked(value, where)
    version = doc.value.get("version")
    if version != FRAME_VERSION:
        raise SourceError(
            f"{where}: frames of version {FRAME_VERSION} are understood, and this one is "
            f"{kind_of(version)}; use the dashboard of the same onearena"
        )
    if doc.integer("snapshot_version") != SNAPSHOT_VERSION:
        raise doc.wrong("snapshot_version", f"version {SNAPSHOT_VERSION}")
    snapshot, fit = _snapshot(doc)
    start, end, row, whole = (0, snapshot.arena_bytes, b"", b"")
    if "window" in doc:
        window = doc.child("window")
        start = window.integer("start_bytes", most=snapshot.arena_bytes - 1)
        end = window.integer("end_bytes", least=start + 1, most=snapshot.arena_bytes)
        row = doc.data("row", length=window.integer("width", least=1, most=WIDTH_MAX))
        whole = doc.data("whole", length=WHOLE_WIDTH)
        if max(*row, *whole) > 5:
            raise doc.wrong("row", "pixel values from 0 to 5")
    return Frame(
        arena=doc.text("arena", most=64),
        device=doc.text("device", most=64),
        taken_s=doc.number("taken_s"),
        serial=doc.integer("serial"),
        snapshot=snapshot,
        fit=fit,
        fences_total=doc.integer("fences_total"),
        uses=tuple(_use(use, len(snapshot.bands)) for use in doc.objects("uses", most=USES_MAX)),
        uses_total=doc.integer("uses_total"),
        waits=tuple(_wait(wait) for wait in doc.objects("waits", most=WAITS_SHOWN_MAX)),
        moves=tuple(_move(m, snapshot) for m in doc.objects("moves", most=MOVES_KEPT_MAX)),
        times=_times(doc),
        totals=_totals(doc),
        window=(start, end),
        row=row,
        whole=whole,
        columns=_columns(doc, snapshot),
        step=doc.integer("step", least=-1) if "step" in doc else -1,
        schedule=doc.integer("schedule", least=-1) if "schedule" in doc else -1,
        label=doc.text("label", most=256) if "label" in doc else "",
    )


def _snapshot(doc: Checked) -> tuple[Snapshot, tuple[tuple[int, ...], ...]]:
    size = doc.integer("arena_bytes", least=1, most=ADDRESS_MAX)
    rows = doc.objects("bands", most=BANDS_MAX)
    states: Sequence[object] = doc.items("states", most=BANDS_MAX) if "states" in doc else ()
    if states and len(states) != len(rows):
        raise doc.wrong("states", "one text a band")
    bands = tuple(
        _band(row, size, states[at] if states else None, f"{doc.path}.states[{at}]")
        for at, row in enumerate(rows)
    )
    gaps = tuple(
        GapSnapshot(
            gap.integer("start_bytes", most=size),
            gap.integer("end_bytes", most=size),
            gap.integer("free_bytes", most=size),
            gap.integer("fenced_bytes", most=size),
        )
        for gap in doc.objects("gaps", most=BANDS_MAX + 1)
    )
    fences = tuple(_fence(fence, size) for fence in doc.objects("fences", most=FENCES_MAX))
    snapshot = Snapshot(
        epoch=doc.integer("epoch"),
        arena_bytes=size,
        bands=bands,
        gaps=gaps,
        fences=fences,
        uses=(),
        slack_bytes=doc.integer("slack_bytes", most=size),
    )
    return snapshot, tuple(row.integers("fit_units", most=3) for row in rows)


def _band(row: Checked, size: int, states: object, path: str) -> BandSnapshot:
    low, high = row.integer("low_unit", most=ADDRESS_MAX), row.integer("high_unit")
    unit_bytes = row.integer("unit_bytes", least=1, most=size)
    origin = row.integer("origin_bytes", least=-ADDRESS_MAX, most=size)
    if high > low and not 0 <= origin + low * unit_bytes < origin + high * unit_bytes <= size:
        raise row.wrong("high_unit", "a frontier inside the arena")
    count = max(0, high - low)
    if count > UNITS_MAX:
        raise row.wrong("high_unit", f"a band of at most {UNITS_MAX} units")
    text = b""
    if states is not None:
        if not isinstance(states, str):
            raise row.wrong("states", "compressed bytes in base64")
        text = unpacked(states, path, length=count) if count else b""
        if text and max(text) > 4:
            raise SourceError(f"{path}: unit states from 0 to 4 were expected")
    return BandSnapshot(
        name=row.text("name", most=64),
        placement=row.text("placement", most=16),
        unit_bytes=unit_bytes,
        origin_bytes=origin,
        first_unit=row.integer("first_unit", most=ADDRESS_MAX),
        capacity_units=row.integer("capacity_units", most=ADDRESS_MAX),
        low_unit=low,
        high_unit=high,
        live_units=row.integer("live_units"),
        pending_units=row.integer("pending_units"),
        vacated_units=row.integer("vacated_units"),
        hole_units=row.integer("hole_units"),
        transfer_units=row.integer("transfer_units"),
        pinned_units=row.integer("pinned_units"),
        quarantined_units=row.integer("quarantined_units"),
        states=text,
    )


def _fence(fence: Checked, size: int) -> FenceSnapshot:
    uses = []
    for use in fence.items("uses", most=256):
        if not isinstance(use, list) or len(use) != 4 or not all(isinstance(n, int) for n in use):
            raise fence.wrong("uses", "lists of kind, stream, ticket, writes")
        uses.append((use[0], use[1], use[2], bool(use[3])))
    start = fence.integer("start_bytes", most=size)
    return FenceSnapshot(start, fence.integer("end_bytes", least=start, most=size), tuple(uses))


def _use(use: Checked, bands: int) -> UseRow:
    # A use may touch host units too: those are in no band, and on no map.
    reads = [run for run in use.rows("reads", width=3, most=RUNS_MAX) if 0 <= run[0] < bands]
    writes = [run for run in use.rows("writes", width=3, most=RUNS_MAX) if 0 <= run[0] < bands]
    return UseRow(
        serial=use.integer("serial"),
        kind=KINDS[use.integer("kind", most=len(KINDS) - 1)],
        stream=use.integer("stream", least=-1),
        ticket=use.integer("ticket"),
        processed=use.flag("processed"),
        read_units=use.integer("read_units"),
        write_units=use.integer("write_units"),
        reads=tuple((b, f, n) for b, f, n in reads),
        writes=tuple((b, f, n) for b, f, n in writes),
        cut=use.flag("cut"),
    )


def _wait(wait: Checked) -> WaitRow:
    return WaitRow(
        KINDS[wait.integer("writer", most=len(KINDS) - 1)],
        wait.integer("stream", least=-1),
        wait.integer("ticket"),
        wait.number("age_s"),
    )


def _move(move: Checked, snapshot: Snapshot) -> MoveRow:
    band = move.integer("band", most=max(0, len(snapshot.bands) - 1))
    return MoveRow(
        move.integer("serial"),
        move.number("age_s"),
        band,
        move.integer("source"),
        move.integer("target"),
    )


def _times(doc: Checked) -> dict[tuple[str, str], tuple[tuple[int, ...], float]]:
    found: dict[tuple[str, str], tuple[tuple[int, ...], float]] = {}
    for row in doc.items("times", most=256):
        match row:
            case [str(metric), str(label), list(counts), int() | float() as total] if all(
                isinstance(n, int) for n in counts
            ):
                found[metric[:64], label[:64]] = (tuple(counts), float(total))
            case _:
                raise doc.wrong("times", "rows of metric, label, counts, sum")
    return found


def _totals(doc: Checked) -> dict[tuple[str, tuple[str, ...]], int]:
    found: dict[tuple[str, tuple[str, ...]], int] = {}
    for row in doc.items("totals", most=TOTALS_MAX):
        match row:
            case [str(metric), list(labels), int(count)] if all(
                isinstance(label, str) for label in labels
            ):
                found[metric[:64], tuple(label[:64] for label in labels)] = count
            case _:
                raise doc.wrong("totals", "rows of metric, labels, count")
    return found


def _columns(doc: Checked, snapshot: Snapshot) -> tuple[Column, ...] | None:
    """Units told one by one: all of a window's (`columns`), or all there are (`units`)."""
    if "columns" in doc:
        found = [_window_column(each, snapshot) for each in doc.objects("columns", most=BANDS_MAX)]
        return tuple(found)
    if "units" in doc:
        return tuple(_column(each, snapshot) for each in doc.objects("units", most=BANDS_MAX))
    return None


def _window_column(each: Checked, snapshot: Snapshot) -> Column:
    band = each.integer("band", most=len(snapshot.bands) - 1)
    here = snapshot.bands[band]
    first = each.integer("first", least=here.low_unit, most=max(here.low_unit, here.high_unit))
    flags = each.text("flags", most=1 << 16)
    count = len(flags) * 3 // 4 - flags[-2:].count("=")
    if first + count > max(first, here.high_unit):
        raise each.wrong("first", "units inside the band's frontiers")
    states = np.frombuffer(each.data("states", length=count), np.uint8)
    if len(states) and states.max() > 4:
        raise each.wrong("states", "unit states from 0 to 4")
    return Column(
        band,
        first,
        states,
        np.frombuffer(each.data("ids", length=8 * count), "<i8").astype(np.int64),
        np.frombuffer(each.data("holders", length=4 * count), "<i4").astype(np.int32),
        np.frombuffer(each.data("flags", length=count), np.uint8),
    )


def _column(each: Checked, snapshot: Snapshot) -> Column:
    band = each.integer("band", most=len(snapshot.bands) - 1)
    here = snapshot.bands[band]
    first = each.integer("first", least=here.low_unit, most=here.low_unit)
    count = len(here.states)
    return Column(
        band,
        first,
        np.frombuffer(here.states, np.uint8),
        np.frombuffer(each.packed("ids", length=8 * count), "<i8").astype(np.int64),
        np.frombuffer(each.packed("holders", length=4 * count), "<i4").astype(np.int32),
        np.frombuffer(each.packed("flags", length=count), np.uint8),
    )
