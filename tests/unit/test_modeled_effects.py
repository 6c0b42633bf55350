"""What modeled work does to bytes: tearing, resolution on the device, failures, undeclared
accesses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onearena.core.device.byte_map import Segment
from onearena.core.device.interface import (
    BUFFER_SLOT_BYTES,
    UNDEFINED,
    ZERO,
    Access,
    OpKind,
    Space,
    Touch,
    Work,
    buffer_access,
    buffer_address,
    table_access,
    table_address,
    table_key,
)
from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.modeled_memory import UNDECLARED_KEPT_MAX, WILD_ADDRESS, Cover
from onearena.core.device.trace import Effect, Trace
from onearena.core.rules import UseKind

UNIT = 64
Seen = list[tuple[int, str, Access, tuple[Segment, ...]]]


def arena(unit: int, *, writes: bool = False, units: int = 1) -> Access:
    return Access(Space.ARENA, unit * UNIT, (unit + units) * UNIT, writes)


def host(unit: int, *, writes: bool = False) -> Access:
    return Access(Space.HOST, unit * UNIT, (unit + 1) * UNIT, writes)


def watched() -> tuple[ModeledDevice, Seen]:
    """A device with one band whose unit 0, the sink, starts at -64, and what its bytes see."""
    device = ModeledDevice(grids={0: (-UNIT, UNIT)}, trace=Trace(keep=True))
    seen: Seen = []

    def on_read(number: int, access: Access, segments: Sequence[Segment]) -> None:
        seen.append((number, "read", access, tuple(segments)))

    def on_write(number: int, access: Access, segments: Sequence[Segment]) -> None:
        seen.append((number, "write", access, tuple(segments)))

    device.memory.on_read = on_read
    device.memory.on_write = on_write
    return device, seen


def effects(device: ModeledDevice, op: int) -> list[tuple[Access, ...]]:
    found = [r for r in device.trace.records if isinstance(r, Effect) and r.op == op]
    assert [r.piece for r in found] == list(range(len(found)))
    return [r.accesses for r in found]


def run_only(device: ModeledDevice, stream: int, steps: int) -> None:
    for _ in range(steps):
        device.step(next(step for step in device.enabled() if step.number == stream))


# -- forwards
# ----------------------------------------------------------------------------------------


def test_a_forward_reads_at_start_middle_and_end_and_writes_in_parts() -> None:
    device, seen = watched()
    stream = device.stream("forward")
    device.memory.arena.assign(0, 2 * UNIT, 7)
    work = Work(
        UseKind.FORWARD,
        (arena(0), arena(1, writes=True)),
        touches=(Touch(-1, 0, UNIT, False), Touch(-1, UNIT, 2 * UNIT, True, 9)),
    )
    op = device.launch(stream, work)
    device.run_until_idle()
    read = (arena(0),)
    assert effects(device, op) == [
        read,
        (Access(Space.ARENA, 64, 96, True),),
        read,
        (Access(Space.ARENA, 96, 128, True),),
        read,
    ]
    assert [what for _, what, _, _ in seen] == ["read", "write", "read", "write", "read"]
    assert [s for _, what, _, s in seen if what == "read"] == [((0, 64, 7),)] * 3
    assert device.memory.arena.read(0, 2 * UNIT) == [(0, 64, 7), (64, 128, 9)]
    assert device.memory.undeclared_count == 0


@pytest.mark.parametrize(
    ("passes", "pieces", "shape"),
    [
        (1, 1, "RW"),
        (2, 1, "RWR"),
        (3, 1, "RRWR"),
        (3, 2, "RWRWR"),
        (3, 4, "RWWRWWR"),
        (1, 3, "RWWW"),
        (5, 2, "RRWRRWR"),
    ],
)
def test_the_shape_of_a_forward_follows_passes_and_pieces(
    passes: int, pieces: int, shape: str
) -> None:
    device, _ = watched()
    access = arena(0, writes=True, units=4)
    work = Work(
        UseKind.FORWARD,
        (access,),
        touches=(Touch(-1, 0, UNIT, False), Touch(-1, 0, 256, True, 1)),
        passes=passes,
        pieces=pieces,
    )
    op = device.launch(device.stream("s"), work)
    device.run_until_idle()
    assert "".join("W" if e[0].writes else "R" for e in effects(device, op)) == shape
    assert device.memory.arena.read(0, 256) == [(0, 256, 1)]


def test_touches_come_from_the_accesses_when_none_are_given() -> None:
    device, _ = watched()
    accesses = (
        arena(0),
        arena(2, writes=True),
        host(0, writes=True),
        buffer_access(0, writes=False),
    )
    op = device.launch(device.stream("s"), Work(UseKind.FORWARD, accesses, stamp=5))
    device.run_until_idle()
    touched = {access for effect in effects(device, op) for access in effect}
    assert touched == {
        arena(0),
        Access(Space.ARENA, 128, 160, True),
        Access(Space.ARENA, 160, 192, True),
    }
    assert device.memory.arena.read(128, 192) == [(128, 192, 5)]
    assert len(device.memory.host) == 1


def test_a_read_in_the_middle_sees_what_another_stream_wrote_since_the_start() -> None:
    device, seen = watched()
    reader, writer = device.stream("reader"), device.stream("writer")
    op = device.launch(reader, Work(UseKind.FORWARD, (arena(0),)))
    device.launch(writer, Work(UseKind.FORWARD, (arena(0, writes=True),), stamp=4))
    for _ in range(2):
        run_only(device, reader, 1 + (not seen))  # start and first pass; then one pass
        run_only(device, writer, 1 + (len(seen) == 1))  # start and first half; then the second
    run_only(device, reader, 1)
    looks = [segments for number, what, _, segments in seen if what == "read" and number == op]
    assert looks == [
        ((0, 64, UNDEFINED),),
        ((0, 32, 4), (32, 64, UNDEFINED)),
        ((0, 64, 4),),
    ]


def test_zeroing_leaves_zero_in_parts() -> None:
    device, _ = watched()
    op = device.launch(device.stream("s"), Work(UseKind.ZEROING, (arena(1, writes=True),)))
    device.run_until_idle()
    assert effects(device, op) == [
        (Access(Space.ARENA, 64, 96, True),),
        (Access(Space.ARENA, 96, 128, True),),
    ]
    assert device.memory.arena.read(64, 128) == [(64, 128, ZERO)]


# -- copies
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "source_space", "target_space"),
    [
        (UseKind.MOVE, Space.ARENA, Space.ARENA),
        (UseKind.FORK, Space.ARENA, Space.ARENA),
        (UseKind.BACKUP, Space.ARENA, Space.HOST),
        (UseKind.LOAD, Space.HOST, Space.ARENA),
    ],
)
def test_a_copy_carries_stamps_between_its_spaces(
    kind: UseKind, source_space: Space, target_space: Space
) -> None:
    device, seen = watched()
    memory = device.memory
    source = memory.arena if source_space == Space.ARENA else memory.host
    target = memory.arena if target_space == Space.ARENA else memory.host
    source.assign(0, 16, 3)
    source.assign(16, 128, 4)
    accesses = (
        Access(source_space, 0, 128, False),
        Access(target_space, 640, 768, True),
    )
    pairs = ((0, 704, 64), (64, 640, 64))
    op = device.launch(device.stream("s"), Work(kind, accesses, pairs=pairs))
    device.run_until_idle()
    assert target.read(640, 768) == [(640, 704, 4), (704, 720, 3), (720, 768, 4)]
    assert source.read(0, 128) == [(0, 16, 3), (16, 128, 4)]
    assert effects(device, op) == [
        (Access(source_space, 0, 32, False), Access(source_space, 64, 96, False)),
        (Access(target_space, 704, 736, True), Access(target_space, 640, 672, True)),
        (Access(source_space, 32, 64, False), Access(source_space, 96, 128, False)),
        (Access(target_space, 736, 768, True), Access(target_space, 672, 704, True)),
    ]
    assert memory.undeclared_count == 0
    written = [segment for _, what, _, segments in seen if what == "write" for segment in segments]
    assert sorted(written) == [
        (640, 672, 4),
        (672, 704, 4),
        (704, 720, 3),
        (720, 736, 4),
        (736, 768, 4),
    ]


def test_a_copy_that_races_with_a_writer_is_torn() -> None:
    device, _ = watched()
    copy, writer = device.stream("copy"), device.stream("writer")
    device.memory.arena.assign(0, UNIT, 1)
    accesses = (arena(0), arena(5, writes=True))
    device.launch(copy, Work(UseKind.MOVE, accesses, pairs=((0, 5 * UNIT, UNIT),)))
    device.launch(writer, Work(UseKind.FORWARD, (arena(0, writes=True),), stamp=2, pieces=1))
    run_only(device, copy, 3)  # start, read and write the first half
    run_only(device, writer, 3)
    device.run_until_idle()
    assert device.memory.arena.read(320, 384) == [(320, 352, 1), (352, 384, 2)]


def test_what_a_copy_read_is_what_it_writes() -> None:
    """A write to the source between a copy's read and its write does not reach the target."""
    device, _ = watched()
    copy, writer = device.stream("copy"), device.stream("writer")
    device.memory.arena.assign(0, UNIT, 1)
    accesses = (arena(0), arena(5, writes=True))
    device.launch(copy, Work(UseKind.MOVE, accesses, pairs=((0, 5 * UNIT, UNIT),), pieces=1))
    device.launch(writer, Work(UseKind.FORWARD, (arena(0, writes=True),), stamp=2))
    run_only(device, copy, 2)
    run_only(device, writer, 3)
    device.run_until_idle()
    assert device.memory.arena.read(320, 384) == [(320, 384, 1)]
    assert device.memory.arena.read(0, 64) == [(0, 64, 2)]


