"""The interface between the harness and the allocator under test.

The world, the strategies and the oracles see this and nothing else, so another allocator can stand
in the arena's place. Ids are opaque positive integers. Bands are numbered in chain order, low to
high. All calls come from one control thread; none may block on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onearena.core.answers import Answer, Blocked, Demand, Infeasible
from onearena.core.demand import Caller, RequestShape, ServingPolicy
from onearena.core.device.interface import Device, EventId, StreamId, TransferId, Work
from onearena.core.eviction import Candidate, Eviction
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.core.uses import Grant, Use

__all__ = [
    "BandFacts",
    "Capabilities",
    "Grant",
    "PlanFacts",
    "PricingSystem",
    "SystemUnderTest",
    "Use",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the system under test can do; actors that need more stay out of the world."""

    moves: bool = True
    virtual_ids: bool = True  # False: ids are physical units and a move is impossible
    sub_pools: bool = True  # False: one band only
    transfers: bool = True
    host_tier: bool = True
    sharing: bool = True
    pricing: bool = False  # prices requests and chooses victims


@dataclass(frozen=True, slots=True)
class BandFacts:
    """Static facts of one band. `lifetime` is 'context', 'window', 'chunk' or 'request'; `span`
    its length.
    """

    name: str
    placement: str  # 'low_end', 'floating', 'high_end'
    unit_bytes: int
    entries_per_unit: int
    origin_bytes: int
    first_unit: int
    capacity_units: int
    lifetime: str
    span: int = 0
    zero_on_hand_out: bool = False


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the harness may know of the storage plan."""

    arena_bytes: int
    bands: tuple[BandFacts, ...]
    host_units: tuple[int, ...]  # host tier capacity per band
    schedule_stream: StreamId  # settles, table updates, translations, moves run here
    model: str = ""
    page_size: int = 1
    budget_bytes: int = 0  # what the arena was asked to be; 0: not known


class SystemUnderTest(Protocol):
    """One allocator over one arena on one device."""

    capabilities: Capabilities
    plan: PlanFacts
    device: Device

    # -- capacity ----------------------------------------------------------------------------------
    def fits(self, demand: Sequence[int]) -> Answer:
        """Whether some layout serves `demand` (units a band). Pure."""

    def allocate(
        self, demand: Sequence[int], *, writer: UseKind, stream: StreamId, caller: str
    ) -> Grant | Blocked | Infeasible:
        """Hand out the whole demand or none. `writer` on `stream` writes first. May settle, move
        and zero.
        """

    def free(self, ids: Sequence[int]) -> None:
        """Drop one reference of each id; the last one is the logical free."""

    def share(self, ids: Sequence[int]) -> None:
        """Add one reference to each id."""

    def fork(self, ids: Sequence[int], *, stream: StreamId) -> Grant | Blocked | Infeasible:
        """Copies of `ids` under new ids; the old ids lose one reference each. Enqueues the copies
        itself.
        """

    # -- uses --------------------------------------------------------------------------------------
    def record(
        self,
        kind: UseKind,
        stream: StreamId,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        host_reads: Sequence[int] = (),
        host_writes: Sequence[int] = (),
    ) -> Use | Blocked:
        """Resolve, order (stream waits) and record one stream-ordered use. `Blocked`: nothing
        changed.
        """

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int) -> Use | Blocked:
        """Record a SEND or RECEIVE. `Blocked` while rule 7 forbids it; nothing changed then."""

    def launch(self, use: Use, work: Work) -> EventId | TransferId:
        """Enqueue the work of the use just recorded (or begin the transfer just published)."""

    def process(self, use: Use) -> None:
        """The host has processed the forward's result; retires nothing."""

    def settle(self, use: Use) -> None:
        """The schedule stream waits on the use's event."""

    def retire(self, use: Use, *, failed: bool = False) -> None:
        """The host has seen the use's event (the device has answered True to `query`)."""

    def outstanding(self) -> tuple[tuple[Use, EventId], ...]:
        """Uses the system enqueued itself (moves, forks, zeroing, translations), with their events.

        The caller may retire those it has seen; at the latest when everything drains.
        """

    def end_transfer(self, use: Use, *, outcome: str) -> None:
        """The host has seen the transfer end: 'done', 'failed', 'cancelled' (acknowledged), or
        'lost' (cannot be confirmed: its units are quarantined until `disconnect`).
        """

    def disconnect(self, peer: int) -> None:
        """The connection is torn down: all its transfers are over, quarantined units return."""

    # -- moves and host tier -----------------------------------------------------------------------
    def compact(self, *, budget_units: int) -> int:
        """Opportunistic moves at a quiet point; returns units moved. Skips what it may not move."""

    def move(self, band: int, ids: Sequence[int]) -> int | Blocked:
        """Move the given live ids to better places of their band (demanded move); returns units
        moved.
        """

    def pin(self, ids: Sequence[int], *, pinned: bool) -> None:
        """Forbid or allow moves of exactly these units."""

    def reserve_host(self, band: int, count: int) -> tuple[int, ...]:
        """Host units for a backup; empty tuple when the host tier is full."""

    def free_host(self, ids: Sequence[int]) -> None:
        """Give host units back (pending under unfinished uses)."""

    # -- facts -------------------------------------------------------------------------------------
    def resolve(self, ids: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """(id, start, end) byte ranges now. For oracles and tests; decisions of the world do not
        read it.
        """

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Frozen statistics; with `units`, the state of each unit too."""


class PricingSystem(Protocol):
    """What a system with the capability `pricing` answers besides."""

    def price(self, shape: RequestShape, policy: ServingPolicy, caller: Caller) -> Demand:
        """Units a band that `caller` has to see fit for a request. Pure; only with `pricing`."""

    def evict(
        self, demand: Sequence[int], candidates: Sequence[Candidate[int]], *, evictable: Demand
    ) -> Eviction[int]:
        """Which candidates have to go for `demand`. Changes nothing; only with `pricing`."""

    def boot(self, budget_bytes: int, request_tokens: int) -> PlanFacts | None:
        """What start-up with this byte budget would run, admitting requests of so many tokens.

        None: refused. Pure; the running arena is not touched.
        """
