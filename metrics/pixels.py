"""A picture of the arena, one row of bytes: the worst state in each pixel wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core.snapshot import Snapshot

WIDTH_MAX: Final = 1 << 14

FREE, HOLE, LIVE, PENDING, VACATED, FENCED = range(6)
"""Pixel values, better to worse; 1 to 4 are the unit states of a snapshot."""

NAMES: Final = ("free", "hole", "live", "pending", "vacated", "fenced")


def pixels(
    snapshot: Snapshot,
    states: Sequence[bytes],
    *,
    width: int,
    start_bytes: int,
    end_bytes: int,
) -> bytes:
    """`width` bytes, one a pixel, for arena bytes [start_bytes, end_bytes).

    Pixel p covers the bytes from start + p * (end - start) / width on, rounded outwards, so that
    every byte is in a pixel and each pixel has one. `states` are those of each band's units, as in
    `BandSnapshot.states`. O(width * bands + units shown).
    """
    assert 0 <= start_bytes < end_bytes <= snapshot.arena_bytes, (start_bytes, end_bytes)
    assert 1 <= width <= WIDTH_MAX, width
    step = np.arange(width, dtype=np.int64)
    size = end_bytes - start_bytes
    lows = start_bytes + step * size // width
    highs = start_bytes + ((step + 1) * size + width - 1) // width
    row = np.full(width, FREE, np.uint8)
    for band, text in zip(snapshot.bands, states, strict=True):
        if len(text):
            cells = np.frombuffer(text, np.uint8)
            _paint_band(row, lows, highs, cells, band.start_bytes, band.unit_bytes)
    for fence in snapshot.fences:
        row[(lows < fence.end_bytes) & (highs > fence.start_bytes)] = FENCED
    return row.tobytes()


def _paint_band(
    row: NDArray[np.uint8],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    cells: NDArray[np.uint8],
    start: int,
    unit_bytes: int,
) -> None:
    """The greatest of each pixel's units, where the band lies in it."""
    end = start + len(cells) * unit_bytes
    inside = np.flatnonzero((lows < end) & (highs > start))
    if not len(inside):
        return
    first = (np.maximum(lows[inside], start) - start) // unit_bytes
    last = (np.minimum(highs[inside], end) - 1 - start) // unit_bytes
    # Segments overlap where a unit spans two pixels: reduceat takes [first, next first), and the
    # last unit of each pixel is added by itself.
    top = int(last[-1]) + 1
    worst = np.maximum.reduceat(cells[:top], first)
    row[inside] = np.maximum(row[inside], np.maximum(worst, cells[last]))
