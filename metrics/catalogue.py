"""Every metric: name, type, unit, labels, help, meaning, and how many series it may have.

The collector builds families from this table and can export nothing that is not in it; the page
`docs/metrics.md`, the Grafana dashboard, the rules and the runbooks are generated from it or
checked against it. Plain data: no other part of onearena is needed to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onearena.metrics.metric import ARENA, ARENAS_MAX, Metric
from onearena.metrics.rows_arena import (
    ARENA_METRICS,
    COLLECTOR_METRICS,
    ENGINE_METRICS,
    OBSERVER_METRICS,
)
from onearena.metrics.rows_harness import EXPORTER_METRICS, HARNESS_METRICS

CATALOGUE: Final[tuple[Metric, ...]] = (
    *ARENA_METRICS,
    *OBSERVER_METRICS,
    *ENGINE_METRICS,
    *COLLECTOR_METRICS,
    *EXPORTER_METRICS,
    *HARNESS_METRICS,
)
BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in CATALOGUE}
PER_ARENA: Final = frozenset(metric.name for metric in CATALOGUE if ARENA in metric.labels)

SERIES_PER_ARENA_MAX: Final = sum(
    metric.series_max for metric in CATALOGUE if metric.name in PER_ARENA
)
"""Series one arena can have at most; `tests/unit/test_metrics_series.py` fills an arena up."""

SERIES_MAX: Final = ARENAS_MAX * SERIES_PER_ARENA_MAX + sum(
    metric.series_max for metric in CATALOGUE if metric.name not in PER_ARENA
)
"""Series of one process at most: arenas, exporter and harness together."""
