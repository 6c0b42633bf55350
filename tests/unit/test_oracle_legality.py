"""Each line of the state table and its rules: a run that keeps it, and one that breaks it."""

from __future__ import annotations

import pytest

from onearena.core.rules import UseKind
from onearena.stress.oracles.script import FULL, STATE, WINDOW, Script

A, B, C, D = 101, 102, 103, 104


def script() -> Script:
    return Script(only=frozenset(("legality",)))


def live_pair() -> Script:
    """A and B live in the low end, units 1 and 2, both written by a retired forward."""
    run = script()
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    run.retire(run.forward(1, writes=[A, B]))
    run.snapshot({STATE: (1, "LL")})
    return run


# -- free: pending, then hole --------------------------------------------------------------------


@pytest.mark.parametrize("over", ["process", "settle", "retire"])
def test_a_freed_unit_is_pending_until_its_use_is_over(over: str) -> None:
    run = live_pair()
    forward = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    getattr(run, over)(forward)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_pending_may_stay_after_its_uses_are_over() -> None:
    run = live_pair()
    forward = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.retire(forward)
    run.snapshot({STATE: (1, "PL")})
    assert run.finish() == set()


def test_free_without_a_use_is_a_hole_at_once() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


@pytest.mark.parametrize("kind", [UseKind.FORWARD, UseKind.BACKUP])
def test_pending_skipped_for_a_read_is_found(kind: UseKind) -> None:
    run = live_pair()
    run.run(kind, 1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_a_later_use_that_is_over_does_not_end_an_earlier_one() -> None:
    run = live_pair()
    run.forward(1, reads=[A])
    late = run.forward(2, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.retire(late)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_the_launch_of_another_forward_ends_nothing() -> None:
    run = live_pair()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.forward(1, reads=[B])
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_settling_through_another_stream_counts() -> None:
    run = live_pair()
    first = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.wait(2, first.event)
    second = run.forward(2, reads=[B])
    run.settle(second)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_a_wait_of_another_stream_is_no_settling() -> None:
    run = live_pair()
    first = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.wait(2, first.event)
    run.forward(2, reads=[B])
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_seeing_an_event_is_no_retirement() -> None:
    """Rule 10: decisions depend on calls, not on what a query happens to answer."""
    run = live_pair()
    forward = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.observe(forward.event)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_pending_unit_handed_out_early_is_found() -> None:
    run = live_pair()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.grant({C: (STATE, 1)})
    run.snapshot({STATE: (1, "LL")})
    assert run.finish() == {("legality", "2")}


def test_pending_unit_settled_by_the_allocate_is_handed_out() -> None:
    run = live_pair()
    forward = run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.wait(0, forward.event)
    run.grant({C: (STATE, 1)})
    run.snapshot({STATE: (1, "LL")})
    assert run.finish() == set()


def test_a_freed_id_still_shown_live_is_found() -> None:
    run = live_pair()
    run.forward(1, reads=[A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "LL")})
    assert ("legality", "1") in run.finish()


def test_a_shared_unit_stays_live_until_its_last_free() -> None:
    run = live_pair()
    run.call("share", (A,))
    run.call("free", (A,))
    run.snapshot({STATE: (1, "LL")})
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


@pytest.mark.parametrize("state", [".", "P", "V"])
def test_a_live_unit_shown_as_anything_else_is_found(state: str) -> None:
    run = live_pair()
    run.snapshot({STATE: (1, state + "L")})
    assert run.finish() == {("legality", "1")}


def test_a_hole_that_becomes_pending_is_found() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    run.snapshot({STATE: (1, "PL")})
    assert run.finish() == {("legality", "2")}


# -- moves ---------------------------------------------------------------------------------------


def moved(*, copy: bool = True, retired: bool = False, reader: bool = True) -> Script:
    """B moved from unit 3 to unit 2 while a forward on stream 1 reads it."""
    run = script()
    run.grant({A: (STATE, 1), C: (STATE, 2), B: (STATE, 3)})
    run.retire(run.forward(1, writes=[A, B]))
    run.call("free", (C,))
    run.snapshot({STATE: (1, "L.L")})
    if reader:
        forward = run.forward(1, reads=[B])
        if retired:
            run.retire(forward)
    if copy:
        run.move_copy(0, (STATE, 3), (STATE, 2))
    run.units[B] = (STATE, 2)
    run.call("move", STATE, (B,), answer=1)
    return run


def test_a_moved_source_is_vacated_under_an_old_reader() -> None:
    run = moved()
    run.snapshot({STATE: (1, "LLV")})
    assert run.finish() == set()


def test_a_moved_source_without_a_reader_is_reusable_on_the_schedule_stream() -> None:
    run = moved(retired=True)
    run.snapshot({STATE: (1, "LL.")})
    assert run.finish() == set()


def test_vacated_skipped_under_an_old_reader_is_found() -> None:
    run = moved()
    run.snapshot({STATE: (1, "LL.")})
    assert run.finish() == {("legality", "3")}


def test_a_written_unit_remapped_without_a_copy_is_found() -> None:
    run = moved(copy=False, reader=False)
    run.snapshot({STATE: (1, "LL.")})
    assert run.finish() == {("legality", "3")}


def test_a_unit_never_written_is_remapped_without_a_copy() -> None:
    run = script()
    run.grant({A: (STATE, 2)})
    run.snapshot({STATE: (1, ".L")})
    run.units[A] = (STATE, 1)
    run.call("move", STATE, (A,), answer=1)
    run.snapshot({STATE: (1, "L.")})
    assert run.finish() == set()


def test_a_vacated_source_that_retreats_is_fenced() -> None:
    run = moved()
    run.snapshot({STATE: (1, "LL")}, fences=[(128, 192)])
    assert run.finish() == set()


def test_a_retreat_over_a_use_without_a_fence_is_found() -> None:
    run = moved()
    run.snapshot({STATE: (1, "LL")})
    assert run.finish() == {("legality", "5")}


def test_a_fence_over_half_of_the_bytes_is_found() -> None:
    run = moved()
    run.snapshot({STATE: (1, "LL")}, fences=[(128, 160)])
    assert run.finish() == {("legality", "5")}


def test_a_fence_ends_with_retirement_and_not_with_a_wait() -> None:
    run = live_pair()
    forward = run.forward(1, reads=[B])
    run.call("free", (B,))
    run.settle(forward)
    run.snapshot({STATE: (1, "L")}, fences=[(64, 128)])
    run.retire(forward)
    run.snapshot({STATE: (1, "L")})
    assert run.finish() == set()
    run = live_pair()
    forward = run.forward(1, reads=[B])
    run.call("free", (B,))
    run.settle(forward)
    run.snapshot({STATE: (1, "L")})
    assert run.finish() == {("legality", "5")}


def test_another_band_may_overgrow_a_fence() -> None:
    run = live_pair()
    run.forward(1, reads=[B])
    run.call("free", (B,))
    run.snapshot({STATE: (1, "L")}, fences=[(64, 128)])
    run.grant({C: (WINDOW, 5)})
    run.snapshot({STATE: (1, "L"), WINDOW: (5, "L")})
    assert run.finish() == set()


def test_a_band_that_grows_back_over_its_fence_takes_holes_with_it() -> None:
    run = live_pair()
    run.forward(1, reads=[B])
    run.call("free", (B,))
    run.snapshot({STATE: (1, "L")}, fences=[(64, 128)])
    run.grant({C: (STATE, 3)})
    run.snapshot({STATE: (1, "L.L")})
    run.snapshot({STATE: (1, "L.L")})
    assert run.finish() == set()


def test_a_vacated_unit_nobody_left_is_found() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, "VL")})
    assert run.finish() == {("legality", "3")}


