"""A second rank: another arena that hears the same calls, later, on a device that is elsewhere.

Ranks of one group see the same calls, and nothing else in common: each has a device of its own,
whose work is done sooner or later than the other's. Decisions that follow the calls alone (rule 10)
are equal on all of them. So the follower makes every call of the schedule again, up to `lag` calls
after the world made it, while its own device has either done all it could or only what some call
said the host has seen. Every answer, error and snapshot has to be the leader's.

What the group agrees on first is told and not found out: that a copy has ended, that the arena's
own work has, how a transfer ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from onearena.core.device.interface import TransferId, TransferStatus
from onearena.core.device.modeled import ModeledDevice
from onearena.core.rules import TRANSFER_KINDS
from onearena.stress.calls import Call
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.determinism import describe
from onearena.stress.sut import Grant, SystemUnderTest, Use

if TYPE_CHECKING:
    from onearena.stress.choices import Choices

ORACLE: Final = "ranks"
EVERY_SEEDS: Final = 8
"""One schedule in so many has a second rank."""
LAGS_CALLS: Final = (0, 5, 40)
STATUS_TOLD: Final = {
    "done": TransferStatus.DONE,
    "failed": TransferStatus.FAILED,
    "cancelled": TransferStatus.CANCELLED,
    "lost": TransferStatus.UNKNOWN,
}
ALONE: Final = frozenset(("boot",))
"""Calls that do not touch the arena and cost more than all others: not made again."""
NUMBERED: Final = frozenset(("launch",))
"""Calls that answer with a number of the device, which counts what other callers made as well."""


def has_follower(seed: int) -> bool:
    """Whether the schedule of this seed has a second rank."""
    return seed % EVERY_SEEDS == EVERY_SEEDS - 1


class RankDevice(ModeledDevice):
    """The follower's device: how a transfer ended is what the group said of it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.told: dict[TransferId, TransferStatus] = {}

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """What the group agreed on; before that, what this device shows."""
        told = self.told.get(transfer)
        return super().transfer_status(transfer) if told is None else told


