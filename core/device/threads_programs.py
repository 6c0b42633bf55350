"""Work as a program: the rows that a stream of the threads device runs over real bytes.

A row is one access, one pause or one gate (`core/kernels.py`, section "threads device", names its
columns). Bytes written with stamp s hold a pattern that names s: word k of a unit is
`base(s) + k * STEP`, with `base` a bijection of 64-bit numbers, so any word tells who wrote it and
where in a unit it belongs. Every lane of every entry begins at a word, so each carries its stamp.
Stamp `ZERO` is plain zeros.

Pure: rows follow from the work, the layout and the pacing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device.interface import (
    BAND_SHIFT,
    UNDEFINED,
    ZERO,
    Access,
    OpKind,
    Space,
    Touch,
    Work,
    buffer_access,
    table_access,
)
from onearena.core.errors import DeviceError
from onearena.core.rules import UseKind

STEP: Final = 0x9E3779B97F4A7C15 - (1 << 64)
"""Difference of neighbouring words of a pattern; odd, so no two words of a unit are alike."""

WORD_BYTES: Final = 8
_MASK: Final = (1 << 64) - 1
_STAMP_MASK: Final = (1 << 32) - 1
_M1, _M2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_M1_INVERSE, _M2_INVERSE = pow(_M1, -1, 1 << 64), pow(_M2, -1, 1 << 64)

_SPACES: Final = tuple(Space)
COPIES: Final = frozenset((UseKind.BACKUP, UseKind.LOAD, UseKind.MOVE, UseKind.FORK))
_Row = tuple[int, ...]


class Pacing(NamedTuple):
    """How one program is slowed down. `gates` 0: none; 1: it starts when the schedule lets it;
    2: so does each of its effects. `seed` decides the pauses; 0: none.
    """

    gates: int = 0
    seed: int = 0


FREE: Final = Pacing()


class RowFailure(NamedTuple):
    """An access that found bytes nobody should have left there. `stamp` values are decoded;
    None: the word belongs to no stamp (torn, or from elsewhere).
    """

    number: int
    label: str
    kind: int
    space: Space
    address: int
    expected: int
    found: int
    expected_stamp: int | None
    found_stamp: int | None
    what: str


@dataclass(frozen=True, slots=True)
class DeviceLayout:
    """Where the real spaces lie. `table_starts[b]` is the first word of band b's id table.

    `slot_entries` is how many byte ranges a buffer slot holds; `salt` (31 bits) goes into every
    pattern but that of `ZERO`.
    """

    prefix_bytes: int
    grids: tuple[tuple[int, int], ...]
    table_starts: tuple[int, ...]
    table_ids: tuple[int, ...]
    slots: int
    slot_entries: int
    salt: int = 0

    def table_word(self, key: int) -> int:
        """Word of an id's table entry; `DeviceError` for a key of no band or id."""
        band, index = key >> BAND_SHIFT, key & ((1 << BAND_SHIFT) - 1)
        if band >= len(self.grids) or index > self.table_ids[band]:
            raise DeviceError(f"table key {key}: band {band} has no id {index} in this layout")
        return self.table_starts[band] + index


@lru_cache(maxsize=1 << 16)
def base_of(stamp: int, salt: int = 0) -> int:
    """First word of the pattern of `stamp` (32 bits), signed (splitmix64; 0 for `ZERO`)."""
    if stamp == ZERO:
        return 0
    x = (stamp & _STAMP_MASK) | salt << 32
    x = ((x ^ (x >> 30)) * _M1) & _MASK
    x = ((x ^ (x >> 27)) * _M2) & _MASK
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x


def step_of(stamp: int) -> int:
    """Difference of neighbouring words of the pattern of `stamp`."""
    return 0 if stamp == ZERO else STEP


def stamp_of(word: int, place: int, salt: int = 0) -> int | None:
    """The stamp whose pattern holds `word` as word `place`; None if that of no stamp does."""
    if word == 0:
        return ZERO
    x = (word - place * STEP) & _MASK
    x = x ^ (x >> 31) ^ (x >> 62)
    x = (x * _M2_INVERSE) & _MASK
    x = x ^ (x >> 27) ^ (x >> 54)
    x = (x * _M1_INVERSE) & _MASK
    x = x ^ (x >> 30) ^ (x >> 60)
    if x >> 32 != salt:
        return None
    stamp = x & _STAMP_MASK
    return stamp if stamp < 1 << 31 else stamp - (1 << 32)


