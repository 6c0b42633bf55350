"""One-sided transfers on the modeled device: unordered, failing, cancelled, orphaned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onearena.core.device import modeled_transfers
from onearena.core.device.byte_map import Segment
from onearena.core.device.interface import UNDEFINED, Access, Space, TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.device.trace import Effect, End, Start, Trace, TransferBegin, TransferEnd
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind

OURS = Access(Space.ARENA, 0, 64, False)
THEIRS = Access(Space.ARENA, 0, 64, True)


def kept() -> ModeledDevice:
    return ModeledDevice(trace=Trace(keep=True))


def receive(peer: int = 1, stamp: int = 5, pieces: int = 2) -> Work:
    return Work(UseKind.RECEIVE, (THEIRS,), "in", stamp=stamp, peer=peer, pieces=pieces)


def send(peer: int = 1) -> Work:
    return Work(UseKind.SEND, (OURS,), "out", peer=peer)


def do(device: ModeledDevice, kind: StepKind, number: int) -> None:
    step = Step(kind, number)
    assert step in device.enabled(faults=True), (step, device.enabled(faults=True))
    device.step(step)


def possible(device: ModeledDevice) -> set[StepKind]:
    return {step.kind for step in device.enabled(faults=True)}


def names(device: ModeledDevice) -> list[str]:
    return [type(record).__name__ for record in device.trace.records]


def test_a_receive_writes_in_parts_and_its_end_is_seen_once() -> None:
    device = kept()
    device.memory.arena.assign(0, 64, 1)
    transfer = device.begin_transfer(receive())
    assert device.trace.records == [TransferBegin(transfer, UseKind.RECEIVE, (THEIRS,))]
    held = [device.memory.arena.read(0, 64)]
    statuses = []
    while device.enabled():
        statuses.append(device.transfer_status(transfer))
        device.step(device.enabled()[0])
        held.append(device.memory.arena.read(0, 64))
    assert statuses == [TransferStatus.RUNNING] * 4  # start, two parts, end
    assert held == [
        [(0, 64, 1)],
        [(0, 64, 1)],
        [(0, 32, 5), (32, 64, 1)],
        [(0, 64, 5)],
        [(0, 64, 5)],
    ]
    assert [device.transfer_status(transfer) for _ in range(3)] == [TransferStatus.DONE] * 3
    assert names(device) == ["TransferBegin", "Start", "Effect", "Effect", "End", "TransferEnd"]
    assert device.trace.records[-1] == TransferEnd(transfer, TransferStatus.DONE)


def test_a_send_reads_in_parts_what_is_there_at_that_moment() -> None:
    device = kept()
    device.memory.arena.assign(0, 64, 1)
    seen: list[tuple[Access, Segment]] = []

    def on_read(number: int, access: Access, segments: Sequence[Segment]) -> None:
        seen.extend((access, segment) for segment in segments)

    device.memory.on_read = on_read
    transfer = device.begin_transfer(send())
    do(device, StepKind.TRANSFER_START, transfer)
    do(device, StepKind.TRANSFER_EFFECT, transfer)
    device.memory.arena.assign(0, 64, 2)
    do(device, StepKind.TRANSFER_EFFECT, transfer)
    assert seen == [
        (Access(Space.ARENA, 0, 32, False), (0, 32, 1)),
        (Access(Space.ARENA, 32, 64, False), (32, 64, 2)),
    ]


def test_no_stream_orders_a_transfer() -> None:
    """Begun after work was enqueued and waited for, it still runs before, between or after it."""
    device = kept()
    stream = device.stream("s")
    op = device.launch(stream, Work(UseKind.ZEROING, (THEIRS,)))
    device.wait(stream, device.record(stream))
    transfer = device.begin_transfer(receive())
    assert {step.number for step in device.enabled()} == {stream, transfer}
    do(device, StepKind.TRANSFER_START, transfer)
    do(device, StepKind.TRANSFER_EFFECT, transfer)
    do(device, StepKind.START, stream)
    do(device, StepKind.EFFECT, stream)
    do(device, StepKind.TRANSFER_EFFECT, transfer)
    device.run_until_idle()
    order = [record.op for record in device.trace.records if isinstance(record, Effect)]
    assert order == [transfer, op, transfer, op]


@pytest.mark.parametrize("steps", range(4))
def test_a_transfer_may_fail_at_any_point_and_leaves_its_target_undefined(steps: int) -> None:
    device = kept()
    device.memory.arena.assign(-64, 128, 1)
    transfer = device.begin_transfer(receive())
    for _ in range(steps):
        device.step(device.enabled()[0])
    do(device, StepKind.TRANSFER_FAIL, transfer)
    assert device.memory.arena.read(-64, 128) == [(-64, 0, 1), (0, 64, UNDEFINED), (64, 128, 1)]
    assert device.enabled(faults=True) == []
    assert device.transfer_status(transfer) is TransferStatus.FAILED
    assert device.trace.records[-1] == TransferEnd(transfer, TransferStatus.FAILED)
    assert names(device).count("Start") == names(device).count("End") == 1


def test_a_failed_send_changes_nothing() -> None:
    device = kept()
    device.memory.arena.assign(0, 64, 1)
    transfer = device.begin_transfer(send())
    do(device, StepKind.TRANSFER_FAIL, transfer)
    assert device.memory.arena.read(0, 64) == [(0, 64, 1)]
    assert device.transfer_status(transfer) is TransferStatus.FAILED


def test_a_cancel_is_a_request() -> None:
    """Until it is acknowledged the peer goes on, and may even finish."""
    device = kept()
    done, cancelled = device.begin_transfer(receive()), device.begin_transfer(receive(stamp=6))
    with pytest.raises(AssertionError, match="nobody cancelled"):
        device.step(Step(StepKind.CANCEL_ACKNOWLEDGED, done))
    for transfer in (done, cancelled):
        device.cancel_transfer(transfer)
        assert device.transfer_status(transfer) is TransferStatus.RUNNING
        do(device, StepKind.TRANSFER_START, transfer)
        do(device, StepKind.TRANSFER_EFFECT, transfer)
    assert device.memory.arena.read(0, 32) == [(0, 32, 6)]
    do(device, StepKind.CANCEL_ACKNOWLEDGED, cancelled)
    assert device.memory.arena.read(0, 64) == [(0, 64, UNDEFINED)]
    assert device.transfer_status(cancelled) is TransferStatus.CANCELLED
    do(device, StepKind.TRANSFER_EFFECT, done)
    do(device, StepKind.TRANSFER_END, done)
    assert device.enabled() == []
    assert device.transfer_status(done) is TransferStatus.DONE
    with pytest.raises(MisuseError, match="seen its end"):
        device.cancel_transfer(done)


def test_a_dead_peer_may_still_write_and_never_confirms() -> None:
    device = kept()
    device.memory.arena.assign(0, 64, 1)
    transfer = device.begin_transfer(receive(peer=3))
    other = device.begin_transfer(send(peer=4))
    do(device, StepKind.TRANSFER_START, transfer)
    device.cancel_transfer(transfer)
    do(device, StepKind.PEER_DIES, 3)
    assert device.transfer_status(transfer) is TransferStatus.UNKNOWN
    assert possible(device) == {
        StepKind.TRANSFER_START,  # of the other peer's
        StepKind.TRANSFER_EFFECT,
        StepKind.TRANSFER_FAIL,
        StepKind.PEER_DIES,
    }, "no end, no acknowledgement"
    device.run_until_idle()
    assert device.memory.arena.read(0, 64) == [(0, 64, 5)], "it wrote after its death"
    assert device.transfer_status(transfer) is TransferStatus.UNKNOWN
    assert device.transfer_status(other) is TransferStatus.DONE
    assert TransferEnd not in [type(r) for r in device.trace.records if r[0] == transfer]
    device.disconnect(3)
    assert device.transfer_status(transfer) is TransferStatus.FAILED
    assert device.memory.arena.read(0, 64) == [(0, 64, UNDEFINED)]
    ends = [r for r in device.trace.records if isinstance(r, TransferEnd)]
    assert ends == [
        TransferEnd(other, TransferStatus.DONE),
        TransferEnd(transfer, TransferStatus.FAILED),
    ]


def test_a_peer_that_dies_just_before_the_end_is_never_confirmed() -> None:
    device = kept()
    transfer = device.begin_transfer(receive())
    for _ in range(3):
        device.step(device.enabled()[0])
    assert device.enabled() == [Step(StepKind.TRANSFER_END, transfer)]
    do(device, StepKind.PEER_DIES, 1)
    assert device.enabled(faults=True) == []
    assert device.transfer_status(transfer) is TransferStatus.UNKNOWN
    device.run_until_idle()


def test_an_end_that_came_before_the_death_still_counts() -> None:
    device = kept()
    ended, running = device.begin_transfer(send()), device.begin_transfer(send())
    for _ in range(4):
        device.step(device.enabled()[0])
    do(device, StepKind.PEER_DIES, 1)
    assert device.transfer_status(ended) is TransferStatus.DONE
    assert device.transfer_status(running) is TransferStatus.UNKNOWN


def test_what_is_begun_with_a_dead_peer_is_unknown_until_the_connection_is_new() -> None:
    device = kept()
    first = device.begin_transfer(send())
    do(device, StepKind.PEER_DIES, 1)
    second = device.begin_transfer(receive())
    assert device.transfer_status(second) is TransferStatus.UNKNOWN
    device.disconnect(1)
    assert device.transfer_status(first) is TransferStatus.FAILED
    assert device.transfer_status(second) is TransferStatus.FAILED
    third = device.begin_transfer(receive())
    device.run_until_idle()
    assert device.transfer_status(third) is TransferStatus.DONE


def test_a_disconnect_ends_everything_of_that_peer_only() -> None:
    device = kept()
    ended, running, other = (device.begin_transfer(receive(peer)) for peer in (1, 1, 2))
    for kind in (StepKind.TRANSFER_START, *[StepKind.TRANSFER_EFFECT] * 2, StepKind.TRANSFER_END):
        do(device, kind, ended)
    device.disconnect(1)
    assert [r for r in device.trace.records if isinstance(r, TransferEnd)] == [
        TransferEnd(ended, TransferStatus.DONE),
        TransferEnd(running, TransferStatus.FAILED),
    ]
    assert {step.number for step in device.enabled()} == {other}
    with pytest.raises(AssertionError, match="not enabled"):
        device.step(Step(StepKind.TRANSFER_END, other))


def test_the_gate_hides_an_end_and_a_death_from_the_host() -> None:
    device = kept()
    shown: set[int] = set()
    asked: list[tuple[str, int]] = []

    def gate(what: str, number: int) -> bool:
        asked.append((what, number))
        return number in shown

    device.gate = gate
    done, dead = device.begin_transfer(send(1)), device.begin_transfer(send(2))
    assert device.transfer_status(done) is TransferStatus.RUNNING
    assert asked == [], "nobody asks about what is running"
    do(device, StepKind.PEER_DIES, 2)
    device.run_until_idle()
    assert device.transfer_status(done) is TransferStatus.RUNNING
    assert device.transfer_status(dead) is TransferStatus.RUNNING
    assert asked == [("transfer", done), ("transfer", dead)]
    shown |= {done, dead}
    assert device.transfer_status(done) is TransferStatus.DONE
    assert device.transfer_status(dead) is TransferStatus.UNKNOWN
    shown.clear()
    assert device.transfer_status(done) is TransferStatus.DONE, "what was seen stays seen"


def test_what_is_kept_of_ended_transfers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeled_transfers, "CLOSED_TRANSFERS_KEPT_MAX", 2)
    device = kept()
    transfers = []
    for _ in range(4):
        transfers.append(device.begin_transfer(send()))
        device.run_until_idle()
        assert device.transfer_status(transfers[-1]) is TransferStatus.DONE
    for transfer in transfers[2:]:
        assert device.transfer_status(transfer) is TransferStatus.DONE
    for transfer in transfers[:2]:
        with pytest.raises(MisuseError, match="long ago"):
            device.transfer_status(transfer)


def test_ops_and_transfers_share_one_numbering() -> None:
    device = kept()
    stream = device.stream("s")
    numbers = [
        device.launch(stream, Work(UseKind.ZEROING, (THEIRS,))),
        device.begin_transfer(send()),
        device.launch(stream, Work(UseKind.ZEROING, (THEIRS,))),
    ]
    device.run_until_idle()
    assert len(set(numbers)) == 3
    ran = {record.op for record in device.trace.records if isinstance(record, Start | End)}
    assert ran == set(numbers)
