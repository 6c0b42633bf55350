"""The record of a campaign: frames of its arenas, every failure explained, its summary so far.

Everything goes through one `RecordWriter` in the campaign's own process. A failure is replayed once
more to be explained, the first `EXPLAINED_MAX` of them; nothing here is read by a decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onearena.core.errors import UsageError
from onearena.metrics.record import FrameRecorder, RecordWriter, received_frame
from onearena.metrics.source import Published, SnapshotSource
from onearena.stress.failure_document import explained_failure, short_failure

if TYPE_CHECKING:
    from onearena.stress.run import RunResult, RunSpec
    from onearena.stress.summary import Summary
    from onearena.stress.world import World

EXPLAINED_MAX: Final = 16
SUMMARY_EVERY_S: Final = 1.0


class CampaignRecord:
    """Writes a campaign's record; the campaign's own thread only. `UsageError`: no such file."""

    def __init__(self, path: str | Path) -> None:
        self._writer = RecordWriter(path, about={"what": "campaign"})
        self._recorders: dict[str, FrameRecorder] = {}
        self._spec_of: Callable[[int], RunSpec] | None = None
        self._explained = 0
        self._due = 0.0

    def follow(self, spec_of: Callable[[int], RunSpec]) -> None:
        """Failures of these schedules can be replayed."""
        self._spec_of = spec_of

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

    def failed(self, result: RunResult) -> None:
        """A schedule failed: explained, if it can be."""
        document = short_failure(result)
        if self._spec_of is not None and result.recording and self._explained < EXPLAINED_MAX:
            self._explained += 1
            spec = replace(
                self._spec_of(result.seed), recording=result.recording, state_digests=False
            )
            document = _explained(spec, document)
        self._writer.failure(document)

    def minimal(self, spec: RunSpec, *, file: str) -> None:
        """A failure was made small: explain that."""
        self._writer.failure(_explained(spec, {}, file=file, minimal=True))

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


def _explained(
    spec: RunSpec, otherwise: Mapping[str, Any], *, file: str = "", minimal: bool = False
) -> dict[str, Any]:
    """The failure of a replay; what was known before if it does not fail again."""
    try:
        return explained_failure(spec, file=file, minimal=minimal)
    except UsageError as error:
        # Real threads need not fail twice: that is a fact about the failure, so the record says it.
        return {**otherwise, "text": f"{otherwise.get('text', '')}\nreplayed: {error.message}"}
