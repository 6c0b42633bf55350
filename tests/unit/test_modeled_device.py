"""The modeled device as a host sees it: streams, events, observations, refusals, faults,
determinism.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from onearena.core.device import modeled
from onearena.core.device.interface import (
    Access,
    Device,
    OpKind,
    Space,
    Touch,
    Work,
    buffer_access,
    table_access,
    table_key,
)
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.device.trace import (
    Effect,
    End,
    Enqueue,
    Observe,
    Record,
    Start,
    Trace,
    WaitEvent,
    json_lines,
    read_json_lines,
)
from onearena.core.errors import DeviceError, MisuseError
from onearena.core.rules import UseKind


def write(start: int, stamp: int = 1, pieces: int = 1) -> Work:
    """Work with one write of 16 bytes a piece."""
    access = Access(Space.ARENA, start, start + 16 * pieces, True)
    return Work(UseKind.ZEROING, (access,), f"w{stamp}", stamp=stamp, pieces=pieces)


def every_schedule(
    make: Callable[[], tuple[ModeledDevice, Callable[[], bool]]],
) -> Iterator[ModeledDevice]:
    """Runs `make`'s device along every choice of steps; its callable is the host's next move, if
    it has one.

    The host's move answers whether it did anything; it is offered as one more choice at each point.
    """
    todo: list[list[int]] = [[]]
    while todo:
        prefix = todo.pop()
        device, host = make()
        depth = 0
        while True:
            steps: list[Step | None] = [*device.enabled(), None]
            if depth == len(prefix):
                todo += [[*prefix, k] for k in range(1, len(steps))]
                prefix = [*prefix, 0]
            step = steps[prefix[depth]]
            depth += 1
            if step is not None:
                device.step(step)
            elif not host():
                break
        if not device.enabled():
            yield device


def effect_order(device: ModeledDevice) -> tuple[int, ...]:
    return tuple(record.op for record in device.trace.records if isinstance(record, Effect))


def no_host() -> bool:
    return False


def kept(**settings: bool) -> ModeledDevice:
    return ModeledDevice(trace=Trace(keep=True), **settings)  # type: ignore[arg-type]


# -- order
# -------------------------------------------------------------------------------------------


def test_a_modeled_device_is_a_device() -> None:
    device: Device = ModeledDevice()
    assert device.stream("a") == device.stream("a") == 0
    assert device.stream("b") == 1
    assert device.trace.stream_names == ["a", "b"]


def test_a_stream_is_first_in_first_out() -> None:
    def make() -> tuple[ModeledDevice, Callable[[], bool]]:
        device = kept()
        stream = device.stream("s")
        for k in range(3):
            device.launch(stream, write(0, k, pieces=2))
        return device, no_host

    assert {effect_order(device) for device in every_schedule(make)} == {(0, 0, 1, 1, 2, 2)}


def test_streams_interleave_effect_by_effect() -> None:
    def make() -> tuple[ModeledDevice, Callable[[], bool]]:
        device = kept()
        device.launch(device.stream("a"), write(0, 1, pieces=2))
        device.launch(device.stream("b"), write(0, 2, pieces=2))
        return device, no_host

    orders = {effect_order(device) for device in every_schedule(make)}
    assert orders == {
        (0, 0, 1, 1),
        (0, 1, 0, 1),
        (0, 1, 1, 0),
        (1, 0, 0, 1),
        (1, 0, 1, 0),
        (1, 1, 0, 0),
    }


def test_a_wait_orders_what_comes_after_it_behind_what_the_record_covers() -> None:
    def make() -> tuple[ModeledDevice, Callable[[], bool]]:
        device = kept()
        a, b = device.stream("a"), device.stream("b")
        device.launch(a, write(0))  # op 0, covered
        event = device.record(a)
        device.launch(a, write(0))  # op 1, not covered
        device.launch(b, write(0))  # op 2, before the wait
        device.wait(b, event)
        device.launch(b, write(0))  # op 3, behind the wait
        return device, no_host

    orders = {effect_order(device) for device in every_schedule(make)}
    assert all(order.index(0) < order.index(3) for order in orders)
    assert any(order.index(3) < order.index(1) for order in orders), "op 1 is not covered"
    assert any(order.index(2) < order.index(0) for order in orders), "op 2 does not wait"
    # 0<1, 2<3, 0<3 and nothing else: 5 of the 24 orders.
    assert len(orders) == 5


def test_a_record_covers_only_its_own_stream() -> None:
    device = kept()
    a, b = device.stream("a"), device.stream("b")
    device.launch(b, write(0))
    event = device.record(a)
    while step := next((s for s in device.enabled() if s.number == a), None):
        device.step(step)
    assert device.complete(event)
    assert effect_order(device) == ()


def test_an_event_is_complete_only_after_the_end_of_the_work() -> None:
    device = kept()
    stream = device.stream("s")
    device.launch(stream, write(0))
    event = device.record(stream)
    for kind in (StepKind.START, StepKind.EFFECT, StepKind.END, StepKind.COMPLETE):
        assert not device.complete(event)
        assert not device.query(event)
        assert device.enabled() == [Step(kind, stream)]
        device.step(device.enabled()[0])
    assert device.complete(event)
    assert device.query(event)


def test_what_the_host_enqueues_after_it_saw_an_event_runs_after_it() -> None:
    def make() -> tuple[ModeledDevice, Callable[[], bool]]:
        device = kept()
        a, b = device.stream("a"), device.stream("b")
        device.launch(a, write(0))
        event = device.record(a)
        done = [False]

        def host() -> bool:
            if not done[0] and device.query(event):
                done[0] = True
                device.launch(b, write(0))
                return True
            return False

        return device, host

    runs = list(every_schedule(make))
    saw = [device for device in runs if len(effect_order(device)) == 2]
    assert saw
    assert {effect_order(device) for device in saw} == {(0, 1)}
    for device in saw:
        kinds = [type(record) for record in device.trace.records]
        assert kinds.index(Observe) > kinds.index(End)


def test_calls_return_without_running_anything() -> None:
    device = kept()
    stream = device.stream("s")
    op = device.launch(stream, write(0))
    event = device.record(stream)
    device.wait(stream, event)
    assert device.trace.records == [
        Enqueue(op, stream, UseKind.ZEROING, "w1", (Access(Space.ARENA, 0, 16, True),)),
        Record(event, stream),
        WaitEvent(stream, event),
    ]
    assert device.busy()
    assert device.run_until_idle() == 5
    assert not device.busy()
    assert [type(record) for record in device.trace.records[3:]] == [Start, Effect, End]


# -- events: seeing, lag, release
# --------------------------------------------------------------------


def finished_event(device: ModeledDevice, stream: int) -> int:
    device.launch(stream, write(0))
    return device.record(stream)


def test_an_observation_is_logged_once_and_stays() -> None:
    device = kept()
    shown = [True]
    device.gate = lambda what, number: shown[0]
    event = finished_event(device, device.stream("s"))
    device.run_until_idle()
    assert device.query(event)
    shown[0] = False
    assert device.query(event)
    assert [type(record) for record in device.trace.records].count(Observe) == 1


def test_the_gate_keeps_a_complete_event_from_the_host() -> None:
    device = kept()
    asked: list[tuple[str, int]] = []

    def gate(what: str, number: int) -> bool:
        asked.append((what, number))
        return len(asked) == 3

    device.gate = gate
    event = finished_event(device, device.stream("s"))
    assert not device.query(event)
    assert asked == [], "nobody asks about what is not complete"
    device.run_until_idle()
    assert device.complete(event)
    assert [device.query(event) for _ in range(4)] == [False, False, True, True]
    assert asked == [("event", event)] * 3


def test_what_an_observed_event_implies_is_seen_at_once() -> None:
    """A query after a later event was seen cannot answer no: real devices do not forget."""
    device = kept()
    a, b, c = (device.stream(name) for name in "abc")
    first = finished_event(device, a)
    other = finished_event(device, c)
    second = finished_event(device, a)
    device.wait(b, second)
    third = finished_event(device, b)
    device.run_until_idle()
    visible = {third}
    device.gate = lambda what, number: number in visible
    assert not device.query(first)
    assert not device.query(second)
    assert device.query(third)
    assert device.query(second), "the wait orders it before the third"
    assert device.query(first), "the stream orders it before the second"
    assert not device.query(other), "nothing orders it"


def test_an_event_that_completes_later_is_not_implied() -> None:
    device = kept()
    a, b = device.stream("a"), device.stream("b")
    event = finished_event(device, a)
    device.wait(b, event)
    later = finished_event(device, a)  # recorded after the wait's event
    mine = finished_event(device, b)
    device.run_until_idle()
    device.gate = lambda what, number: number == mine
    assert device.query(mine)
    assert device.query(event)
    assert not device.query(later)


def test_a_release_ends_the_id_and_not_the_waits() -> None:
    device = kept()
    a, b = device.stream("a"), device.stream("b")
    device.launch(a, write(0))
    event = device.record(a)
    device.wait(b, event)
    device.release(event)
    device.launch(b, write(0))
    device.run_until_idle(lambda steps: len(steps) - 1)  # stream b first wherever it can go
    assert effect_order(device) == (0, 1)
    with pytest.raises(AssertionError, match=f"event {event}"):
        device.release(event)


def test_event_ids_are_never_used_twice() -> None:
    device = ModeledDevice()
    stream = device.stream("s")
    seen = set()
    for _ in range(50):
        event = device.record(stream)
        seen.add(event)
        device.run_until_idle()
        device.release(event)
    assert len(seen) == 50


def test_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeled, "EVENTS_MAX", 3)
    device = ModeledDevice()
    stream = device.stream("s")
    events = [device.record(stream) for _ in range(3)]
    before = device.trace.digest()
    with pytest.raises(DeviceError, match="release"):
        device.record(stream)
    assert device.trace.digest() == before
    device.release(events[0])
    assert device.record(stream) not in events


# -- refusals
# ----------------------------------------------------------------------------------------


def refused_calls() -> dict[str, tuple[Callable[[ModeledDevice], object], str]]:
    return {
        "wait, never recorded": (lambda d: d.wait(0, 99), "event"),
        "wait, negative": (lambda d: d.wait(0, -1), "event"),
        "wait, released": (lambda d: d.wait(0, 1), "event"),
        "query, never recorded": (lambda d: d.query(99), "event"),
        "query, released": (lambda d: d.query(1), "event"),
        "launch, unknown stream": (lambda d: d.launch(7, write(0)), "stream"),
        "launch, negative stream": (lambda d: d.launch(-1, write(0)), "stream"),
        "record, unknown stream": (lambda d: d.record(7), "stream"),
        "wait, unknown stream": (lambda d: d.wait(7, 0), "stream"),
        "launch of a transfer": (lambda d: d.launch(0, Work(UseKind.SEND)), "work"),
        "begin of an op": (lambda d: d.begin_transfer(write(0)), "work"),
        "status, unknown": (lambda d: d.transfer_status(0), "transfer"),
        "cancel, unknown": (lambda d: d.cancel_transfer(99), "transfer"),
    }


@pytest.mark.parametrize("name", refused_calls())
def test_misuse_is_refused_with_nothing_changed(name: str) -> None:
    call, argument = refused_calls()[name]
    device = kept()
    stream = device.stream("s")
    device.launch(stream, write(0))
    assert device.record(stream) == 0
    device.release(device.record(stream))
    records, steps = list(device.trace.records), device.enabled()
    with pytest.raises(MisuseError) as refused:
        call(device)
    assert refused.value.argument == argument
    assert device.trace.records == records
    assert device.enabled() == steps
    device.run_until_idle()


def test_a_step_that_is_not_enabled_is_an_error_of_the_caller() -> None:
    device = ModeledDevice()
    stream = device.stream("s")
    device.launch(stream, write(0))
    with pytest.raises(AssertionError, match="not enabled"):
        device.step(Step(StepKind.END, stream))
    with pytest.raises(AssertionError, match="kind is 99"):
        device.launch(stream, Work(99))


# -- faults of the device
# ----------------------------------------------------------------------------


def test_a_stuck_stream_is_named_with_its_event() -> None:
    device = ModeledDevice()
    a, b = device.stream("forward"), device.stream("copy")
    device.launch(a, write(0))
    event = device.record(a)
    device.wait(b, event)
    device.stall(a)
    with pytest.raises(DeviceError) as stuck:
        device.run_until_idle()
    assert "'copy' is stuck: it waits on event 0 of 'forward'" in stuck.value.message
    assert "'forward' is stuck: it takes no step" in stuck.value.message
    device.stall(a, stalled=False)
    device.run_until_idle()
    assert device.query(event)


@pytest.mark.parametrize("eager", [False, True])
def test_a_stalled_stream_stands_still_in_the_middle(eager: bool) -> None:
    device = kept(eager=eager)
    a, b = device.stream("a"), device.stream("b")
    device.launch(a, write(0, 1, pieces=3))
    device.launch(b, write(0, 2, pieces=3))
    while effect_order(device).count(0) < 1:
        device.step(device.enabled()[0])
    device.stall(a)
    with pytest.raises(DeviceError, match="'a'"):
        device.run_until_idle()
    assert effect_order(device) == (0, 1, 1, 1)


def test_a_broken_device_refuses_every_call() -> None:
    device = ModeledDevice()
    stream = device.stream("s")
    event = device.record(stream)
    transfer = device.begin_transfer(Work(UseKind.SEND))
    device.break_down("ECC error")
    calls: list[Callable[[], object]] = [
        lambda: device.stream("s"),
        lambda: device.launch(stream, write(0)),
        lambda: device.record(stream),
        lambda: device.wait(stream, event),
        lambda: device.query(event),
        lambda: device.begin_transfer(Work(UseKind.SEND)),
        lambda: device.transfer_status(transfer),
        lambda: device.cancel_transfer(transfer),
        lambda: device.disconnect(0),
        device.run_until_idle,
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="ECC error"):
            call()
    assert device.enabled() == []


# -- determinism
# -------------------------------------------------------------------------------------


def busy_day(seed: int, *, eager: bool = False, rounds: int = 60) -> ModeledDevice:
    """Random calls and random steps of every kind, all drawn from `seed`."""
    draw = random.Random(seed)
    device = ModeledDevice(grids={0: (-64, 64)}, trace=Trace(keep=True), eager=eager)
    device.gate = lambda what, number: draw.random() < 0.5
    streams = [device.stream(name) for name in ("schedule", "forward", "copy")]
    events: list[int] = []
    transfers: list[int] = []
    for k in range(rounds):
        stream = draw.choice(streams)
        key = table_key(0, 1 + k % 8)
        unit = Access(Space.ARENA, 64 * draw.randrange(8), 0, False)
        unit = unit._replace(end=unit.start + 64, writes=draw.random() < 0.5)
        works = (
            Work(OpKind.TABLE_UPDATE, (table_access(key, writes=True),), entries=((key, k % 8),)),
            Work(
                OpKind.TRANSLATE,
                (table_access(key, writes=False), buffer_access(k % 2, writes=True)),
                keys=(key,),
                buffer=k % 2,
            ),
            Work(UseKind.FORWARD, (unit,), "f", (Touch(0, 0, 64, unit.writes, k),), buffer=k % 2),
            Work(UseKind.MOVE, (unit,), "m", pairs=((unit.start, 64 * (k % 8), 64),)),
            Work(UseKind.BACKUP, (unit,), pairs=((unit.start, 64 * (k % 8), 64),)),
            Work(UseKind.LOAD, (unit,), pairs=((0, 0, 64),), effects_before_failure=k % 4),
            Work(UseKind.ZEROING, (unit,)),
        )
        device.launch(stream, draw.choice(works))
        if draw.random() < 0.7:
            events.append(device.record(stream))
        if events and draw.random() < 0.5:
            device.wait(draw.choice(streams), draw.choice(events))
        if draw.random() < 0.4:
            kind = UseKind.RECEIVE if unit.writes else UseKind.SEND
            transfers.append(device.begin_transfer(Work(kind, (unit,), stamp=k, peer=k % 3)))
        if transfers and draw.random() < 0.1:
            transfer = draw.choice(transfers)
            if device.transfer_status(transfer) == 0:
                device.cancel_transfer(transfer)
        if draw.random() < 0.05:
            device.disconnect(draw.randrange(3))
        for _ in range(draw.randrange(20)):
            steps = device.enabled(faults=draw.random() < 0.05)
            if not steps:
                break
            device.step(draw.choice(steps))
        if events:
            device.query(draw.choice(events))
    device.run_until_idle(lambda steps: draw.randrange(len(steps)))
    return device


@pytest.mark.parametrize("eager", [False, True])
def test_equal_choices_give_equal_traces(eager: bool) -> None:
    digests = [busy_day(seed, eager=eager).trace.digest() for seed in range(20)]
    assert digests == [busy_day(seed, eager=eager).trace.digest() for seed in range(20)]
    assert len(set(digests)) == 20


def test_equal_choices_give_equal_traces_in_processes_with_other_hash_seeds() -> None:
    code = (
        "import importlib.util as u, sys;"
        f"s = u.spec_from_file_location('day', {__file__!r});"
        "m = u.module_from_spec(s); sys.modules['day'] = m; s.loader.exec_module(m);"
        "print([m.busy_day(seed).trace.digest() for seed in range(10)])"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].strip() == str([busy_day(seed).trace.digest() for seed in range(10)])


def test_a_busy_day_reaches_everything_and_survives_the_json_form() -> None:
    kinds = set()
    for seed in range(10):
        device = busy_day(seed)
        kinds |= {type(record).__name__ for record in device.trace.records}
        back = read_json_lines(json_lines(device.trace))
        assert back.digest() == device.trace.digest()
        assert back.records == device.trace.records
        check_executions(device.trace.records)
    assert kinds == {
        *("Enqueue", "Record", "WaitEvent", "Observe", "TransferBegin", "TransferEnd"),
        *("Start", "Effect", "End"),
    }


def check_executions(records: Sequence[object]) -> None:
    """Every op is queued, starts, has effects counted from 0, ends; nothing after the end."""
    phase: dict[int, tuple[str, int]] = {}
    for record in records:
        name = type(record).__name__
        if name in ("Enqueue", "TransferBegin"):
            assert record[0] not in phase  # type: ignore[index]
            phase[record[0]] = ("queued", 0)  # type: ignore[index]
        elif isinstance(record, Start):
            assert phase[record.op] == ("queued", 0)
            phase[record.op] = ("running", 0)
        elif isinstance(record, Effect):
            assert phase[record.op] == ("running", record.piece)
            phase[record.op] = ("running", record.piece + 1)
        elif isinstance(record, End):
            assert phase[record.op][0] == "running"
            phase[record.op] = ("ended", 0)


def test_steps_are_listed_in_a_stable_order_and_described() -> None:
    device = ModeledDevice()
    streams = [device.stream(name) for name in ("schedule", "forward")]
    device.launch(streams[1], write(0, 5))
    device.record(streams[0])
    transfers = [
        device.begin_transfer(Work(UseKind.SEND, label="pd", peer=peer)) for peer in (9, 4, 9)
    ]
    device.cancel_transfer(transfers[0])
    listed = [
        Step(StepKind.COMPLETE, 0),
        Step(StepKind.START, 1),
        Step(StepKind.TRANSFER_START, transfers[0]),
        Step(StepKind.CANCEL_ACKNOWLEDGED, transfers[0]),
        Step(StepKind.TRANSFER_START, transfers[1]),
        Step(StepKind.TRANSFER_START, transfers[2]),
    ]
    assert device.enabled() == listed
    faults = [Step(StepKind.TRANSFER_FAIL, transfer) for transfer in transfers]
    faults += [Step(StepKind.PEER_DIES, peer) for peer in (4, 9)]
    assert device.enabled(faults=True) == listed + faults
    assert [device.describe(step) for step in device.enabled(faults=True)] == [
        "schedule: complete event 0",
        "forward: start of op 0 (w5)",
        "transfer start of transfer 1 (pd)",
        "cancel acknowledged of transfer 1 (pd)",
        "transfer start of transfer 2 (pd)",
        "transfer start of transfer 3 (pd)",
        "transfer fail of transfer 1 (pd)",
        "transfer fail of transfer 2 (pd)",
        "transfer fail of transfer 3 (pd)",
        "peer 4 dies",
        "peer 9 dies",
    ]