class Program:
    """One op or transfer of the threads device: its rows, and what they mean."""

    __slots__ = ("lane", "layout", "number", "rows", "work")

    def __init__(
        self, number: int, work: Work, rows: NDArray[np.int64], layout: DeviceLayout
    ) -> None:
        self.number = number
        self.work = work
        self.rows = rows
        self.layout = layout
        self.lane = -1

    @property
    def address(self) -> int:
        """Of the first row."""
        return int(self.rows.ctypes.data)

    @property
    def done(self) -> bool:
        """Whether it touches nothing any more."""
        return bool(self.rows[0, kernels.H_DONE])

    @property
    def whole(self) -> bool:
        """Whether it ran to its end and was not stopped before (once it is done)."""
        end = int(self.rows[0, kernels.H_END])
        codes = self.rows[1:end, kernels.C_CODE]
        return not ((codes < kernels.R_GATE) & (self.rows[1:end, kernels.C_RESULT] == 0)).any()

    def effects(self) -> list[tuple[int, tuple[Access, ...]]]:
        """(effect number, what it really touched), in order; for a program that is done."""
        found: dict[int, dict[Access, None]] = {}
        slot = self.work.buffer if self.work.kind == UseKind.FORWARD else -1
        for row in self.rows[1:].tolist():
            if not row[kernels.C_RESULT]:
                continue
            touched = found.setdefault(row[kernels.C_EFFECT], {})
            if slot >= 0 and not touched:
                touched[buffer_access(slot, writes=False)] = None
            for access in _accesses(row, self):
                touched[access] = None
        return [(effect, tuple(touched)) for effect, touched in found.items()]

    def failures(self) -> Iterator[RowFailure]:
        """What its accesses found wrong; empty on a clean run."""
        if not self.rows[0, kernels.H_WRONG]:
            return
        for row in self.rows[1:].tolist():
            if row[kernels.C_RESULT] in (kernels.ROW_WRONG, kernels.ROW_WILD):
                yield _failure(row, self)


def compile_work(number: int, work: Work, layout: DeviceLayout, pacing: Pacing = FREE) -> Program:
    """The program of `work`. O(touches * (pieces + passes)). `DeviceError` when a buffer slot is
    too small for it.
    """
    builder = _Builder(work, layout, pacing, number)
    kind = work.kind
    if kind in COPIES:
        builder.copies()
    elif kind == OpKind.TABLE_UPDATE:
        builder.table_update()
    elif kind == OpKind.TRANSLATE:
        builder.translate()
    else:
        builder.touches()
    rows = builder.finish()
    return Program(number, work, rows, layout)


