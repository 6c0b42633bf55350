"""What a device on which bytes really move offers beyond `Device`, to run beside a model."""

from __future__ import annotations

from typing import Protocol

from onearena.core.buffer import Buffer
from onearena.core.device.interface import Device, EventId, TransferId, TransferStatus
from onearena.core.device.threads_log import AccessLog
from onearena.core.device.threads_programs import RowFailure


class RealMemory(Protocol):
    """The memory that work really touches."""

    buffer: Buffer


class RealDevice(Device, Protocol):
    """A `Device` whose host may also wait, bounded, for what the model has decided to show."""

    failures: list[RowFailure]
    failure_count: int
    log: AccessLog

    @property
    def memory(self) -> RealMemory:
        """Arena, sinks and guards."""

    @property
    def wrong_accesses(self) -> int:
        """How many accesses have found wrong bytes so far."""

    def open_gate(self, number: int, value: int) -> None:
        """Let program `number` go on to its effect `value` - 1."""

    def open_all_gates(self) -> None:
        """Let every program run to its end."""

    def stop_transfer(self, number: TransferId) -> None:
        """The peer stops before its next access, and leaves what it was to write undefined."""

    def transfers_of(self, peer: int) -> list[TransferId]:
        """Transfers of `peer` whose end the host has not seen."""

    def finish_event(self, event: EventId) -> None:
        """Wait, bounded, until `event` is complete, and see it."""

    def finish_transfer(self, number: TransferId, status: TransferStatus) -> None:
        """Wait, bounded, until the transfer touches nothing; the host then sees `status`."""

    def finish(self) -> None:
        """Wait, bounded, until every stream has run all it got; then collect."""

    def collect(self) -> None:
        """Log what has ended since the last call."""

    def close(self) -> None:
        """End everything."""
