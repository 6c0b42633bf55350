"""Every CUDA kernel, in one file, and what each does written once for all of its three lives.

A kernel's work is a function `..._part` over arrays of words. The kernel calls it with its place
in the launch; compiled for the CPU, called with the place of a launch of one thread, the same
function is what a launch does where there is no GPU; and numba's simulator runs it as plain Python.
Only the operations of the first section exist three times.

Arrays are one-dimensional int64 and contiguous. `rows` is a program (`threads_programs`): rows of
`THREAD_WORDS` words, row 0 its head; behind them a table of groups, two words each: first row and
number of rows. One launch runs one group. `arena` begins at the lowest sink, `prefix` bytes below
address 0; its first word lies on 16 bytes. All indices and addresses are 64 bits wide.

Importing this module imports numba's CUDA target, which needs no GPU. Nothing imports it but the
cuda device and what proves it.
"""

from __future__ import annotations

from llvmlite import ir
from numba import cuda, types
from numba.core import config
from numba.extending import intrinsic, overload, register_jitable

# Columns of a head beyond those that the threads device uses (core/kernels.py).
H_CONTROL, H_NUMBER, H_GROUPS, H_FILLS = 10, 11, 12, 13
"""Control word that stops the program (-1: none) and the value that does; the first word of the
table of groups; the first row that fills."""

THREAD_WORDS = 16
H_END, H_SPOILS, H_STOP, H_DONE, H_SLOT, H_WRONG = 0, 1, 3, 4, 5, 6
C_CODE, C_ENTRY, C_START, C_END, C_PLACE, C_BASE, C_STEP, C_PAUSE = range(8)
C_FROM, C_UNTIL, C_AT, C_RESULT, C_WHERE, C_FOUND, C_WANT = range(8, 15)
R_FILL = 2
ROW_DONE, ROW_WRONG, ROW_WILD = 1, 2, 3
# numba compiles a kernel for these numbers: tests/cuda compares them with core/kernels.py.

CHUNK_WORDS = 2048
PAUSE_NS_MAX = 1_000_000
WORD_BITS = 3

# --- operations with three lives --------------------------------------------------------------


def copy_pair(target, t, source, s):
    """Copy two words by one 16-byte load and one 16-byte store; both lie on 16 bytes."""
    target[t] = source[s]
    target[t + 1] = source[s + 1]


def fill_pair(target, t, first, second):
    """Store two words by one 16-byte store; they lie on 16 bytes."""
    target[t] = first
    target[t + 1] = second


def load_word(words, k):
    """Load a word that other streams write; never kept from an earlier load."""
    return words[k]


def swap_if(words, k, old, new):
    """Atomically replace `old` by `new`; answers what was there."""
    found = words[k]
    if found == old:
        words[k] = new
    return found


def add_word(words, k, value):
    """Atomically add."""
    words[k] += value


def clock_ns():
    """The device's clock in nanoseconds; 0 where there is none."""
    return 0


def _global(builder, context, array_type, array, index, element):
    """Pointer to word `index` of an array, in the global address space."""
    data = context.make_array(array_type)(context, builder, array).data
    at = builder.gep(data, [index])
    flat = builder.bitcast(at, ir.PointerType(element))
    return builder.addrspacecast(flat, ir.PointerType(element, addrspace=1), "global")


_PAIR = ir.VectorType(ir.IntType(64), 2)


@intrinsic
def _copy_pair(_typing_context, target, t, source, s):
    def generate(context, builder, signature, args):
        to, out = signature.args[0], signature.args[2]
        out_of = _global(builder, context, out, args[2], args[3], _PAIR)
        into = _global(builder, context, to, args[0], args[1], _PAIR)
        builder.store(builder.load(out_of, align=16), into, align=16)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64), generate


@intrinsic
def _fill_pair(_typing_context, target, t, first, second):
    def generate(context, builder, signature, args):
        into = _global(builder, context, signature.args[0], args[0], args[1], _PAIR)
        pair = builder.insert_element(ir.Constant(_PAIR, None), args[2], ir.IntType(32)(0))
        pair = builder.insert_element(pair, args[3], ir.IntType(32)(1))
        builder.store(pair, into, align=16)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.int64, types.int64), generate


@intrinsic
def _load_volatile(_typing_context, words, k):
    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        at = _global(builder, context, signature.args[0], args[0], args[1], word)
        shape = ir.FunctionType(word, [at.type])
        text = "ld.volatile.global.u64 $0, [$1];"
        return builder.asm(shape, text, "=l,l", [at], side_effect=True)

    return types.int64(words, types.int64), generate


