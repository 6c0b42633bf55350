"""All call-level oracles over one set of facts: what the harness feeds.

One `Facts` follows the run; each oracle gets the `CallFacts` of every call, and the device's own
observations where it needs them. Every oracle's reports carry that oracle's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from onearena.core.device.interface import Access
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.stress.calls import Call
from onearena.stress.oracles.atomicity import AtomicityOracle
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.boot import BootOracle
from onearena.stress.oracles.content import ContentOracle
from onearena.stress.oracles.economy import EconomyOracle
from onearena.stress.oracles.eviction import EvictionOracle
from onearena.stress.oracles.fact_types import ALL_CALLS, CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.legality import LegalityOracle
from onearena.stress.oracles.liveness import LivenessOracle
from onearena.stress.oracles.mapping import MappingOracle
from onearena.stress.oracles.misuse import MisuseOracle
from onearena.stress.oracles.poison import PoisonOracle
from onearena.stress.oracles.pricing import PricingOracle
from onearena.stress.oracles.promise import PromiseOracle
from onearena.stress.oracles.recount import RecountOracle
from onearena.stress.oracles.reference import ReferenceOracle
from onearena.stress.sut import Capabilities, PlanFacts, Use

CAPACITY_CALLS: Final = frozenset(("fits", "allocate", "compact", "reserve_host"))
TRACE_RECORDS: Final = (Enqueue, Record, WaitEvent, Observe, TransferBegin, TransferEnd)


Feed = Callable[[CallFacts], tuple[Violation, ...]]


class _OfCalls(Protocol):
    """An oracle fed with the facts of calls: of those in `calls`, and of all that enqueue work."""

    name: str
    calls: frozenset[str]

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]: ...

    def finish(self) -> tuple[Violation, ...]: ...


class ObservedMemory(Protocol):
    """What a device offers to watch: see `onearena.core.device.modeled_effects.Memory`."""

    on_read: Callable[[int, Access, Sequence[tuple[int, int, int]]], object] | None
    on_undeclared: Callable[[int, Access], object] | None


class CallOracles:
    """Legality, mapping, misuse, atomicity and the others of this folder that judge calls.

    `capabilities`: a system that cannot move has walls, so section 6 says nothing of its answers.
    `only` names the oracles wanted (None: all). `full_every`: every so many snapshots, all units
    are judged again and not only those that changed.
    """

    name = "calls"

    def __init__(
        self,
        plan: PlanFacts,
        *,
        capabilities: Capabilities | None = None,
        only: frozenset[str] | None = None,
        full_every: int = 64,
    ) -> None:
        self.facts = Facts(plan)
        misuse = MisuseOracle(self.facts)
        content, poison = ContentOracle(self.facts), PoisonOracle(self.facts)
        self._content = content if only is None or content.name in only else None
        self._poison = poison if only is None or poison.name in only else None
        oracles: list[_OfCalls] = [
            MappingOracle(self.facts),
            AtomicityOracle(),
            ReferenceOracle(self.facts),
            content,
            poison,
            LegalityOracle(self.facts, full_every=full_every),
            LivenessOracle(self.facts),
        ]
        if capabilities is None or capabilities.moves:
            oracles += [PromiseOracle(self.facts), EconomyOracle(self.facts)]
            oracles += [EvictionOracle(self.facts), PricingOracle(self.facts)]
            oracles += [BootOracle(self.facts), RecountOracle(self.facts)]
        self._misuse = misuse if only is None or misuse.name in only else None
        self.oracles = [o for o in oracles if only is None or o.name in only]
        # Asking every oracle about every call costs more than most of them do.
        self._for: dict[str, tuple[Feed, ...]] = {
            call: tuple(o.feed for o in self.oracles if call in o.calls) for call in ALL_CALLS
        }
        self._for_work = tuple(o.feed for o in self.oracles)
        self._hears = [o for o in (self._content, self._poison) if o is not None]
        self._trace: dict[type[Any], Callable[[object], object]] = dict.fromkeys(
            TRACE_RECORDS, self.facts.feed
        )

    def watch(self, memory: ObservedMemory) -> None:
        """Have a device's memory tell what its work really reads and touches.

        What that shows is returned by the next `feed` of a call, or by `finish`.
        """
        if self._content is not None:
            memory.on_read = self._content.read_seen
        if self._poison is not None:
            memory.on_undeclared = self._poison.undeclared

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Take the next record: of the trace, a `Call`, or an observation of the device."""
        follow = self._trace.get(type(record))
        if follow is not None:
            follow(record)
            return NO_VIOLATIONS
        if type(record) is Call:
            return self._call(record)
        return NO_VIOLATIONS

    def _call(self, call: Call) -> tuple[Violation, ...]:
        found = self._misuse.feed(call) if self._misuse is not None else NO_VIOLATIONS
        facts = self.facts.feed(call)
        assert facts is not None
        working = facts.ops or facts.begun
        for feed in self._for_work if working else self._for.get(call.name, ()):
            said = feed(facts)
            if said:
                found += said
        for oracle in self._hears:
            if oracle.pending:
                found += tuple(oracle.pending)
                oracle.pending.clear()
        return tuple(self._placed(v, call) for v in found) if found else found

    def _placed(self, violation: Violation, call: Call) -> Violation:
        """A report about a whole call names what the call was about: an id, a range, the arena."""
        if violation.unit is not None or violation.bytes is not None:
            return violation
        for argument in (*call.args, call.answer):
            for name in argument if isinstance(argument, tuple | list) else ():
                fact = self.facts.ids.get(name) if type(name) is int else None
                if fact is not None and fact.unit is not None:
                    return replace(violation, unit=self.facts.name(fact.band, fact.unit))
            if isinstance(argument, Use) and (argument.reads or argument.writes):
                _, start, end = (*argument.reads, *argument.writes)[0]
                return replace(violation, bytes=ByteRange("arena", start, end))
        if call.name not in CAPACITY_CALLS:
            for argument in call.args:
                for name in argument if isinstance(argument, tuple | list) else ():
                    if type(name) is int:
                        return replace(violation, unit=UnitName("id", name))
        whole = ByteRange("arena", 0, self.facts.plan.arena_bytes)
        return replace(violation, bytes=whole)

    def finish(self) -> tuple[Violation, ...]:
        """What can only be said at the end of the run."""
        found: tuple[Violation, ...] = NO_VIOLATIONS
        for oracle in self.oracles:
            found += oracle.finish()
        return found
