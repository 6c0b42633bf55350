"""Brute force over all single-unit moves: the oracle of feasibility and of the cheapest relayout.

Written from the rules of the arena, not from the code it checks. It knows nothing of intervals,
frontiers or retreats, only this:

* Units lie on their band's grid inside [0, S), do not overlap, and keep the chain order: every
  unit of a band lies above every unit of the bands before it.
* One move takes one unit that may move to any free cell of its own grid, chain order kept, and
  costs the unit's bytes.
* A demand is served where its units can all be placed in free cells, chain order kept. The bands
  place in chain order, each in its lowest free cells: any other choice reaches at least as high.

Because bands keep the chain order and their counts never change, the set of start bytes alone
names a state: the lowest ``counts[0]`` units belong to band 0, the next ``counts[1]`` to band 1
and so on. The search is Dijkstra's, with one bucket per cost modulo 8 (a move costs 1 to 7).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MAX_BYTES = 28
BUCKETS = 8
COST_LIMIT = 1 << 12
NOT_SERVED = -1
TOO_LARGE = -2


class SearchTooLargeError(Exception):
    """The states of a case leave the table: no verdict."""


class BruteForce:
    """The search with its memory: a table of states (``2 ** bits``) and a pool of queue entries."""

    def __init__(self, *, bits: int = 18) -> None:
        self._bits = bits
        self._keys = np.zeros(1 << bits, dtype=np.int32)
        # Search number * COST_LIMIT + cost: what earlier searches left is smaller than any of now.
        self._costs = np.zeros(1 << bits, dtype=np.int64)
        self._entries = np.zeros((4 << bits, 3), dtype=np.int32)
        self._search = 0
        self.states = 0

    def least_bytes(
        self,
        size: int,
        units: Ints,
        anchors: Ints,
        counts: Ints,
        demand: Ints,
        occupied: int,
        fixed: int,
    ) -> int:
        """Least bytes of moves after which the demand can be placed; -1: no moves achieve it.

        ``units`` and ``anchors`` (any point of the grid) are per band in bytes; bit b of
        ``occupied`` and ``fixed`` means that a unit, a fixed unit, starts at byte b.
        """
        assert size <= MAX_BYTES
        assert max(units) < BUCKETS
        self._search += 1
        cost, self.states = _search(
            size,
            units,
            anchors,
            counts,
            demand,
            occupied,
            fixed,
            size <= self._bits,
            self._keys,
            self._costs,
            self._entries,
            self._search * COST_LIMIT,
        )
        if cost == TOO_LARGE:
            raise SearchTooLargeError(f"{self.states} states: {size} {units} {anchors}")
        return int(cost)


@njit(cache=True)
def _served(size, units, anchors, demand, starts, labels, count, taken):
    """Whether the demand can be placed among the units that lie at ``starts``."""
    reached = 0
    unit = 0
    for band in range(len(units)):
        length = units[band]
        first = unit
        while unit < count and labels[unit] == band:
            unit += 1
        ceiling = size if unit == count else starts[unit]
        end = reached
        if unit > first:
            end = starts[unit - 1] + length
        cell = reached + (anchors[band] - reached) % length
        for _ in range(demand[band]):
            while cell + length <= ceiling and (taken >> cell) & ((1 << length) - 1):
                cell += length
            if cell + length > ceiling:
                return False
            cell += length
            end = max(end, cell)
        reached = end
    return True


@njit(cache=True)
def _find(keys, costs, base, key, direct):
    """Slot of ``key``: itself if the table has one for every state, else by open addressing."""
    if direct:
        return key
    mask = len(keys) - 1
    slot = ((key * 0x9E3779B1) >> 12) & mask
    while costs[slot] >= base and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _search(
    size, units, anchors, counts, demand, occupied, fixed, direct, keys, costs, entries, base
):
    count = 0
    for number in counts:
        count += number
    starts = np.zeros(count + 1, dtype=np.int64)
    labels = np.zeros(count + 1, dtype=np.int64)
    band = 0
    left = counts[0] if len(counts) else 0
    for unit in range(count):
        while left == 0:
            band += 1
            left = counts[band]
        labels[unit] = band
        left -= 1
    heads = np.full(BUCKETS, -1, dtype=np.int64)
    slot = _find(keys, costs, base, occupied, direct)
    keys[slot], costs[slot] = occupied, base
    entries[0, 0], entries[0, 1], entries[0, 2] = occupied, 0, -1
    heads[0] = 0
    used = 1
    states = 1
    waiting = 1
    cost = 0
    while waiting > 0:
        entry = heads[cost % BUCKETS]
        if entry < 0:
            cost += 1
            continue
        heads[cost % BUCKETS] = entries[entry, 2]
        waiting -= 1
        state = np.int64(entries[entry, 0])
        if costs[_find(keys, costs, base, state, direct)] < base + entries[entry, 1]:
            continue
        unit = 0
        taken = 0
        byte = 0
        bits = state
        while bits:
            if bits & 1:
                starts[unit] = byte
                taken |= ((1 << units[labels[unit]]) - 1) << byte
                unit += 1
            byte += 1
            bits >>= 1
        if _served(size, units, anchors, demand, starts, labels, count, taken):
            return cost, states
        floor = 0
        reached = 0
        for unit in range(count):
            start = starts[unit]
            band = labels[unit]
            length = units[band]
            if unit == 0 or labels[unit - 1] != band:
                floor = reached
            reached = start + length
            if (fixed >> start) & 1:
                continue
            ceiling = size
            for other in range(unit + 1, count):
                if labels[other] != band:
                    ceiling = starts[other]
                    break
            cell = floor + (anchors[band] - floor) % length
            wanted = (1 << length) - 1
            while cell + length <= ceiling:
                if (taken >> cell) & wanted == 0:
                    after = state ^ (1 << start) ^ (1 << cell)
                    slot = _find(keys, costs, base, after, direct)
                    if costs[slot] < base or costs[slot] > base + cost + length:
                        if costs[slot] < base:
                            states += 1
                            if 2 * states > len(keys) and not direct:
                                return TOO_LARGE, states
                        if used == len(entries):
                            return TOO_LARGE, states
                        keys[slot], costs[slot] = after, base + cost + length
                        bucket = (cost + length) % BUCKETS
                        entries[used, 0] = after
                        entries[used, 1] = cost + length
                        entries[used, 2] = heads[bucket]
                        heads[bucket] = used
                        used += 1
                        waiting += 1
                cell += length
    return NOT_SERVED, states
