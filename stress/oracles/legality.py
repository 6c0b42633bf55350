"""The legality oracle: is every unit in a state that the state table of section 5 allows?

An automaton for each unit, written from the table. The system's snapshots say in which state a
unit is; the calls and the device trace say which states it may be in:

    beyond   no live id, no transfer; unfinished uses under a fence, or another band owns the bytes
    hole     no live id, no transfer; every use over, unless a band grew over fenced bytes
    live     exactly the id whose references are not used up, at the unit its copy went to
    pending  a call freed the last reference of the id that lived there
    vacated  the id that lived there moved away

and an id that arrives at a unit found that unit reusable. *When* a pending or vacated unit
becomes a hole is the system's choice, once it may. Where two calls lie between two snapshots a
frontier may have retreated and come back in between; then only what holds in either case is
checked. So the oracle is sharpest with a snapshot after each call, and gives no false alarm with
fewer.

Also here: the work of a use is enqueued by its launch and touches no byte that the use did not
record (rule 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.device.interface import Access
from onearena.core.rules import UseKind
from onearena.core.snapshot import FenceSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.fact_types import (
    ARENA,
    BEYOND,
    HOLE,
    LIVE,
    MOVING,
    PENDING,
    VACATED,
    CallFacts,
    Change,
    IdFact,
    Op,
    Relocation,
    UseFact,
    changes_between,
    shows_units,
)
from onearena.stress.oracles.facts import Facts
from onearena.stress.oracles.touches import Touch

STATE_NAMES: Final = ("beyond", "hole", "live", "pending", "vacated")
FULL_EVERY: Final = 64
WORLD_KINDS: Final = frozenset(
    (int(UseKind.FORWARD), int(UseKind.BACKUP), int(UseKind.LOAD), int(UseKind.SEND))
)
# Calls inside which a frontier may retreat, and those inside which one may come back.
RETREATING: Final = MOVING | {"free", "disconnect", "process", "settle", "retire", "end_transfer"}
FOREVER: Final = 1 << 62


class LegalityOracle:
    """Unit states against what the calls allow. Feed `CallFacts`, made by the `Facts` it shares.

    Cost: of a snapshot, the units whose state or id changed, plus the bands; all units of the
    bands on every `full_every`-th. Other calls cost what they name.
    """

    name = "legality"
    calls = RETREATING | {"record", "publish", "launch", "snapshot"}

    def __init__(self, facts: Facts, *, full_every: int = FULL_EVERY) -> None:
        self.facts = facts
        self.full_every = full_every
        self._before: Snapshot | None = None
        self._before_call = 0
        self._snapshots = 0
        self._grown_late = False
        self._retreated = False
        self._moved = False
        self._unseen = False  # several calls, moves among them: places between were not seen
        self._freed: list[IdFact] = []
        self._born = [0] * len(facts.bands)  # ids handed out since the last snapshot
        self._move_writes: list[tuple[int, int]] = []
        self._extents: list[tuple[int, int]] = []
        self._fences: tuple[FenceSnapshot, ...] = ()
        self._found: list[Violation] = []

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        if call.name in RETREATING and not facts.refused:
            self._moved |= call.name in MOVING
            if call.name in MOVING and self._retreated:
                self._grown_late = True
            self._unseen = self._retreated and self._moved
            self._retreated = True
        if facts.ops:
            self._judge_ops(facts)
        if call.name == "launch":
            self._judge_launch(facts)
        for relocation in self.facts.relocations:
            self._judge_relocation(relocation)
        if facts.freed:
            self._freed += facts.freed
        for fact in facts.granted:
            self._born[fact.band] += 1
        if call.name == "snapshot" and isinstance(call.answer, Snapshot):
            self._judge_snapshot(facts, call.answer)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say; the harness ends a run with a snapshot."""
        return NO_VIOLATIONS

    def judge_units(self, changed: Sequence[Change], call: Call) -> tuple[Violation, ...]:
        """Judge the units that `call` changed, where somebody lists them and no snapshot shows
        them. All changes of all calls have to come this way then.
        """
        self._before_call = call.serial - 1
        self._judge_changes(changed, call)
        self._move_writes.clear()
        found, self._found = tuple(self._found), []
        return found

    # -- work and its record ---------------------------------------------------------------------
    def _judge_ops(self, facts: CallFacts) -> None:
        for op in facts.ops:
            if op.kind == UseKind.MOVE:
                self._move_writes += [a[1:3] for a in op.accesses if a[0] == ARENA and a[3]]
            if op.kind in WORLD_KINDS and facts.call.name != "launch":
                self._report(
                    "8",
                    f"operation {op.op} ({UseKind(op.kind).name.lower()}) was enqueued by "
                    f"`{facts.call.name}`, with no use recorded for it.",
                    facts.call,
                )
        if facts.call.name == "fork":
            self._judge_fork(facts)

    def _judge_fork(self, facts: CallFacts) -> None:
        """A fork is a new reader: it reads where its sources are, not where they were."""
        left: set[tuple[int, int]] = set()
        for op in facts.ops:
            if op.kind == UseKind.MOVE:
                left |= {(a.start, a.end) for a in op.accesses if a[0] == ARENA and not a[3]}
                left -= {(a.start, a.end) for a in op.accesses if a[0] == ARENA and a[3]}
            elif op.kind == UseKind.FORK:
                for space, start, end, writes in op.accesses:
                    if space == ARENA and not writes and (start, end) in left:
                        message = "a fork copies bytes that its source moved away from in its call."
                        self._report("3", message, facts.call, extent=(start, end))

    def _judge_launch(self, facts: CallFacts) -> None:
        use = facts.use
        if facts.refused:
            return
        if use is None:
            self._report("8", "work was launched for a use that is not recorded.", facts.call)
            return
        accesses: tuple[Access, ...] = ()
        if use.is_transfer:
            accesses = facts.begun[-1].accesses if facts.begun else ()
        else:
            own = _op_of(use, facts.ops)
            accesses = own.accesses if own is not None else ()
        if use.op < 0:
            self._report("8", f"the launch of use {use.serial} enqueued nothing.", facts.call)
        self._judge_side_work(use, facts)
        reads = {(start, end) for _, start, end in use.use.reads}
        writes = {(start, end) for _, start, end in use.use.writes}
        for space, start, end, writing in accesses:
            if space != ARENA or end <= 0:
                continue
            recorded = writes if writing else reads
            if (start, end) in recorded or start >= end:
                continue
            ranges = writes if writing else reads | writes
            if not _covered(start, end, ranges):
                self._report(
                    "8",
                    f"the work of use {use.serial} {'writes' if writing else 'reads'} bytes that "
                    f"the use did not record.",
                    facts.call,
                    extent=(start, end),
                )

    def _judge_side_work(self, use: UseFact, facts: CallFacts) -> None:
        """Side streams fork from the use's stream after its waits and join it before its event."""
        joined = self.facts.event_clock(use.event)
        for op in facts.ops:
            if op.op == use.op or op.kind not in WORLD_KINDS or use.is_transfer:
                continue
            if op.stream >= len(joined) or op.position > joined[op.stream]:
                message = f"side work {op.op} of use {use.serial} is not joined before its event."
                self._report("8", message, facts.call)
            ranges = {(start, end) for _, start, end in (*use.use.reads, *use.use.writes)}
            for space, start, end, _ in op.accesses:
                if space == ARENA and end > 0 and not _covered(start, end, ranges):
                    message = f"side work {op.op} touches bytes use {use.serial} did not record."
                    self._report("8", message, facts.call, extent=(start, end))

    def _judge_relocation(self, relocation: Relocation) -> None:
        fact, old, new, serial, under_transfer, pinned, written = relocation
        unit = self.facts.name(fact.band, old)
        call = f"call #{serial} shows id {fact.id} at unit {new}, before at {old}"
        if under_transfer:
            self._found.append(_violation("4", "a unit under a transfer moved.", unit, (call,)))
        if pinned:
            self._found.append(_violation("4", "a pinned unit moved.", unit, (call,)))
        if written:
            start, end = self.facts.unit_range(fact.band, new)
            if not any(low < end and start < high for low, high in self._move_writes):
                message = "a written unit was remapped without a copy."
                self._found.append(_violation("3", message, unit, (call,)))

    # -- snapshots -------------------------------------------------------------------------------
    def _judge_snapshot(self, facts: CallFacts, now: Snapshot) -> None:
        call = facts.call
        if not shows_units(now):
            return
        self._snapshots += 1
        changed = facts.changes
        if self._snapshots % self.full_every == 0:
            changed = changes_between(self._before, now, full=True)
        self._judge_freed(now, call)
        self._judge_changes(changed, call)
        self._judge_gaps(now, call)
        self._before, self._before_call = now, call.serial
        self._retreated = self._grown_late = self._moved = self._unseen = False
        self._freed.clear()
        self._born = [0] * len(self._born)
        self._move_writes.clear()

    def _judge_changes(self, changed: Sequence[Change], call: Call) -> None:
        for band, unit, old_state, state, _, name in changed:
            self._judge_state(band, unit, old_state, state, name, call)
        for band, _, old_state, state, old_name, name in changed:
            fact = self.facts.ids.get(name) if state == LIVE and name != old_name else None
            if fact is not None and fact.band == band:
                self._judge_arrival((fact, old_state), call)

    def _judge_freed(self, now: Snapshot, call: Call) -> None:
        """A freed id is freed at once, whatever still uses the unit."""
        for fact in self._freed:
            snap = now.bands[fact.band]
            unit = fact.unit
            if unit is None or not snap.low_unit <= unit < snap.high_unit:
                continue
            if snap.ids[unit - snap.low_unit] == fact.id:
                self._report(
                    "1",
                    f"id {fact.id} was freed, and its unit is still live under that id.",
                    call,
                    unit=self.facts.name(fact.band, unit),
                )

    def _judge_state(
        self, band: int, unit: int, old_state: int, state: int, name: int, call: Call
    ) -> None:
        facts = self.facts
        held = facts.at[band].get(unit)
        limbo = facts.limbo[band].get(unit)
        where = facts.name(band, unit)
        if state == LIVE:
            facts.limbo[band].pop(unit, None)
            self._judge_live(band, unit, name, where, call)
            return
        if held is not None and held.id in facts.ids:
            message = f"live unit (id {held.id}) is shown as {STATE_NAMES[state]}."
            self._report("1", message, call, unit=where)
            return
        # An id handed out or moved, and gone again between two snapshots, was not seen there.
        unseen = self._born[band] > 0 or self._unseen
        if state == PENDING and (limbo is None or limbo.state != "pending"):
            if old_state != PENDING and not unseen:
                message = f"{STATE_NAMES[old_state]} unit became pending, and no call freed it."
                self._report("2", message, call, unit=where)
        elif state == VACATED and (limbo is None or limbo.state != "vacated"):
            if old_state != VACATED and not unseen:
                message = f"{STATE_NAMES[old_state]} unit became vacated, and no id moved away."
                self._report("3", message, call, unit=where)
        elif state == HOLE:
            self._judge_hole(band, unit, old_state, where, call)
        elif state == BEYOND:
            facts.limbo[band].pop(unit, None)

    def _judge_live(self, band: int, unit: int, name: int, where: UnitName, call: Call) -> None:
        facts = self.facts
        if name == 0:
            start, end = facts.unit_range(band, unit)
            if facts.under_transfer(start, end, before=FOREVER) is None:
                self._report(
                    "12", "live unit without id, and no transfer holds it.", call, unit=where
                )
        elif name not in facts.ids:
            known = "freed" if name in facts.ever else "never handed out"
            self._report("1", f"live unit shows id {name}, which was {known}.", call, unit=where)
        elif facts.ids[name].band != band:
            self._report("13", f"id {name} belongs to another band.", call, unit=where)

    def _judge_hole(
        self, band: int, unit: int, old_state: int, where: UnitName, call: Call
    ) -> None:
        facts = self.facts
        start, end = facts.unit_range(band, unit)
        transfer = facts.under_transfer(start, end, before=FOREVER)
        if transfer is not None:
            word = "quarantined unit" if transfer.outcome == "lost" else "unit under a transfer"
            rule = "12" if transfer.outcome == "lost" else "2"
            message = f"{word} became a hole before transfer use {transfer.serial} was over."
            self._report(rule, message, call, unit=where)
            return
        touch = facts.blocking(band, unit, before=FOREVER)
        if touch is None:
            facts.limbo[band].pop(unit, None)
        elif old_state in (LIVE, PENDING, VACATED) and not self._grown_late:
            was = facts.limbo[band].get(unit)
            state = was.state if was is not None else STATE_NAMES[old_state]
            self._report(
                "3" if state == "vacated" else "2",
                f"{state} unit became a hole while a use is neither processed, retired nor settled "
                f"on the schedule stream.",
                call,
                unit=where,
                touch=touch,
            )

    def _judge_arrival(self, arrival: tuple[IdFact, int], call: Call) -> None:
        """The unit an id came to was reusable when it came."""
        fact, old_state = arrival
        unit = fact.unit
        assert unit is not None
        born = fact.call > self._before_call
        since = fact.call if born else self._before_call + 1
        start, end = self.facts.unit_range(fact.band, unit)
        transfer = self.facts.under_transfer(start, end, before=since)
        where = self.facts.name(fact.band, unit)
        if transfer is not None and not _names(transfer, fact):
            word = "quarantined" if transfer.outcome == "lost" else "under a transfer"
            rule = "12" if transfer.outcome == "lost" else "5"
            self._report(
                rule,
                f"id {fact.id} came to bytes {word} (use {transfer.serial}).",
                call,
                unit=where,
            )
        if old_state in (PENDING, VACATED, LIVE) and not self._grown_late:
            touch = self.facts.blocking(fact.band, unit, before=since)
            if touch is not None and touch.stream >= 0:
                self._report(
                    "3" if old_state == VACATED else "2",
                    f"{STATE_NAMES[old_state]} unit was handed to id {fact.id} while a use of its "
                    f"last life is neither processed, retired nor settled on the schedule stream.",
                    call,
                    unit=where,
                    touch=touch,
                )

    def _judge_gaps(self, now: Snapshot, call: Call) -> None:
        """Outside every band: nothing under a transfer, unfinished uses only under a fence."""
        facts = self.facts
        extents = sorted((b.start_bytes, b.end_bytes) for b in now.bands if b.has_units)
        # What lies outside the bands only ever retires, until a band or a fence changes.
        if extents == self._extents and now.fences == self._fences:
            return
        self._extents, self._fences = extents, now.fences
        cursor = 0
        for start, end in (*extents, (now.arena_bytes, now.arena_bytes)):
            if cursor < start:
                for low, high, touch in facts.arena.find(cursor, start):
                    self._judge_gap_touch(low, high, touch, now, call)
            cursor = max(cursor, end)

    def _judge_gap_touch(
        self, low: int, high: int, touch: Touch, now: Snapshot, call: Call
    ) -> None:
        facts = self.facts
        if touch.stream < 0:
            if facts.under_transfer(low, high, before=FOREVER) is not None:
                message = f"a frontier passed bytes under a transfer (use {touch.position})."
                self._report("5", message, call, extent=(low, high))
        elif not facts.is_retired(touch):
            ticket = self._ticket_of(touch, now)
            ranges = {
                (fence.start_bytes, fence.end_bytes)
                for fence in now.fences
                if any(
                    stream == touch.stream and writes == touch.writes and number >= ticket
                    for _, stream, number, writes in fence.uses
                )
            }
            if not _covered(low, high, ranges):
                self._report(
                    "5",
                    "a frontier retreated over bytes with a use outstanding, and no fence of that "
                    "use covers them.",
                    call,
                    extent=(low, high),
                    touch=touch,
                )

    def _ticket_of(self, touch: Touch, now: Snapshot) -> int:
        """What the snapshot calls the touch's use on its stream; 0: not a use of a caller."""
        for use in now.uses:
            fact = self.facts.uses.get(use.serial)
            if fact is not None and (fact.stream, fact.position) == (touch.stream, touch.position):
                return use.ticket
        return 0

    # -- reports ---------------------------------------------------------------------------------
    def _report(
        self,
        rule: str,
        message: str,
        call: Call,
        *,
        unit: UnitName | None = None,
        extent: tuple[int, int] | None = None,
        touch: Touch | None = None,
    ) -> None:
        events = [f"call #{call.serial} {call.name}"]
        if touch is not None:
            events.insert(0, describe(touch))
        self._found.append(
            Violation(
                "legality",
                rule,
                message,
                unit=unit,
                bytes=ByteRange("arena", *extent) if extent is not None else None,
                events=tuple(events),
                details={"call": call.serial, "step": call.step},
            )
        )


def describe(touch: Touch) -> str:
    """One line for a person: which use the touch stands for."""
    kind = UseKind(touch.kind).name.lower() if touch.kind in UseKind._value2member_map_ else "work"
    what = "write" if touch.writes else "read"
    if touch.stream < 0:
        return f"call #{touch.call}: {kind} (transfer, use {touch.position}), {what}"
    return (
        f"call #{touch.call}: {kind} on stream {touch.stream}, operation {touch.position}, {what}"
    )


def _violation(
    rule: str, message: str, unit: UnitName | None, events: tuple[str, ...]
) -> Violation:
    return Violation("legality", rule, message, unit=unit, events=events)


def _op_of(use: UseFact, ops: Sequence[Op]) -> Op | None:
    return next((op for op in ops if op.op == use.op), None)


def _names(transfer: UseFact, fact: IdFact) -> bool:
    use = transfer.use
    return any(name == fact.id for name, _, _ in (*use.reads, *use.writes))


def _covered(start: int, end: int, ranges: set[tuple[int, int]]) -> bool:
    """Whether the union of `ranges` covers [start, end)."""
    for low, high in sorted(ranges):
        if low > start:
            return False
        start = max(start, high)
        if start >= end:
            return True
    return start >= end
