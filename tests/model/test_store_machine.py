"""The store against a slow model, step by step: states, ids, frontiers, bytes, refusals.

Real bytes move too: every live unit holds content derived from its id, and after each step the
content found through the id table has to be the one that was written.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from slow_store import Refused, SlowStore, SlowUnit

from onearena.core import kernels
from onearena.core.buffer import Buffer
from onearena.core.errors import MisuseError
from onearena.core.geometry import chain_geometry
from onearena.core.store import Store
from onearena.core.words import SPARE_IDS, UNIT_STATE_MASK, UnitState

STATE_NAMES = {
    UnitState.HOLE: "hole",
    UnitState.LIVE: "live",
    UnitState.PENDING: "pending",
    UnitState.VACATED: "vacated",
}
# What the whole run reached: a machine that only ever sees refusals would pass too.
REACHED: Counter[str] = Counter()
SITUATIONS = (
    "allocated",
    "no room",
    "freed",
    "freed pending",
    "free refused",
    "shared",
    "share refused",
    "retreated",
    "settled",
    "settle refused",
    "counted",
    "count refused",
    "flagged",
    "flag refused",
    "moved",
    "move refused",
    "moved beyond a frontier",
    "remapped",
    "a quarantined unit was freed",
    "a vacated unit",
    "a reused index",
)

picks = st.lists(st.integers(0, 10_000), min_size=1, max_size=3)
rarely = st.sampled_from([False, False, False, True])
band_number = st.integers(0, 4)
WALKS, WALK_STEPS = 60, 100
COUNTS = ["uses", "uses", "transfers"]
# Small, so that several calls fit before the arena is full.
demands = st.lists(st.sampled_from([0, 0, 0, 1, 1, 1, 2, 3, 7]), min_size=5, max_size=5)


PAST = {
    "free": "freed",
    "share": "shared",
    "settle": "settled",
    "count": "counted",
    "flag": "flagged",
    "move": "moved",
    "remap": "remapped",
}


class StoreMachine(RuleBasedStateMachine):
    @initialize(
        cells=st.one_of(st.integers(2, 40), st.integers(20, 60)),
        units=st.lists(st.integers(1, 5), min_size=1, max_size=5),
        anchors=st.lists(st.integers(0, 6), min_size=3, max_size=3),
        arena=st.sampled_from([0, 0, 31]),
        aged=st.booleans(),
    )
    def build(
        self, cells: int, units: list[int], anchors: list[int], arena: int, aged: bool
    ) -> None:
        geometry = chain_geometry(
            16 * cells,
            [(f"band{index}", 16 * size) for index, size in enumerate(units)],
            float_anchor_bytes=[16 * anchor for anchor in anchors[: max(0, len(units) - 2)]],
        )
        self.store = Store(geometry, arena=arena)
        self.buffer = Buffer(geometry)
        self.model = SlowStore(geometry, arena, SPARE_IDS)
        self.dead: list[int] = []
        if aged:
            self._age()
        self.epoch = self.store.epoch
        self.stamp: dict[int, int] = {}
        REACHED["five bands"] += len(units) == 5
        REACHED["one band"] += len(units) == 1

    def _age(self) -> None:
        """Hand every id but three out and back once: soon indices live their second life."""
        for band, queue in zip(self.store.bands, self.model.queue, strict=True):
            if band.grid.capacity_units == 0:
                continue
            for _ in range(len(queue) - 3):
                demand = [int(index == band.index) for index in range(len(self.store.bands))]
                handout = self.store.allocate(demand)
                assert handout is not None
                self.store.free(handout.ids)
                self.dead += handout.ids.tolist()
                self.model.generation[band.index][queue[0]] += 1
                queue.append(queue.popleft())

    # --- helpers -----------------------------------------------------------------------------

    def _both(
        self, name: str, call: Callable[[], object], slow: Callable[[], object]
    ) -> tuple[object, object] | None:
        """Run both; they refuse alike, naming the same culprit, or both answer."""
        culprit = None
        try:
            expected = slow()
        except Refused as refusal:
            culprit = refusal.culprit
        if culprit is not None:
            with pytest.raises(MisuseError) as error:
                call()
            assert error.value.unit == culprit
            assert self.store.epoch == self.epoch, "a refusal moved the epoch"
            REACHED[f"{name} refused"] += 1
            return None
        answer = call()
        assert self.store.epoch == self.epoch + 1
        self.epoch += 1
        REACHED[PAST[name]] += 1
        REACHED["retreated"] += bool(self.model.retreats)
        return answer, expected

    def _ids(self, numbers: list[int]) -> list[int]:
        live = sorted(self.model.unit_of)
        return [live[number % len(live)] for number in numbers]

    def _band(self, number: int) -> int:
        return number % len(self.model.bands)

    def _units(
        self, index: int, numbers: list[int], wanted: Callable[[SlowUnit], bool], *, wild: bool
    ) -> list[int]:
        """Units of the band that are as wanted; when wild, any near it or outside its grid."""
        band = self.model.bands[index]
        near = sorted(unit for unit, fact in band.units.items() if wanted(fact))
        if wild or not near:
            near = [*range(band.low - 1, band.high + 1), band.first - 1]
        return [near[number % len(near)] for number in numbers]

    def _check_retreats(self, found: object) -> None:
        assert [tuple(retreat) for retreat in found] == self.model.retreats  # type: ignore[attr-defined]

    # --- rules -------------------------------------------------------------------------------

    @rule(demand=demands)
    def allocate(self, demand: list[int]) -> None:
        self._allocate(demand, extend=False)

    @rule(demand=demands)
    def extend(self, demand: list[int]) -> None:
        self._allocate(demand, extend=True)

    def _allocate(self, demand: list[int], *, extend: bool) -> None:
        wanted = demand[: len(self.model.bands)]
        fits = self.store.fits_in_place(wanted)
        if extend:
            # Two entries a unit, one held: the held unit has room for one entry more.
            held, per_unit = [1] * len(wanted), [2] * len(wanted)
            entries = [2 * units + 2 for units in wanted]
            handout = self.store.extend(held, entries, entries_per_unit=per_unit)
        else:
            handout = self.store.allocate(wanted)
        given = self.model.allocate(wanted)
        assert fits == (given is not None)
        if given is None:
            assert handout is None
            assert self.store.epoch == self.epoch
            REACHED["no room"] += 1
            return
        self.epoch += 1
        REACHED["allocated"] += bool(given)
        REACHED["a reused index"] += any(vid >> 36 for vid, _ in given)
        assert handout is not None
        assert list(zip(handout.ids.tolist(), handout.units.tolist(), strict=True)) == given
        for vid, unit in given:
            self._write(self.model.unit_of[vid][0], unit, vid)

    def _write(self, band: int, unit: int, vid: int) -> None:
        self.stamp[vid] = vid % 251 + 1
        self.buffer.unit(band, unit).fill_(self.stamp[vid])

    @precondition(lambda self: self.model.unit_of)
    @rule(numbers=picks, dead=rarely)
    def free(self, numbers: list[int], dead: bool) -> None:
        ids = self._ids(numbers)
        if dead and self.dead:
            ids.append(self.dead[numbers[0] % len(self.dead)])
        both = self._both(
            "free",
            lambda: self.store.free(np.array(ids, dtype=np.int64)),
            lambda: self.model.free(ids),
        )
        if both is None:
            return
        freed, released = both
        assert list(zip(freed.ids.tolist(), freed.units.tolist(), strict=True)) == released  # type: ignore[attr-defined]
        self._check_retreats(freed.retreats)  # type: ignore[attr-defined]
        states = [self._model_state(vid // 2**26 % 32, unit) for vid, unit in released]  # type: ignore[attr-defined]
        REACHED["freed pending"] += "pending" in states
        assert freed.pending_units == states.count("pending")  # type: ignore[attr-defined]
        self.dead += [vid for vid, _ in released]  # type: ignore[attr-defined]

    def _model_state(self, band: int, unit: int) -> str:
        fact = self.model.bands[band].units.get(unit)
        return fact.state if fact else "beyond"

    @rule(vid=st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 40)), band=band_number)
    def free_nonsense(self, vid: int, band: int) -> None:
        """Ids that were never handed out; the low ones are sinks and indices not yet reached."""
        if 0 <= vid <= 40:
            vid |= band << 26 | self.model.arena << 31
        if vid in self.model.unit_of:
            return
        assert (
            self._both("free", lambda: self.store.free([vid]), lambda: self.model.free([vid]))
            is None
        )
        assert (
            self._both("share", lambda: self.store.share([vid]), lambda: self.model.share([vid]))
            is None
        )

    @precondition(lambda self: self.model.unit_of)
    @rule(numbers=picks, dead=rarely)
    def share(self, numbers: list[int], dead: bool) -> None:
        ids = self._ids(numbers)
        if dead and self.dead:
            ids.append(self.dead[numbers[0] % len(self.dead)])
        self._both("share", lambda: self.store.share(ids), lambda: self.model.share(ids))

    @rule(band=band_number, numbers=picks, what=st.sampled_from(COUNTS), wild=rarely)
    def begin(self, band: int, numbers: list[int], what: str, wild: bool) -> None:
        self._count(self._band(band), numbers, what, 1, wild=wild)

    @rule(band=band_number, numbers=picks, what=st.sampled_from(COUNTS), wild=rarely)
    def end(self, band: int, numbers: list[int], what: str, wild: bool) -> None:
        self._count(self._band(band), numbers, what, -1, wild=wild)

    def _count(self, index: int, numbers: list[int], what: str, delta: int, *, wild: bool) -> None:
        def wanted(fact: SlowUnit) -> bool:
            return fact.state != "hole" and (delta > 0 or getattr(fact, what) > 0)

        units = self._units(index, numbers, wanted, wild=wild)
        call = self.store.add_uses if what == "uses" else self.store.add_transfers
        both = self._both(
            "count",
            lambda: call(index, units, delta),
            lambda: self.model.count(index, units, what, delta),
        )
        if both is not None:
            self._check_retreats(self.store.retreats())

    @rule(band=band_number, numbers=picks, wild=rarely)
    def settle(self, band: int, numbers: list[int], wild: bool) -> None:
        index = self._band(band)
        units = self._units(
            index, numbers, lambda fact: fact.state in ("pending", "vacated"), wild=wild
        )
        if not wild:
            units = list(dict.fromkeys(units))
        both = self._both(
            "settle",
            lambda: self.store.settle(index, units),
            lambda: self.model.settle(index, units),
        )
        if both is not None:
            self._check_retreats(self.store.retreats())

    @rule(
        band=band_number,
        numbers=picks,
        what=st.sampled_from(["pinned", "quarantined", "written"]),
        on=st.booleans(),
        wild=rarely,
    )
    def flag(self, band: int, numbers: list[int], what: str, on: bool, wild: bool) -> None:
        index = self._band(band)
        units = self._units(index, numbers, lambda fact: fact.state == "live", wild=wild)
        on = on or what == "written"

        def call() -> None:
            if what == "pinned":
                self.store.pin(index, units, on=on)
            elif what == "quarantined":
                self.store.quarantine(index, units, on=on)
            else:
                self.store.mark_written(index, units)

        both = self._both("flag", call, lambda: self.model.flag(index, units, what, on=on))
        if both is not None:
            self._check_retreats(self.store.retreats())

    @precondition(lambda self: self.model.unit_of)
    @rule(
        pairs=st.lists(
            st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=3
        ),
        anywhere=rarely,
        uses=st.integers(0, 1),
        unwritten=st.booleans(),
    )
    def move(
        self, pairs: list[tuple[int, int]], anywhere: bool, uses: int, unwritten: bool
    ) -> None:
        moves = []
        for source_number, target_number in pairs:
            band, source = self.model.unit_of[self._ids([source_number])[0]]
            facts = self.model.bands[band]
            free = [unit for unit in range(facts.first, facts.end) if unit not in facts.units]
            free += facts.of_state("hole")
            targets = list(range(facts.first - 1, facts.end + 1)) if anywhere else free
            if not targets:
                return
            moves.append((band, source, targets[target_number % len(targets)]))
        bands, sources, targets = (list(column) for column in zip(*moves, strict=True))
        call = self.store.remap if unwritten else self.store.move
        keywords = {} if unwritten else {"uses": uses}
        beyond = any(target not in self.model.bands[band].units for band, _, target in moves)
        both = self._both(
            "remap" if unwritten else "move",
            lambda: call(bands, sources, targets, **keywords),
            lambda: self.model.move(moves, uses=0 if unwritten else uses, unwritten=unwritten),
        )
        if both is None:
            return
        self._check_retreats(both[0])
        REACHED["moved beyond a frontier"] += beyond
        for band in set(bands):
            rows = [k for k in range(len(bands)) if bands[k] == band]
            self.buffer.copy_units(
                band,
                np.array([sources[k] for k in rows], dtype=np.int64),
                np.array([targets[k] for k in rows], dtype=np.int64),
            )

    # --- what has to be equal ----------------------------------------------------------------

    @invariant()
    def equal(self) -> None:
        if not hasattr(self, "model"):
            return
        cursor = 0
        for band, slow in zip(self.store.bands, self.model.bands, strict=True):
            assert (band.low_unit, band.high_unit) == (slow.low, slow.high)
            facts = [slow.units[unit] for unit in range(slow.low, slow.high)]
            words = band.unit_words().tolist()
            assert [STATE_NAMES[word & UNIT_STATE_MASK] for word in words] == [
                fact.state for fact in facts
            ]
            assert band.ids().tolist() == [fact.vid for fact in facts]
            assert [
                (bool(w & 8), bool(w & 16), bool(w & 32), w >> 8 & 0xFFFF, w >> 24) for w in words
            ] == [
                (fact.pinned, fact.quarantined, fact.written, fact.transfers, fact.uses)
                for fact in facts
            ]
            for unit in range(slow.first, slow.end):
                if unit not in slow.units:
                    assert band.state(unit) is UnitState.BEYOND
            states = [fact.state for fact in facts]
            counts = [states.count(name) for name in ("live", "pending", "vacated", "hole")]
            assert counts == [
                band.live_units,
                band.pending_units,
                band.vacated_units,
                band.hole_units,
            ]
            assert band.handed_out_units == sum(
                fact.state == "live" or fact.quarantined for fact in facts
            )
            REACHED["a vacated unit"] += "vacated" in states
            REACHED["a quarantined unit was freed"] += any(
                fact.quarantined and fact.state != "live" for fact in facts
            )
            assert band.pinned_units == sum(fact.pinned for fact in facts)
            assert band.quarantined_units == sum(fact.quarantined for fact in facts)
            if band.has_units:
                assert cursor <= band.start_bytes <= band.end_bytes
                cursor = band.end_bytes
        assert cursor <= self.store.geometry.arena_bytes

    @invariant()
    def ids_and_bytes(self) -> None:
        if not hasattr(self, "model"):
            return
        ids = sorted(self.model.unit_of)
        where = [self.model.unit_of[vid] for vid in ids]
        assert self.store.resolve(ids).tolist() == [unit for _, unit in where]
        assert self.store.references(ids).tolist() == [self.model.references[v] for v in ids]
        assert not self.store.references(self.dead).any()
        for vid, (band, unit) in zip(ids, where, strict=True):
            content = self.buffer.unit(band, unit)
            assert bool((content == self.stamp[vid]).all()), f"id {vid} lost its content"
        assert self.buffer.check_guards() == ()
        assert self.buffer.check_sinks() == ()


StoreMachine.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStoreMachine = StoreMachine.TestCase

RULES = (
    *("allocate", "allocate", "allocate", "extend", "free", "free", "free", "share"),
    *("begin", "begin", "end", "end", "settle", "flag", "move", "move", "move", "free_nonsense"),
)


def _draw_call(draw: random.Random, name: str) -> dict[str, object]:
    """Arguments of one rule, spread evenly; Hypothesis prefers small ones."""
    wild = draw.random() < 0.15
    numbers = [draw.randrange(10_000) for _ in range(draw.choice([1, 1, 2, 3]))]
    band = draw.randrange(5)
    what = draw.choice(COUNTS)
    match name:
        case "allocate" | "extend":
            return {"demand": [draw.choice([0, 0, 0, 1, 1, 2, 4]) for _ in range(5)]}
        case "free" | "share":
            return {"numbers": numbers, "dead": wild}
        case "free_nonsense":
            return {
                "vid": draw.choice([draw.randrange(41), draw.randrange(-(2**63), 2**63)]),
                "band": band,
            }
        case "begin" | "end":
            return {"band": band, "numbers": numbers, "what": what, "wild": wild}
        case "settle":
            return {"band": band, "numbers": numbers, "wild": wild}
        case "flag":
            flag = draw.choice(["pinned", "quarantined", "quarantined", "written"])
            return {
                "band": band,
                "numbers": numbers,
                "what": flag,
                "on": draw.random() < 0.5,
                "wild": wild,
            }
        case _:
            pairs = [(draw.randrange(10_000), draw.randrange(10_000)) for _ in numbers]
            unwritten = draw.random() < 0.3
            return {
                "pairs": pairs,
                "anywhere": wild,
                "uses": draw.randrange(2),
                "unwritten": unwritten,
            }


def test_long_walks_reach_every_situation() -> None:
    """The same rules, driven by seeds for longer than Hypothesis would; it must not be vacuous."""
    kernels.warm_up()
    REACHED.clear()
    for seed in range(WALKS):
        draw = random.Random(seed)
        machine = StoreMachine()
        machine.build(
            cells=draw.randint(10, 50),
            units=[draw.randint(1, 3) for _ in range(draw.randint(1, 5))],
            anchors=[draw.randint(0, 6) for _ in range(3)],
            arena=draw.choice([0, 31]),
            aged=draw.random() < 0.5,
        )
        for _ in range(WALK_STEPS):
            name = draw.choice(RULES)
            arguments = _draw_call(draw, name)
            if name in ("free", "share", "move") and not machine.model.unit_of:
                continue
            getattr(machine, name)(**arguments)
            machine.equal()
            machine.ids_and_bytes()
    rare = {name: REACHED[name] for name in SITUATIONS if REACHED[name] < 20}
    rare |= {name: REACHED[name] for name in ("one band", "five bands") if REACHED[name] < 5}
    assert not rare, f"hardly reached: {rare} of {dict(REACHED)}"
