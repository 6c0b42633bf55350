"""What happened in one run, in order: host calls, stream work, events, transfers, with names.

A `Timeline` is a probe of a replay. It keeps each call of the world and each record of the device
as a `Row`, with the call of the system under test that it happened in and the stack of whoever
enqueued it, and a snapshot after every world step. It reads only and changes nothing: the replay
has the trace of one without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from onearena.core.device.interface import Access, Space, TransferStatus
from onearena.core.device.trace import (
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.snapshot import BandSnapshot, Snapshot
from onearena.stress.calls import Call
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.races import kind_name
from onearena.stress.sut import Use
from onearena.stress.timeline_words import CallWords

if TYPE_CHECKING:
    from onearena.stress.world import World

ROWS_MAX: Final = 50_000
SNAPSHOTS_MAX: Final = 2_000
FRAMES_MAX: Final = 24
HOST: Final = "host"
TRANSFERS: Final = "transfers"
ORDER_TYPES: Final = (Enqueue, Record, WaitEvent, Observe, TransferBegin, TransferEnd)
_CALLS_MODULE: Final = "onearena.stress.calls"
_QUIET_MODULES: Final = (__name__, "onearena.core.device.trace")


@dataclass(slots=True)
class Row:
    """One thing that happened.

    `order` counts the records that bear on order, as reports of the order oracle do; -1 for others.
    `kind` is call, enqueue, record, wait, observe, begin, end, run, effect or done; `number` the
    call's serial, the event, or the op or transfer. `actor` is `HOST`, `TRANSFERS` or a stream.
    `call` is the call of the system under test it happened in, "" for the world's own.
    """

    order: int
    step: int
    actor: str
    kind: str
    number: int
    text: str
    call: str = ""
    accesses: tuple[Access, ...] = ()
    stack: tuple[str, ...] = ()


class Timeline:
    """Collects rows and snapshots of one replay; see the module. Bounded by the limits above."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.snapshots: list[Snapshot] = []
        """After set-up, then after each step; the step that failed included if it did not raise."""
        self.labels: list[str] = ["setup"]
        self.streams: list[str] = []
        self.dropped = 0
        self.blind = ""  # why no further snapshot could be taken, if so
        self.schedule = ""  # name of the schedule stream
        self.host_units: dict[
            tuple[int, int], str
        ] = {}  # host bytes -> the name of their last unit
        # Unlike the run's own it goes on after the first race: a page tells of all of them.
        self.order = OrderOracle(multiple=True)
        self._world: World | None = None
        self._order = -1
        self._held: list[Row] = []  # of a call whose answer is not known yet
        self._actors: dict[int, str] = {}  # op or transfer -> where it runs
        self._words = CallWords()

    # -- the probe
    def begin(self, world: World) -> None:
        """Follow this run."""
        self._world = world
        self.streams = world.device.trace.stream_names
        self.schedule = self.streams[world.schedule]
        self._words = CallWords([band.name for band in world.bands], self.streams)
        world.device.trace.subscribe(self._record)
        world.sut.follow(self._call)
        self._look()

    def tick(self) -> None:
        """A step is over."""
        self._release()
        self._name_ranges()
        self._look()

    def end(self) -> None:
        """All steps are over; draining goes on being recorded."""
        self._release()
        self._name_ranges()

    def close(self) -> None:
        """The run is over: whatever was held belongs to a call that raised without a word."""
        self._release()
        self._name_ranges()

    def _look(self) -> None:
        if self.blind or len(self.snapshots) >= SNAPSHOTS_MAX:
            return
        assert self._world is not None, "a probe looks between begin and end"
        try:
            self.snapshots.append(self._world.sut.inner.snapshot())
        except Exception as error:  # noqa: BLE001 - a broken system may not be able to say
            self.blind = f"{type(error).__name__}: {error}"

    # -- rows
    def _step(self) -> int:
        assert self._world is not None, "records come after begin"
        step = self._world.choices.step
        if step >= len(self.labels):
            label = self._world.choices.label
            self.labels += [label] * (step + 1 - len(self.labels))
        return step

    def _call(self, call: Call) -> None:
        step = self._step()
        if call.name == "snapshot":
            self._release()
            return
        text = self._words.text(call)
        if isinstance(call.answer, Use):
            for name, start, end in (*call.answer.host_reads, *call.answer.host_writes):
                self.host_units[start, end] = self._words.host_name(name)
        row = Row(-1, step, HOST, "call", call.serial, text, call.name)
        own = [held for held in self._held if not held.call]
        within = [held for held in self._held if held.call]
        self._held = []
        self._add([*own, row, *within])

    def _release(self) -> None:
        held, self._held = self._held, []
        self._add(held)

    def _add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if len(self.rows) < ROWS_MAX:
                self.rows.append(row)
            else:
                self.dropped += 1

    def _record(self, record: Any) -> None:
        order = -1
        if isinstance(record, ORDER_TYPES):
            self._order += 1
            order = self._order
            self.order.feed(record)
        actor, kind, number, text, accesses = self._told(record)
        stack: tuple[str, ...] = ()
        call = ""
        if order >= 0:
            call, stack = _caller(inspect.currentframe())
        row = Row(order, self._step(), actor, kind, number, text, call, accesses, stack)
        if call:
            self._held.append(row)
        else:
            self._add([row])

    def _told(self, record: Any) -> tuple[str, str, int, str, tuple[Access, ...]]:
        """(actor, kind, number, words, accesses) of a record."""
        if isinstance(record, Enqueue):
            actor = self._actors[record.op] = self.streams[record.stream]
            label = f" '{record.label}'" if record.label else ""
            text = f"op {record.op}: {kind_name(record.kind)}{label}"
            return actor, "enqueue", record.op, text, record.accesses
        if isinstance(record, TransferBegin):
            self._actors[record.transfer] = TRANSFERS
            text = f"transfer {record.transfer}: {kind_name(record.kind)} begins"
            return TRANSFERS, "begin", record.transfer, text, record.accesses
        if isinstance(record, Record):
            actor = self.streams[record.stream]
            return actor, "record", record.event, f"event {record.event} recorded here", ()
        if isinstance(record, WaitEvent):
            actor = self.streams[record.stream]
            return actor, "wait", record.event, f"waits for event {record.event}", ()
        if isinstance(record, Observe):
            return HOST, "observe", record.event, f"sees event {record.event} complete", ()
        if isinstance(record, TransferEnd):
            status = TransferStatus(record.status).name.lower()
            text = f"sees transfer {record.transfer} end: {status}"
            return HOST, "end", record.transfer, text, ()
        actor = self._actors.get(record.op, TRANSFERS)
        name = f"{'transfer' if actor == TRANSFERS else 'op'} {record.op}"
        if isinstance(record, Start):
            return actor, "run", record.op, f"{name} starts to run", ()
        if isinstance(record, Effect):
            text = f"{name} takes effect, piece {record.piece}"
            return actor, "effect", record.op, text, record.accesses
        assert isinstance(record, End), record
        return actor, "done", record.op, f"{name} is done", ()

    # -- names of bytes
    def _name_ranges(self) -> None:
        """Units move: the rows of a step get the names that hold after it, or else before it."""
        pictures = self.snapshots[-1:]
        if self._world is not None and not self.blind:
            try:
                pictures = [self._world.sut.inner.snapshot(units=False), *pictures]
            except Exception as error:  # noqa: BLE001 - see _look
                self.blind = f"{type(error).__name__}: {error}"
        for row in reversed(self.rows):
            if row.step < self._step():
                return
            if row.accesses and ";" not in row.text:
                row.text += "; " + accesses_text(row.accesses, pictures, self.host_units)


