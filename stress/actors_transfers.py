"""The network's side of the world: sends and receives of whole sequences, failing peers,
cancels.
"""

from __future__ import annotations

from onearena.core.device.interface import TransferStatus
from onearena.core.rules import UseKind
from onearena.core.uses import Use
from onearena.stress.actors_requests import Requests
from onearena.stress.forwards import Runs, copy_work, forward_work, transfer_work
from onearena.stress.sequences import Held, Request
from onearena.stress.world import OpenTransfer, World

PEERS = 3
QUEUED_MAX = 3
TRANSFERS_MAX = 4


class Waiting:
    """A transfer that is not published yet. A send holds references, a receive a request's new
    units.
    """

    __slots__ = ("kind", "peer", "request", "sequence")

    def __init__(self, kind: UseKind, sequence: Held, peer: int, request: Request | None) -> None:
        self.kind = kind
        self.sequence = sequence
        self.peer = peer
        self.request = request


class Transfers:
    """Sends and receives."""

    def __init__(self, world: World, requests: Requests) -> None:
        self.world = world
        self.requests = requests
        self.waiting: list[Waiting] = []
        world.add("send", self.can_send, self.send)
        world.add("receive", self.can_receive, self.receive)
        world.add("publish", self.can_publish, self.publish)
        world.add("poll_transfer", lambda: bool(world.transfers), self.poll)
        world.add("cancel_transfer", self.can_cancel, self.cancel)
        world.add("hasty", self.can_hurry, self.hurry)
        world.add("disconnect", lambda: bool(world.lost), self.disconnect)

    def _peer(self) -> int:
        return 1 + self.world.choices.pick("transfer.peer", PEERS)

    def can_send(self) -> bool:
        """Content to send, and room in the queue."""
        requests = self.requests
        return len(self.waiting) < QUEUED_MAX and bool(
            requests.whole_entries()
            or any(r.ready and r.length and not r.draft for r in requests.active)
        )

    def send(self) -> None:
        """Queue a send: the references are taken now."""
        world = self.world
        at_once = world.fault("publish_at_once")
        able: list[Held] = self.requests.whole_entries()
        # What was zeroed at hand-out is content too, though nothing was computed yet.
        able += [
            r for r in self.requests.active if r.ready and (r.length or at_once) and not r.draft
        ]
        source = able[world.choices.pick("send.which", len(able))].copy()
        for band, ids in enumerate(source.ids):
            source.ids[band] = [name for name in ids if world.units[name].runs]
        if not source.all_ids():
            return
        world.share(source.all_ids())
        self.waiting.append(Waiting(UseKind.SEND, source, self._peer(), None))
        if at_once and self.can_publish():
            self._try(self.waiting[-1])

    def can_receive(self) -> bool:
        """Room for one more request, and in the queue."""
        return (
            len(self.waiting) < QUEUED_MAX
            and len(self.requests.active) < self.world.options.requests_max
        )

    def receive(self) -> None:
        """Reserve units for a request whose prompt a peer will write."""
        world = self.world
        request = self.requests.new_request(self.requests.source.take())
        tokens = request.prompt
        self.requests.skip_retired(request, tokens)
        demand = self.requests.demand_for(request, tokens)
        granted = world.allocate(demand, UseKind.RECEIVE, world.schedule, "pd-prealloc")
        if granted is None and self.requests.make_room(demand):
            granted = world.allocate(demand, UseKind.RECEIVE, world.schedule, "pd-prealloc")
        if granted is None:
            self.requests.pressure()
            return
        request.ids = [list(band) for band in granted]
        request.ready = False
        self.requests.active.append(request)
        self.waiting.append(Waiting(UseKind.RECEIVE, request, self._peer(), request))
        if world.fault("publish_at_once") and self.can_publish():
            self._try(self.waiting[-1])

    def can_publish(self) -> bool:
        """Something queued, and room for a transfer."""
        return bool(self.waiting) and len(self.world.transfers) < TRANSFERS_MAX

    def publish(self) -> None:
        """Try to publish a queued transfer; while rule 7 forbids it, it stays queued."""
        world = self.world
        waiting = self.waiting[world.choices.pick("publish.which", len(self.waiting))]
        request = waiting.request
        if request is not None and request.gone:
            self.waiting.remove(waiting)
            return
        if request is None and world.choices.chance("publish.give_up", 60):
            self.waiting.remove(waiting)
            world.free(waiting.sequence.all_ids())
            return
        self._try(waiting)

    def _try(self, waiting: Waiting) -> None:
        """Publish, if rule 7 allows it now."""
        world, request = self.world, waiting.request
        ids = waiting.sequence.all_ids()
        use = world.sut.publish(waiting.kind, ids, peer=waiting.peer)
        if not isinstance(use, Use):
            world.note("publish.blocked." + waiting.kind.name.lower())
            if world.choices.chance("publish.look", 500):
                self._look_at_uses()
            return
        self.waiting.remove(waiting)
        runs = self._content(waiting, ids)
        work = transfer_work(
            use, runs, pieces=world.options.pieces, peer=waiting.peer, label=f"use {use.serial}"
        )
        transfer = world.sut.launch(use, work)
        world.note("published." + waiting.kind.name.lower())
        if request is None:
            held = list(ids)
            # The transfer itself keeps the units; who queued it may let go of them early.
            if world.choices.chance("send.drop_early", 500):
                world.free(held)
                held = []
            world.begun(use, transfer, ids, waiting.peer, lambda _: world.free(held))
        else:
            world.begun(
                use,
                transfer,
                ids,
                waiting.peer,
                lambda outcome: self._received(request, ids, runs, outcome),
            )

    def _look_at_uses(self) -> None:
        """What a blocked publish waits for may be over: look at the oldest uses."""
        world = self.world
        for entry in world.uses[:6]:
            if world.device.query(entry.event):
                world.retire(entry)

    def _content(self, waiting: Waiting, ids: list[int]) -> list[Runs]:
        """What a send reads, or what a receive will have written: whole prompt, entry by entry."""
        world = self.world
        if waiting.request is None:
            return [world.units[name].runs for name in ids]
        request = waiting.request
        content: list[Runs] = []
        for band, facts in enumerate(world.bands):
            for place in range(len(request.ids[band])):
                end = facts.unit_bytes
                if facts.lifetime != "request":
                    entries = facts.entries_per_unit
                    first = (place + request.base[band]) * entries
                    end = (facts.unit_bytes // entries) * min(entries, request.prompt - first)
                content.append(((0, end, world.next_stamp()),))
        return content

    def _received(
        self, request: Request, ids: list[int], content: list[Runs], outcome: str
    ) -> None:
        if request.gone:
            return
        if outcome != "done":
            if outcome != "lost":
                self.world.read_undefined("failed_receive", reads=ids[:1])
            self.requests.release(request)
            return
        for name, runs in zip(ids, content, strict=True):
            self.world.units[name].runs = runs
            self.world.units[name].stamp = runs[0][2]
        request.length = request.prompt
        request.ready = True

    def poll(self) -> None:
        """Look at one transfer."""
        world = self.world
        self.look(world.transfers[world.choices.pick("poll_transfer.which", len(world.transfers))])

    def look(self, entry: OpenTransfer) -> bool:
        """Ask the device how a transfer stands; end it if it is over."""
        world = self.world
        status = world.device.transfer_status(entry.transfer)
        if status is TransferStatus.RUNNING:
            return False
        world.transfers.remove(entry)
        outcome = {
            TransferStatus.DONE: "done",
            TransferStatus.FAILED: "failed",
            TransferStatus.CANCELLED: "cancelled",
            TransferStatus.UNKNOWN: "lost",
        }[status]
        world.note("transfer." + outcome)
        world.sut.end_transfer(entry.use, outcome=outcome)
        if outcome == "lost":
            world.lost.setdefault(entry.peer, []).append(entry)
        else:
            world.unfix(entry.ids)
        entry.done(outcome)
        return True

    def can_cancel(self) -> bool:
        """A transfer nobody cancelled yet."""
        return any(not entry.cancelled for entry in self.world.transfers)

    def cancel(self) -> None:
        """Ask a peer to stop."""
        world = self.world
        able = [entry for entry in world.transfers if not entry.cancelled]
        entry = able[world.choices.pick("cancel_transfer.which", len(able))]
        entry.cancelled = True
        if world.device.transfer_status(entry.transfer) is TransferStatus.RUNNING:
            world.device.cancel_transfer(entry.transfer)

    def can_hurry(self) -> bool:
        """A unit under a transfer, and room for a use."""
        return self.world.room_for_use() and bool(self._in_transfer())

    def _in_transfer(self) -> list[int]:
        """Units under a transfer that one request holds, and nobody else."""
        units = self.world.units
        if not self.world.transfers:
            return []
        return [
            name
            for request in self.requests.active
            for ids in request.ids
            for name in ids
            if units[name].fixed and units[name].refs == 1
        ]

    def hurry(self) -> None:
        """Ask for a use of a unit under a transfer before its end was seen; mostly refused."""
        world, choices = self.world, self.world.choices
        able = self._in_transfer()
        name = able[choices.pick("hasty.which", len(able))]
        kind = ("read", "write", "backup", "send", "fork")[choices.pick("hasty.kind", 5)]
        stream = world.forward_streams[choices.pick("hasty.stream", 2)]
        if kind == "fork":
            blocked = self.requests.fork_one(name, stream) is None
        elif kind == "send":
            use = world.sut.publish(UseKind.SEND, [name], peer=self._peer())
            blocked = not isinstance(use, Use)
            if isinstance(use, Use):
                self._hurried_send(use, name)
        elif kind == "backup":
            blocked = self._hurried_backup(name)
        else:
            names = {"reads": [name]} if kind == "read" else {"writes": [name]}
            use = world.sut.record(UseKind.FORWARD, stream, **names)
            blocked = not isinstance(use, Use)
            if isinstance(use, Use):
                self._hurried_forward(use, name, kind)
        world.note(("hasty.blocked." if blocked else "hasty.done.") + kind)

    def _hurried_forward(self, use: Use, name: int, kind: str) -> None:
        world = self.world
        unit = world.units[name]
        reads, writes = [unit.runs], []
        if kind == "write":
            stamp = world.next_stamp()
            reads, writes = [], [(0, unit.nbytes, stamp)]
            unit.runs, unit.stamp = ((0, unit.nbytes, stamp),), stamp
        work = forward_work(use, reads, writes, pieces=1, passes=1, label=f"forward {use.serial}")
        world.opened(use, world.sut.launch(use, work), lambda _: None)

    def _hurried_send(self, use: Use, name: int) -> None:
        world = self.world
        runs = world.units[name].runs
        work = transfer_work(use, [runs], pieces=1, peer=use.peer, label=f"use {use.serial}")
        world.begun(use, world.sut.launch(use, work), [name], use.peer, lambda _: None)

    def _hurried_backup(self, name: int) -> bool:
        world = self.world
        unit = world.units[name]
        hosts = world.sut.reserve_host(unit.band, 1)
        if not hosts:
            return True
        use = world.sut.record(
            UseKind.BACKUP, world.d2h_streams[0], reads=[name], host_writes=hosts
        )
        if isinstance(use, Use):
            work = copy_work(
                use, [unit.nbytes], pieces=1, fails_after=-1, label=f"backup {use.serial}"
            )
            world.opened(use, world.sut.launch(use, work), lambda _: None)
        world.sut.free_host(hosts)
        return not isinstance(use, Use)

    def disconnect(self) -> None:
        """Tear down the connection of a peer whose transfers were lost; its running ones fail."""
        world = self.world
        peers = sorted(world.lost)
        peer = peers[world.choices.pick("disconnect.which", len(peers))]
        lost = world.lost.pop(peer)
        running = [entry for entry in world.transfers if entry.peer == peer]
        world.sut.disconnect(peer)
        world.note("disconnected")
        for entry in (*lost, *running):
            world.unfix(entry.ids)
        for entry in running:
            world.transfers.remove(entry)
            entry.done("failed")
