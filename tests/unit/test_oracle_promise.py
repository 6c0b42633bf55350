"""Capacity arithmetic against searches over all layouts; promise, economy and liveness oracles."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Sequence

import pytest

from onearena.core.answers import Blocked, Blocker, Fits, Infeasible, Rung
from onearena.core.rules import UseKind
from onearena.core.snapshot import UseSnapshot
from onearena.stress.oracles.capacity import Fixed, fits_around, least_cost, shortfall
from onearena.stress.oracles.script import BANDS, FULL, STATE, WINDOW, Script
from onearena.stress.sut import BandFacts

A, B, C, D = 101, 102, 103, 104


# -- arithmetic against searches -----------------------------------------------------------------


def chain(size: int, units: Sequence[int], anchor: int) -> tuple[BandFacts, ...]:
    """Bands with units of these bytes in `size` bytes; floats start their grid at `anchor`."""
    bands = []
    for index, unit in enumerate(units):
        last = index == len(units) - 1 and index > 0
        lowest = size % unit if last else 0 if index == 0 else anchor % unit
        placement = "high_end" if last else "floating" if index else "low_end"
        capacity = max(0, size - lowest) // unit
        bands.append(
            BandFacts(f"b{index}", placement, unit, 1, lowest - unit, 1, capacity, "context")
        )
    return tuple(bands)


Cells = tuple[frozenset[int], ...]


def start(band: BandFacts, unit: int) -> int:
    return band.origin_bytes + unit * band.unit_bytes


def spans_in_order(bands: Sequence[BandFacts], size: int, held: Sequence[frozenset[int]]) -> bool:
    """Whether the units of each band lie in the arena, above those of the bands before it."""
    cursor = 0
    for band, units in zip(bands, held, strict=True):
        if not units:
            continue
        if start(band, min(units)) < cursor:
            return False
        cursor = start(band, max(units) + 1)
    return cursor <= size


def moves(
    bands: Sequence[BandFacts], size: int, held: Cells, stay: Sequence[Fixed]
) -> list[tuple[Cells, int]]:
    """Every layout one single-unit move away, and which band's unit moved.

    A freed fixed unit keeps its band there, and is no place to move to.
    """
    found = []
    for index, band in enumerate(bands):
        fixed = {*stay[index].held, *stay[index].freed}
        places = set(range(band.first_unit, band.first_unit + band.capacity_units))
        for unit in sorted(held[index] - fixed):
            for target in sorted(places - held[index] - fixed):
                after = (*held[:index], held[index] - {unit} | {target}, *held[index + 1 :])
                whole = [a | set(f.freed) for a, f in zip(after, stay, strict=True)]
                if spans_in_order(bands, size, [frozenset(w) for w in whole]):
                    found.append((after, index))
    return found


def can_take(
    bands: Sequence[BandFacts], size: int, held: Cells, stay: Sequence[Fixed], demand: Sequence[int]
) -> bool:
    """Whether `demand` more units can be handed out in this layout, moving nothing."""
    choices = []
    for index, (band, count) in enumerate(zip(bands, demand, strict=True)):
        places = set(range(band.first_unit, band.first_unit + band.capacity_units))
        free = places - held[index] - set(stay[index].freed)
        choices.append(itertools.combinations(sorted(free), count))
    for taken in itertools.product(*choices):
        whole = [
            frozenset(held[index] | set(stay[index].freed) | set(more))
            for index, more in enumerate(taken)
        ]
        if spans_in_order(bands, size, whole):
            return True
    return False


def search(
    bands: Sequence[BandFacts], size: int, held: Cells, stay: Sequence[Fixed], demand: Sequence[int]
) -> int | None:
    """Least bytes of units that moved, over all sequences of single-unit moves; None: never fits.

    A unit that moved twice costs once here, as its place at the end is what counts.
    """
    seen = {held}
    queue = deque([held])
    best: int | None = None
    while queue:
        now = queue.popleft()
        if can_take(bands, size, now, stay, demand):
            cost = sum(
                len(old - new) * band.unit_bytes
                for old, new, band in zip(held, now, bands, strict=True)
            )
            best = cost if best is None else min(best, cost)
        for after, _ in moves(bands, size, now, stay):
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return best


def random_arena(
    rng: random.Random, *, with_fixed: bool
) -> tuple[int, tuple[BandFacts, ...], Cells, tuple[Fixed, ...], tuple[int, ...]]:
    size = rng.randint(4, 8)
    units = [rng.randint(1, 3) for _ in range(rng.randint(2, 3))]
    bands = chain(size, units, rng.randint(0, 2))
    while True:
        held, freed = [], []
        for band in bands:
            places = range(band.first_unit, band.first_unit + band.capacity_units)
            chosen = rng.sample(places, rng.randint(0, min(3, len(places))))
            split = rng.randint(0, 1) if with_fixed else 0
            freed.append(frozenset(chosen[:split]))
            held.append(frozenset(chosen[split:]))
        if spans_in_order(bands, size, [h | f for h, f in zip(held, freed, strict=True)]):
            break
    stay = tuple(
        Fixed(
            tuple(sorted(u for u in units_ if with_fixed and rng.random() < 0.3)),
            tuple(sorted(gone)),
        )
        for units_, gone in zip(held, freed, strict=True)
    )
    demand = tuple(rng.randint(0, 2) for _ in bands)
    return size, bands, tuple(held), stay, demand


@pytest.mark.parametrize("with_fixed", [False, True])
def test_arithmetic_equals_a_search_over_all_moves(*, with_fixed: bool) -> None:
    rng = random.Random(7 + with_fixed)
    answers = {True: 0, False: 0}
    moved = 0
    for _ in range(200):
        size, bands, held, stay, demand = random_arena(rng, with_fixed=with_fixed)
        counts = [len(units) + more for units, more in zip(held, demand, strict=True)]
        best = search(bands, size, held, stay, demand)
        fits = fits_around(bands, size, counts, stay)
        assert fits == (best is not None), (size, bands, held, stay, demand)
        assert least_cost(bands, size, counts, stay, held) == best, (size, bands, held, demand)
        if not with_fixed:
            assert (shortfall(bands, size, counts) == 0) == fits
        answers[fits] += 1
        moved += best is not None and best > 0
    assert min(answers.values()) > 10
    assert moved >= 3


def test_figure_four_counts_bytes() -> None:
    """State low, window floating, full high: missing bytes of the inequality, by hand."""
    assert shortfall(BANDS, 512, [2, 2, 8]) == 0
    assert shortfall(BANDS, 512, [2, 2, 9]) == 32
    assert shortfall(BANDS, 512, [9, 0, 0]) == 64
    assert shortfall(BANDS, 512, [0, 0, 17]) == 32


# -- promise -------------------------------------------------------------------------------------


def script(*only: str) -> Script:
    run = Script(only=frozenset(only or ("promise",)))
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    return run


def asks(run: Script, demand: tuple[int, ...], answer: object, *, name: str = "fits") -> None:
    more = () if name == "fits" else (UseKind.FORWARD, 1, "x")
    run.call(name, demand, *more, answer=answer)


FITS = Fits(Rung.NONE)


def test_exact_answers_are_accepted() -> None:
    run = script()
    asks(run, (2, 2, 4), FITS)
    asks(run, (6, 0, 0), FITS)
    asks(run, (7, 0, 0), Infeasible(0, 64))
    run.grant({C: (STATE, 3)})
    asks(run, (6, 0, 0), Infeasible(0, 64), name="allocate")
    assert run.finish() == set()


@pytest.mark.parametrize("name", ["fits", "allocate"])
@pytest.mark.parametrize(
    ("demand", "answer"),
    [
        ((6, 0, 0), Infeasible(0, 64)),
        ((7, 0, 0), Infeasible(0, 32)),
        ((7, 0, 0), Blocked((Blocker(STATE, 1, "transfer"),))),
        ((6, 0, 0), Blocked((Blocker(STATE, 1, "transfer"),))),
    ],
)
def test_wrong_answers_are_found(name: str, demand: tuple[int, ...], answer: object) -> None:
    run = script()
    asks(run, demand, answer, name=name)
    assert run.finish() == {("promise", "capacity")}


def test_a_yes_that_cannot_be_is_found() -> None:
    run = script()
    asks(run, (7, 0, 0), FITS)
    assert run.finish() == {("promise", "capacity")}


def test_pending_units_are_capacity_at_once() -> None:
    run = script()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    asks(run, (7, 0, 0), Infeasible(0, 64))
    assert run.finish() == {("promise", "capacity")}


def test_a_freed_unit_under_a_transfer_blocks() -> None:
    run = script()
    send = run.transfer(UseKind.SEND, [A])
    run.call("free", (A,))
    blocked = Blocked((Blocker(STATE, 1, "transfer"),))
    asks(run, (7, 0, 0), blocked)
    asks(run, (7, 0, 0), blocked, name="allocate")
    assert run.finish() == set()
    run.end(send)
    asks(run, (7, 0, 0), FITS)
    assert run.finish() == set()
    asks(run, (7, 0, 0), blocked)
    assert run.finish() == {("promise", "capacity")}


def test_a_quarantined_unit_stays_handed_out() -> None:
    run = script()
    receive = run.transfer(UseKind.RECEIVE, [A])
    run.end(receive, "lost")
    run.call("free", (A,))
    asks(run, (7, 0, 0), Infeasible(0, 64))
    run.call("disconnect", 1)
    asks(run, (7, 0, 0), FITS)
    assert run.finish() == set()


def test_a_pinned_unit_blocks_what_needs_it_moved() -> None:
    run = script()
    run.grant({C: (WINDOW, 7)})
    run.forward(1, [C])
    run.call("pin", (C,), True)
    # The window may not leave [192, 256): below it two more state units, above it eight full ones.
    asks(run, (1, 0, 8), FITS)
    asks(run, (0, 0, 9), Blocked((Blocker(WINDOW, 7, "pinned"),)))
    assert run.finish() == set()
    asks(run, (0, 0, 9), FITS)
    assert run.finish() == {("promise", "capacity")}


def test_a_blocker_that_may_move_is_found() -> None:
    run = script()
    run.transfer(UseKind.SEND, [A])
    run.call("free", (A,))
    asks(run, (7, 0, 0), Blocked((Blocker(STATE, 2, "transfer"),)))
    assert run.finish() == {("promise", "capacity")}


# -- economy -------------------------------------------------------------------------------------


def packed() -> Script:
    """State at 1 and 2, window at 7 (bytes 192 to 256), full up to byte 288."""
    run = script("economy")
    run.grant({C: (WINDOW, 7)} | {200 + i: (FULL, 20 - i) for i in range(7)})
    run.forward(1, writes=list(run.units))
    run.snapshot({STATE: (1, "LL"), WINDOW: (7, "L"), FULL: (14, "L" * 7)})
    return run


def test_nothing_moves_that_need_not() -> None:
    run = packed()
    run.grant({D: (STATE, 3)})
    run.snapshot({STATE: (1, "LLL"), WINDOW: (7, "L"), FULL: (14, "L" * 7)})
    assert run.finish() == set()


def test_a_move_that_was_not_needed_is_found() -> None:
    run = packed()
    run.units[C] = (WINDOW, 6)
    run.grant({D: (FULL, 13)})
    run.snapshot({STATE: (1, "LL"), WINDOW: (6, "L"), FULL: (13, "L" * 8)})
    assert run.finish() == {("economy", "capacity")}


def test_a_move_that_was_needed_is_accepted() -> None:
    run = packed()
    run.units[C] = (WINDOW, 6)
    run.grant({300 + i: (FULL, 13 - i) for i in range(3)})
    run.snapshot({STATE: (1, "LL"), WINDOW: (6, "L"), FULL: (11, "L" * 10)})
    assert run.finish() == set()


def test_more_moves_than_the_cheapest_plan_are_found() -> None:
    run = packed()
    run.units[C] = (WINDOW, 6)
    run.units[A], run.units[B] = (STATE, 2), (STATE, 1)
    run.grant({300 + i: (FULL, 13 - i) for i in range(3)})
    run.snapshot({STATE: (1, "LL"), WINDOW: (6, "L"), FULL: (11, "L" * 10)})
    assert run.finish() == {("economy", "capacity")}


@pytest.mark.parametrize(
    ("demand", "rung"),
    [((1, 0, 0), Rung.NONE), ((0, 0, 1), Rung.NONE), ((0, 0, 3), Rung.RELAYOUT)],
)
def test_the_lowest_rung_is_named(demand: tuple[int, ...], rung: Rung) -> None:
    for said in Rung:
        run = packed()
        asks(run, demand, Fits(said))
        assert run.finish() == (set() if said is rung else {("economy", "capacity")})


def test_compaction_of_an_end_band_is_the_middle_rung() -> None:
    run = script("economy")
    run.grant({C: (WINDOW, 7), D: (STATE, 3)})
    run.call("free", (A, B))
    run.snapshot({STATE: (1, "..L"), WINDOW: (7, "L")})
    asks(run, (0, 2, 8), Fits(Rung.COMPACT))
    assert run.finish() == set()
    asks(run, (0, 2, 8), Fits(Rung.RELAYOUT))
    assert run.finish() == {("economy", "capacity")}


@pytest.mark.parametrize(("budget", "broken"), [(1, False), (0, True)])
def test_compaction_keeps_its_budget(budget: int, *, broken: bool) -> None:
    run = packed()
    run.units[C] = (WINDOW, 6)
    run.call("compact", budget, answer=1)
    run.snapshot({STATE: (1, "LL"), WINDOW: (6, "L"), FULL: (14, "L" * 7)})
    assert run.finish() == ({("economy", "capacity")} if broken else set())


# -- liveness ------------------------------------------------------------------------------------


def drained() -> Script:
    run = script("liveness")
    forward = run.forward(1, [A])
    run.call("free", (A, B))
    run.retire(forward)
    return run


def test_a_drained_run_leaves_nothing() -> None:
    run = drained()
    run.snapshot({STATE: (1, "..")})
    assert run.finish() == set()


@pytest.mark.parametrize("states", ["P.", "V.", "L."])
def test_what_is_left_is_found(states: str) -> None:
    run = drained()
    run.snapshot({STATE: (1, states)})
    assert run.finish() == {("liveness", "1")}


def test_a_fence_left_is_found() -> None:
    run = drained()
    run.snapshot({}, fences=[(0, 64)])
    assert run.finish() == {("liveness", "5")}


def test_a_use_left_is_found() -> None:
    run = drained()
    left = run.snapshot({})
    run.call(
        "snapshot",
        True,
        answer=type(left)(
            left.epoch, 512, left.bands, left.gaps, (), (UseSnapshot(1, 0, 1, 1, processed=False),)
        ),
    )
    assert run.finish() == {("liveness", "8")}


def test_a_run_cut_short_says_nothing() -> None:
    run = script("liveness")
    run.forward(1, [A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    assert run.finish() == set()
