"""A campaign that can be watched while it runs: arenas and progress, published for the exporter.

Nothing here is read by a decision: a watched schedule has the trace of an unwatched one. With one
job the schedules run in the campaign's own process and its arena is seen directly; with more, each
worker sends what it published along with its results.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from onearena.core.arena import Arena
from onearena.metrics.collector import collector_of
from onearena.metrics.exporter import ADDRESS, Exporter, start_exporter
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.metric import ARENAS_MAX, LONG_SECONDS
from onearena.metrics.recorder import Recorder
from onearena.metrics.security import Security
from onearena.metrics.source import PERIOD_S, Published, SnapshotSource
from onearena.stress import oracles
from onearena.stress.real_forwards import BYTES_ORACLE, ORDER_ORACLE

if TYPE_CHECKING:
    from onearena.stress.campaign_record import CampaignRecord
    from onearena.stress.run import RunResult, RunSpec
    from onearena.stress.summary import Summary
    from onearena.stress.world import World

PROGRESS_EVERY_S: Final = 0.5
SEND_EVERY_S: Final = 0.5
DEVICE: Final = "modeled"
EXPLAINED_MAX: Final = 16
"""Failures that are replayed to be explained; of the others the report alone is told."""


def reporters() -> tuple[str, ...]:
    """Who can report a failure: every oracle there is, and crash and stuck, sorted."""
    names = {"crash", "stuck", BYTES_ORACLE, ORDER_ORACLE}
    for module in pkgutil.iter_modules(oracles.__path__):
        found = vars(importlib.import_module(f"{oracles.__name__}.{module.name}")).values()
        named = [getattr(each, "name", None) for each in found if isinstance(each, type)]
        names.update(name for name in named if isinstance(name, str))
    return tuple(sorted(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Where a campaign is watched. `port` 0 takes a free one, None serves nothing; `record` names
    the file that what is seen goes to.
    """

    port: int | None
    record: str | None = None
    address: str = ADDRESS
    security: Security = field(default_factory=Security)


class ArenaProbe:
    """Follows the arenas of one process's schedules, one after the other, under one name."""

    def __init__(
        self,
        source: SnapshotSource,
        *,
        send: Callable[[Published], None] | None = None,
        record: CampaignRecord | None = None,
    ) -> None:
        self.source = source
        self._send = send
        self._record = record
        self._world: World | None = None
        self._sent = 0
        self._sut: object = None

    def begin(self, world: World) -> None:
        """A schedule starts."""
        sut = world.sut.inner
        self._sut = sut
        self._world = world
        recorder = self.source.recorder
        if recorder is not None:
            recorder.begin([band.name for band in world.bands])
            world.reports = recorder
            if isinstance(sut, Arena):
                sut.observe(recorder)

    def tick(self) -> None:
        """A quiet point: between two steps of the world."""
        assert self._sut is not None, "a probe ticks between begin and end"
        self.source.tick(self._sut)  # type: ignore[arg-type]
        if self._record is not None and self._world is not None:
            self._record.tick(self.source, self._world)
        if self._send is not None:
            latest = self.source.latest
            if latest is not None and latest.serial != self._sent:
                self._sent = latest.serial
                self._send(latest)

    def end(self) -> None:
        """The schedule is over, however it ended."""
        if self._sut is not None:
            self.source.finish(self._sut)  # type: ignore[arg-type]
            self._sut = None
            self._world = None


def worker_probe(name: str, send: Callable[[Published], None]) -> ArenaProbe:
    """The probe of a worker process: snapshots with units, since nobody can ask it for them."""
    source = SnapshotSource(
        name, device=DEVICE, period_s=SEND_EVERY_S, recorder=Recorder(), with_units=True
    )
    return ArenaProbe(source, send=send)