def test_a_pinned_unit_that_moves_is_found() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    run.call("pin", (B,), True)
    run.move_copy(0, (STATE, 2), (STATE, 1))
    run.units[B] = (STATE, 1)
    run.call("compact", 1, answer=1)
    run.snapshot({STATE: (1, "L.")})
    assert run.finish() == {("legality", "4")}


def test_a_unit_that_moved_away_and_came_back_between_two_snapshots_was_copied() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    for source, target in ((2, 1), (1, 2)):
        run.move_copy(0, (STATE, source), (STATE, target))
        run.units[B] = (STATE, target)
        run.call("move", STATE, (B,), answer=1)
        if target == 1:
            run.retire(run.forward(1, reads=[B]))
    run.snapshot({STATE: (1, "VL")})
    run.retire(run.forward(1, reads=[B]))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_an_unpinned_unit_moves() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.call("pin", (B,), True)
    run.call("pin", (B,), False)
    run.snapshot({STATE: (1, ".L")})
    run.move_copy(0, (STATE, 2), (STATE, 1))
    run.units[B] = (STATE, 1)
    run.call("compact", 1, answer=1)
    run.snapshot({STATE: (1, "L.")})
    assert run.finish() == set()


# -- transfers -----------------------------------------------------------------------------------


def sending() -> tuple[Script, object]:
    run = live_pair()
    return run, run.transfer(UseKind.SEND, [A])


