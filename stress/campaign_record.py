"""The record of a campaign: frames of its arenas, every failure explained, its summary so far.

Everything goes through one `RecordWriter` in the campaign's own process; nothing here is read by a
decision.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onearena.metrics.record import FrameRecorder, RecordWriter, received_frame
from onearena.metrics.source import Published, SnapshotSource
from onearena.stress.failure_document import explained_failure

if TYPE_CHECKING:
    from onearena.stress.run import RunSpec
    from onearena.stress.summary import Summary
    from onearena.stress.world import World

SUMMARY_EVERY_S: Final = 1.0


class CampaignRecord:
    """Writes a campaign's record; the campaign's own thread only. `UsageError`: no such file."""

    def __init__(self, path: str | Path) -> None:
        self._writer = RecordWriter(path, about={"what": "campaign"})
        self._recorders: dict[str, FrameRecorder] = {}
        self._due = 0.0

    def tick(self, source: SnapshotSource, world: World) -> None:
        """A quiet point of a schedule in this process."""
        recorder = self._recorders.get(source.name)
        if recorder is None:
            recorder = self._recorders[source.name] = FrameRecorder(self._writer, source)
        choices = world.choices
        recorder.tick(world.sut.inner, schedule=choices.seed, step=world.taken, label=choices.label)

    def receive(self, source: SnapshotSource, published: Published) -> None:
        """What a worker's arena was like."""
        self._writer.frame(received_frame(source, published))

    def failed(self, document: Mapping[str, Any]) -> None:
        """A schedule failed."""
        self._writer.failure(document)

    def minimal(self, spec: RunSpec, *, file: str) -> None:
        """A failure was made small: explain that, if it fails again."""
        document = explained_failure(spec, file=file, minimal=True)
        if document is not None:
            self._writer.failure(document)

    def publish(self, summary: Summary, *, now: bool = False) -> None:
        """The campaign so far, at most once in `SUMMARY_EVERY_S` unless `now`."""
        clock = time.monotonic()
        if clock >= self._due or now:
            self._due = clock + SUMMARY_EVERY_S
            self._writer.campaign(
                {"version": 1, "taken_s": time.time(), "summary": summary.to_json()}
            )

    def close(self) -> None:
        """End the file."""
        self._writer.close()
