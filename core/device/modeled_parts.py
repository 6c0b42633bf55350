"""What a modeled device is made of: step tokens; the state of events, streams, transfers."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from onearena.core.device.interface import TransferStatus
from onearena.core.device.modeled_effects import Job


class StepKind(enum.IntEnum):
    """What a device step does. Stream steps come first; values are stored: append only."""

    START = 0
    EFFECT = 1
    END = 2
    PASS = 3
    COMPLETE = 4
    TRANSFER_START = 5
    TRANSFER_EFFECT = 6
    TRANSFER_END = 7
    CANCEL_ACKNOWLEDGED = 8
    TRANSFER_FAIL = 9
    PEER_DIES = 10


class Step(NamedTuple):
    """A step token. `number` is a stream (START to COMPLETE), a transfer, or a peer (PEER_DIES)."""

    kind: StepKind
    number: int


Chooser: TypeAlias = Callable[[Sequence[Step]], int]
"""Picks one of the enabled steps by its index."""

Gate: TypeAlias = Callable[[str, int], bool]
"""Whether the host gets to see something that is so: ("event", id) or ("transfer", id)."""

# Queue items of a stream are (code, payload).
OP: Final = 0
RECORD: Final = 1
WAIT: Final = 2


class Event:
    """One recorded event. Streams that wait on it are told when it completes."""

    __slots__ = ("clock", "complete", "number", "observed", "position", "stream", "waiters")

    def __init__(self, number: int, stream: int, position: int, clock: tuple[int, ...]) -> None:
        self.number = number
        self.stream = stream
        self.position = position  # its place among the events of its stream, from 1
        self.clock = clock  # per stream, how many of its events complete no later than this one
        self.complete = False
        self.observed = False
        self.waiters: list[Stream] = []


class Stream:
    """One stream: what is enqueued, what runs, and its one next step, if it has one."""

    __slots__ = (
        "clock",
        "name",
        "number",
        "queue",
        "recorded",
        "running",
        "stalled",
        "token",
        "tokens",
    )

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.queue: deque[tuple[int, Job | Event]] = deque()
        self.running: Job | None = None
        self.stalled = False
        self.recorded = 0
        self.clock: list[int] = []
        self.token: Step | None = None
        self.tokens = tuple(Step(kind, number) for kind in list(StepKind)[: StepKind.COMPLETE + 1])


class Transfer:
    """One transfer whose end the host has not seen."""

    __slots__ = ("acknowledge", "cancelling", "fail", "job", "started", "status", "token", "tokens")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.status = TransferStatus.RUNNING
        self.started = False
        self.cancelling = False
        self.tokens = tuple(
            Step(kind, job.number)
            for kind in (StepKind.TRANSFER_START, StepKind.TRANSFER_EFFECT, StepKind.TRANSFER_END)
        )
        self.token: Step | None = self.tokens[0]
        self.acknowledge = Step(StepKind.CANCEL_ACKNOWLEDGED, job.number)
        self.fail = Step(StepKind.TRANSFER_FAIL, job.number)


def join_clocks(clock: list[int], other: Sequence[int]) -> None:
    """Elementwise maximum, into `clock`."""
    if len(clock) < len(other):
        clock.extend([0] * (len(other) - len(clock)))
    for i, position in enumerate(other):
        clock[i] = max(clock[i], position)


def named(job: Job) -> str:
    """The label of a job for a sentence, or nothing."""
    return f" ({job.work.label})" if job.work.label else ""
