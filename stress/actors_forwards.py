"""Forwards over the world's requests: prepared, launched, processed; drafts verified."""

from __future__ import annotations

from collections.abc import Sequence

from onearena.core.rules import UseKind
from onearena.core.uses import Use
from onearena.stress.actors_requests import Requests
from onearena.stress.forwards import Runs, forward_work, write_over
from onearena.stress.sequences import Request
from onearena.stress.world import World


class Forwards:
    """Several forwards in flight, over one or a few requests each."""

    def __init__(self, world: World, requests: Requests) -> None:
        self.world = world
        self.requests = requests
        self.launched: list[tuple[Use, list[Request]]] = []
        self.flying = 0  # launched and not retired
        world.add("forward", self.can_forward, self.forward)
        world.add("process", lambda: bool(self.launched), self.process)

    def can_forward(self) -> bool:
        """A request to run, and room in flight."""
        world = self.world
        return (
            self.flying < world.options.forwards_max
            and world.room_for_use()
            and any(self._runnable(request) for request in self.requests.active)
        )

    @staticmethod
    def _runnable(request: Request) -> bool:
        return request.ready and not request.draft and request.length < request.goal

    def forward(self) -> None:
        """Prepare and launch one forward over a few requests: units, forks, record, launch."""
        world, choices, options = self.world, self.world.choices, self.world.options
        stream = world.forward_streams[choices.pick("forward.stream", 2)]
        ready = [request for request in self.requests.active if self._runnable(request)]
        first = choices.pick("forward.first", len(ready))
        count = 1 + choices.pick("forward.batch", options.batch_max)
        batch = [ready[(first + index) % len(ready)] for index in range(min(count, len(ready)))]
        parts: list[tuple[Request, int]] = []
        for request in batch:
            tokens = self.requests.chunk(request)
            if request.length >= request.prompt and choices.chance(
                "forward.speculate", options.speculate_per_mille
            ):
                tokens = 2 + choices.pick("forward.draft", 4)
            parts.append((request, min(tokens, request.goal - request.length)))
        if world.fault("read_only"):
            self._look(batch, stream)
            if not world.room_for_use():
                return
        if not self._provide(parts, stream) or not self._fork_shared(parts, stream):
            self.requests.pressure()
            return
        self._launch(parts, stream)

    def _look(self, batch: Sequence[Request], stream: int) -> None:
        """A forward that writes nothing (a score, an embedding), on the other stream. It may be the
        first to read what was zeroed at hand-out.
        """
        world = self.world
        first, second = world.forward_streams
        reads: dict[int, Runs] = {}
        for request in batch:
            self._add_reads(request, reads)
        if not reads:
            return
        use = world.sut.record(
            UseKind.FORWARD, second if stream == first else first, reads=[*reads]
        )
        if not isinstance(use, Use):
            world.note("record.blocked.forward")
            return
        work = forward_work(
            use, [*reads.values()], [], pieces=1, passes=2, label=f"forward {use.serial} reads"
        )
        world.opened(use, world.sut.launch(use, work), lambda _: None)

    def _provide(self, parts: Sequence[tuple[Request, int]], stream: int) -> bool:
        demands = [self.requests.demand([part]) for part in parts]
        total = [sum(column) for column in zip(*demands, strict=True)]
        if not any(total):
            return True
        granted = self.world.allocate(total, UseKind.FORWARD, stream, "decode")
        batch = [request for request, _ in parts]
        if granted is None and self.requests.make_room(total, keep=batch):
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
        made = world.fork(first, self.requests.fork_stream(stream))
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
        # A forward need not read what it appends to, nor anything at all.
        if world.choices.chance("forward.blind", world.options.blind_per_mille):
            for name in writes if world.choices.pick("forward.sees", 2) else tuple(reads):
                reads.pop(name, None)
        use = world.sut.record(UseKind.FORWARD, stream, reads=tuple(reads), writes=tuple(writes))
        if not isinstance(use, Use):
            world.note("record.blocked.forward")
            return
        if world.fault("mid_snapshot"):
            world.sut.snapshot()
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
        self.flying += 1
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
        self.flying -= 1

    def process(self) -> None:
        """The host processes a forward's result, now and then of several at once."""
        self._process_one()
        while self.launched and self.world.fault("process_batch"):
            self._process_one()

    def _process_one(self) -> None:
        """Mostly in order; drafts are verified here."""
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
