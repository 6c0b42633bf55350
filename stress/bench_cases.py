"""What `onearena bench` measures: bands of a given size, with and without holes.

A band "of N units" has N units between its frontiers, 40% of them holes in the "holes" cases, and
room to grow beyond. Every case goes through the public methods of `Store`, validation included.

Figures are processor time of the calling thread: no call sleeps, so on a quiet machine that is
also the elapsed time, and on a busy one it leaves out what other processes took. The elapsed
median stands beside it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns

import numpy as np
from numpy.typing import NDArray

from onearena.core.geometry import ArenaGeometry, chain_geometry
from onearena.core.store import Store

UNIT_BYTES = 64
HOLE_SHARE = 0.4
CYCLE_UNITS = (1, 64, 4096)
ROOM_UNITS = 2 * 4096
BULK_UNITS_MAX = 500_000
MOVE_PAIRS_MAX = 4096
SAMPLE_SECONDS = 0.004
SEED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One case. ``p10``, ``median``, ``p90`` over the samples, in ``unit`` ("us" or "ns/unit").

    ``elapsed_median`` is by the wall clock, the others by the thread's processor time.
    """

    name: str
    band_units: int
    holes_percent: int
    unit: str
    median: float
    p10: float
    p90: float
    elapsed_median: float
    samples: int


def _geometry(bands: int, band_units: int) -> ArenaGeometry:
    size = bands * band_units + 2 * bands * ROOM_UNITS
    return chain_geometry(
        size * UNIT_BYTES, [(f"band{index}", UNIT_BYTES) for index in range(bands)]
    )


def _filled(bands: int, band_units: int, *, holes: bool) -> tuple[Store, list[NDArray[np.int64]]]:
    """A store whose bands have `band_units` units each, and the live ids per band.

    The outermost units stay live, so a band keeps its size.
    """
    draw = np.random.default_rng(SEED)
    store = Store(_geometry(bands, band_units))
    # Jointly: one after the other, a float would open in the middle of the last band's room.
    handout = store.allocate((band_units,) * bands)
    assert handout is not None, "the bench arena was sized to hold its bands"
    live = []
    for ids in handout.ids.reshape(bands, band_units):
        if holes:
            # Units were handed out from one frontier to the other: keep both ends.
            chosen = 1 + draw.permutation(band_units - 2)[: int(HOLE_SHARE * band_units)]
            gone = np.zeros(band_units, dtype=np.bool_)
            gone[chosen] = True
            store.free(ids[gone])
            live.append(ids[~gone])
        else:
            live.append(ids)
    return store, live


Times = list[tuple[float, float]]
"""Per sample: nanoseconds of processor time, and elapsed."""


class _Stopwatch:
    """Both clocks, from construction to `spent`."""

    __slots__ = ("_elapsed", "_thread")

    def __init__(self) -> None:
        self._elapsed = perf_counter_ns()
        self._thread = thread_time_ns()

    def spent(self, divisor: int) -> tuple[float, float]:
        thread = thread_time_ns() - self._thread
        return thread / divisor, (perf_counter_ns() - self._elapsed) / divisor


def take_times(cycles: Sequence[Callable[[], None]], samples: int) -> list[Times]:
    """Nanoseconds per call of each cycle; one pair a sample of about `SAMPLE_SECONDS`.

    Cycles take turns sample by sample: a machine that slows down for a second slows all of them,
    and their ratios stay what they are.
    """
    repeats = []
    for cycle in cycles:
        cycle()
        watch = _Stopwatch()
        cycle()
        once = max(1.0, watch.spent(1)[0])
        repeats.append(max(1, min(2000, int(SAMPLE_SECONDS * 1e9 / once))))
        for _ in range(2 * repeats[-1]):
            cycle()
    times: list[Times] = [[] for _ in cycles]
    for _ in range(samples):
        for found, cycle, repeat in zip(times, cycles, repeats, strict=True):
            watch = _Stopwatch()
            for _ in range(repeat):
                cycle()
            found.append(watch.spent(repeat))
    return times


def measurement(
    name: str,
    times: Times,
    *,
    band_units: int,
    holes_percent: int,
    divisor: float,
    unit: str = "us",
) -> Measurement:
    """Percentiles of `times`, each nanosecond figure divided by `divisor` to give `unit`."""
    low, middle, high = np.percentile([time[0] for time in times], [10, 50, 90]).tolist()
    elapsed = float(np.median([time[1] for time in times]))
    return Measurement(
        name=name,
        band_units=band_units,
        holes_percent=holes_percent,
        unit=unit,
        median=round(middle / divisor, 3),
        p10=round(low / divisor, 3),
        p90=round(high / divisor, 3),
        elapsed_median=round(elapsed / divisor, 3),
        samples=len(times),
    )


