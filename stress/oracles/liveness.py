"""The liveness oracle: after faults stop and everything has ended, nothing is left behind.

The harness drains a run: no new work, every use retired, every transfer ended or its peer
disconnected, every id freed. The last snapshot then shows no live, pending or vacated unit, no
fence and no use. Nothing drained (the run was cut short): nothing is said.
"""

from __future__ import annotations

from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts


class LivenessOracle:
    """Feed `CallFacts`; judges in `finish`, by the last snapshot. Cost: none until then."""

    name = "liveness"
    calls = frozenset(("snapshot",))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._last: Snapshot | None = None
        self._last_call = 0

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Remember the snapshot."""
        if isinstance(facts.call.answer, Snapshot):
            self._last, self._last_call = facts.call.answer, facts.call.serial
        return NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Judge a drained run."""
        facts, last = self.facts, self._last
        if last is None or self._last_call != facts.latest_call:
            return NO_VIOLATIONS
        if facts.uses or facts.transfers or facts.ids:
            return NO_VIOLATIONS
        found: list[Violation] = []
        for band in last.bands:
            left = {
                "live": band.live_units,
                "pending": band.pending_units,
                "vacated": band.vacated_units,
            }
            for state, count in left.items():
                if count:
                    text = f"{count} {state} units of {band.name} are left after everything ended."
                    extent = ByteRange("arena", band.start_bytes, band.end_bytes)
                    found.append(Violation(self.name, "1", text, bytes=extent))
        for fence in last.fences:
            span = f"[{fence.start_bytes}, {fence.end_bytes})"
            text = f"the fence over {span} is left after everything ended."
            extent = ByteRange("arena", fence.start_bytes, fence.end_bytes)
            found.append(Violation(self.name, "5", text, bytes=extent))
        for use in last.uses:
            text = f"use {use.serial} is left after everything ended."
            found.append(Violation(self.name, "8", text))
        return tuple(found)
