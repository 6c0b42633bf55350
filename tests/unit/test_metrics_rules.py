"""The rules: promtool agrees with them; each alert fires, does not, and needs each threshold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from onearena.metrics.alerts import ALERTS, RECORDINGS, rules_text
from onearena.metrics.catalogue import CATALOGUE
from onearena.metrics.panels import PANELS, dashboard

ROOT = Path(__file__).resolve().parents[2]
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here (Debian: apt-get install prometheus)"
)
pytestmark = pytest.mark.prometheus

WHO = 'job="j", instance="i", arena="0"'
ALWAYS = "> -1e300"


def one(name, values, labels=""):
    """An input series of an arena, in promtool's notation."""
    inside = f"{WHO}, {labels}" if labels else WHO
    return {"series": f"{name}{{{inside}}}", "values": values}


def harness(name, values, labels=""):
    """An input series of a campaign."""
    return {"series": f'onearena_harness_{name}{{job="j"{labels}}}', "values": values}


CAPACITY = one("onearena_capacity_bytes", "1000x40")
LIVE, HOLES = 'band="full", state="live"', 'band="full", state="hole"'
GAP = 'gap="full", state="free"'
RAN_OUT = 'caller="decode", rung="none", answer="infeasible"'
BLOCKED = 'caller="decode", rung="none", answer="blocked"'

# alert: (series that fire it, [series that do not, one list for each threshold at least])
CASES = {
    "OnearenaInvariantViolated": (
        [one("onearena_invariant_violations_total", "0x5 1x35", 'check="arena_bytes"')],
        [[one("onearena_invariant_violations_total", "0x40", 'check="arena_bytes"')]],
    ),
    "OnearenaBytesNotConserved": (
        [
            CAPACITY,
            one("onearena_band_bytes", "600x40", LIVE),
            one("onearena_gap_bytes", "399x40", GAP),
        ],
        [
            [
                CAPACITY,
                one("onearena_band_bytes", "500x40", LIVE),
                one("onearena_band_bytes", "100x40", HOLES),
                one("onearena_gap_bytes", "400x40", GAP),
            ]
        ],
    ),
    "OnearenaPromiseBroken": (
        [one("onearena_broken_promises_total", "0x5 2x35")],
        [[one("onearena_broken_promises_total", "0x40")]],
    ),
    "OnearenaUseStuck": (
        [
            one("onearena_snapshot_timestamp_seconds", "1000+60x40"),
            one("onearena_oldest_unretired_timestamp_seconds", "1000x40", 'kind="send"'),
        ],
        [
            [
                one("onearena_snapshot_timestamp_seconds", "1000+60x40"),
                one("onearena_oldest_unretired_timestamp_seconds", "971+60x40", 'kind="send"'),
            ]
        ],
    ),
    "OnearenaPinsBlock": (
        [
            one("onearena_pinned_units", "3x40", 'band="full"'),
            one("onearena_demands_total", "0+1x40", BLOCKED),
        ],
        [
            [
                one("onearena_pinned_units", "3x25 0 3x14", 'band="full"'),
                one("onearena_demands_total", "0+1x40", BLOCKED),
            ],
            [
                one("onearena_pinned_units", "3x40", 'band="full"'),
                one("onearena_demands_total", "7x40", BLOCKED),
            ],
        ],
    ),
    "OnearenaQuarantine": (
        [one("onearena_quarantined_units", "0x3 4x37", 'band="full"')],
        [[one("onearena_quarantined_units", "0x40", 'band="full"')]],
    ),
    "OnearenaMoveStorm": (
        [CAPACITY, one("onearena_moved_bytes_total", "0+6000x40", 'band="full", reason="compact"')],
        [
            [
                CAPACITY,
                one("onearena_moved_bytes_total", "0+2900x40", 'band="full", reason="compact"'),
            ]
        ],
    ),
    "OnearenaNearFull": (
        [
            CAPACITY,
            one("onearena_band_bytes", "960x40", LIVE),
            one("onearena_demands_total", "0+60x40", RAN_OUT),
        ],
        [
            [
                CAPACITY,
                one("onearena_band_bytes", "940x40", LIVE),
                one("onearena_demands_total", "0+60x40", RAN_OUT),
            ],
            [
                CAPACITY,
                one("onearena_band_bytes", "960x40", LIVE),
                one("onearena_demands_total", "0+1x40", RAN_OUT),
            ],
        ],
    ),
    "OnearenaSnapshotStale": (
        [one("onearena_snapshot_timestamp_seconds", "0x40")],
        # promtool's clock starts at 0 and is at 1,800 s when the alerts are looked at.
        [[one("onearena_snapshot_timestamp_seconds", "0+60x40")]],
    ),
    "OnearenaMetricsAbsent": (
        [one("onearena_gap_bytes", "1x40", GAP)],
        [[CAPACITY]],
    ),
    "OnearenaHarnessFailure": (
        [{"series": 'onearena_harness_failures_total{job="j", oracle="order"}', "values": "1x40"}],
        [
            [
                {
                    "series": 'onearena_harness_failures_total{job="j", oracle="order"}',
                    "values": "0x40",
                }
            ]
        ],
    ),
    "OnearenaHarnessNondeterminism": (
        [harness("rechecks_total", "0x3 1x37", ', outcome="differs"')],
        [[harness("rechecks_total", "0x40", ', outcome="differs"')]],
    ),
    "OnearenaHarnessStuck": (
        [harness("last_result_timestamp_seconds", "60x40")],
        [
            [harness("last_result_timestamp_seconds", "0x40")],
            [harness("last_result_timestamp_seconds", "0+60x40")],
        ],
    ),
}


