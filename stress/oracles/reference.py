"""The reference oracle: the system's waits and refusals agree with a slow, obvious ledger.

For each recorded use the reference says which earlier uses must come first (rule 6, both tables,
host units included). Then

* an EVENT cell is met if the use's stream is ordered after that use by same-stream order, by any
  wait the stream made, directly or through others, or by what the host has seen;
* a HOST cell is met if the host was told of the end (`retire`, `end_transfer`, `disconnect`);
* `record` and `publish` answer `Blocked` exactly if some HOST cell is not met, and then nothing
  else; work that the system enqueues itself (moves, forks, zeroing) meets the same tables.

Needless waits are found here too, and reported under the oracle name `economy`: a wait that
`record` made, and that brings the stream nothing that whole units, or the resolving of ids,
demanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.answers import Blocked
from onearena.core.rules import UseKind, Wait
from onearena.stress.calls import Call
from onearena.stress.oracles.base import NO_VIOLATIONS, UnitName, Violation
from onearena.stress.oracles.fact_types import (
    ARENA,
    CallFacts,
    Op,
    UseFact,
)
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.reference_ledger import (
    STREAM_KINDS,
    Need,
    ReferenceLedger,
    RefUse,
    host_ranges_of,
    ranges_of,
)
from onearena.stress.sut import Use

Ranges = list[tuple[int, int, int, bool]]
SWEEP_EVERY: Final = 32


class ReferenceOracle:
    """Feed `CallFacts`. Cost: unfinished uses of the units a call names."""

    name = "reference"
    calls = frozenset(("record", "publish", "launch", "retire", "end_transfer", "disconnect"))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.ledger = ReferenceLedger(facts.bands)
        self._uses: dict[int, RefUse] = {}
        self._own: list[RefUse] = []  # of operations the system enqueued itself
        self._entries = 0
        self._sides = False  # callers have joined work of side streams, which no call told
        self._found: list[Violation] = []

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        if call.name in ("record", "publish"):
            self._judge_recorded(facts)
        elif call.name == "launch" and facts.use is not None and not facts.refused:
            self._launched(facts.use)
            self._sides |= any(op.stream != facts.use.use.stream for op in facts.ops)
        elif call.name in ("retire", "end_transfer", "disconnect") and not facts.refused:
            self._ended(facts)
        if facts.ops:
            for op in facts.ops:
                if call.name != "launch":
                    self._judge_own(op, facts)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    # -- uses of callers -------------------------------------------------------------------------
    def _judge_recorded(self, facts: CallFacts) -> None:
        call, answer = facts.call, facts.call.answer
        if isinstance(answer, Blocked):
            self._judge_blocked(facts)
            return
        if not isinstance(answer, Use):
            return
        kind = UseKind(answer.kind)
        by_units: list[Need] = []
        for key, start, end, writes in self._located(answer):
            missing, whole = self.ledger.needs(kind, key, start, end, writes=writes)
            by_units += whole
            for need in missing:
                if not self._met(need, answer.stream):
                    self._report_missing(need, kind, key, call)
        if answer.stream >= 0 and facts.waits:
            self._judge_waits(answer, by_units, facts)
        if answer.stream < 0 and facts.use is not None:
            self._enter(facts.use, 0)

    def _located(self, use: Use) -> list[tuple[tuple[int, int], int, int, bool]]:
        found = []
        for name, start, end, writes in ranges_of(use):
            fact = self.facts.ids.get(name)
            if fact is not None:
                band = self.facts.bands[fact.band]
                unit = (start - band.origin_bytes) // band.unit_bytes
                found.append(((fact.band, unit), start, end, writes))
        for _, start, end, writes in host_ranges_of(use):
            # A host id keeps its unit for life, so its first byte names the unit.
            found.append(((-1, start), start, end, writes))
        return found

    def _met(self, need: Need, stream: int) -> bool:
        use = need.use
        if need.wait is Wait.NOTHING:
            return True
        if use.stream < 0:
            fact = self.facts.transfers.get(use.serial)
            return fact is None or fact.outcome == "disconnected"
        if need.wait is Wait.HOST:
            return use.position <= self.facts.host_clock[use.stream]
        return use.stream == stream or use.position <= self.facts.clock_of(stream)[use.stream]

    def _judge_blocked(self, facts: CallFacts) -> None:
        """`Blocked` is right only if the host has not seen some end that it must have seen."""
        call = facts.call
        if call.name == "record":
            kind, _, reads, writes, _, _ = call.args
        else:
            kind, ids, _ = call.args
            reads, writes = (ids, ()) if kind is UseKind.SEND else ((), ids)
        assert isinstance(kind, UseKind)
        unknown = blocked = False
        assert isinstance(call.answer, Blocked)
        named = {(blocker.band, blocker.unit) for blocker in call.answer.blockers}
        for ids, writing in ((reads, False), (writes, True)):
            for name in ids:  # type: ignore[attr-defined]
                fact = self.facts.ids.get(name)
                if fact is None or fact.unit is None or not self.facts.is_placed(fact):
                    unknown = True
                    continue
                start, end = self.facts.unit_range(fact.band, fact.unit)
                _, whole = self.ledger.needs(
                    kind, (fact.band, fact.unit), start, end, writes=writing
                )
                for need in whole:
                    if need.wait is not Wait.HOST or self._seen_by_calls(need):
                        continue
                    blocked = True
                    if (fact.band, fact.unit) not in named and self._must_be_named(need):
                        self._report_unnamed(need, (fact.band, fact.unit), call)
                        return
        if blocked:
            return
        if unknown or (call.name == "record" and (call.args[4] or call.args[5])):
            return  # a unit not seen yet, or host units: the reference can't tell
        self._found.append(
            Violation(
                self.name,
                "6" if call.name == "record" else "7",
                f"{call.name} of {kind.name.lower()} is blocked, and the host has seen the end of "
                f"all that it has to see.",
                events=(f"call #{call.serial} {call.name}",),
                details={"call": call.serial, "step": call.step},
            )
        )

    def _must_be_named(self, need: Need) -> bool:
        """Whether no call so far, directly or through others, implies the end of the use."""
        use = need.use
        return use.stream < 0 or use.position > self.facts.host_clock[use.stream]

    def _report_unnamed(self, need: Need, key: tuple[int, int], call: Call) -> None:
        """`Blocked` promises that the ends of what it names are enough."""
        self._found.append(
            Violation(
                self.name,
                "6" if call.name == "record" else "7",
                f"{call.name} is blocked by {UseKind(need.use.kind).name.lower()} too, and the "
                f"answer does not name the unit.",
                unit=self.facts.name(*key),
                events=(f"call #{call.serial} {call.name}",),
                details={"call": call.serial, "step": call.step},
            )
        )

    def _seen_by_calls(self, need: Need) -> bool:
        """Whether calls told the system of the use's end (rule 10: it may know nothing else)."""
        use = need.use
        if use.stream < 0:
            return use.serial not in self.facts.transfers
        return use.serial not in self._uses and use not in self._own

    def _judge_waits(self, use: Use, by_units: list[Need], facts: CallFacts) -> None:
        """Each wait of the use's stream brought something that was needed.

        What a stream learnt through work of a caller's side stream no call has told the system: it
        may wait for such a use again.
        """
        fresh = set(facts.events)
        for seen in facts.waits:
            if seen.stream != use.stream or seen.event in fresh:
                continue  # the translation of the ids: enqueued in this very call
            if any(
                need.use.stream >= 0
                and need.use.stream != use.stream
                and (self._sides or _at(seen.before, need.use.stream) < need.use.position)
                and need.use.position <= _at(seen.brings, need.use.stream)
                for need in by_units
            ):
                continue
            if self._resolves(seen.brings, seen.before):
                continue
            self._found.append(
                Violation(
                    "economy",
                    "6",
                    f"stream {use.stream} waits for event {seen.event}, and no unit of the use "
                    f"needs it.",
                    events=(f"call #{facts.call.serial} {facts.call.name}",),
                    details={"call": facts.call.serial, "event": seen.event},
                )
            )

    def _resolves(self, brings: Sequence[int], before: Sequence[int]) -> bool:
        """Whether the wait brings work of the schedule stream: table updates, translations."""
        schedule = self.facts.plan.schedule_stream
        return _at(brings, schedule) > _at(before, schedule)

    # -- entering and ending ---------------------------------------------------------------------
    def _launched(self, fact: UseFact) -> None:
        if not fact.is_transfer and fact.op >= 0:
            self._enter(fact, fact.position)

    def _enter(self, fact: UseFact, position: int) -> None:
        use = RefUse(fact.serial, fact.kind, fact.stream, position)
        self._uses[fact.serial] = use
        for key, start, end, writes in self._located(fact.use):
            self.ledger.enter(use, key, start, end, writes=writes)

    def _ended(self, facts: CallFacts) -> None:
        over: list[int] = []
        if facts.use is not None and facts.use.outcome != "lost":
            over.append(facts.use.serial)
        elif facts.call.name == "disconnect":
            over = [
                serial
                for serial, use in self._uses.items()
                if use.stream < 0 and serial not in self.facts.transfers
            ]
        for serial in over:
            use = self._uses.pop(serial, None)
            if use is not None:
                self.ledger.retire(use)

    # -- the system's own work -------------------------------------------------------------------
    def _judge_own(self, op: Op, facts: CallFacts) -> None:
        """A move, fork or zeroing meets the tables, then becomes a use itself."""
        if op.kind not in STREAM_KINDS:
            return
        kind = UseKind(op.kind)
        use = RefUse(-op.op, op.kind, op.stream, op.position)
        entries: list[tuple[tuple[int, int], int, int, bool]] = []
        for space, start, end, writes in op.accesses:
            if space == ARENA and end > 0:
                for key, low, high in self._units_under(start, end):
                    entries.append((key, low, high, writes))
        for key, start, end, writes in entries:
            missing, _ = self.ledger.needs(kind, key, start, end, writes=writes)
            for need in missing:
                if need.use is not use and not self._met_before(need, op):
                    self._report_missing(need, kind, key, facts.call)
            if facts.call.name == "compact" and op.kind == UseKind.MOVE and not writes:
                self._judge_opportunistic(missing, key, facts.call)
        for key, start, end, writes in entries:
            self.ledger.enter(use, key, start, end, writes=writes)
        self._own.append(use)
        self._entries += 1
        if self._entries % SWEEP_EVERY == 0:
            self._sweep()

    def _judge_opportunistic(
        self, writes_before: Sequence[Need], key: tuple[int, int], call: Call
    ) -> None:
        """Rule 4: only a needed move waits for its source's writer; another skips such a source."""
        for need in writes_before:
            use = need.use
            if use.stream >= 0 and use.position > self.facts.retired[use.stream]:
                self._found.append(
                    Violation(
                        "economy",
                        "4",
                        f"an opportunistic move took a source that "
                        f"{UseKind(use.kind).name.lower()} on stream {use.stream} still writes.",
                        unit=self.facts.name(*key),
                        events=(f"call #{call.serial} {call.name}",),
                        details={"call": call.serial, "step": call.step},
                    )
                )
                return

    def _met_before(self, need: Need, op: Op) -> bool:
        """As `_met`, by the clock that the operation had when it was enqueued."""
        use = need.use
        if use.stream < 0 or need.wait is not Wait.EVENT:
            return self._met(need, op.stream)
        return use.stream == op.stream or use.position <= _at(op.clock, use.stream)

    def _units_under(self, start: int, end: int) -> list[tuple[tuple[int, int], int, int]]:
        """The range, cut along the units of the first band whose grid it fits.

        Which band's unit stands for the bytes does not matter: `around` looks at all bands.
        """
        for band, grid in enumerate(self.facts.bands):
            offset = (start - grid.origin_bytes) % grid.unit_bytes
            if offset == 0 and (end - start) % grid.unit_bytes == 0:
                unit = (start - grid.origin_bytes) // grid.unit_bytes
                count = (end - start) // grid.unit_bytes
                units = range(unit, unit + count)
                return [((band, number), *self.facts.unit_range(band, number)) for number in units]
        grid = self.facts.bands[0]
        first = (start - grid.origin_bytes) // grid.unit_bytes
        after = -((grid.origin_bytes - end) // grid.unit_bytes)
        return [((0, unit), start, end) for unit in range(first, after)]

    def _sweep(self) -> None:
        """Own operations that `retire` calls imply the end of are over for everybody."""
        retired = self.facts.retired
        kept: list[RefUse] = []
        for use in self._own:
            if use.position <= retired[use.stream]:
                self.ledger.retire(use)
            else:
                kept.append(use)
        self._own = kept

    # -- reports ---------------------------------------------------------------------------------
    def _report_missing(self, need: Need, kind: UseKind, key: tuple[int, int], call: Call) -> None:
        earlier = need.use
        does = "writes" if need.by_write else "reads"
        what = "write" if need.writes else "read"
        how = "its stream does not wait for it"
        if need.wait is Wait.HOST or earlier.stream < 0:
            how = "the host has not seen it end"
        rule = "7" if kind in (UseKind.SEND, UseKind.RECEIVE) else "6"
        where = f"stream {earlier.stream}" if earlier.stream >= 0 else "a transfer"
        unit: UnitName | None = self.facts.name(*key) if key[0] >= 0 else None
        self._found.append(
            Violation(
                self.name,
                rule,
                f"{kind.name.lower()} {does} bytes after a {what} by "
                f"{UseKind(earlier.kind).name.lower()} on {where}, and {how}.",
                unit=unit,
                events=(f"call #{call.serial} {call.name}",),
                details={
                    "call": call.serial,
                    "step": call.step,
                    "next": kind.name,
                    "earlier": UseKind(earlier.kind).name,
                    "earlier_writes": need.writes,
                    "stream": earlier.stream,
                    "position": earlier.position,
                },
            )
        )


def _at(clock: Sequence[int], stream: int) -> int:
    return clock[stream] if 0 <= stream < len(clock) else 0
