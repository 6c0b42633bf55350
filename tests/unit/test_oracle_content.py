"""Content and poison: what reads find, across moves, forks, host copies and transfers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onearena.core.device.interface import POISON, UNDEFINED, Access, Space
from onearena.core.rules import UseKind
from onearena.stress.oracles import stamps
from onearena.stress.oracles.script import (
    BANDS,
    STATE,
    WINDOW,
    Launched,
    Script,
    touch,
)

A, B, C = 101, 102, 103


class Memory:
    """Stands for the device's memory: the oracles hang their hooks on it."""

    on_read = None
    on_undeclared = None


def script(*only: str, zero: bool = False) -> Script:
    bands = (replace(BANDS[0], zero_on_hand_out=zero), *BANDS[1:])
    run = Script(bands, only=frozenset(only or ("content",)))
    run.memory = Memory()  # type: ignore[attr-defined]
    run.oracles.watch(run.memory)  # type: ignore[attr-defined]
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    return run


def sees(
    run: Script, launched: Launched, start: int, end: int, stamp: int, *, host: bool = False
) -> None:
    """The device reads [start, end) for a launched use and finds one stamp."""
    access = Access(Space.HOST if host else Space.ARENA, start, end, False)
    run.memory.on_read(launched.op, access, [(start, end, stamp)])  # type: ignore[attr-defined]


def written(run: Script, name: int, end: int, stamp: int) -> Launched:
    use = run.record(UseKind.FORWARD, 1, (), [name])
    return run.launch(use, touches=(touch(use, 0, 0, end, stamp=stamp),))


def reading(run: Script, name: int, end: int) -> Launched:
    use = run.record(UseKind.FORWARD, 1, [name])
    return run.launch(use, touches=(touch(use, 0, 0, end),))


def done(run: Script) -> set[tuple[str, str]]:
    run.call("compact", 0, answer=0)
    return run.finish()


@pytest.mark.parametrize(("stamp", "broken"), [(7, False), (8, True)])
def test_a_read_finds_what_was_written(stamp: int, *, broken: bool) -> None:
    run = script()
    written(run, A, 64, 7)
    sees(run, reading(run, A, 64), 0, 64, stamp)
    assert done(run) == ({("content", "6")} if broken else set())


def test_a_read_finds_what_was_written_before_its_launch_not_after() -> None:
    run = script()
    written(run, A, 64, 7)
    first = reading(run, A, 64)
    written(run, A, 64, 8)
    sees(run, first, 0, 64, 7)
    assert done(run) == set()
    sees(run, first, 0, 64, 8)
    assert done(run) == {("content", "6")}


def test_a_forward_may_find_its_own_write_done_in_part() -> None:
    run = script()
    written(run, A, 64, 7)
    use = run.record(UseKind.FORWARD, 1, [A], [A])
    touches = (touch(use, 0, 0, 64), touch(use, 1, 0, 64, stamp=9))
    launched = run.launch(use, touches=touches)
    found = [(0, 32, 9), (32, 64, 7)]
    run.memory.on_read(launched.op, Access(Space.ARENA, 0, 64, False), found)  # type: ignore[attr-defined]
    assert done(run) == set()


def test_content_goes_with_a_move() -> None:
    run = script()
    written(run, B, 64, 7)
    run.move_copy(0, (STATE, 2), (STATE, 3))
    run.units[B] = (STATE, 3)
    run.call("move", STATE, (B,), answer=1)
    launched = reading(run, B, 64)
    sees(run, launched, 128, 192, 7)
    assert done(run) == set()
    sees(run, launched, 160, 192, UNDEFINED)
    assert done(run) == {("poison", "6")}


def test_a_read_at_a_stale_address_is_found() -> None:
    run = script()
    written(run, B, 64, 7)
    run.units[B] = (STATE, 3)
    sees(run, reading(run, B, 64), 64, 128, 7)
    assert done(run) == {("content", "9")}


def test_content_goes_with_a_fork() -> None:
    run = script()
    written(run, A, 64, 7)
    run.fork([A], {C: (STATE, 3)})
    launched = reading(run, C, 64)
    sees(run, launched, 128, 192, 7)
    assert done(run) == set()
    sees(run, launched, 128, 192, 6)
    assert done(run) == {("content", "6")}