def promtool_says(folder, rules, name, series, *, fires):
    """Whether `promtool test rules` finds that the alert fires (or does not) after 30 minutes."""
    (folder / "rules.yml").write_text(rules)
    firing = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                # Labels and annotations are compared too if given: `count` says only how many.
                "promql_expr_test": [
                    {
                        "expr": f"count({firing}) or vector(0)",
                        "eval_time": "30m",
                        "exp_samples": [{"labels": "{}", "value": 1 if fires else 0}],
                    }
                ],
            }
        ],
    }
    (folder / "test.yml").write_text(json.dumps(test))
    command = [PROMTOOL, "test", "rules", str(folder / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "error" not in done.stderr or "FAILED" in done.stdout + done.stderr, done.stderr
    return done.returncode == 0


def test_there_is_a_case_for_every_alert_and_every_threshold():
    assert set(CASES) == {alert.name for alert in ALERTS}
    for alert in ALERTS:
        assert len(CASES[alert.name][1]) >= len(alert.thresholds)
        for threshold in alert.thresholds:
            assert threshold in alert.expr


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alert_fires_and_does_not_and_needs_its_thresholds(alert, tmp_path):
    rules = rules_text()
    fires, quiet = CASES[alert.name]
    assert promtool_says(tmp_path, rules, alert.name, fires, fires=True)
    for series in quiet:
        assert promtool_says(tmp_path, rules, alert.name, series, fires=False)
    written = json.dumps(alert.expr)
    assert rules.count(written) == 1
    for at, threshold in enumerate(alert.thresholds):
        # The case that holds it apart is the one in the same place.
        loose = alert.expr.replace(threshold, ALWAYS if threshold.startswith(">") else "vector(1)")
        changed = rules.replace(written, json.dumps(loose))
        assert not promtool_says(tmp_path, changed, alert.name, quiet[at], fires=False), threshold


@needs_promtool
def test_promtool_accepts_rules_and_configuration(tmp_path):
    for command in (
        ("check", "rules", str(ROOT / "metrics" / "rules" / "onearena.yml")),
        ("check", "config", str(ROOT / "metrics" / "prometheus.yml")),
    ):
        done = subprocess.run([PROMTOOL, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    bad = tmp_path / "bad.yml"
    bad.write_text(rules_text().replace("sum by", "sum buy", 1))
    assert subprocess.run([PROMTOOL, "check", "rules", bad], capture_output=True).returncode != 0


def test_every_alert_has_a_runbook_that_says_what_to_do():
    for alert in ALERTS:
        text = (ROOT / alert.runbook).read_text(encoding="utf-8")
        assert text.startswith(f"# {alert.name}\n")
        for heading in ("What happens meanwhile", "Where to look", "What to do", "When it ends"):
            assert f"\n## {heading}\n" in text, (alert.name, heading)
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").iterdir()}
    assert pages == {alert.name for alert in ALERTS}


KNOWN = {metric.exposed: metric for metric in CATALOGUE}
LABELS_OF_PROMETHEUS = {"job", "instance", "rank", "le", "alertname", "alertstate"}


def names_in(text):
    """Metric names of onearena in an expression or a page, buckets and the like taken off."""
    found = set()
    for name in re.findall(r"(?<![\w:])onearena_[a-z_]+", text):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        found.add(base if base in KNOWN else name)
    return found


def expressions():
    yield from (alert.expr for alert in ALERTS)
    yield from (recording.expr for recording in RECORDINGS)
    yield from (expr for panel in PANELS for expr, _ in panel.queries)


@pytest.mark.parametrize("expr", list(expressions()))
def test_expressions_use_names_and_labels_that_exist(expr):
    assert names_in(expr) <= set(KNOWN) or "process_cpu" in expr
    for name, selector in re.findall(r"(onearena_[a-z_]+)\{([^}]*)\}", expr):
        metric = KNOWN[re.sub(r"_(bucket|count|sum)$", "", name)]
        allowed = {label.name: label.values for label in metric.labels}
        for label, pattern in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            assert label in allowed or label in LABELS_OF_PROMETHEUS, (name, label)
            for choice in pattern.split("|"):
                known = allowed.get(label)
                assert not known or choice in known or choice.startswith("$"), (name, choice)


def test_runbooks_and_pages_name_metrics_that_exist():
    pages = [*(ROOT / "docs" / "runbooks").iterdir(), ROOT / "docs" / "metrics.md"]
    for page in pages:
        unknown = names_in(page.read_text(encoding="utf-8")) - set(KNOWN)
        unknown = {name for name in unknown if not any(row.name == name for row in CATALOGUE)}
        assert unknown <= {"onearena_harness_", "onearena_"}, (page.name, unknown)


def test_the_page_lists_the_whole_catalogue():
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(onearena_\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(KNOWN)


def test_the_dashboard_is_complete_and_has_its_variables():
    made = dashboard()
    stored = json.loads((ROOT / "metrics" / "grafana" / "onearena.json").read_text())
    assert stored == made
    assert [v["name"] for v in made["templating"]["list"]] == ["datasource", "job", "arena", "rank"]
    assert len({panel["id"] for panel in made["panels"]}) == len(PANELS)
    # Everything an operator can see of an arena is in some panel.
    shown = set().union(*(names_in(expr) for panel in PANELS for expr, _ in panel.queries))
    hidden = {metric.exposed for metric in CATALOGUE} - shown
    assert hidden == set(UNSHOWN), hidden ^ set(UNSHOWN)


UNSHOWN = {
    "onearena_arena_info": "a fact to join, no line",
    "onearena_build_info": "a fact to join, no line",
    "onearena_slack_bytes": "a part of the gaps, in the summary",
    "onearena_band_units": "the bytes are shown",
    "onearena_band_unit_bytes": "constant",
    "onearena_band_capacity_units": "constant",
    "onearena_fences": "their bytes are shown",
    "onearena_uses_total": "for rates by kind when looking closer",
    "onearena_settles_total": "for looking closer",
    "onearena_broken_promises_total": "an alert",
    "onearena_invariant_violations_total": "an alert",
    "onearena_dropped_observations_total": "for judging the histograms",
    "onearena_exporter_requests_total": "for looking closer",
    "onearena_exporter_cut_connections_total": "for looking closer",
    "onearena_exporter_connections": "for looking closer",
    "onearena_harness_steps_total": "schedules are shown",
    "onearena_harness_crowded_steps_total": "in the campaign's own report",
    "onearena_harness_busy_steps_total": "in the campaign's own report",
    "onearena_harness_failures_total": "an alert",
    "onearena_harness_rechecks_total": "an alert",
    "onearena_harness_schedule_seconds": "for looking closer",
    "onearena_harness_last_failure_timestamp_seconds": "for looking closer",
    "onearena_harness_last_result_timestamp_seconds": "an alert",
}
