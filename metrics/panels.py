"""The panels of the Grafana dashboard as data; `ci/generate_metrics.py` writes the JSON from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

WHERE: Final = 'job=~"$job", arena=~"$arena", rank=~"$rank"'
RANGE: Final = "$__rate_interval"
HARNESS: Final = 'job=~"$job"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: queries as (PromQL, legend); `kind` is Grafana's panel type."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str
    text: str
    kind: str = "timeseries"
    stacked: bool = False


def _quantile(share: float, metric: str, label: str) -> str:
    rate = f"rate({metric}_bucket{{{WHERE}}}[{RANGE}])"
    return f"histogram_quantile({share}, sum by (le, {label}) ({rate}))"


def _rate(metric: str, *labels: str, match: str = WHERE) -> str:
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by} (rate({metric}{{{match}}}[{RANGE}]))"


_OLDEST: Final = (
    f"onearena_snapshot_timestamp_seconds{{{WHERE}}} - on (job, instance, arena, rank)"
    f" group_right () onearena_oldest_unretired_timestamp_seconds{{{WHERE}}}"
)
_CPU: Final = f"sum by (instance) (rate({{}}_seconds_total{{{{{HARNESS}}}}}[{RANGE}]))"

PANELS: Final = (
    Panel(
        title="Bytes by band and state, up to the capacity",
        queries=(
            (f"onearena_band_bytes{{{WHERE}}}", "{{arena}} {{band}} {{state}}"),
            (f"onearena_gap_bytes{{{WHERE}}}", "{{arena}} gap below {{gap}} {{state}}"),
            (f"onearena_capacity_bytes{{{WHERE}}}", "{{arena}} capacity"),
        ),
        unit="bytes",
        text="Everything adds up to the capacity line; if it does not, see the alerts.",
        stacked=True,
    ),
    Panel(
        title="Bytes in limbo",
        queries=(
            (
                f'sum by (arena, band) (onearena_band_bytes{{state=~"pending|vacated", {WHERE}}})',
                "{{arena}} {{band}}",
            ),
            (
                f'sum by (arena) (onearena_gap_bytes{{state="fenced", {WHERE}}})',
                "{{arena}} fenced",
            ),
        ),
        unit="bytes",
        text="Freed or left, and not reusable yet because a use has not ended.",
    ),
    Panel(
        title="How many more units fit, by rung",
        queries=((f"onearena_fit_units{{{WHERE}}}", "{{arena}} {{band}} {{rung}}"),),
        unit="short",
        text="Each band alone. What none cannot serve and relayout can costs moves.",
    ),
    Panel(
        title="Demands by answer",
        queries=(
            (
                _rate("onearena_demands_total", "caller", "rung", "answer"),
                "{{caller}} {{rung}} {{answer}}",
            ),
            (_rate("onearena_bound_refusals_total", "band"), "bound by {{band}}"),
        ),
        unit="ops",
        text="Refusals stand under rung none; `bound by` is the sub-pool that ran out.",
    ),
    Panel(
        title="Moves by reason",
        queries=(
            (_rate("onearena_moves_total", "band", "reason"), "{{band}} {{reason}} units/s"),
            (_rate("onearena_moved_bytes_total", "band", "reason"), "{{band}} {{reason}} bytes/s"),
        ),
        unit="short",
        text="Opportunistic moves at quiet points are cheap; those of a relayout delay a step.",
    ),
    Panel(
        title="Waits by writer, median and 99th percentile",
        queries=(
            (_quantile(0.5, "onearena_wait_seconds", "writer"), "{{writer}} p50"),
            (_quantile(0.99, "onearena_wait_seconds", "writer"), "{{writer}} p99"),
            (_rate("onearena_waits_total", "writer"), "{{writer}} waits/s"),
        ),
        unit="s",
        text="Upper bounds: from the wait to the host seeing the awaited use end.",
    ),
    Panel(
        title="Time from free to reuse",
        queries=(
            (
                f"sum by (le) (increase(onearena_unit_pending_seconds_bucket{{{WHERE}}}[{RANGE}]))",
                "{{le}}",
            ),
        ),
        unit="s",
        text="Units a time and bucket.",
        kind="heatmap",
    ),
    Panel(
        title="Unfinished uses by kind, and the age of the oldest",
        queries=(
            (f"onearena_unfinished_uses{{{WHERE}}}", "{{arena}} {{kind}}"),
            (
                _OLDEST,
                "{{arena}} {{kind}} oldest, seconds",
            ),
        ),
        unit="short",
        text="What is in flight, and what the host has not seen to end.",
    ),
    Panel(
        title="Frontiers",
        queries=(
            (f"onearena_band_start_bytes{{{WHERE}}}", "{{arena}} {{band}} low"),
            (f"onearena_band_end_bytes{{{WHERE}}}", "{{arena}} {{band}} high"),
        ),
        unit="bytes",
        text="The map of the arena over time.",
    ),
    Panel(
        title="Fixed units",
        queries=(
            (f"onearena_pinned_units{{{WHERE}}}", "{{arena}} {{band}} pinned"),
            (f"onearena_transfer_units{{{WHERE}}}", "{{arena}} {{band}} under a transfer"),
            (f"onearena_quarantined_units{{{WHERE}}}", "{{arena}} {{band}} quarantined"),
        ),
        unit="short",
        text="Units that no relayout may move.",
    ),
    Panel(
        title="Turnover, evictions, retractions",
        queries=(
            (_rate("onearena_allocated_units_total", "band"), "{{band}} handed out"),
            (_rate("onearena_freed_units_total", "band"), "{{band}} freed"),
            (_rate("onearena_evicted_units_total", "band"), "{{band}} evicted"),
            (_rate("onearena_retractions_total"), "requests retracted"),
            (_rate("onearena_retracted_tokens_total"), "tokens lost"),
        ),
        unit="short",
        text="Evictions and retractions are what the engine reports.",
    ),
    Panel(
        title="Planning and copying, 99th percentile",
        queries=(
            (_quantile(0.99, "onearena_plan_seconds", "rung"), "plan {{rung}}"),
            (_quantile(0.99, "onearena_copy_seconds", "band"), "copy {{band}}"),
        ),
        unit="s",
        text="Planning is the control thread's own time; copies run on the device.",
    ),
    Panel(
        title="Campaign: schedules and failures",
        queries=(
            (
                _rate("onearena_harness_schedules_total", "strategy", "outcome", match=HARNESS),
                "{{strategy}} {{outcome}}/s",
            ),
            (f"sum by (kind) (onearena_harness_coverage_points{{{HARNESS}}})", "points {{kind}}"),
            (f"sum (onearena_harness_jobs{{{HARNESS}}})", "jobs"),
        ),
        unit="short",
        text="Failures are also an alert: see /failures/0 of the campaign.",
    ),
    Panel(
        title="Cost of being scraped, share of the process's processor time",
        queries=(
            (
                f"{_CPU.format('onearena_exporter_cpu')} / {_CPU.format('process_cpu')}",
                "{{instance}}",
            ),
        ),
        unit="percentunit",
        text="Should stay below 1% at one scrape a second.",
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = []
    for index, panel in enumerate(PANELS):
        custom = {"stacking": {"mode": "normal" if panel.stacked else "none"}}
        targets = [
            {
                "refId": chr(ord("A") + at),
                "expr": expr,
                "legendFormat": legend,
                "datasource": source,
                **({"format": "heatmap"} if panel.kind == "heatmap" else {}),
            }
            for at, (expr, legend) in enumerate(panel.queries)
        ]
        panels.append(
            {
                "id": index + 1,
                "type": panel.kind,
                "title": panel.title,
                "description": panel.text,
                "datasource": source,
                "gridPos": {"h": 9, "w": 12, "x": 12 * (index % 2), "y": 9 * (index // 2)},
                "fieldConfig": {
                    "defaults": {"unit": panel.unit, "custom": custom},
                    "overrides": [],
                },
                "targets": targets,
            }
        )
    return {
        "uid": "onearena",
        "title": "onearena",
        "tags": ["onearena"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource(), *map(_variable, ("job", "arena", "rank"))]},
        "panels": panels,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _variable(name: str) -> dict[str, Any]:
    """A choice of label values; of one that no series has, All is the empty value's match."""
    chain = {"job": "", "arena": '{job=~"$job"}', "rank": '{job=~"$job", arena=~"$arena"}'}
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values(onearena_capacity_bytes{chain[name]}, {name})",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
