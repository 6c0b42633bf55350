"""The plain facts of a run, as the call-level oracles share them. See `facts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from onearena.core.device.interface import Access, Space
from onearena.core.device.trace import TransferBegin
from onearena.core.rules import UseKind
from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.sut import Use

ARENA: Final = int(Space.ARENA)
HOST: Final = int(Space.HOST)
TRANSFERS: Final = frozenset((int(UseKind.SEND), int(UseKind.RECEIVE)))
MOVING: Final = frozenset(("allocate", "fork", "move", "compact"))
"""Calls inside which the system may move units."""
ALL_CALLS: Final = MOVING | {
    "fits",
    "free",
    "share",
    "record",
    "publish",
    "launch",
    "process",
    "settle",
    "retire",
    "end_transfer",
    "disconnect",
    "pin",
    "reserve_host",
    "free_host",
    "price",
    "evict",
    "boot",
    "snapshot",
}

BEYOND, HOLE, LIVE, PENDING, VACATED = range(5)

Clock = list[int]
Change = tuple[int, int, int, int, int, int]
"""Band, unit, old state, new state, old id, new id."""


class Op(NamedTuple):
    """One `Enqueue` seen, with its position on its stream (1, 2, 3, ... counted here).

    `clock` holds the positions ordered before it, its own included.
    """

    op: int
    stream: int
    position: int
    kind: int
    accesses: tuple[Access, ...]
    clock: tuple[int, ...]

    def is_within(self, clock: Sequence[int]) -> bool:
        """Whether `clock` (positions by stream) is after this operation."""
        return self.stream < len(clock) and self.position <= clock[self.stream]


class WaitSeen(NamedTuple):
    """One `WaitEvent` seen: the waiting stream's clock before it, and the event's clock."""

    stream: int
    event: int
    before: tuple[int, ...]
    brings: tuple[int, ...]


@dataclass(slots=True, eq=False)
class UseFact:
    """One recorded use. `op` is its operation or transfer once launched, else -1.

    `outcome` of a transfer: '' while it runs, then what `end_transfer` said, or 'disconnected'.
    `units` are the (band, unit) it named when it was recorded.
    """

    use: Use
    kind: int
    stream: int
    call: int
    peer: int = -1
    op: int = -1
    position: int = 0
    event: int = -1
    processed: bool = False
    retired: bool = False
    outcome: str = ""
    units: tuple[tuple[int, int], ...] = ()

    @property
    def serial(self) -> int:
        """The serial the system gave the use."""
        return self.use.serial

    @property
    def is_transfer(self) -> bool:
        """Whether a peer makes the accesses."""
        return self.kind in TRANSFERS


@dataclass(slots=True, eq=False)
class IdFact:
    """One virtual id, from hand-out to its last free. `unit` is its unit as last seen, None before.

    `undefined` marks content of a failed load or receive.
    """

    id: int
    band: int
    call: int
    references: int = 1
    unit: int | None = None
    written: bool = False
    undefined: bool = False
    pins: bool = False
    transfers: int = 0
    seen: int = 0  # call that last showed where it is
    pin_floor: int = 0  # last call before its pin that may have moved it
    written_call: int = 0

    def written_before(self, call: int) -> bool:
        """Whether work that writes it was launched (or received, or copied) before `call`."""
        return self.written and self.written_call < call


@dataclass(slots=True, eq=False)
class Limbo:
    """A unit logically freed ('pending') or moved away from ('vacated'), not yet seen reused."""

    state: str
    call: int


@dataclass(slots=True, eq=False)
class CallFacts:
    """One call with what it enqueued, and what followed from it.

    `changes` of a snapshot: the units that differ from the last one.
    """

    call: Call
    ops: Sequence[Op] = ()
    waits: Sequence[WaitSeen] = ()
    events: Sequence[int] = ()
    observed: Sequence[int] = ()
    begun: Sequence[TransferBegin] = ()
    use: UseFact | None = None
    refused: bool = False
    freed: Sequence[IdFact] = ()
    granted: Sequence[IdFact] = ()
    changes: Sequence[Change] = ()


@dataclass(slots=True)
class Pending:
    """Device records since the last call."""

    ops: list[Op] = field(default_factory=list)
    waits: list[WaitSeen] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    observed: list[int] = field(default_factory=list)
    begun: list[TransferBegin] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether the device did nothing since the last call, which is the usual case."""
        return not (self.events or self.ops or self.waits or self.observed or self.begun)


class Relocation(NamedTuple):
    """An id seen at another unit than before. `call` is the call that showed it.

    `under_transfer`, `pinned`, `written`: it was so at the unit it left.
    """

    fact: IdFact
    old: int
    new: int
    call: int
    under_transfer: bool
    pinned: bool
    written: bool


def shows_units(snapshot: Snapshot) -> bool:
    """Whether it was taken with the state of each unit."""
    has_units = False
    for band in snapshot.bands:
        if band.states:
            return True
        has_units |= band.high_unit > band.low_unit
    return not has_units


def changes_between(before: Snapshot | None, now: Snapshot, *, full: bool = False) -> list[Change]:
    """Units whose state or id differs (all with `full`); O(units) of the bands that differ."""
    found: list[Change] = []
    for band, snap in enumerate(now.bands):
        old = before.bands[band] if before is not None else None
        found += _band_changes(band, old, snap, full=full)
    return found


def _band_changes(
    band: int, old: BandSnapshot | None, new: BandSnapshot, *, full: bool
) -> list[Change]:
    """The units that differ, or all with `full`."""
    if old is new and not full:
        return []
    if (
        not full
        and old is not None
        and old.states == new.states
        and old.low_unit == new.low_unit
        and old.ids == new.ids
    ):
        return []
    found: list[Change] = []
    low, high = new.low_unit, new.high_unit
    states, ids = new.states, new.ids
    if old is None or not old.has_units:
        return [(band, low + i, BEYOND, states[i], 0, ids[i]) for i in range(high - low)]
    old_low, old_high, old_states, old_ids = old.low_unit, old.high_unit, old.states, old.ids
    if new.has_units:
        first, after = min(low, old_low), max(high, old_high)
    else:
        first, after = old_low, old_high
    for unit in range(first, after):
        inside, was_inside = low <= unit < high, old_low <= unit < old_high
        state = states[unit - low] if inside else BEYOND
        name = ids[unit - low] if inside else 0
        old_state = old_states[unit - old_low] if was_inside else BEYOND
        old_name = old_ids[unit - old_low] if was_inside else 0
        if full or state != old_state or name != old_name:
            found.append((band, unit, old_state, state, old_name, name))
    return found