class _Builder:
    def __init__(self, work: Work, layout: DeviceLayout, pacing: Pacing, number: int) -> None:
        self.work = work
        self.layout = layout
        self.gates = pacing.gates
        self.rows: list[_Row] = []
        self.spoils: list[_Row] = []
        self.effect = -1
        self.always_spoils = work.effects_before_failure >= 0
        self.limit = work.effects_before_failure if self.always_spoils else 1 << 30
        mixed = pacing.seed ^ pacing.seed >> 64
        self._random = (mixed * _M1 + number * _M2 + 1) & _MASK | 1 if pacing.seed else 0
        self._unit_starts = sorted(
            access.start for access in work.accesses if access.space == Space.ARENA
        )

    def draw(self, bound: int) -> int:
        """A number below `bound`; 0 without a seed."""
        if not self._random:
            return 0
        x = self._random = (self._random * 6364136223846793005 + 1442695040888963407) & _MASK
        return (x >> 33) * bound >> 31

    def pause(self) -> int:
        """Nanoseconds inside one access, mostly none."""
        return 0 if self.draw(8) else 1000 * self.draw(40)

    def begin_effect(self) -> bool:
        """The next effect; False when the work fails before it."""
        self.effect += 1
        if self.effect >= self.limit:
            return False
        if self.gates == 2 or (self.gates == 1 and not self.effect):
            self.rows.append(_row(kernels.R_GATE, start=self.effect + 1, effect=self.effect))
        chance = self.draw(8)
        if self.effect and chance == 0:
            self.rows.append(_row(kernels.R_SLEEP, start=20 + self.draw(200)))
        elif chance == 1:
            self.rows.append(_row(kernels.R_SPIN, start=1000 * self.draw(30)))
        return True

    def touches(self) -> None:
        """FORWARD, ZEROING, SEND, RECEIVE."""
        work = self.work
        touches = work.touches or tuple(
            Touch(-1, access.start, access.end, access.writes, work.stamp)
            for access in work.accesses
            if access.space == Space.ARENA
        )
        reads = [touch for touch in touches if not touch.writes]
        writes = [touch for touch in touches if touch.writes]
        entries = max((touch.entry for touch in touches), default=-1)
        if entries >= self.layout.slot_entries or work.buffer >= self.layout.slots:
            raise DeviceError(
                f"buffer slot {work.buffer} with {entries + 1} ranges: this device has "
                f"{self.layout.slots} slots of {self.layout.slot_entries}"
            )
        for writing, part in _timeline(work, reads=bool(reads), writes=bool(writes)):
            if not self.begin_effect():
                break
            for touch in writes if writing else reads:
                cut = (part, work.pieces) if writing or work.kind == UseKind.SEND else (0, 1)
                self._touch(self.rows, touch, cut, writing=writing)
        else:
            # Whoever writes looks again before it ends: nobody else may write there meanwhile.
            if work.kind in (UseKind.FORWARD, UseKind.ZEROING):
                for touch in writes:
                    self._touch(self.rows, touch, (0, 1), writing=False)
        for touch in writes:
            spoilt = touch._replace(stamp=UNDEFINED)
            self._touch(self.spoils, spoilt, (0, 1), writing=True)

    def _touch(
        self, rows: list[_Row], touch: Touch, cut: tuple[int, int], *, writing: bool
    ) -> None:
        low, high = _part(touch.start, touch.end, *cut)
        if low >= high:
            return
        unit = 0 if touch.entry >= 0 else self._unit_start(touch.start)
        rows.append(
            _row(
                kernels.R_FILL if writing else kernels.R_READ,
                entry=touch.entry,
                start=low,
                end=high,
                place=(low - unit) // WORD_BYTES,
                base=base_of(touch.stamp, self.layout.salt),
                step=step_of(touch.stamp),
                pause=self.pause(),
                effect=self.effect,
            )
        )

    def _unit_start(self, address: int) -> int:
        """Where the recorded range begins that holds `address`: patterns count words from there."""
        at = bisect_right(self._unit_starts, address) - 1
        return self._unit_starts[at] if at >= 0 else address

    def copies(self) -> None:
        """BACKUP, LOAD, MOVE, FORK: part by part, then all of it compared."""
        work = self.work
        source = Space.HOST if work.kind == UseKind.LOAD else Space.ARENA
        target = Space.HOST if work.kind == UseKind.BACKUP else Space.ARENA

        def add(code: int, pair: tuple[int, int, int], low: int, high: int) -> None:
            self.rows.append(
                _row(
                    code,
                    entry=source,
                    start=pair[0] + low,
                    end=high - low,
                    place=pair[1] + low,
                    step=target,
                    pause=self.pause() if code == kernels.R_COPY else 0,
                    effect=self.effect,
                )
            )

        for part in range(work.pieces):
            if not self.begin_effect():
                break
            for pair in work.pairs:
                low, high = _part(0, pair[2], part, work.pieces)
                if low < high:
                    add(kernels.R_COPY, pair, low, high)
            self.effect += 1  # the model counts the reads and the writes of a part as two
        else:
            if not self.always_spoils:
                for pair in work.pairs:
                    add(kernels.R_COMPARE, pair, 0, pair[2])
        if target == Space.ARENA:
            for _, start, nbytes in work.pairs:
                junk = Touch(-1, start, start + nbytes, True, UNDEFINED)
                self._touch(self.spoils, junk, (0, 1), writing=True)

    def table_update(self) -> None:
        """Entry after entry of the id table."""
        entries, pieces = self.work.entries, self.work.pieces
        for part in range(pieces):
            self.begin_effect()
            low, high = len(entries) * part // pieces, len(entries) * (part + 1) // pieces
            for key, unit in entries[low:high]:
                self.rows.append(
                    _row(
                        kernels.R_TABLE_WRITE,
                        start=self.layout.table_word(key),
                        end=unit,
                        place=key,
                        effect=self.effect,
                    )
                )

    def translate(self) -> None:
        """Read the id table, then fill the buffer slot: rule 9, on the device's side."""
        work, layout = self.work, self.layout
        if len(work.keys) > layout.slot_entries or not 0 <= work.buffer < layout.slots:
            raise DeviceError(
                f"buffer slot {work.buffer} with {len(work.keys)} ranges: this device has "
                f"{layout.slots} slots of {layout.slot_entries}"
            )
        self.begin_effect()
        first = 1 + len(self.rows)
        for key in work.keys:
            origin, unit = layout.grids[key >> BAND_SHIFT]
            self.rows.append(
                _row(
                    kernels.R_TABLE_READ,
                    start=layout.table_word(key),
                    place=key,
                    base=origin,
                    step=unit,
                    effect=0,
                )
            )
        self.begin_effect()
        for position in range(len(work.keys)):
            self.rows.append(
                _row(
                    kernels.R_BUFFER_WRITE,
                    start=work.buffer * layout.slot_entries + position,
                    end=first + position,
                    effect=1,
                )
            )

    def finish(self) -> NDArray[np.int64]:
        """All rows, with their head."""
        spoils = self.spoils
        rows = np.zeros((1 + len(self.rows) + len(spoils), kernels.THREAD_WORDS), np.int64)
        if len(rows) > 1:
            rows[1:] = self.rows + spoils
        rows[0, kernels.H_END] = 1 + len(self.rows)
        rows[0, kernels.H_SPOILS] = self.always_spoils
        rows[0, kernels.H_SLOT] = max(self.work.buffer, 0) * self.layout.slot_entries
        return rows


