"""`onearena stress --resume` and `onearena runs`, from the outside."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kill9_case import comparable

from onearena.stress.campaign import Campaign, Plan
from onearena.stress.cli import run
from onearena.stress.engine import Engine, HereEngine
from onearena.stress.reach import planned
from onearena.stress.run_file import STORE_NAME, StoreLock
from onearena.stress.run_report import look, read_run

# Sources that somebody edits while the tests run are not what these tests are about.
# A shell without job control has its background jobs ignore Ctrl-C; here it has to arrive.
CODE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from onearena.stress import run_folders
run_folders.sources_hash = lambda _: "a test"
from onearena.stress.cli import main
main()
"""
COMMAND = [sys.executable, "-c", CODE, "stress"]
SEEDS = 200  # more than two idle cores get through before a batch is kept, seen, and a kill comes


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Campaigns run in this process: no worker has to start."""

    monkeypatch.setattr("onearena.stress.run_folders.sources_hash", lambda _: "a test")

    def engine(plan: Plan, live: object) -> Engine:
        return HereEngine(plan)

    monkeypatch.setattr("onearena.stress.campaign._engine", engine)


def _summary(plan: Plan) -> dict[str, Any]:
    """That of a run which nothing stops and nobody keeps."""
    campaign = Campaign(plan, planned=planned(plan.system), engine=HereEngine(plan))
    return comparable(campaign.run().to_json())


def _shown(folder: Path) -> dict[str, Any]:
    return comparable(read_run(folder)[1].to_json())


def _schedules(folder: Path) -> int:
    try:
        return look(folder).schedules
    except OSError:
        return 0


def test_killed_processes_resume_to_the_same_result(tmp_path: Path) -> None:
    folder, rng = tmp_path / "run", random.Random(5)
    args = ["--system", "toy", "--seeds", f"0:{SEEDS}", "--jobs", "2", "--out", str(folder)]
    kills = 0
    for least in (4, 12):
        with subprocess.Popen([*COMMAND, *args], stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and _schedules(folder) < least:
                time.sleep(0.05)
            time.sleep(rng.random() * 0.2)
            process.kill()
        kills += process.returncode == -signal.SIGKILL
        args = ["--resume", str(folder)]
    assert kills
    assert look(folder).status == "killed"
    assert 4 <= _schedules(folder) < SEEDS
    done = subprocess.run([*COMMAND, *args, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schedules"] == SEEDS
    assert document["run"] == str(folder)
    whole = _summary(Plan(0, SEEDS, "toy"))
    assert _shown(folder) == whole
    assert {name: value for name, value in comparable(document).items() if name in whole} == whole


def test_ctrl_c_prints_the_summary_and_the_line_that_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    args = ["--system", "toy", "--jobs", "1", "--out", str(folder)]
    with subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and _schedules(folder) < 3:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert f"resume: onearena stress --resume '{folder}'" in out
    kept = look(folder)
    assert kept.status == "interrupted"
    assert out.startswith(f"{kept.schedules} schedules of toy")


@pytest.mark.parametrize("command", [["--out", "run"], ["--strategy", "exhaustive"]])
@pytest.mark.parametrize("wait_s", [0.0, 0.15])
def test_ctrl_c_while_workers_start_is_no_traceback(
    command: list[str], wait_s: float, tmp_path: Path
) -> None:
    args = [*COMMAND, "--system", "toy", "--jobs", "2", *command]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        args, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, start_new_session=True
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            while process.poll() is None and not children.read_text():
                time.sleep(0.002)
            time.sleep(wait_s)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them at once
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err


def test_a_later_end_and_a_failure_that_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], here: None
) -> None:
    folder = str(tmp_path / "r")
    bad = ["stress", "--system", "toy:free-at-once", "--out", folder, "--no-shrink"]
    assert run([*bad, "--seeds", "0:20"]) == 1
    out = capsys.readouterr().out
    assert f"resume: onearena stress --resume {folder} --keep-going" in out
    stopped = look(Path(folder))
    assert (stopped.status, stopped.failures) == ("failed", 1)
    # Resumed as it was, it stands where it stood and says so again.
    assert run(["stress", "--resume", folder, "--no-shrink"]) == 1
    assert look(Path(folder)).schedules == stopped.schedules
    assert run(["stress", "--resume", folder, "--no-shrink", "--keep-going"]) == 1
    assert look(Path(folder)).status == "complete"
    plan = Plan(0, 24, "toy:free-at-once", keep_going=True)
    assert run(["stress", "--resume", folder, "--seeds", "0:24", "--no-shrink"]) == 1
    assert _shown(Path(folder)) == _summary(plan)
    files = sorted(Path(folder).glob("seed-*.choices.json"))
    assert len(files) == len(_summary(plan)["failures"])
    capsys.readouterr()
    assert run(["replay", str(files[-1])]) == 1
    assert "same trace as recorded: yes" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_failures_are_told_apart_by_rule_and_minimal_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onearena.stress.auto_shrink.RULES_MAX", 1)
    monkeypatch.setattr("onearena.stress.auto_shrink.BUDGET_S", 2.0)
    folder = tmp_path / "r"
    bad = ["stress", "--system", "toy:free-at-once", "--out", str(folder), "--keep-going"]
    assert run([*bad, "--seeds", "0:8", "--json"]) == 1
    capsys.readouterr()
    assert run(["runs", "show", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    distinct = document["distinct_failures"]
    assert sum(one["schedules"] for one in distinct) == document["verdicts"]["violation"]
    kinds = [(one["oracle"], one["rule"], one["form"]) for one in distinct]
    assert len(set(kinds)) == len(kinds) < document["verdicts"]["violation"]
    small = [one for one in distinct if one["file"]]
    assert small
    for one in small:
        assert run(["replay", one["file"]]) == 1
    capsys.readouterr()
    # Shrunk once: a resumed run finds them in its store.
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.min")}
    assert run(["stress", "--resume", str(folder), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["shrunk"]) == len(small)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.min")} == before


@pytest.fixture
def kept(tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs with one run, 0001."""
    monkeypatch.setenv("ONEARENA_RUNS", str(tmp_path / "all"))
    assert run(["stress", "--system", "toy", "--seeds", "0:3", "--json"]) == 0
    return tmp_path / "all"


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--resume", "0002"], "--resume"),
        (["--resume", "\x00"], "--resume"),
        (["--resume", "0001", "--seed", "1"], "--seed"),
        (["--resume", "0001", "--model", "any"], "--model"),
        (["--resume", "0001", "--system", "toy"], "--system"),
        (["--resume", "0001", "--out", "x"], "--out"),
        (["--resume", "0001", "--seeds", "1:9"], "begins at seed 0"),
        (["--resume", "0001", "--seeds", "0:2"], "no earlier"),
        (["--seeds", "0:3", "--out", "{kept}/0001"], "holds a run"),
        (["--engine", "steam"], "--engine"),
    ],
)
def test_what_cannot_be_resumed(
    kept: Path, args: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["stress", *(arg.format(kept=kept) for arg in args)]) == 2
    err = capsys.readouterr().err
    assert word in err
    assert err.count("\n") == 1
    assert look(kept / "0001").schedules == 3


