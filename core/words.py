"""Layout of the one ``int64`` array ("words") that holds the whole state of an arena's bands.

``words`` is: an arena header, the retreat log of the last call, one header per band, then the
tables of every band. One array makes a joint call one kernel call and a frozen view one copy.
All-zero tables are a valid start (every unit beyond its frontier, every id fresh), so creating
an arena costs one ``calloc`` and O(bands), not O(pool).

Per band (``capacity`` units of the grid, ids ``1..ids``):

=============  ==================  ==========================================================
table          indexed by          word
=============  ==================  ==========================================================
unit word      unit (biased)       state, flags, transfer count, use count: see ``UNIT_*``
p2v            unit (biased)       the whole virtual id of a LIVE unit, else 0
v2p            id index            physical unit; 0 (the sink) for an id that is not live
id word        id index            ``generation << 36 | references``
ring           position            FIFO of freed id indices
hole map       unit - first_unit   hierarchical bitmap, 64-ary
occupied map   unit - first_unit   hierarchical bitmap of LIVE, PENDING and VACATED units
fixed map      unit - first_unit   hierarchical bitmap of units that may not move: under a
                                   transfer, quarantined, or LIVE and pinned
released map   unit - first_unit   hierarchical bitmap of PENDING and VACATED units
=============  ==================  ==========================================================

"Biased": the header stores ``offset - first_unit``, so ``words[base + unit]`` is the word.

Only units between the frontiers mean anything: a retreat moves a frontier in O(log units) and
leaves the words, and the bits of the hole map, beyond it as they are. The state of a unit
outside ``[low_unit, high_unit)`` is BEYOND whatever its word says. The occupied, fixed and
released maps have no set bit beyond a frontier.

Kernels freeze these constants when they are compiled, and numba's cache watches the kernel
file only: `kernels.LAYOUT_DIGEST` has to be brought up to date with any change here (a test
compares them), which is what makes cached kernels stale.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onearena.core.geometry import ArenaGeometry

Words = NDArray[np.int64]

# --- ids -------------------------------------------------------------------------------------
ID_INDEX_BITS = 26
ID_BAND_SHIFT = 26
ID_ARENA_SHIFT = 31
ID_GENERATION_SHIFT = 36
ID_INDEX_MASK = (1 << 26) - 1
ID_BAND_MASK = 31
ID_ARENA_MASK = 31
ID_OWNER_MASK = (1 << 36) - (1 << 26)
ID_GENERATION_LAST = (1 << 27) - 1
ID_REFERENCES_MASK = (1 << 36) - 1
BANDS_MAX = 32
ARENAS_MAX = 32
SPARE_IDS = 64
"""Id indices beyond the capacity, so that a retired index never makes ids bind."""
REUSE_AFTER_IDS = 1 << 16
"""Freed indices that wait before one is reused while fresh ones are left.

