"""What each unit should hold, by logical history: runs of stamps.

A content is a tuple of runs `(start, end, stamp)`, bytes relative to the unit, ascending and
disjoint; bytes in no run were never written in this life. `UNKNOWN` is content nobody may rely on:
a receive not ended, a copy that fails. Stamps are those that work leaves behind (`Touch.stamp`,
`Work.stamp`); the functions never look inside one.

Conflicting accesses are ordered as they are launched (rule 6), so the history is the sequence of
launches: a use launched now reads what the launches before it wrote, whenever it really runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

Run: TypeAlias = tuple[int, int, int]
Runs: TypeAlias = tuple[Run, ...]

NOTHING: Final[Runs] = ()
UNKNOWN: Final = None


def write(runs: Runs, start: int, end: int, stamp: int) -> Runs:
    """`runs` after [start, end) was written with `stamp`. O(runs)."""
    if not runs or runs[-1][1] < start:
        return (*runs, (start, end, stamp))
    kept: list[Run] = []
    after: list[Run] = []
    for low, high, old in runs:
        if low < start:
            kept.append((low, min(high, start), old))
        if high > end:
            after.append((max(low, end), high, old))
    if kept and kept[-1][1:] == (start, stamp):
        start = kept.pop()[0]
    if after and after[0][0] == end and after[0][2] == stamp:
        end = after.pop(0)[1]
    return (*kept, (start, end, stamp), *after)


def clip(runs: Runs, start: int, end: int) -> Runs:
    """The part of `runs` inside [start, end)."""
    if runs and runs[0][0] >= start and runs[-1][1] <= end:
        return runs
    return tuple(
        (max(low, start), min(high, end), stamp)
        for low, high, stamp in runs
        if low < end and start < high
    )


def difference(
    expected: Runs, base: int, seen: Sequence[Run], own: Sequence[Run] = ()
) -> tuple[Run, int] | None:
    """The first bytes of `seen` (absolute) that hold no right stamp, as `(start, end, found),
    right`.

    Right is the expected stamp of the unit at `base`, or that of a run of `own` (absolute): what
    the reader may have written already. Bytes without expected stamp: see `unwritten`.
    """
    for start, end, stamp in seen:
        for first, last, right in expected:
            low, high = max(start, base + first), min(end, base + last)
            if low >= high or stamp == right:
                continue
            if not any(s <= low and high <= e and stamp == w for s, e, w in own):
                return (low, high, stamp), right
    return None


def unwritten(expected: Runs, base: int, start: int, end: int) -> tuple[int, int] | None:
    """The first bytes of [start, end) (absolute) that no expected run covers."""
    for low, high, _ in expected:
        if base + low > start:
            break
        start = max(start, base + high)
    if start >= end:
        return None
    later = [base + low for low, _, _ in expected if base + low > start]
    return start, min([end, *later])
