"""The coverage-guided strategy: pure in the seed, and it reaches more than drawing alone."""

from __future__ import annotations

import pytest

from onearena.stress.choices import Choices
from onearena.stress.cli import run
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.strategies import coverage
from onearena.stress.strategies.coverage import BLOCK_SEEDS, FRESH, Points, changed, is_guided
from onearena.stress.strategies.portfolio import GUIDED_BLOCKS, shares_text


def points_of_block(block: int, strategy: str) -> set[str]:
    """Distinct points of one block of seeds."""
    found: set[str] = set()
    for seed in range(block * BLOCK_SEEDS, (block + 1) * BLOCK_SEEDS):
        points = Points()
        result = run_schedule(RunSpec(seed, strategy=strategy), points)
        assert result.verdict == "pass", result.violations
        assert result.divergence is None
        found |= points.of(result)
    return found


def test_it_reaches_more_points_than_random_at_equal_schedules() -> None:
    guided = points_of_block(0, "coverage") | points_of_block(2, "coverage")
    drawn = points_of_block(0, "random") | points_of_block(2, "random")
    assert len(guided) > 1.1 * len(drawn)


def test_a_schedule_depends_on_its_seed_alone() -> None:
    spec = RunSpec(FRESH + 4, system="toy", strategy="coverage")
    coverage._BLOCKS.clear()
    alone = run_schedule(spec)
    coverage._BLOCKS.clear()
    for seed in range(FRESH + 6):
        in_order = run_schedule(RunSpec(seed, system="toy", strategy="coverage"))
        if seed == spec.seed:
            assert in_order == alone
    assert run_schedule(spec) == alone  # asked for again, after later ones
    assert alone.options is not None
    assert alone.options.strategy == "coverage"


def test_later_members_of_a_block_are_changed_set_ups() -> None:
    coverage._BLOCKS.clear()
    for seed in range(FRESH + 8):
        run_schedule(RunSpec(seed, system="toy", strategy="coverage"))
    (block,) = coverage._BLOCKS.values()
    assert all(spec.setup is None for spec in block.specs[:FRESH])
    assert all(spec.setup is not None for spec in block.specs[FRESH:])
    assert sum(kept.first for kept in block.kept) == len(block.points)


def test_a_changed_set_up_differs_in_a_few_values() -> None:
    setup = {"arena.model": [3], "swarm.off": [999, 0, 512], "swarm.factor": [0] * 30}
    for seed in range(50):
        new = changed(setup, Choices(seed))
        assert {name: len(values) for name, values in new.items()} == {
            name: len(values) for name, values in setup.items()
        }
        places = [(a, b) for name in setup for a, b in zip(setup[name], new[name], strict=True)]
        assert sum(a != b for a, b in places) <= 5


def test_the_portfolio_gives_whole_blocks_to_it() -> None:
    blocks = [
        {is_guided(RunSpec(seed)) for seed in range(block * BLOCK_SEEDS, (block + 1) * BLOCK_SEEDS)}
        for block in range(2 * GUIDED_BLOCKS)
    ]
    assert all(len(block) == 1 for block in blocks)
    assert sum(True in block for block in blocks) == 2
    assert not is_guided(RunSpec(GUIDED_BLOCKS * BLOCK_SEEDS - 1, strategy="random"))
    assert "coverage 3 (one block of seeds in 16)" in shares_text({"coverage": 3})


def test_a_failure_of_a_changed_set_up_replays_from_its_recording() -> None:
    coverage._BLOCKS.clear()
    for seed in range(BLOCK_SEEDS):
        result = run_schedule(RunSpec(seed, system="toy:last-use-only", strategy="coverage"))
        if result.verdict == "violation" and seed >= FRESH:
            break
    else:
        pytest.fail("no failure among the changed set-ups")
    again = run_schedule(RunSpec(seed, system="toy:last-use-only", recording=result.recording))
    assert again.verdict == "violation"
    assert again.digest == result.digest
    assert again.divergence is None


def test_the_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["stress", "--system", "toy", "--strategy", "coverage", "--seed", "3"])
    assert code == 0
    assert "coverage 1" in capsys.readouterr().out
