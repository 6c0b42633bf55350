"""A program of the threads device as launches: its rows by groups, one kernel a group.

Pure. Rows are those of `threads_programs`, so a forward reads and writes the same bytes at the same
points on threads and on a GPU; neighbouring rows that one kernel serves at once make a group.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device.interface import Space
from onearena.core.device.threads_programs import WORD_BYTES

HOST_COPY: Final = "host_copy"
"""The one group that is no kernel: rows copied between arena and host by torch."""

H_CONTROL, H_NUMBER, H_GROUPS, H_FILLS = 10, 11, 12, 13
"""Columns of a head that only this device uses; `cuda_kernels` has the same."""

ROW_WORDS: Final = kernels.THREAD_WORDS
NEVER: Final = 1 << 40
_ALWAYS, _WHEN_STOPPED = 0, 1
# Copies and table entries of one program take effect at once: one launch a batch.
_WHOLE: Final = frozenset(("page_copy", "table_update", HOST_COPY))


class Group(NamedTuple):
    """Rows [first, first + rows) for one launch of `kernel`. `words` of the longest row; `when`
    1: only if the program was stopped, or fails by itself.
    """

    kernel: str
    first: int
    rows: int
    words: int
    when: int = _ALWAYS


def without_pauses(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that touch something: gates, spins and sleeps are between accesses, and here the
    launches are. Rows that name other rows name them where they are now. O(rows).
    """
    codes = rows[:, kernels.C_CODE].copy()
    codes[0] = 0  # the head's first column is no code
    stays = codes < kernels.R_GATE
    if stays.all():
        return rows
    place = np.cumsum(stays) - 1
    kept = rows[stays]
    kept[0, kernels.H_END] = stays[: rows[0, kernels.H_END]].sum()
    stores = np.flatnonzero(kept[:, kernels.C_CODE] == kernels.R_BUFFER_WRITE)
    stores = stores[stores > 0]
    kept[stores, kernels.C_END] = place[kept[stores, kernels.C_END]]
    return kept


def groups_of(rows: NDArray[np.int64], *, stoppable: bool) -> tuple[Group, ...]:
    """The launches of a program, in order. O(rows)."""
    listed: list[list[int]] = rows.tolist()
    end = listed[0][kernels.H_END]
    groups: list[Group] = []
    effect = -1
    for row in range(1, end):
        values = listed[row]
        kernel = _kernel(values)
        if kernel is None:
            continue
        words = _words(values)
        last = groups[-1] if groups else None
        if (
            last is not None
            and last.kernel == kernel
            and last.first + last.rows == row
            and (effect == values[kernels.C_EFFECT] or kernel in _WHOLE)
        ):
            groups[-1] = last._replace(rows=last.rows + 1, words=max(last.words, words))
        else:
            groups.append(Group(kernel, row, 1, words))
        effect = values[kernels.C_EFFECT]
    if len(listed) > end and (stoppable or listed[0][kernels.H_SPOILS]):
        words = max(_words(values) for values in listed[end:])
        groups.append(Group("stamp_write", end, len(listed) - end, words, _WHEN_STOPPED))
    return tuple(groups)


def _kernel(row: list[int]) -> str | None:
    code = row[kernels.C_CODE]
    if code == kernels.R_READ:
        return "stamp_check"
    if code == kernels.R_FILL:
        zeros = row[kernels.C_BASE] == row[kernels.C_STEP] == 0 and row[kernels.C_ENTRY] < 0
        return "zero" if zeros else "stamp_write"
    if code in (kernels.R_COPY, kernels.R_COMPARE):
        inside = row[kernels.C_ENTRY] == row[kernels.C_STEP] == Space.ARENA
        if code == kernels.R_COPY:
            return "page_copy" if inside else HOST_COPY
        # No kernel reads the host tier: what was loaded from it is checked by its readers.
        return "page_compare" if inside else None
    if code == kernels.R_TABLE_WRITE:
        return "table_update"
    # A table read is done by the row that stores what it read.
    return "resolve" if code == kernels.R_BUFFER_WRITE else None


def _words(row: list[int]) -> int:
    code = row[kernels.C_CODE]
    if code in (kernels.R_READ, kernels.R_FILL):
        return (row[kernels.C_END] - row[kernels.C_START]) // WORD_BYTES
    if code in (kernels.R_COPY, kernels.R_COMPARE):
        return row[kernels.C_END] // WORD_BYTES
    return 1


def fill_block(
    block: NDArray[np.int64],
    rows: NDArray[np.int64],
    groups: tuple[Group, ...],
    *,
    control: int = -1,
    number: int = 0,
) -> int:
    """Write a program into the words of a block; answers how many it takes. The head names the
    control word that stops it, the value that does, its table of groups, its first fill.
    """
    count = rows.size
    block[:count] = rows.reshape(-1)
    table = [word for group in groups for word in (group.first, group.rows)]
    block[count : count + len(table)] = table
    block[H_CONTROL], block[H_NUMBER] = control, number
    block[H_GROUPS] = count
    fills = np.flatnonzero(rows[1:, kernels.C_CODE] == kernels.R_FILL)
    block[H_FILLS] = 1 + fills[0] if fills.size else NEVER
    for group in groups:
        if group.kernel == HOST_COPY:
            placed = block[:count].reshape(rows.shape)
            placed[group.first : group.first + group.rows, kernels.C_RESULT] = kernels.ROW_DONE
    return count + len(table)
