"""The host tier's side of the world: queued backups, loads, and the host copies themselves."""

from __future__ import annotations

from onearena.core.rules import UseKind
from onearena.core.uses import Use
from onearena.stress.actors_requests import Requests
from onearena.stress.forwards import Runs, copy_work
from onearena.stress.sequences import Held, Request
from onearena.stress.workload import Draft
from onearena.stress.world import World

QUEUED_MAX = 3
HOST_COPIES_MAX = 6


class Queued:
    """A backup that was promised and not started: it holds a reference on every id it will read."""

    __slots__ = ("hosts", "source")

    def __init__(self, source: Held) -> None:
        self.source = source
        self.hosts: list[tuple[int, ...]] = []


class HostCopy:
    """Content in the host tier. `ready`: the backup was seen to end; `sure`: it cannot fail."""

    __slots__ = ("content", "gone", "hosts", "loads", "ready", "sequence", "stamps", "sure")

    def __init__(
        self, queued: Queued, content: list[Runs], stamps: list[int], *, sure: bool
    ) -> None:
        self.sequence = queued.source
        self.hosts = queued.hosts
        self.content = content
        self.stamps = stamps
        self.sure = sure
        self.ready = False
        self.gone = False
        self.loads = 0

    def all_hosts(self) -> list[int]:
        """All host ids, in band order."""
        return [name for band in self.hosts for name in band]


