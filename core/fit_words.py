"""Feasibility from an arena's words: the answers of `onearena.core.fit`, at the speed of a kernel.

Every function reads the words and changes nothing, so a caller may ask at any time between two
calls that change units. Costs follow the bands and the fixed units, never the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.answers import (
    Answer,
    Blocked,
    Blocker,
    BlockReason,
    Demand,
    Fits,
    Infeasible,
    Rung,
)
from onearena.core.words import (
    A_BANDS,
    A_BYTES,
    B_UNIT_BYTES,
    BAND_HEADER_WORDS,
    BAND_HEADERS,
    Words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Counts = NDArray[np.int64]

_FITS = (Fits(Rung.NONE), Fits(Rung.COMPACT), Fits(Rung.RELAYOUT))
_REASONS: tuple[BlockReason, ...] = ("quarantined", "transfer", "pinned")
_INT64 = np.dtype(np.int64)


def as_counts(demand: Demand | Sequence[int] | Counts) -> Counts:
    """``demand`` as an int64 array; one that is such an array already is taken as it is."""
    if isinstance(demand, np.ndarray) and demand.dtype == _INT64:
        return demand
    return np.array(demand, _INT64)


def fits_words(words: Words, demand: Demand | Counts) -> Answer:
    """Whether some layout serves ``demand`` (units per band): as `fit.fits` on a view.

    O(bands); plus unsettled units at outer edges unless rung NONE is obvious; plus fixed units *
    bands if blocked. Pure, without a lock: not while another thread changes units.
    """
    counts = as_counts(demand)
    code = kernels.fit_query(words, counts)
    if code < kernels.FIT_BLOCKED:
        return _FITS[code]
    assert code != kernels.FIT_MISUSED, (
        f"demand {demand}: give one number in [0, 2**31) for each of {words[A_BANDS]} bands"
    )
    if code == kernels.FIT_INFEASIBLE:
        missing = kernels.fit_missing(words, counts, 1, len(counts) - 1)
        return Infeasible(int(kernels.fit_binding(words, counts)), int(missing))
    return Blocked(blockers_words(words, counts))


def blockers_words(words: Words, counts: Counts) -> tuple[Blocker, ...]:
    """Blockers of a demand that is blocked: see `Blocked`. O(fixed units * bands)."""
    spans = np.empty((len(counts), 3), _INT64)
    out = np.empty((max(1, int(kernels.count_fixed(words))), 3), _INT64)
    found = int(kernels.fit_blockers(words, counts, spans, out))
    return tuple(
        Blocker(band, unit, _REASONS[reason]) for band, unit, reason in sorted(out[:found].tolist())
    )


def more_units_words(words: Words, band: int, *, honour_fixed: bool = False) -> int:
    """How many more units of ``band`` fit while every other band keeps its count. O(bands).

    Every unit counts as movable unless ``honour_fixed``.
    """
    assert 0 <= band < words[A_BANDS], f"band {band} of {words[A_BANDS]}"
    return int(kernels.fit_more(words, band, honour_fixed))


def more_by_rung(words: Words, band: int) -> tuple[int, int, int]:
    """How many more units of ``band`` alone fit on rung none, compact and relayout, or a lower one.

    Binary search on ``fits_words``: O(bands * log(units)) queries' work. Pure.
    """
    counts = np.zeros(int(words[A_BANDS]), _INT64)
    found = [0, 0, 0]
    most = more_units_words(words, band)
    for rung in (2, 1, 0):
        low, high = 0, most
        counts[band] = high
        if high and kernels.fit_query(words, counts) <= rung:
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            counts[band] = middle
            if kernels.fit_query(words, counts) <= rung:
                low = middle
            else:
                high = middle - 1
        found[rung] = most = low
    return found[0], found[1], found[2]


def largest_multiple_words(
    words: Words, demand: Demand | Counts, *, honour_fixed: bool = False
) -> int:
    """The largest k such that k times ``demand`` fits (0: not even once). O(bands * log S).

    Every unit counts as movable unless ``honour_fixed``. ``demand`` asks for something.
    """
    counts = as_counts(demand)
    assert len(counts) == words[A_BANDS], f"demand {demand} for {words[A_BANDS]} bands"
    unit_bytes = words[BAND_HEADERS + B_UNIT_BYTES :: BAND_HEADER_WORDS][: len(counts)]
    step_bytes = int(counts @ unit_bytes)
    assert step_bytes > 0, f"demand {demand} asks for nothing: every multiple of it fits"
    most = int(words[A_BYTES]) // step_bytes
    return int(kernels.fit_multiple(words, counts, honour_fixed, most))
