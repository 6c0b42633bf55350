"""The calls of the cuda device, over the fake and (with one) on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeGpu

from onearena.core import kernels
from onearena.core.arena import Arena
from onearena.core.device import cuda_api
from onearena.core.device.cuda import STREAMS_MAX, CudaDevice
from onearena.core.device.cuda_launches import GRAPH_WORDS, EventPool
from onearena.core.device.cuda_memory import CudaMemory
from onearena.core.device.cuda_programs import HOST_COPY, groups_of, without_pauses
from onearena.core.device.interface import (
    POISON,
    UNDEFINED,
    OpKind,
    Touch,
    TransferStatus,
    Work,
    buffer_access,
    table_key,
)
from onearena.core.device.threads_programs import STEP, Pacing, Program, base_of, compile_work
from onearena.core.device.trace import Effect, Enqueue, Observe, Record, Trace, WaitEvent
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind

UNIT = 256
GEOMETRY = chain_geometry(64 * UNIT, [("state", UNIT), ("full", UNIT // 2)])
HOST_BYTES = 16 * UNIT


class Rig:
    """A device, its memory, and the fake if it is one."""

    def __init__(self, kind: str, *, graphs: bool = True, lazy: int = 10) -> None:
        self.gpu = FakeGpu(lazy=lazy) if kind == "fake" else None
        api = self.gpu.api() if self.gpu is not None else cuda_api.open_api()
        checked = cuda_api.Checked(api.errors)
        self.memory = CudaMemory(api, checked, GEOMETRY, host_bytes=HOST_BYTES, buffer_slots=4)
        trace = Trace(keep=True)
        self.device = CudaDevice(
            api, self.memory, checked, trace=trace, timeout_s=20.0, graphs=graphs
        )

    def words(self, start: int, end: int) -> list[int]:
        """What arena bytes hold, once nothing runs any more."""
        self.device.finish()
        found = self.memory.arena_bytes(start, end).cpu().numpy()
        return np.asarray(found).view(np.int64).tolist()

    def write(self, stream: int, start: int, stamp: int, nbytes: int = UNIT) -> None:
        touches = (Touch(-1, start, start + nbytes, True, stamp),)
        self.device.launch(stream, Work(UseKind.ZEROING, touches=touches, stamp=stamp))

    def read(self, stream: int, start: int, stamp: int, nbytes: int = UNIT) -> None:
        touches = (Touch(-1, start, start + nbytes, False, stamp),)
        self.device.launch(stream, Work(UseKind.FORWARD, touches=touches))


@pytest.fixture(
    params=[
        "fake",
        pytest.param(
            "gpu",
            marks=[
                pytest.mark.cuda,
                pytest.mark.skipif(not cuda_api.cuda_available(), reason="needs an NVIDIA GPU"),
            ],
        ),
    ]
)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(request.param)
    yield made
    if made.device._checked.error is None:
        made.device.close()


def pattern(stamp: int, count: int) -> list[int]:
    words = [(base_of(stamp) + k * STEP) % (1 << 64) for k in range(count)]
    return [w - (1 << 64) if w >> 63 else w for w in words]


def test_bytes_are_written_read_moved_and_zeroed(rig: Rig) -> None:
    stream = rig.device.stream("forwards")
    rig.write(stream, 0, 41)
    rig.read(stream, 0, 41)
    rig.device.launch(stream, Work(UseKind.MOVE, pairs=((0, 4 * UNIT, UNIT),)))
    rig.write(stream, 0, 0)
    rig.read(stream, 4 * UNIT, 41)
    assert rig.words(0, UNIT) == [0] * (UNIT // 8)
    assert rig.words(4 * UNIT, 5 * UNIT) == pattern(41, UNIT // 8)
    assert rig.words(UNIT, 2 * UNIT) == [0] * (UNIT // 8)
    assert rig.device.failures == []
    assert rig.memory.buffer.check_guards() == ()


def test_a_read_of_other_bytes_is_told_with_both_stamps(rig: Rig) -> None:
    stream = rig.device.stream("forwards")
    rig.write(stream, 2 * UNIT, 57)
    rig.read(stream, 2 * UNIT, 41)
    rig.read(stream, 2 * UNIT, 41)
    rig.device.finish()
    assert rig.device.failure_count == rig.device.wrong_accesses == 2 * 3, (
        "two forwards, three looks each"
    )
    failure = rig.device.failures[0]
    assert (failure.expected_stamp, failure.found_stamp) == (41, 57)
    assert 2 * UNIT <= failure.address < 3 * UNIT


def test_a_forward_takes_its_addresses_from_its_slot(rig: Rig) -> None:
    """Once as launches, once as a replay; the table changes in between (rule 9)."""
    device, stream = rig.device, rig.device.stream("forwards")
    grid = GEOMETRY.bands[0].grid
    key = table_key(0, 3)
    for unit, stamp in ((grid.first_unit, 70), (grid.first_unit + 5, 71)):
        device.launch(stream, Work(OpKind.TABLE_UPDATE, entries=((key, unit),)))
        device.launch(stream, Work(OpKind.TRANSLATE, buffer=2, keys=(key,)))
        for _ in range(2):
            work = Work(
                UseKind.FORWARD,
                (buffer_access(2, writes=False),),
                touches=(Touch(0, 0, UNIT, True, stamp), Touch(0, 0, UNIT, False, stamp)),
                buffer=2,
                passes=1,
                pieces=1,
            )
            rig.write(stream, grid.start(unit), stamp)
            device.launch(stream, work)
        assert rig.words(grid.start(unit), grid.end(unit)) == pattern(stamp, UNIT // 8)
    assert rig.device.failures == []
    assert device.replays > 0


def test_an_unfilled_slot_leads_nowhere(rig: Rig) -> None:
    stream = rig.device.stream("forwards")
    work = Work(UseKind.FORWARD, touches=(Touch(1, 0, UNIT, True, 9),), buffer=1)
    rig.device.launch(stream, work)
    rig.device.finish()
    assert {failure.what for failure in rig.device.failures} == {"an access outside the arena"}
    assert not any(rig.words(0, 8 * UNIT))


def test_host_copies_go_through_pinned_memory_and_back(rig: Rig) -> None:
    device = rig.device
    first, copies = device.stream("forwards"), device.stream("copies")
    rig.write(first, 0, 41)
    written = device.record(first)
    device.wait(copies, written)
    device.launch(copies, Work(UseKind.BACKUP, pairs=((0, UNIT, UNIT),)))
    device.launch(copies, Work(UseKind.LOAD, pairs=((UNIT, 6 * UNIT, UNIT),)))
    loaded = device.record(copies)
    device.wait(first, loaded)
    rig.read(first, 6 * UNIT, 41)
    assert rig.words(6 * UNIT, 7 * UNIT) == pattern(41, UNIT // 8)
    assert device.failures == []


def test_a_load_that_fails_leaves_its_target_undefined(rig: Rig) -> None:
    stream = rig.device.stream("copies")
    work = Work(UseKind.LOAD, pairs=((0, 0, UNIT),), effects_before_failure=2)
    rig.device.launch(stream, work)
    assert rig.words(0, UNIT) == pattern(UNDEFINED, UNIT // 8)


def test_events_are_seen_once_they_are_complete_and_pooled_only_then(rig: Rig) -> None:
    device = rig.device
    streams = [device.stream(name) for name in ("a", "b", "c")]
    for turn in range(200):
        rig.write(streams[turn % 3], turn % 8 * UNIT, 100 + turn)
        event = device.record(streams[turn % 3])
        device.wait(streams[(turn + 1) % 3], event)
        if turn % 3 == 0:
            device.finish_event(event)
            assert device.query(event)
        device.release(event)
        with pytest.raises(MisuseError, match="was released"):
            device.query(event)
    assert device._launcher.events.made < 400, "events come back"
    seen = [record.event for record in device.trace.records if type(record) is Observe]
    assert len(seen) == len(set(seen)) == 67


def test_calls_that_no_device_takes_are_refused(rig: Rig) -> None:
    device, stream = rig.device, rig.device.stream("forwards")
    send = Work(UseKind.SEND, touches=(Touch(-1, 0, UNIT, False, 0),))
    with pytest.raises(MisuseError, match="is not a stream"):
        device.launch(5, Work(UseKind.FORWARD))
    with pytest.raises(MisuseError, match="is a transfer"):
        device.launch(stream, send)
    with pytest.raises(MisuseError, match="runs on a stream"):
        device.begin_transfer(Work(UseKind.FORWARD))
    with pytest.raises(MisuseError, match="was never recorded"):
        device.wait(stream, 77)
    with pytest.raises(MisuseError, match="not a transfer"):
        device.cancel_transfer(99)
    for number in range(1, STREAMS_MAX):
        device.stream(f"s{number}")
    with pytest.raises(DeviceError, match="streams are all there are"):
        device.stream("one more")


def test_transfers_end_are_stopped_and_torn_down(rig: Rig) -> None:
    device = rig.device
    touches = (Touch(-1, 0, UNIT, True, 41),)
    done = device.begin_transfer(Work(UseKind.RECEIVE, touches=touches, peer=1))
    device.finish_transfer(done, TransferStatus.DONE)
    assert device.transfer_status(done) is TransferStatus.DONE
    assert rig.words(0, UNIT) == pattern(41, UNIT // 8)
    with pytest.raises(MisuseError, match="has seen its end"):
        device.cancel_transfer(done)
    late = device.begin_transfer(Work(UseKind.RECEIVE, touches=touches, peer=2))
    assert device.transfers_of(2) == [late]
    device.disconnect(2)
    assert device.transfer_status(late) is TransferStatus.FAILED
    assert device.transfers_of(2) == []


def test_a_stopped_transfer_leaves_nothing_half_written() -> None:
    """Stopped before it ran: what it was to write is undefined, and it says that it was stopped."""
    rig = Rig("fake", lazy=1 << 30)
    device = rig.device
    rig.write(device.stream("forwards"), 0, 41)
    device.finish()
    work = Work(UseKind.RECEIVE, touches=(Touch(-1, 0, UNIT, True, 57),), peer=1)
    assert rig.gpu is not None
    number = device.begin_transfer(work)
    device.stop_transfer(number)
    # The stop word is written before the lane runs: nothing orders them, so this can happen.
    control = device._control.stream
    while control.queue:
        kind, item = control.queue.popleft()
        assert kind == "op"
        item[1]()
    while device.transfer_status(number) is TransferStatus.RUNNING:
        pass
    assert device.transfer_status(number) is TransferStatus.CANCELLED
    assert rig.words(0, UNIT) == pattern(UNDEFINED, UNIT // 8)
    assert POISON != UNDEFINED


@pytest.mark.parametrize(
    "call", ["launch", "Event.record", "Stream.wait_event", "copy_", "Event.query", "replay"]
)
def test_a_failed_call_is_a_typed_error_and_ends_the_device(call: str) -> None:
    rig = Rig("fake")
    device = rig.device
    first, second = device.stream("a"), device.stream("b")
    assert rig.gpu is not None
    rig.gpu.fail_next(call, "CUDA error: an illegal memory access was encountered")

    def everything() -> None:
        for _ in range(3):
            rig.read(first, 0, 0)
            event = device.record(first)
            device.wait(second, event)
            device.query(event)

    with pytest.raises(DeviceError, match="illegal memory access"):
        everything()
    for refused in (
        lambda: device.stream("c"),
        lambda: device.launch(first, Work(UseKind.FORWARD)),
        lambda: device.record(first),
        device.finish,
    ):
        with pytest.raises(DeviceError, match="the device broke down"):
            refused()
    device.close()  # never hangs, never raises


def test_a_sticky_error_stops_the_arena() -> None:
    rig = Rig("fake")
    assert rig.gpu is not None
    arena = Arena(GEOMETRY, rig.device)
    stream = rig.device.stream("forwards")
    rig.gpu.fail_next("launch", "CUDA error: unspecified launch failure")

    def use_it() -> None:
        grant: Any = arena.allocate((1, 1), writer=UseKind.FORWARD, stream=stream, caller="test")
        arena.record(UseKind.FORWARD, stream, writes=[int(grant.ids[0][0])])

    with pytest.raises(DeviceError, match="unspecified launch failure"):
        use_it()
    with pytest.raises(DeviceError, match="unspecified launch failure"):
        arena.fits((1, 1))


def test_a_device_that_never_ends_is_an_error_within_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig("fake")
    device = rig.device
    device.timeout_s = 0.2
    monkeypatch.setattr(EventPool, "complete", lambda _pool, _event: False)
    event = device.record(device.stream("a"))
    with pytest.raises(DeviceError, match="is stuck: the host has waited"):
        device.finish_event(event)


def test_a_host_callable_enqueues_on_the_stream_and_may_fail() -> None:
    rig = Rig("fake")
    device, stream = rig.device, rig.device.stream("forwards")
    assert rig.gpu is not None
    on: list[int] = []
    device.launch(stream, Work(UseKind.FORWARD, body=lambda: on.append(rig.gpu.current.number)))  # type: ignore[union-attr]
    assert on == [device._streams[stream].stream.number]
    with pytest.raises(DeviceError, match=r"a host callable on .forwards.: ZeroDivisionError"):
        device.launch(stream, Work(UseKind.FORWARD, body=lambda: 1 // 0))
    with pytest.raises(DeviceError, match="broke down"):
        device.record(stream)


def test_the_trace_has_the_host_s_calls_and_what_was_touched(rig: Rig) -> None:
    device = rig.device
    first, second = device.stream("a"), device.stream("b")
    rig.write(first, 0, 41)
    event = device.record(first)
    device.wait(second, event)
    rig.read(second, 0, 41)
    device.finish()
    kinds = [type(record) for record in device.trace.records[:4]]
    assert kinds == [Enqueue, Record, WaitEvent, Enqueue]
    touched = [
        (access.start, access.end, access.writes)
        for record in device.trace.records
        if type(record) is Effect
        for access in record.accesses
    ]
    assert (0, UNIT // 2, True) in touched
    assert (0, UNIT, False) in touched


def test_groups_are_one_launch_a_batch() -> None:
    layout = Rig("fake").memory.layout
    pairs = tuple((UNIT * k, UNIT * (20 + k), UNIT) for k in range(9))
    program = compile_work(0, Work(UseKind.MOVE, pairs=pairs, pieces=3), layout, Pacing(2, 7))
    groups = groups_of(without_pauses(program.rows), stoppable=False)
    assert [(group.kernel, group.rows) for group in groups] == [
        ("page_copy", 27),
        ("page_compare", 9),
    ]
    program = compile_work(0, Work(UseKind.LOAD, pairs=pairs, pieces=1), layout)
    assert [group.kernel for group in groups_of(program.rows, stoppable=False)] == [HOST_COPY]
    touches = tuple(Touch(-1, UNIT * k, UNIT * (k + 1), k % 2 == 0, 7) for k in range(6))
    program = compile_work(0, Work(UseKind.FORWARD, touches=touches, pieces=2, passes=3), layout)
    names = [group.kernel for group in groups_of(without_pauses(program.rows), stoppable=False)]
    check, write = "stamp_check", "stamp_write"
    # It reads at the start, between its writes, and at the end all, and then what it wrote.
    assert names == [check, write, check, write, check]
    assert program.rows.size < GRAPH_WORDS


def test_rows_without_pauses_resolve_what_they_resolved() -> None:
    layout = Rig("fake").memory.layout
    keys = tuple(table_key(0, 1 + k) for k in range(6))
    work = Work(OpKind.TRANSLATE, buffer=1, keys=keys)
    longest = max((compile_work(k, work, layout, Pacing(2, 5)) for k in range(20)), key=_rows)
    plain = compile_work(0, work, layout)
    rows = without_pauses(longest.rows)
    assert len(longest.rows) > len(plain.rows)
    assert rows[1:].tolist() == without_pauses(plain.rows)[1:].tolist()
    assert rows[0, kernels.H_END] == len(rows)
    for row in rows[1:]:
        if row[kernels.C_CODE] == kernels.R_BUFFER_WRITE:
            assert rows[row[kernels.C_END], kernels.C_CODE] == kernels.R_TABLE_READ


def _rows(program: Program) -> int:
    return len(program.rows)
