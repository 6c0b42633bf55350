"""What a row of the catalogue of metrics is, and the values its labels may take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "onearena_"
ARENAS_MAX: Final = 8
BANDS_MAX: Final = 8
CALLERS_MAX: Final = 16

Kind = Literal["gauge", "counter", "histogram", "info"]
Source = Literal["arena", "observer", "engine", "collector", "exporter", "harness"]

SECONDS: Final = (1e-5, 1e-4, 1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of time buckets in seconds: from a wait that costs nothing to one that is stuck."""

LONG_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of buckets for whole schedules."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label of one metric: the values it may take, or, where the user names them, how many."""

    name: str
    values: tuple[str, ...] = ()
    most: int = 0

    @property
    def bound(self) -> int:
        """How many values there can be in one arena."""
        return len(self.values) or self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalogue.

    `name` is the family's name without `_total` or `_info`; `help` one sentence, also the text of
    `# HELP`; `meaning` what an operator reads out of it; `sums` what adds up to what, if anything;
    `source` who has to be there for it to be exported: the arena alone, an observer with a clock,
    the engine's own reports, or the harness.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[Label, ...]
    help: str
    meaning: str
    sums: str = ""
    source: Source = "arena"
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name that stands in a scrape; of a histogram, without `_bucket`, `_sum`, `_count`."""
        return self.name + {"counter": "_total", "info": "_info"}.get(self.kind, "")

    @property
    def label_names(self) -> tuple[str, ...]:
        """In the order in which the collector gives values."""
        return tuple(label.name for label in self.labels)

    @property
    def series_max(self) -> int:
        """Series that one arena (one process, for `exporter` and `harness`) can have at most."""
        each = len(self.buckets) + 3 if self.kind == "histogram" else 1
        return each * math.prod(label.bound for label in self.labels if label.name != "arena")


ARENA: Final = Label("arena", most=ARENAS_MAX)
BAND: Final = Label("band", most=BANDS_MAX)
UNIT_STATES: Final = ("live", "pending", "vacated", "hole")
GAP_STATES: Final = ("free", "fenced")
STATE: Final = Label("state", UNIT_STATES)
GAP: Final = Label("gap", most=BANDS_MAX + 1)
RUNGS: Final = ("none", "compact", "relayout")
ANSWERS: Final = ("fits", "blocked", "infeasible")
KINDS: Final = ("forward", "backup", "load", "move", "fork", "zeroing", "send", "receive")
REASONS: Final = ("none", "compact", "relayout", "asked", "opportunistic")
CHECKS: Final = ("band_units", "gap_bytes", "arena_bytes", "negative")
PLAN_RUNGS: Final = (*RUNGS, "refused")
OUTCOMES: Final = ("pass", "violation", "crash", "stuck")
STRATEGY: Final = Label("strategy", most=16)
END_GAP: Final = "end"


def rows(source: Source, *metrics: Metric) -> tuple[Metric, ...]:
    """`metrics`, all of one source."""
    assert all(metric.source == source for metric in metrics), source
    return metrics
