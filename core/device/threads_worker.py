"""One thread of the threads device: its ring of commands, and what it was given."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from onearena.core import kernels
from onearena.core.device.threads_programs import Program
from onearena.core.errors import DeviceError

RING_COMMANDS: Final = 1 << 13


class Worker:
    """One thread: a stream, or a lane of transfers."""

    __slots__ = ("bodies", "name", "number", "programs", "put", "ring", "state", "stuck", "thread")

    def __init__(self) -> None:
        self.state = np.zeros(24, np.int64)
        self.ring = np.zeros((RING_COMMANDS, 3), np.int64)
        self.begin(0, "")

    def begin(self, number: int, name: str) -> None:
        """A new life, without a thread yet."""
        self.number = number
        self.name = name
        self.state[:] = 0
        self.put = 0
        self.programs: deque[Program] = deque()
        self.bodies: dict[int, tuple[Callable[..., object], Program]] = {}
        self.stuck = -1  # the event it waited for in vain
        self.thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether it has run all it got."""
        return int(self.state[kernels.Q_TAKEN]) >= self.put

    def put_command(self, command: int, argument: int, count: int, futex: int) -> None:
        """Append a command and wake the thread; `DeviceError` when the ring is full. O(1)."""
        # One place stays free: `end` needs it.
        if self.put - int(self.state[kernels.Q_TAKEN]) >= RING_COMMANDS - 1:
            raise DeviceError(f"stream {self.name!r} has {RING_COMMANDS} commands before it")
        self._put(command, argument, count, futex)

    def end(self, futex: int) -> None:
        """The last command. A stale one of an earlier life must never be taken in its place."""
        self._put(kernels.DO_END, 0, 0, futex)

    def _put(self, command: int, argument: int, count: int, futex: int) -> None:
        self.ring[self.put % RING_COMMANDS] = (command, argument, count)
        self.put += 1
        kernels.thread_signal(self.state.ctypes.data + 8 * kernels.Q_PUT, self.put, futex)


_spare: list[Worker] = []  # of closed devices: fresh pages are dear


def take_worker(number: int, name: str) -> Worker:
    """A worker without a thread; its ring may have served an earlier device."""
    worker = _spare.pop() if _spare else Worker()
    worker.begin(number, name)
    return worker


def give_back(worker: Worker) -> None:
    """Its thread has ended."""
    _spare.append(worker)
