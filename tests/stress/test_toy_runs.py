"""Schedules against the toy allocator: silent on the correct one, loud on each planted mistake."""

from __future__ import annotations

import pytest

from onearena.stress.recordings import dump_recording, parse_recording, same_failure
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.toy import BUGS

CLEAN_SEEDS = range(25)
HUNT_SEEDS = range(60)


def first_failure(system: str) -> tuple[RunSpec, RunResult]:
    for seed in HUNT_SEEDS:
        spec = RunSpec(seed, system)
        result = run_schedule(spec)
        if result.verdict != "pass":
            return spec, result
    raise AssertionError(f"{system} was not caught in {len(HUNT_SEEDS)} schedules")


def test_the_correct_toy_raises_no_alarm() -> None:
    for seed in CLEAN_SEEDS:
        result = run_schedule(RunSpec(seed, "toy"))
        assert result.verdict == "pass", (seed, result.violations, result.crash)
        assert result.steps >= 200


@pytest.mark.parametrize("bug", BUGS)
def test_each_mistake_is_caught_by_the_order_oracle(bug: str) -> None:
    _, result = first_failure(f"toy:{bug}")
    assert result.verdict == "violation"
    # Whichever oracle is first; within a few schedules it is the order oracle too.
    caught_by_order = any(
        violation.oracle == "order" and violation.events
        for seed in HUNT_SEEDS
        for violation in run_schedule(RunSpec(seed, f"toy:{bug}")).violations
    )
    assert caught_by_order


def test_a_failure_replays_from_its_file_with_an_equal_trace() -> None:
    spec, result = first_failure("toy:free-at-once")
    replayed, head = parse_recording(dump_recording(spec, result))
    again = run_schedule(replayed)
    assert again.digest == result.digest
    assert same_failure(head, again)
    assert again.divergence is None


def test_a_clean_schedule_replays_with_an_equal_trace() -> None:
    spec = RunSpec(3, "toy")
    result = run_schedule(spec)
    assert result.verdict == "pass"
    again = run_schedule(RunSpec(3, "toy", recording=_recording(spec)))
    assert again.verdict == "pass"
    assert again.digest == result.digest


def test_the_file_decides_and_not_its_seed() -> None:
    spec, result = first_failure("toy:last-use-only")
    replayed, head = parse_recording(dump_recording(spec, result))
    other = RunSpec(spec.seed + 1, replayed.system, recording=replayed.recording)
    again = run_schedule(other)
    assert again.digest == result.digest
    assert same_failure(head, again)


def test_a_removed_step_diverges_by_name_or_still_fails() -> None:
    spec, result = first_failure("toy:free-at-once")
    steps = result.recording
    diverged = 0
    for gone in range(1, len(steps) - 1):
        shorter = (*steps[:gone], *steps[gone + 1 :])
        again = run_schedule(RunSpec(spec.seed, spec.system, recording=shorter))
        if again.divergence is not None:
            diverged += 1
            assert again.divergence.step >= gone
            assert again.divergence.name
        else:
            assert again.verdict in ("violation", "pass")
    assert diverged


def test_an_impossible_step_names_itself() -> None:
    spec, result = first_failure("toy:free-at-once")
    steps = list(result.recording)
    steps.insert(1, type(steps[1])("finish"))
    again = run_schedule(RunSpec(spec.seed, spec.system, recording=tuple(steps)))
    assert again.divergence is not None
    assert (again.divergence.step, again.divergence.name) == (1, "finish")


def _recording(spec: RunSpec) -> tuple[object, ...]:
    from onearena.stress.choices import Choices
    from onearena.stress.run import build_rig, run_rig

    choices = Choices(spec.seed)
    rig = build_rig(spec, choices)
    run_rig(rig, spec)
    return choices.record()