@intrinsic
def _global_timer(_typing_context):
    def generate(_context, builder, _signature, _args):
        shape = ir.FunctionType(ir.IntType(64), [])
        return builder.asm(shape, "mov.u64 $0, %globaltimer;", "=l", [], side_effect=True)

    return types.int64(), generate


# On the CPU (where the fake runs them) the text above is what is compiled.


@overload(copy_pair, target="cpu")
def _copy_pair_on_cpu(target, t, source, s):
    return copy_pair


@overload(fill_pair, target="cpu")
def _fill_pair_on_cpu(target, t, first, second):
    return fill_pair


@overload(load_word, target="cpu")
def _load_word_on_cpu(words, k):
    return load_word


@overload(swap_if, target="cpu")
def _swap_if_on_cpu(words, k, old, new):
    return swap_if


@overload(add_word, target="cpu")
def _add_word_on_cpu(words, k, value):
    return add_word


@overload(clock_ns, target="cpu")
def _clock_ns_on_cpu():
    return clock_ns


if not getattr(config, "ENABLE_CUDASIM", 0):

    @overload(copy_pair, target="cuda")
    def _copy_pair_on_gpu(target, t, source, s):
        return lambda target, t, source, s: _copy_pair(target, t, source, s)

    @overload(fill_pair, target="cuda")
    def _fill_pair_on_gpu(target, t, first, second):
        return lambda target, t, first, second: _fill_pair(target, t, first, second)

    @overload(load_word, target="cuda")
    def _load_word_on_gpu(words, k):
        return lambda words, k: _load_volatile(words, k)

    @overload(swap_if, target="cuda")
    def _swap_if_on_gpu(words, k, old, new):
        return lambda words, k, old, new: cuda.atomic.cas(words, k, old, new)

    @overload(add_word, target="cuda")
    def _add_word_on_gpu(words, k, value):
        return lambda words, k, value: cuda.atomic.add(words, k, value)

    @overload(clock_ns, target="cuda")
    def _clock_ns_on_gpu():
        return lambda: _global_timer()


# --- what the kernels do ------------------------------------------------------------------------
#
# `bx` of `nx` blocks share one row, `by` of `ny` rows are worked on at once; `lane` of `lanes`
# threads make a block.


@register_jitable
def _lesser(a, b):
    # The built-in min and max reach the CUDA target in forms that it cannot compile.
    return a if a < b else b  # noqa: FURB136


@register_jitable
def _above_zero(a):
    return a if a > 0 else 0  # noqa: FURB136


@register_jitable
def _spin(duration):
    """Wait `duration` nanoseconds of the device's clock, at most PAUSE_NS_MAX."""
    began = clock_ns()
    if began > 0:
        limit = _lesser(duration, PAUSE_NS_MAX)
        while clock_ns() - began < limit:
            pass


@register_jitable
def _stopped(rows, control):
    """Whether the host has stopped this program."""
    k = rows[H_CONTROL]
    return k >= 0 and load_word(control, k) == rows[H_NUMBER]


@register_jitable
def _wrong(rows, at, result):
    """The row found something wrong; True for the one thread that may say what."""
    found = swap_if(rows, at + C_RESULT, 0, result)
    if found == ROW_DONE:
        # The first thread of the row is through; its verdict is not that of the others.
        found = swap_if(rows, at + C_RESULT, ROW_DONE, result)
        if found == ROW_DONE:
            found = 0
    if found != 0:
        return False
    add_word(rows, H_WRONG, 1)
    return True


@register_jitable
def _place(rows, at, arena, slots, prefix):
    """First and last word of a read or fill in the arena; (-1, word address) if outside.

    Addresses come from the buffer slot at the moment of the access, as rule 9 wants it.
    """
    start, end = rows[at + C_START], rows[at + C_END]
    entry = rows[at + C_ENTRY]
    if entry >= 0:
        base = load_word(slots, rows[H_SLOT] + entry)
        start, end = start + base, end + base
    low, high = (start + prefix) >> WORD_BITS, (end + prefix) >> WORD_BITS
    if start + prefix < 0 or high > arena.size or low > high:
        return -1, start >> WORD_BITS
    return low, high


