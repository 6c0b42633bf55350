"""What the History page says: numbers of frames over time, and the events between them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from onearena.core.snapshot import Snapshot
from onearena.dashboard.frame import Frame
from onearena.dashboard.view_model import Table
from onearena.dashboard.words import seconds_text
from onearena.metrics.metric import SECONDS

POINTS_MAX: Final = 200
STATES: Final = ("live", "pending", "vacated", "hole", "fenced", "free")
EVENTS: Final = ("refusal", "move", "relayout", "fence", "next schedule")
"""What a recording can be searched for, in the words of the page."""

RUNGS: Final = ("none", "compact", "relayout")
ANSWERS: Final = ("fits", "blocked", "infeasible")


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers of one frame; bytes by state and by band add up to `arena_bytes` each."""

    taken_s: float
    schedule: int
    step: int
    epoch: int
    arena_bytes: int
    by_state: Mapping[str, int]
    by_band: Mapping[str, int]
    demands: Mapping[tuple[str, str], int]
    moved_units: int
    moved_bytes: int
    relayouts: int
    waits: int
    fences: int
    reuse: Mapping[str, tuple[tuple[int, ...], float]]

    @property
    def moment(self) -> int:
        """Milliseconds since 1970: what links name a frame by."""
        return int(self.taken_s * 1000)


def sample_of(frame: Frame) -> Sample:
    """The numbers of a frame. O(bands + counters)."""
    snapshot = frame.snapshot
    demands: dict[tuple[str, str], int] = {}
    sums = {"onearena_moves": 0, "onearena_moved_bytes": 0, "onearena_waits": 0}
    relayouts = 0
    for (metric, labels), count in frame.totals.items():
        if metric in sums:
            sums[metric] += count
        if metric == "onearena_moves" and labels[1:] == ("relayout",):
            relayouts += count
        if metric == "onearena_demands" and len(labels) == 3:
            key = (labels[1], labels[2])
            demands[key] = demands.get(key, 0) + count
    return Sample(
        taken_s=frame.taken_s,
        schedule=frame.schedule,
        step=frame.step,
        epoch=snapshot.epoch,
        arena_bytes=snapshot.arena_bytes,
        by_state=bytes_by_state(snapshot),
        by_band=bytes_by_band(snapshot),
        demands=demands,
        moved_units=sums["onearena_moves"],
        moved_bytes=sums["onearena_moved_bytes"],
        relayouts=relayouts,
        waits=sums["onearena_waits"],
        fences=frame.fences_total,
        reuse={
            band: counts
            for (metric, band), counts in frame.times.items()
            if metric == "onearena_unit_pending_seconds"
        },
    )


def bytes_by_state(snapshot: Snapshot) -> dict[str, int]:
    """Bytes of the arena by state; the sum is its capacity."""
    bands = snapshot.bands
    return {
        "live": sum(band.live_units * band.unit_bytes for band in bands),
        "pending": sum(band.pending_units * band.unit_bytes for band in bands),
        "vacated": sum(band.vacated_units * band.unit_bytes for band in bands),
        "hole": sum(band.hole_units * band.unit_bytes for band in bands),
        "fenced": sum(gap.fenced_bytes for gap in snapshot.gaps),
        "free": sum(gap.free_bytes for gap in snapshot.gaps),
    }


