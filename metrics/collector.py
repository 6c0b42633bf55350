"""The one custom collector of a registry: families from snapshots that other threads published.

A scrape takes one reference per arena and formats immutable data; it takes no lock and calls no
arena. Before a snapshot's numbers are used the first time, the sums that the catalogue promises
are asserted on it: what does not add up is counted in `onearena_invariant_violations_total`,
logged, and exported as it is, because an operator needs to see it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from onearena.core.errors import UsageError
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.metrics.catalogue import BY_NAME, CATALOGUE
from onearena.metrics.counters import counter_values
from onearena.metrics.families import RowsFamily, Value
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.metric import (
    CHECKS,
    END_GAP,
    KINDS,
    RUNGS,
    UNIT_STATES,
)
from onearena.metrics.recorder import LOG
from onearena.metrics.source import Published, SnapshotSource
from onearena.metrics.stats import ExporterStats

Rows = dict[str, list[tuple[tuple[str, ...], Value]]]
"""By metric: (label values, value), the label `arena` included."""


class ArenaCollector(Collector):
    """Everything onearena has to say in one registry: arenas, exporter, campaign."""

    def __init__(self) -> None:
        self.sources: list[SnapshotSource] = []
        self.harness: HarnessSource | None = None
        self.exporter: ExporterStats | None = None
        self._violations: dict[str, dict[str, int]] = {}
        self._checked: dict[str, int] = {}
        self._version = _version()

    def add(self, source: SnapshotSource) -> None:
        """Export this source too; `UsageError` if its name and labels are taken."""
        for other in self.sources:
            if (other.name, other.labels) == (source.name, source.labels):
                raise UsageError(
                    "name", source.name, "give each arena of a registry a name of its own"
                )
        for label in source.labels:
            if label == "le" or any(label in metric.label_names for metric in CATALOGUE):
                raise UsageError("labels", label, "give a label that no metric has already")
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{0,63}", label):
                raise UsageError("labels", label, "give a name of letters, digits and underscores")
        self.sources.append(source)

    def describe(self) -> Iterable[Family]:
        """No family: names are fixed, and asking would need a snapshot."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Families with samples, in the order of the catalogue; one snapshot per arena."""
        extra = tuple(sorted({label for source in self.sources for label in source.labels}))
        families: dict[str, RowsFamily] = {}
        for source in self.sources:
            published = source.latest
            if published is None:
                continue
            self._check(source.name, published)
            rows = arena_rows(source, published)
            self._add_violations(source.name, rows)
            more = tuple(source.labels.get(label, "") for label in extra)
            _fill(families, rows, extra, more)
        shared: Rows = {"onearena_build": [((self._version, platform.python_version()), 1.0)]}
        if self.exporter is not None:
            shared.update(self.exporter.rows())
        progress = None if self.harness is None else self.harness.latest
        if progress is not None:
            shared.update(harness_rows(progress))
        _fill(families, shared, (), ())
        for metric in CATALOGUE:
            if metric.name in families:
                yield families[metric.name]

    def _check(self, name: str, published: Published) -> None:
        """Assert the sums of a snapshot, once."""
        counts = self._violations.setdefault(name, dict.fromkeys(CHECKS, 0))
        if self._checked.get(name) == published.serial:
            return
        self._checked[name] = published.serial
        for check, message in broken_sums(published.snapshot):
            counts[check] += 1
            LOG.error("arena %s: %s: %s", name, check, message)

    def _add_violations(self, name: str, rows: Rows) -> None:
        counts = self._violations[name]
        rows["onearena_invariant_violations"] = [((name, c), n) for c, n in counts.items()]


_COLLECTORS: Final[WeakKeyDictionary[CollectorRegistry, ArenaCollector]] = WeakKeyDictionary()


def collector_of(registry: CollectorRegistry) -> ArenaCollector:
    """The collector of a registry, made and registered the first time.

    There is one: a second one would write the head of every family a second time.
    """
    found = _COLLECTORS.get(registry)
    if found is None:
        found = _COLLECTORS[registry] = ArenaCollector()
        registry.register(found)
    return found