def _caller(frame: FrameType | None) -> tuple[str, tuple[str, ...]]:
    """The call of the system under test that is going on, and the stack below the world's loop,
    innermost first.
    """
    call = ""
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MAX:
        module = str(frame.f_globals.get("__name__", ""))
        name = frame.f_code.co_qualname
        if module == _CALLS_MODULE and name.startswith("LoggedSut."):
            call = call or name.partition(".")[2]
        elif module.startswith("onearena.") and module not in _QUIET_MODULES:
            place = module.removeprefix("onearena.").replace(".", "/")
            lines.append(f"{name} ({place}.py:{frame.f_lineno})")
        if name in {"World.replay_step", "World.step"}:
            break
        frame = frame.f_back
    return call, tuple(lines)


def place_text(
    access: Access,
    snapshots: Iterable[Snapshot],
    host_units: Mapping[tuple[int, int], str] | None = None,
) -> tuple[str, int]:
    """What bytes an access touches: a band and a unit in the first picture that shows it, or words
    and -1. `host_units` names host bytes.
    """
    if access.space is Space.BUFFER:
        return "its resolved ids", -1
    if access.space is Space.TABLE:
        return "the id table", -1
    if access.space is Space.HOST:
        name = (host_units or {}).get((access.start, access.end))
        return f"host {name}" if name else f"host[{access.start}:{access.end})", -1
    for picture in snapshots:
        for band in picture.bands:
            unit = unit_at(band, access.start)
            if unit is not None:
                return band.name, unit
    if access.start < 0:
        return "a sink", -1
    return f"arena[{access.start}:{access.end})", -1


def unit_at(band: BandSnapshot, byte: int) -> int | None:
    """The unit of a band that holds an arena byte; None outside its frontiers."""
    unit = (byte - band.origin_bytes) // band.unit_bytes
    return unit if band.low_unit <= unit < band.high_unit else None


def accesses_text(
    accesses: Iterable[Access],
    snapshots: Iterable[Snapshot],
    host_units: Mapping[tuple[int, int], str] | None = None,
) -> str:
    """`reads full 3-5; writes full 5, state 2`."""
    pictures = list(snapshots)
    parts: list[str] = []
    listed = list(accesses)
    for verb, writes in (("reads", False), ("writes", True)):
        units: dict[str, list[int]] = {}
        for access in listed:
            if access.writes == writes:
                name, unit = place_text(access, pictures, host_units)
                units.setdefault(name, []).append(unit)
        if units:
            parts.append(f"{verb} " + ", ".join(_runs(name, row) for name, row in units.items()))
    return "; ".join(parts) or "touches nothing"


def _runs(name: str, units: list[int]) -> str:
    """Unit numbers with runs joined: `full 3-5, 9`."""
    numbers = sorted({unit for unit in units if unit >= 0})
    if not numbers:
        return name
    runs: list[list[int]] = []
    for unit in numbers:
        if runs and unit == runs[-1][1] + 1:
            runs[-1][1] = unit
        else:
            runs.append([unit, unit])
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:6]]
    more = "..." if len(runs) > 6 else ""
    return f"{name} {' '.join(words)}{more}"
