"""Who answers Ctrl-C: a terminal interrupts a command and all its processes at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Final

_INTERRUPT: Final = (signal.SIGINT,)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """No interrupt for this thread until after, nor for processes that it starts meanwhile.

    They inherit the mask, so none dies of an interrupt before it can say what that means to it.
    """
    # Its first process makes the library start a tracker, and that lets interrupts through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """From now on the process that started this one decides what an interrupt means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