class Follower:
    """Makes the leader's calls on a system of its own. Cost: the calls again, without oracles.

    `ahead`: its device does all work at once; else only what it must. One thread.
    """

    name = ORACLE

    def __init__(
        self, sut: SystemUnderTest, device: RankDevice, *, lag: int = 0, ahead: bool = False
    ) -> None:
        self.sut = sut
        self.device = device
        self.lag = lag
        self.ahead = ahead
        self.calls = 0
        self._heard: deque[Call | Use] = deque()
        self._streams: list[str] = []
        self._uses: dict[int, Use] = {}
        self._ends: dict[int, int] = {}  # use -> event, or transfer
        self._parted = False

    def hear(self, heard: Call | Use, streams: list[str]) -> tuple[Violation, ...]:
        """The leader made a call, or retired an own use; `streams`: those its device has so far."""
        self._streams = streams
        if isinstance(heard, Call) and heard.name in ALONE:
            return NO_VIOLATIONS
        self._heard.append(heard)
        return self._catch_up(self.lag)

    def finish(self) -> tuple[Violation, ...]:
        """The run is over: hear the rest."""
        return self._catch_up(0)

    def _catch_up(self, behind: int) -> tuple[Violation, ...]:
        while len(self._heard) > behind and not self._parted:
            heard = self._heard.popleft()
            found = self._again(heard)
            if found is not None:
                self._parted = True
                return (found,)
        return NO_VIOLATIONS

    def _again(self, heard: Call | Use) -> Violation | None:
        self.calls += 1
        for name in self._streams:
            self.device.stream(name)
        if isinstance(heard, Use):
            heard = Call(0, 0, "retire", (heard, False), None)
        answer: object = None
        error: Exception | None = None
        try:
            answer = self._take(heard)
        except Exception as raised:  # noqa: BLE001 - what the leader's call raised has to come too
            error = raised
        if self.ahead:
            while steps := self.device.enabled():
                self.device.step(steps[0])
        same = (type(error), str(error)) == (type(heard.error), str(heard.error))
        if same and (heard.name in NUMBERED or answer == heard.answer):
            return None
        return self._parts(heard, heard._replace(answer=answer, error=error))

    def _take(self, call: Call) -> object:
        sut: Any = self.sut
        args = call.args
        match call.name:
            case "allocate":
                demand, writer, stream, caller = args
                return sut.allocate(demand, writer=writer, stream=stream, caller=caller)
            case "fork":
                return sut.fork(args[0], stream=args[1])
            case "record":
                kind, stream, reads, writes, sources, targets = args
                return self._opened(
                    sut.record(
                        kind,
                        stream,
                        reads=reads,
                        writes=writes,
                        host_reads=sources,
                        host_writes=targets,
                    )
                )
            case "publish":
                return self._opened(sut.publish(args[0], args[1], peer=args[2]))
            case "evict":
                return sut.evict(args[0], args[1], evictable=args[2])
            case "compact":
                return sut.compact(budget_units=args[0])
            case "pin":
                return sut.pin(args[0], pinned=args[1])
            case "snapshot":
                return sut.snapshot(units=args[0])
            case "launch" | "process" | "settle" | "retire" | "end_transfer":
                return self._on_use(call.name, *args)
        return getattr(sut, call.name)(*args)

    def _opened(self, answer: object) -> object:
        if isinstance(answer, Use):
            self._uses[answer.serial] = answer
        return answer

    def _on_use(self, name: str, leaders: Any, *rest: Any) -> object:
        sut: Any = self.sut
        use = self._uses.get(leaders.serial)
        if use is None:
            # One of the arena's own: a move, a fork, zeroing, a translation.
            use = next((own for own, _ in sut.outstanding() if own.serial == leaders.serial), None)
            if use is None:
                use = leaders
        if name == "launch":
            end = self._ends[use.serial] = sut.launch(use, rest[0])
            return end
        if name == "retire":
            self._see(use)
            return sut.retire(use, failed=rest[0])
        if name == "end_transfer":
            transfer = self._ends.get(use.serial)
            if transfer is not None and rest[0] in STATUS_TOLD:
                self.device.told[transfer] = STATUS_TOLD[rest[0]]
            return sut.end_transfer(use, outcome=rest[0])
        return getattr(sut, name)(use)

    def _see(self, use: Use) -> None:
        """The group has seen this use end: here the device gets as far as that, and is asked."""
        event = self._ends.get(use.serial)
        if event is None or use.kind in TRANSFER_KINDS:
            event = next((at for own, at in self.sut.outstanding() if own == use), None)
        if event is None:
            return  # the call is wrong, and the leader's was refused too
        at = event
        self._run(lambda: self.device.complete(at), lambda number: number == use.stream)
        self.device.query(event)

    def _run(self, done: Callable[[], bool], first: Callable[[int], bool]) -> None:
        """Take steps of streams until `done` or until none is left, those of `first` before
        others.
        """
        while not done():
            steps = [step for step in self.device.enabled() if step.kind <= 4]
            if not steps:
                return
            self.device.step(next((step for step in steps if first(step.number)), steps[0]))

    def _parts(self, leaders: Call, own: Call) -> Violation:
        where = "ahead of" if self.ahead else "behind"
        unit, extent = _place(leaders, own, self.sut.plan.arena_bytes)
        return Violation(
            ORACLE,
            "10",
            f"a rank whose device is {where} the first one's, and that heard the same calls, "
            f"answers {leaders.name} in another way: something else than the calls decided.",
            unit=unit,
            bytes=extent,
            events=(f"first rank: {_cut(leaders)}", f"second rank: {_cut(own)}"),
        )


def _cut(call: Call) -> str:
    text = describe(call)
    if call.error is not None:
        text += f" ({call.error})"
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-190:]}"


def _place(leaders: Call, own: Call, arena_bytes: int) -> tuple[UnitName | None, ByteRange | None]:
    """What the two calls were about: an id that only one names, the bytes of a use, the arena."""
    for one, other in ((leaders, own), (own, leaders)):
        names = set(_ids(other.answer))
        for name in _ids(one.answer):
            if name not in names:
                return UnitName("id", name), None
    for value in (leaders.answer, own.answer, *leaders.args):
        if isinstance(value, Use) and (value.reads or value.writes):
            _, start, end = (*value.reads, *value.writes)[0]
            return None, ByteRange("arena", start, end)
    return None, ByteRange("arena", 0, arena_bytes)


def _ids(answer: object) -> Iterable[int]:
    return [name for ids in answer.ids for name in ids] if isinstance(answer, Grant) else ()


def follower_of(seed: int, model: str, choices: Choices) -> Follower:
    """The second rank of a schedule whose set-up `choices` has drawn: an equal arena.

    How late it hears and how far its device is follow from the seed and are no decisions: files of
    choices say nothing of ranks.
    """
    from onearena.stress.arena_scenarios import build
    from onearena.stress.choices import Choices

    again = Choices(seed, setup=choices.record()[0].decisions)
    built = build(model, again, device="rank")
    assert again.divergence is None, again.divergence
    assert isinstance(built.device, RankDevice), built.device
    turn = seed // EVERY_SEEDS
    return Follower(
        built.sut,
        built.device,
        lag=LAGS_CALLS[turn % len(LAGS_CALLS)],
        ahead=bool(turn // len(LAGS_CALLS) % 2),
    )
