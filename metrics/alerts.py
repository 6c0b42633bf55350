"""Recording rules and alerts as data; `ci/generate_metrics.py` writes `rules/onearena.yml` from it.

Every threshold stands in `thresholds` word for word as in the expression, so that a test can take
each of them away and see its case fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

BY: Final = "job, instance, arena, rank"
RUNBOOKS: Final = "docs/runbooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `hold` is Prometheus' `for`; `summary` and `description` may use its templates."""

    name: str
    expr: str
    thresholds: tuple[str, ...]
    hold: str
    severity: Literal["page", "ticket"]
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """Path of its page, from the top of the source tree."""
        return f"{RUNBOOKS}/{self.name}.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One recording rule: `record` is level:metric:operation."""

    record: str
    expr: str


RECORDINGS: Final = (
    Recording(
        record="arena_band:onearena_live_bytes:share",
        expr='onearena_band_bytes{state="live"}'
        f" / on ({BY}) group_left () onearena_capacity_bytes",
    ),
    Recording(
        record="arena_band:onearena_limbo_bytes:share",
        expr=f'sum by ({BY}, band) (onearena_band_bytes{{state=~"pending|vacated"}})'
        f" / on ({BY}) group_left () onearena_capacity_bytes",
    ),
)

ARENA_ALERTS: Final = (
    Alert(
        name="OnearenaInvariantViolated",
        expr="onearena_invariant_violations_total > 0",
        thresholds=("> 0",),
        hold="0s",
        severity="page",
        summary="Numbers of arena {{ $labels.arena }} do not add up ({{ $labels.check }})",
        description="A snapshot broke the sum {{ $labels.check }}. The arena has lost track of"
        " bytes: what it hands out may already belong to somebody.",
    ),
    Alert(
        name="OnearenaBytesNotConserved",
        expr=f"abs(sum by ({BY}) (onearena_band_bytes) + sum by ({BY}) (onearena_gap_bytes)"
        f" - sum by ({BY}) (onearena_capacity_bytes)) > 0",
        thresholds=("> 0",),
        hold="1m",
        severity="page",
        summary="Bands and gaps of arena {{ $labels.arena }} are not its capacity",
        description="They differ by {{ $value | humanize1024 }}B: bytes are counted by nobody, or"
        " twice.",
    ),
    Alert(
        name="OnearenaPromiseBroken",
        expr="onearena_broken_promises_total > 0",
        thresholds=("> 0",),
        hold="0s",
        severity="page",
        summary="Arena {{ $labels.arena }} refused a demand that it had just said fits",
        description="Admission relies on that promise: requests were let in that cannot run.",
    ),
    Alert(
        name="OnearenaUseStuck",
        expr=f"onearena_snapshot_timestamp_seconds - on ({BY}) group_right ()"
        " onearena_oldest_unretired_timestamp_seconds > 30",
        thresholds=("> 30",),
        hold="1m",
        severity="ticket",
        summary="A {{ $labels.kind }} of arena {{ $labels.arena }} has not ended for long",
        description="Its oldest unretired {{ $labels.kind }} is {{ $value | humanizeDuration }}"
        " old; what it touches stays pending, vacated or fenced.",
    ),
    Alert(
        name="OnearenaPinsBlock",
        expr="min_over_time(onearena_pinned_units[10m]) > 0"
        f" and on ({BY}) sum by ({BY})"
        ' (increase(onearena_demands_total{answer="blocked"}[10m])) > 5',
        thresholds=("> 0", "> 5"),
        hold="5m",
        severity="ticket",
        summary="Units of {{ $labels.band }} stay pinned while demands are blocked",
        description="At least {{ $value }} units were pinned all of the last 10 minutes, and"
        " demands that would fit were blocked.",
    ),
    Alert(
        name="OnearenaQuarantine",
        expr="onearena_quarantined_units > 0",
        thresholds=("> 0",),
        hold="5m",
        severity="ticket",
        summary="{{ $value }} units of {{ $labels.band }} are quarantined",
        description="A peer died in the middle of a transfer; its units are out of capacity until"
        " the connection is torn down.",
    ),
    Alert(
        name="OnearenaMoveStorm",
        expr=f"sum by ({BY}) (rate(onearena_moved_bytes_total[5m]))"
        f" / on ({BY}) onearena_capacity_bytes > 0.05",
        thresholds=("> 0.05",),
        hold="10m",
        severity="ticket",
        summary="Arena {{ $labels.arena }} moves more than a twentieth of itself a second",
        description="{{ $value | humanizePercentage }} of its bytes are copied each second.",
    ),
    Alert(
        name="OnearenaNearFull",
        expr=f'sum by ({BY}) (onearena_band_bytes{{state="live"}})'
        f" / on ({BY}) onearena_capacity_bytes > 0.95"
        f" and on ({BY}) sum by ({BY})"
        ' (rate(onearena_demands_total{answer="infeasible"}[5m])) > 0.1',
        thresholds=("> 0.95", "> 0.1"),
        hold="10m",
        severity="ticket",
        summary="Arena {{ $labels.arena }} is full and refuses demands",
        description="{{ $value | humanizePercentage }} of its bytes are live, and demands cannot be"
        " met by any layout.",
    ),
    Alert(
        name="OnearenaSnapshotStale",
        expr="time() - onearena_snapshot_timestamp_seconds > 60",
        thresholds=("> 60",),
        hold="0s",
        severity="page",
        summary="The control thread of arena {{ $labels.arena }} is silent",
        description="Its last snapshot is {{ $value | humanizeDuration }} old: the engine hangs, or"
        " does not tick its source while idle.",
    ),
    Alert(
        name="OnearenaMetricsAbsent",
        expr="absent(onearena_capacity_bytes) == 1",
        thresholds=("absent(onearena_capacity_bytes) == 1",),
        hold="5m",
        severity="page",
        summary="No arena is scraped",
        description="No target exports onearena_capacity_bytes.",
    ),
)

