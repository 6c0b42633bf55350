"""A threads device beside a modeled one: the model decides what the host sees, the threads do it.

Logical progress must not depend on timing (lifecycle rule 10), and one choices file must replay on
every device. So each call goes to both devices. What the host may observe, and when, is the
model's: it takes the recorded steps. When the model shows an event complete or a transfer ended,
the host waits (bounded) until the threads really are that far; when it shows nothing, nothing is
seen, however far the threads are. That is legal in both directions: a real device may be slower or
faster than any query shows, and every edge between the two is one the host has anyway.

Between two observations the threads run on their own. Some programs are held back until the model
starts them (or each of their effects), so that a stream the schedule stalls is late on real bytes
too; a program never waits for the model longer than a bound, and the model never for a program.
"""

from __future__ import annotations

import hashlib
from typing import Final

from onearena.core.device.interface import EventId, OpId, StreamId, TransferId, TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.device.modeled_memory import Grids
from onearena.core.device.real import RealDevice
from onearena.core.device.threads import ENDED, ThreadsDevice
from onearena.core.device.threads_memory import DeviceMemory
from onearena.core.device.threads_programs import Pacing
from onearena.core.device.trace import Effect, End, Observe, Trace, TransferEnd

# Of ten programs: three run as soon as they may, four wait to be started, three for each effect.
_GATES: Final = (0, 0, 0, 1, 1, 1, 1, 2, 2, 2)
_STOPS: Final = (StepKind.TRANSFER_FAIL, StepKind.CANCEL_ACKNOWLEDGED)


def pacing(seed: int, number: int) -> Pacing:
    """How program `number` of the run of `seed` (any integer) is slowed down; pure."""
    run = hashlib.blake2b(b"%d" % seed, digest_size=8).digest()
    drawn = hashlib.blake2b(b"%d" % number, key=run, digest_size=2).digest()
    return Pacing(_GATES[int.from_bytes(drawn, "little") % len(_GATES)], 1 + seed)


class PairedDevice(ModeledDevice):
    """A modeled device whose work also runs on `real`. `close` ends the threads.

    Digests of `trace` equal those of the modeled device alone: the threads add nothing to it. Their
    own account is `real.trace` and `real.log`.
    """

    def __init__(
        self,
        *,
        grids: Grids,
        memory: DeviceMemory,
        seed: int = 0,
        keep_trace: bool = True,
        timeout_s: float = 30.0,
        eager: bool = True,
    ) -> None:
        """`seed` draws the delays of the threads; no decision depends on it."""
        super().__init__(grids=grids, eager=eager)
        self._pair(
            ThreadsDevice(
                memory,
                trace=Trace(keep=keep_trace),
                pacing=lambda number: pacing(seed, number),
                timeout_s=timeout_s,
            )
        )

    def _pair(self, real: RealDevice) -> None:
        """Let `real` do what is enqueued and decided here."""
        self.real = real
        self._effects_taken: dict[int, int] = {}
        self.trace.subscribe(self._on_effect, (Effect,))
        self.trace.subscribe(self._on_end, (End,))
        self.trace.subscribe(self._on_observe, (Observe,))
        self.trace.subscribe(self._on_transfer_end, (TransferEnd,))

    # -- calls of the host, to both ----------------------------------------------------------------

    def stream(self, name: str) -> StreamId:
        """See `ModeledDevice.stream`."""
        number = super().stream(name)
        assert self.real.stream(name) == number, f"stream {name!r} has two numbers"
        return number

    def launch(self, stream: StreamId, work: Work) -> OpId:
        """See `ModeledDevice.launch`."""
        number = super().launch(stream, work)
        assert self.real.launch(stream, work) == number, f"op {number} has two numbers"
        return number

    def record(self, stream: StreamId) -> EventId:
        """See `ModeledDevice.record`."""
        # The threads first: with `eager`, the model may complete the event at once.
        event = self.real.record(stream)
        assert super().record(stream) == event, f"event {event} has two numbers"
        return event

    def wait(self, stream: StreamId, event: EventId) -> None:
        """See `ModeledDevice.wait`."""
        super().wait(stream, event)
        self.real.wait(stream, event)

    def release(self, event: EventId) -> None:
        """See `ModeledDevice.release`."""
        super().release(event)
        self.real.release(event)

    def begin_transfer(self, work: Work) -> TransferId:
        """See `ModeledDevice.begin_transfer`."""
        number = super().begin_transfer(work)
        assert self.real.begin_transfer(work) == number, f"transfer {number} has two numbers"
        return number

    def disconnect(self, peer: int) -> None:
        """See `ModeledDevice.disconnect`; waits, bounded, until the real peer has stopped."""
        for number in self.real.transfers_of(peer):
            self.real.stop_transfer(number)
        super().disconnect(peer)

    # -- the schedule ------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        """See `ModeledDevice.step`. A failing transfer, or one whose cancel is acknowledged, stops
        on its thread too.
        """
        if step.kind in _STOPS:
            self.real.stop_transfer(step.number)
        super().step(step)

    def open_gates(self) -> None:
        """Let everything run that still waits for the model."""
        self.real.open_all_gates()

    def close(self) -> None:
        """Stop and join the threads."""
        self.real.close()

    # -- what the model decided --------------------------------------------------------------------

    def _on_effect(self, record: Effect) -> None:
        count = self._effects_taken[record.op] = self._effects_taken.get(record.op, 0) + 1
        self.real.open_gate(record.op, count)

    def _on_end(self, record: End) -> None:
        self._effects_taken.pop(record.op, None)
        self.real.open_gate(record.op, ENDED)

    def _on_observe(self, record: Observe) -> None:
        self.real.finish_event(record.event)

    def _on_transfer_end(self, record: TransferEnd) -> None:
        self.real.finish_transfer(record.transfer, TransferStatus(record.status))