More would touch new memory for ever (a page fault every few hundred units); fewer would use up
the generations of a few indices: 2^16 of them last for 2^43 units.
"""

# --- unit words ------------------------------------------------------------------------------


class UnitState(enum.IntEnum):
    """State of one physical unit."""

    BEYOND = 0
    HOLE = 1
    LIVE = 2
    PENDING = 3
    VACATED = 4


BEYOND, HOLE, LIVE = int(UnitState.BEYOND), int(UnitState.HOLE), int(UnitState.LIVE)
PENDING, VACATED = int(UnitState.PENDING), int(UnitState.VACATED)
MARK_SOURCE, MARK_TARGET = 5, 6
"""Marks that a move sets while it validates; never seen between calls."""
UNIT_STATE_MASK = 7
UNIT_PINNED = 8
UNIT_QUARANTINED = 16
UNIT_WRITTEN = 32
UNIT_FLAGS_MASK = UNIT_PINNED | UNIT_QUARANTINED | UNIT_WRITTEN
UNIT_TRANSFERS_SHIFT = 8
UNIT_TRANSFERS_MASK = 0xFFFF
UNIT_USES_SHIFT = 24
UNIT_USES_MASK = 0xFFFFFFFF

# --- arena header ----------------------------------------------------------------------------
A_MAGIC = 0
A_VERSION = 1
A_BANDS = 2
A_BYTES = 3
A_ARENA = 4
A_EPOCH = 5
A_RETREATS = 6
A_ERROR_INDEX = 7
A_ERROR_DETAIL = 8
A_RESULT = 9
A_WORDS = 10
A_RETREAT_LOG = 16
"""Triples (band, start unit, end unit) of the last call; at most two per band."""
A_DEMAND = A_RETREAT_LOG + 3 * 2 * BANDS_MAX
"""Units demanded of each band: the argument of `kernels.allocate`."""
BAND_HEADERS = A_DEMAND + BANDS_MAX
BAND_HEADER_WORDS = 64
MAGIC = 0x0AE5A
VERSION = 1

# --- band header -----------------------------------------------------------------------------
B_UNIT_BYTES = 0
B_ORIGIN = 1
B_FIRST = 2
B_CAPACITY = 3
B_PLACEMENT = 4
B_LOW = 5
B_HIGH = 6
B_LIVE = 7
B_PENDING = 8
B_VACATED = 9
B_HOLE = 10
B_QUARANTINED = 11
B_QUARANTINED_FREED = 12
B_FRESH = 13
B_RING_HEAD = 14
B_RING_COUNT = 15
B_RETIRED = 16
B_IDS = 17
B_UNIT_WORD = 18
B_P2V = 19
B_V2P = 20
B_ID_WORD = 21
B_RING = 22
B_LEVELS = 23
B_HOLE_MAP = 24
B_OCCUPIED_MAP = 30
B_PINNED = 36
B_FREED_FIXED = 46
"""Units freed under a transfer and not quarantined: fixed, no free cell, and not handed out."""
B_FIXED_MAP = 48
B_RELEASED_MAP = 54
# Scratch of one call; meaningless between calls.
B_GROW = 40
B_LIMIT = 41
B_GROW_LOW = 42
B_NEW_LOW = 43
B_NEW_HIGH = 44
B_TOUCHED = 45

FREE_RELEASED, FREE_PENDING, FREE_RETREATS, FREE_LOG = 0, 1, 2, 3
"""Tail of what `kernels.free` answers: counts, then the retreat log."""

PLACED_LOW, PLACED_FLOATING, PLACED_HIGH = 0, 1, 2
MAP_LEVELS_MAX = 5
ALIGN_WORDS = 8

# --- answers of kernels ----------------------------------------------------------------------


class Code(enum.IntEnum):
    """What a kernel answers; below 0 the call was refused and nothing changed."""

    OK = 0
    NO_ROOM = -1
    NO_IDS = -2
    BAD_DEMAND = -3
    SINK_ID = -10
    NEGATIVE_ID = -11
    FOREIGN_ARENA = -12
    FOREIGN_BAND = -13
    NEVER_ALLOCATED = -14
    STALE_ID = -15
    DOUBLE_FREE = -16
    TOO_MANY_REFERENCES = -17
    BAD_BAND = -20
    BAD_UNIT = -21
    NOT_LIVE = -22
    UNDER_TRANSFER = -23
    PINNED = -24
    QUARANTINED = -25
    DUPLICATE_UNIT = -26
    TARGET_NOT_FREE = -27
    BEYOND_LIMIT = -28
    COUNT_UNDERFLOW = -29
    COUNT_OVERFLOW = -30
    NOT_RELEASED = -31
    HAS_BEEN_WRITTEN = -32
    BAD_COUNT = -33


# Plain integers: kernels freeze module globals, and an enum member is not an integer to numba.
OK = int(Code.OK)
NO_ROOM, NO_IDS, BAD_DEMAND = int(Code.NO_ROOM), int(Code.NO_IDS), int(Code.BAD_DEMAND)
SINK_ID, NEGATIVE_ID = int(Code.SINK_ID), int(Code.NEGATIVE_ID)
FOREIGN_ARENA, FOREIGN_BAND = int(Code.FOREIGN_ARENA), int(Code.FOREIGN_BAND)
NEVER_ALLOCATED, STALE_ID = int(Code.NEVER_ALLOCATED), int(Code.STALE_ID)
DOUBLE_FREE, TOO_MANY_REFERENCES = int(Code.DOUBLE_FREE), int(Code.TOO_MANY_REFERENCES)
BAD_BAND, BAD_UNIT, NOT_LIVE = int(Code.BAD_BAND), int(Code.BAD_UNIT), int(Code.NOT_LIVE)
UNDER_TRANSFER, PINNED = int(Code.UNDER_TRANSFER), int(Code.PINNED)
QUARANTINED, DUPLICATE_UNIT = int(Code.QUARANTINED), int(Code.DUPLICATE_UNIT)
TARGET_NOT_FREE, BEYOND_LIMIT = int(Code.TARGET_NOT_FREE), int(Code.BEYOND_LIMIT)
COUNT_UNDERFLOW, COUNT_OVERFLOW = int(Code.COUNT_UNDERFLOW), int(Code.COUNT_OVERFLOW)
NOT_RELEASED, HAS_BEEN_WRITTEN = int(Code.NOT_RELEASED), int(Code.HAS_BEEN_WRITTEN)
BAD_COUNT = int(Code.BAD_COUNT)


def layout_digest() -> str:
    """Hash of every constant above, in name order; `kernels.LAYOUT_DIGEST` must equal it."""
    constants = sorted(
        (name, value)
        for name, value in globals().items()
        if name.isupper() and isinstance(value, int)
    )
    return hashlib.sha256(repr(constants).encode()).hexdigest()[:16]


def band_header(band: int) -> int:
    """Position of a band's header in the words."""
    return BAND_HEADERS + BAND_HEADER_WORDS * band


