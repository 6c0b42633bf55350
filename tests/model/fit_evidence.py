"""One block of the evidence on feasibility and relayout: cases, judged, and what was reached.

The judged code is what an arena uses: the answers and plans from words.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
from big_case import BigCase, big_case, words_of_big
from brute_force import BruteForce, SearchTooLargeError
from cases import (
    COUNTED,
    FIXED,
    SCALE,
    Case,
    brute_bytes,
    fixed_of,
    random_case,
    random_frame,
    view_of,
)
from plan_check import check_plan
from relayout_sweep import least_bytes
from words_case import words_of

from onearena.core.answers import Answer, Blocked, Fits, Infeasible, Rung
from onearena.core.fit_words import fits_words
from onearena.core.relayout import Plan
from onearena.core.relayout_words import plan_words

SMALL, WIDE = (4, 18), (19, 28)
FRAME_CASES = 8
"""Arenas on the same grids in a row: building a geometry costs more than judging a case."""


class DifferenceError(AssertionError):
    """The product and an oracle disagree."""


def check_small(brute: BruteForce, case: Case, reached: Counter[str]) -> None:
    """Answer, rung, bytes and plan of one small arena against the search over all moves."""
    words = words_of(case)
    before = words.tobytes()
    answer, got = fits_words(words, case.demand), plan_words(words, case.demand)
    if words.tobytes() != before:
        raise DifferenceError(f"a query changed the words: {case}")
    least = brute_bytes(brute, case)
    reached["cases"] += 1
    reached["states searched"] += brute.states
    live_floats = sum(case.bands[index].count(COUNTED) > 0 for index in case.floats)
    reached["with two or more live floats"] += live_floats >= 2
    reached["with fixed units"] += bool(fixed_of(case))
    if least < 0:
        _check_refused(brute, case, answer, reached)
        if got != answer:
            raise DifferenceError(f"{case}: answer {answer}, plan {got}")
        return
    if not isinstance(answer, Fits) or not isinstance(got, Plan):
        raise DifferenceError(f"{case}: served with {least} bytes; answer {answer}, plan {got}")
    if got.copied_bytes != least * SCALE:
        raise DifferenceError(f"{case}: shortest path {least}, plan {got.copied_bytes / SCALE}")
    if answer.rung is not _lowest_rung(brute, case, least):
        raise DifferenceError(f"{case}: {answer}, lowest rung {_lowest_rung(brute, case, least)!r}")
    reached[f"fits {answer.rung.name}"] += 1
    if least or got.waits or reached["cases"] % 8 == 0:
        check_plan(view_of(case), got)
        reached["plans carried out"] += 1
    if least:
        reached["feasible only by a move"] += 1
        moved = {batch.band for batch in got.batches}
        reached["with a fixed unit in a moved band"] += any(
            case.bands[index].count(FIXED) for index in moved
        )
        reached["with a pin in a moved band"] += any(case.bands[i].count("P") for i in moved)
        reached["moves of two or more bands"] += len(moved) >= 2
        reached["two or more live floats and a move"] += live_floats >= 2


def _lowest_rung(brute: BruteForce, case: Case, least: int) -> Rung:
    if least == 0:
        return Rung.NONE
    stay = frozenset(
        (index, start)
        for index in case.floats
        for start, letter in case.bands[index].cells
        if letter in COUNTED
    )
    on_ends = brute_bytes(brute, case, fixed=fixed_of(case) | stay)
    return Rung.COMPACT if on_ends >= 0 else Rung.RELAYOUT


def _check_refused(brute: BruteForce, case: Case, answer: Answer, reached: Counter[str]) -> None:
    movable = brute_bytes(brute, case, fixed=frozenset()) >= 0 if fixed_of(case) else False
    if movable != isinstance(answer, Blocked) or isinstance(answer, Fits):
        raise DifferenceError(f"{case}: feasible if all moved: {movable}; answer {answer}")
    if isinstance(answer, Infeasible):
        reached["infeasible"] += 1
        unit = case.bands[answer.binding_band].unit
        reached["refused by less than one unit"] += answer.missing_bytes < unit * SCALE
    else:
        reached["blocked"] += 1


def check_block(seed: str, count: int, *, sizes: tuple[int, int] = SMALL) -> Counter[str]:
    """Judge ``count`` arenas of a seed; raises `DifferenceError` with the case."""
    rng, brute = random.Random(seed), BruteForce()
    reached: Counter[str] = Counter()
    for at in range(count):
        if at % FRAME_CASES == 0:
            frame = random_frame(rng, sizes=sizes)
        check_small(brute, random_case(rng, frame=frame), reached)
    return reached


def check_wide(seed: str, moves: int) -> Counter[str]:
    """Judge arenas of S to 28 until ``moves`` of them needed a move.

    Only arenas of at most 12 live or fixed units: with more, most searches leave their table.
    Those that do all the same are counted, not judged.
    """
    rng, brute = random.Random(seed), BruteForce(bits=20)
    reached: Counter[str] = Counter()
    while reached["feasible only by a move"] < moves:
        case = random_case(rng, sizes=WIDE)
        if sum(band.count(COUNTED | FIXED) for band in case.bands) > 12:
            continue
        if not isinstance(fits_words(words_of(case), case.demand), Fits):
            # (Refusals are judged on S to 18: an exhausted search of S = 28 is a long one.)
            continue
        try:
            check_small(brute, case, reached)
        except SearchTooLargeError:
            reached["search too large, not judged"] += 1
    return reached


def check_big(seed: str, count: int) -> Counter[str]:
    """Judge arenas of 1e3 to 1e5 units against the plain sweep."""
    rng = random.Random(seed)
    reached: Counter[str] = Counter()
    for _ in range(count):
        case = big_case(rng)
        _check_sweep(case, reached)
    return reached


def _check_sweep(case: BigCase, reached: Counter[str]) -> None:
    got = plan_words(words_of_big(case), case.demand)
    count = len(case.demand)
    ends = (0, count - 1)
    rungs = [tuple(rung == 2 or (rung == 1 and i in ends) for i in range(count))
             for rung in range(3)]  # fmt: skip
    least = [least_bytes(case.arena, case.demand, moves=moves) for moves in rungs]
    units = int(np.sum([len(band.cells) for band in case.arena.bands]))
    reached["cases"] += 1
    reached["cells swept"] += units
    if not isinstance(got, Plan):
        if least[-1] != -1:
            raise DifferenceError(f"{case.demand} of {units} units: sweep {least}, plan {got}")
        reached[type(got).__name__.lower()] += 1
        return
    rung = least.index(least[-1])
    if (got.copied_bytes, got.rung) != (least[-1] * SCALE, rung):
        raise DifferenceError(f"{case.demand} of {units} units: sweep {least}, plan {got}")
    reached[f"plans {got.rung.name}"] += 1
