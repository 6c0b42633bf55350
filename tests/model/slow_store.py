"""A slow, obvious model of the units and ids of one arena: plain sets and dicts.

Written from the rules (states, frontiers, ids, what is refused), never from the kernels. Where a
call has a choice the policy is stated as "the first choice, in order of preference, after which
the rest can still be placed", and tried by brute force.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from fractions import Fraction

from onearena.core.geometry import ArenaGeometry, Placement

STEP = 16  # every frontier lies on a multiple of this


class Refused(Exception):  # noqa: N818
    """The call breaks a rule; `culprit` is the id or unit the error has to name."""

    def __init__(self, culprit: int) -> None:
        super().__init__(culprit)
        self.culprit = culprit


@dataclass
class SlowUnit:
    state: str  # hole, live, pending, vacated
    vid: int = 0
    uses: int = 0
    transfers: int = 0
    pinned: bool = False
    quarantined: bool = False
    written: bool = False

    @property
    def blocked(self) -> bool:
        return self.uses > 0 or self.transfers > 0 or self.quarantined


@dataclass
class SlowBand:
    index: int
    unit_bytes: int
    origin: int
    first: int
    end: int
    placement: Placement
    units: dict[int, SlowUnit] = field(default_factory=dict)  # contiguous while not empty

    def start(self, unit: int) -> int:
        return self.origin + unit * self.unit_bytes

    @property
    def low(self) -> int:
        if self.units:
            return min(self.units)
        return {
            Placement.LOW_END: self.first,
            Placement.FLOATING: 0,
            Placement.HIGH_END: self.end,
        }[self.placement]

    @property
    def high(self) -> int:
        return max(self.units) + 1 if self.units else self.low

    def of_state(self, state: str) -> list[int]:
        return sorted(unit for unit, fact in self.units.items() if fact.state == state)


class SlowStore:
    def __init__(self, geometry: ArenaGeometry, arena: int, spare_ids: int) -> None:
        self.size = geometry.arena_bytes
        self.arena = arena
        self.bands = [
            SlowBand(
                index,
                band.grid.unit_bytes,
                band.grid.origin_bytes,
                band.grid.first_unit,
                band.grid.first_unit + band.grid.capacity_units,
                band.placement,
            )
            for index, band in enumerate(geometry.bands)
        ]
        self.queue = [deque(range(1, band.end - band.first + spare_ids + 1)) for band in self.bands]
        self.generation: list[Counter[int]] = [Counter() for _ in self.bands]
        self.references: Counter[int] = Counter()
        self.unit_of: dict[int, tuple[int, int]] = {}
        self.retreats: list[tuple[int, int, int]] = []

    # --- where growth goes -------------------------------------------------------------------

    def _choices(self, band: SlowBand, grow: int, edge: int) -> list[range]:
        """Every interval of units the band may have after growing, not below address `edge`."""
        if not band.units and grow == 0:
            return []
        if band.placement is Placement.LOW_END:
            spans = [range(band.first, band.high + grow)]
        elif band.placement is Placement.HIGH_END:
            spans = [range(band.low - grow, band.end)]
        elif band.units:
            spans = [range(band.low - below, band.high + grow - below) for below in range(grow + 1)]
        else:
            spans = [range(low, low + grow) for low in range(band.first, band.end - grow + 1)]
        return [
            span
            for span in spans
            if span.start >= band.first and span.stop <= band.end and band.start(span.start) >= edge
        ]

    def _can_place(self, grows: list[int], index: int, edge: int) -> bool:
        if edge > self.size:
            return False
        if index == len(self.bands):
            return True
        band = self.bands[index]
        if not band.units and grows[index] == 0:
            return self._can_place(grows, index + 1, edge)
        return any(
            self._can_place(grows, index + 1, band.start(span.stop))
            for span in self._choices(band, grows[index], edge)
        )

    def _preference(self, band: SlowBand, grows: list[int], edge: int, span: range) -> object:
        """Smaller is preferred. Only floats that grow have a choice."""
        grow = grows[band.index]
        limit = max(
            address
            for address in range(0, self.size + 1, STEP)
            if self._can_place(grows, band.index + 1, address)
        )
        if band.units:
            low_room = sum(1 for unit in range(band.first, band.low) if band.start(unit) >= edge)
            high_room = sum(
                1 for unit in range(band.high, band.end) if band.start(unit + 1) <= limit
            )
            below = band.low - span.start
            return -below if low_room >= high_room else below
        # An empty float: the free bytes are shared evenly by the gaps left by all floats that
        # open here; nearest to the even share, and of two as near the lower one.
        openings = 1
        for other in self.bands[band.index + 1 : -1]:
            if other.units:
                break
            openings += grows[other.index] > 0
        free = limit - edge - grow * band.unit_bytes
        share = Fraction(free, openings + 1)
        return abs(band.start(span.start) - edge - share), span.start

    def _place(self, grows: list[int]) -> list[range] | None:
        if not self._can_place(grows, 0, 0):
            return None
        spans = []
        edge = 0
        for band, grow in zip(self.bands, grows, strict=True):
            options = [
                span
                for span in self._choices(band, grow, edge)
                if self._can_place(grows, band.index + 1, band.start(span.stop))
            ]
            if not options:
                spans.append(range(0))
                continue
            best = min(options, key=lambda span: self._preference(band, grows, edge, span))
            spans.append(best)
            edge = band.start(best.stop)
        return spans

    # --- calls -------------------------------------------------------------------------------

    def allocate(self, demand: list[int]) -> list[tuple[int, int]] | None:
        """(id, unit) in the order handed out, or None."""
        holes = [band.of_state("hole") for band in self.bands]
        grows = [max(0, want - len(have)) for want, have in zip(demand, holes, strict=True)]
        spans = self._place(grows)
        if spans is None:
            return None
        given = []
        for band, want, have, span in zip(self.bands, demand, holes, spans, strict=True):
            taken = have[::-1][:want] if band.placement is Placement.HIGH_END else have[:want]
            if want > len(have):
                low = band.low if band.units else span.start
                high = band.high if band.units else span.start
                if band.placement is Placement.HIGH_END:
                    low, high = band.low, band.high
                taken += range(low - 1, span.start - 1, -1)
                taken += range(high, span.stop)
            for unit in taken:
                index = self.queue[band.index].popleft()
                generation = self.generation[band.index][index]
                vid = ((generation * 32 + self.arena) * 32 + band.index) * 2**26 + index
                band.units[unit] = SlowUnit("live", vid)
                self.references[vid] = 1
                self.unit_of[vid] = (band.index, unit)
                given.append((vid, unit))
        return given

    def _check_ids(self, ids: list[int], *, drops: bool) -> None:
        named: Counter[int] = Counter()
        for vid in ids:
            named[vid] += drops
            if self.references[vid] == 0 or named[vid] > self.references[vid]:
                raise Refused(vid)

    def free(self, ids: list[int]) -> list[tuple[int, int]]:
        """(id, unit) of released ids, in order."""
        self._check_ids(ids, drops=True)
        for vid in ids:
            self.references[vid] -= 1
        released = []
        for vid in dict.fromkeys(ids):
            if self.references[vid]:
                continue
            index, unit = self.unit_of.pop(vid)
            self.generation[index][vid % 2**26] += 1
            self.queue[index].append(vid % 2**26)
            fact = self.bands[index].units[unit]
            fact.state, fact.vid, fact.pinned = "pending", 0, False
            released.append((vid, unit))
        self._tidy()
        return released

    def share(self, ids: list[int]) -> None:
        self._check_ids(ids, drops=False)
        self.references.update(ids)

    def _tidy(self) -> None:
        """Unblocked released units are holes; outermost holes leave the band."""
        self.retreats = []
        for band in self.bands:
            for unit, fact in band.units.items():
                if fact.state in ("pending", "vacated") and not fact.blocked:
                    band.units[unit] = SlowUnit("hole")
            used = [unit for unit, fact in band.units.items() if fact.state != "hole"]
            low, high = band.low, band.high
            keep_low = min(used, default=high) if band.placement is not Placement.LOW_END else low
            keep_high = (
                max(used, default=low - 1) + 1 if band.placement is not Placement.HIGH_END else high
            )
            if not used:
                if low < high:
                    self.retreats.append((band.index, low, high))
                band.units.clear()
                continue
            if low < keep_low:
                self.retreats.append((band.index, low, keep_low))
            if keep_high < high:
                self.retreats.append((band.index, keep_high, high))
            for unit in [*range(low, keep_low), *range(keep_high, high)]:
                del band.units[unit]

    def count(self, index: int, units: list[int], what: str, delta: int) -> None:
        facts = self.bands[index].units
        total: Counter[int] = Counter()
        for unit in units:
            total[unit] += 1
            fact = facts.get(unit)
            if fact is None or fact.state == "hole":
                raise Refused(unit)
            if delta < 0 and getattr(fact, what) < total[unit]:
                raise Refused(unit)
        for unit in units:
            setattr(facts[unit], what, getattr(facts[unit], what) + delta)
        self._tidy()

    def settle(self, index: int, units: list[int]) -> None:
        facts = self.bands[index].units
        seen = set()
        for unit in units:
            fact = facts.get(unit)
            if (
                fact is None
                or fact.state not in ("pending", "vacated")
                or fact.transfers
                or fact.quarantined
                or unit in seen
            ):
                raise Refused(unit)
            seen.add(unit)
        for unit in units:
            facts[unit].uses = 0
        self._tidy()

    def flag(self, index: int, units: list[int], what: str, *, on: bool) -> None:
        facts = self.bands[index].units
        for unit in units:
            fact = facts.get(unit)
            if fact is None or fact.state == "hole":
                raise Refused(unit)
            if what == "pinned" and on and fact.state != "live":
                raise Refused(unit)
        for unit in units:
            setattr(facts[unit], what, on)
        self._tidy()

    def move(self, moves: list[tuple[int, int, int]], *, uses: int, unwritten: bool) -> None:
        named: set[tuple[int, int]] = set()
        spans = {band.index: (band.low, band.high) for band in self.bands if band.units}
        for index, source, target in moves:
            band = self.bands[index]
            fact = band.units.get(source)
            if (
                fact is None
                or fact.state != "live"
                or fact.transfers
                or fact.quarantined
                or fact.pinned
                or (unwritten and fact.written)
                or (index, source) in named
            ):
                raise Refused(source)
            if (
                not band.first <= target < band.end
                or (target in band.units and band.units[target].state != "hole")
                or (index, target) in named
            ):
                raise Refused(target)
            named |= {(index, source), (index, target)}
            low, high = spans[index]
            spans[index] = (min(low, target), max(high, target + 1))
        self._check_spans(moves, spans)
        for index, source, target in moves:
            band = self.bands[index]
            low, high = spans[index]
            for unit in range(low, high):
                band.units.setdefault(unit, SlowUnit("hole"))
            old = band.units[source]
            band.units[target] = SlowUnit("live", old.vid, uses=uses, written=old.written)
            self.unit_of[old.vid] = (index, target)
            old.state, old.vid = "vacated", 0
            old.uses += uses
        self._tidy()

    def _check_spans(
        self, moves: list[tuple[int, int, int]], spans: dict[int, tuple[int, int]]
    ) -> None:
        for index, _, target in moves:
            band = self.bands[index]
            if target in band.units:
                continue
            for other, (low, high) in spans.items():
                its = self.bands[other]
                if other < index and its.start(high) > band.start(target):
                    raise Refused(target)
                if other > index and its.start(low) < band.start(target + 1):
                    raise Refused(target)
