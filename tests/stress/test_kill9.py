"""A campaign killed at any moment, in the middle of a write too, and resumed, equals one that was
never stopped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kill9_case import MODES, killed_campaigns, remember

from onearena.stress.campaign_plan import Plan
from onearena.stress.run import RunResult

KILLS = 100
CLEAN = Plan(60, 88, "toy")
FAILING = Plan(0, 12, "toy:free-at-once", keep_going=True)


@pytest.fixture(scope="module")
def plans() -> list[tuple[Plan, dict[int, RunResult]]]:
    return [(plan, remember(plan)) for plan in (CLEAN, FAILING)]


def test_killed_and_resumed_equals_uninterrupted(
    plans: list[tuple[Plan, dict[int, RunResult]]], tmp_path: Path
) -> None:
    assert any(one.verdict != "pass" for one in plans[1][1].values())
    done = killed_campaigns(tmp_path, plans, seed=7, kills=KILLS)
    assert all(done[mode] >= KILLS // 20 for mode in MODES), done
