"""Expected content of units, against a list of bytes; and what the work of a forward touches."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from onearena.core.device.interface import Access, Space
from onearena.core.rules import UseKind
from onearena.core.uses import Use
from onearena.stress.forwards import NOTHING, Runs, copy_work, forward_work, write_over

WRITES = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 8), st.integers(1, 3)), max_size=8)


def _bytes(runs: Runs) -> list[int]:
    content = [0] * 32
    for start, end, stamp in runs:
        assert 0 <= start < end <= 32
        content[start:end] = [stamp] * (end - start)
    return content


@given(WRITES)
def test_write_over_is_what_happens_to_bytes(writes: list[tuple[int, int, int]]) -> None:
    runs, content = NOTHING, [0] * 32
    for start, length, stamp in writes:
        runs = write_over(runs, start, start + length, stamp)
        content[start : start + length] = [stamp] * length
        content[start + length :] = [0] * (32 - start - length)
        assert _bytes(runs) == content
        assert all(left[1] <= right[0] for left, right in pairwise(runs))


def test_appended_entries_of_one_life_are_one_run() -> None:
    runs = write_over(write_over(NOTHING, 0, 4, 9), 4, 6, 9)
    assert runs == ((0, 6, 9),)


def _use(buffer: int) -> Use:
    return Use(
        7,
        UseKind.FORWARD,
        1,
        reads=((11, 100, 200), (12, 200, 300)),
        writes=((12, 200, 300),),
        buffer=buffer,
        accesses=(Access(Space.ARENA, 100, 200, False),),
    )


def test_a_translated_forward_names_places_in_its_buffer() -> None:
    reads = [((0, 50, 5),), ((0, 10, 6), (10, 20, 7))]
    work = forward_work(_use(3), reads, [(20, 40, 8)], pieces=2, passes=3, label="f")
    assert [tuple(touch) for touch in work.touches] == [
        (0, 0, 50, False, 5),
        (1, 0, 10, False, 6),
        (1, 10, 20, False, 7),
        (2, 20, 40, True, 8),
    ]
    assert work.buffer == 3
    assert work.accesses == _use(3).accesses


def test_without_translation_addresses_are_absolute() -> None:
    reads = [((0, 50, 5),), NOTHING]
    work = forward_work(_use(-1), reads, [(20, 40, 8)], pieces=1, passes=1, label="f")
    assert [tuple(touch) for touch in work.touches] == [
        (-1, 100, 150, False, 5),
        (-1, 220, 240, True, 8),
    ]


def test_copies_run_from_the_read_side_to_the_written_one() -> None:
    backup = Use(1, UseKind.BACKUP, 4, reads=((11, 100, 200),), host_writes=((1, 0, 100),))
    work = copy_work(backup, [60], pieces=2, fails_after=-1, label="b")
    assert work.pairs == ((100, 0, 60),)
    load = Use(2, UseKind.LOAD, 5, host_reads=((1, 0, 100),), writes=((12, 300, 400),))
    work = copy_work(load, [60], pieces=2, fails_after=1, label="l")
    assert work.pairs == ((0, 300, 60),)
    assert work.effects_before_failure == 1
