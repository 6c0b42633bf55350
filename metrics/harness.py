"""Progress of a campaign as plain data: what the harness publishes and the exporter shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onearena.metrics.metric import LONG_SECONDS

PROGRESS_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A campaign at one moment; immutable by agreement: whoever made it keeps no reference.

    schedules: by (strategy, outcome); seconds: by strategy, counts per bucket of `LONG_SECONDS`
    (one more for what is longer) and the sum. `summary` is the campaign's report so far as JSON
    data, `failures` one JSON object each, the oldest first.
    """

    schedules: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, tuple[tuple[int, ...], float]] = field(default_factory=dict)
    crowded_steps: int = 0
    busy_steps: int = 0
    failures_by_oracle: Mapping[str, int] = field(default_factory=dict)
    coverage: Mapping[str, int] = field(default_factory=dict)
    rechecks: Mapping[str, int] = field(default_factory=dict)
    jobs: int = 1
    last_failure_s: float = 0.0
    last_result_s: float = 0.0
    taken_s: float = 0.0
    summary: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Mapping[str, Any], ...] = ()
    version: int = PROGRESS_VERSION

    def __post_init__(self) -> None:
        for strategy, (counts, _) in self.seconds.items():
            assert len(counts) == len(LONG_SECONDS) + 1, f"{strategy}: {len(counts)} buckets"


class HarnessSource:
    """The latest progress: published by the campaign, read by any thread."""

    def __init__(self) -> None:
        self._latest: Progress | None = None

    @property
    def latest(self) -> Progress | None:
        """What was published last; None before the first time."""
        return self._latest

    def publish(self, progress: Progress) -> None:
        """Show this from now on."""
        self._latest = progress
