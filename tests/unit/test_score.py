"""Intervals of the score: against what defines them."""

from __future__ import annotations

import math
import random

import pytest

from onearena.stress.cli import run
from onearena.stress.mutants_cli import score_of, score_text
from onearena.stress.score import Z95, median_interval, wilson


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (5, 10), (10, 10), (155, 161), (1, 2000)])
def test_wilson_bounds_are_the_shares_that_a_score_test_just_accepts(
    hits: int, trials: int
) -> None:
    share = hits / trials
    for bound in wilson(hits, trials):
        if 0 < bound < 1:
            error = math.sqrt(bound * (1 - bound) / trials)
            assert abs(share - bound) / error == pytest.approx(Z95)
    low, high = wilson(hits, trials)
    assert 0 <= low <= share <= high <= 1
    assert wilson(161, 161)[0] == pytest.approx(0.9767, abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("count", [6, 7, 20, 61, 161])
def test_the_interval_of_a_median_is_the_narrowest_that_covers(count: int) -> None:
    def covered(cut: int) -> float:
        """Chance that fewer than `cut` draws of `count` lie on neither side of the median."""
        return 1 - 2 * sum(math.comb(count, k) for k in range(cut)) / 2**count

    values = list(range(count))
    random.Random(1).shuffle(values)
    median, low, high = median_interval(values)
    assert median == (count - 1) // 2
    assert low == count - 1 - high
    assert covered(int(low) + 1) >= 0.95
    assert covered(int(low) + 2) < 0.95


def test_few_values_give_their_range() -> None:
    assert median_interval([3]) == (3, 3, 3)
    assert median_interval([9, 1, 4]) == (4, 1, 9)


def _row(name: str, first: int, schedules: int, *, caught: bool = True) -> dict[str, object]:
    row: dict[str, object] = {"id": name, "first_seed": first, "caught": caught, "crashed": 0}
    return {**row, "schedules": schedules, **({"intended_after": 1} if caught else {})}


def test_the_score_counts_hunts_and_campaigns() -> None:
    rows = [_row("A", 0, 5), _row("B", 0, 7), _row("A", 9, 1), _row("B", 9, 400, caught=False)]
    score = score_of(rows)  # type: ignore[arg-type]
    assert (score["hunts"], score["caught"], score["share"]) == (4, 3, 0.75)
    assert score["schedules_median"] == 5
    assert score["schedules_max"] == 7
    assert score["missed"] == ["B from 9"]
    assert [(row["first_seed"], row["caught"]) for row in score["campaigns"]] == [(0, 2), (9, 1)]
    text = score_text(score)
    assert "score 0.750 (95%: 0.301 to 0.954)" in text
    assert "missed: B from 9" in text


@pytest.mark.parametrize("seeds", ["", "x", "1,,2", "3,3", "-1"])
def test_wrong_first_seeds_are_refused(seeds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mutants", "--seeds", seeds, "--only", "M09"]) == 2
    assert "--seeds" in capsys.readouterr().err


def test_hunts_that_the_time_did_not_reach_are_named_and_fail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["mutants", "--within", "0.001", "--only", "M09,M27", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    # A quick machine begins the first hunt in time; none begins the second.
    assert "M27 from 0" in shown.split("not hunted, the time was over: ")[1]
    assert "missed" not in shown


@pytest.mark.parametrize(
    ("command", "option"), [("mutants", "--within"), ("runs prune", "--older-than")]
)
def test_a_wrong_time_is_refused_by_its_own_name(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), option, "soon"]) == 2
    assert option in capsys.readouterr().err
