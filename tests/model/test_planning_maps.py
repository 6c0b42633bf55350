"""The maps that planning reads, equal to a recount of the unit words after every call."""

from __future__ import annotations

import random

import numpy as np
import pytest

from onearena.core import kernels
from onearena.core.geometry import chain_geometry
from onearena.core.store import Store
from onearena.core.words import (
    B_FIRST,
    B_FIXED_MAP,
    B_FREED_FIXED,
    B_LEVELS,
    B_RELEASED_MAP,
    LIVE,
    PENDING,
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_STATE_MASK,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    VACATED,
    band_header,
)


def bits(store: Store, band: int, at: int) -> list[int]:
    """Set bits by walking the map upwards, checked against a walk downwards."""
    words, head = store.words, band_header(band)
    levels, first = int(words[head + B_LEVELS]), int(words[head + B_FIRST])
    last = store.geometry.bands[band].grid.capacity_units - 1
    up, bit = [], 0
    while bit <= last and (bit := kernels.map_first(words, head + at, levels, bit)) >= 0:
        up.append(bit + first)
        bit += 1
    down, bit = [], last
    while bit >= 0 and (bit := kernels.map_last(words, head + at, levels, bit)) >= 0:
        down.append(bit + first)
        bit -= 1
    assert up == down[::-1]
    return up


def check(store: Store) -> None:
    for index, band in enumerate(store.bands):
        fixed, released, freed_fixed = [], [], 0
        for unit, word in enumerate(band.unit_words().tolist(), start=band.low_unit):
            state = word & UNIT_STATE_MASK
            transfers = word >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK
            quarantined = word & UNIT_QUARANTINED != 0
            if state in (PENDING, VACATED):
                released.append(unit)
                freed_fixed += transfers > 0 and not quarantined
            if state >= LIVE and (
                transfers or quarantined or (word & UNIT_PINNED and state == LIVE)
            ):
                fixed.append(unit)
        assert bits(store, index, B_FIXED_MAP) == fixed
        assert bits(store, index, B_RELEASED_MAP) == released
        assert store.words[band_header(index) + B_FREED_FIXED] == freed_fixed


@pytest.mark.parametrize("seed", range(6))
def test_maps_follow_every_call(seed: int) -> None:
    rng = random.Random(f"maps {seed}")
    store = Store(chain_geometry(16 * 700, [("a", 16), ("b", 32), ("c", 16)]))
    ids: list[int] = []
    uses: list[tuple[int, int]] = []
    transfers: list[tuple[int, int]] = []
    quarantined: set[tuple[int, int]] = set()
    done: dict[str, int] = {}
    for _ in range(700):
        call = rng.choice(("allocate", "free", "use", "unuse", "begin", "begin", "end", "end",
                           "pin", "quarantine", "move"))  # fmt: skip
        done[call] = done.get(call, 0) + 1
        band = rng.randrange(3)
        view = store.bands[band]
        states = view.states().tolist()
        held = [view.low_unit + at for at, state in enumerate(states) if state >= LIVE]
        live = [view.low_unit + at for at, state in enumerate(states) if state == LIVE]
        some = np.array(rng.sample(held, min(len(held), 3)), dtype=np.int64)
        if call == "allocate":
            handout = store.allocate([rng.randrange(9) for _ in range(3)])
            ids += handout.ids.tolist() if handout is not None else []
        elif call == "free" and ids:
            rng.shuffle(ids)
            store.free(np.array(ids[:6], dtype=np.int64))
            del ids[:6]
        elif call in {"use", "begin"} and some.size:
            twice = np.concatenate((some, some[:1]))
            add, log = (store.add_uses, uses) if call == "use" else (store.add_transfers, transfers)
            add(band, twice, 1)
            log += [(band, unit) for unit in twice.tolist()]
        elif call in {"unuse", "end"}:
            add, log = (
                (store.add_uses, uses) if call == "unuse" else (store.add_transfers, transfers)
            )
            rng.shuffle(log)
            for band_of, unit in log[:5]:
                add(band_of, np.array([unit], dtype=np.int64), -1)
            del log[:5]
        elif call == "pin" and live:
            store.pin(band, np.array(rng.sample(live, 1), dtype=np.int64), on=rng.random() < 0.6)
        elif call == "quarantine" and some.size:
            on = rng.random() < 0.5
            if on:
                quarantined |= {(band, unit) for unit in some.tolist()}
                store.quarantine(band, some, on=True)
            else:
                for band_of, unit in sorted(quarantined):
                    store.quarantine(band_of, np.array([unit], dtype=np.int64), on=False)
                quarantined.clear()
        elif call == "move":
            words = dict(enumerate(view.unit_words().tolist(), start=view.low_unit))
            free = [unit for unit, word in words.items() if word & UNIT_STATE_MASK == 1]
            movable = [
                unit
                for unit in live
                if not (
                    words[unit] & (UNIT_PINNED | UNIT_QUARANTINED)
                    or words[unit] >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK
                )
            ]
            if free and movable:
                one = np.array([rng.choice(movable)], dtype=np.int64)
                store.move(np.array([band]), one, np.array([rng.choice(free)]), uses=0)
        check(store)
    assert all(count > 10 for count in done.values()), done
