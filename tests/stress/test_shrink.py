"""Shrinking keeps the failure and drops the rest, the same way every time."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from onearena.core.errors import UsageError
from onearena.stress.arena_scenarios import PORTFOLIO, declaration_pools
from onearena.stress.choices import StepRecord
from onearena.stress.cli import run
from onearena.stress.recordings import dump_recording, load_recording, parse_recording
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.shrink import Shrinker
from onearena.stress.shrink_draw import MODELS, ONE_BAND
from onearena.stress.shrink_parts import CALLS_MAX, NO, Tally, Target
from onearena.stress.toy import BUGS


def failure(bug: str, *, first: int = 0) -> tuple[RunSpec, RunResult]:
    for seed in range(first, first + 60):
        spec = RunSpec(seed, f"toy:{bug}")
        result = run_schedule(spec)
        if result.verdict != "pass":
            return replace(spec, recording=result.recording), result
    raise AssertionError(f"toy:{bug} was not caught")


@pytest.mark.parametrize("bug", BUGS)
def test_a_small_schedule_breaks_the_same_rule(bug: str) -> None:
    spec, result = failure(bug, first=3)
    small = Shrinker(spec, budget_s=60, rounds_max=0).run()
    first = result.violations[0]
    assert small.finished
    assert small.verified
    again = run_schedule(small.spec)
    assert (again.violations[0].oracle, again.violations[0].rule) == (first.oracle, first.rule)
    assert again.divergence is None
    assert small.after < small.before
    assert small.after.host_calls <= 30


def test_no_single_step_can_go() -> None:
    spec, result = failure("free-at-once", first=1)
    small = Shrinker(spec, budget_s=60, rounds_max=0).run()
    target = Target.of(result)
    steps = small.spec.recording
    assert steps is not None
    for gone in range(1, len(steps)):
        shorter = (*steps[:gone], *steps[gone + 1 :])
        assert not target.met(run_schedule(replace(spec, recording=shorter))), steps[gone]


def test_equal_recordings_shrink_to_equal_files() -> None:
    spec, _ = failure("last-use-only")
    texts = [Shrinker(spec, budget_s=60, rounds_max=1).run().text for _ in range(2)]
    assert texts[0] == texts[1]


def test_schedules_drawn_anew_get_past_a_large_arena() -> None:
    spec, _ = failure("free-at-once", first=1)
    plain = Shrinker(spec, budget_s=60, rounds_max=0).run()
    drawn = Shrinker(spec, budget_s=60, rounds_max=1).run()
    assert drawn.after.host_calls < plain.after.host_calls
    assert drawn.verified


def test_the_target_is_verdict_oracle_and_rule() -> None:
    _, result = failure("free-at-once")
    target = Target.of(result)
    assert target.met(result)
    first = result.violations[0]
    other = replace(first, rule="13")
    assert not target.met(replace(result, violations=(other, *result.violations[1:])))
    assert not target.met(replace(result, verdict="pass", violations=()))


def test_a_lost_order_report_does_not_meet_the_target() -> None:
    results = (failure("free-at-once", first=seed)[1] for seed in range(40))
    result = next(r for r in results if any(v.oracle == "order" for v in r.violations))
    silent = tuple(v for v in result.violations if v.oracle != "order")
    assert not Target.of(result).met(replace(result, violations=silent))


def test_sizes_shrink_too() -> None:
    spec, _ = failure("free-at-once", first=1)
    steps = Shrinker(spec, budget_s=60, rounds_max=0).run().spec.recording
    assert steps is not None
    swarm = steps[0].decisions["swarm.factor"]
    assert set(swarm) == {0}
    assert set(steps[0].decisions["swarm.off"]) == {NO}


def test_a_budget_of_replays_ends_it_with_a_valid_file() -> None:
    spec, _ = failure("read-fast-path")
    small = Shrinker(spec, budget_s=60, replays_max=12).run()
    assert not small.finished
    assert small.verified
    assert small.replays == 12


def test_the_last_replays_are_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]

    def slow(*args: Any, **more: Any) -> RunResult:
        seconds[0] += 1.0
        return run_schedule(*args, **more)

    monkeypatch.setattr("onearena.stress.shrink.run_schedule", slow)
    monkeypatch.setattr("onearena.stress.shrink.processor_seconds", lambda: seconds[0])
    spec, _ = failure("read-fast-path")
    small = Shrinker(spec, budget_s=25).run()
    assert not small.finished
    assert small.verified
    assert 20 <= small.seconds <= 25


@pytest.mark.parametrize("bug", BUGS)
def test_looking_with_few_oracles_first_changes_nothing(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, result = failure(bug)
    quick = Shrinker(spec, budget_s=60, replays_max=200)
    assert quick.quick is not None
    assert result.violations[0].oracle in quick.quick
    small = quick.run()
    monkeypatch.setattr(Shrinker, "_quick", lambda _: None)
    slow = Shrinker(spec, budget_s=60, replays_max=200).run()
    assert (small.text, small.replays) == (slow.text, slow.replays)


def test_an_oracle_that_cannot_speak_alone_is_heard_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Shrinker, "_quick", lambda _: frozenset(("nobody",)))
    spec, _ = failure("free-at-once")
    shrinker = Shrinker(spec, budget_s=60, replays_max=20)
    assert shrinker.quick is None
    assert shrinker.run().verified


def test_a_failure_that_comes_once_and_not_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    systems = chain(["toy:free-at-once"], repeat("toy"))

    def fickle(spec: RunSpec, *more: Any) -> RunResult:
        return run_schedule(replace(spec, system=next(systems)), *more)

    spec, _ = failure("free-at-once")
    monkeypatch.setattr("onearena.stress.shrink.run_schedule", fickle)
    with pytest.raises(UsageError, match="once and not twice"):
        Shrinker(spec, budget_s=60)


def test_a_schedule_that_passes_is_refused() -> None:
    spec, _ = failure("free-at-once")
    with pytest.raises(UsageError, match="fails on every replay"):
        Shrinker(replace(spec, system="toy"), budget_s=1)


def test_steps_that_cannot_be_taken_are_dropped() -> None:
    spec, _ = failure("free-at-once", first=1)
    assert spec.recording is not None
    idle = [StepRecord("disconnect"), StepRecord("dev:nowhere")]
    spec = replace(spec, recording=(*spec.recording[:2], *idle, *spec.recording[2:]))
    shrinker = Shrinker(spec, budget_s=60)
    labels = [step.label for step in shrinker.steps]
    assert "dev:nowhere" not in labels


def test_the_command_writes_beside_the_file(tmp_path, capsys) -> None:
    spec, result = failure("free-at-once", first=1)
    path = tmp_path / "found.json"
    path.write_text(dump_recording(spec, result))
    assert run(["shrink", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"reproduce: onearena replay {path}.min" in out
    small, head = load_recording(f"{path}.min")
    assert len(small.recording or ()) < 20
    assert head["violations"][0]["rule"] == result.violations[0].rule
    assert run(["replay", f"{path}.min"]) == 1


def test_the_command_answers_in_json(tmp_path, capsys) -> None:
    spec, result = failure("free-at-once", first=1)
    path, out = tmp_path / "found.json", tmp_path / "small.json"
    path.write_text(dump_recording(spec, result))
    assert run(["shrink", str(path), "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verified"] is True
    assert document["after"]["host_calls"] < document["before"]["host_calls"]
    assert parse_recording(out.read_text())[0].system == spec.system


@pytest.mark.parametrize(
    ("text", "word"), [("{", "JSON"), ("[]", "JSON object"), ('{"onearena_choices": 9}', "version")]
)
def test_bad_files_get_one_line(tmp_path, capsys, text: str, word: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert run(["shrink", str(path)]) == 2
    err = capsys.readouterr().err
    assert word in err
    assert err.count("\n") == 1


def test_a_file_that_passes_now_gets_one_line(tmp_path, capsys) -> None:
    spec, result = failure("free-at-once", first=1)
    path = tmp_path / "found.json"
    path.write_text(dump_recording(replace(spec, system="toy"), result))
    assert run(["shrink", str(path)]) == 2
    assert "fails on every replay" in capsys.readouterr().err


def test_another_rule_than_recorded_is_said(tmp_path, capsys) -> None:
    spec, result = failure("free-at-once", first=1)
    other = replace(result, violations=(replace(result.violations[0], rule="3"),))
    path = tmp_path / "found.json"
    path.write_text(dump_recording(spec, other))
    assert run(["shrink", str(path)]) == 3
    assert "recorded" in capsys.readouterr().out


def test_a_campaign_shrinks_each_distinct_failure_once(tmp_path, capsys) -> None:
    args = ["stress", "--system", "toy:free-at-once", "--seeds", "0:8", "--jobs", "1"]
    assert run([*args, "--keep-going", "--out", str(tmp_path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    keys = {
        (f["violations"][0]["oracle"], f["violations"][0]["rule"]) for f in document["failures"]
    }
    small = document["shrunk"]
    # Two of each of four kinds are shrunk; of one kind, what came out alike is told once.
    assert min(len(keys), 4) <= len(small) <= 2 * min(len(keys), 4)
    assert len(document["failures"]) > len(small)
    told = [load_recording(Path(row["file"]))[0] for row in small]
    forms = [",".join(step.label for step in spec.recording[1:]) for spec in told]
    kind_of = {
        f["seed"]: (f["violations"][0]["oracle"], f["violations"][0]["rule"])
        for f in document["failures"]
    }
    shown = [(kind_of[row["seed"]], form) for row, form in zip(small, forms, strict=True)]
    assert len(set(shown)) == len(shown)
    assert {kind for kind, _ in shown} == keys
    assert all(row["verified"] for row in small)
    assert run(["replay", small[0]["file"]]) == 1


def test_shrinking_can_be_left_out(tmp_path, capsys) -> None:
    args = ["stress", "--system", "toy:free-at-once", "--seed", "1", "--out", str(tmp_path)]
    assert run([*args, "--no-shrink"]) == 1
    assert "shrunk" not in capsys.readouterr().out
    assert not list(tmp_path.glob("*.min"))


def test_the_models_that_shrinking_tries_are_those_that_schedules_draw() -> None:
    bands = [max(map(len, declaration_pools(name).values())) for name in PORTFOLIO]
    assert len(bands) == MODELS
    assert [place for place, count in enumerate(bands) if count == 1] == [ONE_BAND]


def test_the_end_of_a_run_is_looked_on_and_not_counted() -> None:
    """A failure may show only after the last step, when all that is left is freed and retired."""
    spec = RunSpec(5, steps=40, state_digests=True)
    whole, cut = Tally(CALLS_MAX), Tally(CALLS_MAX)
    result = run_schedule(spec, whole)
    assert (result.verdict, result.recording[-1].label) == ("pass", "drain")
    assert run_schedule(replace(spec, to_end=False), cut).verdict == "pass"
    assert whole.calls == cut.calls > 20
