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
from numba import njit, types
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
    PLACED_HIGH,
    PLACED_LOW,
    QUARANTINED,
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

LAYOUT_DIGEST = "4fb412117c40132b"
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
    """Give `unit` the next id: fresh indices first, then the longest-freed one."""
    index = words[head + B_FRESH]
    if index <= words[head + B_IDS]:
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
        # Bits beyond a frontier are stale: keep the search inside the block to [low, high).
        if downward:
            word &= _low_bits(bit & 63)
            if low_bit >> 6 == block:
                word &= -1 << (low_bit & 63)
        else:
            word &= -1 << (bit & 63)
            if (high_bit - 1) >> 6 == block:
                word &= _low_bits((high_bit - 1) & 63)
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
    for k in range(n):
        vid = ids[k]
        code = check_id(words, vid)
        if code != OK:
            if code == NEVER_ALLOCATED and _dropped_here(ids, k):
                code = DOUBLE_FREE
            for j in range(k):
                words[_id_word_at(words, ids[j])] += 1
            return _refuse(words, code, k, vid)
        # Counted down at once, so a repeated id is refused only when references run out.
        words[_id_word_at(words, vid)] -= 1
    _begin(words)
    released = 0
    pending = 0
    for k in range(n):
        vid = ids[k]
        at = _id_word_at(words, vid)
        word = words[at]
        if word & ID_REFERENCES_MASK != 0 or word >> ID_GENERATION_SHIFT != (
            vid >> ID_GENERATION_SHIFT
        ):
            continue
        head = header((vid >> ID_BAND_SHIFT) & ID_BAND_MASK)
        index = vid & ID_INDEX_MASK
        unit = words[words[head + B_V2P] + index]
        if unit == 0:
            # A repeat of a retired index: its generation cannot move on.
            continue
        _unbind(words, head, index, at, word)
        pending += _release(words, head, unit)
        out[released] = vid
        out[n + released] = unit
        released += 1
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
def _dropped_here(ids, k):
    """Whether an earlier position of this call holds the same id. Only on the error path."""
    for j in range(k):
        if ids[j] == ids[k]:
            return True
    return False


@_kernel
def _unbind(words, head, index, at, word):
    """Retire this generation of an id and queue its index; the last one retires the index."""
    words[words[head + B_V2P] + index] = 0
    if word >> ID_GENERATION_SHIFT == ID_GENERATION_LAST:
        words[head + B_RETIRED] += 1
        return
    words[at] = ((word >> ID_GENERATION_SHIFT) + 1) << ID_GENERATION_SHIFT
    ids = words[head + B_IDS]
    slot = words[head + B_RING_HEAD] + words[head + B_RING_COUNT]
    words[words[head + B_RING] + (slot - ids if slot >= ids else slot)] = index
    words[head + B_RING_COUNT] += 1


@_kernel
def _release(words, head, unit):
    """LIVE to PENDING (answers 1) or HOLE (answers 0)."""
    words[words[head + B_P2V] + unit] = 0
    at = words[head + B_UNIT_WORD] + unit
    word = words[at]
    words[head + B_LIVE] -= 1
    if word & UNIT_PINNED:
        words[head + B_PINNED] -= 1
        word &= ~UNIT_PINNED
    if _blocked(word):
        if word & UNIT_QUARANTINED:
            words[head + B_QUARANTINED_FREED] += 1
        elif (word >> UNIT_TRANSFERS_SHIFT) & UNIT_TRANSFERS_MASK != 0:
            words[head + B_FREED_FIXED] += 1
        words[at] = (word & ~UNIT_STATE_MASK) | PENDING
        words[head + B_PENDING] += 1
        map_set(words, head + B_RELEASED_MAP, words[head + B_LEVELS], unit - words[head + B_FIRST])
        _note_fixed(words, head, unit)
        return 1
    _make_hole(words, head, unit)
    return 0


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
    """Take [start, end), beyond a frontier, into the band: holes, except marked targets."""
    if start >= end:
        return
    first = words[head + B_FIRST]
    map_set_range(words, head + B_HOLE_MAP, words[head + B_LEVELS], start - first, end - first)
    table = words[head + B_UNIT_WORD]
    for unit in range(start, end):
        if words[table + unit] != MARK_TARGET:
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


# -- ledger ------------------------------------------------------------------------------------------
# `last` is one row a unit, two columns a stream: column 2*s the latest read, 2*s + 1 the latest write of
# that unit on stream s, each as `ticket << 3 | kind` (0: none). A later use on a stream covers an earlier
# one on the same stream, so a maximum is enough.


@_kernel
def ledger_note(last, units, column, word):
    """Enter one use: the latest word of `column` for each unit. O(units)."""
    for i in range(units.shape[0]):
        last[units[i], column] = word


@_kernel
def ledger_gather(last, units, streams, writes_only, need):
    """Latest ticket by (stream, rw, kind) over `units` into `need`, shape (streams, 2, 8). O(units)."""
    for i in range(units.shape[0]):
        unit = units[i]
        for s in range(streams):
            word = last[unit, 2 * s + 1]
            if word != 0 and word >> 3 > need[s, 1, word & 7]:
                need[s, 1, word & 7] = word >> 3
            if not writes_only:
                word = last[unit, 2 * s]
                if word != 0 and word >> 3 > need[s, 0, word & 7]:
                    need[s, 0, word & 7] = word >> 3


@_kernel
def ledger_blockers(last, units, streams, over, processed, out):
    """First use of each unit that is not over, as `ticket << 8 | stream` into `out` (0: none).

    Over: ticket at most `over[s]` (retired, or settled on the schedule stream), or its bit in the ring
    `processed[s, ticket % ring]` is set. O(units * streams). Returns how many units have a blocker.
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
    """Whether each unit has a use that is not retired: 0 none, 1 reads only, 2 a write. O(units)."""
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
    """Take a fence's uses over into a unit that grew over its bytes: the later word wins. O(streams)."""
    for column in range(words.shape[0]):
        if words[column] >> 3 > last[unit, column] >> 3:
            last[unit, column] = words[column]
