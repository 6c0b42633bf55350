"""The poison oracle: bytes that nobody may use, and bytes that must be zero before their first use.

* Guards are written by nobody, and sinks by padding only: an access that leaves the arena lies
  inside one band's sink.
* Where a band asks for hand-out hygiene, a unit is zeroed between its hand-out and its first use,
  by a recorded write; before a publish the host has seen that write end. (A fork's copy, which
  overwrites the whole unit, needs none.)
* What the device itself says a piece of work touched without being recorded for it (rule 9: stale
  ids, a buffer filled anew too early).

Reads of bytes never written in the id's life are found by the content oracle and reported under
this name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.interface import Access
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.fact_types import (
    ARENA,
    CallFacts,
    IdFact,
    Op,
)
from onearena.stress.oracles.facts import Facts

UNDECLARED_REPORTS_MAX: Final = 8


class PoisonOracle:
    """Feed `CallFacts`; the device calls `undeclared`. Cost: what a call enqueues or names."""

    name = "poison"
    calls = frozenset(("allocate", "fork", "free", "record", "publish"))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        bands = facts.bands
        self._sinks = sorted((b.origin_bytes, b.origin_bytes + b.unit_bytes) for b in bands)
        self._zero_bands = {i for i, band in enumerate(bands) if band.zero_on_hand_out}
        self._fresh: dict[int, IdFact] = {}  # ids of such bands, not used yet
        self._zeroed: list[tuple[int, int, int, Op]] = []  # start, end, call, operation
        self._reported = 0
        self.pending: list[Violation] = []

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call; returns what the device said since the last one, too."""
        for op in facts.ops:
            self._judge_op(op, facts)
        for begun in facts.begun:
            self._judge_range(begun.transfer, begun.accesses)
        if self._zero_bands:
            self._judge_hygiene(facts)
        if not self.pending:
            return NO_VIOLATIONS
        found, self.pending = tuple(self.pending), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """What the device said last."""
        found, self.pending = tuple(self.pending), []
        return found

    def undeclared(self, number: int, access: Access) -> None:
        """The device's word: `number` touches bytes that the host did not record for it."""
        self._reported += 1
        if self._reported > UNDECLARED_REPORTS_MAX:
            return
        use = self.facts.use_of_op.get(number)
        who = f"use {use.serial} ({UseKind(use.kind).name.lower()})" if use else f"work {number}"
        what = "writes" if access.writes else "reads"
        self._add("9", f"{who} {what} bytes that were not recorded for it.", access)

    def _judge_op(self, op: Op, facts: CallFacts) -> None:
        self._judge_range(op.op, op.accesses)
        # A zeroed unit may move before its first use: the copy carries the zeros over.
        if op.kind in (UseKind.ZEROING, UseKind.MOVE) and self._zero_bands:
            for space, start, end, writes in op.accesses:
                if space == ARENA and writes:
                    self._zeroed.append((start, end, facts.call.serial, op))

    def _judge_range(self, number: int, accesses: Sequence[Access]) -> None:
        size = self.facts.plan.arena_bytes
        for access in accesses:
            space, start, end, writes = access
            if space != ARENA or (start >= 0 and end <= size):
                continue
            in_sink = any(low <= start and end <= high for low, high in self._sinks)
            if writes and not (in_sink and end <= 0):
                self._add("8", f"work {number} writes a guard, or past a sink.", access)

    def _judge_hygiene(self, facts: CallFacts) -> None:
        if facts.call.name == "allocate":
            for fact in facts.granted:
                if fact.band in self._zero_bands:
                    self._fresh[fact.id] = fact
        for fact in facts.freed:
            self._fresh.pop(fact.id, None)
        if facts.call.name not in ("record", "publish") or facts.refused or not facts.use:
            return
        for name, start, _ in (*facts.use.use.reads, *facts.use.use.writes):
            fresh = self._fresh.pop(name, None)
            if fresh is not None:
                self._judge_zeroed(fresh, start, facts)
        if not self._fresh:
            self._zeroed.clear()

    def _judge_zeroed(self, fact: IdFact, start: int, facts: CallFacts) -> None:
        band = self.facts.bands[fact.band]
        unit = (start - band.origin_bytes) // band.unit_bytes
        low, high = self.facts.unit_range(fact.band, unit)
        where = self.facts.name(fact.band, unit)
        ops = [
            op
            for first, last, call, op in self._zeroed
            if call >= fact.call and first < high and low < last
        ]
        covered = sum(
            min(last, high) - max(first, low)
            for first, last, call, _ in self._zeroed
            if call >= fact.call and first < high and low < last
        )
        if covered < high - low:
            message = f"id {fact.id} is used, and its unit was not zeroed since its hand-out."
            self._add("8", message, None, where)
        elif facts.call.name == "publish":
            host = self.facts.host_clock
            if any(op.position > host[op.stream] for op in ops):
                message = f"id {fact.id} is published before the host saw its zeroing end."
                self._add("7", message, None, where)

    def _add(
        self, rule: str, message: str, access: Access | None, unit: UnitName | None = None
    ) -> None:
        space = "arena" if access is None or access.space == ARENA else access.space.name.lower()
        extent = None if access is None else ByteRange(space, access.start, access.end)
        self.pending.append(Violation(self.name, rule, message, unit=unit, bytes=extent))
