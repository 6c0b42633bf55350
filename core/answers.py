"""Answers of a capacity question, as values: it fits, it is blocked for now, or it cannot fit.

Plain data without behaviour, so that harness and dashboard can read it without the allocator.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

Demand = tuple[int, ...]
"""How many more units of every sub-pool something needs, together: one count per band, chain
order."""

BlockReason = Literal["transfer", "pinned", "quarantined", "use"]


class Rung(enum.IntEnum):
    """Which bands' units have to move: none, those of the two end bands, or floating bands' too."""

    NONE = 0
    COMPACT = 1
    RELAYOUT = 2


@dataclass(frozen=True, slots=True)
class Blocker:
    """One unit that may not move now: its band (chain index), its physical unit, and why."""

    band: int
    unit: int
    reason: BlockReason


@dataclass(frozen=True, slots=True)
class Fits:
    """The demand can be served now, with stream waits only.

    ``rung`` is the lowest rung on which some layout serves it. A plan may stand on a higher one
    where that copies fewer bytes, because plans are ordered by bytes before rung.
    """

    rung: Rung


@dataclass(frozen=True, slots=True)
class Blocked:
    """Some layout serves the demand, but not while every one of ``blockers`` stays fixed.

    The demand fits once all of them may move (a freed one: once it is reusable), and it does
    not while any single one of them remains, the others gone. Ascending by band, then unit.
    """

    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No layout serves the demand, whatever ends or moves.

    ``binding_band`` is the first band in chain order whose own demand no longer fits on top of
    the demands of the bands before it, so it always asks for something. ``missing_bytes`` is by
    how many bytes the arena is too small for the whole demand.
    """

    binding_band: int
    missing_bytes: int


Answer = Fits | Blocked | Infeasible