class Copies:
    """Backups and loads on their own streams."""

    def __init__(self, world: World, requests: Requests) -> None:
        self.world = world
        self.requests = requests
        self.queued: list[Queued] = []
        self.copies: list[HostCopy] = []
        world.add("backup", self.can_backup, self.backup)
        world.add("backup_start", self.can_start, self.start)
        world.add("backup_cancel", lambda: bool(self.queued), self.cancel)
        world.add("load", self.can_load, self.load)
        world.add("drop_host", lambda: bool(self.copies), self.drop)

    def _sources(self) -> list[Held]:
        able: list[Held] = self.requests.whole_entries()
        able += [
            request
            for request in self.requests.active
            if request.ready and not request.draft and request.length
        ]
        return able

    def can_backup(self) -> bool:
        """Something to save, and room in the queue."""
        return len(self.queued) < QUEUED_MAX and bool(
            self.requests.whole_entries()
            or any(r.ready and r.length and not r.draft for r in self.requests.active)
        )

    def backup(self) -> None:
        """Queue a backup: the references are taken now, the copy starts later."""
        world = self.world
        sources = self._sources()
        source = sources[world.choices.pick("backup.which", len(sources))].copy()
        for band, ids in enumerate(source.ids):
            source.ids[band] = [name for name in ids if world.units[name].runs]
        if not source.all_ids():
            return
        world.share(source.all_ids())
        queued = Queued(source)
        self.queued.append(queued)
        if world.choices.chance("backup.at_once", 300):
            self._start(queued)

    def can_start(self) -> bool:
        """A queued backup and room for its use."""
        return bool(self.queued) and self.world.room_for_use()

    def start(self) -> None:
        """Start a queued backup."""
        self._start(self.queued[self.world.choices.pick("backup_start.which", len(self.queued))])

    def _start(self, queued: Queued) -> None:
        world, choices = self.world, self.world.choices
        if not self._reserve(queued) and not self._make_room(queued):
            return
        ids = queued.source.all_ids()
        hosts = [name for band in queued.hosts for name in band]
        stream = world.d2h_streams[choices.pick("backup.stream", 2)]
        use = world.sut.record(UseKind.BACKUP, stream, reads=ids, host_writes=hosts)
        if not isinstance(use, Use):
            world.note("record.blocked.backup")
            return
        self.queued.remove(queued)
        content = [world.units[name].runs for name in ids]
        stamps = [world.units[name].stamp for name in ids]
        fails = choices.chance("backup.fails", world.options.copy_failure_per_mille)
        work = copy_work(
            use,
            [runs[-1][1] for runs in content],
            pieces=world.options.pieces,
            fails_after=choices.pick("backup.fails_after", 3) if fails else -1,
            label=f"backup {use.serial}",
        )
        event = world.sut.launch(use, work)
        copy = HostCopy(queued, content, stamps, sure=not fails)
        self.copies.append(copy)
        if choices.chance("backup.drop_early", 500):
            world.free(ids)
            ids = []
        world.opened(use, event, lambda failed: self._saved(copy, ids, failed), fails=fails)

    def _make_room(self, queued: Queued) -> bool:
        """Host units are short: often a copy goes, and its loads are settled; then ask again."""
        world, choices = self.world, self.world.choices
        world.note("host.full")
        if not self.copies or not choices.chance("backup.make_room", 500):
            return False
        self.drop()
        if choices.chance("backup.settle", 500):
            for entry in world.uses:
                if entry.use.kind is UseKind.LOAD and not entry.settled:
                    entry.settled = True
                    world.sut.settle(entry.use)
        return self._reserve(queued)

    def _reserve(self, queued: Queued) -> bool:
        if queued.hosts:
            return True
        hosts: list[tuple[int, ...]] = []
        for band, ids in enumerate(queued.source.ids):
            got = self.world.sut.reserve_host(band, len(ids)) if ids else ()
            if len(got) < len(ids):
                self.world.sut.free_host([name for done in hosts for name in done])
                return False
            hosts.append(got)
        queued.hosts = hosts
        return True

    def _saved(self, copy: HostCopy, ids: list[int], failed: bool) -> None:  # noqa: FBT001
        self.world.free(ids)
        copy.ready = not failed
        if failed and not copy.gone:
            self.world.read_undefined("failed_backup", host_reads=copy.all_hosts()[:1])
            self._forget(copy)

    def cancel(self) -> None:
        """A queued backup is called off before it starts."""
        world = self.world
        queued = self.queued.pop(world.choices.pick("backup_cancel.which", len(self.queued)))
        hosts = [name for band in queued.hosts for name in band]
        if hosts:
            world.sut.free_host(hosts)
        world.free(queued.source.all_ids())

    def _loadable(self, copy: HostCopy) -> bool:
        # A copy that cannot fail may be loaded before its end was seen: the ledger orders the two.
        return copy.ready or copy.sure

    def can_load(self) -> bool:
        """A host copy, and room for a request and a use."""
        return (
            self.world.room_for_use()
            and len(self.requests.active) < self.world.options.requests_max
            and any(self._loadable(copy) for copy in self.copies)
        )

    def load(self) -> None:
        """Load a host copy into the units of a new request."""
        world, choices = self.world, self.world.choices
        able = [copy for copy in self.copies if self._loadable(copy)]
        copy = able[choices.pick("load.which", len(able))]
        demand = [len(ids) for ids in copy.sequence.ids]
        stream = world.h2d_streams[choices.pick("load.stream", 2)]
        granted = world.allocate(demand, UseKind.LOAD, stream, "load-back")
        if granted is None and self.requests.make_room(demand):
            granted = world.allocate(demand, UseKind.LOAD, stream, "load-back")
        if granted is None:
            self.requests.pressure()
            return
        ids = [name for band in granted for name in band]
        use = world.sut.record(UseKind.LOAD, stream, writes=ids, host_reads=copy.all_hosts())
        if not isinstance(use, Use):
            world.note("record.blocked.load")
            world.free(ids)
            return
        fails = choices.chance("load.fails", world.options.copy_failure_per_mille)
        work = copy_work(
            use,
            [runs[-1][1] for runs in copy.content],
            pieces=world.options.pieces,
            fails_after=choices.pick("load.fails_after", 3) if fails else -1,
            label=f"load {use.serial}",
        )
        event = world.sut.launch(use, work)
        request = self._request(copy, granted, ids)
        # A load that cannot fail may be read at once; one that can, only when its end was seen.
        eager = not fails and choices.chance("load.eager", world.options.eager_per_mille)
        request.ready = eager
        self.requests.active.append(request)
        copy.loads += 1
        world.opened(use, event, lambda failed: self._loaded(request, copy, failed), fails=fails)

    def _request(
        self, copy: HostCopy, granted: tuple[tuple[int, ...], ...], ids: list[int]
    ) -> Request:
        world = self.world
        length = copy.sequence.length
        output = 1 + world.choices.pick("load.output", 2 * world.facts.page_size)
        request = self.requests.new_request(Draft(length, output))
        request.ids = [list(band) for band in granted]
        request.base = list(copy.sequence.base)
        request.length = length
        for name, runs, stamp in zip(ids, copy.content, copy.stamps, strict=True):
            world.units[name].runs = runs
            world.units[name].stamp = stamp
        return request

    def _loaded(self, request: Request, copy: HostCopy, failed: bool) -> None:  # noqa: FBT001
        copy.loads -= 1
        if failed and not request.gone:
            self.world.read_undefined("failed_load", reads=request.all_ids()[:1])
            self.requests.release(request)
        request.ready = True

    def drop(self) -> None:
        """Give a host copy up; loads and the backup itself may still be running."""
        self._forget(self.copies[self.world.choices.pick("drop_host.which", len(self.copies))])

    def _forget(self, copy: HostCopy) -> None:
        copy.gone = True
        if copy in self.copies:
            self.copies.remove(copy)
            self.world.sut.free_host(copy.all_hosts())
