"""The recount oracle: what a snapshot says beyond sums equals a recount of the calls.

Conservation holds a snapshot against itself; these numbers it cannot check:

* units under a transfer, pinned, quarantined: as many as the calls left (section 5);
* slack: the bytes that no layout of today's units can use (section 4);
* open uses: each that was launched and has not ended, with its units, and whether it is processed;
* host units: `reserve_host` refuses only what held units, and freed ones under a use, leave no room
  for (a freed unit is reusable once its uses are over).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.capacity import HIGH_END, LOW_END
from onearena.stress.oracles.fact_types import CallFacts
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import BandFacts

COUNTS: Final = ("transfer_units", "pinned_units", "quarantined_units")


class RecountOracle:
    """Feed `CallFacts`. Cost: of a snapshot, what is open; of a refused reservation, open uses."""

    name = "recount"
    calls = frozenset(("snapshot", "reserve_host"))

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._host_band: dict[int, int] = {}

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        if call.name == "reserve_host":
            return self._judge_reserved(facts)
        if call.name != "snapshot" or not isinstance(call.answer, Snapshot):
            return NO_VIOLATIONS
        return (
            *self._judge_counts(call.answer),
            *self._judge_slack(call.answer),
            *self._judge_uses(call.answer),
        )

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _judge_counts(self, now: Snapshot) -> tuple[Violation, ...]:
        facts = self.facts
        under = {place for use in facts.transfers.values() for place in use.units}
        pinned = [0] * len(now.bands)
        for name in facts.pinned:
            fact = facts.ids.get(name)
            if fact is not None:
                pinned[fact.band] += 1
        lost = [band for band, _ in facts.quarantined()]
        found = []
        for index, band in enumerate(now.bands):
            counts = (
                sum(place[0] == index for place in under),
                pinned[index],
                lost.count(index),
            )
            for field, count in zip(COUNTS, counts, strict=True):
                said = getattr(band, field)
                if said != count:
                    text = f"{band.name}: {field} is {said}, the calls left {count}."
                    extent = ByteRange("arena", band.start_bytes, band.end_bytes)
                    found.append(Violation(self.name, "conservation", text, bytes=extent))
        return tuple(found)

    def _judge_slack(self, now: Snapshot) -> tuple[Violation, ...]:
        slack = slack_bytes(self.facts.bands, now.arena_bytes, self.facts.handed_out())
        if now.slack_bytes == slack:
            return NO_VIOLATIONS
        text = f"slack is {now.slack_bytes} bytes, a recount says {slack}."
        extent = ByteRange("arena", 0, now.arena_bytes)
        return (Violation(self.name, "capacity", text, bytes=extent),)

    def _judge_uses(self, now: Snapshot) -> tuple[Violation, ...]:
        shown = {use.serial: use for use in now.uses}
        found = []
        for serial, fact in self.facts.uses.items():
            if fact.op < 0:
                continue  # recorded, and not launched yet
            use = shown.get(serial)
            if use is None:
                text = f"use {serial} has not ended, and is not shown."
            elif use.processed != fact.processed:
                text = f"use {serial} is shown as processed={use.processed}, told was otherwise."
            elif sorted((*use.reads, *use.writes)) != sorted(fact.units):
                text = f"use {serial} is shown with other units than it was recorded with."
            else:
                continue
            unit = self.facts.name(*fact.units[0]) if fact.units else UnitName("use", serial)
            found.append(Violation(self.name, "8", text, unit=unit))
        return tuple(found)

    def _judge_reserved(self, facts: CallFacts) -> tuple[Violation, ...]:
        band, count = facts.call.args
        assert isinstance(band, int)
        assert isinstance(count, int)
        answer = facts.call.answer
        for name in answer if isinstance(answer, tuple) else ():
            self._host_band[name] = band
        if answer != () or not count or facts.refused:
            return NO_VIOLATIONS
        held = sum(other == band for other in self.facts.host_ids.values())
        busy = {
            start
            for fact in self.facts.uses.values()
            for name, start, _ in (*fact.use.host_reads, *fact.use.host_writes)
            if self._host_band.get(name) == band
        }
        free = self.facts.plan.host_units[band] - held - len(busy)
        if free < count:
            return NO_VIOLATIONS
        text = f"{count} host units were refused; at least {free} are held and used by nobody."
        unit = UnitName(f"host {self.facts.bands[band].name}", free)
        return (
            Violation(
                self.name, "2", text, unit=unit, events=(f"call #{facts.call.serial} reserve_host",)
            ),
        )


def slack_bytes(bands: Sequence[BandFacts], arena_bytes: int, counts: Sequence[int]) -> int:
    """Bytes no layout of `counts` can use: what floats lose to their grids when all are packed from
    the left, and the part of the gap then left that is smaller than any unit.
    """
    cursor = lost = 0
    high = arena_bytes
    for band, count in zip(bands, counts, strict=True):
        if band.placement == HIGH_END:
            high -= count * band.unit_bytes
            continue
        if count and band.placement != LOW_END:
            ahead = (band.origin_bytes - cursor) % band.unit_bytes
            lost += ahead
            cursor += ahead
        cursor += count * band.unit_bytes
    return lost + max(0, high - cursor) % min(band.unit_bytes for band in bands)
