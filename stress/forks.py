"""Work in a fork of this process: what it said, how it ended, what it cost.

For what may change everything around it, die, or never return: planted faults, and schedules of
systems whose compiled code may write anywhere. The fork says plain data (JSON), a line at a time,
so what it said before a death is known. Only a process without threads of its own may fork.
"""

from __future__ import annotations

import json
import os
import resource
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tell = Callable[[object], None]
"""Sends one thing that JSON can hold."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a fork may use before the system ends it; None: no limit. `cpu_s` is whole seconds of
    the processor, `wall_s` the clock's, `memory_bytes` address space.
    """

    cpu_s: int | None = None
    wall_s: float | None = None
    memory_bytes: int | None = None


UNLIMITED = Limits()


@dataclass(frozen=True, slots=True)
class Ended:
    """A fork that is over. `said`: everything it told, in order, but for a last thing that its end
    cut short. `status`: as `os.wait` has it, 0 if `run` returned. `seconds`: the processor's.
    """

    said: list[Any]
    status: int
    seconds: float


def in_fork(run: Callable[[Tell], object], limits: Limits = UNLIMITED) -> Ended:
    """Run it in a fork with a function that tells; what else it changes is lost.

    An exception that leaves `run` ends the fork with status 1: what is to be known of it has to be
    told. Cost: the fork, some milliseconds for each gigabyte of this process.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            os.close(reader)
            _limit(limits)
            with os.fdopen(writer, "w", buffering=1) as pipe:
                run(lambda what: _tell(pipe, what))
            ended = 0
        finally:
            os._exit(ended)
    os.close(writer)
    text, over = _read(reader, limits.wall_s)
    if not over:
        os.kill(child, 9)
    _, status, usage = os.wait4(child, 0)
    said = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    return Ended(said, status, usage.ru_utime + usage.ru_stime)


def _limit(limits: Limits) -> None:
    if limits.cpu_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s))
    if limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))


def _tell(pipe: Any, what: object) -> None:
    pipe.write(json.dumps(what) + "\n")


def _read(reader: int, timeout_s: float | None) -> tuple[bytes, bool]:
    """All that comes through a pipe, and whether its writer was done within the time."""
    parts: list[bytes] = []
    end = None if timeout_s is None else time.monotonic() + timeout_s
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([pipe], [], [], left)[0]:
                return b"".join(parts), False
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts), True
            parts.append(part)
