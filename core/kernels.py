"""Every numba CPU kernel of the project, in one file.

numba's cache watches only the file of the compiled function, so a kernel must not call a kernel
of another file, and the layout constants that get frozen in are guarded by `LAYOUT_DIGEST`.

Kernels take and change the ``int64`` words of one arena (`onearena.core.words`). A kernel that
may refuse validates first and changes nothing if it answers a negative `words.Code`; then
``A_ERROR_INDEX`` names the offending position of its argument. Marks that validation sets are
taken back before it returns. Loops follow the request and the number of bands; searches cost
O(log64 units). No kernel raises, allocates or calls back into Python.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from onearena.core.geometry import chain_geometry
from onearena.core.words import (
    A_ARENA,
    A_BANDS,
    A_BYTES,
    A_DEMAND,
    A_EPOCH,
    A_ERROR_DETAIL,
    A_ERROR_INDEX,
    A_RESULT,
    A_RETREAT_LOG,
    A_RETREATS,
    B_CAPACITY,
    B_FIRST,
    B_FIXED_MAP,
    B_FREED_FIXED,
    B_FRESH,
    B_GROW,
    B_GROW_LOW,
    B_HIGH,
    B_HOLE,
    B_HOLE_MAP,
    B_ID_WORD,
    B_IDS,
    B_LEVELS,
    B_LIMIT,
    B_LIVE,
    B_LOW,
    B_NEW_HIGH,
    B_NEW_LOW,
    B_OCCUPIED_MAP,
    B_ORIGIN,
    B_P2V,
    B_PENDING,
    B_PINNED,
    B_PLACEMENT,
    B_QUARANTINED,
    B_QUARANTINED_FREED,
    B_RELEASED_MAP,
    B_RETIRED,
    B_RING,
    B_RING_COUNT,
    B_RING_HEAD,
    B_TOUCHED,
    B_UNIT_BYTES,
    B_UNIT_WORD,
    B_V2P,
    B_VACATED,
    BAD_BAND,
    BAD_COUNT,
    BAD_DEMAND,
    BAD_UNIT,
    BAND_HEADER_WORDS,
    BAND_HEADERS,
    BEYOND,
    BEYOND_LIMIT,
    COUNT_OVERFLOW,
    COUNT_UNDERFLOW,
    DOUBLE_FREE,
    DUPLICATE_UNIT,
    FOREIGN_ARENA,
    FOREIGN_BAND,
    FREE_LOG,
    FREE_PENDING,
    FREE_RELEASED,
    FREE_RETREATS,
    HAS_BEEN_WRITTEN,
    HOLE,
    ID_ARENA_MASK,
    ID_ARENA_SHIFT,
    ID_BAND_MASK,
    ID_BAND_SHIFT,
    ID_GENERATION_LAST,
    ID_GENERATION_SHIFT,
    ID_INDEX_MASK,
    ID_OWNER_MASK,
    ID_REFERENCES_MASK,
    LIVE,
    MARK_SOURCE,
    MARK_TARGET,
    NEGATIVE_ID,
    NEVER_ALLOCATED,
    NO_IDS,
    NO_ROOM,
    NOT_LIVE,
    NOT_RELEASED,
    OK,
    PENDING,
    PINNED,
    PLACED_FLOATING,
    PLACED_HIGH,
    PLACED_LOW,
    QUARANTINED,
    REUSE_AFTER_IDS,
    SINK_ID,
    STALE_ID,
    TARGET_NOT_FREE,
    TOO_MANY_REFERENCES,
    UNDER_TRANSFER,
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_STATE_MASK,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    UNIT_USES_MASK,
    UNIT_USES_SHIFT,
    UNIT_WRITTEN,
    VACATED,
    create_words,
)

LAYOUT_DIGEST = "36b7725c4baa9945"
"""`words.layout_digest()` of the layout these kernels were written for; see `words`."""

_kernel = njit(cache=True, nogil=True, error_model="numpy")


# --- bits ------------------------------------------------------------------------------------


@intrinsic
def _lowest_bit(_typing_context, _word):
    """Index of the lowest set bit of a nonzero int64."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@intrinsic
def _leading_zeros(_typing_context, _word):
    """Zero bits above the highest set bit of a nonzero int64."""

    def generate(_context, builder, _signature, args):
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


# --- hierarchical bitmaps: `at` is the header position of the level offsets -------------------


@_kernel
def map_first(words, at, levels, bit):
    """Smallest set bit >= `bit` (>= 0), or -1. O(levels)."""
    level = 0
    position = bit
    while True:
        word = words[words[at + level] + (position >> 6)] & (-1 << (position & 63))
        if word != 0:
            position = (position & -64) | _lowest_bit(word)
            break
        position = (position >> 6) + 1
        level += 1
        if level == levels:
            return -1
    while level > 0:
        level -= 1
        position = (position << 6) | _lowest_bit(words[words[at + level] + position])
    return position


@_kernel
def map_last(words, at, levels, bit):
    """Largest set bit <= `bit` (>= 0), or -1. O(levels)."""
    level = 0
    position = bit
    while True:
        shift = 63 - (position & 63)
        # Shifting up and back down drops the bits above; the top word bit has shift 0.
        word = words[words[at + level] + (position >> 6)] << shift
        if word != 0:
            position = position - _leading_zeros(word)
            break
        position = (position >> 6) - 1
        level += 1
        if position < 0 or level == levels:
            return -1
    while level > 0:
        level -= 1
        word = words[words[at + level] + position]
        position = (position << 6) | (63 - _leading_zeros(word))
    return position


@_kernel
def map_set(words, at, levels, bit):
    for level in range(levels):
        here = words[at + level] + (bit >> 6)
        before = words[here]
        words[here] = before | (1 << (bit & 63))
        if before != 0:
            return
        bit >>= 6


@_kernel
def map_clear(words, at, levels, bit):
    for level in range(levels):
        here = words[at + level] + (bit >> 6)
        after = words[here] & ~(1 << (bit & 63))
        words[here] = after
        if after != 0:
            return
        bit >>= 6


@_kernel
def map_get(words, at, bit):
    return (words[words[at] + (bit >> 6)] >> (bit & 63)) & 1


@_kernel
def map_set_range(words, at, levels, start, end):
    """Set bits [start, end), not empty. O((end - start) / 64 + levels)."""
    for level in range(levels):
        base = words[at + level]
        first = start >> 6
        last = (end - 1) >> 6
        head = -1 << (start & 63)
        tail = _low_bits((end - 1) & 63)
        if first == last:
            words[base + first] |= head & tail
        else:
            words[base + first] |= head
            for here in range(first + 1, last):
                words[base + here] = -1
            words[base + last] |= tail
        start = first
        end = last + 1


@_kernel
def map_clear_range(words, at, levels, start, end):
    """Clear bits [start, end). O((end - start) / 64 + levels)."""
    for level in range(levels):
        if start >= end:
            return
        base = words[at + level]
        first = start >> 6
        last = (end - 1) >> 6
        head = -1 << (start & 63)
        tail = _low_bits((end - 1) & 63)
        if first == last:
            words[base + first] &= ~(head & tail)
        else:
            words[base + first] &= ~head
            for here in range(first + 1, last):
                words[base + here] = 0
            words[base + last] &= ~tail
        # One level up only the words that became empty lose their bit.
        start = first if words[base + first] == 0 else first + 1
        end = last + 1 if words[base + last] == 0 else last


@_kernel
def _low_bits(highest):
    """Bits 0..highest set; highest <= 63."""
    return -1 if highest == 63 else (1 << (highest + 1)) - 1


# --- geometry of one band; `head` is the position of its header --------------------------------


@_kernel
def header(band):
    return BAND_HEADERS + BAND_HEADER_WORDS * band


@_kernel
def start_address(words, head, unit):
    return words[head + B_ORIGIN] + unit * words[head + B_UNIT_BYTES]


