"""The mapping oracle: virtual ids against physical units.

* An id is handed out once in a run (a generation never repeats), positive, and for the band that
  asked; a grant has exactly the units of the demand, a fork exactly those of its sources.
* Resolving gives every named id its own whole unit on the band's grid, inside the arena.
* Virtual to physical is injective, and the inverse (the ids a snapshot shows by unit) agrees: an id
  changes its unit only in a call that may move units.
* As many ids are live in each band as calls left references to.
"""

from __future__ import annotations

from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.base import NO_VIOLATIONS, UnitName, Violation
from onearena.stress.oracles.fact_types import MOVING, CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import Grant, Use


class MappingOracle:
    """Feed `CallFacts`, made by the `Facts` it shares, before any oracle that clears them.

    Cost: what a call names; of a snapshot, the bands whose ids changed, at C speed.
    """

    name = "mapping"
    calls = MOVING | {"record", "publish", "snapshot"}

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._seen: set[int] = set()
        self._shown: list[tuple[int, ...] | None] = [None] * len(facts.bands)
        self._moved = False
        self._found: list[Violation] = []

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call, answer = facts.call, facts.call.answer
        if call.name in MOVING and not facts.refused:
            self._moved = True
            if isinstance(answer, Grant):
                self._judge_grant(facts, answer)
        elif isinstance(answer, Use):
            self._judge_use(facts, answer)
        elif isinstance(answer, Snapshot):
            self._judge_snapshot(call, answer)
        if not self._found:
            return NO_VIOLATIONS
        found, self._found = tuple(self._found), []
        return found

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _judge_grant(self, facts: CallFacts, grant: Grant) -> None:
        call = facts.call
        bands = len(self.facts.bands)
        expected: list[int] = [0] * bands
        if call.name == "allocate":
            demand = call.args[0]
            assert isinstance(demand, tuple)
            expected = list(demand)
        else:
            # A source that lost its last reference is no longer known by now, but was freed here.
            freed = {fact.id: fact for fact in facts.freed}
            for name in call.args[0]:  # type: ignore[attr-defined]
                fact = self.facts.ids.get(name) or freed.get(name)
                if fact is not None:
                    expected[fact.band] += 1
        given = [len(ids) for ids in grant.ids]
        if given != expected:
            self._report("11", f"{call.name} gave {given} units a band, not {expected}.", call)
        for ids in grant.ids:
            for name in ids:
                if name <= 0:
                    self._report("13", f"id {name} was handed out; ids are positive.", call)
                elif name in self._seen:
                    self._report("11", f"id {name} was handed out a second time.", call)
                self._seen.add(name)

    def _judge_use(self, facts: CallFacts, use: Use) -> None:
        call = facts.call
        asked = _asked(call)
        resolved = (*use.reads, *use.writes)
        if sorted(asked) != sorted(name for name, _, _ in resolved):
            message = f"the use names {[name for name, _, _ in resolved]}, asked was {list(asked)}."
            self._report("9", message, call)
        at: dict[tuple[int, int], int] = {}
        for name, start, end in resolved:
            fact = self.facts.ids.get(name)
            if fact is None:
                self._report("13", f"id {name} is not live, and was resolved.", call)
                continue
            band = self.facts.bands[fact.band]
            unit = (start - band.origin_bytes) // band.unit_bytes
            low, high = self.facts.unit_range(fact.band, unit)
            where = self.facts.name(fact.band, unit)
            first, after = band.first_unit, band.first_unit + band.capacity_units
            if not (low <= start < end <= high and first <= unit < after):
                message = f"id {name} resolved to [{start}, {end}), which lies in no unit."
                self._report("9", message, call, where)
            other = at.setdefault((fact.band, unit), name)
            if other != name:
                self._report("9", f"ids {other} and {name} resolved to one unit.", call, where)
        self._judge_relocations(call)

    def _judge_relocations(self, call: Call) -> None:
        if self._moved:
            return
        for fact, old, new, *_ in self.facts.relocations:
            self._report(
                "9",
                f"id {fact.id} is shown at unit {new}, before at {old}, and no call in between "
                f"moves units: the two directions of the map disagree.",
                call,
                self.facts.name(fact.band, new),
            )

    def _judge_snapshot(self, call: Call, snapshot: Snapshot) -> None:
        live = self.facts.live
        for band, snap in enumerate(snapshot.bands):
            if not snap.ids:
                if snap.has_units and not snap.states:
                    return  # taken without units
                shown = 0
            else:
                shown = len(snap.ids) - snap.ids.count(0)
            if shown != live[band]:
                self._report(
                    "11",
                    f"band {snap.name} shows {shown} live ids; the calls left references to "
                    f"{live[band]}.",
                    call,
                )
            if self._shown[band] != snap.ids:
                self._judge_band(band, snap, call)
        self._judge_relocations(call)
        self._moved = False

    def _judge_band(self, band: int, snap: BandSnapshot, call: Call) -> None:
        self._shown[band] = snap.ids
        names = [name for name in snap.ids if name]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            self._report("9", f"ids {twice} stand at two units of band {snap.name}.", call)

    def _report(self, rule: str, message: str, call: Call, unit: UnitName | None = None) -> None:
        self._found.append(
            Violation(
                "mapping",
                rule,
                message,
                unit=unit,
                events=(f"call #{call.serial} {call.name}",),
                details={"call": call.serial, "step": call.step},
            )
        )


def _asked(call: Call) -> tuple[int, ...]:
    """The ids that a record (reads, then writes) or a publish named."""
    named = call.args[2:4] if call.name == "record" else call.args[1:2]
    return tuple(name for ids in named for name in ids)  # type: ignore[attr-defined]
