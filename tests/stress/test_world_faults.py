"""Faults of the world: drawn per run, counted, taken by a correct system, absent from old files."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import replace

import pytest

from onearena.stress.choices import Choices, StepRecord
from onearena.stress.reach import planned
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.workload import FAULTS

OPTIONS_ON = {f"swarm.{name}": [len(rates) - 1] for name, rates in FAULTS.items()}
RARE = ("refuse_rung", "evict_veto")
"""They need a demand that fits by moves only, and a choice of victims: minutes of schedules."""


def with_faults(seed: int, only: str = "") -> RunSpec:
    """A schedule of that seed with all faults at their highest rate, or one of them."""
    setup = dict(run_schedule(RunSpec(seed, state_digests=True)).recording[0].decisions)
    for name, value in OPTIONS_ON.items():
        setup[name] = value if not only or name == f"swarm.{only}" else [0]
    return RunSpec(seed, setup=setup)


def test_every_fault_happens_and_breaks_no_rule() -> None:
    reached: Counter[str] = Counter()
    for seed in range(12):
        result = run_schedule(with_faults(seed))
        assert result.verdict == "pass", (seed, result.violations, result.crash)
        reached.update(result.reach)
    assert [name for name in FAULTS if not reached[f"fault.{name}"] and name not in RARE] == []


def test_every_fault_is_planned_for() -> None:
    assert {f"fault.{name}" for name in FAULTS} <= set(planned("arena"))


@pytest.mark.parametrize("name", ["query_false", "process_batch", "mid_snapshot"])
def test_a_fault_that_is_off_never_happens(name: str) -> None:
    on = [run_schedule(with_faults(seed, name)).reach for seed in range(3)]
    assert sum(reach.get(f"fault.{name}", 0) for reach in on) > 0
    for reach in on:
        others = [f"fault.{other}" for other in FAULTS if other != name]
        assert not any(other in reach for other in others)


def test_files_written_before_the_faults_replay_without_them() -> None:
    spec = with_faults(5)
    assert spec.setup is not None
    setup = {name: values for name, values in spec.setup.items() if name not in OPTIONS_ON}
    off = run_schedule(RunSpec(5, setup={**setup, **{name: [0] for name in OPTIONS_ON}}))
    again = run_schedule(replace(spec, recording=(StepRecord("setup", setup),)))
    assert again.divergence is None
    assert again.options is not None
    assert off.options is not None
    assert again.options.faults == off.options.faults
    assert not any(again.options.faults[name] for name in FAULTS)


def test_a_later_decision_is_zero_where_it_was_not_recorded() -> None:
    old = Choices(1, setup={"known": [2]})
    assert old.later("new", 1000) == 0
    assert old.later("known", 5) == 2
    assert old.divergence is None
    assert old.record()[0].decisions == {"new": [0], "known": [2]}
    drawn = [Choices(seed).later("new", 1000) for seed in range(20)]
    assert len(set(drawn)) > 10


def test_a_faulty_schedule_replays_from_its_recording() -> None:
    first = run_schedule(replace(with_faults(3), state_digests=True))
    again = run_schedule(RunSpec(3, recording=first.recording))
    assert again.divergence is None
    assert again.digest == first.digest
    assert any(name.startswith("fault.") for name in first.reach)


def test_the_wall_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a draw of the world: nothing may read a clock at all."""
    calm = run_schedule(RunSpec(7))

    def jumping(count: list[int] = [0]) -> float:  # noqa: B006 - its own memory
        count[0] += 1
        return float(int.from_bytes(hashlib.blake2b(b"%d" % count[0], digest_size=3).digest()))

    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, jumping)
    assert run_schedule(RunSpec(7)) == calm


# -- what a divergence says -------------------------------------------------------------------
def recorded(seed: int) -> tuple[StepRecord, ...]:
    """A recording to edit."""
    return run_schedule(RunSpec(seed, steps=60, system="toy", state_digests=True)).recording


def test_a_replay_survives_decisions_that_the_code_no_longer_takes() -> None:
    steps = recorded(2)
    edited = tuple(StepRecord(s.label, {**s.decisions, "gone.name": [1, 2]}) for s in steps)
    first = run_schedule(RunSpec(2, steps=60, system="toy", recording=steps))
    again = run_schedule(RunSpec(2, steps=60, system="toy", recording=edited))
    assert again.divergence is None
    assert again.digest == first.digest


def test_a_divergence_names_the_first_step_that_lacks_a_decision() -> None:
    steps = recorded(2)
    name = "forward.stream"
    edited = tuple(
        StepRecord(s.label, {key: v for key, v in s.decisions.items() if key != name})
        for s in steps
    )
    found = run_schedule(RunSpec(2, steps=60, system="toy", recording=edited)).divergence
    first = next(i for i, s in enumerate(steps) if name in s.decisions)
    assert found is not None
    assert (found.step, found.name) == (first, name)
    assert "never recorded" in found.message


def test_a_divergence_names_the_first_step_that_is_not_possible() -> None:
    steps = recorded(2)
    edited = (*steps[:9], StepRecord("unpin"), *steps[9:])
    found = run_schedule(RunSpec(2, steps=60, system="toy", recording=edited)).divergence
    assert found is not None
    assert (found.step, found.name) == (9, "unpin")
