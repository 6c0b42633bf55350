"""Rows of the catalogue about the exporter itself and about campaigns of the harness."""

from __future__ import annotations

from typing import Final

from onearena.metrics.metric import LONG_SECONDS, OUTCOMES, STRATEGY, Label, Metric, rows

ENDPOINTS: Final = (
    "/metrics",
    "/healthz",
    "/snapshot",
    "/frame",
    "/map",
    "/units",
    "/campaign",
    "/failures",
    "other",
)
CODES: Final = ("200", "400", "401", "404", "405", "408", "431", "500", "503")

EXPORTER_METRICS: Final = rows(
    "exporter",
    Metric(
        name="onearena_exporter_requests",
        kind="counter",
        unit="requests",
        labels=(Label("endpoint", ENDPOINTS), Label("code", CODES)),
        help="Requests answered by the exporter, by endpoint and status.",
        meaning="Pairs that did not happen yet are left out.",
        source="exporter",
    ),
    Metric(
        name="onearena_exporter_cut_connections",
        kind="counter",
        unit="connections",
        labels=(Label("reason", ("slow", "crowded", "broken")),),
        help="Connections the exporter ended without an answer, by reason.",
        meaning="Slow: no whole request in time, or the answer was not read. Crowded: a newer"
        " connection needed the place. Broken: the peer went away.",
        source="exporter",
    ),
    Metric(
        name="onearena_exporter_connections",
        kind="gauge",
        unit="connections",
        labels=(),
        help="Connections open now.",
        meaning="Bounded by the exporter's limit.",
        source="exporter",
    ),
    Metric(
        name="onearena_exporter_cpu_seconds",
        kind="counter",
        unit="seconds",
        labels=(),
        help="Processor time of the exporter's thread.",
        meaning="Against process_cpu_seconds_total: what being watched costs.",
        source="exporter",
    ),
)

HARNESS_METRICS: Final = rows(
    "harness",
    Metric(
        name="onearena_harness_schedules",
        kind="counter",
        unit="schedules",
        labels=(STRATEGY, Label("outcome", OUTCOMES)),
        help="Schedules finished, by strategy and outcome.",
        meaning="The rate is the campaign's speed.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_steps",
        kind="counter",
        unit="steps",
        labels=(STRATEGY,),
        help="World steps taken in finished schedules, by strategy.",
        meaning="How much happened, whatever the schedules' lengths.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_crowded_steps",
        kind="counter",
        unit="steps",
        labels=(),
        help="World steps taken above 90% occupancy.",
        meaning="Against onearena_harness_steps_total: whether the campaign reaches full arenas.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_busy_steps",
        kind="counter",
        unit="steps",
        labels=(),
        help="World steps taken with three or more forwards in flight.",
        meaning="Against onearena_harness_steps_total: whether the campaign overlaps enough.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_failures",
        kind="counter",
        unit="schedules",
        labels=(Label("oracle", most=32),),
        help="Failed schedules by the oracle that reported first, or crash or stuck.",
        meaning="Any increase is a failure to look at: /failures/0 explains the first.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_coverage_points",
        kind="gauge",
        unit="points",
        labels=(Label("kind", ("reached", "planned", "planned_reached")),),
        help="Situations that schedules were in: all, those planned, and the planned ones reached.",
        meaning="planned_reached below planned at the end means that the campaign was too short.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_rechecks",
        kind="counter",
        unit="schedules",
        labels=(Label("outcome", ("same", "differs")),),
        help="Schedules run a second time, by whether their trace was the same.",
        meaning="One that differs is nondeterminism.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_jobs",
        kind="gauge",
        unit="processes",
        labels=(),
        help="Processes that run schedules.",
        meaning="Divide rates by it.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_schedule_seconds",
        kind="histogram",
        unit="seconds",
        labels=(STRATEGY,),
        help="Wall time of a schedule in its process, by strategy.",
        meaning="Oracles included.",
        source="harness",
        buckets=LONG_SECONDS,
    ),
    Metric(
        name="onearena_harness_last_failure_timestamp_seconds",
        kind="gauge",
        unit="seconds",
        labels=(),
        help="When the last failure was reported, in seconds since 1970; 0 if there was none.",
        meaning="Recent failures first.",
        source="harness",
    ),
    Metric(
        name="onearena_harness_last_result_timestamp_seconds",
        kind="gauge",
        unit="seconds",
        labels=(),
        help="When the last schedule finished, in seconds since 1970; 0 if none has.",
        meaning="It stops when the campaign is stuck.",
        source="harness",
    ),
)
