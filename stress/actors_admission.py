"""Admission questions: prices of requests for every caller, and victims for a demand.

Nothing here holds units: prices are asked and judged, victims are chosen by the system under test
in the cache's order and then evicted by the world.
"""

from __future__ import annotations

from onearena.core.demand import Caller, RequestShape, ServingPolicy
from onearena.core.eviction import Candidate
from onearena.stress.actors_requests import Requests
from onearena.stress.world import World

CALLERS = tuple(Caller)
PROMPT_TOKENS_MAX = 3000
OUTPUT_TOKENS_MAX = 300
BOOT_TOKENS_MAX = 20_000


class Admission:
    """Steps `price` and `choose_victims`; only for systems that price and choose."""

    def __init__(self, world: World, requests: Requests) -> None:
        self.world = world
        self.requests = requests
        world.add("price", lambda: True, self.price)
        world.add("boot", lambda: True, self.boot)
        world.add("choose_victims", lambda: bool(requests.cache), self.choose_victims)

    def price(self) -> None:
        """Ask what some request costs, at a drawn point of its life, for a drawn caller."""
        choices = self.world.choices
        prompt = 1 + choices.pick("price.prompt", PROMPT_TOKENS_MAX)
        output = choices.pick("price.output", OUTPUT_TOKENS_MAX)
        policy = ServingPolicy(
            chunk_tokens=(64, 512, 4096)[choices.pick("price.chunk", 3)],
            steps_in_flight=1 + choices.pick("price.steps", 3),
            lookahead_tokens=choices.pick("price.lookahead", 2) * 4,
            checkpoint_tokens=choices.pick("price.checkpoint", 2) * 256,
            tracking_slots=choices.pick("price.tracking", 3),
        )
        computed = choices.pick("price.computed", prompt + 1)
        shared = computed if choices.chance("price.all_shared", 300) else 0
        in_flight = 0 if shared else min(computed, choices.pick("price.in_flight", 65))
        shape = RequestShape(
            prompt_tokens=prompt,
            output_tokens=output,
            computed_tokens=computed,
            shared_tokens=shared,
            in_flight_tokens=in_flight,
            shares_slot=choices.chance("price.shares_slot", 200),
        )
        caller = CALLERS[choices.pick("price.caller", len(CALLERS))]
        self.world.sut.price(shape, policy, caller)
        self.world.note(f"price.{caller.value}")

    def boot(self) -> None:
        """Ask what start-up would make of a budget around that of one request."""
        world = self.world
        tokens = 1 + world.choices.pick("boot.tokens", BOOT_TOKENS_MAX)
        one = sum(
            facts.unit_bytes * (1 + min(tokens, facts.span or tokens) // facts.entries_per_unit)
            for facts in world.bands
        )
        budget = one * (40 + world.choices.pick("boot.per_cent", 260)) // 100
        facts_of_plan = world.sut.boot(budget, tokens)
        world.note("boot.refused" if facts_of_plan is None else "boot.accepted")

    def choose_victims(self) -> None:
        """Ask which cached entries have to go for a drawn demand, evict them, and ask again."""
        world = self.world
        demand = tuple(
            world.choices.pick("victims.demand", 1 + min(8, facts.capacity_units))
            for facts in world.bands
        )
        candidates = self._candidates()
        evictable = tuple(
            sum(candidate.releases[band] for candidate in candidates)
            for band in range(len(world.bands))
        )
        chosen = world.sut.evict(demand, candidates, evictable=evictable)
        if not chosen.victims:
            world.note("victims.none_needed" if chosen.fits else "victims.in_vain")
            return
        world.note("victims.some")
        gone = [self.requests.cache[place] for place in chosen.victims]
        if world.fault("evict_veto"):
            del gone[-1]
        self.requests.cache = [e for e in self.requests.cache if all(e is not g for g in gone)]
        for entry in gone:
            world.free(entry.all_ids())
        world.sut.fits(demand)

    def _candidates(self) -> list[Candidate[int]]:
        """The cache, oldest first, with the units whose last reference goes with each entry."""
        world = self.world
        left: dict[int, int] = {}
        candidates = []
        for place, entry in enumerate(self.requests.cache):
            releases = []
            for ids in entry.ids:
                released = 0
                for vid in ids:
                    left[vid] = left.get(vid, world.units[vid].refs) - 1
                    released += left[vid] == 0
                releases.append(released)
            candidates.append(Candidate(place, tuple(releases)))
        return candidates
