"""Requests: admission, forwards, retirement of windows and chunks, finish, abort, retract, prefix
cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from onearena.core.rules import UseKind
from onearena.core.uses import Use
from onearena.stress.forwards import NOTHING, Runs, forward_work, write_over
from onearena.stress.workload import Draft, RequestSource
from onearena.stress.world import World


class Sequence_:  # noqa: N801 - `Sequence` is the standard's name for something else
    """The units of one token sequence: per band the ids held, and the index of the first of
    them.
    """

    __slots__ = ("base", "ids", "length", "prefix")

    def __init__(self, bands: int) -> None:
        self.ids: list[list[int]] = [[] for _ in range(bands)]
        self.base = [0] * bands
        self.length = 0
        self.prefix: tuple[int, ...] = ()

    def all_ids(self) -> list[int]:
        """All ids, in band order."""
        return [name for band in self.ids for name in band]

    def copy(self) -> Sequence_:
        """The same ids in lists of their own."""
        other = Sequence_(len(self.ids))
        other.ids = [list(band) for band in self.ids]
        other.base = list(self.base)
        other.length = self.length
        other.prefix = self.prefix
        return other


class Request(Sequence_):
    """One request. `goal` is its final length; `draft` tokens are not verified yet; `ready` is
    False while a load or a receive has to end first.
    """

    __slots__ = ("draft", "goal", "gone", "in_flight", "prompt", "ready", "serial", "wanted")

    def __init__(self, bands: int, serial: int, wanted: Draft) -> None:
        super().__init__(bands)
        self.serial = serial
        self.wanted = wanted
        self.prompt = wanted.prompt_tokens
        self.goal = wanted.prompt_tokens + wanted.output_tokens
        self.draft = 0
        self.in_flight = 0
        self.ready = True
        self.gone = False


class Requests:
    """The scheduler's side of the world."""

    def __init__(self, world: World, source: RequestSource) -> None:
        self.world = world
        self.source = source
        self.active: list[Request] = []
        self.waiting: deque[Draft] = deque()
        self.cache: list[Sequence_] = []
        self.launched: list[tuple[Use, list[Request]]] = []
        self.forwards = 0  # launched and not retired
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
        world.add("forward", self.can_forward, self.forward)
        world.add("process", lambda: bool(self.launched), self.process)
        world.add("finish", self.can_finish, self.finish)
        world.add("abort", lambda: bool(self.active), self.abort)
        world.add("retract", lambda: len(self.active) > 1, self.retract)
        world.add("window", self.can_retire, self.retire_window)
        world.add("cache", self.can_cache, self.insert)
        world.add("evict", lambda: bool(self.cache), self.evict)
        world.add("fork", lambda: bool(self.active), self.fork_tail)

    # -- admission
    # ------------------------------------------------------------------------------------
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
        tokens = min(self._chunk(request), request.goal - request.length)
        demand = self._demand([(request, tokens)])
        if any(demand):
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

    def _cached_prefix(self, request: Request) -> Sequence_ | None:
        if not self.cache:
            return None
        choices = self.world.choices
        if request.prefix:
            for entry in reversed(self.cache):
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
        entry = self.cache[choices.pick("admit.entry", len(self.cache))]
        request.goal = entry.length + request.wanted.output_tokens
        return entry

    def _chunk(self, request: Request) -> int:
        """Tokens of the next forward of a request: a prefill chunk, or one."""
        if request.length >= request.prompt:
            return 1
        world = self.world
        units = 1 + world.choices.pick("forward.chunk", world.options.chunk_units_max)
        return min(units * world.facts.page_size, request.prompt - request.length)

    def demand_for(self, request: Request, tokens: int) -> list[int]:
        """Units of every band that a request lacks for so many more tokens."""
        return self._demand([(request, tokens)])

    def _demand(self, parts: Sequence[tuple[Request, int]]) -> list[int]:
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

    # -- forwards
    # -------------------------------------------------------------------------------------
    def can_forward(self) -> bool:
        """A request to run, and room in flight."""
        world = self.world
        return (
            self.forwards < world.options.forwards_max
            and world.room_for_use()
            and any(self._runnable(request) for request in self.active)
        )

    @staticmethod
    def _runnable(request: Request) -> bool:
        return request.ready and not request.draft and request.length < request.goal

    def forward(self) -> None:
        """Prepare and launch one forward over a few requests: units, forks, record, launch."""
        world, choices, options = self.world, self.world.choices, self.world.options
        stream = world.forward_streams[choices.pick("forward.stream", 2)]
        ready = [request for request in self.active if self._runnable(request)]
        first = choices.pick("forward.first", len(ready))
        count = 1 + choices.pick("forward.batch", options.batch_max)
        batch = [ready[(first + index) % len(ready)] for index in range(min(count, len(ready)))]
        parts: list[tuple[Request, int]] = []
        for request in batch:
            tokens = self._chunk(request)
            if request.length >= request.prompt and choices.chance(
                "forward.speculate", options.speculate_per_mille
            ):
                tokens = 2 + choices.pick("forward.draft", 4)
            parts.append((request, min(tokens, request.goal - request.length)))
        if not self._provide(parts, stream) or not self._fork_shared(parts, stream):
            self.pressure()
            return
        self._launch(parts, stream)

    def _provide(self, parts: Sequence[tuple[Request, int]], stream: int) -> bool:
        demands = [self._demand([part]) for part in parts]
        total = [sum(column) for column in zip(*demands, strict=True)]
        if not any(total):
            return True
        granted = self.world.allocate(total, UseKind.FORWARD, stream, "decode")
        if granted is None:
            return False
        queues = [list(ids) for ids in granted]
        for (request, _), demand in zip(parts, demands, strict=True):
            for band, count in enumerate(demand):
                request.ids[band].extend(queues[band][:count])
                del queues[band][:count]
        return True

    def _written(self, request: Request, tokens: int) -> list[tuple[int, int, int, int]]:
        """(band, place in ids, start byte, end byte) of what `tokens` more tokens write."""
        found: list[tuple[int, int, int, int]] = []
        before, after = request.length, request.length + tokens
        for band, facts in enumerate(self.world.bands):
            if facts.lifetime == "request":
                found.append((band, 0, 0, facts.unit_bytes))
                continue
            entries = facts.entries_per_unit
            entry_bytes = facts.unit_bytes // entries
            for index in range(before // entries, -(-after // entries)):
                start = max(before - index * entries, 0)
                end = min(after - index * entries, entries)
                place = index - request.base[band]
                found.append((band, place, start * entry_bytes, end * entry_bytes))
        return found

    def _fork_shared(self, parts: Sequence[tuple[Request, int]], stream: int) -> bool:
        """A unit with more than one reference is never written: its writer forks it."""
        world = self.world
        places: list[tuple[Request, int, int]] = []
        ids: list[int] = []
        for request, tokens in parts:
            for band, place, _, _ in self._written(request, tokens):
                name = request.ids[band][place]
                if world.units[name].refs > 1:
                    places.append((request, band, place))
                    ids.append(name)
        if not ids:
            return True
        # One call takes each id once: two requests of a batch may share the same tail.
        first = list(dict.fromkeys(ids))
        made = world.fork(first, self._fork_stream(stream))
        if made is None:
            return False
        new = dict(zip(first, made, strict=True))
        again: list[int] = []
        for (request, band, place), name in zip(places, ids, strict=True):
            if name in new:
                request.ids[band][place] = new.pop(name)
            else:
                again.append(name)
        return not again or self._fork_shared(parts, stream)

    def _fork_stream(self, stream: int) -> int:
        world = self.world
        other = world.choices.pick("fork.stream", 4)
        return (stream, world.schedule, world.forward_streams[0], world.forks)[other]

    def _launch(self, parts: Sequence[tuple[Request, int]], stream: int) -> None:
        world = self.world
        reads: dict[int, Runs] = {}
        writes: dict[int, tuple[int, int, int]] = {}
        for request, tokens in parts:
            self._add_reads(request, reads)
            for band, place, start, end in self._written(request, tokens):
                unit = world.units[request.ids[band][place]]
                if not unit.stamp or start < unit.written_bytes:
                    unit_stamp = world.next_stamp()
                else:
                    unit_stamp = unit.stamp
                writes[request.ids[band][place]] = (start, end, unit_stamp)
        # Attention need not read what the same forward appends to.
        if world.choices.chance("forward.blind", world.options.blind_per_mille):
            for name in writes:
                reads.pop(name, None)
        use = world.sut.record(UseKind.FORWARD, stream, reads=tuple(reads), writes=tuple(writes))
        if not isinstance(use, Use):
            world.note("record.blocked.forward")
            return
        self._side_work(use, stream, reads)
        work = forward_work(
            use,
            list(reads.values()),
            list(writes.values()),
            pieces=world.options.pieces,
            passes=world.options.passes,
            label=f"forward {use.serial}",
        )
        event = world.sut.launch(use, work)
        for name, (start, end, stamp) in writes.items():
            unit = world.units[name]
            unit.stamp = stamp
            unit.runs = write_over(unit.runs, start, end, stamp)
        batch = [request for request, _ in parts]
        for request, tokens in parts:
            request.length += tokens
            request.in_flight += 1
            if tokens > 1 and request.length > request.prompt:
                request.draft = tokens
        self.forwards += 1
        entry = world.opened(use, event, self._retired)
        self.launched.append((use, batch))
        entry.processed = False

    def _add_reads(self, request: Request, reads: dict[int, Runs]) -> None:
        """What attention and recurrence read: the written part of every unit of the context."""
        world = self.world
        limit = world.options.reads_max
        for ids in request.ids:
            chosen = ids if len(ids) <= limit else [*ids[: limit // 2], *ids[-(limit // 2) :]]
            for name in chosen:
                runs = world.units[name].runs
                if runs:
                    reads[name] = runs

    def _side_work(self, use: Use, stream: int, reads: dict[int, Runs]) -> None:
        """Draft work on a side stream: forks off after the use's waits, joins before its event."""
        world = self.world
        if not reads or not world.choices.chance(
            "forward.side", world.options.side_stream_per_mille
        ):
            return
        device = world.device
        fork = device.record(stream)
        device.wait(world.side, fork)
        device.release(fork)
        work = forward_work(
            use, list(reads.values()), [], pieces=1, passes=2, label=f"draft of {use.serial}"
        )
        device.launch(world.side, work)
        join = device.record(world.side)
        device.wait(stream, join)
        device.release(join)
        world.note("side_stream")

    def _retired(self, failed: bool) -> None:  # noqa: FBT001
        self.forwards -= 1

    def process(self) -> None:
        """The host processes a forward's result; mostly in order, drafts are verified here."""
        world = self.world
        index = world.pick_of("process.which", len(self.launched), 2)
        use, batch = self.launched.pop(index)
        for entry in world.uses:
            if entry.use is use:
                if not entry.processed:
                    entry.processed = True
                    world.sut.process(use)
                break
        for request in batch:
            request.in_flight -= 1
            if request.draft and not request.gone:
                self._verify(request)

    def _verify(self, request: Request) -> None:
        """Keep a part of the draft; whole rejected units are freed, a rejected tail is written
        over.
        """
        world = self.world
        rejected = world.choices.pick("process.rejected", request.draft)
        request.draft = 0
        if not rejected:
            return
        request.length -= rejected
        world.note("draft.rejected")
        dropped: list[int] = []
        for band, facts in enumerate(world.bands):
            if facts.lifetime == "request":
                continue
            keep = -(-request.length // facts.entries_per_unit) - request.base[band]
            dropped += request.ids[band][keep:]
            del request.ids[band][keep:]
        world.free(dropped)

    # -- ends
    # -----------------------------------------------------------------------------------------
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

    def _inherited(self, request: Request) -> Sequence_:
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
        self.release(request)
        self.waiting.append(request.wanted)

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

    # -- windows and chunks
    # ---------------------------------------------------------------------------
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
        world.free(gone)

    # -- cache
    # ----------------------------------------------------------------------------------------
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
        world.free(entry.all_ids())

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
        made = world.fork([request.ids[band][place]], self._fork_stream(world.schedule))
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
