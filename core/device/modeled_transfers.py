"""One-sided transfers of the modeled device: peers, steps, and what the host may know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onearena.core.device.interface import TransferId, TransferStatus
from onearena.core.device.modeled_effects import Job, run_effect, spoil
from onearena.core.device.modeled_memory import Memory
from onearena.core.device.modeled_parts import Gate, Step, StepKind, Transfer
from onearena.core.device.trace import (
    Effect,
    End,
    Start,
    TraceRecord,
    TransferBegin,
    TransferEnd,
)
from onearena.core.errors import MisuseError

CLOSED_TRANSFERS_KEPT_MAX: Final = 1 << 16


class Transfers:
    """All transfers of one device. `ModeledDevice` is its only caller and documents the calls.

    A peer touches bytes from the beginning of a transfer until its end, its failure, the
    acknowledgement of a cancel, or `disconnect`; a dead peer ends only by the last.
    """

    __slots__ = ("_closed", "_dead_peers", "_emit", "_memory", "_open")

    def __init__(self, memory: Memory, emit: Callable[[TraceRecord], None]) -> None:
        """`emit` is the trace's."""
        self._memory = memory
        self._emit = emit
        self._open: dict[TransferId, Transfer] = {}  # the host has not seen their end; by id
        self._closed: dict[TransferId, TransferStatus] = {}  # it has; the newest ones
        self._dead_peers: set[int] = set()  # only asked for membership

    def begin(self, job: Job) -> None:
        """The peer may touch the bytes from now on."""
        transfer = Transfer(job)
        if job.work.peer in self._dead_peers:
            transfer.status = TransferStatus.UNKNOWN
        self._open[job.number] = transfer
        self._emit(TransferBegin(job.number, job.kind, job.work.accesses))

    def status(self, number: TransferId, gate: Gate | None) -> TransferStatus:
        """What the host sees; the first sight of an end is logged."""
        closed = self._closed.get(number)
        if closed is not None:
            return closed
        status = self._get(number).status
        if status == TransferStatus.RUNNING:
            return status
        if gate is not None and not gate("transfer", number):
            return TransferStatus.RUNNING
        if status != TransferStatus.UNKNOWN:
            self._close(number, status)
        return status

    def cancel(self, number: TransferId) -> None:
        """Ask the peer to stop."""
        if number in self._closed:
            raise MisuseError(f"transfer {number}: the host has seen its end", argument="transfer")
        self._get(number).cancelling = True

    def disconnect(self, peer: int) -> None:
        """No transfer of `peer` touches anything from now on. O(open transfers)."""
        for number, transfer in list(self._open.items()):
            if transfer.job.work.peer != peer:
                continue
            if transfer.status in (TransferStatus.RUNNING, TransferStatus.UNKNOWN):
                self._stop_half_way(transfer, TransferStatus.FAILED)
            self._close(number, transfer.status)
        self._dead_peers.discard(peer)

    def enabled(self, *, faults: bool) -> list[Step]:
        """Steps by id, then faults: failures by id, deaths by peer. O(open transfers)."""
        steps: list[Step] = []
        if not self._open:
            return steps
        running = TransferStatus.RUNNING
        for transfer in self._open.values():
            if transfer.token is not None:
                steps.append(transfer.token)
            if transfer.cancelling and transfer.status is running:
                steps.append(transfer.acknowledge)
        if faults:
            alive = [each for each in self._open.values() if each.status is running]
            steps += [transfer.fail for transfer in alive]
            peers = sorted({transfer.job.work.peer for transfer in alive})
            steps += [Step(StepKind.PEER_DIES, peer) for peer in peers]
        return steps

    def step(self, step: Step) -> None:
        """Take one step of a transfer, or lose a peer."""
        kind, number = step
        if kind == StepKind.PEER_DIES:
            self._kill_peer(number)
            return
        transfer = self._open[number]
        job = transfer.job
        if kind in (StepKind.TRANSFER_FAIL, StepKind.CANCEL_ACKNOWLEDGED):
            assert transfer.status is TransferStatus.RUNNING, f"{step}: {transfer.status!r}"
            failed = kind == StepKind.TRANSFER_FAIL
            assert failed or transfer.cancelling, f"{step}: nobody cancelled it"
            ended = TransferStatus.FAILED if failed else TransferStatus.CANCELLED
            self._stop_half_way(transfer, ended)
            return
        assert transfer.token == step, f"{step} is not enabled; next: {transfer.token}"
        if kind == StepKind.TRANSFER_START:
            transfer.started = True
            self._emit(Start(number))
        elif kind == StepKind.TRANSFER_EFFECT:
            piece = job.next
            self._emit(Effect(number, piece, run_effect(self._memory, job)))
        else:
            transfer.status = TransferStatus.DONE
            transfer.token = None
            self._emit(End(number))
            return
        if job.next < job.length:
            transfer.token = transfer.tokens[1]
        else:
            # A dead peer may have touched everything, but nobody will ever confirm the end.
            dead = transfer.status is TransferStatus.UNKNOWN
            transfer.token = None if dead else transfer.tokens[2]

    def running(self) -> bool:
        """Whether any transfer with a live peer goes on."""
        return any(t.status is TransferStatus.RUNNING for t in self._open.values())

    def job(self, number: TransferId) -> Job:
        """The work of an open transfer."""
        return self._open[number].job

    def _get(self, number: TransferId) -> Transfer:
        transfer = self._open.get(number)
        if transfer is None:
            message = f"transfer {number} is not a transfer of this device, or ended long ago"
            raise MisuseError(message, argument="transfer")
        return transfer

    def _close(self, number: TransferId, status: TransferStatus) -> None:
        del self._open[number]
        self._closed[number] = status
        if len(self._closed) > CLOSED_TRANSFERS_KEPT_MAX:
            del self._closed[next(iter(self._closed))]
        self._emit(TransferEnd(number, int(status)))

    def _stop_half_way(self, transfer: Transfer, status: TransferStatus) -> None:
        """The transfer touches nothing any more; what it was to write is undefined."""
        job = transfer.job
        if not transfer.started:
            self._emit(Start(job.number))
        spoilt = spoil(self._memory, job)
        if spoilt:
            self._emit(Effect(job.number, job.next, spoilt))
        self._emit(End(job.number))
        transfer.status = status
        transfer.token = None

    def _kill_peer(self, peer: int) -> None:
        self._dead_peers.add(peer)
        for transfer in self._open.values():
            if transfer.job.work.peer == peer and transfer.status is TransferStatus.RUNNING:
                transfer.status = TransferStatus.UNKNOWN
                if transfer.token == transfer.tokens[2]:
                    transfer.token = None
