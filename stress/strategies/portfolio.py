"""All strategies by name, and the shares in which the default campaign draws them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from onearena.stress.strategies.base import DelayBounded, Make, RandomWalk, SlowReader
from onearena.stress.strategies.pct import DEPTHS, POINTS_AMONG, Pct, least_probability
from onearena.stress.strategies.pos import PartialOrder
from onearena.stress.strategies.slow_writer import SlowWriter

DEFAULT: Final = "portfolio"
GUIDED: Final = "coverage"
GUIDED_BLOCKS: Final = 16
"""Of the portfolio, one block of seeds in so many is coverage-guided; see `coverage.py`."""

STRATEGIES: Final[dict[str, Make]] = {
    "random": RandomWalk,
    "slow-reader": SlowReader,
    "slow-writer": SlowWriter,
    "delay-bounded": DelayBounded,
    "pos": PartialOrder,
    **{f"pct-{depth}": partial(Pct, depth=depth) for depth in DEPTHS},
}
"""A new strategy joins by an entry here, and by its shares below."""

SHARES: Final[dict[str, int]] = {
    "random": 4,
    "slow-reader": 3,
    "delay-bounded": 2,
    "slow-writer": 2,
    "pos": 1,
    **{f"pct-{depth}": 1 for depth in DEPTHS},
}
"""Of the portfolio: how many of `sum(SHARES.values())` schedules, in the mean."""

DRAWN: Final = tuple(name for name, share in SHARES.items() for _ in range(share))
"""One is drawn evenly."""


class PctCount:
    """What the PCT schedules of a campaign add up to, by depth: runs, most actors, most steps."""

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        self.actors = 0
        self.steps = 0

    def add(self, depth: int, actors: int, steps: int) -> None:
        """One schedule."""
        self.runs[depth] = self.runs.get(depth, 0) + 1
        self.actors = max(self.actors, actors)
        self.steps = max(self.steps, steps)

    def bounds(self) -> dict[int, tuple[int, float, float]]:
        """Depth -> runs, the least probability of one run, and of all of them together."""
        found: dict[int, tuple[int, float, float]] = {}
        for depth, runs in sorted(self.runs.items()):
            one = least_probability(self.actors, depth)
            if depth > 1 and self.steps > POINTS_AMONG:
                one = 0.0  # a step that no point can fall on: nothing is promised
            found[depth] = (runs, one, 1 - (1 - one) ** runs)
        return found

    def lines(self) -> list[str]:
        """For the end block; none without a PCT schedule."""
        if not self.runs:
            return []
        parts = [
            f"depth {depth}: {runs} runs, 1 in {1 / one:,.0f} each, {100 * together:.2g}% together"
            if one
            else f"depth {depth}: {runs} runs, no bound (more steps than {POINTS_AMONG})"
            for depth, (runs, one, together) in self.bounds().items()
        ]
        return [
            (
                f"PCT, n {self.actors} device actors, k {self.steps} device steps (points among "
                f"{POINTS_AMONG}): a bug of that depth in device order is hit at least"
            ),
            *(f"  {part}" for part in parts),
        ]

    def to_json(self) -> dict[str, object]:
        """Plain form."""
        return {
            "actors": self.actors,
            "device_steps": self.steps,
            "points_among": POINTS_AMONG,
            "depths": {
                str(depth): {"runs": runs, "least_probability": one, "together": together}
                for depth, (runs, one, together) in self.bounds().items()
            },
        }


def shares_text(counts: Mapping[str, int]) -> str:
    """`random 33 (4/17), ...`: schedules by strategy, with their share of the portfolio."""
    whole = sum(SHARES.values())
    parts = [
        f"{name} {counts[name]} ({SHARES[name]}/{whole})" for name in SHARES if counts.get(name)
    ]
    if counts.get(GUIDED):
        parts.append(f"{GUIDED} {counts[GUIDED]} (one block of seeds in {GUIDED_BLOCKS})")
    return ", ".join(parts)
