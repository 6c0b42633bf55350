"""A schedule of ours as an engine's log: what an engine would have written, had it been ours.

The probe listens to the device's own trace and to the calls of the world. What happened to units is
read off the difference of two snapshots, so the log holds facts and no opinion of the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onearena.core.device.interface import Access, TransferStatus
from onearena.core.device.trace import (
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.snapshot import Snapshot
from onearena.stress.calls import Call
from onearena.stress.engine_log import SPACES, LogBand, LogWriter, Span, TextOut
from onearena.stress.log_lines import KIND_NUMBERS
from onearena.stress.oracles.fact_types import (
    BEYOND,
    HOLE,
    LIVE,
    PENDING,
    VACATED,
    Change,
    changes_between,
)
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.sut import Use

if TYPE_CHECKING:
    from onearena.stress.world import World

TRACE_TYPES: Final = (Enqueue, Record, WaitEvent, Observe, TransferBegin, TransferEnd)
PURE_CALLS: Final = frozenset(("fits", "price", "evict", "boot", "snapshot"))
KIND_WORDS: Final = {number: word for word, number in KIND_NUMBERS.items()}
OF_WORLD: Final = frozenset(KIND_NUMBERS[word] for word in ("forward", "backup", "load"))


def export_log(spec: RunSpec, out: TextOut) -> RunResult:
    """Run `spec` (a seed or a recording) and write its log to `out`; the run's result."""
    exporter = LogExporter(out)
    result = run_schedule(replace(spec, state_digests=False), exporter)
    exporter.close()
    return result


class LogExporter:
    """A probe that writes; changes nothing of the run. Cost: a snapshot with units a call."""

    def __init__(self, out: TextOut) -> None:
        self._out = out
        self._log: LogWriter | None = None
        self._world: World | None = None
        self._shown: Snapshot | None = None
        self._held: list[Any] = []
        self._streams: Sequence[str] = ()
        self._bands: Sequence[str] = ()
        self._transfers: dict[int, int] = {}  # serial of an open transfer's use -> its number

    def begin(self, world: World) -> None:
        """Follow this run."""
        plan = world.sut.plan
        self._world = world
        self._streams = world.device.trace.stream_names
        self._bands = [band.name for band in plan.bands]
        self._log = LogWriter(
            self._out,
            arena_bytes=plan.arena_bytes,
            bands=[
                LogBand(
                    band.name,
                    band.unit_bytes,
                    band.capacity_units,
                    band.origin_bytes,
                    band.first_unit,
                )
                for band in plan.bands
            ],
            schedule_stream=self._streams[plan.schedule_stream],
        )
        world.device.trace.subscribe(self._held.append, TRACE_TYPES)
        world.sut.follow(self._call)
        self._shown = self._look()
        self._units(changes_between(None, self._shown) if self._shown is not None else ())

    def tick(self) -> None:
        """Nothing to do: calls say it all."""

    def end(self) -> None:
        """Draining goes on being logged."""

    def close(self) -> None:
        """The run is over: what no call followed still goes to the log."""
        if self._log is not None:
            self._records(None)

    def _look(self) -> Snapshot | None:
        """None: a broken system may not be able to say."""
        assert self._world is not None, "an exporter looks between begin and close"
        try:
            return self._world.sut.inner.snapshot()
        except Exception:  # noqa: BLE001 - whatever a planted fault raises here says nothing new
            return None

    def _call(self, call: Call) -> None:
        assert self._log is not None, "calls come after begin"
        if call.name in PURE_CALLS:
            self._records(None)
            return
        now = self._look()
        changes = changes_between(self._shown, now) if now is not None else []
        use = call.args[0] if call.name == "launch" else None
        self._told(call)
        if self._held or changes:
            with self._log.call():
                self._records(use if isinstance(use, Use) else None)
                if call.name == "disconnect" and isinstance(call.args[0], int):
                    self._log.disconnect(call.args[0])
                self._units(changes)
        self._shown = now if now is not None else self._shown
        answer = call.answer
        if call.name == "record" and isinstance(answer, Use):
            stream, kind = self._streams[answer.stream], answer.kind.name.lower()
            self._log.use(kind, stream, _spans(answer.accesses), number=answer.serial)

    def _told(self, call: Call) -> None:
        """What the call tells the allocator; the units that it lets go of come after it."""
        assert self._log is not None
        first = call.args[0] if call.args else None
        if call.error is not None:
            return
        if call.name == "process" and isinstance(first, Use):
            self._log.process(first.serial)
        elif call.name == "end_transfer" and isinstance(first, Use) and call.args[1] == "lost":
            number = self._transfers.get(first.serial)
            if number is not None:
                self._log.transfer_end(number, "lost")

    # -- records
    def _records(self, use: Use | None) -> None:
        held, self._held[:] = list(self._held), []
        for record in held:
            self._record(record, use)

    def _record(self, record: Any, use: Use | None) -> None:
        log, streams = self._log, self._streams
        assert log is not None
        if isinstance(record, Enqueue):
            log.enqueue(
                KIND_WORDS[record.kind],
                streams[record.stream],
                _spans(record.accesses),
                use=use.serial if use is not None and record.kind in OF_WORLD else None,
                label=record.label,
                number=record.op,
            )
        elif isinstance(record, Record):
            log.record(streams[record.stream], number=record.event)
        elif isinstance(record, WaitEvent):
            log.wait(streams[record.stream], record.event)
        elif isinstance(record, Observe):
            log.observe(record.event)
        elif isinstance(record, TransferBegin):
            peer = use.peer if use is not None else 0
            if use is not None:
                self._transfers[use.serial] = record.transfer
            kind, number = KIND_WORDS[record.kind], record.transfer
            log.transfer(kind, peer, _spans(record.accesses), number=number)
        elif isinstance(record, TransferEnd):
            log.transfer_end(record.transfer, TransferStatus(record.status).name.lower())

    # -- units
    def _units(self, changes: Sequence[Change]) -> None:
        """Frees, then moves, then hand-outs: a unit is left before somebody else gets it."""
        assert self._log is not None
        for band, name in enumerate(self._bands):
            mine = [change for change in changes if change[0] == band]
            if mine:
                _write_units(self._log, name, mine)


def _write_units(log: LogWriter, band: str, changes: Sequence[Change]) -> None:
    """The lines of one band's changed units."""
    left = {old: unit for _, unit, _, _, old, name in changes if old and old != name}
    came = {name: unit for _, unit, _, _, old, name in changes if name and name != old}
    freed = sorted(unit for name, unit in left.items() if name not in came)
    moved = sorted((unit, came[name]) for name, unit in left.items() if name in came)
    given = sorted(unit for name, unit in came.items() if name not in left)
    limbo = (LIVE, PENDING, VACATED)
    holes = sorted(c[1] for c in changes if c[2] in limbo and c[3] == HOLE)
    beyond = sorted(c[1] for c in changes if c[2] in limbo and c[3] == BEYOND)
    if freed:
        log.free(band, freed)
    if moved:
        log.move(band, moved)
    if given:
        log.hand_out(band, given)
    if holes:
        log.reusable(band, holes)
    if beyond:
        log.retreat(band, beyond)


def _spans(accesses: Sequence[Access]) -> list[Span]:
    """Accesses in the words of a log."""
    return [
        (SPACES[space], start, end, "write" if writes else "read")
        for space, start, end, writes in accesses
    ]
