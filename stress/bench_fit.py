"""What a capacity question and a plan of moves cost: cases for `onearena bench`.

The figures to hold: a joint query at most 1 us inside a compiled caller and 3 us from Python,
for 2 to 8 bands with 0 or 8 pins, whatever the size of the pool; a plan for 16 units beside a
float at most 50 us with a million units and half of them holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns, thread_time_ns

import numpy as np

from onearena.core import kernels
from onearena.core.answers import Fits, Rung
from onearena.core.fit_words import fits_words
from onearena.core.geometry import chain_geometry
from onearena.core.relayout import Plan
from onearena.core.relayout_words import plan_words
from onearena.core.store import Store
from onearena.stress.bench_cases import Measurement

UNIT_BYTES = 64
QUERY_BANDS = (2, 3, 5, 8)
QUERY_PINS = (0, 8)
QUERIES_AT_ONCE = 1000
PLAN_UNITS = (16, 1024)
SAMPLE_NANOSECONDS = 4_000_000
HOLE_SHARE = 0.5
SEED = 21


def query_store(bands: int, band_units: int, *, pins: int) -> Store:
    """A store with `band_units` units a band, 40% of them holes, and `pins` of them pinned."""
    draw = np.random.default_rng(SEED)
    size = bands * (band_units + 64) * UNIT_BYTES
    store = Store(chain_geometry(size, [(f"band{i}", UNIT_BYTES) for i in range(bands)]))
    handout = store.allocate((band_units,) * bands)
    assert handout is not None, "the bench arena was sized to hold its bands"
    gone = draw.random((bands, band_units)) < 0.4
    gone[:, [0, -1]] = False
    ids = handout.ids.reshape(bands, band_units)
    units = handout.units.reshape(bands, band_units)
    store.free(np.ascontiguousarray(ids[gone]))
    for pin in range(pins):
        band = pin % bands
        kept = units[band][~gone[band]]
        store.pin(band, kept[[(pin + 1) * kept.size // (pins + 2)]], on=True)
    return store


def float_store(band_units: int) -> tuple[Store, tuple[int, int, int]]:
    """State, a float of `band_units` units with half of them holes, and full without room.

    Answers the store and the demand of one unit that only a move of the float can serve.
    """
    draw = np.random.default_rng(SEED)
    size = (8 + band_units + 64) * UNIT_BYTES
    store = Store(
        chain_geometry(size, [("state", UNIT_BYTES), ("window", UNIT_BYTES), ("full", UNIT_BYTES)])
    )
    handout = store.allocate((8, band_units, 64))
    assert handout is not None, "the bench arena was sized to hold its bands"
    ids = handout.ids[8 : 8 + band_units]
    gone = np.zeros(band_units, dtype=np.bool_)
    gone[1 + draw.permutation(band_units - 2)[: int(HOLE_SHARE * band_units)]] = True
    store.free(ids[gone])
    return store, (0, 0, 1)


def measure_fit(
    sizes: tuple[int, ...], *, samples: int, note: Callable[[str], None]
) -> list[Measurement]:
    """Every query and plan case at every size. `note` hears what is being measured."""
    found: list[Measurement] = []
    for band_units in sizes:
        note(f"queries and plans, {band_units:,} units a band")
        for bands in QUERY_BANDS:
            for pins in QUERY_PINS:
                found += _queries(bands, band_units, samples, pins=pins)
        found += _plans(band_units, samples)
    return found


def _queries(bands: int, band_units: int, samples: int, *, pins: int) -> Iterator[Measurement]:
    store = query_store(bands, band_units, pins=pins)
    words = store.words
    in_place = (8,) * bands
    # More than holes and gap of the low end: other bands have to move (or, pinned, cannot).
    moving = (band_units // 2, *(1 for _ in range(bands - 1)))
    for kind, demand in (("in place", in_place), ("by moves", moving)):
        demands = np.tile(np.array(demand, dtype=np.int64), (QUERIES_AT_ONCE, 1))
        answers = np.empty(QUERIES_AT_ONCE, dtype=np.int64)

        def compiled(
            demands: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = demands,
            answers: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = answers,
        ) -> None:
            kernels.fit_queries(words, demands, answers)

        def from_python(demand: tuple[int, ...] = demand) -> None:
            fits_words(words, demand)

        shape = f"{bands} bands, {pins} pins, {kind}"
        yield _measure(
            f"joint query, compiled caller, {shape}",
            compiled,
            band_units=band_units,
            samples=samples,
            holes_percent=40,
            divisor=1e3 * QUERIES_AT_ONCE,
        )
        yield _measure(
            f"joint query, from Python, {shape}",
            from_python,
            band_units=band_units,
            samples=samples,
            holes_percent=40,
            divisor=1e3,
        )


def _plans(band_units: int, samples: int) -> Iterator[Measurement]:
    store, one = float_store(band_units)
    for units in PLAN_UNITS:
        demand = tuple(units * more for more in one)
        got = plan_words(store.words, demand)
        assert isinstance(got, Plan), f"a plan for {units} units beside the float: {got}"
        assert got.rung is Rung.RELAYOUT, got.rung
        assert fits_words(store.words, demand) == Fits(Rung.RELAYOUT)

        def make(demand: tuple[int, ...] = demand) -> None:
            plan_words(store.words, demand)

        yield _measure(
            f"plan {units} units beside a float",
            make,
            band_units=band_units,
            samples=samples,
            holes_percent=50,
            divisor=1e3,
        )


def _measure(
    name: str,
    call: Callable[[], None],
    *,
    band_units: int,
    samples: int,
    holes_percent: int,
    divisor: float,
) -> Measurement:
    """Microseconds per call (or per ``divisor`` nanoseconds) over ``samples`` runs of `call`."""
    call()
    start = thread_time_ns()
    call()
    repeats = max(1, min(2000, SAMPLE_NANOSECONDS // max(1, thread_time_ns() - start)))
    spent, elapsed = [], []
    for _ in range(samples):
        start, start_elapsed = thread_time_ns(), perf_counter_ns()
        for _ in range(repeats):
            call()
        spent.append((thread_time_ns() - start) / repeats / divisor)
        elapsed.append((perf_counter_ns() - start_elapsed) / repeats / divisor)
    low, middle, high = np.percentile(spent, [10, 50, 90]).tolist()
    return Measurement(
        name=name,
        band_units=band_units,
        holes_percent=holes_percent,
        unit="us",
        median=round(middle, 3),
        p10=round(low, 3),
        p90=round(high, 3),
        elapsed_median=round(float(np.median(elapsed)), 3),
        samples=samples,
    )