@pytest.mark.parametrize("done", range(5))
@pytest.mark.parametrize("eager", [False, True])
def test_a_failed_load_leaves_its_targets_undefined(done: int, eager: bool) -> None:
    device = ModeledDevice(trace=Trace(keep=True), eager=eager)
    device.memory.host.assign(0, UNIT, 8)
    device.memory.arena.assign(0, 2 * UNIT, 1)
    stream = device.stream("s")
    work = Work(
        UseKind.LOAD,
        (host(0), arena(1, writes=True)),
        pairs=((0, UNIT, UNIT),),
        effects_before_failure=done,
    )
    op = device.launch(stream, work)
    event = device.record(stream)
    device.run_until_idle()
    assert device.query(event), "the stream goes on"
    assert device.memory.arena.read(0, 128) == [(0, 64, 1), (64, 128, UNDEFINED)]
    assert len(effects(device, op)) == done + 1
    assert effects(device, op)[-1] == (arena(1, writes=True),)


def test_parts_are_cut_at_16_bytes_and_cover_everything() -> None:
    draw = random.Random(3)
    for _ in range(200):
        nbytes, pieces = draw.randrange(1, 500), draw.randrange(1, 7)
        start = 16 * draw.randrange(-5, 50)
        device, _ = watched()
        access = Access(Space.ARENA, start, start + nbytes, True)
        work = Work(UseKind.ZEROING, (access,), pieces=pieces)
        op = device.launch(device.stream("s"), work)
        device.run_until_idle()
        parts = [part for effect in effects(device, op) for part in effect]
        assert parts[0].start == start
        assert parts[-1].end == start + nbytes
        for below, above in pairwise(parts):
            assert below.end == above.start
            assert nbytes < 16 * pieces or below.end % 16 == 0


