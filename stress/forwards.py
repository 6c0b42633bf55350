"""Content of units as the world expects it, and the device work of a modeled forward.

A unit's expected content is a tuple of runs `(start, end, stamp)`, bytes relative to the unit,
ascending. A stamp names one write of one life of one id: token units keep the stamp of their first
write while entries are appended, and get a new one when entries are written over (a rejected draft
tail, a state updated in place). A forward's read touches carry the stamp that its bytes held when
it was launched, its write touches the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from onearena.core.device.interface import Touch, Work
from onearena.core.rules import UseKind
from onearena.core.uses import Use

Runs: TypeAlias = tuple[tuple[int, int, int], ...]

NOTHING: Runs = ()


class UnitState:
    """What the world knows of one id it holds. `fixed` counts transfers, `pins` pins, `refs`
    references.
    """

    __slots__ = ("band", "fixed", "nbytes", "pinned", "refs", "runs", "stamp")

    def __init__(self, band: int, nbytes: int) -> None:
        self.band = band
        self.nbytes = nbytes
        self.refs = 1
        self.fixed = 0
        self.pinned = False
        self.runs: Runs = NOTHING
        self.stamp = 0

    @property
    def written_bytes(self) -> int:
        """End of the last run."""
        return self.runs[-1][1] if self.runs else 0


def write_over(runs: Runs, start: int, end: int, stamp: int) -> Runs:
    """`runs` after bytes [start, end) were written with `stamp`; what lies after them is forgotten.

    Entries are appended in order, so what lies behind the last write was rejected and is dead.
    """
    kept = [run for run in runs if run[1] <= start]
    for low, high, old in runs:
        if low < start < high:
            kept.append((low, start, old))
    if kept and kept[-1][1] == start and kept[-1][2] == stamp:
        low = kept.pop()[0]
        kept.append((low, end, stamp))
    else:
        kept.append((start, end, stamp))
    return tuple(kept)


def forward_work(
    use: Use,
    reads: Sequence[Runs],
    writes: Sequence[tuple[int, int, int]],
    *,
    pieces: int,
    passes: int,
    label: str,
) -> Work:
    """The work of a forward: all of `reads[i]` of the i-th read unit, and `writes[j]` of the j-th
    written one.

    Reads that name no run touch nothing. Addresses come from the buffer slot when there is one.
    """
    translated = use.buffer >= 0
    touches: list[Touch] = []
    for entry, runs in enumerate(reads):
        base = 0 if translated else use.reads[entry][1]
        place = entry if translated else -1
        for start, end, stamp in runs:
            touches.append(Touch(place, base + start, base + end, False, stamp))
    first = len(use.reads)
    for entry, (start, end, stamp) in enumerate(writes):
        base = 0 if translated else use.writes[entry][1]
        place = first + entry if translated else -1
        touches.append(Touch(place, base + start, base + end, True, stamp))
    return Work(
        UseKind.FORWARD,
        use.accesses,
        label=label,
        touches=tuple(touches),
        buffer=use.buffer,
        pieces=pieces,
        passes=passes,
    )


def transfer_work(use: Use, runs: Sequence[Runs], *, pieces: int, peer: int, label: str) -> Work:
    """A send of `runs` of each unit, or a receive that writes them (with the stamps they name)."""
    sends = use.kind is UseKind.SEND
    units = use.reads if sends else use.writes
    touches = tuple(
        Touch(-1, unit[1] + start, unit[1] + end, not sends, stamp)
        for unit, pieces_of_it in zip(units, runs, strict=True)
        for start, end, stamp in pieces_of_it
    )
    return Work(use.kind, use.accesses, label=label, touches=touches, pieces=pieces, peer=peer)


def copy_work(
    use: Use, nbytes: Sequence[int], *, pieces: int, fails_after: int, label: str
) -> Work:
    """A backup or load of the first `nbytes[i]` bytes of the i-th unit."""
    if use.kind is UseKind.BACKUP:
        sides = zip(use.reads, use.host_writes, nbytes, strict=True)
    else:
        sides = zip(use.host_reads, use.writes, nbytes, strict=True)
    pairs = tuple((source[1], target[1], size) for source, target, size in sides)
    return Work(
        use.kind,
        use.accesses,
        label=label,
        pairs=pairs,
        pieces=pieces,
        effects_before_failure=fails_after,
    )
