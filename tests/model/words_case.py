"""A small case put straight into an arena's words, so that every combination of states occurs.

The words are those that the data plane would hold: a test of the maps' upkeep is elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from cases import (
    COUNTED,
    FIXED,
    FREED_QUARANTINED,
    FREED_SENDING,
    HOLE,
    PENDING,
    PINNED,
    QUARANTINED,
    SCALE,
    SENDING,
    VACATED,
    Case,
    geometry_of,
)

from onearena.core import words as layout
from onearena.core.geometry import ArenaGeometry
from onearena.core.words import Words, band_header, create_words

TRANSFER = 1 << layout.UNIT_TRANSFERS_SHIFT
USE = 1 << layout.UNIT_USES_SHIFT
WORDS = {
    HOLE: layout.HOLE,
    PENDING: layout.PENDING | USE,
    VACATED: layout.VACATED | USE,
    PINNED: layout.LIVE | layout.UNIT_PINNED,
    SENDING: layout.LIVE | TRANSFER,
    FREED_SENDING: layout.PENDING | TRANSFER,
    QUARANTINED: layout.LIVE | layout.UNIT_QUARANTINED,
    FREED_QUARANTINED: layout.PENDING | layout.UNIT_QUARANTINED,
}
COUNTERS = {
    HOLE: layout.B_HOLE,
    PENDING: layout.B_PENDING,
    FREED_SENDING: layout.B_PENDING,
    FREED_QUARANTINED: layout.B_PENDING,
    VACATED: layout.B_VACATED,
}


MAPS = {
    layout.B_HOLE_MAP: {HOLE},
    layout.B_OCCUPIED_MAP: {*COUNTED, PENDING, VACATED, FREED_SENDING},
    layout.B_FIXED_MAP: set(FIXED),
    layout.B_RELEASED_MAP: {PENDING, VACATED, FREED_SENDING, FREED_QUARANTINED},
}


def words_of(case: Case, *, epoch: int = 7) -> Words:
    """The words of the case. Holes at outer edges that may move stay inside the band."""
    geometry = geometry_of(case)
    words = _empty_words(geometry).copy()
    words[layout.A_EPOCH] = epoch
    for index, band in enumerate(case.bands):
        if not band.cells:
            continue
        grid, head = geometry.bands[index].grid, band_header(index)
        units = [grid.first_at_or_after(start * SCALE) for start, _ in band.cells]
        words[head + layout.B_LOW], words[head + layout.B_HIGH] = units[0], units[-1] + 1
        first, letters = grid.first_unit, [letter for _, letter in band.cells]
        table = int(words[head + layout.B_UNIT_WORD])
        words[table + units[0] : table + units[0] + len(units)] = [
            WORDS.get(letter, layout.LIVE) for letter in letters
        ]
        for letter in set(letters):
            count = letters.count(letter)
            words[head + COUNTERS.get(letter, layout.B_LIVE)] += count
            if letter == FREED_SENDING:
                words[head + layout.B_FREED_FIXED] = count
            if letter == FREED_QUARANTINED:
                words[head + layout.B_QUARANTINED_FREED] = count
        # At most 28 cells: every map is one word at its only level.
        for at, members in MAPS.items():
            bits = sum(
                1 << (unit - first)
                for unit, letter in zip(units, letters, strict=True)
                if letter in members
            )
            words[words[head + at]] = bits
    return words


@lru_cache(maxsize=8)
def _empty_words(geometry: ArenaGeometry) -> Words:
    return create_words(geometry, arena=0)


def counts_of(case: Case) -> np.ndarray:
    return np.array(case.demand, dtype=np.int64)


def handed_out(case: Case) -> list[int]:
    return [band.count(COUNTED) for band in case.bands]