# -- the table, the buffer, and what a forward makes of them
# -----------------------------------------


def translating(device: ModeledDevice, stream: int, keys: tuple[int, ...], slot: int = 0) -> int:
    accesses = (*(table_access(k, writes=False) for k in keys), buffer_access(slot, writes=True))
    return device.launch(stream, Work(OpKind.TRANSLATE, accesses, keys=keys, buffer=slot))


def updating(device: ModeledDevice, stream: int, entries: dict[int, int]) -> int:
    accesses = tuple(table_access(key, writes=True) for key in entries)
    return device.launch(
        stream, Work(OpKind.TABLE_UPDATE, accesses, entries=tuple(entries.items()))
    )


def forward(*units: int, slot: int = 0, touches: tuple[Touch, ...] = ()) -> Work:
    accesses = tuple(arena(unit) for unit in units)
    touches = touches or tuple(Touch(k, 0, UNIT, False) for k in range(len(units)))
    declared = (*accesses, buffer_access(slot, writes=False))
    return Work(UseKind.FORWARD, declared, "f", touches, buffer=slot)


A, B = table_key(0, 1), table_key(0, 2)


def test_a_forward_goes_where_its_buffer_says() -> None:
    device, _ = watched()
    stream = device.stream("schedule")
    updating(device, stream, {A: 3, B: 6})  # unit u starts at (u - 1) * 64
    translate = translating(device, stream, (B, A))
    op = device.launch(stream, forward(2, 5))
    device.run_until_idle()
    assert effects(device, translate) == [
        (table_access(B, writes=False), table_access(A, writes=False)),
        (buffer_access(0, writes=True),),
    ]
    assert effects(device, op) == [(buffer_access(0, writes=False), arena(5), arena(2))] * 3
    assert device.memory.undeclared == []


