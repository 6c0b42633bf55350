"""The eviction walk: the cache picks victims in its own order, the arena says when to stop.

It asks the same joint question as everybody else. Nothing is evicted if the demand fits already, or
cannot fit even with every cached entry gone; the walk stops at the first victim after which it
fits, counting what that victim releases in every sub-pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from onearena.core.answers import Demand

Victim = TypeVar("Victim")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Victim]):
    """A cached entry and the units of each sub-pool that its going away releases.

    `releases` counts units whose last reference it holds. Units that another candidate shares are
    released with the last of the sharers; the caller lists them there.
    """

    victim: Victim
    releases: Demand


@dataclass(frozen=True, slots=True)
class Eviction(Generic[Victim]):
    """What to evict, in order. `fits`: the demand fits afterwards. Empty with `fits`: it did
    before.

    Empty without `fits`: it would not fit even with every candidate gone, so none goes.
    """

    victims: tuple[Victim, ...]
    fits: bool


def choose_victims(
    demand: Demand,
    candidates: Iterable[Candidate[Victim]],
    *,
    evictable: Demand,
    fits: Callable[[Sequence[int]], bool],
) -> Eviction[Victim]:
    """Walk `candidates` in the cache's order until `demand` fits.

    `fits(more)` is the joint test for `more` units per sub-pool beyond what is handed out today,
    negative where units are released first (`evictable_test` makes one of an arena). `evictable`
    is what all candidates release together. One joint test a victim, and two before the first.
    """
    if fits(demand):
        return Eviction((), fits=True)
    if not fits(_less(demand, evictable)):
        return Eviction((), fits=False)
    chosen: list[Victim] = []
    left = demand
    for candidate in candidates:
        chosen.append(candidate.victim)
        left = _less(left, candidate.releases)
        if fits(left):
            return Eviction(tuple(chosen), fits=True)
    # The candidates released less than `evictable` promised: whoever lists them has to know.
    raise AssertionError(f"{len(chosen)} victims release less than the {evictable} promised")


def _less(demand: Demand, released: Sequence[int]) -> Demand:
    return tuple(more - fewer for more, fewer in zip(demand, released, strict=True))
