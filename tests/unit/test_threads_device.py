"""The threads device: real threads, real bytes, the promises of docs/devices.md."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from onearena.core import kernels
from onearena.core.device.interface import (
    UNDEFINED,
    Access,
    OpKind,
    Space,
    Touch,
    TransferStatus,
    Work,
    buffer_access,
    table_access,
    table_key,
)
from onearena.core.device.threads import ThreadsDevice
from onearena.core.device.threads_log import AccessLog
from onearena.core.device.threads_memory import DeviceMemory
from onearena.core.device.threads_programs import Pacing, base_of, stamp_of, step_of
from onearena.core.device.threads_worker import RING_COMMANDS
from onearena.core.device.trace import Effect, End, Start, Trace
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.stress.oracles.base import feed_all
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.real_forwards import order_records

UNIT_BYTES = 4096
GEOMETRY = chain_geometry(64 * UNIT_BYTES, [("low", UNIT_BYTES), ("high", 2 * UNIT_BYTES)])
GRID = GEOMETRY.bands[0].grid
FREE = Pacing()
HELD = Pacing(gates=1)

Make = Callable[..., ThreadsDevice]


@pytest.fixture
def make() -> Iterator[Make]:
    """Devices that are closed at the end."""
    devices: list[ThreadsDevice] = []

    def build(*, paces: dict[int, Pacing] | None = None, timeout_s: float = 20.0) -> ThreadsDevice:
        memory = DeviceMemory(GEOMETRY, host_bytes=8 * UNIT_BYTES, buffer_slots=2, salt=5)
        known = paces or {}
        device = ThreadsDevice(
            memory,
            trace=Trace(keep=True),
            pacing=lambda number: known.get(number, FREE),
            timeout_s=timeout_s,
        )
        # A held program waits for the test, however slow the machine is.
        device._shared[kernels.S_GATE_NS] = 60 * 10**9
        devices.append(device)
        return device

    yield build
    for device in devices:
        device.close()


def unit(number: int) -> tuple[int, int]:
    """Bytes of the k-th unit of the low band."""
    start = GRID.start(GRID.first_unit + number)
    return start, start + UNIT_BYTES


def write(number: int, stamp: int, *, kind: UseKind = UseKind.FORWARD, pieces: int = 2) -> Work:
    start, end = unit(number)
    touch = Touch(-1, start, end, True, stamp)
    access = Access(Space.ARENA, start, end, True)
    return Work(kind, (access,), label=f"write {stamp}", touches=(touch,), pieces=pieces)


def read(number: int, stamp: int, *, passes: int = 3) -> Work:
    start, end = unit(number)
    touch = Touch(-1, start, end, False, stamp)
    access = Access(Space.ARENA, start, end, False)
    return Work(UseKind.FORWARD, (access,), label=f"read {stamp}", touches=(touch,), passes=passes)


def copy(kind: UseKind, source: int, target: int, *, fails_after: int = -1) -> Work:
    return Work(
        kind, pairs=((source, target, UNIT_BYTES),), effects_before_failure=fails_after, pieces=2
    )


def settled(device: ThreadsDevice, stream: int) -> None:
    device.finish_event(device.record(stream))


def words(device: ThreadsDevice, number: int) -> np.ndarray:
    return device.memory.buffer.at(*unit(number)).numpy().view(np.int64)


def test_a_word_of_a_pattern_names_its_stamp_and_place() -> None:
    for salt in (0, 1, 12345, (1 << 31) - 1):
        for stamp in (0, 1, 7, 4096, (1 << 31) - 1, UNDEFINED, -1):
            for place in (0, 1, 511, 1 << 22):
                word = (base_of(stamp, salt) + place * step_of(stamp)) & (1 << 64) - 1
                assert stamp_of(word, place, salt) == stamp
                if stamp:
                    assert stamp_of(word, place + 1, salt) != stamp
                    assert stamp_of(word, place, salt ^ 3) is None


def test_what_is_written_is_found_by_a_stream_that_waits(make: Make) -> None:
    device = make()
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(3, 9))
    device.wait(two, device.record(one))
    device.launch(two, read(3, 9))
    settled(device, two)
    assert not device.failures
    assert [stamp_of(int(words(device, 3)[place]), place, 5) for place in (0, 5, 511)] == [9] * 3


def test_a_reader_that_does_not_wait_finds_wrong_bytes(make: Make) -> None:
    """The writer is held back, so the reader is surely first: the read must be reported."""
    device = make(paces={1: HELD})
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(3, 8))
    device.launch(one, write(3, 9))  # op 1, held
    event = device.record(one)
    device.launch(two, read(3, 9))
    settled(device, two)
    assert not device.query(event)
    device.open_gate(1, 1 << 20)
    device.finish_event(event)
    first = device.failures[0]
    assert (first.label, first.expected_stamp) == ("read 9", 9)
    assert first.found_stamp in (0, 8)
    assert unit(3)[0] <= first.address < unit(3)[1]
    assert len(device.failures) == 3, "each of the three passes has looked"


def test_a_writer_that_does_not_wait_is_seen_by_the_reader_under_way(make: Make) -> None:
    device = make(paces={1: Pacing(gates=2)})
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(0, 5))
    device.launch(one, read(0, 5))  # op 1: each pass is held
    device.open_gate(1, 1)
    late = device.record(one)
    while not _passes(device, 1):
        time.sleep(0.001)
    device.launch(two, write(0, 6))
    settled(device, two)
    device.open_gate(1, 1 << 20)
    device.finish_event(late)
    assert [(f.expected_stamp, f.found_stamp) for f in device.failures] == [(5, 6), (5, 6)]


def _passes(device: ThreadsDevice, number: int) -> bool:
    """Whether the first pass of an op has ended."""
    rows = device._running[number].rows
    return bool((rows[1:, kernels.C_RESULT] != 0).any())


def test_message_passing_over_events_never_shows_old_bytes(make: Make) -> None:
    device = make()
    one, two = device.stream("one"), device.stream("two")
    for k in range(400):
        device.launch(one, write(k % 4, 1 + k))
        device.wait(two, device.record(one))
        device.launch(two, read(k % 4, 1 + k, passes=2))
        device.wait(one, device.record(two))
    settled(device, two)
    assert not device.failures
    assert device.wrong_accesses == 0


def test_a_forward_finds_its_own_writes_and_a_stranger_in_them(make: Make) -> None:
    start, end = unit(1)
    access = Access(Space.ARENA, start, end, True)
    both = Work(
        UseKind.FORWARD,
        (access,),
        touches=(Touch(-1, start, end, False, 4), Touch(-1, start + 512, end, True, 5)),
        pieces=3,
    )
    device = make(paces={2: Pacing(gates=2)})
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(1, 4))
    device.launch(one, both)
    settled(device, one)
    assert not device.failures
    again = Work(both.kind, both.accesses, touches=(Touch(-1, start, end, True, 6),), pieces=2)
    device.launch(one, again)
    device.open_gate(2, 1)
    while not _passes(device, 2):
        time.sleep(0.001)
    device.launch(two, write(1, 7))  # into what op 2 has half written
    settled(device, two)
    device.open_gate(2, 1 << 20)
    settled(device, one)
    assert [(f.expected_stamp, f.found_stamp) for f in device.failures] == [(6, 7)]


def test_copies_carry_bytes_through_the_host_tier(make: Make) -> None:
    device = make()
    one = device.stream("one")
    device.launch(one, write(0, 3))
    device.launch(one, copy(UseKind.BACKUP, unit(0)[0], UNIT_BYTES))
    device.launch(one, write(0, 4))
    device.launch(one, copy(UseKind.LOAD, UNIT_BYTES, unit(7)[0]))
    device.launch(one, copy(UseKind.MOVE, unit(7)[0], unit(9)[0]))
    device.launch(one, read(9, 3))
    settled(device, one)
    assert not device.failures
    device.launch(one, copy(UseKind.LOAD, UNIT_BYTES, unit(9)[0], fails_after=1))
    settled(device, one)
    assert stamp_of(int(words(device, 9)[0]), 0, 5) == UNDEFINED


def test_forwards_resolve_their_ids_on_the_device(make: Make) -> None:
    device = make()
    one = device.stream("one")
    key = table_key(0, 2)
    place = GRID.first_unit + 6
    entry = table_access(key, writes=True)
    device.launch(one, Work(OpKind.TABLE_UPDATE, (entry,), entries=((key, place),)))
    slot = buffer_access(1, writes=True)
    device.launch(one, Work(OpKind.TRANSLATE, (slot,), buffer=1, keys=(key,)))
    touch = Touch(0, 0, UNIT_BYTES, True, 11)
    device.launch(one, Work(UseKind.FORWARD, (), touches=(touch,), buffer=1))
    device.launch(one, read(6, 11))
    settled(device, one)
    assert not device.failures
    effects = [record for record in device.trace.records if type(record) is Effect]
    wrote = [a for e in effects if e.op == 2 for a in e.accesses if a[3]]
    assert wrote[0][1] == unit(6)[0], "the log says where the forward really went"


def test_an_unfilled_slot_leads_nowhere_and_is_reported(make: Make) -> None:
    device = make()
    one = device.stream("one")
    touch = Touch(0, 0, UNIT_BYTES, True, 11)
    device.launch(one, Work(UseKind.FORWARD, (), label="lost", touches=(touch,), buffer=0))
    settled(device, one)
    assert {failure.what for failure in device.failures} == {"an access outside the arena"}
    assert not device.memory.buffer.check_guards()
    assert not device.memory.buffer.at(0, GEOMETRY.arena_bytes).any()


def test_host_callables_run_in_their_place(make: Make) -> None:
    device = make()
    one = device.stream("one")
    start, end = unit(2)
    view = device.memory.buffer.at(start, end).view(torch.float32)
    seen: list[float] = []

    def forward() -> None:
        view.copy_(torch.arange(view.numel(), dtype=torch.float32))
        seen.append(float((view @ view).item()))

    device.launch(one, write(2, 3))
    device.launch(one, Work(UseKind.FORWARD, (), label="torch", body=forward))
    device.launch(one, copy(UseKind.MOVE, start, unit(4)[0]))
    settled(device, one)
    expected = torch.arange(view.numel(), dtype=torch.float32)
    assert seen == [float((expected @ expected).item())]
    moved = device.memory.buffer.at(*unit(4)).view(torch.float32)
    assert torch.equal(moved, expected)


def test_a_host_callable_that_raises_fails_the_device(make: Make) -> None:
    device = make()
    one = device.stream("one")

    def forward() -> None:
        raise RuntimeError("no memory for activations")

    device.launch(one, Work(UseKind.FORWARD, (), label="forward 7", body=forward))
    with pytest.raises(DeviceError, match=r"forward 7.*no memory for activations"):
        device.finish_event(device.record(one))
    with pytest.raises(DeviceError, match="broke down"):
        device.stream("two")


def test_a_stuck_stream_is_an_error_and_no_hang(make: Make) -> None:
    device = make(timeout_s=0.5)
    one, two = device.stream("one"), device.stream("two")
    release = threading.Event()
    device.launch(one, Work(UseKind.FORWARD, (), body=lambda: release.wait(30)))
    event = device.record(one)
    device.wait(two, event)
    began = time.monotonic()
    try:
        with pytest.raises(DeviceError, match=r"stuck.*event 0 of 'one'|event 0 of 'one' is stuck"):
            device.finish_event(event)
        assert time.monotonic() - began < 20
        deadline = time.monotonic() + 20
        while device._error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(DeviceError, match=r"stream 'two' is stuck.*event 0 of 'one'"):
            device.query(event)
    finally:
        release.set()


def test_a_full_ring_is_an_error(make: Make) -> None:
    device = make(paces={0: HELD})
    one, two = device.stream("one"), device.stream("two")
    event = device.record(two)
    device.launch(one, write(0, 1))
    for _ in range(RING_COMMANDS - 2):  # the held one, and a place that stays free
        device.wait(one, event)
    with pytest.raises(DeviceError, match=f"{RING_COMMANDS} commands"):
        device.wait(one, event)


def test_transfers_obey_no_stream(make: Make) -> None:
    device = make(paces={0: HELD})
    one = device.stream("one")
    send = device.begin_transfer(write(5, 21, kind=UseKind.RECEIVE))
    device.launch(one, write(6, 1))
    settled(device, one)
    assert device.transfer_status(send) is TransferStatus.RUNNING
    device.open_gate(send, 1 << 20)
    device.finish_transfer(send, TransferStatus.DONE)
    device.launch(one, read(5, 21))
    settled(device, one)
    assert not device.failures
    assert device.transfer_status(send) is TransferStatus.DONE


def test_a_stopped_transfer_leaves_undefined_bytes(make: Make) -> None:
    device = make(paces={0: HELD, 1: HELD})
    one = device.begin_transfer(write(5, 21, kind=UseKind.RECEIVE))
    device.cancel_transfer(one)
    deadline = time.monotonic() + 20
    while device.transfer_status(one) is TransferStatus.RUNNING and time.monotonic() < deadline:
        time.sleep(0.001)
    assert device.transfer_status(one) is TransferStatus.CANCELLED
    assert stamp_of(int(words(device, 5)[0]), 0, 5) == UNDEFINED
    two = device.begin_transfer(write(6, 22, kind=UseKind.RECEIVE))
    device.disconnect(0)
    assert device.transfer_status(two) is TransferStatus.FAILED
    with pytest.raises(MisuseError, match="has seen its end"):
        device.cancel_transfer(two)


def test_misuse_changes_nothing(make: Make) -> None:
    device = make()
    one = device.stream("one")
    with pytest.raises(MisuseError, match="never recorded"):
        device.wait(one, 0)
    with pytest.raises(MisuseError, match="not a stream"):
        device.record(7)
    with pytest.raises(MisuseError, match="use begin_transfer"):
        device.launch(one, write(0, 1, kind=UseKind.RECEIVE))
    with pytest.raises(MisuseError, match="runs on a stream"):
        device.begin_transfer(write(0, 1))
    event = device.record(one)
    device.release(event)
    with pytest.raises(MisuseError, match="was released"):
        device.query(event)
    assert device.trace.count == 1


@pytest.mark.parametrize("waits", [False, True])
def test_the_access_log_shows_a_missing_wait_whatever_the_timing(
    make: Make, *, waits: bool
) -> None:
    device = make()
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(0, 5))
    event = device.record(one)
    while not device._flags[event]:
        time.sleep(0.001)  # it is over, and nobody has looked
    if waits:
        device.wait(two, event)
    device.launch(two, write(0, 6))
    device.finish()
    kinds = [type(record) for record in device.trace.records]
    assert (kinds.count(Start), kinds.count(End)) == (2, 2)
    found = feed_all(OrderOracle(), order_records(device.trace.records))
    assert [violation.rule for violation in found] == ([] if waits else ["6"])
    assert not device.failures, "the bytes were lucky"


def test_the_order_oracle_reads_what_was_really_touched(make: Make) -> None:
    """Two streams, no wait: the log of the threads alone convicts."""
    device = make()
    one, two = device.stream("one"), device.stream("two")
    device.launch(one, write(0, 5))
    # The host records other bytes than the work touches: only the log knows.
    start, end = unit(0)
    touch = Touch(-1, start, end, True, 6)
    elsewhere = Access(Space.ARENA, *unit(20), True)
    device.launch(two, Work(UseKind.FORWARD, (elsewhere,), touches=(touch,)))
    device.finish()
    found = feed_all(OrderOracle(), order_records(device.trace.records))
    assert [violation.rule for violation in found] == ["6"]
    declared = [r for r in device.trace.records if type(r) not in (Start, Effect, End)]
    assert feed_all(OrderOracle(), declared) == []


def test_overlaps_are_counted_as_the_definition_says() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        count = int(rng.integers(1, 30))
        marks = rng.permutation(2 * count).reshape(count, 2)
        marks.sort(axis=1)
        lanes = rng.integers(0, 3, count)
        log = AccessLog(Trace())
        for (begin, end), lane in zip(marks.tolist(), lanes.tolist(), strict=True):
            log._spans.append((lane, np.array([[begin, end]], np.int64)))
        expected = sum(
            any(
                lanes[j] != lanes[i] and marks[j][0] < marks[i][0] < marks[j][1]
                for j in range(count)
            )
            for i in range(count)
        )
        assert log.overlaps() == expected


def test_close_joins_every_thread(make: Make) -> None:
    device = make(paces={0: HELD})
    one = device.stream("closing-one")
    device.launch(one, write(0, 1))
    device.begin_transfer(write(5, 21, kind=UseKind.RECEIVE))
    device.close()
    assert not [t for t in threading.enumerate() if t.name == "onearena closing-one"]
    with pytest.raises(DeviceError, match="closed"):
        device.record(one)
    device.close()


def test_pages_are_copied_by_offset() -> None:
    source = np.arange(64, dtype=np.uint8)
    target = np.zeros(64, np.uint8)
    kernels.copy_pages(target, np.array([32, 0], np.int64), source, np.array([0, 48], np.int64), 16)
    assert target[32:48].tolist() == list(range(16))
    assert target[:16].tolist() == list(range(48, 64))
    assert not target[16:32].any()