@dataclass(frozen=True, slots=True)
class TableOffsets:
    """Where one band's tables lie (word positions, not biased) and their lengths in words."""

    unit_word: int
    p2v: int
    v2p: int
    id_word: int
    ring: int
    hole_levels: tuple[int, ...]
    occupied_levels: tuple[int, ...]
    fixed_levels: tuple[int, ...]
    released_levels: tuple[int, ...]
    ids: int
    end: int


def map_level_words(units: int) -> tuple[int, ...]:
    """Words of each level of a hierarchical bitmap over ``units`` bits, finest first.

    Each level has one spare word, always zero: a search that steps off a level's end reads it
    and climbs on, without a bounds check.
    """
    levels = []
    bits = max(1, units)
    while True:
        words = (bits + 63) // 64
        levels.append(words + 1)
        if words == 1:
            return tuple(levels)
        bits = words


def plan_tables(start: int, capacity_units: int) -> TableOffsets:
    """Place one band's tables from word ``start`` on, each on a 64-byte boundary."""
    ids = min(capacity_units + SPARE_IDS, ID_INDEX_MASK)
    assert capacity_units <= ids, f"{capacity_units} units exceed the {ID_INDEX_MASK} ids"
    at = start

    def take(words: int) -> int:
        nonlocal at
        here = -(-at // ALIGN_WORDS) * ALIGN_WORDS
        at = here + words
        return here

    unit_word, p2v = take(capacity_units), take(capacity_units)
    v2p, id_word, ring = take(ids + 1), take(ids + 1), take(ids)
    hole = tuple(take(words) for words in map_level_words(capacity_units))
    occupied = tuple(take(words) for words in map_level_words(capacity_units))
    fixed = tuple(take(words) for words in map_level_words(capacity_units))
    released = tuple(take(words) for words in map_level_words(capacity_units))
    return TableOffsets(
        unit_word, p2v, v2p, id_word, ring, hole, occupied, fixed, released, ids, at
    )


def create_words(geometry: ArenaGeometry, *, arena: int) -> Words:
    """The words of an empty arena; O(bands) work beyond a zeroed allocation.

    40 bytes per unit of capacity, plus 4/64 of a word each for the bitmaps.
    """
    bands = geometry.bands
    assert 1 <= len(bands) <= BANDS_MAX, f"{len(bands)} bands, not 1 to {BANDS_MAX}"
    assert 0 <= arena < ARENAS_MAX, f"arena {arena} is not in [0, {ARENAS_MAX})"
    tables = []
    at = band_header(len(bands))
    for band in bands:
        tables.append(plan_tables(at, band.grid.capacity_units))
        at = tables[-1].end
    words: Words = np.zeros(at + ALIGN_WORDS, dtype=np.int64)
    words[A_MAGIC], words[A_VERSION] = MAGIC, VERSION
    words[A_BANDS], words[A_BYTES] = len(bands), geometry.arena_bytes
    words[A_ARENA], words[A_WORDS] = arena, words.size
    placed = {"low_end": PLACED_LOW, "floating": PLACED_FLOATING, "high_end": PLACED_HIGH}
    for index, (band, table) in enumerate(zip(bands, tables, strict=True)):
        grid = band.grid
        head = words[band_header(index) : band_header(index + 1)]
        head[B_UNIT_BYTES], head[B_ORIGIN] = grid.unit_bytes, grid.origin_bytes
        head[B_FIRST], head[B_CAPACITY] = grid.first_unit, grid.capacity_units
        head[B_PLACEMENT] = placed[band.placement.value]
        empty_at = {PLACED_LOW: grid.first_unit, PLACED_FLOATING: 0, PLACED_HIGH: grid.end_unit}
        head[B_LOW] = head[B_HIGH] = empty_at[int(head[B_PLACEMENT])]
        head[B_FRESH], head[B_IDS] = 1, table.ids
        head[B_UNIT_WORD] = table.unit_word - grid.first_unit
        head[B_P2V] = table.p2v - grid.first_unit
        head[B_V2P], head[B_ID_WORD], head[B_RING] = table.v2p, table.id_word, table.ring
        levels = len(table.hole_levels)
        assert levels <= MAP_LEVELS_MAX
        head[B_LEVELS] = levels
        head[B_HOLE_MAP : B_HOLE_MAP + levels] = table.hole_levels
        head[B_OCCUPIED_MAP : B_OCCUPIED_MAP + levels] = table.occupied_levels
        head[B_FIXED_MAP : B_FIXED_MAP + levels] = table.fixed_levels
        head[B_RELEASED_MAP : B_RELEASED_MAP + levels] = table.released_levels
    return words