def bytes_by_band(snapshot: Snapshot) -> dict[str, int]:
    """Bytes between the frontiers of each band, and the gaps; the sum is the capacity."""
    found = {band.name: band.end_bytes - band.start_bytes for band in snapshot.bands}
    found["gaps"] = sum(gap.end_bytes - gap.start_bytes for gap in snapshot.gaps)
    return found


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Everything the History page shows besides the arena at the moment chosen."""

    by_state: Table
    by_band: Table
    rates: Table
    demands: Table
    reuse: Table
    events: tuple[tuple[int, str], ...]
    seconds: tuple[float, ...]


def history_view(samples: Sequence[Sample]) -> HistoryView:
    """The page of these samples, oldest first. O(samples)."""
    start = samples[0].taken_s if samples else 0.0
    shown = thinned(samples, POINTS_MAX)
    return HistoryView(
        by_state=_series(((s.taken_s - start, s.by_state) for s in shown), "state"),
        by_band=_series(((s.taken_s - start, s.by_band) for s in shown), "band"),
        rates=_rates(shown, start),
        demands=demand_table(samples),
        reuse=reuse_table(samples),
        events=tuple(events_of(samples)),
        seconds=tuple(s.taken_s - start for s in samples),
    )


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """At most `most` of them, evenly, the first and the last included."""
    if len(samples) <= most:
        return list(samples)
    return [samples[at * (len(samples) - 1) // (most - 1)] for at in range(most)]


def _series(rows: Iterable[tuple[float, Mapping[str, int]]], name: str) -> Table:
    return Table(
        ("seconds", name, "bytes"),
        tuple((round(at, 3), key, size) for at, sizes in rows for key, size in sizes.items()),
    )


def _rates(samples: Sequence[Sample], start: float) -> Table:
    """Moves and waits between neighbours; a counter that went back begins anew."""
    rows: list[tuple[str | int | float, ...]] = []
    for before, after in pairwise(samples):
        at = round(after.taken_s - start, 3)
        rows.append((at, "units moved", grown(before.moved_units, after.moved_units)))
        rows.append((at, "waits made", grown(before.waits, after.waits)))
    return Table(("seconds", "what", "count"), tuple(rows))


def grown(before: int, after: int) -> int:
    """How far a counter went; one that went back was begun anew."""
    return after - before if after >= before else after


def demand_table(samples: Sequence[Sample]) -> Table:
    """Demands between the first and the last sample, by rung and answer."""
    totals = {(rung, answer): 0 for rung in RUNGS for answer in ANSWERS}
    for before, after in pairwise(samples):
        for key, count in after.demands.items():
            if key in totals:
                totals[key] += grown(before.demands.get(key, 0), count)
    rows = [(rung, *(totals[rung, answer] for answer in ANSWERS)) for rung in RUNGS]
    return Table(("rung", *ANSWERS), tuple(rows))


def reuse_table(samples: Sequence[Sample]) -> Table:
    """Time from free to reuse, by band: how many units, the mean, and bounds of quantiles."""
    rows: list[tuple[str | int | float, ...]] = []
    for band, (counts, total) in sorted(samples[-1].reuse.items()) if samples else ():
        units = sum(counts)
        if units:
            mean = seconds_text(total / units)
            rows.append((band, units, mean, _quantile(counts, 0.5), _quantile(counts, 0.99)))
    return Table(("band", "units", "mean", "median below", "99% below"), tuple(rows))


def _quantile(counts: Sequence[int], share: float) -> str:
    """The upper bound of the bucket that holds this quantile."""
    left = share * sum(counts)
    for at, count in enumerate(counts):
        left -= count
        if left <= 0:
            return seconds_text(SECONDS[at]) if at < len(SECONDS) else "longer than measured"
    return "longer than measured"


def events_of(samples: Sequence[Sample]) -> list[tuple[int, str]]:
    """(index, kind) of what happened between a sample and the one before it."""
    found: list[tuple[int, str]] = []
    for at, (before, after) in enumerate(pairwise(samples), 1):
        if before.schedule != after.schedule or before.arena_bytes != after.arena_bytes:
            found.append((at, "next schedule"))
        if _refusals(after) > _refusals(before):
            found.append((at, "refusal"))
        if after.moved_units > before.moved_units:
            found.append((at, "move"))
        if after.relayouts > before.relayouts:
            found.append((at, "relayout"))
        if after.fences > before.fences:
            found.append((at, "fence"))
    return found


def _refusals(sample: Sample) -> int:
    return sum(n for (_, answer), n in sample.demands.items() if answer != "fits")


def jump(events: Sequence[tuple[int, str]], kind: str, position: int, *, forward: bool) -> int:
    """The place of the next event of a kind after (or before) a position; the position if none."""
    places = sorted(at for at, each in events if each == kind)
    if forward:
        found = [at for at in places if at > position]
        return found[0] if found else position
    found = [at for at in places if at < position]
    return found[-1] if found else position


def nearest(samples: Sequence[Sample], moment: int) -> int:
    """The index of the sample taken closest to a moment in milliseconds."""
    moments = [sample.moment for sample in samples]
    at = bisect_left(moments, moment)
    if at == len(moments):
        return max(0, at - 1)
    if at and moment - moments[at - 1] <= moments[at] - moment:
        return at - 1
    return at