def test_a_translation_sees_the_table_as_it_is_when_it_runs() -> None:
    device, _ = watched()
    a, b = device.stream("a"), device.stream("b")
    updating(device, a, {A: 3})
    device.run_until_idle()
    translating(device, a, (A,))
    updating(device, b, {A: 7})
    run_only(device, b, 4)
    op = device.launch(a, forward(2))
    device.run_until_idle()
    assert effects(device, op)[0][1] == arena(6)
    assert device.memory.undeclared == [(op, arena(6))], "the host recorded the old place"


def test_a_table_update_is_torn_too() -> None:
    device, _ = watched()
    a, b = device.stream("a"), device.stream("b")
    updating(device, a, {A: 3, B: 3})
    translating(device, b, (A, B))
    run_only(device, a, 2)  # start and the first entry
    device.run_until_idle(lambda steps: len(steps) - 1)  # stream b first
    assert device.memory.buffers[0] == ((128, 192), (-64, 0))


def test_a_buffer_filled_too_early_sends_the_running_forward_elsewhere() -> None:
    device, _ = watched()
    a, b = device.stream("a"), device.stream("b")
    updating(device, a, {A: 3, B: 6})
    translating(device, a, (A,))
    device.run_until_idle()
    op = device.launch(b, forward(2))
    run_only(device, b, 2)
    translating(device, a, (B,))
    run_only(device, a, 4)
    device.run_until_idle()
    assert [effect[1] for effect in effects(device, op)] == [arena(2), arena(5), arena(5)]
    assert device.memory.undeclared == [(op, arena(5))]


def test_an_empty_buffer_sends_a_forward_to_bytes_nobody_owns() -> None:
    device, _ = watched()
    op = device.launch(device.stream("s"), forward(0))
    device.run_until_idle()
    wild = Access(Space.ARENA, WILD_ADDRESS, WILD_ADDRESS + UNIT, False)
    assert effects(device, op)[0][1] == wild
    assert device.memory.undeclared == [(op, wild)]


def test_an_entry_never_written_is_the_sink() -> None:
    device, _ = watched()
    stream = device.stream("s")
    translating(device, stream, (A,))
    op = device.launch(stream, forward(-1))
    device.run_until_idle()
    assert effects(device, op)[0][1] == arena(-1)
    assert device.memory.undeclared == []


def test_a_band_without_a_grid_is_nowhere() -> None:
    device, _ = watched()
    stream = device.stream("s")
    translating(device, stream, (table_key(5, 1),))
    device.run_until_idle()
    assert device.memory.buffers[0] == ((WILD_ADDRESS, WILD_ADDRESS),)


def test_touches_are_offsets_within_the_resolved_range() -> None:
    device, _ = watched()
    stream = device.stream("s")
    updating(device, stream, {A: 3})
    translating(device, stream, (A,))
    work = Work(
        UseKind.FORWARD,
        (arena(2, writes=True), buffer_access(0, writes=False)),
        touches=(Touch(0, 0, 48, False), Touch(0, 48, 64, True, 5)),
        buffer=0,
        pieces=1,
    )
    op = device.launch(stream, work)
    device.run_until_idle()
    touched = [effect[1] for effect in effects(device, op)]
    assert touched[0] == Access(Space.ARENA, 128, 176, False)
    assert [access for access in touched if access.writes] == [Access(Space.ARENA, 176, 192, True)]
    assert device.memory.undeclared == []


def test_addresses_of_table_and_buffer() -> None:
    key = table_key(3, 5)
    assert key == (3 << 26) + 5
    assert table_access(key, writes=True) == (2, table_address(key), table_address(key) + 8, True)
    assert table_address(key + 1) == table_address(key) + 8
    assert buffer_access(2, writes=False) == (3, buffer_address(2), buffer_address(3), False)
    assert buffer_address(1) == BUFFER_SLOT_BYTES


# -- accesses nobody recorded
# ------------------------------------------------------------------------