def backed_up(run: Script, *, fails: int = -1) -> None:
    written(run, A, 48, 7)
    run.call("reserve_host", 0, 1, answer=(1,))
    use = run.record(UseKind.BACKUP, 1, [A], host_writes=[1])
    launched = run.launch(use, pairs=((0, 64, 48),), effects_before_failure=fails)
    sees(run, launched, 0, 48, 7)


def loaded(run: Script, *, fails: int = -1) -> Launched:
    use = run.record(UseKind.LOAD, 1, writes=[B], host_reads=[1])
    return run.launch(use, pairs=((64, 64, 48),), effects_before_failure=fails)


@pytest.mark.parametrize(("stamp", "broken"), [(7, False), (8, True)])
def test_content_comes_back_from_the_host(stamp: int, *, broken: bool) -> None:
    run = script()
    backed_up(run)
    sees(run, loaded(run), 64, 112, 7, host=True)
    sees(run, reading(run, B, 48), 64, 112, stamp)
    assert done(run) == ({("content", "6")} if broken else set())


def test_a_backup_that_reads_another_units_bytes_is_found() -> None:
    run = script()
    written(run, A, 64, 7)
    use = run.record(UseKind.BACKUP, 1, [A], host_writes=[1])
    launched = run.launch(use, pairs=((0, 64, 64),))
    sees(run, launched, 0, 64, 8)
    assert done(run) == {("content", "6")}


def test_content_of_a_copy_that_fails_is_anything() -> None:
    run = script()
    backed_up(run)
    loaded(run, fails=1)
    sees(run, reading(run, B, 48), 64, 112, UNDEFINED)
    assert done(run) == set()


@pytest.mark.parametrize(("outcome", "broken"), [("done", True), ("failed", False)])
def test_content_of_a_receive_is_defined_once_it_is_done(outcome: str, *, broken: bool) -> None:
    run = script()
    use = run.publish(UseKind.RECEIVE, [A])
    launched = run.launch(use, touches=(touch(use, 0, 0, 64, stamp=5),))
    run.end(launched, outcome)
    sees(run, reading(run, A, 64), 0, 64, 4)
    assert done(run) == ({("content", "6")} if broken else set())


def test_bytes_never_written_in_this_life_are_poison_to_a_forward() -> None:
    run = script()
    written(run, A, 32, 7)
    launched = reading(run, A, 64)
    run.memory.on_read(  # type: ignore[attr-defined]
        launched.op, Access(Space.ARENA, 0, 64, False), [(0, 32, 7), (32, 64, 3)]
    )
    assert done(run) == {("poison", "6")}


def test_a_copy_may_read_bytes_never_written() -> None:
    run = script()
    written(run, A, 32, 7)
    use = run.record(UseKind.BACKUP, 1, [A], host_writes=[1])
    launched = run.launch(use, pairs=((0, 64, 64),))
    run.memory.on_read(  # type: ignore[attr-defined]
        launched.op, Access(Space.ARENA, 0, 64, False), [(0, 32, 7), (32, 64, UNDEFINED)]
    )
    assert done(run) == set()


def test_poison_that_a_reader_finds_is_named() -> None:
    run = script()
    written(run, A, 64, 7)
    sees(run, reading(run, A, 64), 0, 64, POISON)
    assert done(run) == {("poison", "6")}


def test_the_next_life_of_a_unit_starts_unwritten() -> None:
    run = script()
    written(run, A, 64, 7)
    run.call("free", (A,))
    run.grant({C: (STATE, 1)})
    sees(run, reading(run, C, 64), 0, 64, 7)
    assert done(run) == {("poison", "6")}


def test_a_zeroed_unit_reads_zero() -> None:
    run = script(zero=True)
    launched = reading(run, A, 64)
    sees(run, launched, 0, 64, 0)
    assert done(run) == set()
    sees(run, launched, 0, 64, 5)
    assert done(run) == {("content", "6")}


def test_expected_is_the_history_at_this_moment() -> None:
    run = script()
    content = next(oracle for oracle in run.oracles.oracles if oracle.name == "content")
    written(run, A, 64, 7)
    use = run.record(UseKind.FORWARD, 1, (), [A])
    run.launch(use, touches=(touch(use, 0, 16, 32, stamp=9),))
    assert content.expected(A, 0, 40) == ((0, 16, 7), (16, 32, 9), (32, 40, 7))  # type: ignore[attr-defined]