HARNESS_ALERTS: Final = (
    Alert(
        name="OnearenaHarnessFailure",
        expr="onearena_harness_failures_total > 0",
        thresholds=("> 0",),
        hold="0s",
        severity="page",
        summary="The campaign found a failure ({{ $labels.oracle }})",
        description="{{ $value }} schedules failed by {{ $labels.oracle }}.",
    ),
    Alert(
        name="OnearenaHarnessNondeterminism",
        expr='onearena_harness_rechecks_total{outcome="differs"} > 0',
        thresholds=("> 0",),
        hold="0s",
        severity="page",
        summary="A schedule gave another trace the second time",
        description="{{ $value }} schedules were not deterministic.",
    ),
    Alert(
        name="OnearenaHarnessStuck",
        expr="time() - (onearena_harness_last_result_timestamp_seconds > 0) > 600",
        thresholds=("> 0", "> 600"),
        hold="0s",
        severity="ticket",
        summary="The campaign finishes no schedule",
        description="The last one finished {{ $value | humanizeDuration }} ago.",
    ),
)

ALERTS: Final = (*ARENA_ALERTS, *HARNESS_ALERTS)


def rules_text() -> str:
    """The rules file: YAML whose strings are written as JSON, which YAML reads the same."""
    import json

    lines = [
        "# Written by ci/generate_metrics.py from metrics/alerts.py; do not edit.",
        "groups:",
    ]
    groups = (
        ("onearena-recordings", RECORDINGS),
        ("onearena-arenas", ARENA_ALERTS),
        ("onearena-harness", HARNESS_ALERTS),
    )
    for name, rules in groups:
        lines += [f"  - name: {name}", "    rules:"]
        for rule in rules:
            if isinstance(rule, Recording):
                lines += [
                    f"      - record: {rule.record}",
                    f"        expr: {json.dumps(rule.expr)}",
                ]
                continue
            lines += [
                f"      - alert: {rule.name}",
                f"        expr: {json.dumps(rule.expr)}",
                f"        for: {rule.hold}",
                "        labels:",
                f"          severity: {rule.severity}",
                "        annotations:",
                f"          summary: {json.dumps(rule.summary)}",
                f"          description: {json.dumps(rule.description)}",
                f"          runbook_url: {rule.runbook}",
            ]
    return "\n".join(lines) + "\n"
