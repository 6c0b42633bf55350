"""Recorded frames in a file: bounded, in order, and readable after a kill at any moment.

A record is UTF-8 text, a JSON document a line. The first line says what it is; then come frames
(`kind` `frame`: the arena at one moment with all its units), failures and campaign summaries. A
line is written whole and flushed, so a kill can cut the last one and no other. When the file has
reached its limit it is written anew with all failures that fit into half of it, the last summary
and the latest frames, and takes the old one's place in one step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final

from onearena.core.arena import Arena
from onearena.core.errors import UsageError
from onearena.metrics.frames import Moment, frame_document, moment_of, unit_fields
from onearena.metrics.source import Published, SnapshotSource, Watched, columns_of

RECORD_VERSION: Final = 1
LIMIT_BYTES: Final = 64 << 20
LIMIT_BYTES_MIN: Final = 1 << 20
PERIOD_S: Final = 0.25
IDS_UNITS_MAX: Final = 1 << 16
"""Arenas with more units are recorded without ids and holders."""


class RecordWriter:
    """One record being written. One thread; every line is in the file when its call returns.

    `UsageError` if the file cannot be written. An older record of the name is replaced.
    """

    def __init__(
        self, path: str | Path, *, limit_bytes: int = LIMIT_BYTES, about: Mapping[str, Any] = {}
    ) -> None:
        assert limit_bytes >= LIMIT_BYTES_MIN, f"a record of {limit_bytes} bytes keeps nothing"
        self.path = Path(path)
        self._limit_bytes = limit_bytes
        self._head = _line({"onearena": "record", "version": RECORD_VERSION, "about": dict(about)})
        self._failures: list[bytes] = []
        self._summary = b""
        self._file = self._open()
        self._bytes = 0
        self._put(self._head)

    def frame(self, document: Mapping[str, Any]) -> None:
        """Add a frame with its units (`frame_document` and `unit_fields`)."""
        self._add(_line(document))

    def failure(self, document: Mapping[str, Any]) -> None:
        """Add a failure; it is kept as long as all failures fit into half the limit."""
        line = _line({"kind": "failure", **document})
        self._failures.append(line)
        while sum(map(len, self._failures)) > self._limit_bytes // 2:
            self._failures.pop(0)
        self._add(line)

    def campaign(self, document: Mapping[str, Any]) -> None:
        """Add a campaign's summary so far; the last one counts."""
        self._summary = _line({"kind": "campaign", **document})
        self._add(self._summary)

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _add(self, line: bytes) -> None:
        if self._bytes + len(line) > self._limit_bytes:
            self._shorten()
        self._put(line)

    def _put(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        self._bytes += len(line)

    def _shorten(self) -> None:
        """Write the file anew: head, failures, summary, and the latest frames up to half of it."""
        kept = [self._head, *self._failures, self._summary]
        left = max(0, self._limit_bytes // 2 - sum(map(len, kept)))
        frames: list[bytes] = []
        for line in reversed(self.path.read_bytes().splitlines(keepends=True)):
            if line.startswith(_FRAME_HEAD):
                left -= len(line)
                if left < 0:
                    break
                frames.append(line)
        fresh = self.path.with_name(f".{self.path.name}.new")
        fresh.write_bytes(b"".join([*kept, *reversed(frames)]))
        self._file.close()
        fresh.replace(self.path)
        self._file = self.path.open("ab")
        self._bytes = self.path.stat().st_size

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("wb")
        except (OSError, ValueError) as error:
            raise UsageError(
                "record", str(self.path), f"give a file that can be written ({error})"
            ) from None


class FrameRecorder:
    """Frames of one arena after another, into one record. Control thread only.

    An engine makes one beside its `SnapshotSource` and calls `tick` where it ticks the source:

        record = FrameRecorder(RecordWriter("arena.record.jsonl"), source)
        while serving:
            step()
            source.tick(arena)
            record.tick(arena)

    A tick reads a clock; every `period_s` it takes a frame: O(units), about a millisecond for a
    thousand of them. Nothing it does changes a decision.
    """

    def __init__(
        self,
        writer: RecordWriter,
        source: SnapshotSource,
        *,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.writer = writer
        self._source = source
        self._period_s = period_s
        self._clock = clock
        self._wall = wall
        self._due = float("-inf")
        self._serial = 0

    def tick(self, arena: Watched, *, schedule: int = -1, step: int = -1, label: str = "") -> None:
        """Record a frame if it is time to."""
        now = self._clock()
        if now >= self._due:
            self._due = now + self._period_s
            self.take(arena, schedule=schedule, step=step, label=label)

    def take(self, arena: Watched, *, schedule: int = -1, step: int = -1, label: str = "") -> None:
        """Record a frame now. `schedule`, `step` and `label` say where a campaign is."""
        self._serial += 1
        source, timed = self._source, self._source.recorder
        latest = source.latest
        moment = Moment(
            arena=source.name,
            device=source.device,
            labels=source.labels,
            callers=source.callers,
            taken_s=self._wall(),
            clock_s=self._clock(),
            serial=self._serial,
            fit=arena.fit_units() if isinstance(arena, Arena) else (),
            timings=None if timed is None else timed.freeze(),
            earlier={} if latest is None else latest.earlier,
        )
        self.writer.frame(recorded_frame(arena, moment, schedule=schedule, step=step, label=label))


def recorded_frame(
    arena: Watched, moment: Moment, *, schedule: int = -1, step: int = -1, label: str = ""
) -> dict[str, Any]:
    """The arena now as a frame with all its units. O(units)."""
    real = arena if isinstance(arena, Arena) else None
    snapshot = arena.snapshot(units=real is None)
    units = sum(band.high_unit - band.low_unit for band in snapshot.bands)
    columns = None
    if units <= IDS_UNITS_MAX:
        columns = [
            columns_of(snapshot, at, band.low_unit, band.high_unit - band.low_unit)
            if real is None
            else real.unit_columns(at, band.low_unit, band.high_unit - band.low_unit)
            for at, band in enumerate(snapshot.bands)
            if band.has_units
        ]
    states = tuple(b.states for b in snapshot.bands) if real is None else real.unit_states()
    return {
        "kind": "frame",
        "taken_s": moment.taken_s,
        "schedule": schedule,
        "step": step,
        "label": label,
        **frame_document(snapshot, moment),
        **unit_fields(states, columns),
    }


def received_frame(source: SnapshotSource, published: Published) -> dict[str, Any]:
    """What a worker published, with its units, as a frame."""
    snapshot = published.snapshot
    columns = [
        columns_of(snapshot, at, band.low_unit, band.high_unit - band.low_unit)
        for at, band in enumerate(snapshot.bands)
        if band.has_units
    ]
    return {
        "kind": "frame",
        "taken_s": published.taken_s,
        "schedule": -1,
        "step": -1,
        "label": f"worker {source.name}",
        **frame_document(snapshot, moment_of(source, published)),
        **unit_fields(tuple(band.states for band in snapshot.bands), columns),
    }


_FRAME_HEAD: Final = b'{"kind":"frame"'


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
