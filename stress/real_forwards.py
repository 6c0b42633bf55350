"""What real bytes say: the verdict on schedules whose work runs on the threads device.

Two oracles of their own. `threads-bytes`: forwards, sends and copies compare what they read with
what logical history says it should be, lane by lane, and guards are checked; a report names band,
unit, lane, and the stamps expected and found. `threads-order`: the order oracle over the access log
of the threads, in which each operation has the bytes that it really touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from onearena.core.arena_state import ArenaOptions
from onearena.core.device.interface import POISON, UNDEFINED, ZERO, Access, OpKind, Space
from onearena.core.device.modeled_memory import Grids
from onearena.core.device.threads_memory import DeviceMemory
from onearena.core.device.threads_paired import PairedDevice
from onearena.core.device.threads_programs import RowFailure
from onearena.core.device.trace import Effect, End, Enqueue, Start, TraceRecord, TransferBegin
from onearena.core.plan import StoragePlan
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, UnitName, Violation
from onearena.stress.oracles.order import OrderOracle

BYTES_ORACLE: Final = "threads-bytes"
ORDER_ORACLE: Final = "threads-order"
REPORTS_MAX: Final = 8
TIMEOUT_S: Final = 60.0
SALTS: Final = (1 << 31) - 1
_WORDS_FOR_STAMPS: Final = {ZERO: "zeros", POISON: "poison", UNDEFINED: "undefined bytes"}


def real_device(
    plan: StoragePlan, options: ArenaOptions, grids: Grids, *, seed: int, delays: int = 0
) -> tuple[PairedDevice, RealChecks]:
    """A modeled device with threads beside it, on fresh memory for `plan`, and its oracles."""
    pools = plan.sub_pools
    host = sum(
        count * pool.unit_bytes for count, pool in zip(options.host_units, pools, strict=True)
    )
    memory = DeviceMemory(
        plan.geometry,
        host_bytes=host,
        buffer_slots=options.buffer_slots,
        entry_bytes=[pool.entry.entry_bytes for pool in pools],
        salt=1 + seed % SALTS,
    )
    device = PairedDevice(
        grids=grids, memory=memory, seed=seed + (delays << 64), timeout_s=TIMEOUT_S
    )
    return device, RealChecks(device, plan)


def order_records(records: Sequence[TraceRecord]) -> Iterator[TraceRecord]:
    """The host-order records of an access log, each operation with what it really touched.

    One that did not run to its end, or ran a host callable, keeps what the host recorded for it.
    """
    touched: dict[int, dict[Access, None]] = {}
    ended: set[int] = set()
    for record in records:
        if type(record) is Effect:
            touched.setdefault(record.op, {}).update(dict.fromkeys(record.accesses))
        elif type(record) is End:
            ended.add(record.op)
    for record in records:
        if isinstance(record, Enqueue | TransferBegin):
            number = record[0]
            real = touched.get(number, {})
            if number not in ended or not real:
                real.update(dict.fromkeys(record.accesses))
            yield record._replace(accesses=tuple(real))
        elif not isinstance(record, Start | Effect | End):
            yield record


class RealChecks:
    """The oracles of one run on `device`. `poll` costs nothing while nothing is wrong."""

    def __init__(self, device: PairedDevice, plan: StoragePlan) -> None:
        self.device = device
        self._plan = plan
        self._judged = 0
        self._told = 0
        self.accesses = self.overlaps = 0
        self._grids = [band.grid for band in plan.geometry.bands]

    def poll(self) -> tuple[Violation, ...]:
        """What accesses that have ended found wrong since the last call."""
        real = self.device.real
        if real.wrong_accesses == self._judged:
            return NO_VIOLATIONS
        real.collect()
        self._judged = real.failure_count  # a program still running is judged when it has ended
        return self._new()

    def finish(self) -> tuple[Violation, ...]:
        """Let everything end, then judge bytes, guards and the order of all accesses."""
        real = self.device.real
        self.device.open_gates()
        real.finish()
        self.accesses, self.overlaps = real.log.accesses, real.log.overlaps()
        found = list(self._new())
        found += [
            Violation(
                BYTES_ORACLE,
                "geometry",
                f"a guard was written: byte {damage.address} holds {damage.found} instead of "
                f"{damage.expected}; {damage.bytes_damaged} bytes differ.",
                bytes=ByteRange("arena", damage.address, damage.address + 1),
            )
            for damage in real.memory.buffer.check_guards()
        ]
        return (*found[:REPORTS_MAX], *self.order())

    def order(self) -> tuple[Violation, ...]:
        """The order oracle over the access log so far."""
        oracle = OrderOracle()
        for record in order_records(self.device.real.trace.records):
            for violation in oracle.feed(record):
                return (_renamed(violation),)
        return NO_VIOLATIONS

    def _new(self) -> tuple[Violation, ...]:
        """Failures nobody was told of yet."""
        failures = self.device.real.failures[self._told :]
        self._told += len(failures)
        return tuple(self._violation(failure) for failure in failures)

    def close(self) -> None:
        """End the threads."""
        self.device.close()

    def _violation(self, failure: RowFailure) -> Violation:
        expected, found = _stamp(failure.expected_stamp), _stamp(failure.found_stamp)
        unit, lane = self._place(failure)
        kind = UseKind(failure.kind) if failure.kind < 16 else OpKind(failure.kind)
        where = f" (lane {lane})" if lane else ""
        return Violation(
            BYTES_ORACLE,
            "6",
            f"{failure.what}: {kind.name.lower()} {failure.label!r} expected {expected} and found "
            f"{found}{where}.",
            unit=unit,
            bytes=ByteRange(failure.space.name.lower(), failure.address, failure.address + 8),
            details={
                "op": failure.number,
                "lane": lane,
                "expected_word": f"{failure.expected & (1 << 64) - 1:#018x}",
                "found_word": f"{failure.found & (1 << 64) - 1:#018x}",
                "expected_stamp": failure.expected_stamp,
                "found_stamp": failure.found_stamp,
            },
        )

    def _place(self, failure: RowFailure) -> tuple[UnitName | None, str]:
        """The unit and lane of the wrong word, as the operation that found it names them."""
        address = failure.address
        band = self._band(failure) if failure.space is Space.ARENA else None
        if band is None:
            return None, ""
        grid, pool = self._grids[band], self._plan.sub_pools[band]
        unit, rest = divmod(address - grid.origin_bytes, grid.unit_bytes)
        offset = rest % pool.entry.entry_bytes
        for lane in pool.entry.lanes:
            if lane.offset_bytes <= offset < lane.offset_bytes + lane.size_bytes:
                return UnitName(pool.name, unit), lane.name
        return UnitName(pool.name, unit), ""

    def _band(self, failure: RowFailure) -> int | None:
        """The band whose unit the host recorded, for that operation, around the wrong word."""
        for record in reversed(self.device.real.trace.records):
            if isinstance(record, Enqueue | TransferBegin) and record[0] == failure.number:
                for space, start, end, _ in record.accesses:
                    if space != Space.ARENA or not start <= failure.address < end:
                        continue
                    for band, grid in enumerate(self._grids):
                        size = grid.unit_bytes
                        if end - start == size and not (start - grid.origin_bytes) % size:
                            return band
        return None


def _stamp(stamp: int | None) -> str:
    if stamp is None:
        return "bytes that no stamp wrote"
    return _WORDS_FOR_STAMPS.get(stamp, f"stamp {stamp}")


def _renamed(violation: Violation) -> Violation:
    return Violation(
        ORDER_ORACLE,
        violation.rule,
        violation.message,
        unit=violation.unit,
        bytes=violation.bytes,
        events=violation.events,
        details=violation.details,
    )
