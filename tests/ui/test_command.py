"""`onearena dashboard`: what it takes, what it refuses, and what it makes of kept runs."""

from __future__ import annotations

import json

import pytest

from onearena.core.errors import UsageError
from onearena.dashboard.failure_model import parse_failure
from onearena.dashboard.record_source import RecordSource
from onearena.dashboard.settings import settings_of
from onearena.stress.cli import run
from onearena.stress.dashboard_cli import dashboard_command
from onearena.stress.dashboard_files import record_of
from onearena.stress.run import RunSpec, run_schedule


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory):
    """The folder of a run of one schedule, which breaks a rule, and its seed."""
    bad = "toy:last-use-only"
    seed = next(s for s in range(60) if run_schedule(RunSpec(s, bad)).verdict == "violation")
    folder = tmp_path_factory.mktemp("runs") / "a"
    command = ["stress", "--jobs", "1", "--system", bad, "--seeds", f"{seed}:{seed + 1}"]
    assert run([*command, "--out", str(folder)]) == 1
    return folder, seed


@pytest.mark.parametrize("ending", ["", ".choices.json", ".choices.json.min"])
def test_runs_and_choices_files_are_told_as_records(failed_run, tmp_path, ending):
    failed_run, seed = failed_run
    name = f"seed-{seed}{ending}" if ending else ""
    record = RecordSource(record_of(str(failed_run / name), tmp_path))
    found = [parse_failure(record.failure(at), "here") for at in range(len(record.failures))]
    assert {failure.seed for failure in found} == {seed}
    assert all(failure.rule == "6" and failure.edge and failure.pictures for failure in found)
    assert any(failure.minimal for failure in found) == (ending != ".choices.json")
    if not name:
        summary = json.loads((failed_run / "summary.json").read_text())
        assert record.campaign()["summary"]["schedules"] == summary["schedules"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((("ftp://x",), None, None, None), "--source"),
        ((("http://",), None, None, None), "--source"),
        (((), "/no/such/folder", None, None), "--folder"),
        (((), None, "99999", None), "--port"),
        (((), None, "0", None), "--port"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(arguments, field, tmp_path):
    with pytest.raises(UsageError, match=field):
        dashboard_command(*arguments, made=tmp_path)


def test_sources_and_folder_reach_the_application(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"onearena":"record","version":1}\n')
    command, environment = dashboard_command((str(path),), None, "8600", None, made=tmp_path)
    settings = settings_of(environment)
    assert (settings.folder, settings.file, settings.sources) == (str(tmp_path), "a.jsonl", ())
    assert "--server.address=127.0.0.1" in command
    _, environment = dashboard_command((), None, None, None, made=tmp_path)
    assert settings_of(environment).sources == ("http://127.0.0.1:9464",)
