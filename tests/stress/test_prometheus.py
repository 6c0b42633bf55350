"""A real Prometheus watches real campaigns: what it stored is what the arena's snapshots said."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest
from prometheus_case import ROOT, Prometheus, free_port
from prometheus_client.parser import text_string_to_metric_families

from onearena.metrics.catalogue import CATALOGUE
from onearena.metrics.panels import PANELS
from onearena.metrics.source import SnapshotSource
from onearena.stress.campaign import Campaign, Plan
from onearena.stress.live import Live, Watch, reporters
from onearena.stress.run import run_schedule

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

BUDGET_S = 24.0
STATES = ("live", "pending", "vacated", "hole")


class Watched:
    """A campaign that ran in this process under Prometheus' eyes, and all it published."""

    def __init__(self, prometheus, port):
        self.prometheus = prometheus
        self.port = port
        self.published = {}
        shown = SnapshotSource.show

        def show(source, snapshot, **more):
            found = shown(source, snapshot, **more)
            self.published[found.taken_s] = found
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SnapshotSource, "show", show)
            watched = Live(Watch(port=port))
            try:
                self.started = time.time()
                plan = Plan(budget_s=BUDGET_S, jobs=1)
                self.summary = Campaign(plan, live=watched).run()
                self.ended = time.time()
                with urllib.request.urlopen(f"{watched.exporter.url}/metrics", timeout=10) as page:
                    self.last_scrape = page.read().decode()
                with urllib.request.urlopen(f"{watched.exporter.url}/campaign") as page:
                    self.told = json.load(page)
                time.sleep(2)  # the last scrapes
            finally:
                watched.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    run_schedule(Plan().spec(0))  # kernels are compiled before anything is timed
    port, mutant_port = free_port(), free_port()
    targets = [f"127.0.0.1:{port}", f"127.0.0.1:{mutant_port}"]
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), targets)
    try:
        found = Watched(prometheus, port)
        found.mutant_port = mutant_port
        yield found
    finally:
        prometheus.close()


def test_the_campaign_passed_and_was_scraped_throughout(watched):
    assert set(watched.summary.verdicts) == {"pass"}
    mine = f'{{instance="127.0.0.1:{watched.port}"}}[{int(BUDGET_S)}s]'
    scrapes, good = (
        sum(watched.prometheus.instant(f"{what}(up{mine})", watched.ended).values())
        for what in ("count_over_time", "sum_over_time")
    )
    # On a busy machine Prometheus itself may come late; a scrape that it makes gets an answer.
    assert scrapes > BUDGET_S / 3
    assert good >= scrapes - 1


def test_what_prometheus_stored_is_what_a_snapshot_said(watched):
    """At several moments: every band and state, exactly, of the snapshot that was scraped."""
    compared = set()
    for back in range(int(BUDGET_S)):
        at = watched.ended - back
        times = watched.prometheus.instant("onearena_snapshot_timestamp_seconds", at)
        if not times:
            continue  # before the first scrape
        (taken,) = times.values()
        found = watched.published.get(taken)
        assert found is not None, f"nothing was published at {taken}"
        stored = watched.prometheus.instant("onearena_band_bytes", at)
        names = {band.name for band in found.snapshot.bands}
        seen = {}
        for labels, size in stored.items():
            row = dict(labels)
            # A scrape ends the series of bands that the last schedule's arena does not have.
            assert row["band"] in names, row
            seen[row["band"], row["state"]] = size
        for band in found.snapshot.bands:
            parts = (band.live_units, band.pending_units, band.vacated_units, band.hole_units)
            for state, units in zip(STATES, parts, strict=True):
                assert seen[band.name, state] == units * band.unit_bytes
        compared.add(taken)
    assert len(compared) > BUDGET_S / 3


def test_the_campaign_page_says_what_the_summary_says(watched):
    told = watched.told["summary"]
    assert told["schedules"] == watched.summary.schedules
    assert told["verdicts"] == watched.summary.verdicts
    found = watched.prometheus.instant("sum(onearena_harness_schedules_total)", watched.ended + 1.5)
    assert sum(found.values()) == watched.summary.schedules


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_query_of_the_dashboard_has_data(watched, panel):
    for expr, _ in panel.queries:
        query = expr.replace("$__rate_interval", "8s").replace("$job", "onearena")
        query = query.replace("$arena", ".*").replace("$rank", ".*")
        assert "$" not in query
        data = watched.prometheus.get(
            "query_range", query=query, start=watched.started, end=watched.ended, step=1
        )
        values = [float(v) for row in data["result"] for _, v in row["values"]]
        assert any(not math.isnan(v) for v in values), query


def test_promtool_has_nothing_to_say_and_every_metric_has_a_sample(watched):
    promtool = shutil.which("promtool")
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=watched.last_scrape, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    spoiled = watched.last_scrape.replace("onearena_slack_bytes", "onearena_slackMB")
    done = subprocess.run(command, input=spoiled, capture_output=True, text=True)
    assert (done.stdout + done.stderr).strip()
    families = {f.name for f in text_string_to_metric_families(watched.last_scrape) if f.samples}
    process = {name for name in families if name.startswith("process_")}
    assert process
    names = {metric.name if metric.kind == "counter" else metric.exposed for metric in CATALOGUE}
    assert families - process == names


def test_no_alert_fired_on_a_clean_campaign(watched):
    fired = watched.prometheus.instant(
        f'max_over_time(ALERTS{{alertstate="firing"}}[{int(BUDGET_S)}s])', watched.ended
    )
    assert fired == {}


def test_every_reporter_is_known_from_the_start():
    names = set(reporters())
    for path in (ROOT / "stress" / "oracles").glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith('    name = "'):
                assert line.split('"')[1] in names, path
    assert {"crash", "stuck", "order", "conservation"} <= names
    assert len(names) <= 32


PLANT = """
import sys
from onearena.stress.mutants import Mutant, Patch, plant
patch = Patch(
    "onearena.core.arena_snapshot",
    "GapSnapshot(start, low, low - start - fenced, fenced)",
    "GapSnapshot(start, low, low - start - fenced - 16, fenced)",
)
plant(Mutant("test", "gaps lose 16 bytes", "conservation", "conservation", (patch,)))
from onearena.stress.cli import run
sys.exit(run(sys.argv[1:]))
"""


def test_an_alert_fires_when_a_mutant_breaks_conservation(watched):
    command = [sys.executable, "-c", PLANT, "stress", "--jobs", "1", "--budget", "90s"]
    command += ["--keep-going", "--json", "--metrics-port", str(watched.mutant_port)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wanted = {"OnearenaInvariantViolated", "OnearenaHarnessFailure"}
        watched.prometheus.wait_for(
            lambda: wanted <= watched.prometheus.firing(), "the alerts", seconds=80
        )
        now = time.time()
        found = watched.prometheus.instant("onearena_harness_failures_total > 0", now)
        assert {dict(labels)["oracle"] for labels in found} == {"conservation"}
        broken = watched.prometheus.instant("onearena_invariant_violations_total > 0", now)
        assert {dict(labels)["check"] for labels in broken} == {"gap_bytes", "arena_bytes"}
        url = f"http://127.0.0.1:{watched.mutant_port}/failures/0"
        with urllib.request.urlopen(url, timeout=10) as answer:
            failure = json.load(answer)["failure"]
        assert failure["violations"][0]["oracle"] == "conservation"
        assert "conservation" in failure["text"]
    finally:
        child.kill()
        child.communicate()
