"""Requests: admission, retirement of windows and chunks, finish, abort, retract, prefix cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from onearena.core.rules import UseKind
from onearena.stress.forwards import NOTHING
from onearena.stress.sequences import Held, Request
from onearena.stress.workload import Draft, RequestSource
from onearena.stress.world import World


class Requests:
    """The scheduler's side of the world."""

    def __init__(self, world: World, source: RequestSource) -> None:
        self.world = world
        self.source = source
        self.active: list[Request] = []
        self.waiting: deque[Draft] = deque()
        self.cache: list[Held] = []
        self.serial = 0
        options = world.options
        self.spans = [0] * len(world.bands)
        for band, facts in enumerate(world.bands):
            units = {
                "window": options.window_units,
                "chunk": options.chunk_window_units,
            }.get(facts.lifetime, 0)
            self.spans[band] = min(facts.span or 1 << 40, units * facts.entries_per_unit)
        self._bounded = [band for band, span in enumerate(self.spans) if span]
        world.add("admit", self.can_admit, self.admit)
        world.add("finish", self.can_finish, self.finish)
        world.add("abort", lambda: bool(self.active), self.abort)
        world.add("retract", lambda: len(self.active) > 1, self.retract)
        world.add("window", self.can_retire, self.retire_window)
        world.add("cache", self.can_cache, self.insert)
        world.add("evict", lambda: bool(self.cache), self.evict)
        world.add("trim", self.can_trim, self.trim)
        world.add("fork", lambda: bool(self.active), self.fork_tail)

    # -- admission
    def can_admit(self) -> bool:
        """Room for one more request."""
        return len(self.active) < self.world.options.requests_max

    def admit(self) -> None:
        """Admit a waiting or a new request: a cached prefix if there is one, then its first
        chunk.
        """
        world, choices = self.world, self.world.choices
        wanted = self.waiting.popleft() if self.waiting else self.source.take()
        request = self.new_request(wanted)
        cached = self._cached_prefix(request)
        if cached is not None:
            world.share(cached.all_ids())
            request.ids = [list(band) for band in cached.ids]
            request.base = list(cached.base)
            request.length = cached.length
            world.note("share.prefix")
        stream = world.forward_streams[choices.pick("admit.stream", 2)]
        tokens = min(self.chunk(request), request.goal - request.length)
        demand = self.demand([(request, tokens)])
        if any(demand):
            granted = world.allocate(demand, UseKind.FORWARD, stream, "admission")
            if granted is None and self.make_room(demand):
                granted = world.allocate(demand, UseKind.FORWARD, stream, "admission")
            if granted is None:
                world.free(request.all_ids())
                self.waiting.append(wanted)
                self.pressure()
                return
            self._hand(request, granted, demand)
        self.active.append(request)

    def new_request(self, wanted: Draft) -> Request:
        """A request without units."""
        self.serial += 1
        request = Request(len(self.world.bands), self.serial, wanted)
        request.prefix = wanted.prefix
        return request

    def _cached_prefix(self, request: Request) -> Held | None:
        entries = self.whole_entries()
        if not entries:
            return None
        choices = self.world.choices
        if request.prefix:
            for entry in reversed(entries):
                same = 0
                for ours, theirs in zip(request.prefix, entry.prefix, strict=False):
                    if ours != theirs:
                        break
                    same += 1
                # Only a whole entry can be taken: its windows and states belong to its end.
                if same and same == len(entry.prefix) and entry.length < request.goal:
                    return entry
            return None
        if not choices.chance("admit.share", self.world.options.share_per_mille):
            return None
        entry = entries[choices.pick("admit.entry", len(entries))]
        request.goal = entry.length + request.wanted.output_tokens
        return entry

    def chunk(self, request: Request) -> int:
        """Tokens of the next forward of a request: a prefill chunk, or one."""
        if request.length >= request.prompt:
            return 1
        world = self.world
        units = 1 + world.choices.pick("forward.chunk", world.options.chunk_units_max)
        return min(units * world.facts.page_size, request.prompt - request.length)

    def demand_for(self, request: Request, tokens: int) -> list[int]:
        """Units of every band that a request lacks for so many more tokens."""
        return self.demand([(request, tokens)])

    def demand(self, parts: Sequence[tuple[Request, int]]) -> list[int]:
        """Units of every band that the requests lack for so many more tokens each."""
        demand = [0] * len(self.world.bands)
        for request, tokens in parts:
            after = request.length + tokens
            for band, facts in enumerate(self.world.bands):
                have = len(request.ids[band])
                if facts.lifetime == "request":
                    need = 1
                else:
                    need = -(-after // facts.entries_per_unit) - request.base[band]
                demand[band] += max(0, need - have)
        return demand

    def _hand(
        self, request: Request, granted: Sequence[Sequence[int]], demand: Sequence[int]
    ) -> None:
        for band, count in enumerate(demand):
            request.ids[band].extend(granted[band][:count])

    def fork_stream(self, stream: int) -> int:
        """Where a fork for a use of `stream` runs: there or elsewhere."""
        world = self.world
        other = world.choices.pick("fork.stream", 4)
        return (stream, world.schedule, world.forward_streams[0], world.forks)[other]

    # -- ends
    def can_finish(self) -> bool:
        """A request that reached its goal."""
        return any(request.length >= request.goal for request in self.active)

    def finish(self) -> None:
        """A finished request leaves its units to the cache, or frees them; forwards may still
        fly.
        """
        world = self.world
        done = [request for request in self.active if request.length >= request.goal]
        request = done[world.choices.pick("finish.which", len(done))]
        if (
            world.options.weights["cache"]
            and not request.draft
            and len(self.cache) < (world.options.cache_max)
        ):
            self._leave(request)
            self.cache.append(self._inherited(request))
            world.note("cache.inherit")
            return
        self.release(request)

    def _inherited(self, request: Request) -> Held:
        """The finished request's references, given to the cache; units without content are
        freed.
        """
        entry = request.copy()
        empty: list[int] = []
        for band, ids in enumerate(request.ids):
            entry.ids[band] = [name for name in ids if self.world.units[name].runs]
            empty += [name for name in ids if not self.world.units[name].runs]
        request.ids = [[] for _ in request.ids]
        self.world.free(empty)
        return entry

    def abort(self) -> None:
        """A request goes at any moment."""
        index = self.world.choices.pick("abort.which", len(self.active))
        request = self.active[index]
        self.world.note("abort.in_flight" if request.in_flight else "abort.quiet")
        self.release(request)

    def retract(self) -> None:
        """A request gives its units back and waits again; its launched forwards keep their uses."""
        index = self.world.choices.pick("retract.which", len(self.active))
        request = self.active[index]
        self.world.note("retract.in_flight" if request.in_flight else "retract.quiet")
        self._give_up(request)
        self.waiting.append(request.wanted)

    def _give_up(self, request: Request) -> None:
        if self.world.reports is not None:
            self.world.reports.retracted(f"of {request.length} tokens", tokens=request.length)
        self.release(request)

    def release(self, request: Request) -> None:
        """Free all the request holds."""
        self._leave(request)
        self.world.free(request.all_ids())
        request.ids = [[] for _ in request.ids]

    def _leave(self, request: Request) -> None:
        request.gone = True
        if request in self.active:
            self.active.remove(request)

    def pressure(self) -> None:
        """Units were refused: evict, retract, or let it be."""
        world = self.world
        action = world.choices.pick("pressure.action", 4)
        if action == 0 and self.cache:
            self.evict()
        elif action == 1 and len(self.active) > 1 and world.options.weights["retract"]:
            self.retract()
        elif action == 2 and world.options.weights["compact"]:
            world.sut.compact(budget_units=1 + world.choices.pick("pressure.compact", 4))

    def make_room(self, demand: Sequence[int], keep: Sequence[Request] = ()) -> bool:
        """Often: evict and retract until as many bytes were freed as are asked for; then ask again.

        What is freed is mostly still in use, so the next owner of the bytes meets all old users.
        """
        world = self.world
        if not world.choices.chance("pressure.make_room", world.options.make_room_per_mille):
            return False
        needed = sum(
            more * facts.unit_bytes for more, facts in zip(demand, world.bands, strict=True)
        )
        before = world.held_bytes
        while world.held_bytes > before - needed:
            others = [request for request in self.active if request not in keep]
            if self.cache and (not others or world.choices.pick("pressure.victim", 2)):
                self.evict()
            elif others:
                request = others[world.choices.pick("pressure.retract", len(others))]
                world.note("retract.in_flight" if request.in_flight else "retract.quiet")
                self._give_up(request)
            else:
                break
        return world.held_bytes < before

    # -- windows and chunks
    def skip_retired(self, request: Request, length: int) -> None:
        """An empty request starts its bounded bands where a sequence of `length` tokens needs
        them.
        """
        for band in self._bounded:
            facts, span = self.world.bands[band], self.spans[band]
            first = length // span * span if facts.lifetime == "chunk" else max(0, length - span)
            request.base[band] = first // facts.entries_per_unit

    def _retirable(self, request: Request, band: int) -> int:
        """Units at the front of a band that no later token needs."""
        lifetime = self.world.bands[band].lifetime
        if lifetime not in ("window", "chunk") or request.draft or not request.ready:
            return 0
        entries = self.world.bands[band].entries_per_unit
        span = self.spans[band]
        if lifetime == "window":
            first = max(0, request.length - span) // entries
        else:
            first = request.length // span * span // entries
        return min(len(request.ids[band]), max(0, first - request.base[band]))

    def can_retire(self) -> bool:
        """Some request holds units behind its window or chunk."""
        return any(
            self._retirable(request, band) for request in self.active for band in self._bounded
        )

    def retire_window(self) -> None:
        """Free what fell behind, of one request."""
        world = self.world
        able = [
            (request, band)
            for request in self.active
            for band in self._bounded
            if self._retirable(request, band)
        ]
        request, band = able[world.choices.pick("window.which", len(able))]
        count = self._retirable(request, band)
        gone = request.ids[band][:count]
        del request.ids[band][:count]
        request.base[band] += count
        world.note("retire." + world.bands[band].lifetime)
        if count > 1:
            world.note("fault.window_burst")
        world.free(gone)

    # -- cache
    def can_cache(self) -> bool:
        """A request with content, and room in the cache."""
        return len(self.cache) < self.world.options.cache_max and any(
            self._cacheable(request) for request in self.active
        )

    @staticmethod
    def _cacheable(request: Request) -> bool:
        return request.ready and not request.draft and request.length > 0

    def insert(self) -> None:
        """Share a running request's units with the cache; its next write of a shared unit forks."""
        world = self.world
        able = [request for request in self.active if self._cacheable(request)]
        request = able[world.choices.pick("cache.which", len(able))]
        entry = request.copy()
        # Units handed out for tokens that do not exist yet stay the request's own.
        for band, ids in enumerate(entry.ids):
            entry.ids[band] = [name for name in ids if world.units[name].runs]
        world.share(entry.all_ids())
        self.cache.append(entry)

    def evict(self) -> None:
        """Drop the oldest entry, or any."""
        world = self.world
        entry = self.cache.pop(world.pick_of("evict.which", len(self.cache), 3))
        if world.reports is not None:
            for facts, ids in zip(world.bands, entry.ids, strict=True):
                world.reports.evicted(facts.name, len(ids))
        world.free(entry.all_ids())

    def can_trim(self) -> bool:
        """A cache entry with units of two bands at least."""
        return any(sum(map(bool, entry.ids)) > 1 for entry in self.cache)

    def trim(self) -> None:
        """Take one band's units out of a cache entry; what is left takes room in other bands only.

        Demands then find holes in one band and need bytes in another, which is what moves are for.
        """
        world = self.world
        able = [entry for entry in self.cache if sum(map(bool, entry.ids)) > 1]
        entry = able[world.choices.pick("trim.which", len(able))]
        bands = [band for band, ids in enumerate(entry.ids) if ids]
        band = bands[world.choices.pick("trim.band", len(bands))]
        gone, entry.ids[band] = entry.ids[band], []
        entry.whole = False
        world.note("trimmed")
        world.free(gone)

    def whole_entries(self) -> list[Held]:
        """Cache entries whose content can be continued, saved or sent."""
        return [entry for entry in self.cache if entry.whole]

    def fork_tail(self) -> None:
        """Fork some held units for no other reason than that an engine may."""
        world = self.world
        request = self.active[world.choices.pick("fork.which", len(self.active))]
        able = [
            (band, place)
            for band, ids in enumerate(request.ids)
            for place, name in enumerate(ids)
            if world.units[name].runs is not NOTHING
        ]
        if not able or not request.ready:
            return
        band, place = able[world.choices.pick("fork.unit", len(able))]
        made = world.fork([request.ids[band][place]], self.fork_stream(world.schedule))
        if made is not None:
            request.ids[band][place] = made[0]

    def fork_one(self, name: int, stream: int) -> int | None:
        """Fork a unit that one request alone holds; its new id, or None when it was refused."""
        made = self.world.fork([name], stream)
        if made is None:
            return None
        for request in self.active:
            for ids in request.ids:
                if name in ids:
                    ids[ids.index(name)] = made[0]
        return made[0]
