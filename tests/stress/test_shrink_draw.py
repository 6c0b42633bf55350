"""Drawn candidates: pure, near what they start from, and complete once they were run."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace

import pytest

from onearena.stress.arena_scenarios import PORTFOLIO
from onearena.stress.choices import StepRecord
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.shrink import ROUNDS_MAX, Shrinker
from onearena.stress.shrink_draw import DROPPED, MODEL, MODELS, OFF, ONE_BAND, drawn_setup, varied
from onearena.stress.shrink_fork import outcome_in_fork, processor_seconds
from onearena.stress.shrink_parts import NO, Outcome, Size
from onearena.stress.workload import STEP_KINDS

SETUP = StepRecord(
    "setup",
    {MODEL: (3,), "arena.context_units": (5,), "arena.odd": (700,), OFF: (400, 400, 400)},
)
STEPS = (
    SETUP,
    StepRecord("admit", {"admit.stream": (1,), "request.prompt_rest": (2,)}),
    StepRecord("dev:forward0"),
    StepRecord("forward", {"forward.stream": (1,)}),
    StepRecord("abort", {"abort.which": (0,)}),
)


def drawn(count: int) -> list[tuple[StepRecord, ...]]:
    return [varied(STEPS, random.Random(seed)) for seed in range(count)]


def test_equal_generators_draw_equal_candidates() -> None:
    assert drawn(40) == drawn(40)
    assert len({repr(steps) for steps in drawn(40)}) > 20


def test_a_varied_schedule_stays_near() -> None:
    for steps in drawn(300):
        assert steps[0].label == "setup"
        assert len(STEPS) - 1 - max(DROPPED) <= len(steps) - 1 <= len(STEPS)
        # At most one step is of a kind that was not there; all decisions kept are those recorded.
        strange = [step for step in steps[1:] if step.label not in {s.label for s in STEPS}]
        assert len(strange) <= 1
        for step in steps[1:]:
            if step.decisions:
                assert any(
                    step.label == old.label and step.decisions.items() <= old.decisions.items()
                    for old in STEPS
                )


def test_all_kinds_of_change_are_drawn() -> None:
    many = drawn(300)
    lengths = {len(steps) for steps in many}
    assert lengths >= {2, 3, 4, 5}
    assert any(steps[0].decisions == SETUP.decisions for steps in many)
    assert any("arena.context_units" not in steps[0].decisions for steps in many)
    assert any(steps[0].decisions.get("arena.odd") == [NO] for steps in many)
    models = [tuple(steps[0].decisions[MODEL]) for steps in many]
    assert 3 <= len(set(models)) <= MODELS
    assert models.count((ONE_BAND,)) > len(models) // 4
    order = [step.label for step in STEPS[1:]]
    assert any(
        sorted(labels := [step.label for step in steps[1:]]) == sorted(order) and labels != order
        for steps in many
    )
    added = {step.label for steps in many for step in steps} - {step.label for step in STEPS}
    assert added <= set(STEP_KINDS)
    assert len(added) > 10


def test_a_schedule_without_steps_can_be_varied() -> None:
    assert all(len(varied((SETUP,), random.Random(seed))) <= 2 for seed in range(40))


def test_a_drawn_setup_keeps_the_kinds_in_use() -> None:
    optional = [kind for kind, (_, off) in STEP_KINDS.items() if off]
    setup = StepRecord("setup", {**SETUP.decisions, OFF: (NO,) * len(optional)})
    steps = (setup, *STEPS[1:])
    used = {step.label for step in steps} & set(optional)
    assert used == {"abort"}
    offs = [drawn_setup(steps, random.Random(seed))[OFF] for seed in range(60)]
    assert all(values[optional.index("abort")] == NO for values in offs)
    shares = [sum(values[at] == 0 for values in offs) / 60 for at in range(1, len(optional))]
    assert sum(share > 0.5 for share in shares) > len(optional) - 3


def test_a_schedule_left_open_is_a_schedule() -> None:
    """Whatever is left out of a recording, the arena it makes runs, and its record is whole."""
    result = run_schedule(RunSpec(5, steps=40, state_digests=True))
    assert result.verdict == "pass"
    assert len(PORTFOLIO) == MODELS
    for seed in range(6):
        steps = varied(result.recording, random.Random(seed))
        first = run_schedule(RunSpec(seed, recording=steps, to_end=False))
        assert first.verdict == "pass", first.crash
        again = run_schedule(RunSpec(99, recording=first.recording, to_end=False))
        assert again.digest == first.digest


@pytest.mark.parametrize(
    ("calls", "rounds"), [(8, 0), (9, 1), (14, 1), (15, 2), (20, 2), (21, ROUNDS_MAX)]
)
def test_the_smaller_the_sooner_it_ends(calls: int, rounds: int) -> None:
    spec = RunSpec(1, "toy:free-at-once")
    spec = replace(spec, recording=run_schedule(spec).recording)
    shrinker = Shrinker(spec, budget_s=60)
    assert shrinker._patience(Size(calls, 1, 0, 0)) == rounds
    fewer = Shrinker(spec, budget_s=60, rounds_max=1)
    assert fewer._patience(Size(calls, 1, 0, 0)) == min(rounds, 1)


def test_a_search_whose_share_of_the_budget_is_over_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = RunSpec(1, "toy:free-at-once")
    spec = replace(spec, recording=run_schedule(spec).recording)
    shrinker = Shrinker(spec, budget_s=60)
    monkeypatch.setattr(shrinker, "_patience", lambda _: 3)
    shrinker.search_end = shrinker.started
    small = shrinker.run()
    assert small.verified
    assert not small.finished


def test_a_fork_tells_what_a_candidate_came_to() -> None:
    steps = (SETUP, StepRecord("admit", {"admit.stream": (1,)}))
    outcome = Outcome(steps, Size(3, 2, 1, 9), frozenset((2, 5)))
    told = outcome_in_fork(lambda: outcome)
    assert told is not None
    assert (told.size, told.skipped) == (outcome.size, outcome.skipped)
    plain = [(step.label, {n: tuple(v) for n, v in step.decisions.items()}) for step in told.steps]
    assert plain == [(step.label, dict(step.decisions)) for step in steps]
    assert outcome_in_fork(lambda: None) is None


def test_a_candidate_that_dies_does_not_fail_the_same_way() -> None:
    def die() -> Outcome | None:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    before = processor_seconds()
    assert outcome_in_fork(die) is None
    assert processor_seconds() >= before


def test_forks_change_nothing_about_what_comes_out() -> None:
    spec = RunSpec(1, "toy:free-at-once")
    spec = replace(spec, recording=run_schedule(spec).recording)
    one, other = (
        Shrinker(spec, budget_s=600, replays_max=60, isolated=isolated).run()
        for isolated in (False, True)
    )
    assert one.text == other.text
    assert one.replays == other.replays
