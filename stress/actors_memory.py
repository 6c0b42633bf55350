"""What touches units without being a request: polls, settles, moves, pins, snapshots, misuse."""

from __future__ import annotations

from collections.abc import Callable

from onearena.core.answers import Blocked
from onearena.core.rules import UseKind
from onearena.stress.actors_requests import Requests
from onearena.stress.world import World

PINNED_MAX = 6
FOREIGN_ID = (1 << 62) + 12345
"""An id no allocator of ours ever hands out: its generation lies beyond the 27 bits' half."""


class Memory:
    """Polls of events, moves and probes."""

    def __init__(self, world: World, requests: Requests) -> None:
        self.world = world
        self.requests = requests
        self.pinned: list[int] = []
        world.add("poll", lambda: bool(world.uses), self.poll)
        world.add("settle", lambda: bool(world.uses), self.settle)
        world.add("move", lambda: bool(world.units), self.move)
        world.add("compact", lambda: bool(world.units), self.compact)
        world.add("pin", self.can_pin, self.pin)
        world.add("unpin", lambda: bool(self.pinned), self.unpin)
        world.add("snapshot", lambda: True, self.snapshot)
        world.add("ask", lambda: True, self.ask)
        world.add("misuse", lambda: True, self.misuse)

    def poll(self) -> None:
        """Ask for one event, mostly an old one; retire its use when it is over."""
        world = self.world
        entry = world.uses[world.pick_of("poll.which", len(world.uses), 4)]
        if world.device.query(entry.event):
            world.retire(entry)

    def settle(self) -> None:
        """The schedule stream waits for a use."""
        world = self.world
        entry = world.uses[world.pick_of("settle.which", len(world.uses), 4)]
        if not entry.settled:
            entry.settled = True
            world.sut.settle(entry.use)
            world.note("settled")

    def _some_ids(self, name: str, count: int) -> list[int]:
        """A few held ids of one band."""
        world = self.world
        able = list(world.units)
        first = world.choices.pick(name, len(able))
        band = world.units[able[first]].band
        picked: list[int] = []
        for offset in range(len(able)):
            unit = able[(first + offset) % len(able)]
            if world.units[unit].band == band:
                picked.append(unit)
                if len(picked) >= count:
                    break
        return picked

    def move(self) -> None:
        """A demanded move of a few units of one band; never of one pinned or under a transfer."""
        world = self.world
        ids = self._some_ids("move.first", 1 + world.choices.pick("move.count", 3))
        ids = [n for n in ids if not world.units[n].fixed and not world.units[n].pinned]
        if not ids:
            return
        answer = world.sut.move(world.units[ids[0]].band, ids)
        if isinstance(answer, Blocked):
            world.note("move.blocked")
        else:
            world.note("moved.demanded", answer)

    def compact(self) -> None:
        """Opportunistic moves under a small budget."""
        world = self.world
        moved = world.sut.compact(budget_units=1 + world.choices.pick("compact.budget", 4))
        world.note("moved.opportunistic", moved)

    def can_pin(self) -> bool:
        """Something to pin."""
        return bool(self.world.units) and len(self.pinned) < PINNED_MAX

    def pin(self) -> None:
        """Pin a unit."""
        world = self.world
        for name in self._some_ids("pin.first", 1):
            if not world.units[name].pinned:
                world.units[name].pinned = True
                self.pinned.append(name)
                world.sut.pin([name], pinned=True)
                world.note("pinned")

    def unpin(self) -> None:
        """Unpin one; one that was freed meanwhile needs no call."""
        world = self.world
        name = self.pinned.pop(world.choices.pick("unpin.which", len(self.pinned)))
        if name in world.units:
            world.units[name].pinned = False
            world.sut.pin([name], pinned=False)

    def ask(self) -> None:
        """A question about a demand at the edge of what fits; nothing is asked for."""
        world, choices = self.world, self.world.choices
        facts = world.facts
        if world.fault("zero_demand"):
            world.allocate([0] * len(facts.bands), UseKind.FORWARD, world.schedule, "decode")
        band = choices.pick("ask.band", len(facts.bands))
        most = (facts.arena_bytes - world.held_bytes) // facts.bands[band].unit_bytes
        demand = [int(choices.chance("ask.more", 200)) for _ in facts.bands]
        demand[band] = max(0, most - choices.pick("ask.fewer", 3))
        world.sut.fits(demand)

    def snapshot(self) -> None:
        """Statistics at any moment."""
        self.world.survey()

    def misuse(self) -> None:
        """A call that must be refused with nothing changed."""
        world = self.world
        kinds = ["negative", "zero", "foreign", "far"]
        if world.dead:
            kinds += ["double_free", "stale_share", "stale_record", "stale_fork"]
        if world.units:
            kinds.append("too_often")
        fixed = [name for name, unit in world.units.items() if unit.fixed]
        if fixed and world.sut.capabilities.moves:
            kinds.append("move_fixed")
        shared = [name for name, unit in world.units.items() if unit.refs > 1 and not unit.fixed]
        if shared and world.sut.capabilities.virtual_ids:
            kinds.append("shared_write")
        kind = kinds[world.choices.pick("misuse.kind", len(kinds))]
        dead = world.dead[world.choices.pick("misuse.dead", len(world.dead))] if world.dead else 0
        sut = world.sut
        calls: dict[str, Callable[[], object]] = {
            "negative": lambda: sut.free([-1]),
            "zero": lambda: sut.free([0]),
            "foreign": lambda: sut.free([FOREIGN_ID]),
            "far": lambda: sut.record(
                UseKind.FORWARD, world.forward_streams[0], reads=[FOREIGN_ID]
            ),
            "double_free": lambda: sut.free([dead]),
            "stale_share": lambda: sut.share([dead]),
            "stale_record": lambda: sut.record(
                UseKind.FORWARD, world.forward_streams[0], writes=[dead]
            ),
            "stale_fork": lambda: sut.fork([dead], stream=world.schedule),
        }
        if kind == "too_often":
            held = self._some_ids("misuse.held", 1)[0]
            refs = world.units[held].refs
            calls[kind] = lambda: sut.free([held] * (refs + 1))
        elif kind == "move_fixed":
            name = fixed[world.choices.pick("misuse.fixed", len(fixed))]
            calls[kind] = lambda: sut.move(world.units[name].band, [name])
        elif kind == "shared_write":
            held = shared[world.choices.pick("misuse.shared", len(shared))]
            calls[kind] = lambda: sut.record(
                UseKind.FORWARD, world.forward_streams[0], writes=[held]
            )
        refused = sut.probe(calls[kind])
        world.note(("misuse.refused." if refused is not None else "misuse.accepted.") + kind)