# -- poison: guards, hygiene, what the device says -----------------------------------------------


def test_a_write_to_a_guard_is_found_and_one_to_a_sink_is_not() -> None:
    run = script("poison")
    run.own(UseKind.FORWARD, 1, (-64, 0, True))
    assert done(run) == set()
    run.own(UseKind.FORWARD, 1, (512, 576, True))
    assert done(run) == {("poison", "8")}


def test_a_unit_is_zeroed_before_its_first_use() -> None:
    run = script("poison", zero=True)
    run.own(UseKind.ZEROING, 0, (128, 192, True))
    run.grant({C: (STATE, 3)})
    run.forward(1, writes=[C])
    assert done(run) == set()
    run.forward(1, writes=[A])
    assert done(run) == {("poison", "8")}


def test_zeroing_of_half_a_unit_is_not_enough() -> None:
    run = script("poison", zero=True)
    run.own(UseKind.ZEROING, 0, (128, 160, True))
    run.grant({C: (STATE, 3)})
    run.forward(1, writes=[C])
    assert done(run) == {("poison", "8")}


def test_zeroing_of_an_earlier_life_does_not_count() -> None:
    run = script("poison", zero=True)
    run.own(UseKind.ZEROING, 0, (128, 192, True))
    run.grant({C: (STATE, 3)})
    run.call("free", (C,))
    run.grant({104: (STATE, 3)})
    run.forward(1, writes=[104])
    assert done(run) == {("poison", "8")}


def test_a_zeroed_unit_may_move_before_its_first_use() -> None:
    run = script("poison", zero=True)
    run.own(UseKind.ZEROING, 0, (192, 256, True))
    run.grant({C: (STATE, 4)})
    run.move_copy(0, (STATE, 4), (STATE, 3))
    run.units[C] = (STATE, 3)
    run.call("compact", 1, answer=1)
    run.forward(1, writes=[C])
    assert done(run) == set()


def test_zeroing_is_seen_to_end_before_a_publish() -> None:
    run = script("poison", zero=True)
    event = run.own(UseKind.ZEROING, 0, (128, 192, True))
    run.grant({C: (STATE, 3)})
    run.observe(event)
    run.publish(UseKind.RECEIVE, [C])
    assert done(run) == set()
    run.own(UseKind.ZEROING, 0, (192, 256, True))
    run.grant({104: (STATE, 4)})
    run.publish(UseKind.RECEIVE, [104])
    assert done(run) == {("poison", "7")}


def test_other_bands_are_not_zeroed() -> None:
    run = script("poison", zero=True)
    run.grant({C: (WINDOW, 6)})
    run.forward(1, writes=[C])
    assert done(run) == set()


def test_what_the_device_finds_undeclared_is_reported() -> None:
    run = script("poison")
    launched = run.forward(1, [A])
    run.memory.on_undeclared(launched.op, Access(Space.ARENA, 64, 128, True))  # type: ignore[attr-defined]
    assert done(run) == {("poison", "9")}


# -- runs of stamps ------------------------------------------------------------------------------


def test_runs_equal_a_list_of_bytes() -> None:
    """Every short sequence of writes over 4 bytes, against an array."""
    spans = [(s, e) for s in range(4) for e in range(s + 1, 5)]
    for first in spans:
        for second in spans:
            for third in spans:
                runs = stamps.NOTHING
                plain: list[int | None] = [None] * 4
                for stamp, (start, end) in enumerate((first, second, third)):
                    runs = stamps.write(runs, start, end, stamp % 2)
                    plain[start:end] = [stamp % 2] * (end - start)
                flat: list[int | None] = [None] * 4
                for low, high, stamp in runs:
                    assert low < high
                    flat[low:high] = [stamp] * (high - low)
                assert flat == plain, (first, second, third)
                assert list(runs) == sorted(runs)
                missing = stamps.unwritten(runs, 0, 0, 4)
                assert (missing is None) == (None not in plain)
                if missing is not None:
                    assert plain[missing[0] : missing[1]] == [None] * (missing[1] - missing[0])