def test_a_freed_unit_under_a_transfer_is_pending_until_its_end() -> None:
    run = live_pair()
    send = run.transfer(UseKind.SEND, [A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.end(send)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_a_freed_unit_under_a_transfer_that_becomes_a_hole_is_found() -> None:
    run, _ = sending()
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_a_transfer_holds_from_publish_on_whether_or_not_bytes_flow() -> None:
    run = live_pair()
    run.publish(UseKind.SEND, [A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "2")}


def test_a_unit_under_a_transfer_that_moves_is_found() -> None:
    run = live_pair()
    run.transfer(UseKind.SEND, [B])
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    run.move_copy(0, (STATE, 2), (STATE, 1))
    run.units[B] = (STATE, 1)
    run.call("compact", 1, answer=1)
    run.snapshot({STATE: (1, "L.")})
    assert ("legality", "4") in run.finish()


def test_a_frontier_that_passes_a_unit_under_a_transfer_is_found() -> None:
    run = live_pair()
    run.transfer(UseKind.SEND, [B])
    run.call("free", (B,))
    run.snapshot({STATE: (1, "L")}, fences=[(64, 128)])
    assert run.finish() == {("legality", "5")}


def test_quarantined_units_return_only_at_the_disconnect() -> None:
    run = script()
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    run.snapshot({STATE: (1, "LL")})
    receive = run.transfer(UseKind.RECEIVE, [A])
    run.end(receive, "lost")
    run.call("free", (A,))
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 1): 0})
    run.call("disconnect", 1)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_a_quarantined_unit_that_returns_early_is_found() -> None:
    run = script()
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    receive = run.transfer(UseKind.RECEIVE, [A])
    run.end(receive, "lost")
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("legality", "12")}


def test_bytes_under_a_transfer_handed_to_another_band_are_found() -> None:
    run = script()
    run.grant({A: (STATE, 2)})
    run.snapshot({STATE: (1, ".L")})
    run.transfer(UseKind.RECEIVE, [A])
    run.call("free", (A,))
    run.grant({B: (WINDOW, 5)})
    run.snapshot({WINDOW: (5, "L")})
    assert ("legality", "5") in run.finish()


def test_a_live_unit_with_no_id_and_no_transfer_is_found() -> None:
    run = live_pair()
    run.call("free", (A,))
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 1): 0})
    assert run.finish() == {("legality", "12")}


# -- records -------------------------------------------------------------------------------------


def test_a_launch_inside_its_record_is_accepted() -> None:
    run = live_pair()
    use = run.record(UseKind.FORWARD, 1, [A], [B])
    run.launch(use)
    assert run.finish() == set()


def test_work_outside_the_recorded_ranges_is_found() -> None:
    run = live_pair()
    use = run.record(UseKind.FORWARD, 1, [A])
    run.launch(use, accesses=run_accesses(run, B, writes=False))
    assert run.finish() == {("legality", "8")}


def test_a_write_recorded_as_a_read_is_found() -> None:
    run = live_pair()
    use = run.record(UseKind.FORWARD, 1, [A])
    run.launch(use, accesses=run_accesses(run, A, writes=True))
    assert run.finish() == {("legality", "8")}


def run_accesses(run: Script, name: int, *, writes: bool) -> tuple[tuple[int, int, int, bool], ...]:
    _, start, end = run.span(name)
    return ((0, start, end, writes),)


def test_work_with_no_use_is_found() -> None:
    run = live_pair()
    run.own(UseKind.FORWARD, 1, (0, 64, False))
    run.call("process", run.forward(2, reads=[B]).use)
    assert ("legality", "8") in run.finish()


def test_side_work_joined_before_the_event_is_part_of_the_use() -> None:
    run = live_pair()
    use = run.record(UseKind.FORWARD, 1, [A])
    run.wait(3, run.event(1))
    run.wait(1, run.own(UseKind.FORWARD, 3, (0, 64, False)))
    launched = run.launch(use)
    run.call("free", (A,))
    run.process(launched)
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_side_work_not_joined_is_found() -> None:
    run = live_pair()
    use = run.record(UseKind.FORWARD, 1, [A])
    run.wait(3, run.event(1))
    run.own(UseKind.FORWARD, 3, (0, 64, False))
    run.launch(use)
    assert run.finish() == {("legality", "8")}


# -- seldom snapshots ----------------------------------------------------------------------------


def test_few_snapshots_raise_no_false_alarm() -> None:
    """Between two snapshots an id came, moved and went; a frontier went back and returned."""
    run = script()
    run.grant({A: (FULL, 20), B: (FULL, 19), C: (FULL, 18)})
    run.snapshot({FULL: (18, "LLL")})
    reader = run.forward(1, reads=[A, C])
    run.call("free", (C,))
    run.grant({D: (FULL, 18)})
    run.call("free", (A,))
    run.move_copy(0, (FULL, 18), (FULL, 20))
    run.units[D] = (FULL, 20)
    run.call("compact", 1, answer=1)
    run.call("free", (D,))
    run.snapshot({FULL: (18, "VLP")})
    run.retire(reader)
    run.snapshot({FULL: (18, ".L.")})
    assert run.finish() == set()


def test_the_full_recount_judges_units_that_did_not_change() -> None:
    run = Script(only=frozenset(("legality",)), full_every=2)
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    run.snapshot({STATE: (1, "LL")})
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 1): 999})
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 1): 999})
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 1): 999})
    assert len(run.violations) > 1
