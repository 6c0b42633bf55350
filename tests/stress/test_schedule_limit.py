"""A call that never returns ends its worker and not the campaign; being late once is no result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from onearena.stress.campaign import Campaign, Plan
from onearena.stress.cli import run
from onearena.stress.user_systems import trust

HANGING = """
import threading
from dataclasses import replace
from pathlib import Path

from onearena.core.device.modeled import ModeledDevice
from onearena.stress.toy import Toy
from onearena.stress.toy_parts import ToyBand


def loops():
    while True:
        pass


def locks():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def loops_once():
    marker = Path("was-late")
    if not marker.exists():
        marker.touch()
        loops()


class Hanging(Toy):
    def allocate(self, *args, **options):
        self.wait()
        return super().allocate(*args, **options)


def build(choices):
    toy = Hanging(ModeledDevice(eager=True), [ToyBand("context", 64, 8)], host_units=2)
    waits = {0: loops, 1: locks, 2: loops_once}
    toy.wait = waits.get(choices.between("hanging.kind", 0, 5), int)
    return toy
"""
LIMIT_S = 2.0


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEARENA_SYSTEM", "")  # `trust` sets it: put back what was there
    trust("hanging.py:build")
    return "hanging.py:build"


def test_a_call_that_never_returns_is_a_crash_of_its_seed(hanging: str) -> None:
    plan = Plan(16, 21, hanging, jobs=2, keep_going=True, recheck=False, strategy="random")
    plan = replace(plan, schedule_limit_s=LIMIT_S)
    summary = Campaign(plan).run()
    assert summary.verdicts == {"pass": 3, "crash": 2}
    crashes = sorted(one.crash for one in summary.failures)
    for crash in crashes:
        assert "in allocate" in crash
        assert crash.splitlines()[-1].startswith("this seed had no result within 2 s, twice")
    assert sum("in loops\n" in crash for crash in crashes) == 1
    assert sum("in locks\n" in crash for crash in crashes) == 1
    assert Path("was-late").exists(), "no seed was late once"


def test_a_limit_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", "--seeds", "0:1", "--schedule-limit", "0s"]) == 2
    assert "--schedule-limit" in capsys.readouterr().err
    options = ["--strategy", "exhaustive", "--schedule-limit", "9s"]
    assert run(["stress", *options]) == 2
    assert "--schedule-limit" in capsys.readouterr().err
