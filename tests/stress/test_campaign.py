"""Campaigns: no seed lost, crashes reported, exit codes as promised."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from onearena.core.errors import DeviceError
from onearena.stress.arrivals import Arrival
from onearena.stress.campaign import (
    Campaign,
    Plan,
    arrivals_window,
)
from onearena.stress.engine import LocalEngine
from onearena.stress.reach import count_of, judged_from, planned, table_cells
from onearena.stress.report import summary_text
from onearena.stress.run import RunResult
from onearena.stress.summary import Histogram, Summary


def result(seed: int, verdict: str = "pass") -> RunResult:
    return RunResult(seed, "toy", "toy", verdict, 200, "d", {"step.admit": 1}, 10, 20)


def test_every_seed_once() -> None:
    seen: list[int] = []

    def note(summary: Summary, one: RunResult | None) -> None:
        if one is not None:
            seen.append(one.seed)

    summary = Campaign(Plan(0, 20, "toy", jobs=2, recheck=False)).run(note)
    assert sorted(seen) == list(range(20))
    assert summary.schedules == 20
    assert summary.exit_code() == 0
    assert summary.steps.median >= 200


def test_a_killed_worker_loses_no_seed() -> None:
    campaign = Campaign(Plan(0, 24, "toy", jobs=2, recheck=False, keep_going=True))
    seen: list[tuple[int, str]] = []
    killed: list[int] = []

    def note(summary: Summary, one: RunResult | None) -> None:
        if one is None:
            return
        seen.append((one.seed, one.verdict))
        if len(seen) == 3:
            assert isinstance(campaign.engine, LocalEngine)
            pid = campaign.engine.workers[0].process.pid
            assert pid is not None
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    summary = campaign.run(note)
    assert killed
    assert sorted(seed for seed, _ in seen) == list(range(24))
    assert [verdict for _, verdict in seen].count("crash") == 1
    assert "exit code -9" in next(f.crash for f in summary.failures)
    assert summary.exit_code() == 1


def test_a_sample_runs_again_in_another_process() -> None:
    summary = Campaign(Plan(0, 9, "toy", jobs=2)).run()
    assert summary.rechecked == 1
    assert summary.nondeterministic == []


def test_an_interrupt_says_where_to_resume() -> None:
    def note(summary: Summary, one: RunResult | None) -> None:
        if summary.schedules >= 2:
            raise KeyboardInterrupt

    summary = Campaign(Plan(0, None, "toy", jobs=1)).run(note)
    assert summary.interrupted
    assert summary.exit_code() == 130
    assert 0 < summary.next_seed <= 8


def test_a_budget_ends_a_clean_campaign_with_0_and_an_empty_one_with_6() -> None:
    clean = Campaign(Plan(0, None, "toy", jobs=1, budget_s=6.0)).run()
    assert clean.schedules > 0
    assert clean.exit_code() == 0
    empty = Campaign(Plan(0, None, "toy", jobs=1, budget_s=1e-9)).run()
    assert empty.schedules == 0
    assert empty.exit_code() == 6


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["pass"], 0),
        (["pass", "violation"], 1),
        (["crash"], 1),
        (["stuck", "pass"], 4),
        (["stuck", "violation"], 1),
        ([], 6),
    ],
)
def test_exit_codes(verdicts: list[str], code: int) -> None:
    summary = Summary()
    for seed, verdict in enumerate(verdicts):
        summary.add(result(seed, verdict))
    assert summary.exit_code() == code


def test_nondeterminism_comes_first() -> None:
    summary = Summary(nondeterministic=[4])
    summary.add(result(1, "violation"))
    assert summary.exit_code() == 3


def _summary_of(schedules: int, **fields: Any) -> Summary:
    summary = Summary(planned_names=("step.admit", "step.never"), **fields)
    summary.add(result(0))
    summary.schedules = schedules
    return summary


def test_vacuity_is_judged_from_2000_schedules_on() -> None:
    few = _summary_of(1999)
    assert few.exit_code() == 0
    assert "never reached: step.never\nnot judged: that takes 2000" in summary_text(few)
    enough = _summary_of(2000)
    assert enough.exit_code() == 5
    assert enough.vacuous == ["step.never"]
    assert "VACUITY" in summary_text(enough)
    enough.reach["step.never"] = 1
    assert enough.exit_code() == 0
    assert "never reached" not in summary_text(enough)


def test_rare_situations_are_judged_later_and_other_profiles_never() -> None:
    late = {"step.never": 5000}
    assert _summary_of(4999, judged_from=late).exit_code() == 0
    assert "from 5000 schedules on" in summary_text(_summary_of(4999, judged_from=late))
    assert _summary_of(5000, judged_from=late).exit_code() == 5
    other = _summary_of(9999, default_profile=False)
    assert other.exit_code() == 0
    assert "default profile" in summary_text(other)
    assert not Plan(strategy="pos").default_profile
    assert not Plan(arrivals=(Arrival(0, 1, 1, ()),)).default_profile
    assert Plan(models=("kimi-k3",)).default_profile


def test_a_broken_rule_comes_before_vacuity() -> None:
    summary = _summary_of(2000)
    summary.add(result(1, "violation"))
    assert summary.exit_code() == 1


def test_cells_are_planned_where_they_can_be_reached() -> None:
    assert set(table_cells()) <= set(planned("arena"))
    toy = {name for name in planned("toy") if name.startswith("cell.")}
    assert toy
    assert not [name for name in toy if "move" in name or "zeroing" in name]
    reach = {"cell.reader.fork.load.stream": 3}
    summary = Summary(planned_names=("cell.reader.fork.load",), reach=reach, schedules=2000)
    assert summary.exit_code() == 0
    # Nothing falls behind where all state is kept for good.
    assert "step.window" not in planned("arena", ("deepseek-v3.2",))
    assert "step.window" in planned("arena", ("gpt-oss-20b",))
    assert set(judged_from("arena")) < set(judged_from("arena", ("kimi-k3",)))
    assert set(judged_from("arena", ("kimi-k3",))) <= set(planned("arena", ("kimi-k3",)))


def test_a_failure_stops_the_campaign_unless_told_otherwise() -> None:
    first = Campaign(Plan(0, 64, "toy:free-at-once", jobs=1)).run()
    assert first.exit_code() == 1
    assert len(first.failures) == 1
    assert first.failures[0].recording


def test_histogram() -> None:
    histogram = Histogram()
    assert (histogram.lowest, histogram.median, histogram.highest) == (0, 0, 0)
    for value in (5, 1, 9, 5):
        histogram.add(value)
    assert (histogram.lowest, histogram.median, histogram.highest) == (1, 5, 9)


def test_windows_of_a_trace_are_bounded_and_differ() -> None:
    rows = tuple(Arrival(at, at, 1, tuple(range(at))) for at in range(1000))
    windows = [arrivals_window(rows, seed) for seed in range(20)]
    assert all(len(window) == 256 for window in windows)
    assert len({window[0].at_us for window in windows}) == 20
    assert max(len(row.prefix) for row in windows[11]) <= 64
    assert arrivals_window((), 5) == ()


def test_the_plan_for_a_toy_asks_for_no_moves() -> None:
    assert "step.move" in planned("arena")
    assert "step.move" not in planned("toy")


def test_the_plan_follows_the_models() -> None:
    any_model = planned("arena")
    assert {"retire.window", "retire.chunk", "rung.relayout", "step.trim"} <= set(any_model)
    one_band = planned("arena", ("deepseek-v3.2",))
    assert not {"retire.window", "rung.compact", "step.trim"} & set(one_band)
    assert "retire.chunk" in planned("arena", ("llama-4-scout",))
    assert "rung.relayout" not in planned("arena", ("llama-4-scout",))


def test_cells_count_on_one_stream_and_on_two() -> None:
    assert "cell.writer.move.forward" in table_cells()
    reach = {"cell.writer.move.forward": 2, "cell.writer.move.forward.stream": 5}
    assert count_of(reach, "cell.writer.move.forward") == 7
    assert len(set(table_cells())) == len(table_cells())


def test_workers_that_all_die_end_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(Plan(0, None, "toy", jobs=1, keep_going=True))
    monkeypatch.setattr("onearena.stress.engine.work", os.abort)
    with pytest.raises(DeviceError, match="one after the other"):
        campaign.run()
