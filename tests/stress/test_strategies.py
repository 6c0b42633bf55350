"""Strategies choose only what is possible, and each what its name says."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from onearena.core.device.modeled import Step, StepKind
from onearena.stress.choices import Choices
from onearena.stress.cli import run
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.strategies.base import DelayBounded, RandomWalk, SlowReader
from onearena.stress.strategies.pct import POINTS_AMONG, Pct, least_probability
from onearena.stress.strategies.portfolio import (
    DRAWN,
    SHARES,
    STRATEGIES,
    PctCount,
    shares_text,
)
from onearena.stress.strategies.pos import PartialOrder, conflict
from onearena.stress.strategies.slow_writer import SlowWriter

KINDS = ("device", "admit", "forward", "free")
WEIGHTS = (10, 1, 5, 1)
STEPS = tuple(Step(StepKind.EFFECT, stream) for stream in range(4))
NAMES = tuple(f"dev:{stream}" for stream in range(4))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_only_possible_kinds_are_chosen(name: str) -> None:
    strategy = STRATEGIES[name](Choices(1))
    for allowed in ({1}, {0, 3}, {2, 3}, set(range(4))):
        for _ in range(50):
            assert strategy.kind(KINDS, WEIGHTS, allowed.__contains__) in allowed
    assert strategy.kind(KINDS, WEIGHTS, lambda _: False) == -1


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_device_steps_are_in_range_and_reproducible(name: str) -> None:
    runs = []
    for _ in range(2):
        strategy = STRATEGIES[name](Choices(7))
        runs.append([strategy.device(STEPS[:n], NAMES[:n]) for n in (1, 2, 3, 4) * 50])
    assert runs[0] == runs[1]
    assert all(0 <= index < n for index, n in zip(runs[0], (1, 2, 3, 4) * 50, strict=True))


def test_kinds_follow_their_weights() -> None:
    strategy = RandomWalk(Choices(3))
    counts = Counter(strategy.kind(KINDS, WEIGHTS, lambda _: True) for _ in range(3400))
    assert 1800 < counts[0] < 2200
    assert 850 < counts[2] < 1150
    assert 140 < counts[1] < 270


def test_a_stalled_stream_stands_still_for_long() -> None:
    strategy = SlowReader(Choices(5))
    picks = [strategy.device(STEPS, NAMES) for _ in range(2000)]
    longest = dict.fromkeys(range(4), 0)
    absent = dict(longest)
    for pick in picks:
        for stream in range(4):
            absent[stream] = 0 if stream == pick else absent[stream] + 1
            longest[stream] = max(longest[stream], absent[stream])
    assert max(longest.values()) > 40


def test_a_stalled_stream_runs_when_nothing_else_can() -> None:
    strategy = SlowReader(Choices(5))
    assert {strategy.device(STEPS[:1], NAMES[:1]) for _ in range(200)} == {0}


def test_fifo_leaves_its_order_a_bounded_number_of_times() -> None:
    for seed in range(20):
        strategy = DelayBounded(Choices(seed))
        delays = strategy.delays
        picks = [strategy.device(STEPS, NAMES) for _ in range(500)]
        assert sum(pick > 0 for pick in picks) == delays <= 3


def order_of(strategy, queues: dict[str, list[StepKind]]) -> list[str]:
    """Run queues of steps to their ends; the actors in the order in which they ran."""
    left = {name: list(kinds) for name, kinds in queues.items()}
    ran: list[str] = []
    while any(left.values()):
        names = [name for name, kinds in left.items() if kinds]
        steps = [Step(left[name][0], place) for place, name in enumerate(names)]
        name = names[strategy.device(steps, names)]
        left[name].pop(0)
        ran.append(name)
    return ran


def test_pct_of_depth_one_runs_each_actor_to_its_end() -> None:
    queues = {name: [StepKind.EFFECT] * 5 for name in "abc"}
    seen = set()
    for seed in range(60):
        ran = order_of(Pct(Choices(seed), 1), queues)
        switches = sum(one != two for one, two in itertools.pairwise(ran))
        assert switches == 2
        seen.add(tuple(dict.fromkeys(ran)))
    assert len(seen) == 6  # every order of three actors


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_pct_switches_at_most_depth_minus_one_times_more(depth: int) -> None:
    queues = {name: [StepKind.EFFECT] * 60 for name in "abc"}
    most = 0
    for seed in range(80):
        strategy = Pct(Choices(seed), depth)
        ran = order_of(strategy, queues)
        switches = sum(one != two for one, two in itertools.pairwise(ran))
        most = max(most, switches)
        assert switches <= 2 + (depth - 1)
        assert (strategy.actors, strategy.taken) == (3, 180)
    assert most == 2 + (depth - 1)


def test_pct_hits_a_bug_of_depth_two_as_often_as_promised(monkeypatch) -> None:
    """The bug: b's only step falls right between a's 7th and 8th."""
    monkeypatch.setattr("onearena.stress.strategies.pct.POINTS_AMONG", 17)
    queues = {"a": [StepKind.EFFECT] * 16, "b": [StepKind.EFFECT]}
    runs = 4000
    hits = sum(order_of(Pct(Choices(seed), 2), queues)[7] == "b" for seed in range(runs))
    promised = least_probability(2, 2, 17)
    assert hits / runs > promised * 0.85
    assert hits / runs < promised * 1.5


def test_which_of_two_points_lowers_deeper_is_drawn_apart_from_time(monkeypatch) -> None:
    """A first lowered, then b: whether a or b runs on must not follow from who came first."""
    monkeypatch.setattr("onearena.stress.strategies.pct.POINTS_AMONG", 2)
    queues = {name: [StepKind.EFFECT] * 6 for name in "ab"}
    stayed = set()
    for seed in range(60):
        strategy = Pct(Choices(seed), 3)
        if len({step for step, _ in strategy._points}) == 2:
            ran = order_of(strategy, queues)
            stayed.add(ran[0] == ran[1])
    assert stayed == {True, False}


def test_the_bound_is_counted_over_the_campaign() -> None:
    count = PctCount()
    assert count.lines() == []
    count.add(1, 5, 100)
    count.add(2, 7, 90)
    count.add(2, 6, 120)
    bounds = count.bounds()
    assert bounds[1] == (1, 1 / 7, pytest.approx(1 / 7))
    runs, one, together = bounds[2]
    assert (runs, one) == (2, 1 / (7 * POINTS_AMONG))
    assert together == pytest.approx(2 * one, rel=1e-3)
    assert "n 7 device actors, k 120 device steps" in count.lines()[0]
    count.add(2, 7, POINTS_AMONG + 1)
    assert count.bounds()[2][1] == 0.0
    assert any("no bound" in line for line in count.lines())


def test_pos_lets_either_of_two_conflicting_steps_come_first() -> None:
    queues = {name: [StepKind.EFFECT] * 4 for name in "ab"}
    seen = {tuple(order_of(PartialOrder(Choices(seed)), queues)) for seed in range(900)}
    assert len(seen) == 70  # all interleavings of four and four


def test_pos_keeps_the_priority_of_what_does_not_conflict() -> None:
    assert conflict(StepKind.EFFECT, StepKind.TRANSFER_EFFECT)
    assert conflict(StepKind.PASS, StepKind.COMPLETE)
    assert not conflict(StepKind.EFFECT, StepKind.START)
    assert not conflict(StepKind.START, StepKind.START)
    queues = {name: [StepKind.START] for name in "abcd"}
    firsts = Counter()
    for seed in range(200):
        choices = Choices(seed)
        order_of(PartialOrder(choices), queues)
        firsts[choices.draw("pos.priority", 2)] += 1
        assert choices._lanes["pos.priority"].count == 5  # one a step, none drawn again
    assert set(firsts) == {0, 1}


def test_a_slow_writer_stands_still_in_mid_work_and_copies_to_the_host_never() -> None:
    names = ("dev:forward0", "dev:d2h0", "dev:h2d0")
    steps = (Step(StepKind.EFFECT, 0), Step(StepKind.EFFECT, 1), Step(StepKind.START, 2))
    strategy = SlowWriter(Choices(4))
    picks = [strategy.device(steps, names) for _ in range(3000)]
    # Only forward0 is in mid-work and writes: it is stalled nearly always.
    assert picks.count(0) < 30 < picks.count(1) < picks.count(1) + picks.count(2)
    begun = tuple(Step(StepKind.START, stream) for stream in range(3))
    fresh = SlowWriter(Choices(4))
    assert {fresh.device(begun, names) for _ in range(200)} == {0, 1, 2}


def test_the_portfolio_draws_every_strategy_by_its_share() -> None:
    assert set(SHARES) == set(STRATEGIES) == set(DRAWN)
    assert all(DRAWN.count(name) == share for name, share in SHARES.items())
    drawn = Counter(
        run_schedule(RunSpec(seed, "toy", steps=5)).options.strategy for seed in range(160)
    )
    assert set(drawn) == set(STRATEGIES)
    assert shares_text({"random": 3, "pos": 1}) == "random 3 (4/16), pos 1 (1/16)"


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_named_strategy_runs_and_replays_without_itself(name: str) -> None:
    spec = RunSpec(3, "toy", strategy=name, state_digests=True)
    result = run_schedule(spec)
    assert result.verdict == "pass"
    assert result.options.strategy == name
    assert result.pct[0] == (int(name[-1]) if name.startswith("pct") else 0)
    again = run_schedule(RunSpec(3, "toy", recording=result.recording))
    assert again.digest == result.digest
    assert again.divergence is None


def test_the_command_takes_a_strategy(capsys) -> None:
    args = ["stress", "--system", "toy:last-use-only", "--seeds", "0:30", "--jobs", "1"]
    assert run([*args, "--strategy", "pct-3", "--no-shrink"]) == 1
    out = capsys.readouterr().out
    assert "--strategy pct-3" in out
    assert "depth 3:" in out
    assert "random" not in out.partition("strategies")[2].splitlines()[0]
    assert run(["stress", "--seed", "1", "--strategy", "luck"]) == 2
    assert "pct-4" in capsys.readouterr().err
