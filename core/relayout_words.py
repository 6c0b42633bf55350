"""The cheapest plan from an arena's words: the plans of `onearena.core.relayout`, by a kernel.

Same order of plans, same ties, same plan (a test compares them field by field); the work follows
the demand and the number of bands, never the pool.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.answers import Blocked, Demand, Fits, Infeasible, Rung
from onearena.core.fit_words import Counts, as_counts, fits_words
from onearena.core.relayout import Batch, FencedRange, FrontierChange, Plan, Waits
from onearena.core.words import (
    A_EPOCH,
    B_HIGH,
    B_LOW,
    BAND_HEADER_WORDS,
    BAND_HEADERS,
    Words,
)

_INT64 = np.dtype(np.int64)


def plan_words(words: Words, demand: Demand | Counts) -> Plan | Blocked | Infeasible:
    """The first plan in the order of plans for ``demand`` (units per band), or why there is none.

    Pure: reads the words, changes nothing. The plan holds for the words' epoch only.
    O(bands * reach / smallest unit), where the reach is the demand's bytes and one unit a band.
    """
    counts = as_counts(demand)
    answer = fits_words(words, counts)
    if not isinstance(answer, Fits):
        return answer
    bands = len(counts)
    intervals = np.empty((2, bands, 2), _INT64)
    cost = np.empty(4, _INT64)
    rung = int(kernels.plan_choose(words, counts, int(answer.rung), intervals, cost))
    assert rung >= 0, f"demand {demand} fits on {answer.rung!r} and no layout was found"
    order = np.empty(bands, _INT64)
    outside = np.empty((bands, 2), _INT64)
    assert kernels.plan_shape(words, intervals[0], order, outside), f"no order for {intervals[0]}"
    return _as_plan(words, counts, rung, intervals[0], cost.tolist(), order, outside)


def _as_plan(
    words: Words,
    counts: Counts,
    rung: int,
    intervals: NDArray[np.int64],
    cost: list[int],
    order: NDArray[np.int64],
    outside: NDArray[np.int64],
) -> Plan:
    """Let the kernel write all units into one array and cut it into batches and grants."""
    demand: Demand = tuple(counts.tolist())
    bands = len(demand)
    at = left = 0
    sizes: list[tuple[int, int]] = []
    for more, (moved, settling) in zip(demand, outside.tolist(), strict=True):
        sizes.append((at, moved))
        at += 3 * moved + settling + more
        left += moved + settling
    offsets = np.array(sizes, _INT64)[:, 0].copy()
    flat = np.empty(at, _INT64)
    settles = np.zeros(bands, np.bool_)
    fences = np.empty((left, 3), _INT64)
    ranges = int(
        kernels.plan_fill(words, counts, intervals, order, outside, flat, offsets, settles, fences)
    )
    frontiers: list[FrontierChange] = []
    batches: list[Batch] = []
    heads = words[BAND_HEADERS : BAND_HEADERS + BAND_HEADER_WORDS * bands].reshape(bands, -1)
    today = heads[:, [B_LOW, B_HIGH]].tolist()
    wanted = intervals.tolist()
    for band in order.tolist():
        if wanted[band] != today[band]:
            frontiers.append(FrontierChange(band, *wanted[band]))
        start, moved = sizes[band]
        if moved:
            middle = start + moved
            waits = Waits.SETTLE if settles[band] else Waits.NOTHING
            batches.append(Batch(band, flat[start:middle], flat[middle : middle + moved], waits))
    flat.flags.writeable = False
    return Plan(
        epoch=int(words[A_EPOCH]),
        demand=demand,
        rung=Rung(rung),
        frontiers=tuple(frontiers),
        batches=tuple(batches),
        fenced=tuple(FencedRange(*row) for row in fences[:ranges].tolist()),
        grants=tuple(
            flat[start + 2 * moved : start + 2 * moved + more]
            for (start, moved), more in zip(sizes, demand, strict=True)
        ),
        copied_bytes=cost[0],
        waits=cost[1],
        holes_left=cost[2],
    )