@register_jitable
def stamp_write_part(bx, nx, by, ny, lane, lanes, rows, group, arena, slots, control, prefix, when):
    """Fill the ranges of a group with their patterns: word k of a unit holds base + k * step.

    `when` 0: unless the program is stopped; 1: only if it is, or fails by itself, and then the
    head says so.
    """
    first_thread = bx == 0 and lane == 0
    stopped = _stopped(rows, control)
    if when == 0:
        if stopped:
            return
    elif not stopped and rows[H_SPOILS] == 0:
        return
    elif stopped and first_thread and by == 0:
        rows[H_STOP] = 1
    table = rows[H_GROUPS] + 2 * group
    first, count = rows[table], rows[table + 1]
    for row in range(first + by, first + count, ny):
        at = row * THREAD_WORDS
        low, high = _place(rows, at, arena, slots, prefix)
        if low < 0:
            if first_thread:
                rows[at + C_AT] = high
                _wrong(rows, at, ROW_WILD)
            continue
        if first_thread:
            rows[at + C_FROM] = clock_ns()
            rows[at + C_AT] = low
        base, step = rows[at + C_BASE], rows[at + C_STEP]
        shift = rows[at + C_PLACE] - low
        # Pairs from the first word on 16 bytes on; the odd words at both ends by themselves.
        even = low + (low & 1)
        pairs = _above_zero(high - even) >> 1
        for p in range(bx * lanes + lane, pairs, nx * lanes):
            k = even + 2 * p
            word = base + step * (shift + k)
            fill_pair(arena, k, word, word + step)
        if first_thread:
            if even > low and low < high:
                arena[low] = base + step * (shift + low)
            last = even + 2 * pairs
            if last < high:
                arena[last] = base + step * (shift + last)
            rows[at + C_UNTIL] = clock_ns()
            swap_if(rows, at + C_RESULT, 0, ROW_DONE)


@register_jitable
def _check_words(rows, row, low, at, end, lane, lanes, arena):
    """Compare words [at, end) of a read with the pattern they should hold.

    The parts that this program has filled itself hold its own pattern (the latest fill wins), the
    others that of the row. Every thread of a block walks the same pieces.
    """
    here = row * THREAD_WORDS
    while at < end:
        until = end
        base, step = rows[here + C_BASE], rows[here + C_STEP]
        shift = rows[here + C_PLACE] - low
        k = row - 1
        while k >= rows[H_FILLS]:
            fill = k * THREAD_WORDS
            k -= 1
            if rows[fill + C_CODE] != R_FILL or rows[fill + C_RESULT] != ROW_DONE:
                continue
            begin = rows[fill + C_AT]
            over = begin + ((rows[fill + C_END] - rows[fill + C_START]) >> WORD_BITS)
            if begin <= at and at < over:
                until = _lesser(until, over)
                base, step = rows[fill + C_BASE], rows[fill + C_STEP]
                shift = rows[fill + C_PLACE] - begin
                break
            if at < begin and begin < until:
                until = begin
        different = 0
        for w in range(at + lane, until, lanes):
            different |= load_word(arena, w) ^ (base + step * (shift + w))
        if different != 0:
            for w in range(at + lane, until, lanes):
                found, wanted = load_word(arena, w), base + step * (shift + w)
                if found != wanted:
                    if _wrong(rows, here, ROW_WRONG):
                        rows[here + C_WHERE] = w
                        rows[here + C_FOUND] = found
                        rows[here + C_WANT] = wanted
                    break
        at = until


@register_jitable
def stamp_check_part(bx, nx, by, ny, lane, lanes, rows, group, arena, slots, control, prefix):
    """Read the ranges of a group, spin, read again; each row gets its verdict."""
    if _stopped(rows, control):
        return
    table = rows[H_GROUPS] + 2 * group
    first, count = rows[table], rows[table + 1]
    for row in range(first + by, first + count, ny):
        at = row * THREAD_WORDS
        low, high = _place(rows, at, arena, slots, prefix)
        first_thread = bx == 0 and lane == 0
        if low < 0:
            if first_thread:
                rows[at + C_AT] = high
                _wrong(rows, at, ROW_WILD)
            continue
        if first_thread:
            rows[at + C_FROM] = clock_ns()
            rows[at + C_AT] = low
        for begin in range(low + bx * CHUNK_WORDS, high, nx * CHUNK_WORDS):
            end = _lesser(begin + CHUNK_WORDS, high)
            _check_words(rows, row, low, begin, end, lane, lanes, arena)
            if rows[at + C_PAUSE] > 0:
                _spin(rows[at + C_PAUSE])
            _check_words(rows, row, low, begin, end, lane, lanes, arena)
        if first_thread:
            rows[at + C_UNTIL] = clock_ns()
            swap_if(rows, at + C_RESULT, 0, ROW_DONE)


