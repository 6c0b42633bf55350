"""What modeled work does to modeled bytes, cut into effects that the schedule places one by one.

An effect is the smallest thing that happens at once. A forward reads all it reads several times,
with its writes in between, part by part; a copy reads one part of every pair, then writes it; a
table update writes its entries part by part; a translation reads the table, then writes its
buffer slot. So whatever gets between two effects shows in the stamps.

Happens on the one thread that steps the device.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from onearena.core.device.byte_map import Segment
from onearena.core.device.interface import (
    BAND_SHIFT,
    TABLE_ENTRY_BYTES,
    UNDEFINED,
    Access,
    OpKind,
    Space,
    Touch,
    Work,
    buffer_access,
    table_access,
)
from onearena.core.device.modeled_memory import SPACES, WILD_ADDRESS, Cover, Memory
from onearena.core.rules import UseKind

ALIGN_MASK: Final = ~15
_FORWARD: Final = int(UseKind.FORWARD)

COPY_KINDS: Final = frozenset(
    (int(UseKind.BACKUP), int(UseKind.LOAD), int(UseKind.MOVE), int(UseKind.FORK))
)
TOUCH_KINDS: Final = frozenset(
    (int(UseKind.FORWARD), int(UseKind.ZEROING), int(UseKind.SEND), int(UseKind.RECEIVE))
)

# Codes of effects. A program is a tuple of (code, part).
_READ, _WRITE, _CAPTURE, _STORE, _TABLE_WRITE, _TABLE_READ, _BUFFER_WRITE, _READ_PART = range(8)
_Program: TypeAlias = tuple[tuple[int, int], ...]
_PROGRAMS: Final[dict[tuple[int, bool, bool, int, int], _Program]] = {}


class Job:
    """One op or transfer on its way through its effects."""

    __slots__ = (
        "captured",
        "cover",
        "fails",
        "head",
        "head_and_reads",
        "kind",
        "length",
        "next",
        "number",
        "program",
        "ranges",
        "reads",
        "resolved",
        "slot",
        "touches",
        "work",
        "writes",
    )

    def __init__(self, number: int, work: Work) -> None:
        """`number` is the op or transfer id."""
        kind = int(work.kind)
        touches = work.touches
        if kind in TOUCH_KINDS and not touches:
            touches = tuple(
                Touch(-1, access.start, access.end, access.writes, work.stamp)
                for access in work.accesses
                if access.space == Space.ARENA
            )
        self.number = number
        self.work = work
        self.kind = kind
        self.touches = touches
        self.program = _program(kind, touches, work)
        self.next = 0
        limit = work.effects_before_failure
        self.fails = 0 <= limit <= len(self.program)
        self.length = limit if self.fails else len(self.program)
        self.cover: Cover | None = None
        self.slot = work.buffer if kind == _FORWARD else -1  # where its addresses are
        self.resolved: tuple[tuple[int, int], ...] | None = None
        self.head: tuple[Access, ...] = ()  # the read of the slot
        self.head_and_reads: tuple[Access, ...] = ()
        self.reads: tuple[Access, ...] = ()
        self.writes: list[list[tuple[Access, int]]] = []
        self.captured: list[list[Segment]] = []  # a copy: what its last capture read
        self.ranges: tuple[tuple[int, int], ...] = ()  # a translation: what it found in the table


def _program(kind: int, touches: tuple[Touch, ...], work: Work) -> _Program:
    reads = writes = False
    for touch in touches:
        if touch[3]:
            writes = True
        else:
            reads = True
    key = (kind, reads, writes, work.pieces, work.passes)
    program = _PROGRAMS.get(key)
    if program is None:
        program = _PROGRAMS[key] = _make_program(
            kind, work.pieces, work.passes, reads=reads, writes=writes
        )
    return program


def _make_program(kind: int, pieces: int, passes: int, *, reads: bool, writes: bool) -> _Program:
    assert pieces >= 1, f"pieces is {pieces}, give 1 or more"
    assert passes >= 1, f"passes is {passes}, give 1 or more"
    if kind in COPY_KINDS:
        return tuple((code, part) for part in range(pieces) for code in (_CAPTURE, _STORE))
    if kind == OpKind.TABLE_UPDATE:
        return tuple((_TABLE_WRITE, part) for part in range(pieces))
    if kind == OpKind.TRANSLATE:
        return ((_TABLE_READ, 0), (_BUFFER_WRITE, 0))
    assert kind in TOUCH_KINDS, f"kind is {kind}, give a UseKind or an OpKind"
    timed: list[tuple[int, int, int]] = []
    if kind == UseKind.SEND:
        timed = [(part, _READ_PART, part) for part in range(pieces)] if reads else []
    elif reads:
        # Reads at equal distances from start to end, writes at the middles of equal parts between.
        timed = [(2 * pieces * i, _READ, i) for i in range(passes)]
    if writes:
        timed += [((2 * part + 1) * max(passes - 1, 1), _WRITE, part) for part in range(pieces)]
    return tuple((code, part) for _, code, part in sorted(timed))


def run_effect(memory: Memory, job: Job) -> tuple[Access, ...]:
    """Do the next effect of `job`; answers what it really touched. O(accesses of the effect)."""
    code, part = job.program[job.next]
    job.next += 1
    return _EFFECTS[code](memory, job, part)


def spoil(memory: Memory, job: Job) -> tuple[Access, ...]:
    """`job` ended half-way: whatever it writes is undefined from now on. Answers those writes."""
    if job.kind in COPY_KINDS:
        _, target_space = _copy_spaces(job.kind)
        accesses = [
            Access(target_space, target, target + nbytes, True)
            for _, target, nbytes in job.work.pairs
        ]
    else:
        _resolve(memory, job)
        accesses = [access for part in job.writes for access, _ in part]
    for access in accesses:
        memory.write(job.number, access, UNDEFINED)
    return tuple(accesses)


def _cover(job: Job) -> Cover:
    if job.cover is None:
        job.cover = Cover(job.work.accesses)
    return job.cover


def _part_of(start: int, end: int, part: int, pieces: int) -> tuple[int, int]:
    """Part `part` of [start, end), cut at multiples of 16 bytes where it is long enough."""
    nbytes = end - start
    low = nbytes * part // pieces
    high = nbytes * (part + 1) // pieces
    if nbytes >= 16 * pieces:
        low &= ALIGN_MASK
        if part + 1 < pieces:
            high &= ALIGN_MASK
    return start + low, start + high


def _resolve(memory: Memory, job: Job) -> None:
    """Find the addresses of the touches: absolute ones, and those in the buffer slot as it is now.

    A forward looks at its slot at every effect, as a kernel would: a slot filled anew too early
    sends the rest of the forward elsewhere.
    """
    slot = job.slot
    ranges = memory.buffers.get(slot, ()) if slot >= 0 else ()
    if ranges is job.resolved:
        return
    cover = _cover(job)
    head: tuple[Access, ...] = ()
    if slot >= 0:
        head = (buffer_access(slot, writes=False),)
        _, start, end, _ = head[0]
        if job.resolved is None and not cover.covers(3, start, end, writes=False, base=start):
            memory.report_undeclared(job.number, head[0])
    job.resolved = ranges
    job.head = head
    reads: list[Access] = []
    pieces = job.work.pieces
    parts: list[list[tuple[Access, int]]] = [[] for _ in range(pieces)]
    arena = Space.ARENA
    exact = cover.exact
    known_ranges = len(ranges)
    for entry, first, last, writes, stamp in job.touches:
        if entry >= 0:
            base = ranges[entry][0] if entry < known_ranges else WILD_ADDRESS
            start = base + first
            end = base + last
        else:
            base = start = first
            end = last
        # A read in one recorded range, by far the most frequent, is found without a call.
        known = exact.get(base * SPACES)
        found = not writes and known is not None and end <= known[0] and start >= base
        if not found and not cover.covers(0, start, end, writes=writes, base=base):
            memory.report_undeclared(job.number, Access(arena, start, end, writes))
        if not writes:
            reads.append(Access(arena, start, end, False))
            continue
        for part in range(pieces):
            low, high = _part_of(start, end, part, pieces)
            if low < high:
                parts[part].append((Access(arena, low, high, True), stamp))
    job.reads = tuple(reads)
    job.head_and_reads = head + job.reads
    job.writes = parts


def _read(memory: Memory, job: Job, _part: int) -> tuple[Access, ...]:
    _resolve(memory, job)
    hook = memory.on_read
    if hook is not None:
        number = job.number
        look = memory.arena.read
        for access in job.reads:
            hook(number, access, look(access[1], access[2]))
    return job.head_and_reads


def _read_part(memory: Memory, job: Job, part: int) -> tuple[Access, ...]:
    _resolve(memory, job)
    accesses = []
    for space, start, end, _ in job.reads:
        low, high = _part_of(start, end, part, job.work.pieces)
        if low < high:
            accesses.append(Access(space, low, high, False))
    if memory.on_read is not None:
        for access in accesses:
            memory.on_read(job.number, access, memory.arena.read(access.start, access.end))
    return tuple(accesses)


def _write(memory: Memory, job: Job, part: int) -> tuple[Access, ...]:
    _resolve(memory, job)
    accesses = []
    assign = memory.arena.assign
    hook = memory.on_write
    for access, stamp in job.writes[part]:
        _, start, end, _ = access
        assign(start, end, stamp)
        if hook is not None:
            hook(job.number, access, ((start, end, stamp),))
        accesses.append(access)
    return job.head + tuple(accesses)


def _copy_spaces(kind: int) -> tuple[Space, Space]:
    """Where a copy reads, and where it writes."""
    if kind == UseKind.BACKUP:
        return Space.ARENA, Space.HOST
    if kind == UseKind.LOAD:
        return Space.HOST, Space.ARENA
    return Space.ARENA, Space.ARENA


def _capture(memory: Memory, job: Job, part: int) -> tuple[Access, ...]:
    """Read one part of every pair."""
    source_space, target_space = _copy_spaces(job.kind)
    held = memory.arena if source_space == Space.ARENA else memory.host
    pieces = job.work.pieces
    if part == 0:
        _check_pairs(memory, job, source_space, target_space)
    captured: list[list[Segment]] = []
    accesses = []
    for source, _, nbytes in job.work.pairs:
        low, high = _part_of(source, source + nbytes, part, pieces)
        seen = held.read(low, high)
        captured.append(seen)
        access = Access(source_space, low, high, False)
        accesses.append(access)
        if memory.on_read is not None:
            memory.on_read(job.number, access, seen)
    job.captured = captured
    return tuple(accesses)


def _check_pairs(memory: Memory, job: Job, source_space: Space, target_space: Space) -> None:
    cover = _cover(job)
    for source, target, nbytes in job.work.pairs:
        end = source + nbytes
        if not cover.covers(int(source_space), source, end, writes=False, base=source):
            memory.report_undeclared(job.number, Access(source_space, source, end, False))
        end = target + nbytes
        if not cover.covers(int(target_space), target, end, writes=True, base=target):
            memory.report_undeclared(job.number, Access(target_space, target, end, True))


def _store(memory: Memory, job: Job, part: int) -> tuple[Access, ...]:
    """Write what the last capture read."""
    _, target_space = _copy_spaces(job.kind)
    held = memory.arena if target_space == Space.ARENA else memory.host
    pieces = job.work.pieces
    accesses = []
    for (source, target, nbytes), seen in zip(job.work.pairs, job.captured, strict=True):
        low, high = _part_of(target, target + nbytes, part, pieces)
        shift = target - source
        access = Access(target_space, low, high, True)
        accesses.append(access)
        written = [(start + shift, end + shift, stamp) for start, end, stamp in seen]
        held.put(written)
        if memory.on_write is not None:
            memory.on_write(job.number, access, written)
    return tuple(accesses)


def _table_entry(memory: Memory, job: Job, place: int, key: int, *, writes: bool) -> Access:
    """The access to the entry of `key`. The host records keys in order, so its own record at the
    same place mostly is just that.
    """
    accesses = job.work.accesses
    if place < len(accesses):
        access = accesses[place]
        if access[0] == 2 and access[1] == key * TABLE_ENTRY_BYTES and access[3] == writes:
            end = access[1] + TABLE_ENTRY_BYTES
            if access[2] == end:
                return access
    access = table_access(key, writes=writes)
    if not _cover(job).covers(2, access[1], access[2], writes=writes, base=access[1]):
        memory.report_undeclared(job.number, access)
    return access


def _table_write(memory: Memory, job: Job, part: int) -> tuple[Access, ...]:
    entries = job.work.entries
    pieces = job.work.pieces
    accesses = []
    count = len(entries)
    for place in range(count * part // pieces, count * (part + 1) // pieces):
        key, unit = entries[place]
        accesses.append(_table_entry(memory, job, place, key, writes=True))
        memory.table[key] = unit
    return tuple(accesses)


def _table_read(memory: Memory, job: Job, _part: int) -> tuple[Access, ...]:
    accesses = []
    ranges = []
    table = memory.table
    grids = memory.grids
    for place, key in enumerate(job.work.keys):
        accesses.append(_table_entry(memory, job, place, key, writes=False))
        grid = grids.get(key >> BAND_SHIFT)
        if grid is None:
            ranges.append((WILD_ADDRESS, WILD_ADDRESS))
        else:
            start = grid[0] + table.get(key, 0) * grid[1]
            ranges.append((start, start + grid[1]))
    job.ranges = tuple(ranges)
    return tuple(accesses)


def _buffer_write(memory: Memory, job: Job, _part: int) -> tuple[Access, ...]:
    access = buffer_access(job.work.buffer, writes=True)
    if not _cover(job).covers(3, access[1], access[2], writes=True, base=access[1]):
        memory.report_undeclared(job.number, access)
    # `ranges` is a fresh tuple each time: running forwards notice a new filling by its identity.
    memory.buffers[job.work.buffer] = job.ranges
    return (access,)


# By effect code.
_EFFECTS: Final = (
    _read,
    _write,
    _capture,
    _store,
    _table_write,
    _table_read,
    _buffer_write,
    _read_part,
)