def sample(
    name: str,
    cycle: Callable[[], None],
    *,
    band_units: int,
    holes_percent: int,
    samples: int,
    divisor: float,
    unit: str = "us",
) -> Measurement:
    """Call `cycle` again and again, and measure it."""
    (times,) = take_times([cycle], samples)
    return measurement(
        name,
        times,
        band_units=band_units,
        holes_percent=holes_percent,
        divisor=divisor,
        unit=unit,
    )


def _percent(*, holes: bool) -> int:
    return round(100 * HOLE_SHARE) if holes else 0


def _cycle(store: Store, demand: tuple[int, ...]) -> Callable[[], None]:
    def cycle() -> None:
        handout = store.allocate(demand)
        assert handout is not None, "the bench arena was sized to hold this demand"
        store.free(handout.ids)

    return cycle


def _cycles(
    bands: int, sizes: Sequence[int], samples: int, *, holes: bool
) -> Iterator[Measurement]:
    stores = [_filled(bands, band_units, holes=holes)[0] for band_units in sizes]
    kind = "one band" if bands == 1 else f"{bands} bands"
    for units in CYCLE_UNITS:
        cycles = [_cycle(store, (units,) * bands) for store in stores]
        for band_units, times in zip(sizes, take_times(cycles, samples), strict=True):
            yield measurement(
                f"allocate+free {units} units, {kind}",
                times,
                band_units=band_units,
                holes_percent=_percent(holes=holes),
                divisor=1e3,
            )


def _bulk_free(
    band_units: int, samples: int, *, holes: bool, shuffled: bool
) -> Iterator[Measurement]:
    """Free every live unit of a band in one call (at most `BULK_UNITS_MAX`); refill, repeat."""
    store, live = _filled(1, band_units, holes=holes)
    ids = live[0]
    count = min(BULK_UNITS_MAX, ids.size)
    draw = np.random.default_rng(SEED)
    times = []
    for number in range(samples + 1):
        batch = ids[ids.size - count :]
        order = draw.permutation(count) if shuffled else np.arange(count)
        batch = np.ascontiguousarray(batch[order])
        watch = _Stopwatch()
        store.free(batch)
        spent = watch.spent(count)
        if number:  # the first one pages the tables in
            times.append(spent)
        if holes:
            # A new band: refilling this one would fill its holes first.
            store, live = _filled(1, band_units, holes=True)
            ids = live[0]
        else:
            handout = store.allocate((count,))
            assert handout is not None
            ids = np.concatenate((ids[: ids.size - count], handout.ids))
    name = "bulk free, shuffled ids" if shuffled else "bulk free"
    yield measurement(
        name,
        times,
        band_units=band_units,
        holes_percent=_percent(holes=holes),
        divisor=1,
        unit="ns/unit",
    )


def _moves(band_units: int, samples: int, *, holes: bool) -> Iterator[Measurement]:
    """Move a batch of units there and back: into holes, or beyond the frontier without any."""
    store, live = _filled(1, band_units, holes=holes)
    band = store.bands[0]
    if holes:
        states = band.states()
        free = band.low_unit + np.flatnonzero(states == 1)
        count = min(MOVE_PAIRS_MAX, free.size // 2)
        targets = np.ascontiguousarray(free[:count])
    else:
        count = min(MOVE_PAIRS_MAX, band_units // 2)
        targets = band.high_unit + np.arange(count, dtype=np.int64)
    sources = store.resolve(np.ascontiguousarray(live[0][-count - 1 : -1]))
    bands = np.zeros(count, dtype=np.int64)

    def there_and_back() -> None:
        store.move(bands, sources, targets)
        store.move(bands, targets, sources)

    yield sample(
        "move bookkeeping, batch",
        there_and_back,
        band_units=band_units,
        holes_percent=_percent(holes=holes),
        samples=samples,
        divisor=2 * count,
        unit="ns/unit",
    )


def measure_all(
    sizes: tuple[int, ...], *, samples: int, note: Callable[[str], None]
) -> list[Measurement]:
    """Every case at every size. `note` hears what is being measured."""
    found: list[Measurement] = []
    slow = max(3, samples // 3)
    for holes in (False, True):
        gc.collect()
        # A collection in the middle of a sample would be charged to the allocator.
        gc.disable()
        try:
            for bands in (1, 3):
                note(f"allocate and free, {bands} bands, {_percent(holes=holes)}% holes")
                found += _cycles(bands, sizes, samples, holes=holes)
            for band_units in sizes:
                note(f"{band_units:,} units a band, {_percent(holes=holes)}% holes")
                for shuffled in (False, True):
                    found += _bulk_free(band_units, slow, holes=holes, shuffled=shuffled)
                found += _moves(band_units, samples, holes=holes)
        finally:
            gc.enable()
    return found
