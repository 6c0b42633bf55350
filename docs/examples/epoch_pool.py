"""A page pool with epochs, as an engine's author might write it, and with a mistake in it.

Freed pages wait in `limbo` with the number of the last launch before the free. Once a launch is
seen complete, everything that waited for it, or for an earlier one, is free again.

    onearena stress --system docs/examples/epoch_pool.py:build --seeds 0:200 --out runs/epoch
"""

from __future__ import annotations

from collections.abc import Sequence

from onearena.core.device.modeled import ModeledDevice
from onearena.stress.adapters import OnePoolAdapter
from onearena.stress.choices import Choices


class EpochPool:
    """Pages of one size; satisfies `onearena.stress.adapters.PagePool`."""

    def __init__(self, pages: int) -> None:
        self.free = list(range(pages))
        self.limbo: list[tuple[int, int]] = []  # (launch, page)
        self.launches: dict[int, int] = {}  # event -> launch
        self.launch = 0
        self.users: dict[int, list[tuple[int, int, bool]]] = {}  # page -> (stream, event, writes)

    def available(self) -> int:
        """Pages that could be handed out now."""
        return len(self.free)

    def is_reusable(self, page: int) -> bool:
        """Whether this one could."""
        return page in self.free

    def take(self, count: int) -> list[int]:
        """Hand out pages."""
        taken = [self.free.pop() for _ in range(count)]  # the latest freed: still in the cache
        for page in taken:
            self.users[page] = []
        return taken

    def release(self, pages: Sequence[int]) -> None:
        """Nobody holds these pages any more; work on them may still run."""
        for page in pages:
            if self.users[page]:
                self.limbo.append((self.launch, page))
            else:
                self.free.append(page)

    def before(self, stream: int, reads: Sequence[int], writes: Sequence[int]) -> list[int]:
        """Events that the stream has to wait for."""
        users = [(user, True) for page in writes for user in self.users[page]]
        users += [(user, user[2]) for page in reads for user in self.users[page]]
        return [event for (other, event, _), orders in users if orders and other != stream]

    def after(self, stream: int, reads: Sequence[int], writes: Sequence[int], event: int) -> None:
        """Work on these pages is enqueued."""
        self.launch += 1
        self.launches[event] = self.launch
        for pages, writing in ((reads, False), (writes, True)):
            for page in pages:
                self.users[page].append((stream, event, writing))

    def seen(self, event: int) -> None:
        """The host has seen a launch complete: so have ended all launches before it."""
        over = self.launches.pop(event)
        for users in self.users.values():
            users[:] = [user for user in users if user[1] != event]
        self.free += [page for launch, page in self.limbo if launch <= over]
        self.limbo = [(launch, page) for launch, page in self.limbo if launch > over]


def build(choices: Choices) -> OnePoolAdapter:
    """What `--system` calls, once a schedule; sizes come from the schedule's own choices."""
    pages = choices.between("epoch.pages", 8, 24)
    device = ModeledDevice(eager=True)
    return OnePoolAdapter(device, EpochPool(pages), page_bytes=256, pages=pages, entries_per_page=4)
