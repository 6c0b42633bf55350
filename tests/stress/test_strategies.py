"""Strategies choose only what is possible, and each what its name says."""

from __future__ import annotations

from collections import Counter

import pytest

from onearena.core.device.modeled import Step, StepKind
from onearena.stress.choices import Choices
from onearena.stress.strategies.base import STRATEGIES, DelayBounded, RandomWalk, SlowReader

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