class Live:
    """What a campaign shows: the exporter, the record, or both. `close` ends them."""

    def __init__(self, watch: Watch) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._collector = collector_of(self.registry)
        self._harness = HarnessSource()
        self._sources: dict[str, SnapshotSource] = {}
        self._schedules: Counter[tuple[str, ...]] = Counter()
        self._steps: Counter[str] = Counter()
        self._seconds: dict[str, tuple[list[int], float]] = {}
        self._reporters = reporters()  # all stand at 0 from the start
        self._progress = Progress()
        self._due = 0.0
        self._stale = True
        self._told: dict[int, dict[str, object]] = {}
        self._spec_of: Callable[[int], RunSpec] | None = None
        self.record = None if watch.record is None else _campaign_record(watch.record)
        self.exporter: Exporter | None = None
        self.screen: subprocess.Popen[bytes] | None = None
        if watch.port is not None:
            self.exporter = start_exporter(
                watch.port,
                address=watch.address,
                registry=self.registry,
                security=watch.security,
                harness=self._harness,
                apart=True,  # the campaign computes without a pause; its lock is not to be had
            )

    def probe_here(self) -> ArenaProbe:
        """The probe for schedules that run in this process."""
        source = SnapshotSource("0", device=DEVICE, period_s=PERIOD_S, recorder=Recorder())
        self._collector.add(source)
        return ArenaProbe(source, record=self.record)

    def receive(self, name: str, published: Published) -> None:
        """A worker's arena; those beyond the bound of the catalogue are not shown."""
        source = self._sources.get(name)
        if source is None:
            if len(self._sources) >= ARENAS_MAX:
                return
            source = self._sources[name] = SnapshotSource(name, device=DEVICE)
            self._collector.add(source)
        source.receive(published)
        if self.record is not None:
            self.record.receive(source, published)

    def note(self, result: RunResult) -> None:
        """A schedule's result, first runs only."""
        strategy = "none" if result.options is None else result.options.strategy
        self._schedules[strategy, result.verdict] += 1
        self._steps[strategy] += result.steps
        counts, total = self._seconds.get(strategy, ([0] * (len(LONG_SECONDS) + 1), 0.0))
        counts[bisect_left(LONG_SECONDS, result.seconds)] += 1
        self._seconds[strategy] = (counts, total + result.seconds)
        now = time.time()
        failed = result.verdict != "pass"
        self._progress = replace(
            self._progress,
            last_result_s=now,
            last_failure_s=now if failed else self._progress.last_failure_s,
        )
        self._stale = True
        if failed:
            self._due = 0.0
            if self.record is not None:
                self.record.failed(self._tell(result))

    def publish(self, summary: Summary, *, now: bool = False) -> None:
        """Show the progress, at most twice a second unless `now`."""
        if self.record is not None:
            self.record.publish(summary, now=now)
        clock = time.monotonic()
        if clock < self._due and not now:
            return
        self._due = clock + PROGRESS_EVERY_S
        if not self._stale:
            self._harness.publish(replace(self._progress, taken_s=time.time()))
            return
        self._stale = False
        planned = summary.planned
        self._progress = replace(
            self._progress,
            schedules=dict(self._schedules),
            steps=dict(self._steps),
            seconds={name: (tuple(c), total) for name, (c, total) in self._seconds.items()},
            crowded_steps=summary.crowded_steps,
            busy_steps=summary.busy_steps,
            failures_by_oracle=dict.fromkeys(self._reporters, 0) | summary.failures_by_oracle,
            coverage={
                "reached": len(summary.reach),
                "planned": len(planned),
                "planned_reached": sum(1 for count in planned.values() if count),
            },
            rechecks={
                "same": summary.rechecked - len(summary.nondeterministic),
                "differs": len(summary.nondeterministic),
            },
            jobs=summary.jobs,
            taken_s=time.time(),
            summary=summary.to_json(),
            failures=tuple(self._tell(result) for result in summary.failures),
        )
        self._harness.publish(self._progress)

    def follow(self, spec_of: Callable[[int], RunSpec]) -> None:
        """The schedules of this campaign: with them, failures can be replayed and explained."""
        self._spec_of = spec_of

    def _tell(self, result: RunResult) -> dict[str, object]:
        """A failure as a document, made once: explained, while only few have been."""
        from onearena.stress.failure_document import failure_document

        known = self._told.get(result.seed)
        if known is None:
            spec = None
            if self._spec_of is not None and len(self._told) < EXPLAINED_MAX:
                spec = self._spec_of(result.seed)
            known = self._told[result.seed] = failure_document(result, spec)
        return known

    def note_small(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Failures were made small; those that have a file go to the record, explained."""
        if self.record is None:
            return
        from onearena.stress.recordings import load_recording

        for document in documents:
            if document.get("file"):
                spec, _ = load_recording(document["file"])
                self.record.minimal(spec, file=document["file"])

    def close(self) -> None:
        """End the exporter, the record, and the dashboard that was started with them."""
        if self.screen is not None:
            self.screen.terminate()
            self.screen.wait()
        if self.exporter is not None:
            self.exporter.close()
        if self.record is not None:
            self.record.close()


def _campaign_record(path: str) -> CampaignRecord:
    from onearena.stress.campaign_record import CampaignRecord

    return CampaignRecord(path)
