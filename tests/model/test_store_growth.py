"""Where growth goes: the kernel's two passes against brute force over every choice of sides."""

from __future__ import annotations

import random
from collections import Counter

from slow_store import SlowStore

from onearena.core.geometry import ArenaGeometry, Placement, chain_geometry
from onearena.core.store import Store
from onearena.core.words import SPARE_IDS

SEEDS = 700


def _draw_geometry(draw: random.Random) -> ArenaGeometry:
    count = draw.choice([2, 3, 3, 4, 4, 5])
    return chain_geometry(
        16 * draw.randint(4, 40),
        [(f"band{index}", 16 * draw.randint(1, 4)) for index in range(count)],
        float_anchor_bytes=[16 * draw.randint(0, 5) for _ in range(count - 2)],
    )


def _situations(model: SlowStore, before: list[tuple[int, int]], demand: list[int]) -> set[str]:
    """What this allocation showed, for the vacuity check."""
    found = set()
    opened = 0
    for band, (low, high), want in zip(model.bands, before, demand, strict=True):
        if band.placement is not Placement.FLOATING or not want:
            continue
        if low == high:
            opened += 1
        elif band.low < low and band.high > high:
            found.add("float grew both ways")
        elif band.low < low:
            found.add("float grew down")
        elif band.high > high:
            found.add("float grew up")
    if opened:
        found.add("one float opened" if opened == 1 else "several floats opened")
    middle = before[1:-1]
    if any(low == high for low, high in middle) and any(low < high for low, high in middle):
        found.add("an empty float beside another float")
    return found


def test_growth_equals_brute_force() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        draw = random.Random(seed)
        geometry = _draw_geometry(draw)
        store, model = Store(geometry), SlowStore(geometry, 0, SPARE_IDS)
        for _ in range(5):
            demand = [draw.choice([0, 0, 1, 1, 2, 3]) for _ in geometry.bands]
            before = [(band.low, band.high) for band in model.bands]
            gaps = geometry.arena_bytes - sum(
                (high - low) * band.unit_bytes
                for band, (low, high) in zip(model.bands, before, strict=True)
            )
            needed = sum(
                units * band.unit_bytes for units, band in zip(demand, model.bands, strict=True)
            )
            given, handout = model.allocate(demand), store.allocate(demand)
            note = f"seed {seed}, {demand} on {before}"
            if given is None:
                assert handout is None, note
                seen["refused although the gaps have the bytes" if needed <= gaps else "full"] += 1
            else:
                assert handout is not None, note
                assert list(zip(handout.ids.tolist(), handout.units.tolist(), strict=True)) == (
                    given
                ), note
                seen.update(_situations(model, before, demand))
            live = sorted(model.unit_of)
            if live and draw.random() < 0.6:
                ids = draw.sample(live, draw.randint(1, len(live)))
                model.free(ids)
                store.free(ids)
            assert [(band.low_unit, band.high_unit) for band in store.bands] == [
                (band.low, band.high) for band in model.bands
            ], note
    rare = {name: count for name, count in seen.items() if count < 20}
    assert not rare, f"situations hardly reached: {rare}"
    assert len(seen) == 8, f"reached {sorted(seen)}"