def undeclared_of(work: Work) -> list[Access]:
    device, _ = watched()
    reported: list[tuple[int, Access]] = []
    device.memory.on_undeclared = lambda number, access: reported.append((number, access))
    if work.kind in (UseKind.SEND, UseKind.RECEIVE):
        number = device.begin_transfer(work)
    else:
        number = device.launch(device.stream("s"), work)
    device.run_until_idle()
    assert reported == device.memory.undeclared
    assert len(reported) == device.memory.undeclared_count
    assert all(op == number for op, _ in reported)
    return [access for _, access in reported]


READS_0 = (Touch(-1, 0, 64, False),)
WRITES_0 = (Touch(-1, 0, 64, True),)


@pytest.mark.parametrize(
    ("work", "missing"),
    [
        (Work(UseKind.FORWARD, (arena(0),), touches=READS_0), []),
        (Work(UseKind.FORWARD, (arena(0, writes=True),), touches=READS_0), []),
        (Work(UseKind.FORWARD, (arena(-1, units=3),), touches=READS_0), []),
        (Work(UseKind.FORWARD, (arena(1),), touches=READS_0), [arena(0)]),
        (Work(UseKind.FORWARD, (host(0),), touches=READS_0), [arena(0)]),
        (Work(UseKind.FORWARD, (arena(0),), touches=WRITES_0), [arena(0, writes=True)]),
        (Work(UseKind.SEND, (arena(1),), touches=READS_0), [arena(0)]),
        (Work(UseKind.RECEIVE, (arena(0),), touches=WRITES_0), [arena(0, writes=True)]),
        (
            Work(UseKind.MOVE, (arena(0),), pairs=((0, 64, 64),)),
            [arena(1, writes=True)],
        ),
        (
            Work(UseKind.MOVE, (arena(1, writes=True),), pairs=((0, 64, 64),)),
            [arena(0)],
        ),
        (
            Work(UseKind.BACKUP, (arena(0), arena(1, writes=True)), pairs=((0, 64, 64),)),
            [host(1, writes=True)],
        ),
        (Work(UseKind.LOAD, (arena(1, writes=True),), pairs=((0, 64, 64),)), [host(0)]),
        (
            Work(OpKind.TABLE_UPDATE, (table_access(A, writes=False),), entries=((A, 1),)),
            [table_access(A, writes=True)],
        ),
        (
            Work(OpKind.TRANSLATE, (buffer_access(0, writes=True),), keys=(A,), buffer=0),
            [table_access(A, writes=False)],
        ),
        (
            Work(OpKind.TRANSLATE, (table_access(A, writes=False),), keys=(A,), buffer=0),
            [buffer_access(0, writes=True)],
        ),
        (Work(UseKind.FORWARD, buffer=4), []),
        (
            Work(UseKind.FORWARD, (arena(0),), touches=READS_0, buffer=4),
            [buffer_access(4, writes=False)],
        ),
    ],
)
def test_an_access_without_a_record_is_reported_once(work: Work, missing: list[Access]) -> None:
    assert undeclared_of(work) == missing


def test_what_is_kept_of_undeclared_accesses_is_bounded() -> None:
    touches = tuple(Touch(-1, 16 * k, 16 * k + 16, False) for k in range(UNDECLARED_KEPT_MAX + 5))
    device, _ = watched()
    device.launch(device.stream("s"), Work(UseKind.FORWARD, touches=touches))
    device.run_until_idle()
    assert len(device.memory.undeclared) == UNDECLARED_KEPT_MAX
    assert device.memory.undeclared_count == UNDECLARED_KEPT_MAX + 5


ACCESS = st.builds(
    lambda space, start, length, writes: Access(Space(space), start, start + length, writes),
    st.integers(0, 1),
    st.integers(0, 20),
    st.integers(1, 8),
    st.booleans(),
)


@example([Access(Space.ARENA, 10, 30, False)], Access(Space.ARENA, 5, 12, False), -5)
@given(st.lists(ACCESS, max_size=8), ACCESS, st.integers(-8, 8))
def test_cover_equals_a_check_of_every_byte(
    recorded: list[Access], touched: Access, back: int
) -> None:
    expected = all(
        any(
            r.space == touched.space
            and r.start <= byte < r.end
            and (r.writes or not touched.writes)
            for r in recorded
        )
        for byte in range(touched.start, touched.end)
    )
    answer = Cover(recorded).covers(
        int(touched.space),
        touched.start,
        touched.end,
        writes=touched.writes,
        base=touched.start - back,
    )
    assert answer == expected