@_kernel
def first_at_or_after(words, head, address):
    """Smallest unit of the band's grid inside the arena that starts at `address` or later."""
    unit = -((words[head + B_ORIGIN] - address) // words[head + B_UNIT_BYTES])
    return max(unit, words[head + B_FIRST])


@_kernel
def last_ending_by(words, head, address):
    """Exclusive end of the units of the band's grid inside the arena that end by `address`."""
    unit = (address - words[head + B_ORIGIN]) // words[head + B_UNIT_BYTES]
    return min(unit, words[head + B_FIRST] + words[head + B_CAPACITY])


@_kernel
def unit_state(words, head, unit):
    """State of any unit of the grid; words beyond the frontiers are stale and not looked at."""
    if unit < words[head + B_LOW] or unit >= words[head + B_HIGH]:
        return BEYOND
    return words[words[head + B_UNIT_WORD] + unit] & UNIT_STATE_MASK


@_kernel
def _blocked(word):
    """Whether a released unit still has to wait: uses, transfers or a quarantine."""
    return (word >> UNIT_TRANSFERS_SHIFT) != 0 or (word & UNIT_QUARANTINED) != 0


@_kernel
def _refuse(words, code, index, detail):
    words[A_ERROR_INDEX] = index
    words[A_ERROR_DETAIL] = detail
    return code


# --- frontiers -------------------------------------------------------------------------------


@_kernel
def plan_growth(words):
    """Place every band's `B_GROW` units beyond its frontiers; answers OK or NO_ROOM.

    Fills B_NEW_LOW, B_NEW_HIGH, B_GROW_LOW. Exact: NO_ROOM only if no choice of sides has room.
    Right to left, every band takes as much as it can on its high side, which leaves the band
    below it the highest possible limit (B_LIMIT). Left to right, every band then chooses the
    side it prefers within what its left neighbour took and its limit leaves. O(bands).
    """
    bands = words[A_BANDS]
    limit = words[A_BYTES]
    for band in range(bands - 1, -1, -1):
        head = header(band)
        grow = words[head + B_GROW]
        low = words[head + B_LOW]
        high = words[head + B_HIGH]
        placement = words[head + B_PLACEMENT]
        words[head + B_LIMIT] = limit
        if low == high:
            if grow == 0:
                continue
            top = last_ending_by(words, head, limit)
            if placement == PLACED_LOW:
                if words[head + B_FIRST] + grow > top:
                    return NO_ROOM
                limit = 0
                continue
            if placement == PLACED_HIGH:
                top = high
            if top - grow < words[head + B_FIRST]:
                return NO_ROOM
            limit = start_address(words, head, top - grow)
            continue
        room = last_ending_by(words, head, limit) - high
        if room < 0:
            return NO_ROOM
        if placement == PLACED_LOW:
            if grow > room:
                return NO_ROOM
            limit = 0
            continue
        above = 0 if placement == PLACED_HIGH else min(grow, room)
        if low - (grow - above) < words[head + B_FIRST]:
            return NO_ROOM
        limit = start_address(words, head, low - (grow - above))
    edge = 0
    for band in range(bands):
        head = header(band)
        grow = words[head + B_GROW]
        low = words[head + B_LOW]
        high = words[head + B_HIGH]
        placement = words[head + B_PLACEMENT]
        below = 0
        if low == high and grow > 0 and placement != PLACED_LOW and placement != PLACED_HIGH:
            low = _opening(words, band, edge)
            high = low
        elif placement == PLACED_HIGH:
            below = grow
        elif placement != PLACED_LOW and grow > 0:
            room_low = low - first_at_or_after(words, head, edge)
            room_high = last_ending_by(words, head, words[head + B_LIMIT]) - high
            # The roomier side, a tie goes low; the other takes what does not fit.
            below = min(grow, room_low) if room_low >= room_high else max(0, grow - room_high)
        words[head + B_GROW_LOW] = below
        words[head + B_NEW_LOW] = low - below
        words[head + B_NEW_HIGH] = high + grow - below
        if words[head + B_NEW_LOW] < words[head + B_NEW_HIGH]:
            edge = start_address(words, head, words[head + B_NEW_HIGH])
    return OK


@_kernel
def _opening(words, band, edge):
    """First unit of an empty float that opens with B_GROW units between `edge` and its limit.

    The free bytes are shared evenly between the gaps that this float and the empty floats that
    open right above it leave: one float alone gets both sides as equal as its grid allows.
    A tie goes low. plan_growth has shown that there is room.
    """
    head = header(band)
    grow = words[head + B_GROW]
    limit = words[head + B_LIMIT]
    gaps = 2
    for above in range(band + 1, words[A_BANDS] - 1):
        other = header(above)
        if words[other + B_LOW] < words[other + B_HIGH]:
            break
        if words[other + B_GROW] > 0:
            gaps += 1
    free_bytes = limit - edge - grow * words[head + B_UNIT_BYTES]
    lowest = first_at_or_after(words, head, edge)
    highest = last_ending_by(words, head, limit) - grow
    left = last_ending_by(words, head, edge + free_bytes // gaps)
    left = min(max(left, lowest), highest)
    right = min(left + 1, highest)
    miss_left = abs(gaps * (start_address(words, head, left) - edge) - free_bytes)
    miss_right = abs(gaps * (start_address(words, head, right) - edge) - free_bytes)
    return left if miss_left <= miss_right else right


@_kernel
def _log_retreat(words, band, start, end):
    at = A_RETREAT_LOG + 3 * words[A_RETREATS]
    words[at] = band
    words[at + 1] = start
    words[at + 2] = end
    words[A_RETREATS] += 1


@_kernel
def _retreat(words, band):
    """Pull the band's frontiers in over outermost holes; log the ranges. O(log units)."""
    head = header(band)
    low = words[head + B_LOW]
    high = words[head + B_HIGH]
    if low == high:
        return
    first = words[head + B_FIRST]
    levels = words[head + B_LEVELS]
    at = head + B_OCCUPIED_MAP
    placement = words[head + B_PLACEMENT]
    new_low = low
    new_high = high
    last = map_last(words, at, levels, high - 1 - first)
    if last < 0:
        # Nothing occupied: an end band goes back to its anchor, a float is nowhere.
        words[head + B_HOLE] = 0
        _log_retreat(words, band, low, high)
        if placement == PLACED_LOW:
            words[head + B_HIGH] = low
        elif placement == PLACED_HIGH:
            words[head + B_LOW] = high
        else:
            words[head + B_LOW] = 0
            words[head + B_HIGH] = 0
        return
    if placement != PLACED_HIGH:
        new_high = last + 1 + first
    if placement != PLACED_LOW:
        new_low = map_first(words, at, levels, low - first) + first
    if new_low > low:
        _log_retreat(words, band, low, new_low)
    if new_high < high:
        _log_retreat(words, band, new_high, high)
    words[head + B_LOW] = new_low
    words[head + B_HIGH] = new_high
    words[head + B_HOLE] -= (new_low - low) + (high - new_high)


@_kernel
def _retreat_touched(words):
    for band in range(words[A_BANDS]):
        if words[header(band) + B_TOUCHED] != 0:
            _retreat(words, band)


@_kernel
def _begin(words):
    """Reset the scratch of one call."""
    words[A_RETREATS] = 0
    for band in range(words[A_BANDS]):
        words[header(band) + B_TOUCHED] = 0


# --- allocation ------------------------------------------------------------------------------


@_kernel
def _bind(words, head, owner, unit, out, k, total):
    """Give `unit` the next id: the longest-freed index once enough wait, else a fresh one."""
    index = words[head + B_FRESH]
    if index <= words[head + B_IDS] and words[head + B_RING_COUNT] < REUSE_AFTER_IDS:
        words[head + B_FRESH] = index + 1
    else:
        ring_head = words[head + B_RING_HEAD]
        index = words[words[head + B_RING] + ring_head]
        ring_head += 1
        words[head + B_RING_HEAD] = 0 if ring_head == words[head + B_IDS] else ring_head
        words[head + B_RING_COUNT] -= 1
    at = words[head + B_ID_WORD] + index
    word = words[at]
    vid = word | owner | index
    words[at] = word + 1
    words[words[head + B_V2P] + index] = unit
    words[words[head + B_P2V] + unit] = vid
    words[words[head + B_UNIT_WORD] + unit] = LIVE
    out[k] = vid
    out[total + k] = unit


@_kernel
def _take_holes(words, head, owner, count, out, k, total):
    """Hand out `count` (<= B_HOLE) holes, the ones nearest the band's origin end first."""
    levels = words[head + B_LEVELS]
    first = words[head + B_FIRST]
    hole_at = head + B_HOLE_MAP
    occupied_at = head + B_OCCUPIED_MAP
    downward = words[head + B_PLACEMENT] == PLACED_HIGH
    low_bit = words[head + B_LOW] - first
    high_bit = words[head + B_HIGH] - first
    left = count
    while left > 0:
        if downward:
            bit = map_last(words, hole_at, levels, high_bit - 1)
        else:
            bit = map_first(words, hole_at, levels, low_bit)
        block = bit >> 6
        here = words[hole_at] + block
        word = words[here]
        # Bits beyond the frontier searched from are stale. The ones beyond the other frontier are
        # too, but come after every hole, and no more than B_HOLE are asked for.
        word &= _low_bits(bit & 63) if downward else -1 << (bit & 63)
        taken = 0
        while word != 0 and left > 0:
            slot = 63 - _leading_zeros(word) if downward else _lowest_bit(word)
            word &= ~(1 << slot)
            taken |= 1 << slot
            _bind(words, head, owner, first + (block << 6) + slot, out, k, total)
            k += 1
            left -= 1
        rest = words[here] & ~taken
        words[here] = rest
        if rest == 0 and levels > 1:
            _clear_above(words, hole_at, levels, block)
        occupied = words[occupied_at] + block
        before = words[occupied]
        words[occupied] = before | taken
        if before == 0 and levels > 1:
            _set_above(words, occupied_at, levels, block)
    words[head + B_HOLE] -= count
    return k


@_kernel
def _clear_above(words, at, levels, bit):
    for level in range(1, levels):
        here = words[at + level] + (bit >> 6)
        after = words[here] & ~(1 << (bit & 63))
        words[here] = after
        if after != 0:
            return
        bit >>= 6


@_kernel
def _set_above(words, at, levels, bit):
    for level in range(1, levels):
        here = words[at + level] + (bit >> 6)
        before = words[here]
        words[here] = before | (1 << (bit & 63))
        if before != 0:
            return
        bit >>= 6


@_kernel
def _extend(words, head, owner, out, k, total):
    """Grow to B_NEW_LOW / B_NEW_HIGH and hand out the new units, outward from the frontiers."""
    grow = words[head + B_GROW]
    if grow == 0:
        return k
    new_low = words[head + B_NEW_LOW]
    new_high = words[head + B_NEW_HIGH]
    below = words[head + B_GROW_LOW]
    first = words[head + B_FIRST]
    levels = words[head + B_LEVELS]
    # (A float that opens has new_low as its place of opening: below is 0.)
    low = new_low + below
    high = new_high - (grow - below)
    if below > 0:
        map_clear_range(words, head + B_HOLE_MAP, levels, new_low - first, low - first)
        map_set_range(words, head + B_OCCUPIED_MAP, levels, new_low - first, low - first)
        for unit in range(low - 1, new_low - 1, -1):
            _bind(words, head, owner, unit, out, k, total)
            k += 1
    if new_high > high:
        map_clear_range(words, head + B_HOLE_MAP, levels, high - first, new_high - first)
        map_set_range(words, head + B_OCCUPIED_MAP, levels, high - first, new_high - first)
        for unit in range(high, new_high):
            _bind(words, head, owner, unit, out, k, total)
            k += 1
    words[head + B_LOW] = new_low
    words[head + B_HIGH] = new_high
    return k


@_kernel
def check_demand(words):
    """Can the demand in A_DEMAND be met without a move? Fills the growth plan; pure otherwise."""
    for band in range(words[A_BANDS]):
        head = header(band)
        demand = words[A_DEMAND + band]
        if demand < 0:
            return _refuse(words, BAD_DEMAND, band, demand)
        # Ids never bind by construction (SPARE_IDS); generations used up could make them.
        if demand > words[head + B_IDS] - words[head + B_RETIRED] - words[head + B_LIVE]:
            if demand > words[head + B_CAPACITY]:
                return _refuse(words, NO_ROOM, band, demand)
            return _refuse(words, NO_IDS, band, demand)
        words[head + B_GROW] = max(0, demand - words[head + B_HOLE])
    return plan_growth(words)


@_kernel
def allocate(words, out):
    """Hand out A_DEMAND units of every band, or none. Holes first, then growth.

    `out` takes the ids, then the units, in chain order; its length is twice the demand's sum.
    """
    code = check_demand(words)
    if code != OK:
        return code
    k = 0
    total = out.size >> 1
    for band in range(words[A_BANDS]):
        head = header(band)
        demand = words[A_DEMAND + band]
        if demand == 0:
            continue
        owner = (words[A_ARENA] << ID_ARENA_SHIFT) | (band << ID_BAND_SHIFT)
        holes = demand - words[head + B_GROW]
        if holes > 0:
            k = _take_holes(words, head, owner, holes, out, k, total)
        k = _extend(words, head, owner, out, k, total)
        words[head + B_LIVE] += demand
    words[A_EPOCH] += 1
    return OK


# --- ids -------------------------------------------------------------------------------------


@_kernel
def check_id(words, vid):
    """OK if `vid` is a live id of this arena, else why not."""
    if vid < 0:
        return NEGATIVE_ID
    if (vid >> ID_ARENA_SHIFT) & ID_ARENA_MASK != words[A_ARENA]:
        return FOREIGN_ARENA
    band = (vid >> ID_BAND_SHIFT) & ID_BAND_MASK
    if band >= words[A_BANDS]:
        return FOREIGN_BAND
    index = vid & ID_INDEX_MASK
    head = header(band)
    if index == 0:
        return SINK_ID if vid >> ID_GENERATION_SHIFT == 0 else NEVER_ALLOCATED
    if index >= words[head + B_FRESH]:
        return NEVER_ALLOCATED
    word = words[words[head + B_ID_WORD] + index]
    generation = vid >> ID_GENERATION_SHIFT
    current = word >> ID_GENERATION_SHIFT
    live = (word & ID_REFERENCES_MASK) != 0
    if generation == current:
        if live:
            return OK
        # The last generation of a retired index stays; any other is only handed out next.
        return DOUBLE_FREE if current == ID_GENERATION_LAST else NEVER_ALLOCATED
    if generation > current:
        return NEVER_ALLOCATED
    return DOUBLE_FREE if generation == current - 1 and not live else STALE_ID


@_kernel
def _id_word_at(words, vid):
    head = header((vid >> ID_BAND_SHIFT) & ID_BAND_MASK)
    return words[head + B_ID_WORD] + (vid & ID_INDEX_MASK)


@_kernel
def free(words, ids, out):
    """Drop one reference per id. Those that lose their last free their unit logically.

    A unit with uses, transfers or a quarantine becomes PENDING, any other a HOLE; frontiers
    then retreat. `out` takes the released ids, from len(ids) on their units, and from
    2 * len(ids) on the counts and the retreat log (FREE_*).
    """
    n = ids.size
    code, k = _drop_references(words, ids)
    if code != OK:
        return _refuse(words, code, k, ids[k])
    _begin(words)
    released = 0
    pending = 0
    k = 0
    while k < n:
        k, released, pending = _free_run(words, ids, k, out, released, pending)
    _retreat_touched(words)
    retreats = words[A_RETREATS]
    out[2 * n + FREE_RELEASED] = released
    out[2 * n + FREE_PENDING] = pending
    out[2 * n + FREE_RETREATS] = retreats
    for k in range(3 * retreats):
        out[2 * n + FREE_LOG + k] = words[A_RETREAT_LOG + k]
    words[A_EPOCH] += 1
    return OK


@_kernel
def _drop_references(words, ids):
    """Count down every id, or none; answers (OK, len) or (code, offending position).

    Counted down at once, so a repeated id is refused only when its references run out.
    """
    owner = -1
    table = 0
    fresh = 0
    for k in range(ids.size):
        vid = ids[k]
        index = vid & ID_INDEX_MASK
        if vid & ID_OWNER_MASK != owner:
            code = check_id(words, vid)
            if code == OK:
                owner = vid & ID_OWNER_MASK
                head = header((vid >> ID_BAND_SHIFT) & ID_BAND_MASK)
                table = words[head + B_ID_WORD]
                fresh = words[head + B_FRESH]
        if vid & ID_OWNER_MASK == owner and 0 < index < fresh:
            word = words[table + index]
            if word >> ID_GENERATION_SHIFT == vid >> ID_GENERATION_SHIFT and (
                word & ID_REFERENCES_MASK != 0
            ):
                words[table + index] = word - 1
                continue
        code = check_id(words, vid)
        if code == NEVER_ALLOCATED and _dropped_here(ids, k):
            code = DOUBLE_FREE
        for j in range(k):
            words[_id_word_at(words, ids[j])] += 1
        return code, k
    return OK, ids.size


@_kernel
def _free_run(words, ids, start, out, released, pending):
    """Release what `ids` from `start` on lost, as far as they belong to one band.

    Header words and bitmap blocks are kept in locals over the run: 64 neighbours cost one
    update of each bitmap. Answers (next position, released, pending).
    """
    n = ids.size
    owner = ids[start] & ID_OWNER_MASK
    head = header((ids[start] >> ID_BAND_SHIFT) & ID_BAND_MASK)
    id_words = words[head + B_ID_WORD]
    v2p = words[head + B_V2P]
    p2v = words[head + B_P2V]
    unit_words = words[head + B_UNIT_WORD]
    first = words[head + B_FIRST]
    slots = words[head + B_IDS]
    ring = words[head + B_RING]
    tail = words[head + B_RING_HEAD] + words[head + B_RING_COUNT]
    tail = tail - slots if tail >= slots else tail
    queued = 0
    holes = 0
    waiting = 0
    block = 0
    mask = 0
    k = start
    while k < n and ids[k] & ID_OWNER_MASK == owner:
        vid = ids[k]
        k += 1
        index = vid & ID_INDEX_MASK
        word = words[id_words + index]
        unit = words[v2p + index]
        if word != (vid >> ID_GENERATION_SHIFT) << ID_GENERATION_SHIFT or unit == 0:
            # References are left, or this is a repeat of an id that was released just now.
            continue
        words[v2p + index] = 0
        words[p2v + unit] = 0
        if word >> ID_GENERATION_SHIFT == ID_GENERATION_LAST:
            words[head + B_RETIRED] += 1
        else:
            words[id_words + index] = word + (1 << ID_GENERATION_SHIFT)
            words[ring + tail] = index
            tail = tail + 1 if tail + 1 < slots else 0
            queued += 1
        out[released] = vid
        out[n + released] = unit
        released += 1
        word = words[unit_words + unit]
        bit = unit - first
        if word & (UNIT_PINNED | UNIT_QUARANTINED) or word >> UNIT_TRANSFERS_SHIFT != 0:
            if _keep_waiting(words, head, unit, bit, word):
                waiting += 1
                continue
        words[unit_words + unit] = HOLE
        holes += 1
        if bit >> 6 != block:
            _holes_in_block(words, head, block, mask)
            block = bit >> 6
            mask = 0
        mask |= 1 << (bit & 63)
    _holes_in_block(words, head, block, mask)
    words[head + B_RING_COUNT] += queued
    words[head + B_LIVE] -= holes + waiting
    words[head + B_PENDING] += waiting
    words[head + B_HOLE] += holes
    if holes > 0:
        words[head + B_TOUCHED] = 1
    return k, released, pending + waiting


@_kernel
def _keep_waiting(words, head, unit, bit, word):
    """A freed unit that is pinned or blocked: drop the pin; PENDING (True) while blocked."""
    levels = words[head + B_LEVELS]
    if word & UNIT_PINNED:
        words[head + B_PINNED] -= 1
        word &= ~UNIT_PINNED
        map_clear(words, head + B_FIXED_MAP, levels, bit)
    if not _blocked(word):
        return False
    if word & UNIT_QUARANTINED:
        words[head + B_QUARANTINED_FREED] += 1
    elif (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0:
        words[head + B_FREED_FIXED] += 1
    words[words[head + B_UNIT_WORD] + unit] = (word & ~UNIT_STATE_MASK) | PENDING
    map_set(words, head + B_RELEASED_MAP, levels, bit)
    _note_fixed(words, head, unit)
    return True


@_kernel
def _holes_in_block(words, head, block, mask):
    """Units `mask` of 64-unit block `block` become holes in both bitmaps."""
    if mask == 0:
        return
    levels = words[head + B_LEVELS]
    here = words[head + B_HOLE_MAP] + block
    before = words[here]
    words[here] = before | mask
    if before == 0:
        _set_above(words, head + B_HOLE_MAP, levels, block)
    here = words[head + B_OCCUPIED_MAP] + block
    after = words[here] & ~mask
    words[here] = after
    if after == 0:
        _clear_above(words, head + B_OCCUPIED_MAP, levels, block)


@_kernel
def _dropped_here(ids, k):
    """Whether an earlier position of this call holds the same id. Only on the error path."""
    for j in range(k):
        if ids[j] == ids[k]:
            return True
    return False


@_kernel
def _fixed_word(word):
    """Whether a unit with this word may not move now."""
    if word & UNIT_STATE_MASK < LIVE:
        return False
    if (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0 or word & UNIT_QUARANTINED:
        return True
    return word & UNIT_PINNED != 0 and word & UNIT_STATE_MASK == LIVE


@_kernel
def _note_fixed(words, head, unit):
    """Bring the fixed map up to date with the unit's word; answers +1, -1 or 0: what changed."""
    fixed = _fixed_word(words[words[head + B_UNIT_WORD] + unit])
    bit = unit - words[head + B_FIRST]
    at = head + B_FIXED_MAP
    if fixed == (map_get(words, at, bit) != 0):
        return 0
    if fixed:
        map_set(words, at, words[head + B_LEVELS], bit)
        return 1
    map_clear(words, at, words[head + B_LEVELS], bit)
    return -1


@_kernel
def _make_hole(words, head, unit):
    before = words[words[head + B_UNIT_WORD] + unit]
    words[words[head + B_UNIT_WORD] + unit] = HOLE
    bit = unit - words[head + B_FIRST]
    levels = words[head + B_LEVELS]
    if before & UNIT_STATE_MASK > LIVE:
        # (Marks of `settle` included.)
        map_clear(words, head + B_RELEASED_MAP, levels, bit)
    if before & UNIT_PINNED:
        map_clear(words, head + B_FIXED_MAP, levels, bit)
    map_set(words, head + B_HOLE_MAP, levels, bit)
    map_clear(words, head + B_OCCUPIED_MAP, levels, bit)
    words[head + B_HOLE] += 1
    words[head + B_TOUCHED] = 1


@_kernel
def share(words, ids):
    """Add one reference per id (a repeated id gets several)."""
    for k in range(ids.size):
        code = check_id(words, ids[k])
        if code == OK:
            at = _id_word_at(words, ids[k])
            if words[at] & ID_REFERENCES_MASK == ID_REFERENCES_MASK:
                code = TOO_MANY_REFERENCES
        if code != OK:
            for j in range(k):
                words[_id_word_at(words, ids[j])] -= 1
            return _refuse(words, code, k, ids[k])
        words[at] += 1
    words[A_EPOCH] += 1
    return OK


@_kernel
def resolve(words, ids, sinks, out):
    """Physical unit of every id. With `sinks`, a band's sink id (index 0) gives unit 0."""
    for k in range(ids.size):
        vid = ids[k]
        code = check_id(words, vid)
        if code != OK:
            if code == SINK_ID and sinks:
                out[k] = 0
                continue
            return _refuse(words, code, k, vid)
        head = header((vid >> ID_BAND_SHIFT) & ID_BAND_MASK)
        out[k] = words[words[head + B_V2P] + (vid & ID_INDEX_MASK)]
    return OK


@_kernel
def references(words, ids, out):
    """Reference count of every id; 0 for an id that is not live (no refusal)."""
    for k in range(ids.size):
        out[k] = 0
        if check_id(words, ids[k]) == OK:
            out[k] = words[_id_word_at(words, ids[k])] & ID_REFERENCES_MASK
    return OK


# --- uses, transfers, flags ------------------------------------------------------------------


@_kernel
def _check_unit(words, band, unit):
    if band < 0 or band >= words[A_BANDS]:
        return BAD_BAND
    head = header(band)
    if unit < words[head + B_FIRST] or unit >= words[head + B_FIRST] + words[head + B_CAPACITY]:
        return BAD_UNIT
    return OK


@_kernel
def count_units(words, band, units, shift, mask, delta):
    """Add `delta` (+1 or -1) to the use or transfer count of every unit of one band.

    Counting up needs a LIVE, PENDING or VACATED unit; counting down, a count above 0. A PENDING
    or VACATED unit whose last blocker goes becomes a HOLE (A_RESULT counts them) and frontiers
    retreat.
    """
    if delta != 1 and delta != -1:
        return _refuse(words, BAD_COUNT, 0, delta)
    for k in range(units.size):
        unit = units[k]
        code = _check_unit(words, band, unit)
        if code == OK and unit_state(words, header(band), unit) < LIVE:
            code = NOT_LIVE
        at = 0
        if code == OK:
            at = words[header(band) + B_UNIT_WORD] + unit
            count = (words[at] >> shift) & mask
            if delta < 0 and count == 0:
                code = COUNT_UNDERFLOW
            elif delta > 0 and count == mask:
                code = COUNT_OVERFLOW
        if code != OK:
            for j in range(k):
                words[words[header(band) + B_UNIT_WORD] + units[j]] -= delta << shift
            return _refuse(words, code, k, unit)
        words[at] += delta << shift
    _begin(words)
    freed = 0
    if shift == UNIT_TRANSFERS_SHIFT:
        head = header(band)
        for k in range(units.size):
            # (A repeated unit changes at its first turn: its word has all its counts by now.)
            word = words[words[head + B_UNIT_WORD] + units[k]]
            changed = _note_fixed(words, head, units[k])
            if word & UNIT_STATE_MASK > LIVE and word & UNIT_QUARANTINED == 0:
                words[head + B_FREED_FIXED] += changed
    if delta < 0:
        head = header(band)
        for k in range(units.size):
            freed += _free_if_unblocked(words, head, units[k])
    words[A_RESULT] = freed
    _retreat_touched(words)
    words[A_EPOCH] += 1
    return OK


@_kernel
def _free_if_unblocked(words, head, unit):
    """PENDING or VACATED without a blocker becomes a HOLE (answers 1)."""
    word = words[words[head + B_UNIT_WORD] + unit]
    state = word & UNIT_STATE_MASK
    if state < PENDING or _blocked(word):
        return 0
    words[head + (B_PENDING if state == PENDING else B_VACATED)] -= 1
    _make_hole(words, head, unit)
    return 1


@_kernel
def settle(words, band, units):
    """Forget all uses of PENDING or VACATED units of one band: they become HOLEs.

    Refused for a unit in another state, repeated, under a transfer or quarantined.
    """
    for k in range(units.size):
        unit = units[k]
        code = _check_unit(words, band, unit)
        at = 0
        if code == OK:
            at = words[header(band) + B_UNIT_WORD] + unit
            state = unit_state(words, header(band), unit)
            if state == MARK_SOURCE or state == MARK_TARGET:
                code = DUPLICATE_UNIT
            elif state != PENDING and state != VACATED:
                code = NOT_RELEASED
            elif (words[at] >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0:
                code = UNDER_TRANSFER
            elif words[at] & UNIT_QUARANTINED:
                code = QUARANTINED
        if code != OK:
            for j in range(k):
                # Marks are the states plus 2: PENDING 3 to 5, VACATED 4 to 6.
                words[words[header(band) + B_UNIT_WORD] + units[j]] -= 2
            return _refuse(words, code, k, unit)
        words[at] += 2
    _begin(words)
    for k in range(units.size):
        head = header(band)
        marked = words[words[head + B_UNIT_WORD] + units[k]] & UNIT_STATE_MASK
        words[head + (B_PENDING if marked == MARK_SOURCE else B_VACATED)] -= 1
        _make_hole(words, head, units[k])
    words[A_RESULT] = units.size
    _retreat_touched(words)
    words[A_EPOCH] += 1
    return OK


@_kernel
def set_flag(words, band, units, flag, on):
    """Set or clear one flag of LIVE, PENDING or VACATED units (a pin: LIVE only).

    Clearing a quarantine may turn a released unit into a HOLE. Setting a set flag is no error.
    """
    for k in range(units.size):
        code = _check_unit(words, band, units[k])
        if code == OK:
            state = unit_state(words, header(band), units[k])
            if state < LIVE or (flag == UNIT_PINNED and on and state != LIVE):
                code = NOT_LIVE
        if code != OK:
            return _refuse(words, code, k, units[k])
    _begin(words)
    freed = 0
    step = 1 if on else -1
    for k in range(units.size):
        head = header(band)
        at = words[head + B_UNIT_WORD] + units[k]
        word = words[at]
        if ((word & flag) != 0) == on or word & UNIT_STATE_MASK < LIVE:
            # (A repeat of a unit that clearing its quarantine has just made a HOLE.)
            continue
        words[at] = word ^ flag
        _note_fixed(words, head, units[k])
        if flag == UNIT_PINNED:
            words[head + B_PINNED] += step
        elif flag == UNIT_QUARANTINED:
            words[head + B_QUARANTINED] += step
            if word & UNIT_STATE_MASK != LIVE:
                words[head + B_QUARANTINED_FREED] += step
                if (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0:
                    words[head + B_FREED_FIXED] -= step
                freed += _free_if_unblocked(words, head, units[k])
    words[A_RESULT] = freed
    _retreat_touched(words)
    words[A_EPOCH] += 1
    return OK


@_kernel
def read_units(words, band, units, which, out):
    """Of every unit of one band: its state (0), word (1) or virtual id (2)."""
    for k in range(units.size):
        code = _check_unit(words, band, units[k])
        if code != OK:
            return _refuse(words, code, k, units[k])
        head = header(band)
        state = unit_state(words, head, units[k])
        if which == 0:
            out[k] = state
        elif which == 1:
            out[k] = 0
            if state != BEYOND:
                out[k] = words[words[head + B_UNIT_WORD] + units[k]]
        else:
            out[k] = 0
            if state == LIVE:
                out[k] = words[words[head + B_P2V] + units[k]]
    return OK


@_kernel
def read_range(words, band, which, out):
    """`read_units` over all of [low_unit, high_unit), ascending. O(band): for snapshots."""
    head = header(band)
    low = words[head + B_LOW]
    for k in range(words[head + B_HIGH] - low):
        word = words[words[head + B_UNIT_WORD] + low + k]
        if which == 0:
            out[k] = word & UNIT_STATE_MASK
        elif which == 1:
            out[k] = word
        else:
            live = word & UNIT_STATE_MASK == LIVE
            out[k] = words[words[head + B_P2V] + low + k] if live else 0
    return OK


# --- moves -----------------------------------------------------------------------------------


@_kernel
def _check_move(words, k, bands, sources, targets, unwritten):
    """Validate and mark pair k. Answers (code, 1 if the target is at fault)."""
    band = bands[k]
    code = _check_unit(words, band, sources[k])
    if code != OK:
        return code, 0
    head = header(band)
    table = words[head + B_UNIT_WORD]
    state = unit_state(words, head, sources[k])
    word = words[table + sources[k]]
    if state == MARK_SOURCE or state == MARK_TARGET:
        return DUPLICATE_UNIT, 0
    if state != LIVE:
        return NOT_LIVE, 0
    if (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0:
        return UNDER_TRANSFER, 0
    if word & UNIT_QUARANTINED:
        return QUARANTINED, 0
    if word & UNIT_PINNED:
        return PINNED, 0
    if unwritten and word & UNIT_WRITTEN:
        return HAS_BEEN_WRITTEN, 0
    target = targets[k]
    code = _check_unit(words, band, target)
    if code != OK:
        return code, 1
    state = words[table + target] & UNIT_STATE_MASK
    if state == MARK_TARGET or state == MARK_SOURCE:
        # Marks count on either side of a frontier; a stale word never holds one.
        return DUPLICATE_UNIT, 1
    if target == sources[k]:
        return DUPLICATE_UNIT, 1
    if unit_state(words, head, target) > HOLE:
        return TARGET_NOT_FREE, 1
    words[table + sources[k]] = (word & ~UNIT_STATE_MASK) | MARK_SOURCE
    words[table + target] = MARK_TARGET
    words[head + B_NEW_LOW] = min(words[head + B_NEW_LOW], target)
    words[head + B_NEW_HIGH] = max(words[head + B_NEW_HIGH], target + 1)
    return OK, 0


@_kernel
def _unmark_moves(words, count, bands, sources, targets):
    for k in range(count):
        head = header(bands[k])
        table = words[head + B_UNIT_WORD]
        at = table + sources[k]
        words[at] = (words[at] & ~UNIT_STATE_MASK) | LIVE
        # Right inside the band; beyond it the word is stale and means nothing.
        words[table + targets[k]] = HOLE


@_kernel
def _move_off_limit(words, bands, targets):
    """First position whose target makes its band run into a neighbour's new range, or -1."""
    for k in range(targets.size):
        head = header(bands[k])
        target = targets[k]
        if words[head + B_LOW] <= target < words[head + B_HIGH]:
            continue
        start = start_address(words, head, target)
        end = start_address(words, head, target + 1)
        for other in range(words[A_BANDS]):
            its = header(other)
            if other == bands[k] or words[its + B_NEW_LOW] == words[its + B_NEW_HIGH]:
                continue
            if other < bands[k] and start < start_address(words, its, words[its + B_NEW_HIGH]):
                return k
            if other > bands[k] and end > start_address(words, its, words[its + B_NEW_LOW]):
                return k
    return -1


@_kernel
def _pass_over(words, head, start, end):
    """Take [start, end), beyond a frontier, into the band as holes; targets among them follow."""
    if start >= end:
        return
    first = words[head + B_FIRST]
    map_set_range(words, head + B_HOLE_MAP, words[head + B_LEVELS], start - first, end - first)
    table = words[head + B_UNIT_WORD]
    for unit in range(start, end):
        words[table + unit] = HOLE
    words[head + B_HOLE] += end - start


@_kernel
def move(words, bands, sources, targets, uses, unwritten):
    """Rebind the ids of LIVE `sources` to `targets` (HOLE, or beyond a frontier).

    Adds `uses` (0 or 1: the copy) to each source and target. A source without uses becomes a
    HOLE, else VACATED. Frontiers pass over targets, then retreat. With `unwritten`, a source
    that was written is refused (nothing would copy it). A_RESULT is 1 if the target of the
    refused pair is at fault.
    """
    if uses != 0 and uses != 1:
        return _refuse(words, BAD_COUNT, 0, uses)
    _begin(words)
    for band in range(words[A_BANDS]):
        head = header(band)
        words[head + B_NEW_LOW] = words[head + B_LOW]
        words[head + B_NEW_HIGH] = words[head + B_HIGH]
    n = sources.size
    for k in range(n):
        code, at_target = _check_move(words, k, bands, sources, targets, unwritten)
        if code != OK:
            _unmark_moves(words, k, bands, sources, targets)
            words[A_RESULT] = at_target
            return _refuse(words, code, k, targets[k] if at_target else sources[k])
    k = _move_off_limit(words, bands, targets)
    if k >= 0:
        _unmark_moves(words, n, bands, sources, targets)
        words[A_RESULT] = 1
        return _refuse(words, BEYOND_LIMIT, k, targets[k])
    for band in range(words[A_BANDS]):
        head = header(band)
        _pass_over(words, head, words[head + B_NEW_LOW], words[head + B_LOW])
        _pass_over(words, head, words[head + B_HIGH], words[head + B_NEW_HIGH])
        words[head + B_LOW] = words[head + B_NEW_LOW]
        words[head + B_HIGH] = words[head + B_NEW_HIGH]
    for k in range(n):
        _move_one(words, header(bands[k]), sources[k], targets[k], uses)
    _retreat_touched(words)
    words[A_EPOCH] += 1
    return OK


@_kernel
def _move_one(words, head, source, target, uses):
    table = words[head + B_UNIT_WORD]
    p2v = words[head + B_P2V]
    levels = words[head + B_LEVELS]
    first = words[head + B_FIRST]
    vid = words[p2v + source]
    words[p2v + source] = 0
    words[p2v + target] = vid
    words[words[head + B_V2P] + (vid & ID_INDEX_MASK)] = target
    word = words[table + source]
    words[table + target] = LIVE | (word & UNIT_WRITTEN) | (uses << UNIT_USES_SHIFT)
    map_clear(words, head + B_HOLE_MAP, levels, target - first)
    map_set(words, head + B_OCCUPIED_MAP, levels, target - first)
    words[head + B_HOLE] -= 1
    counted = ((word >> UNIT_USES_SHIFT) & UNIT_USES_MASK) + uses
    if counted > 0:
        words[table + source] = VACATED | (word & UNIT_WRITTEN) | (counted << UNIT_USES_SHIFT)
        words[head + B_VACATED] += 1
        map_set(words, head + B_RELEASED_MAP, levels, source - first)
    else:
        _make_hole(words, head, source)


# --- warm-up ---------------------------------------------------------------------------------


def warm_up():
    """Compile, or load from the cache, every kernel an arena calls; seconds the first time.

    For tests and engines that must not compile inside a timed or captured step.
    """
    words = create_words(chain_geometry(1024, [("low", 16), ("float", 32), ("high", 16)]), arena=0)
    empty = np.empty(0, dtype=np.int64)
    out = np.empty(64, dtype=np.int64)
    check_demand(words)
    allocate(words, empty)
    free(words, empty, out)
    share(words, empty)
    resolve(words, empty, False, out)
    references(words, empty, out)
    count_units(words, 0, empty, UNIT_USES_SHIFT, UNIT_USES_MASK, 1)
    settle(words, 0, empty)
    set_flag(words, 0, empty, UNIT_PINNED, True)
    read_units(words, 0, empty, 0, out)
    read_range(words, 0, 0, out)
    move(words, empty, empty, empty, 0, False)
    copy_units(out, 0, 1, empty, empty)
    zero_units(out, 0, 1, empty)


# --- bytes: `memory` is the buffer as int64, `origin` and `row` count words -------------------


@_kernel
def copy_units(memory, origin, row, sources, targets):
    """Copy unit by unit; the caller has checked that no unit is both read and written."""
    for k in range(sources.size):
        source = origin + sources[k] * row
        target = origin + targets[k] * row
        for word in range(row):
            memory[target + word] = memory[source + word]


@_kernel
def zero_units(memory, origin, row, units):
    for k in range(units.size):
        start = origin + units[k] * row
        for word in range(row):
            memory[start + word] = 0


# --- ledger ----------------------------------------------------------------------------------
# `last` is one row a unit, two columns a stream: column 2*s the latest read, 2*s + 1 the latest
# write of that unit on stream s, each as `ticket << 3 | kind` (0: none). A later use on a stream
# covers an earlier one on the same stream, so a maximum is enough.


@_kernel
def ledger_note(last, units, column, word):
    """Enter one use: the latest word of `column` for each unit. O(units)."""
    for i in range(units.shape[0]):
        last[units[i], column] = word


@_kernel
def ledger_gather(last, units, streams, writes_only, row, seen, wanted):
    """What a use of `units` waits for: the latest ticket of each stream into `wanted`.

    `row[kind]` says what an earlier use of that kind asks for: 0 nothing, 1 an event, 2 that the
    host has seen it end. `seen[s]` is the last ticket of stream s that the host has seen. Returns
    whether some use asks for the host and was not seen. O(units * streams).
    """
    for_host = False
    for i in range(units.shape[0]):
        for column in range(1 if writes_only else 0, 2 * streams, 2 if writes_only else 1):
            word = last[units[i], column]
            ticket = word >> 3
            s = column >> 1
            if ticket <= seen[s]:
                continue
            wait = row[word & 7]
            if wait == 1:
                wanted[s] = max(wanted[s], ticket)
            elif wait == 2:
                for_host = True
    return for_host


@_kernel
def ledger_blockers(last, units, streams, over, processed, out):
    """First use of each unit that is not over, as `ticket << 8 | stream` into `out` (0: none).

    Over: ticket at most `over[s]` (retired, or settled on the schedule stream), or its bit in the
    ring `processed[s, ticket % ring]` is set. O(units * streams). Returns how many units have a
    blocker.
    """
    ring_mask = processed.shape[1] - 1
    blocked = 0
    for i in range(units.shape[0]):
        out[i] = 0
        for column in range(2 * streams):
            ticket = last[units[i], column] >> 3
            s = column >> 1
            if ticket > over[s] and processed[s, ticket & ring_mask] == 0:
                out[i] = ticket << 8 | s
                blocked += 1
                break
    return blocked


@_kernel
def ledger_unfinished(last, units, streams, retired, out):
    """Each unit's uses that are not retired: 0 none, 1 reads only, 2 a write. O(units)."""
    for i in range(units.shape[0]):
        out[i] = 0
        for s in range(streams):
            if last[units[i], 2 * s + 1] >> 3 > retired[s]:
                out[i] = 2
                break
            if last[units[i], 2 * s] >> 3 > retired[s]:
                out[i] = 1


@_kernel
def ledger_merge(last, unit, words):
    """Take a fence's uses over into a unit grown over its bytes: the later word wins."""
    for column in range(words.shape[0]):
        if words[column] >> 3 > last[unit, column] >> 3:
            last[unit, column] = words[column]


# --- fit: one sweep over the bands (`onearena.core.fit` says why it decides) --------------------

FIT_BLOCKED, FIT_INFEASIBLE, FIT_MISUSED = 3, 4, 5
"""Answers of `fit_query` beyond the rungs 0, 1, 2."""
FIT_UNITS_MAX = 1 << 31
"""A demand has fewer units of a band than this: its bytes stay well inside 64-bit integers."""
HOLD_FIXED, HOLD_FLOATS, HOLD_ALL = 2, 1, 0
"""Which units have to stay inside, by rung: fixed ones, floating bands' too, all."""


@_kernel
def _handed_out(words, head):
    return words[head + B_LIVE] + words[head + B_QUARANTINED_FREED]


@_kernel
def _handed_out_word(word):
    """Whether the unit counts as handed out: LIVE, or quarantined in whatever state."""
    state = word & UNIT_STATE_MASK
    return state == LIVE or (state > LIVE and word & UNIT_QUARANTINED != 0)


@_kernel
def _stays_word(word):
    """Whether the unit has to stay in its band when all units stay: not one that may settle."""
    return _handed_out_word(word) or (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0


@_kernel
def _pack_step(words, head, cursor, need, lowest, highest):
    """Lowest end address of a band above `cursor` with `need` cells and the units `lowest` to
    `highest` inside (`lowest` < 0: none); -1 if it has no such place.
    """
    if need == 0:
        return cursor
    if words[head + B_PLACEMENT] == PLACED_HIGH:
        end = words[head + B_FIRST] + words[head + B_CAPACITY]
        low = end - need
        if lowest >= 0:
            low = min(low, lowest)
        return words[A_BYTES] if start_address(words, head, low) >= cursor else -1
    low = first_at_or_after(words, head, cursor)
    if 0 <= lowest < low:
        return -1
    return start_address(words, head, max(low + need, highest + 1))


@_kernel
def _held_range(words, head, hold):
    """(lowest, highest) unit that has to stay inside the band; (-1, -1): none."""
    low = words[head + B_LOW]
    high = words[head + B_HIGH]
    if low == high:
        return -1, -1
    first = words[head + B_FIRST]
    levels = words[head + B_LEVELS]
    floats = words[head + B_PLACEMENT] == PLACED_FLOATING
    at = head + B_FIXED_MAP
    if hold == HOLD_ALL or (hold == HOLD_FLOATS and floats):
        at = head + B_OCCUPIED_MAP
    lowest = map_first(words, at, levels, low - first)
    if lowest < 0:
        return -1, -1
    highest = map_last(words, at, levels, high - 1 - first)
    if at == head + B_OCCUPIED_MAP:
        # Outermost units that may settle hold nothing. O(such units).
        table = words[head + B_UNIT_WORD] + first
        while lowest >= 0 and not _stays_word(words[table + lowest]):
            lowest = map_first(words, at, levels, lowest + 1)
        if lowest < 0:
            return -1, -1
        while not _stays_word(words[table + highest]):
            highest = map_last(words, at, levels, highest - 1)
    return first + lowest, first + highest


@_kernel
def fit_packs(words, demand, times, hold):
    """Whether `times * demand` has a layout in which the units that `hold` names stay inside."""
    cursor = 0
    for band in range(words[A_BANDS]):
        head = header(band)
        need = _handed_out(words, head) + words[head + B_FREED_FIXED] + times * demand[band]
        lowest, highest = _held_range(words, head, hold)
        cursor = _pack_step(words, head, cursor, need, lowest, highest)
        if cursor < 0:
            return False
    return cursor <= words[A_BYTES]


@_kernel
def _packs_occupied(words, demand):
    """A cheap test that proves rung 0: all stay, unsettled ones as well. O(bands * levels)."""
    cursor = 0
    for band in range(words[A_BANDS]):
        head = header(band)
        need = _handed_out(words, head) + words[head + B_FREED_FIXED] + demand[band]
        low = words[head + B_LOW]
        high = words[head + B_HIGH]
        if low == high:
            low = -1
            high = 0
        # Frontiers stand at occupied units: every call that changes units retreats them.
        cursor = _pack_step(words, head, cursor, need, low, high - 1)
        if cursor < 0:
            return False
    return cursor <= words[A_BYTES]


@_kernel
def fit_missing(words, demand, times, last):
    """Bytes by which `times * demand` of the bands up to `last` does not fit if all may move."""
    cursor = 0
    bands = words[A_BANDS]
    for band in range(bands):
        head = header(band)
        count = _handed_out(words, head) + (times * demand[band] if band <= last else 0)
        if count == 0:
            continue
        placement = words[head + B_PLACEMENT]
        if placement == PLACED_HIGH:
            return max(0, cursor + count * words[head + B_UNIT_BYTES] - words[A_BYTES])
        start = cursor
        if placement == PLACED_FLOATING:
            unit = -((words[head + B_ORIGIN] - cursor) // words[head + B_UNIT_BYTES])
            start = start_address(words, head, unit)
        cursor = start + count * words[head + B_UNIT_BYTES]
    return max(0, cursor - words[A_BYTES])


@_kernel
def fit_query(words, demand):
    """The answer for one demand: rung 0, 1, 2, FIT_BLOCKED, or FIT_INFEASIBLE.

    FIT_MISUSED: not one number per band, each in [0, FIT_UNITS_MAX). Reads only, O(bands *
    levels), plus the unsettled units at outer edges if rung 0 is not obvious.
    """
    bands = words[A_BANDS]
    if demand.size != bands:
        return FIT_MISUSED
    for band in range(bands):
        if demand[band] < 0 or demand[band] >= FIT_UNITS_MAX:
            return FIT_MISUSED
    if _packs_occupied(words, demand):
        return 0
    if fit_missing(words, demand, 1, bands - 1) > 0:
        return FIT_INFEASIBLE
    if not fit_packs(words, demand, 1, HOLD_FIXED):
        return FIT_BLOCKED
    if fit_packs(words, demand, 1, HOLD_ALL):
        return 0
    return 1 if fit_packs(words, demand, 1, HOLD_FLOATS) else 2


@_kernel
def fit_binding(words, demand):
    """Of an infeasible demand: the first band whose demand no longer fits on top of those before
    it. O(bands^2).
    """
    for band in range(words[A_BANDS]):
        if demand[band] > 0 and fit_missing(words, demand, 1, band) > 0:
            return band
    return -1


@_kernel
def fit_queries(words, demands, answers):
    """`fit_query` for every row of `demands`: one call for a whole queue of requests."""
    for row in range(demands.shape[0]):
        answers[row] = fit_query(words, demands[row])


@_kernel
def fit_more(words, band, honour_fixed):
    """How many more units of `band` fit while the others keep their counts. O(bands * levels)."""
    below = 0
    for other in range(band):
        head = header(other)
        need = _handed_out(words, head)
        lowest, highest = -1, -1
        if honour_fixed:
            need += words[head + B_FREED_FIXED]
            lowest, highest = _held_range(words, head, HOLD_FIXED)
        below = _pack_step(words, head, below, need, lowest, highest)
    above = words[A_BYTES]
    for other in range(words[A_BANDS] - 1, band, -1):
        head = header(other)
        need = _handed_out(words, head)
        lowest = -1
        if honour_fixed:
            need += words[head + B_FREED_FIXED]
            lowest, highest = _held_range(words, head, HOLD_FIXED)
        if need > 0:
            low = last_ending_by(words, head, above) - need
            above = start_address(words, head, min(low, lowest) if lowest >= 0 else low)
    head = header(band)
    need = _handed_out(words, head)
    if honour_fixed:
        need += words[head + B_FREED_FIXED]
    low = first_at_or_after(words, head, below)
    return max(0, last_ending_by(words, head, above) - low - need)


@_kernel
def fit_multiple(words, demand, honour_fixed, most):
    """The largest k <= `most` such that k times `demand` fits. O(bands * levels * log most)."""
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        if honour_fixed:
            fits = fit_packs(words, demand, middle, HOLD_FIXED)
        else:
            fits = fit_missing(words, demand, middle, words[A_BANDS] - 1) == 0
        if fits:
            low = middle
        else:
            high = middle - 1
    return low


@_kernel
def count_fixed(words):
    """How many units are fixed. O(such units + bands)."""
    count = 0
    for band in range(words[A_BANDS]):
        head = header(band)
        bit = map_first(words, head + B_FIXED_MAP, words[head + B_LEVELS], 0)
        while bit >= 0:
            count += 1
            bit = map_first(words, head + B_FIXED_MAP, words[head + B_LEVELS], bit + 1)
    return count


@_kernel
def _reason(word):
    """Why a fixed unit is fixed: 0 quarantined, 1 transfer, 2 pinned."""
    if word & UNIT_QUARANTINED:
        return 0
    return 1 if (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0 else 2


@_kernel
def fit_blockers(words, demand, spans, out):
    """The blockers of a blocked demand as rows (band, unit, reason) of `out`; answers how many.

    `spans` is scratch, 3 words a band: need, lowest and highest unit held. Fixed units are held
    one by one; one that makes the demand stop fitting is a blocker and not held.
    O(fixed units * bands).
    """
    bands = words[A_BANDS]
    for band in range(bands):
        spans[band, 0] = _handed_out(words, header(band)) + demand[band]
        spans[band, 1] = -1
        spans[band, 2] = -1
    found = 0
    for reason in range(3):
        for band in range(bands):
            head = header(band)
            first = words[head + B_FIRST]
            levels = words[head + B_LEVELS]
            bit = map_first(words, head + B_FIXED_MAP, levels, 0)
            while bit >= 0:
                unit = first + bit
                word = words[words[head + B_UNIT_WORD] + unit]
                bit = map_first(words, head + B_FIXED_MAP, levels, bit + 1)
                if _reason(word) != reason:
                    continue
                need, lowest, highest = spans[band, 0], spans[band, 1], spans[band, 2]
                if not _handed_out_word(word):
                    spans[band, 0] = need + 1
                spans[band, 1] = unit if lowest < 0 else min(lowest, unit)
                spans[band, 2] = max(highest, unit)
                cursor = 0
                for other in range(bands):
                    cursor = _pack_step(
                        words, header(other), cursor,
                        spans[other, 0], spans[other, 1], spans[other, 2],
                    )  # fmt: skip
                    if cursor < 0:
                        break
                if cursor < 0 or cursor > words[A_BYTES]:
                    spans[band, 0], spans[band, 1], spans[band, 2] = need, lowest, highest
                    out[found, 0], out[found, 1], out[found, 2] = band, unit, reason
                    found += 1
    return found


# --- relayout: the cheapest choice of intervals (`onearena.core.relayout` says what it costs) ----

S_END, S_BYTES, S_WAITS, S_HOLES, S_ADDRESS, S_BEFORE, S_LOW, S_HIGH = 0, 1, 2, 3, 4, 5, 6, 7
"""Columns of a search state: the end address so far, its cost, the state before, the interval."""
STATE_WORDS = 8


@_kernel
def _core_range(words, head):
    """Frontiers drawn in to the outermost units that are no holes; (0, 0): a float without any."""
    low = words[head + B_LOW]
    high = words[head + B_HIGH]
    placement = words[head + B_PLACEMENT]
    first = words[head + B_FIRST]
    last = -1
    if low < high:
        last = map_last(words, head + B_OCCUPIED_MAP, words[head + B_LEVELS], high - 1 - first)
    if last < 0:
        if placement == PLACED_LOW:
            return first, first
        if placement == PLACED_HIGH:
            return first + words[head + B_CAPACITY], first + words[head + B_CAPACITY]
        return 0, 0
    if placement != PLACED_LOW:
        low = first + map_first(words, head + B_OCCUPIED_MAP, words[head + B_LEVELS], low - first)
    if placement != PLACED_HIGH:
        high = first + last + 1
    return low, high


@_kernel
def _unsettled_units(words, head):
    """PENDING and VACATED units that may settle: neither under a transfer nor quarantined."""
    return (
        words[head + B_PENDING]
        + words[head + B_VACATED]
        - words[head + B_FREED_FIXED]
        - words[head + B_QUARANTINED_FREED]
    )


@_kernel
def plan_reach(words, demand):
    """How far any edge may have to retreat: the demand's bytes and one unit of every band."""
    reach = 0
    for band in range(words[A_BANDS]):
        reach += (demand[band] + 1) * words[header(band) + B_UNIT_BYTES]
    return reach


@_kernel
def _window(words, head, edge, reach):
    """Edges within `reach` bytes of `edge`, on the band's grid."""
    steps = reach // words[head + B_UNIT_BYTES] + 1
    first = words[head + B_FIRST]
    return max(first, edge - steps), min(first + words[head + B_CAPACITY], edge + steps)


@_kernel
def _scan_low(words, head, core_low, core_high, stays, at, to, live, unsettled):
    """For each low edge in [at, to]: units below it that move, and that are unsettled.

    Answers the highest edge that leaves no unit outside that has to stay. O(to - at).
    """
    table = words[head + B_UNIT_WORD]
    moving = 0
    settling = 0
    for edge in range(at, to + 1):
        unit = edge - 1
        if core_low <= unit < core_high:
            word = words[table + unit]
            if word & UNIT_STATE_MASK >= LIVE:
                if _fixed_word(word) or (stays and _handed_out_word(word)):
                    return unit
                if word & UNIT_STATE_MASK == LIVE:
                    moving += 1
                else:
                    settling += 1
        live[edge - at] = moving
        unsettled[edge - at] = settling
    return to


@_kernel
def _scan_high(words, head, core_low, core_high, stays, at, to, live, unsettled):
    """For each high edge in [at, to], downwards: units at or above it. Answers the lowest edge
    that leaves no unit outside that has to stay. O(to - at).
    """
    table = words[head + B_UNIT_WORD]
    moving = 0
    settling = 0
    for edge in range(to, at - 1, -1):
        if core_low <= edge < core_high:
            word = words[table + edge]
            if word & UNIT_STATE_MASK >= LIVE:
                if _fixed_word(word) or (stays and _handed_out_word(word)):
                    return edge + 1
                if word & UNIT_STATE_MASK == LIVE:
                    moving += 1
                else:
                    settling += 1
        live[edge - at] = moving
        unsettled[edge - at] = settling
    return at


@_kernel
def _cost_less(a0, a1, a2, a3, b0, b1, b2, b3):
    """Whether cost a comes before cost b in the order of plans of one rung."""
    if a0 != b0:
        return a0 < b0
    if a1 != b1:
        return a1 < b1
    if a2 != b2:
        return a2 < b2
    return a3 < b3


@_kernel
def _push_state(states, begin, count, end, c0, c1, c2, c3, before, low, high):
    """Append a state unless one that reaches no further costs no more. Ends come ascending."""
    if count > begin:
        top = count - 1
        if not _cost_less(
            c0, c1, c2, c3,
            states[top, S_BYTES], states[top, S_WAITS],
            states[top, S_HOLES], states[top, S_ADDRESS],
        ):  # fmt: skip
            return count
        if states[top, S_END] == end:
            count = top
    states[count, S_END] = end
    states[count, S_BYTES] = c0
    states[count, S_WAITS] = c1
    states[count, S_HOLES] = c2
    states[count, S_ADDRESS] = c3
    states[count, S_BEFORE] = before
    states[count, S_LOW] = low
    states[count, S_HIGH] = high
    return count + 1


@_kernel
def _states_bound(words, demand, reach):
    """(states of all levels, widest window) that a search can need."""
    level = 1
    total = 1
    widest = 1
    for band in range(words[A_BANDS]):
        head = header(band)
        core_low, core_high = _core_range(words, head)
        need = _handed_out(words, head) + words[head + B_FREED_FIXED] + demand[band]
        unsettled = _unsettled_units(words, head)
        if need == 0 and unsettled == 0:
            continue
        if words[head + B_PLACEMENT] == PLACED_FLOATING and core_low == core_high:
            total += level
            continue
        at, to = _window(words, head, core_low, reach)
        widest = max(widest, to - at + 1)
        at, to = _window(words, head, core_high, reach)
        widest = max(widest, to - at + 1)
        if words[head + B_PLACEMENT] == PLACED_HIGH:
            to = at
        level = (to - at + 1) + (level if need == 0 else 0)
        # A band that may close is merged: its states are written twice.
        total += 2 * level
    return total, widest


@_kernel
def plan_search(words, demand, rung, intervals, cost):
    """The layout of least cost in which only the units that `rung` lets move lie outside.

    Fills `intervals` (bands x 2) and `cost` (bytes, waits, holes left, address); answers whether
    there is one. Along the chain, a state is the address reached so far; of all states only
    those that no other beats on both address and cost are kept. Work and memory follow
    `plan_reach`: O(bands * reach / unit). The two working arrays are its own.
    """
    bands = words[A_BANDS]
    reach = plan_reach(words, demand)
    bound, widest = _states_bound(words, demand, reach)
    states = np.empty((bound, STATE_WORDS), np.int64)
    work = np.empty((6, widest), np.int64)
    levels = np.empty((bands + 1, 2), np.int64)
    states[0, :] = 0
    levels[0, 0], levels[0, 1] = 0, 1
    count = 1
    for band in range(bands):
        head = header(band)
        begin, end = levels[band, 0], levels[band, 1]
        need = _handed_out(words, head) + words[head + B_FREED_FIXED] + demand[band]
        unsettled = _unsettled_units(words, head)
        if need == 0 and unsettled == 0:
            # Transparent: the states below are the states above.
            levels[band + 1, 0], levels[band + 1, 1] = begin, end
            continue
        core_low, core_high = _core_range(words, head)
        here = count
        floats = words[head + B_PLACEMENT] == PLACED_FLOATING
        if floats and core_low == core_high:
            count = _search_opening(words, head, need, states, begin, end, count)
        else:
            stays = rung == HOLD_ALL or (rung == HOLD_FLOATS and floats)
            count = _search_band(
                words, head, need, unsettled, reach, stays, core_low, core_high,
                states, begin, end, count, work,
            )  # fmt: skip
            if need == 0:
                here, count = _merge_closed(unsettled, states, begin, end, here, count)
        if count == here:
            return False
        levels[band + 1, 0], levels[band + 1, 1] = here, count
    # The last state of a level is the cheapest, and no band reaches beyond S.
    at = levels[bands, 1] - 1
    for column in range(4):
        cost[column] = states[at, S_BYTES + column]
    for band in range(bands - 1, -1, -1):
        head = header(band)
        closed = 0
        if words[head + B_PLACEMENT] == PLACED_LOW:
            closed = words[head + B_FIRST]
        elif words[head + B_PLACEMENT] == PLACED_HIGH:
            closed = words[head + B_FIRST] + words[head + B_CAPACITY]
        intervals[band, 0] = closed
        intervals[band, 1] = closed
        if levels[band + 1, 0] == levels[band, 0]:
            continue
        if states[at, S_LOW] < states[at, S_HIGH]:
            intervals[band, 0] = states[at, S_LOW]
            intervals[band, 1] = states[at, S_HIGH]
        at = states[at, S_BEFORE]
    return True


@_kernel
def _search_opening(words, head, need, states, begin, end, count):
    """A float without a unit opens just above each state: the lowest place that it allows."""
    here = count
    last = words[head + B_FIRST] + words[head + B_CAPACITY]
    for before in range(begin, end):
        low = first_at_or_after(words, head, states[before, S_END])
        if low + need > last:
            break
        count = _push_state(
            states, here, count, start_address(words, head, low + need),
            states[before, S_BYTES], states[before, S_WAITS], states[before, S_HOLES],
            states[before, S_ADDRESS] + start_address(words, head, low), before, low, low + need,
        )  # fmt: skip
    return count


@_kernel
def _merge_closed(unsettled, states, begin, end, here, count):
    """Merge the states [here, count) with those in which the band closes; answers the new level."""
    top = count
    other = here
    before = begin
    while before < end or other < top:
        # On equal ends the cheaper one first, a closing one on a tie.
        closes = other == top
        if not closes and before < end:
            closes = states[before, S_END] < states[other, S_END]
            if states[before, S_END] == states[other, S_END]:
                closes = not _cost_less(
                    states[other, S_BYTES], states[other, S_WAITS],
                    states[other, S_HOLES], states[other, S_ADDRESS],
                    states[before, S_BYTES], states[before, S_WAITS] + unsettled,
                    states[before, S_HOLES], states[before, S_ADDRESS],
                )  # fmt: skip
        if closes:
            count = _push_state(
                states, top, count, states[before, S_END],
                states[before, S_BYTES], states[before, S_WAITS] + unsettled,
                states[before, S_HOLES], states[before, S_ADDRESS], before, 0, 0,
            )  # fmt: skip
            before += 1
        else:
            count = _push_state(
                states, top, count, states[other, S_END],
                states[other, S_BYTES], states[other, S_WAITS],
                states[other, S_HOLES], states[other, S_ADDRESS],
                states[other, S_BEFORE], states[other, S_LOW], states[other, S_HIGH],
            )  # fmt: skip
            other += 1
    return top, count


@_kernel
def _search_band(
    words, head, need, unsettled, reach, stays, core_low, core_high, states, begin, end, count, work
):
    """States of a band that has a place today: for each high edge, the best low edge.

    With low edge l and high edge h, of `unsettled` units ub(l) lie below and ua(h) above, and
    spare = h - l - need cells stay free. Its waits are max(ub + ua, unsettled - spare). The
    first term is the larger one exactly for the low edges with l - ub(l) <= T(h), where
    T(h) = h + ua(h) - unsettled - need; both sides only rise, so the low edges split into a
    prefix (a running minimum) and a window (a queue of minima) that move on with h.
    O(edges within reach).
    """
    here = count
    unit_bytes = words[head + B_UNIT_BYTES]
    placement = words[head + B_PLACEMENT]
    low_at, low_to = _window(words, head, core_low, reach)
    if placement == PLACED_LOW:
        low_at = low_to = core_low
    high_at, high_to = _window(words, head, core_high, reach)
    if placement == PLACED_HIGH:
        high_at = high_to = core_high
    low_live, low_settle, before_of = work[0], work[1], work[2]
    high_live, high_settle, queue = work[3], work[4], work[5]
    low_to = _scan_low(
        words, head, core_low, core_high, stays, low_at, low_to, low_live, low_settle
    )
    high_first = _scan_high(
        words, head, core_low, core_high, stays, high_at, high_to, high_live, high_settle
    )
    before = begin - 1
    for low in range(low_at, low_to + 1):
        start = start_address(words, head, low)
        while before + 1 < end and states[before + 1, S_END] <= start:
            before += 1
        before_of[low - low_at] = before if before >= begin else -1
    size = max(need, 1)
    prefix = low_at  # Low edges below this one are in the running minimum `best`.
    best = -1
    ready = low_at  # Low edges below this one have been offered to the queue.
    queue_head = 0
    queue_tail = 0
    for high in range(high_first, high_to + 1):
        above = high_settle[high - high_at]
        turn = high + above - unsettled - need
        while ready <= low_to and ready <= high - size:
            if before_of[ready - low_at] >= 0:
                while queue_tail > queue_head and _low_less(
                    states, work, low_at, unit_bytes, ready, queue[queue_tail - 1], True
                ):
                    queue_tail -= 1
                queue[queue_tail] = ready
                queue_tail += 1
            ready += 1
        while prefix < ready and prefix - low_settle[prefix - low_at] <= turn:
            if before_of[prefix - low_at] >= 0 and (
                best < 0 or _low_less(states, work, low_at, unit_bytes, prefix, best, False)
            ):
                best = prefix
            prefix += 1
        while queue_head < queue_tail and queue[queue_head] < prefix:
            queue_head += 1
        for choice in range(2):
            if choice == 0:
                low = best
            else:
                low = queue[queue_head] if queue_head < queue_tail else -1
            if low < 0:
                continue
            k = low - low_at
            state = before_of[k]
            spare = high - low - need
            waits = max(low_settle[k] + above, unsettled - spare)
            count = _push_state(
                states, here, count, start_address(words, head, high),
                states[state, S_BYTES] + (low_live[k] + high_live[high - high_at]) * unit_bytes,
                states[state, S_WAITS] + waits,
                states[state, S_HOLES] + spare,
                states[state, S_ADDRESS] + start_address(words, head, low),
                state, low, high,
            )  # fmt: skip
    return count


@_kernel
def _low_less(states, work, low_at, unit_bytes, one, two, queued):
    """Whether low edge `one` beats `two` for any high edge: by the terms that depend on it."""
    a = one - low_at
    b = two - low_at
    state_a = work[2, a]
    state_b = work[2, b]
    waits_a = states[state_a, S_WAITS] + (one if queued else work[1, a])
    waits_b = states[state_b, S_WAITS] + (two if queued else work[1, b])
    # The address of the start is unit_bytes * edge and a constant.
    return _cost_less(
        states[state_a, S_BYTES] + work[0, a] * unit_bytes,
        waits_a,
        states[state_a, S_HOLES] - one,
        states[state_a, S_ADDRESS] + one * unit_bytes,
        states[state_b, S_BYTES] + work[0, b] * unit_bytes,
        waits_b,
        states[state_b, S_HOLES] - two,
        states[state_b, S_ADDRESS] + two * unit_bytes,
    )


@_kernel
def plan_choose(words, demand, lowest, intervals, cost):
    """Least bytes over all rungs from `lowest` on, then least rung, then least cost.

    Answers the rung, or -1 if no rung has a layout. `intervals` is (2 x bands x 2): the choice
    ends in [0]; opened floats stand in the middle of the bytes that no one takes.
    """
    chosen = -1
    trial = np.empty(4, np.int64)
    for rung in range(lowest, 3):
        if not plan_search(words, demand, rung, intervals[1], trial):
            continue
        if chosen < 0 or trial[0] < cost[0]:
            chosen = rung
            intervals[0, :, :] = intervals[1]
            cost[:] = trial
        if trial[0] == 0:
            break
    if chosen >= 0:
        _spread_opened(words, intervals[0])
    return chosen


@_kernel
def _spread_opened(words, intervals):
    """Floats that open share the free bytes around them evenly: see `relayout`."""
    bands = words[A_BANDS]
    at = 0
    while at < bands:
        if not _opens(words, at, intervals):
            at += 1
            continue
        first = at
        opened = 0
        taken = 0
        while at < bands and (
            _opens(words, at, intervals)
            or (
                words[header(at) + B_PLACEMENT] == PLACED_FLOATING
                and intervals[at, 0] == intervals[at, 1]
            )
        ):
            if _opens(words, at, intervals):
                opened += 1
                size = intervals[at, 1] - intervals[at, 0]
                taken += size * words[header(at) + B_UNIT_BYTES]
            at += 1
        below = 0
        for band in range(first):
            if intervals[band, 0] < intervals[band, 1]:
                below = start_address(words, header(band), intervals[band, 1])
        ceiling = words[A_BYTES]
        if at < bands:
            ceiling = start_address(words, header(at), intervals[at, 0])
        share = (ceiling - below - taken) // (opened + 1)
        for band in range(at - 1, first - 1, -1):
            if _opens(words, band, intervals):
                head = header(band)
                size = intervals[band, 1] - intervals[band, 0]
                low = max(intervals[band, 0], last_ending_by(words, head, ceiling - share) - size)
                intervals[band, 0] = low
                intervals[band, 1] = low + size
                ceiling = start_address(words, head, low)


@_kernel
def _opens(words, band, intervals):
    head = header(band)
    if words[head + B_PLACEMENT] != PLACED_FLOATING or intervals[band, 0] == intervals[band, 1]:
        return False
    low, high = _core_range(words, head)
    return low == high


@_kernel
def plan_shape(words, intervals, order, counts):
    """The order of execution, and per band how many units move and how many stay unsettled
    outside (`counts`, bands x 2). O(bands^2 + units outside).
    """
    bands = words[A_BANDS]
    done = 0
    # A band is free to go once no waiting band's old bytes meet its new ones.
    for band in range(bands):
        counts[band, 0] = -1
    while done < bands:
        before = done
        for band in range(bands):
            if counts[band, 0] < 0 and not _waits_for_other(words, intervals, counts, band):
                order[done] = band
                done += 1
                _count_outside(words, intervals, counts, band)
                break
        if done == before:
            return False
    return True


@_kernel
def _waits_for_other(words, intervals, counts, band):
    if intervals[band, 0] == intervals[band, 1]:
        return False
    start = start_address(words, header(band), intervals[band, 0])
    end = start_address(words, header(band), intervals[band, 1])
    for other in range(words[A_BANDS]):
        head = header(other)
        low = words[head + B_LOW]
        high = words[head + B_HIGH]
        if other == band or counts[other, 0] >= 0 or low == high:
            continue
        if start < start_address(words, head, high) and start_address(words, head, low) < end:
            return True
    return False


@_kernel
def _count_outside(words, intervals, counts, band):
    head = header(band)
    moving = 0
    settling = 0
    table = words[head + B_UNIT_WORD]
    low, high = _core_range(words, head)
    for side in range(2):
        at = low if side == 0 else max(low, intervals[band, 1])
        to = min(high, intervals[band, 0]) if side == 0 else high
        if intervals[band, 0] == intervals[band, 1]:
            at, to = (low, high) if side == 0 else (0, 0)
        for unit in range(at, to):
            word = words[table + unit]
            if word & UNIT_STATE_MASK == LIVE:
                moving += 1
            elif word & UNIT_STATE_MASK > LIVE:
                settling += 1
    counts[band, 0] = moving
    counts[band, 1] = settling


@_kernel
def _fill_outside(words, intervals, band, flat, sources, outside):
    """Write the sources, and all units left outside, ascending; answers nothing."""
    head = header(band)
    table = words[head + B_UNIT_WORD]
    low, high = _core_range(words, head)
    for side in range(2):
        at = low if side == 0 else max(low, intervals[band, 1])
        to = min(high, intervals[band, 0]) if side == 0 else high
        if intervals[band, 0] == intervals[band, 1]:
            at, to = (low, high) if side == 0 else (0, 0)
        for unit in range(at, to):
            state = words[table + unit] & UNIT_STATE_MASK
            if state == LIVE:
                flat[sources] = unit
                sources += 1
            if state >= LIVE:
                flat[outside] = unit
                outside += 1


@_kernel
def _fill_cells(words, low, high, band, count, flat, at):
    """Write `count` free cells of the interval in the order in which they are taken: holes, cells
    beyond today's frontiers, unsettled units. O(count * levels). Answers the first unsettled.
    """
    head = header(band)
    first = words[head + B_FIRST]
    levels = words[head + B_LEVELS]
    downward = words[head + B_PLACEMENT] == PLACED_HIGH
    old_low = words[head + B_LOW]
    old_high = words[head + B_HIGH]
    inside_low = max(low, old_low)
    inside_high = min(high, old_high)
    done = at + count
    for turn in range(2):
        # Holes first; released units come last (see below).
        if turn == 1:
            if downward:
                # (A high end has nothing beyond its high frontier.)
                for unit in range(min(high, old_low) - 1, low - 1, -1):
                    if at == done:
                        return done
                    flat[at] = unit
                    at += 1
            else:
                for unit in range(low, min(high, old_low)):
                    if at == done:
                        return done
                    flat[at] = unit
                    at += 1
                for unit in range(max(low, old_high), high):
                    if at == done:
                        return done
                    flat[at] = unit
                    at += 1
        elif inside_low < inside_high:
            at = _fill_from_map(
                words, head, B_HOLE_MAP, levels, first, inside_low, inside_high, downward,
                flat, at, done,
            )  # fmt: skip
    clean = at
    if at < done and inside_low < inside_high:
        _fill_from_map(
            words, head, B_RELEASED_MAP, levels, first, inside_low, inside_high, downward,
            flat, at, done,
        )  # fmt: skip
    return clean


@_kernel
def _fill_from_map(words, head, which, levels, first, low, high, downward, flat, at, done):
    """Write set bits of [low, high) that are not fixed, outwards, until `done`."""
    table = words[head + B_UNIT_WORD]
    bit = (high - 1 if downward else low) - first
    while at < done:
        if downward:
            bit = map_last(words, head + which, levels, bit) if bit >= 0 else -1
        else:
            bit = map_first(words, head + which, levels, bit)
        unit = first + bit
        if bit < 0 or unit < low or unit >= high:
            return at
        if not _fixed_word(words[table + unit]):
            flat[at] = unit
            at += 1
        bit += -1 if downward else 1
    return at


@_kernel
def plan_fill(words, demand, intervals, order, counts, flat, offsets, settles, fences):
    """Write the units of the plan into `flat`, and its fenced ranges as rows of `fences`.

    Per band at `offsets[band]`: sources, targets, grants, then all units left outside.
    `settles[band]`: whether a copy of the band waits for a settle. Answers how many ranges.
    """
    found = 0
    for position in range(words[A_BANDS]):
        band = order[position]
        head = header(band)
        moved = counts[band, 0]
        at = offsets[band]
        low, high = intervals[band, 0], intervals[band, 1]
        outside = at + 2 * moved + demand[band]
        left = moved + counts[band, 1]
        _fill_outside(words, intervals, band, flat, at, outside)
        clean = at + moved
        if moved + demand[band] > 0:
            clean = _fill_cells(words, low, high, band, moved + demand[band], flat, at + moved)
        settles[band] = clean < at + 2 * moved
        for k in range(at + moved, at + 2 * moved):
            if settles[band]:
                break
            start = start_address(words, head, flat[k])
            end = start_address(words, head, flat[k] + 1)
            for earlier in range(position):
                if _meets_outside(words, order[earlier], counts, flat, offsets, demand, start, end):
                    settles[band] = True
                    break
        for k in range(left):
            start = start_address(words, head, flat[outside + k])
            end = start_address(words, head, flat[outside + k] + 1)
            if k > 0 and fences[found - 1, 2] == start:
                fences[found - 1, 2] = end
            else:
                fences[found, 0], fences[found, 1], fences[found, 2] = band, start, end
                found += 1
    return found


@_kernel
def _meets_outside(words, band, counts, flat, offsets, demand, start, end):
    """Whether a unit that `band` leaves outside meets the bytes [start, end). O(log units)."""
    head = header(band)
    at = offsets[band] + 2 * counts[band, 0] + demand[band]
    low = at
    high = at + counts[band, 0] + counts[band, 1]
    top = high
    while low < high:
        middle = (low + high) // 2
        if start_address(words, head, flat[middle] + 1) <= start:
            low = middle + 1
        else:
            high = middle
    return low < top and start_address(words, head, flat[low]) < end


# --- threads device ----------------------------------------------------------------------------
#
# One long call of `thread_stream` is one stream: it takes commands from a ring, runs programs over
# real memory, sets event flags, waits for those of others. Flags and gates are int64 words that
# writers store with release and readers load with acquire, so what was written before a flag is
# seen by whoever saw the flag. Whoever finds nothing to do sleeps in the kernel on the word it
# waits for (Linux futex), at most `NAP_NS` at a time, so that no lost wake-up lasts.

THREAD_WORDS = 16
"""Words of one row of a program; row 0 is its head."""

# Columns of a head.
H_END, H_SPOILS, H_GATE, H_STOP, H_DONE, H_SLOT, H_WRONG, H_SUM, H_FIRST, H_LAST = range(10)
# Columns of any other row. Copies: C_ENTRY and C_SUM are the source's and the target's space.
C_CODE, C_ENTRY, C_START, C_END, C_PLACE, C_BASE, C_STEP, C_PAUSE = range(8)
C_FROM, C_UNTIL, C_AT, C_RESULT, C_WHERE, C_FOUND, C_WANT, C_EFFECT = range(8, 16)
# Codes of rows.
R_READ, R_FILL, R_COPY, R_COMPARE, R_TABLE_WRITE, R_TABLE_READ, R_BUFFER_WRITE = range(1, 8)
R_GATE, R_SPIN, R_SLEEP = range(8, 11)
# Results of rows.
ROW_DONE, ROW_WRONG, ROW_WILD = 1, 2, 3
# Columns of a stream's state; of what all streams share (each on a cache line of its own).
Q_TAKEN, Q_PUT, Q_AWAITED = 0, 8, 16
S_SEQUENCE, S_STOP, S_WRONG, S_PREFIX, S_FUTEX, S_WAIT_NS, S_GATE_NS = 0, 8, 16, 24, 25, 26, 27
# Commands.
DO_PROGRAM, DO_RECORD, DO_WAIT, DO_BODY, DO_END = range(1, 6)
# Why `thread_stream` returns.
STREAM_ENDED, STREAM_BODY, STREAM_STUCK = 0, 1, 2

NAP_NS = 2_000_000
SPINS = 60
CHECK_WORDS = 512

_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_syscall = types.ExternalFunction(
    "syscall",
    types.int64(
        types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64
    ),
)


def _pointer(builder, address, bits=64):
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@intrinsic
def load_acquire(_typing_context, _address):
    """The int64 at an address; what its writer did before storing it is visible afterwards."""

    def generate(_context, builder, _signature, args):
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def store_release(_typing_context, _address, _value):
    """Store an int64 at an address, after everything done before."""

    def generate(context, builder, _signature, args):
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def fetch_add(_typing_context, _address, _value):
    """Add to the int64 at an address; answers what it was. Sequentially consistent."""

    def generate(_context, builder, _signature, args):
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _words_at(_typing_context, _address):
    def generate(_context, builder, _signature, args):
        return _pointer(builder, args[0])

    return types.CPointer(types.int64)(types.int64), generate


@intrinsic
def copy_bytes(_typing_context, _target, _source, _nbytes):
    """`llvm.memcpy` between two addresses: the C library's memcpy, called from compiled code."""

    def generate(context, builder, _signature, args):
        byte = ir.IntType(8).as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        off = ir.Constant(ir.IntType(1), 0)
        target, source = _pointer(builder, args[0], 8), _pointer(builder, args[1], 8)
        builder.call(copy, [target, source, args[2], off])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _stack_words(_typing_context):
    """Address of two int64 on this call's stack."""

    def generate(_context, builder, _signature, _args):
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(ir.IntType(64), 2))
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(), generate


@_kernel
def now_ns():
    """The monotonic clock in nanoseconds."""
    place = _stack_words()
    _clock_gettime(1, place)
    return load_acquire(place) * 1_000_000_000 + load_acquire(place + 8)


@_kernel
def _nap(address, seen, futex):
    """Sleep until somebody wakes `address`, unless it no longer holds `seen`; at most NAP_NS."""
    if futex < 0:
        _usleep(50)
        return
    place = _stack_words()
    store_release(place, 0)
    store_release(place + 8, NAP_NS)
    # FUTEX_WAIT_PRIVATE looks at the low half of the word.
    _syscall(futex, address, 128, seen & 0xFFFFFFFF, place, 0, 0)


@_kernel
def thread_signal(address, value, futex):
    """Store a word with release and wake whoever sleeps on it."""
    store_release(address, value)
    if futex >= 0:
        _syscall(futex, address, 129, 1 << 30, 0, 0, 0)


@_kernel
def thread_wait(address, value, stop, futex, timeout_ns):
    """Wait until the word at `address` is at least `value`: 1; 0 after `timeout_ns`, -1 once the
    word at `stop` is not 0.
    """
    for _ in range(SPINS):
        if load_acquire(address) >= value:
            return 1
    began = now_ns()
    while True:
        seen = load_acquire(address)
        if seen >= value:
            return 1
        if load_acquire(stop) != 0:
            return -1
        if now_ns() - began > timeout_ns:
            return 0
        _nap(address, seen, futex)


@_kernel
def _spin_ns(duration):
    began = now_ns()
    while now_ns() - began < duration:
        pass


@_kernel
def _check_run(memory, low, high, place, base, step):
    """First word of [low, high) that does not hold the pattern, or -1.

    Word k of a unit written with one stamp holds base + k * step. Sums of 4 KiB are compared with
    their closed form; only a block whose sum is off is looked at word by word.
    """
    while low < high:
        count = min(CHECK_WORDS, high - low)
        total = 0
        for k in range(count):
            total += memory[low + k]
        wanted = base * count + step * ((count * (2 * place + count - 1)) // 2)
        if total != wanted:
            for k in range(count):
                if memory[low + k] != base + step * (place + k):
                    return low + k
            return low
        low += count
        place += count
    return -1


@_kernel
def _check_row(rows, row, memory, low, high, place):
    """Check words [low, high) of a read: the parts that this program has filled itself hold its
    own pattern, the others that of the row.
    """
    at = low
    while at < high:
        end = high
        base, step, shift = rows[row, C_BASE], rows[row, C_STEP], place + (at - low)
        for k in range(row - 1, 0, -1):  # the latest fill wins
            if rows[k, C_CODE] != R_FILL or rows[k, C_RESULT] != ROW_DONE:
                continue
            first = rows[k, C_AT]
            last = first + (rows[k, C_END] - rows[k, C_START]) // 8
            if first <= at < last:
                end = min(end, last)
                base, step = rows[k, C_BASE], rows[k, C_STEP]
                shift = rows[k, C_PLACE] + at - first
                break
            if at < first < end:
                end = first
        wrong = _check_run(memory, at, end, shift, base, step)
        if wrong >= 0:
            rows[row, C_WHERE] = wrong
            rows[row, C_FOUND] = memory[wrong]
            rows[row, C_WANT] = base + step * (shift + wrong - at)
            return False
        at = end
    return True


@_kernel
def _space_address(space, byte, nbytes, arena, host, prefix):
    """Address of `nbytes` bytes at `byte` of the arena (0) or the host tier (1); 0 if outside."""
    at = byte + prefix if space == 0 else byte
    size = arena.size * 8 if space == 0 else host.size * 8
    if at < 0 or nbytes < 0 or at + nbytes > size:
        return 0
    return (arena.ctypes.data if space == 0 else host.ctypes.data) + at


@_kernel
def _run_row(rows, row, shared, arena, host, table, buffers):
    """One access of a program; answers its result."""
    code = rows[row, C_CODE]
    prefix = shared[S_PREFIX]
    if code == R_READ or code == R_FILL:
        start, end = rows[row, C_START], rows[row, C_END]
        if rows[row, C_ENTRY] >= 0:
            base = buffers[rows[0, H_SLOT] + rows[row, C_ENTRY]]
            start, end = start + base, end + base
        low, high = (start + prefix) // 8, (end + prefix) // 8
        if start + prefix < 0 or high > arena.size or low > high:
            rows[row, C_AT] = start // 8
            return ROW_WILD
        rows[row, C_AT] = low
        place = rows[row, C_PLACE]
        if code == R_FILL:
            base, step = rows[row, C_BASE], rows[row, C_STEP]
            middle = (low + high) // 2
            for k in range(low, middle):
                arena[k] = base + step * (place + k - low)
            if rows[row, C_PAUSE] > 0:
                _spin_ns(rows[row, C_PAUSE])
            for k in range(middle, high):
                arena[k] = base + step * (place + k - low)
            return ROW_DONE
        middle = (low + high) // 2
        good = _check_row(rows, row, arena, low, middle, place)
        if rows[row, C_PAUSE] > 0:
            _spin_ns(rows[row, C_PAUSE])
        good = good and _check_row(rows, row, arena, middle, high, place + middle - low)
        return ROW_DONE if good else ROW_WRONG
    if code == R_COPY or code == R_COMPARE:
        nbytes = rows[row, C_END]
        source = _space_address(rows[row, C_ENTRY], rows[row, C_START], nbytes, arena, host, prefix)
        target = _space_address(rows[row, C_STEP], rows[row, C_PLACE], nbytes, arena, host, prefix)
        if source == 0 or target == 0:
            return ROW_WILD
        if code == R_COPY:
            half = nbytes // 16 * 8
            copy_bytes(target, source, half)
            if rows[row, C_PAUSE] > 0:
                _spin_ns(rows[row, C_PAUSE])
            copy_bytes(target + half, source + half, nbytes - half)
            return ROW_DONE
        ours = carray(_words_at(source), nbytes // 8)
        theirs = carray(_words_at(target), nbytes // 8)
        different = 0
        for k in range(ours.size):
            different |= ours[k] ^ theirs[k]
        if different == 0:
            return ROW_DONE
        for k in range(ours.size):
            if ours[k] != theirs[k]:
                rows[row, C_WHERE], rows[row, C_WANT], rows[row, C_FOUND] = k, ours[k], theirs[k]
                break
        return ROW_WRONG
    if code == R_TABLE_WRITE:
        table[rows[row, C_START]] = rows[row, C_END]
    elif code == R_TABLE_READ:
        rows[row, C_AT] = rows[row, C_BASE] + table[rows[row, C_START]] * rows[row, C_STEP]
    elif code == R_BUFFER_WRITE:
        buffers[rows[row, C_START]] = rows[rows[row, C_END], C_AT]
    return ROW_DONE


@_kernel
def _run_rows(rows, first, last, stop, shared, arena, host, table, buffers):
    """Rows [first, last) in order; answers whether it was not stopped."""
    head = rows.ctypes.data
    futex = shared[S_FUTEX]
    counter = shared.ctypes.data
    for row in range(first, last):
        if stop and load_acquire(head + 8 * H_STOP) != 0:
            return False
        code = rows[row, C_CODE]
        if code == R_GATE:
            thread_wait(
                head + 8 * H_GATE, rows[row, C_START], head + 8 * H_STOP, futex, shared[S_GATE_NS]
            )
            continue
        if code == R_SPIN:
            _spin_ns(rows[row, C_START])
            continue
        if code == R_SLEEP:
            _usleep(rows[row, C_START])
            continue
        rows[row, C_FROM] = fetch_add(counter, 1)
        result = _run_row(rows, row, shared, arena, host, table, buffers)
        rows[row, C_UNTIL] = fetch_add(counter, 1)
        rows[row, C_RESULT] = result
        if result != ROW_DONE:
            rows[0, H_WRONG] += 1
            fetch_add(counter + 8 * S_WRONG, 1)
    return True


@_kernel
def run_program(address, count, shared, arena, host, table, buffers):
    """A whole program; its head says when it is done."""
    rows = carray(_words_at(address), (count, THREAD_WORDS))
    counter = shared.ctypes.data
    rows[0, H_FIRST] = fetch_add(counter, 1)
    end = rows[0, H_END]
    whole = _run_rows(rows, 1, end, True, shared, arena, host, table, buffers)
    if not whole or rows[0, H_SPOILS] != 0:
        _run_rows(rows, end, count, False, shared, arena, host, table, buffers)
    rows[0, H_LAST] = fetch_add(counter, 1)
    thread_signal(address + 8 * H_DONE, 1, shared[S_FUTEX])


@_kernel
def thread_stream(state, ring, shared, flags, arena, host, table, buffers):
    """Run one stream until its ring says so, a host callable is due, or an event does not come.

    `ring[k]`: command, argument, count. The caller runs the callable at `state[Q_TAKEN]`, counts
    it as taken, and calls again.
    """
    here = state.ctypes.data
    stop = shared.ctypes.data + 8 * S_STOP
    futex = shared[S_FUTEX]
    forever = 1 << 62
    while True:
        taken = state[Q_TAKEN]
        if thread_wait(here + 8 * Q_PUT, taken + 1, stop, futex, forever) < 0:
            return STREAM_ENDED
        k = taken % ring.shape[0]
        command, argument = ring[k, 0], ring[k, 1]
        if command == DO_PROGRAM:
            run_program(argument, ring[k, 2], shared, arena, host, table, buffers)
        elif command == DO_RECORD:
            at = flags.ctypes.data + 8 * (argument % flags.size)
            thread_signal(at, argument + 1, futex)
        elif command == DO_WAIT:
            state[Q_AWAITED] = argument + 1
            at = flags.ctypes.data + 8 * (argument % flags.size)
            seen = thread_wait(at, argument + 1, stop, futex, shared[S_WAIT_NS])
            if seen < 0:
                return STREAM_ENDED
            if seen == 0:
                return STREAM_STUCK
            state[Q_AWAITED] = 0
        elif command == DO_BODY:
            return STREAM_BODY
        else:
            return STREAM_ENDED
        store_release(here + 8 * Q_TAKEN, taken + 1)


@_kernel
def copy_pages(target, targets, source, sources, nbytes):
    """Copy `nbytes` bytes from byte `sources[k]` of `source` to `targets[k]` of `target`, for all
    k; uint8 arrays. The caller has checked that no page is both read and written.
    """
    into, out_of = target.ctypes.data, source.ctypes.data
    for k in range(sources.size):
        copy_bytes(into + targets[k], out_of + sources[k], nbytes)