@register_jitable
def _pages(rows, at, arena, prefix):
    """First words of source and target of a copy, and its words; -1 words if it leaves the
    arena.
    """
    source, target = rows[at + C_START] + prefix, rows[at + C_PLACE] + prefix
    nbytes = rows[at + C_END]
    most = (arena.size << WORD_BITS) - nbytes
    if nbytes < 0 or source < 0 or target < 0 or source > most or target > most:
        return 0, 0, -1
    return source >> WORD_BITS, target >> WORD_BITS, nbytes >> WORD_BITS


@register_jitable
def page_copy_part(bx, nx, by, ny, lane, lanes, rows, group, arena, prefix):
    """Copy the pages of a group. No page of a batch is both read and written."""
    table = rows[H_GROUPS] + 2 * group
    first, count = rows[table], rows[table + 1]
    first_thread = bx == 0 and lane == 0
    for row in range(first + by, first + count, ny):
        at = row * THREAD_WORDS
        source, target, words = _pages(rows, at, arena, prefix)
        if words < 0:
            if first_thread:
                _wrong(rows, at, ROW_WILD)
            continue
        if first_thread:
            rows[at + C_FROM] = clock_ns()
        odd = source & 1
        if odd != target & 1:
            # No 16-byte access fits both sides. Units lie on 16 bytes, so whole pages never do.
            for k in range(bx * lanes + lane, words, nx * lanes):
                arena[target + k] = arena[source + k]
        else:
            odd = _lesser(odd, words)
            pairs = (words - odd) >> 1
            for p in range(bx * lanes + lane, pairs, nx * lanes):
                copy_pair(arena, target + odd + 2 * p, arena, source + odd + 2 * p)
            if first_thread:
                if odd:
                    arena[target] = arena[source]
                if odd + 2 * pairs < words:
                    arena[target + words - 1] = arena[source + words - 1]
        if first_thread:
            rows[at + C_UNTIL] = clock_ns()
            swap_if(rows, at + C_RESULT, 0, ROW_DONE)


@register_jitable
def page_compare_part(bx, nx, by, ny, lane, lanes, rows, group, arena, prefix):
    """Compare the copies of a group with their sources."""
    table = rows[H_GROUPS] + 2 * group
    first, count = rows[table], rows[table + 1]
    for row in range(first + by, first + count, ny):
        at = row * THREAD_WORDS
        source, target, words = _pages(rows, at, arena, prefix)
        first_thread = bx == 0 and lane == 0
        if words < 0:
            if first_thread:
                _wrong(rows, at, ROW_WILD)
            continue
        if first_thread:
            rows[at + C_FROM] = clock_ns()
        different = 0
        for k in range(bx * lanes + lane, words, nx * lanes):
            different |= load_word(arena, source + k) ^ load_word(arena, target + k)
        if different != 0:
            for k in range(bx * lanes + lane, words, nx * lanes):
                ours, theirs = load_word(arena, source + k), load_word(arena, target + k)
                if ours != theirs:
                    if _wrong(rows, at, ROW_WRONG):
                        rows[at + C_WHERE] = k
                        rows[at + C_WANT] = ours
                        rows[at + C_FOUND] = theirs
                    break
        if first_thread:
            rows[at + C_UNTIL] = clock_ns()
            swap_if(rows, at + C_RESULT, 0, ROW_DONE)


@register_jitable
def zero_part(bx, nx, by, ny, lane, lanes, rows, group, arena, control, prefix):
    """Zero the ranges of a group; their addresses are the arena's."""
    if _stopped(rows, control):
        return
    table = rows[H_GROUPS] + 2 * group
    first, count = rows[table], rows[table + 1]
    first_thread = bx == 0 and lane == 0
    for row in range(first + by, first + count, ny):
        at = row * THREAD_WORDS
        low = (rows[at + C_START] + prefix) >> WORD_BITS
        high = (rows[at + C_END] + prefix) >> WORD_BITS
        if low < 0 or high > arena.size or low > high:
            if first_thread:
                rows[at + C_AT] = low - (prefix >> WORD_BITS)
                _wrong(rows, at, ROW_WILD)
            continue
        if first_thread:
            rows[at + C_FROM] = clock_ns()
            rows[at + C_AT] = low
        even = low + (low & 1)
        pairs = _above_zero(high - even) >> 1
        for p in range(bx * lanes + lane, pairs, nx * lanes):
            fill_pair(arena, even + 2 * p, 0, 0)
        if first_thread:
            if low < high:
                arena[low] = 0
                arena[high - 1] = 0
            rows[at + C_UNTIL] = clock_ns()
            swap_if(rows, at + C_RESULT, 0, ROW_DONE)


