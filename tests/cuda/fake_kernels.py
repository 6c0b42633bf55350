"""The kernels of the cuda device on the CPU: the same functions, compiled for one thread, and what
each launch touches.

Accesses are read from the rows after the launch: what a row found out (its address, its result) is
what it did. Control words are left out: a program looks at its stop word while the host may be
setting it, by design, and either order is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device import cuda_kernels
from onearena.core.device.cuda_kernels import PARTS, SIGNATURES

_PLACES = {"table_update": (0, 1, 0, 1), "resolve": (0, 1, 0, 1), "signal": (0, 0)}
_ALL = (0, 1, 0, 1, 0, 1)


class Words(NamedTuple):
    """A device array as kernels get it: int64, and where its first word lies in its allocation."""

    allocation: Any
    first: int
    words: NDArray[np.int64]


Touched = tuple[Any, int, int, bool]
"""Allocation, first and last byte, whether written."""


@cache
def compiled(name: str) -> Callable[..., None]:
    """The kernel's work for one thread on the CPU. Machine code is cached beside the source."""
    work = njit(cache=True, nogil=True)(PARTS[name])
    work.compile((*(types.int64 for _ in _PLACES.get(name, _ALL)), *SIGNATURES[name]))
    work.disable_compile()
    return work  # type: ignore[no-any-return]


class IllegalAddressError(Exception):
    """A kernel got rows that are none: on a GPU it would have touched memory anywhere."""

    def __init__(self, touched: list[Touched]) -> None:
        super().__init__("an illegal memory access was encountered")
        self.touched = touched


def run(name: str, arguments: tuple[Any, ...]) -> list[Touched]:
    """One launch, start to end; answers what it touched."""
    if name != "signal" and not _are_rows(name, arguments):
        rows = arguments[0]
        raise IllegalAddressError([_range(rows, 0, rows.words.size, False)])
    plain = tuple(a.words if isinstance(a, Words) else a for a in arguments)
    compiled(name)(*_PLACES.get(name, _ALL), *plain)
    return list(_touched(name, arguments))


def _are_rows(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the first argument holds a program, all of whose indices lie in its arrays."""
    block, group, size = arguments[0].words, arguments[1], kernels.THREAD_WORDS
    table = int(block[cuda_kernels.H_GROUPS]) + 2 * group
    if not 0 <= table <= block.size - 2:
        return False
    first, count = int(block[table]), int(block[table + 1])
    if not 0 <= first <= first + count <= block.size // size:
        return False
    rows = block[first * size : (first + count) * size].reshape(-1, size)
    if name == "table_update":
        return _inside(rows[:, kernels.C_START], arguments[2].words.size)
    if name == "resolve":
        ends = rows[:, kernels.C_END]
        if not _inside(ends, block.size // size) or not _inside(
            rows[:, kernels.C_START], arguments[3].words.size
        ):
            return False
        return _inside(block[ends * size + kernels.C_START], arguments[2].words.size)
    if name in ("stamp_write", "stamp_check"):
        slots = int(block[cuda_kernels.H_SLOT]) + rows[:, kernels.C_ENTRY]
        fits = _inside(slots[rows[:, kernels.C_ENTRY] >= 0], arguments[3].words.size)
        return fits and -1 <= block[cuda_kernels.H_CONTROL] < arguments[4].words.size
    if name == "zero":
        return bool(-1 <= block[cuda_kernels.H_CONTROL] < arguments[3].words.size)
    return True


def _inside(values: NDArray[np.int64], size: int) -> bool:
    return bool(((values >= 0) & (values < size)).all())


def _range(words: Words, low: int, high: int, writes: bool) -> Touched:
    at = words.first
    return words.allocation, 8 * (at + low), 8 * (at + high), writes


def _touched(name: str, arguments: tuple[Any, ...]) -> Iterator[Touched]:
    if name == "signal":
        return
    rows, group = arguments[0], arguments[1]
    block = rows.words
    table = int(block[cuda_kernels.H_GROUPS]) + 2 * group
    first, count = int(block[table]), int(block[table + 1])
    yield _range(rows, 0, table + 2, True)
    entries: list[int] = []
    size = kernels.THREAD_WORDS
    listed = block[first * size : (first + count) * size].reshape(-1, size).tolist()
    for row in listed:
        if row[kernels.C_RESULT] in (0, kernels.ROW_WILD):
            continue
        if name in ("stamp_write", "stamp_check", "zero"):
            low = row[kernels.C_AT]
            high = low + (row[kernels.C_END] - row[kernels.C_START]) // 8
            if row[kernels.C_ENTRY] >= 0:
                entries.append(row[kernels.C_ENTRY])
            yield _range(arguments[2], low, high, name != "stamp_check")
        elif name in ("page_copy", "page_compare"):
            prefix, words = arguments[3] // 8, row[kernels.C_END] // 8
            source = prefix + row[kernels.C_START] // 8
            target = prefix + row[kernels.C_PLACE] // 8
            yield _range(arguments[2], source, source + words, False)
            yield _range(arguments[2], target, target + words, name == "page_copy")
        elif name == "table_update":
            at = row[kernels.C_START]
            yield _range(arguments[2], at, at + 1, True)
        else:
            read = block[row[kernels.C_END] * size :][:size]
            at = int(read[kernels.C_START])
            yield _range(arguments[2], at, at + 1, False)
            yield _range(arguments[3], row[kernels.C_START], row[kernels.C_START] + 1, True)
    if entries:
        slot = int(block[cuda_kernels.H_SLOT])
        yield _range(arguments[3], slot + min(entries), slot + max(entries) + 1, False)
