"""The pytest plugin and the Hypothesis strategy, in a test suite that is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from onearena.core.errors import UsageError
from onearena.stress.choices import Choices
from onearena.stress.factory_runs import BrokenRuleError, run_factory
from onearena.stress.hypothesis_strategies import schedules
from onearena.stress.recordings import parse_recording
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.systems import build_system, check_system
from onearena.stress.user_systems import VARIABLE
from onearena.stress.user_systems import given as named

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "onearena.stress.pytest_plugin"
HEAD = """
import pytest
from onearena.stress.choices import Choices
from onearena.stress.systems import build_system

def good(choices):
    return build_system("toy", "any", choices).sut

def bad(choices):
    return build_system("toy:last-use-only", "any", choices).sut
"""


def good(choices: Choices):
    return build_system("toy", "any", choices).sut


def bad(choices: Choices):
    return build_system("toy:last-use-only", "any", choices).sut


def suite(tmp_path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_mine.py").write_text(HEAD + body)
    # Installed, pytest finds it by its entry point; a second time it would be one too many.
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *plugin, *options]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def test_the_package_declares_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"onearena": PLUGIN}


def test_loading_the_plugin_loads_no_harness() -> None:
    code = f"import sys, {PLUGIN}\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for module in ("numpy", "torch", "onearena.stress.run", "onearena.core.kernels"):
        assert f"'{module}'" not in done.stdout


def test_a_campaign_is_a_test_that_can_fail(tmp_path) -> None:
    body = """
@pytest.mark.onearena(seeds=6)
def test_good(onearena_campaign):
    result = onearena_campaign(good)
    result.check()
    assert result.schedules == 6 and result.steps > 600

@pytest.mark.onearena(seeds=60, shrink_s=3)
def test_bad(onearena_campaign):
    onearena_campaign(bad).check()
"""
    done = suite(tmp_path, body)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "rule 6 broken at" in done.stdout
    assert "Missing:" in done.stdout
    assert "shrunk:" in done.stdout


def test_the_command_line_overrides_the_number(tmp_path) -> None:
    body = """
def test_good(onearena_campaign):
    assert onearena_campaign(good).schedules == 2
"""
    assert suite(tmp_path, body, "--onearena-seeds", "2").returncode == 0
    assert suite(tmp_path, body, "--onearena-seeds", "3").returncode == 1


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("(7)", "give keywords"),
        ("(seeds=0)", "seeds=0"),
        ("(seeds=True)", "seeds=True"),
        ("(sedes=3)", "sedes"),
    ],
)
def test_a_wrong_marker_is_named(tmp_path, marker, words) -> None:
    body = f"""
@pytest.mark.onearena{marker}
def test_good(onearena_campaign):
    onearena_campaign(good).check()
"""
    done = suite(tmp_path, body)
    assert done.returncode == 1
    assert words in done.stdout


def test_a_failure_leaves_a_schedule_that_replays(tmp_path) -> None:
    result = run_factory(bad, seeds=60, shrink_s=3.0, folder=tmp_path)
    (failure,) = result.failures
    with pytest.raises(BrokenRuleError, match="broken at"):
        result.check()
    assert failure.small.steps <= failure.result.steps
    with named(bad) as name:
        spec, head = parse_recording(Path(failure.path).read_text())
        assert head["verdict"] == "violation"
        again = run_schedule(spec)
        assert again.digest == failure.small.digest
        assert name == spec.system
    # Out of the block the name means nothing any more, and nobody trusted it.
    with pytest.raises(UsageError, match=VARIABLE):
        check_system(spec.system)


def test_a_given_factory_ends_with_its_block() -> None:
    with named(good) as outer, named(bad) as inner:
        assert outer.endswith(":good")
        assert inner.endswith(":bad")
        assert build_system(inner, "any", Choices(1)).sut.bug == "last-use-only"
    with named(lambda choices: good(choices)) as name:  # noqa: PLW0108 - it has no name
        assert build_system(name, "any", Choices(1)).sut.bug == ""


SLOW = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=15, phases=[Phase.generate], **SLOW)
@given(schedules(good, steps=40))
def test_hypothesis_finds_nothing_in_a_good_allocator(schedule) -> None:
    assert schedule.result.steps == 40
    schedule.check()


@pytest.mark.slow
def test_hypothesis_finds_and_shrinks_a_bad_one() -> None:
    wanted = settings(max_examples=400, phases=[Phase.generate, Phase.shrink], **SLOW)
    small = find(
        schedules(bad, steps=14),
        lambda schedule: any(v.oracle == "order" for v in schedule.result.violations),
        settings=wanted,
    )
    assert "violation" in repr(small)
    assert len(small.result.recording) <= 9  # the set-up, and a few of the 14 steps
    with pytest.raises(BrokenRuleError, match=r"rule [67] broken") as raised:
        small.check()
    assert "reproduce: write schedule.to_text() to a file" in str(raised.value)
    assert "--seed" not in str(raised.value), "a seed draws other steps"
    # The failing schedule is an ordinary recording: it replays without Hypothesis.
    with named(bad):
        spec, _ = parse_recording(small.to_text())
        again = run_schedule(spec)
    assert again.divergence is None
    assert again.digest == small.result.digest
    assert json.loads(small.to_text())["violations"]


def test_schedules_drawn_alike_run_alike() -> None:
    """The same drawn integers give the same schedule, or Hypothesis could not shrink."""
    from onearena.stress.hypothesis_strategies import DrawnChoices

    def run(values: list[int]):
        rest = iter(values * 1000)

        def ask(strategy):
            # Integers below a bound, from a list: what Hypothesis does, without Hypothesis.
            return next(rest) % (strategy.wrapped_strategy.end + 1)

        with named(good) as name:
            spec = RunSpec(5, name, steps=30, strategy="random")
            return run_schedule(spec, choices=DrawnChoices(ask, 5))

    first, second = run([3, 1, 4, 1, 5, 9, 2, 6]), run([3, 1, 4, 1, 5, 9, 2, 6])
    assert first.digest == second.digest
    assert run([2, 7, 1, 8]).digest != first.digest