def _version() -> str:
    try:
        return metadata.version("onearena")
    except metadata.PackageNotFoundError:
        return "unknown"


# -- rows from snapshots ---------------------------------------------------------------------------


def broken_sums(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(check, message) of every sum that does not hold; empty for an arena in order. O(bands)."""
    found: list[tuple[str, str]] = []
    total = 0
    for band in snapshot.bands:
        units = band.high_unit - band.low_unit
        parts = (band.live_units, band.pending_units, band.vacated_units, band.hole_units)
        if sum(parts) != units:
            found.append(("band_units", f"{band.name}: {parts} are not its {units} units"))
        if min(*parts, units) < 0:
            found.append(("negative", f"{band.name}: {parts} of {units} units"))
        total += sum(parts) * band.unit_bytes
    for gap in snapshot.gaps:
        size = gap.end_bytes - gap.start_bytes
        if gap.free_bytes + gap.fenced_bytes != size:
            found.append(("gap_bytes", f"gap at {gap.start_bytes}: {gap} is not {size} bytes"))
        if min(gap.free_bytes, gap.fenced_bytes, size) < 0:
            found.append(("negative", f"gap at {gap.start_bytes}: {gap}"))
        total += gap.free_bytes + gap.fenced_bytes
    if total != snapshot.arena_bytes:
        found.append(("arena_bytes", f"bands and gaps are {total} of {snapshot.arena_bytes} bytes"))
    return found


def arena_rows(source: SnapshotSource, published: Published) -> Rows:
    """All samples of one arena. O(bands + counters + outstanding uses)."""
    snapshot, name = published.snapshot, source.name
    rows: Rows = {metric: [] for metric in _ARENA_NAMES}
    layout = ",".join(band.name for band in snapshot.bands)
    rows["onearena_arena"] = [((name, published.device, layout), 1.0)]
    rows["onearena_capacity_bytes"] = [((name,), snapshot.arena_bytes)]
    rows["onearena_slack_bytes"] = [((name,), snapshot.slack_bytes)]
    rows["onearena_fences"] = [((name,), len(snapshot.fences))]
    rows["onearena_snapshot_timestamp_seconds"] = [((name,), published.taken_s)]
    _band_rows(rows, name, published)
    _gap_rows(rows, name, snapshot)
    kinds = dict.fromkeys(KINDS, 0)
    for use in snapshot.uses:
        kinds[KINDS[use.kind]] += 1
    rows["onearena_unfinished_uses"] = [((name, kind), count) for kind, count in kinds.items()]
    bands = [band.name for band in snapshot.bands]
    values = counter_values(snapshot.counters, bands, source.callers)
    for sample, count in published.earlier.items():
        values[sample] = values.get(sample, 0) + count
    for (metric, labels), count in values.items():
        rows[metric].append(((name, *labels), count))
    if published.timings is not None:
        _timing_rows(rows, name, published, bands)
    return rows


def _band_rows(rows: Rows, name: str, published: Published) -> None:
    for band in published.snapshot.bands:
        label = (name, band.name)
        parts = (band.live_units, band.pending_units, band.vacated_units, band.hole_units)
        for state, units in zip(UNIT_STATES, parts, strict=True):
            rows["onearena_band_units"].append(((*label, state), units))
            rows["onearena_band_bytes"].append(((*label, state), units * band.unit_bytes))
        for metric, value in (
            ("onearena_band_unit_bytes", band.unit_bytes),
            ("onearena_band_capacity_units", band.capacity_units),
            ("onearena_band_start_bytes", band.start_bytes),
            ("onearena_band_end_bytes", band.end_bytes),
            ("onearena_pinned_units", band.pinned_units),
            ("onearena_transfer_units", band.transfer_units),
            ("onearena_quarantined_units", band.quarantined_units),
        ):
            rows[metric].append((label, value))
    for band, fit in zip(published.snapshot.bands, published.fit, strict=False):
        for rung, units in zip(RUNGS, fit, strict=True):
            rows["onearena_fit_units"].append(((name, band.name, rung), units))


def _gap_rows(rows: Rows, name: str, snapshot: Snapshot) -> None:
    """Each gap under the name of the band above it, zeros for bands with no gap below."""
    gaps = {band.name: (0, 0) for band in snapshot.bands} | {END_GAP: (0, 0)}
    above = [(band.start_bytes, band.name) for band in snapshot.bands if band.has_units]
    for gap in snapshot.gaps:
        owner = next((band for start, band in above if start >= gap.end_bytes), END_GAP)
        free, fenced = gaps[owner]
        gaps[owner] = (free + gap.free_bytes, fenced + gap.fenced_bytes)
    for owner, (free, fenced) in gaps.items():
        rows["onearena_gap_bytes"].append(((name, owner, "free"), free))
        rows["onearena_gap_bytes"].append(((name, owner, "fenced"), fenced))


def _timing_rows(rows: Rows, name: str, published: Published, bands: list[str]) -> None:
    timings = published.timings
    assert timings is not None, published
    for (metric, label), histogram in timings.histograms.items():
        rows[metric].append(((name, label), histogram))
    # The recorder's clock and the wall clock differ by a constant that is known now.
    offset = published.taken_s - published.clock_s
    rows["onearena_oldest_unretired_timestamp_seconds"] = [
        ((name, kind), timings.oldest.get(kind, published.clock_s) + offset) for kind in KINDS
    ]
    rows["onearena_dropped_observations"] = [((name,), timings.dropped)]
    rows["onearena_retractions"] = [((name,), timings.retractions)]
    rows["onearena_retracted_tokens"] = [((name,), timings.retracted_tokens)]
    evicted = dict.fromkeys(bands, 0) | dict(timings.evicted)
    rows["onearena_evicted_units"] = [((name, band), units) for band, units in evicted.items()]


def harness_rows(progress: Progress) -> Rows:
    """All samples of a campaign."""
    planned = dict.fromkeys(("reached", "planned", "planned_reached"), 0)
    plain = {
        "crowded_steps": progress.crowded_steps,
        "busy_steps": progress.busy_steps,
        "jobs": progress.jobs,
        "last_failure_timestamp_seconds": progress.last_failure_s,
        "last_result_timestamp_seconds": progress.last_result_s,
    }
    labelled: dict[str, Mapping[tuple[str, ...], Value]] = {
        "schedules": progress.schedules,
        "steps": {(strategy,): count for strategy, count in progress.steps.items()},
        "failures": {(oracle,): count for oracle, count in progress.failures_by_oracle.items()},
        "coverage_points": {(k,): n for k, n in (planned | dict(progress.coverage)).items()},
        "rechecks": {
            (outcome,): progress.rechecks.get(outcome, 0) for outcome in ("same", "differs")
        },
        "schedule_seconds": {(strategy,): h for strategy, h in progress.seconds.items()},
    }
    rows: Rows = {f"onearena_harness_{name}": [((), value)] for name, value in plain.items()}
    for name, samples in labelled.items():
        rows[f"onearena_harness_{name}"] = list(samples.items())
    return rows


# -- families --------------------------------------------------------------------------------------


def _fill(
    families: dict[str, RowsFamily], rows: Rows, extra: tuple[str, ...], more: tuple[str, ...]
) -> None:
    for name, samples in rows.items():
        if not samples:
            continue
        family = families.get(name)
        if family is None:
            metric = BY_NAME[name]
            family = families[name] = RowsFamily(metric, (*metric.label_names, *extra))
        family.rows += [((*labels, *more), value) for labels, value in samples] if more else samples


_ARENA_NAMES: Final = tuple(metric.name for metric in CATALOGUE if "arena" in metric.label_names)
assert tuple(kind.name.lower() for kind in UseKind) == KINDS, "the catalogue names every use kind"

__all__ = ["ArenaCollector", "arena_rows", "broken_sums", "collector_of", "harness_rows"]
