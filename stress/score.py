"""Shares and medians with 95% intervals, for the score of planted faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

Z95: Final = 1.959964
"""97.5% quantile of the normal distribution."""


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """95% interval of a share (Wilson's score interval); all of [0, 1] without a trial."""
    assert 0 <= hits <= trials, f"{hits} of {trials}"
    if not trials:
        return 0.0, 1.0
    share = hits / trials
    middle = share + Z95**2 / (2 * trials)
    spread = Z95 * math.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))
    scale = 1 + Z95**2 / trials
    # The bound is exactly 0 or 1 where all trials agree; rounding would miss it by a hair.
    low = (middle - spread) / scale if hits else 0.0
    high = (middle + spread) / scale if hits < trials else 1.0
    return low, high


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower median, and order statistics between which the true one lies with a chance of at
    least 95%, whatever the distribution (the binomial interval of the sign test). With fewer than
    six values that is the whole range, with a smaller chance.
    """
    assert values, "the median of nothing"
    ordered = sorted(values)
    count = len(ordered)
    tail, cut = 0.0, 0
    # The largest cut with P(Binomial(count, 1/2) < cut) <= 2.5%: as many are left out on each side.
    while cut < count // 2:
        tail += math.comb(count, cut) / 2**count
        if tail > 0.025:
            break
        cut += 1
    low = max(cut - 1, 0)
    return ordered[(count - 1) // 2], ordered[low], ordered[count - 1 - low]
