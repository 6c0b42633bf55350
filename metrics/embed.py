"""Exporting an arena from the process that owns it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from onearena.core.arena import Arena
from onearena.metrics.collector import collector_of
from onearena.metrics.recorder import Recorder
from onearena.metrics.source import PERIOD_S, SnapshotSource


def register(
    arena: Arena,
    *,
    registry: CollectorRegistry = REGISTRY,
    labels: Mapping[str, str] | None = None,
    name: str = "0",
    device: str = "",
    timings: bool = True,
    period_s: float = PERIOD_S,
    callers: Iterable[str] = (),
) -> SnapshotSource:
    """Export `arena` in `registry`; call `source.tick(arena)` at every quiet point from then on.

    Control thread only, like every call of the arena; ticks too, also while the engine is idle.
    `name` is the value of the label `arena`, one a registry and set of `labels`; `labels` (such as
    `{"rank": "3"}`) stand at every series of this arena. With `timings` the arena gets an observer
    that measures on the monotonic clock; `source.recorder` takes evictions and retractions.
    `callers` are callers of `allocate` that shall have label values of their own.
    """
    bands = [band.name for band in arena.geometry.bands]
    recorder = Recorder(bands) if timings else None
    source = SnapshotSource(
        name,
        device=device,
        labels=labels,
        period_s=period_s,
        recorder=recorder,
        callers=callers,
    )
    collector_of(registry).add(source)
    if recorder is not None:
        arena.observe(recorder)
    source.publish(arena)
    return source