def test_a_system_that_a_file_names_is_not_run_unasked(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = '"system": "toy"', '"system": "evil.py:make"'
    store = sqlite3.connect(kept / "0001" / STORE_NAME, isolation_level=None)
    store.execute("UPDATE meta SET value = replace(value, ?, ?) WHERE key = 'plan'", plan)
    store.close()
    assert look(kept / "0001").system == "evil.py:make"
    monkeypatch.delenv("ONEARENA_SYSTEM", raising=False)
    assert run(["stress", "--resume", "0001"]) == 2
    assert "if you trust that code" in capsys.readouterr().err


def test_changed_sources_are_not_mixed(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onearena.stress.run_folders.sources_hash", lambda _: "others")
    assert run(["stress", "--resume", "0001"]) == 2
    assert "sources have changed" in capsys.readouterr().err


def test_runs_list_and_compare(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", "--system", "toy", "--seeds", "1:5", "--json"]) == 0
    assert run(["stress", "--system", "toy:free-at-once", "--seeds", "0:1", "--no-shrink"]) in (
        0,
        1,
    )
    (kept / "0004").mkdir()
    (kept / "0004" / STORE_NAME).write_text("no store")
    (kept / "not a run").mkdir()
    capsys.readouterr()
    assert run(["runs", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "0001", "0002", "0003", "0004"]
    assert "damaged" in lines[4]
    assert len({line.rstrip().rfind("  ") for line in lines[1:3]}) == 1
    assert run(["runs", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["schedules"] for row in rows] == [3, 4, rows[2]["schedules"], 0]
    assert run(["runs", "compare", "0001", "0002", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["common"], document["equal"]) == (2, 2)
    assert run(["runs", "compare", "0001", "0003"]) == 0
    assert "system differ" in capsys.readouterr().out
    for name in ("0004", "0009"):
        assert run(["runs", "show", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_compare_sees_worse_seeds_and_nondeterminism(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stress", "--system", "toy", "--seeds", "0:3", "--json"]) == 0
    store = sqlite3.connect(kept / "0002" / STORE_NAME, isolation_level=None)
    store.execute("UPDATE schedules SET digest = 'another' WHERE seed = 1")
    assert run(["runs", "compare", "0001", "0002"]) == 3
    store.execute("UPDATE meta SET value = 'others' WHERE key = 'sources'")
    assert run(["runs", "compare", "0001", "0002"]) == 0
    store.execute("INSERT INTO names(name) VALUES('violation')")
    store.execute(
        "UPDATE schedules SET verdict = (SELECT id FROM names WHERE name = 'violation') "
        "WHERE seed = 2"
    )
    assert run(["runs", "compare", "0001", "0002"]) == 1
    assert run(["runs", "compare", "0002", "0001"]) == 0
    store.close()
    assert "fails in A, passes in B: 2" in capsys.readouterr().out


def test_prune_drops_what_a_campaign_wrote_and_nothing_else(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        assert run(["stress", "--system", "toy", "--seeds", "0:1", "--json"]) == 0
    (kept / "0001" / "notes.txt").write_text("mine")
    lock = StoreLock(kept / "0002" / STORE_NAME)
    capsys.readouterr()
    assert run(["runs", "prune", "--keep", "1"]) == 0
    assert "would drop 2 of 4 runs" in capsys.readouterr().out
    assert len(list(kept.glob("*/results*store"))) == 4
    assert run(["runs", "prune", "--keep", "1", "--yes", "--older-than", "1h"]) == 0
    assert len(list(kept.glob("*/results*store"))) == 4
    assert run(["runs", "prune", "--keep", "1", "--yes"]) == 0
    lock.release()
    assert sorted(path.name for path in kept.iterdir()) == ["0001", "0002", "0004"]
    assert [path.name for path in (kept / "0001").iterdir()] == ["notes.txt"]
    assert run(["runs", "prune", "--keep", "few"]) == 2
