"""What each kernel must do to small arrays, said in numpy and plain Python, for any way to run it.

A runner takes a kernel's name and its arguments. Word k of a unit written with a stamp holds
base + k * step; everything outside the named ranges stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device import cuda_kernels
from onearena.core.device.threads_programs import STEP, base_of

Runner = Callable[[str, tuple[Any, ...]], None]
Array = NDArray[np.int64]
PREFIX = 64  # bytes
ARENA_WORDS = 96
SLOTS = 16


class Program:
    """Rows, their table of groups, and the arrays around them."""

    def __init__(self, rows: list[dict[int, int]], groups: list[tuple[int, int]]) -> None:
        size = kernels.THREAD_WORDS
        self.words: Array = np.zeros(size * (1 + len(rows)) + 2 * len(groups), np.int64)
        self.words[cuda_kernels.H_CONTROL] = -1
        self.words[cuda_kernels.H_GROUPS] = size * (1 + len(rows))
        self.words[cuda_kernels.H_FILLS] = 1 << 40
        for number, columns in enumerate(rows, 1):
            self.words[number * size + kernels.C_ENTRY] = -1
            for column, value in columns.items():
                self.words[number * size + column] = value
            if columns.get(kernels.C_CODE) == kernels.R_FILL:
                first = min(int(self.words[cuda_kernels.H_FILLS]), number)
                self.words[cuda_kernels.H_FILLS] = first
        self.words[size * (1 + len(rows)) :] = [n for group in groups for n in group]
        # Odd, and different everywhere: a wrong word shows.
        self.arena: Array = np.arange(ARENA_WORDS, dtype=np.int64) * 1_000_003 + 7
        self.slots: Array = np.full(SLOTS, -(1 << 60), np.int64)
        self.control: Array = np.zeros(4, np.int64)
        self.table: Array = np.zeros(8, np.int64)

    def row(self, number: int) -> Array:
        size = kernels.THREAD_WORDS
        return self.words[number * size : (number + 1) * size]

    def write(self, run: Runner, group: int = 0, when: int = 0) -> None:
        run(
            "stamp_write",
            (self.words, group, self.arena, self.slots, self.control, PREFIX, when),
        )

    def check(self, run: Runner, group: int = 0) -> None:
        run("stamp_check", (self.words, group, self.arena, self.slots, self.control, PREFIX))


def word_at(address: int) -> int:
    """Which word of the arena array lies at an arena address."""
    return (address + PREFIX) // 8


def pattern(stamp: int, count: int, place: int = 0) -> Array:
    """Words `place` to `place + count` of a unit written with `stamp`."""
    words = [(base_of(stamp) + k * STEP) % (1 << 64) for k in range(place, place + count)]
    return np.array([w - (1 << 64) if w >> 63 else w for w in words], np.int64)


def touch(code: int, start: int, end: int, stamp: int, place: int = 0) -> dict[int, int]:
    """Columns of a read or fill."""
    return {
        kernels.C_CODE: code,
        kernels.C_START: start,
        kernels.C_END: end,
        kernels.C_PLACE: place,
        kernels.C_BASE: base_of(stamp),
        kernels.C_STEP: STEP,
    }


def page(code: int, source: int, target: int, nbytes: int) -> dict[int, int]:
    """Columns of a copy or comparison inside the arena."""
    return {
        kernels.C_CODE: code,
        kernels.C_START: source,
        kernels.C_PLACE: target,
        kernels.C_END: nbytes,
    }


def case_fills(run: Runner) -> None:
    for start, end, place in ((0, 80, 0), (8, 80, 1), (8, 72, 3), (16, 24, 0), (-64, -48, 0)):
        program = Program([touch(kernels.R_FILL, start, end, 41, place)], [(1, 1)])
        before = program.arena.copy()
        program.write(run)
        low, high = word_at(start), word_at(end)
        before[low:high] = pattern(41, high - low, place)
        assert program.arena.tolist() == before.tolist(), (start, end)
        assert program.row(1)[kernels.C_RESULT] == kernels.ROW_DONE
        assert program.row(1)[kernels.C_AT] == low


def case_many_fills_in_one_launch(run: Runner) -> None:
    rows = [touch(kernels.R_FILL, 32 * k, 32 * k + 24, 50 + k) for k in range(7)]
    program = Program(rows, [(1, 3), (4, 4)])
    program.write(run, 1)
    for k in range(7):
        low = word_at(32 * k)
        same = program.arena[low : low + 3].tolist() == pattern(50 + k, 3).tolist()
        assert same == (k >= 3), "the second group is rows 4 to 7"


def case_fills_by_slot(run: Runner) -> None:
    rows = [touch(kernels.R_FILL, 16, 48, 41, 2)]
    rows[0][kernels.C_ENTRY] = 1
    program = Program(rows, [(1, 1)])
    program.words[kernels.H_SLOT] = 4
    program.slots[5] = 128
    program.write(run)
    low = word_at(128 + 16)
    assert program.arena[low : low + 4].tolist() == pattern(41, 4, 2).tolist()


def case_outside_is_told_and_untouched(run: Runner) -> None:
    rows = [
        touch(kernels.R_FILL, 8 * ARENA_WORDS - 72, 8 * ARENA_WORDS - 56, 41),
        touch(kernels.R_READ, -72, -56, 41),
        touch(kernels.R_FILL, 0, 16, 41),
    ]
    rows[2][kernels.C_ENTRY] = 3  # a slot that was never filled
    program = Program(rows, [(1, 1), (2, 1), (3, 1)])
    before = program.arena.copy()
    program.write(run, 0)
    program.check(run, 1)
    program.write(run, 2)
    assert program.arena.tolist() == before.tolist()
    for number in (1, 2, 3):
        assert program.row(number)[kernels.C_RESULT] == kernels.ROW_WILD, number
    assert program.words[kernels.H_WRONG] == 3


def case_reads_that_are_right(run: Runner) -> None:
    program = Program([touch(kernels.R_READ, 16, 256, 41, 2)], [(1, 1)])
    low, high = word_at(16), word_at(256)
    program.arena[low:high] = pattern(41, high - low, 2)
    before = program.arena.copy()
    program.check(run)
    assert program.row(1)[kernels.C_RESULT] == kernels.ROW_DONE
    assert program.words[kernels.H_WRONG] == 0
    assert program.arena.tolist() == before.tolist()


def case_reads_that_are_wrong(run: Runner) -> None:
    for place in (0, 1, 17, 29):
        program = Program([touch(kernels.R_READ, 16, 256, 41)], [(1, 1)])
        low, high = word_at(16), word_at(256)
        program.arena[low:high] = pattern(41, high - low)
        other = int(pattern(57, 1, place)[0])
        program.arena[low + place] = other
        program.check(run)
        row = program.row(1)
        assert row[kernels.C_RESULT] == kernels.ROW_WRONG
        assert row[kernels.C_WHERE] == low + place
        assert row[kernels.C_FOUND] == other
        assert row[kernels.C_WANT] == pattern(41, 1, place)[0]
        assert program.words[kernels.H_WRONG] == 1


def case_a_reader_knows_its_own_writes(run: Runner) -> None:
    rows = [
        touch(kernels.R_FILL, 64, 128, 50),
        touch(kernels.R_FILL, 96, 160, 51),
        touch(kernels.R_READ, 0, 256, 41),
        touch(kernels.R_READ, 0, 256, 41),
    ]
    program = Program(rows, [(1, 1), (2, 1), (3, 1), (4, 1)])
    low, high = word_at(0), word_at(256)
    program.arena[low:high] = pattern(41, high - low)
    program.write(run, 0)
    program.write(run, 1)
    program.check(run, 2)
    assert program.row(3)[kernels.C_RESULT] == kernels.ROW_DONE
    program.arena[word_at(96)] = int(pattern(50, 1, 4)[0])  # what the first fill left there
    program.check(run, 3)
    assert program.row(4)[kernels.C_RESULT] == kernels.ROW_WRONG
    assert program.row(4)[kernels.C_WANT] == pattern(51, 1)[0], "the latest fill wins"


def case_page_copies(run: Runner) -> None:
    for source, target, nbytes in ((0, 256, 128), (8, 264, 128), (8, 264, 8), (0, 264, 96)):
        program = Program(
            [
                page(kernels.R_COPY, source, target, nbytes),
                page(kernels.R_COPY, 576, 640, 32),
                page(kernels.R_COMPARE, source, target, nbytes),
            ],
            [(1, 2), (3, 1)],
        )
        before = program.arena.copy()
        run("page_copy", (program.words, 0, program.arena, PREFIX))
        before[word_at(target) : word_at(target + nbytes)] = before[
            word_at(source) : word_at(source + nbytes)
        ]
        before[word_at(640) : word_at(672)] = before[word_at(576) : word_at(608)]
        assert program.arena.tolist() == before.tolist(), (source, target, nbytes)
        run("page_compare", (program.words, 1, program.arena, PREFIX))
        for number in (1, 2, 3):
            assert program.row(number)[kernels.C_RESULT] == kernels.ROW_DONE


def case_comparisons(run: Runner) -> None:
    program = Program(
        [
            page(kernels.R_COMPARE, 0, 256, 128),
            page(kernels.R_COPY, 0, 8 * ARENA_WORDS - 64 - 120, 128),
            page(kernels.R_COMPARE, -72, 256, 16),
        ],
        [(1, 1), (2, 1), (3, 1)],
    )
    program.arena[word_at(256) : word_at(384)] = program.arena[word_at(0) : word_at(128)]
    program.arena[word_at(256) + 5] += 1
    before = program.arena.copy()
    run("page_compare", (program.words, 0, program.arena, PREFIX))
    run("page_copy", (program.words, 1, program.arena, PREFIX))
    run("page_compare", (program.words, 2, program.arena, PREFIX))
    row = program.row(1)
    assert row[kernels.C_RESULT] == kernels.ROW_WRONG
    assert row[kernels.C_WHERE] == 5
    assert row[kernels.C_FOUND] == row[kernels.C_WANT] + 1
    assert program.row(2)[kernels.C_RESULT] == kernels.ROW_WILD, "it would leave the arena"
    assert program.row(3)[kernels.C_RESULT] == kernels.ROW_WILD
    assert program.arena.tolist() == before.tolist()


def case_zeroing(run: Runner) -> None:
    for start, end in ((0, 128), (8, 128), (8, 120), (8, 16)):
        program = Program(
            [{kernels.C_CODE: kernels.R_FILL, kernels.C_START: start, kernels.C_END: end}], [(1, 1)]
        )
        before = program.arena.copy()
        run("zero", (program.words, 0, program.arena, program.control, PREFIX))
        before[word_at(start) : word_at(end)] = 0
        assert program.arena.tolist() == before.tolist(), (start, end)
        assert program.row(1)[kernels.C_RESULT] == kernels.ROW_DONE
        assert program.row(1)[kernels.C_AT] == word_at(start)


def case_table_and_resolve(run: Runner) -> None:
    rows = [
        {kernels.C_CODE: kernels.R_TABLE_WRITE, kernels.C_START: k, kernels.C_END: 10 + k}
        for k in (2, 5)
    ]
    # Band 0 starts at 48 with units of 16 bytes, band 1 at 1000 with units of 96.
    for k, origin, unit in ((2, 48, 16), (5, 1000, 96)):
        rows.append(
            {
                kernels.C_CODE: kernels.R_TABLE_READ,
                kernels.C_START: k,
                kernels.C_BASE: origin,
                kernels.C_STEP: unit,
            }
        )
    for position, read in ((8, 3), (9, 4)):
        rows.append(
            {
                kernels.C_CODE: kernels.R_BUFFER_WRITE,
                kernels.C_START: position,
                kernels.C_END: read,
            }
        )
    program = Program(rows, [(1, 2), (5, 2)])
    run("table_update", (program.words, 0, program.table))
    assert program.table.tolist() == [0, 0, 12, 0, 0, 15, 0, 0]
    run("resolve", (program.words, 1, program.table, program.slots))
    assert program.slots[8:10].tolist() == [48 + 12 * 16, 1000 + 15 * 96]
    assert (np.delete(program.slots, [8, 9]) == -(1 << 60)).all()
    assert [program.row(k)[kernels.C_RESULT] for k in range(1, 7)] == [kernels.ROW_DONE] * 6


def case_stopping(run: Runner) -> None:
    rows = [touch(kernels.R_FILL, 0, 64, 41), touch(kernels.R_FILL, 0, 64, -2)]
    for stopped in (False, True):
        program = Program(rows, [(1, 1), (2, 1)])
        program.words[cuda_kernels.H_CONTROL], program.words[cuda_kernels.H_NUMBER] = 2, 9
        run("signal", (program.control, 2, 9 if stopped else 8))
        program.write(run, 0)
        program.write(run, 1, 1)
        low = word_at(0)
        found = program.arena[low : low + 8].tolist()
        assert found == pattern(-2 if stopped else 41, 8).tolist()
        assert program.words[kernels.H_STOP] == int(stopped)
        assert (program.row(1)[kernels.C_RESULT] != 0) != stopped
    program = Program(rows, [(1, 1), (2, 1)])
    program.words[kernels.H_SPOILS] = 1  # fails by itself
    program.write(run, 0)
    program.write(run, 1, 1)
    assert program.arena[word_at(0)] == pattern(-2, 1)[0]
    assert program.words[kernels.H_STOP] == 0


def cases() -> Iterator[tuple[str, Callable[[Runner], None]]]:
    """All of the above, by name."""
    for name, value in sorted(globals().items()):
        if name.startswith("case_"):
            yield name.removeprefix("case_"), value
