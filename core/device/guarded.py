"""A device as an arena uses it: an error of the device stops the arena, whichever call met it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onearena.core.device.interface import (
    Device,
    EventId,
    OpId,
    StreamId,
    TransferId,
    TransferStatus,
    Work,
)
from onearena.core.device.trace import Trace
from onearena.core.errors import DeviceError

Answer = TypeVar("Answer")


class GuardedDevice:
    """Passes every call of `Device` on; a `DeviceError` is told to `stop` and raised on (rule 12).

    A failed call may have hit other work, and the caller may have noted waits that were never made:
    nothing decided after it can be trusted.
    """

    __slots__ = ("_device", "_stop")

    def __init__(self, device: Device, stop: Callable[[DeviceError], None]) -> None:
        self._device = device
        self._stop = stop

    @property
    def trace(self) -> Trace:
        """The device's own account."""
        return self._device.trace

    def stream(self, name: str) -> StreamId:
        """See `Device.stream`."""
        return self._call(self._device.stream, name)

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """See `Device.launch`."""
        return self._call(self._device.launch, stream, work)

    def record(self, stream: StreamId) -> EventId:
        """See `Device.record`."""
        return self._call(self._device.record, stream)

    def wait(self, stream: StreamId, event: EventId) -> None:
        """See `Device.wait`."""
        self._call(self._device.wait, stream, event)

    def query(self, event: EventId) -> bool:
        """See `Device.query`."""
        return self._call(self._device.query, event)

    def release(self, event: EventId) -> None:
        """See `Device.release`."""
        self._call(self._device.release, event)

    def begin_transfer(self, work: Work) -> TransferId:
        """See `Device.begin_transfer`."""
        return self._call(self._device.begin_transfer, work)

    def transfer_status(self, transfer: TransferId) -> TransferStatus:
        """See `Device.transfer_status`."""
        return self._call(self._device.transfer_status, transfer)

    def cancel_transfer(self, transfer: TransferId) -> None:
        """See `Device.cancel_transfer`."""
        self._call(self._device.cancel_transfer, transfer)

    def disconnect(self, peer: int) -> None:
        """See `Device.disconnect`."""
        self._call(self._device.disconnect, peer)

    def _call(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        try:
            return call(*arguments)
        except DeviceError as error:
            self._stop(error)
            raise