def _row(
    code: int,
    *,
    entry: int = -1,
    start: int = 0,
    end: int = 0,
    place: int = 0,
    base: int = 0,
    step: int = 0,
    pause: int = 0,
    effect: int = 0,
) -> _Row:
    return (code, entry, start, end, place, base, step, pause, 0, 0, 0, 0, 0, 0, 0, effect)


def _part(start: int, end: int, part: int, pieces: int) -> tuple[int, int]:
    """Part `part` of [start, end), cut at words."""
    words = (end - start) // WORD_BYTES
    low = words * part // pieces * WORD_BYTES
    high = words * (part + 1) // pieces * WORD_BYTES if part + 1 < pieces else end - start
    return start + low, start + high


def _timeline(work: Work, *, reads: bool, writes: bool) -> list[tuple[bool, int]]:
    """(writes, part or pass) in order: reads at equal distances from start to end, writes at the
    middles of equal parts between (`docs/devices.md`).
    """
    pieces, passes = work.pieces, work.passes
    timed: list[tuple[int, int, int]] = []
    if work.kind == UseKind.SEND:
        timed = [(part, 0, part) for part in range(pieces)] if reads else []
    elif reads:
        timed = [(2 * pieces * i, 0, i) for i in range(passes)]
    if writes:
        timed += [((2 * part + 1) * max(passes - 1, 1), 1, part) for part in range(pieces)]
    return [(bool(writing), part) for _, writing, part in sorted(timed)]


def _accesses(row: Sequence[int], program: Program) -> Iterator[Access]:
    """What a row that ran has touched."""
    code = row[kernels.C_CODE]
    if code in (kernels.R_READ, kernels.R_FILL):
        start = row[kernels.C_AT] * WORD_BYTES - program.layout.prefix_bytes
        if row[kernels.C_RESULT] == kernels.ROW_WILD:
            start = row[kernels.C_AT] * WORD_BYTES
        nbytes = row[kernels.C_END] - row[kernels.C_START]
        yield Access(Space.ARENA, start, start + nbytes, code == kernels.R_FILL)
    elif code in (kernels.R_COPY, kernels.R_COMPARE):
        nbytes, source, target = row[kernels.C_END], row[kernels.C_START], row[kernels.C_PLACE]
        yield Access(_SPACES[row[kernels.C_ENTRY]], source, source + nbytes, False)
        writes = code == kernels.R_COPY
        yield Access(_SPACES[row[kernels.C_STEP]], target, target + nbytes, writes)
    elif code in (kernels.R_TABLE_WRITE, kernels.R_TABLE_READ):
        yield table_access(row[kernels.C_PLACE], writes=code == kernels.R_TABLE_WRITE)
    elif code == kernels.R_BUFFER_WRITE:
        yield buffer_access(program.work.buffer, writes=True)


def _failure(row: Sequence[int], program: Program) -> RowFailure:
    work, layout = program.work, program.layout
    code, wild = row[kernels.C_CODE], row[kernels.C_RESULT] == kernels.ROW_WILD
    expected, found = row[kernels.C_WANT], row[kernels.C_FOUND]
    space = Space.ARENA
    if code in (kernels.R_COPY, kernels.R_COMPARE):
        what = "a copy differs from its source while it runs"
        space = Space(row[kernels.C_STEP])
        address = row[kernels.C_PLACE] + WORD_BYTES * row[kernels.C_WHERE]
        place = row[kernels.C_WHERE]
    else:
        what = "a read found other bytes than it should"
        address = WORD_BYTES * row[kernels.C_WHERE] - layout.prefix_bytes
        place = row[kernels.C_PLACE] + row[kernels.C_WHERE] - row[kernels.C_AT]
    if wild:
        what, address = "an access outside the arena", row[kernels.C_AT] * WORD_BYTES
    return RowFailure(
        program.number,
        work.label,
        int(work.kind),
        space,
        address,
        expected,
        found,
        stamp_of(expected, place, layout.salt),
        stamp_of(found, place, layout.salt),
        what,
    )