@register_jitable
def table_update_part(bx, nx, lane, lanes, rows, group, table):
    """Write id-table entries, one a row."""
    groups = rows[H_GROUPS] + 2 * group
    first, count = rows[groups], rows[groups + 1]
    for row in range(first + bx * lanes + lane, first + count, nx * lanes):
        at = row * THREAD_WORDS
        table[rows[at + C_START]] = rows[at + C_END]
        rows[at + C_RESULT] = ROW_DONE


@register_jitable
def resolve_part(bx, nx, lane, lanes, rows, group, table, slots):
    """Virtual to physical, into the forward's own buffer slot: each row of the group stores what
    the row it names reads from the id table.
    """
    groups = rows[H_GROUPS] + 2 * group
    first, count = rows[groups], rows[groups + 1]
    for row in range(first + bx * lanes + lane, first + count, nx * lanes):
        write = row * THREAD_WORDS
        read = rows[write + C_END] * THREAD_WORDS
        unit = load_word(table, rows[read + C_START])
        address = rows[read + C_BASE] + unit * rows[read + C_STEP]
        rows[read + C_AT] = address
        slots[rows[write + C_START]] = address
        rows[read + C_RESULT] = ROW_DONE
        rows[write + C_RESULT] = ROW_DONE


@register_jitable
def signal_part(bx, lane, control, k, value):
    """Store one control word."""
    if bx == 0 and lane == 0:
        control[k] = value


# --- kernels --------------------------------------------------------------------------------------


@register_jitable
def _here():
    """This thread's place in a launch, for the parts that work on rows side by side."""
    return (
        types.int64(cuda.blockIdx.x),
        types.int64(cuda.gridDim.x),
        types.int64(cuda.blockIdx.y),
        types.int64(cuda.gridDim.y),
        types.int64(cuda.threadIdx.x),
        types.int64(cuda.blockDim.x),
    )


@cuda.jit
def stamp_write(rows, group, arena, slots, control, prefix, when):
    """See `stamp_write_part`."""
    stamp_write_part(*_here(), rows, group, arena, slots, control, prefix, when)


@cuda.jit
def stamp_check(rows, group, arena, slots, control, prefix):
    """See `stamp_check_part`."""
    stamp_check_part(*_here(), rows, group, arena, slots, control, prefix)


@cuda.jit
def page_copy(rows, group, arena, prefix):
    """See `page_copy_part`."""
    page_copy_part(*_here(), rows, group, arena, prefix)


@cuda.jit
def page_compare(rows, group, arena, prefix):
    """See `page_compare_part`."""
    page_compare_part(*_here(), rows, group, arena, prefix)


@cuda.jit
def zero(rows, group, arena, control, prefix):
    """See `zero_part`."""
    zero_part(*_here(), rows, group, arena, control, prefix)


@cuda.jit
def table_update(rows, group, table):
    """See `table_update_part`."""
    bx, nx, _, _, lane, lanes = _here()
    table_update_part(bx, nx, lane, lanes, rows, group, table)


@cuda.jit
def resolve(rows, group, table, slots):
    """See `resolve_part`."""
    bx, nx, _, _, lane, lanes = _here()
    resolve_part(bx, nx, lane, lanes, rows, group, table, slots)


@cuda.jit
def signal(control, k, value):
    """See `signal_part`."""
    bx, _, _, _, lane, _ = _here()
    signal_part(bx, lane, control, k, value)


_W = types.int64[::1]
_I = types.int64
SIGNATURES = {
    "stamp_write": (_W, _I, _W, _W, _W, _I, _I),
    "stamp_check": (_W, _I, _W, _W, _W, _I),
    "page_copy": (_W, _I, _W, _I),
    "page_compare": (_W, _I, _W, _I),
    "zero": (_W, _I, _W, _W, _I),
    "table_update": (_W, _I, _W),
    "resolve": (_W, _I, _W, _W),
    "signal": (_W, _I, _I),
}
"""Argument types of every kernel: arrays of words, then numbers."""

PARTS = {
    "stamp_write": stamp_write_part,
    "stamp_check": stamp_check_part,
    "page_copy": page_copy_part,
    "page_compare": page_compare_part,
    "zero": zero_part,
    "table_update": table_update_part,
    "resolve": resolve_part,
    "signal": signal_part,
}
"""What each kernel does, given its place in the launch."""
