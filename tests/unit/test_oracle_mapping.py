"""The mapping, misuse and atomicity oracles: each rule kept once, and broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onearena.core.answers import Blocked, Blocker, Fits, Infeasible, Rung
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind
from onearena.stress.oracles.script import STATE, WINDOW, Script
from onearena.stress.sut import Grant

A, B, C, D = 101, 102, 103, 104
REFUSED = MisuseError("no", argument="ids", unit=A)


def live(*only: str) -> Script:
    run = Script(only=frozenset(only))
    run.grant({A: (STATE, 1), B: (STATE, 2)})
    return run


# -- mapping -------------------------------------------------------------------------------------


def test_ids_units_and_counts_agree() -> None:
    run = live("mapping")
    run.forward(1, writes=[A, B])
    run.snapshot({STATE: (1, "LL")})
    run.fork([A], {C: (STATE, 3)})
    run.snapshot({STATE: (1, "PLL")})
    run.call("free", (C, B))
    run.snapshot({STATE: (1, "PPP")})
    assert run.finish() == set()


def test_an_id_handed_out_twice_is_found() -> None:
    run = live("mapping")
    run.call("free", (A,))
    run.grant({A: (STATE, 1)})
    assert run.finish() == {("mapping", "11")}


@pytest.mark.parametrize("name", [0, -5])
def test_an_id_that_is_not_positive_is_found(name: int) -> None:
    run = live("mapping")
    run.grant({name: (STATE, 3)})
    assert run.finish() == {("mapping", "13")}


def test_a_grant_short_of_its_demand_is_found() -> None:
    run = live("mapping")
    run.call("allocate", (2, 0, 0), UseKind.FORWARD, 1, "x", answer=Grant(((C,), (), ())))
    assert run.finish() == {("mapping", "11")}


def test_a_fork_without_its_copy_is_found() -> None:
    run = live("mapping")
    run.call("fork", (A, B), 1, answer=Grant(((C,), (), ())))
    assert run.finish() == {("mapping", "11")}


def test_two_ids_resolved_to_one_unit_are_found() -> None:
    run = live("mapping")
    run.units[B] = run.units[A]
    run.record(UseKind.FORWARD, 1, [A, B])
    assert run.finish() == {("mapping", "9")}


def test_two_units_showing_one_id_are_found() -> None:
    run = live("mapping")
    run.snapshot({STATE: (1, "LL")}, ids={(STATE, 2): A})
    assert ("mapping", "9") in run.finish()


def test_an_address_off_the_grid_is_found() -> None:
    run = live("mapping")
    use = run.record(UseKind.FORWARD, 1, [A])
    name, start, end = use.reads[0]
    off = replace(use, serial=99, reads=((name, start + 16, end + 16),))
    run.call("record", UseKind.FORWARD, 1, (A,), (), (), (), answer=off)
    assert ("mapping", "9") in run.finish()


def test_a_use_of_other_ids_than_asked_is_found() -> None:
    run = live("mapping")
    use = run.record(UseKind.FORWARD, 1, [A])
    run.call("record", UseKind.FORWARD, 1, (B,), (), (), (), answer=replace(use, serial=99))
    assert run.finish() == {("mapping", "9")}


def test_a_freed_id_that_still_resolves_is_found() -> None:
    run = live("mapping")
    run.call("free", (A,))
    run.record(UseKind.FORWARD, 1, [A])
    assert run.finish() == {("mapping", "13")}


def test_an_inverse_map_left_behind_by_a_move_is_found() -> None:
    run = live("mapping")
    run.call("free", (A,))
    run.call("compact", 1, answer=1)
    run.snapshot({STATE: (1, ".L")})
    run.units[B] = (STATE, 1)
    run.record(UseKind.FORWARD, 1, [B])
    assert run.finish() == {("mapping", "9")}


def test_a_forward_map_left_behind_by_a_move_is_found() -> None:
    run = live("mapping")
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    run.record(UseKind.FORWARD, 1, [B])
    run.units[B] = (STATE, 1)
    run.snapshot({STATE: (1, "L.")})
    assert run.finish() == {("mapping", "9")}


def test_a_reference_lost_or_kept_is_found() -> None:
    run = live("mapping")
    run.call("share", (A,))
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    assert run.finish() == {("mapping", "11")}


# -- misuse --------------------------------------------------------------------------------------


def misuse_calls(run: Script) -> dict[str, tuple[object, ...]]:
    return {
        "double": ("free", (A, A)),
        "never": ("free", (999,)),
        "negative": ("free", (-1,)),
        "stale": ("share", (D,)),
        "stale fork": ("fork", (D,), 1),
        "stale write": ("record", UseKind.FORWARD, 1, (), (D,), (), ()),
        "stale publish": ("publish", UseKind.SEND, (D,), 1),
        "shared write": ("record", UseKind.FORWARD, 1, (), (B,), (), ()),
        "shared receive": ("publish", UseKind.RECEIVE, (B,), 1),
        "host": ("record", UseKind.BACKUP, 1, (A,), (), (), (7,)),
        "host free": ("free_host", (7,)),
        "other band": ("move", WINDOW, (A,)),
        "under transfer": ("move", STATE, (C,)),
        "pin": ("pin", (D,), True),
    }


def prepared() -> Script:
    """A plain, B shared, C under a transfer, D freed."""
    run = live("misuse")
    run.grant({C: (STATE, 3), D: (STATE, 4)})
    run.call("share", (B,))
    run.transfer(UseKind.SEND, [C])
    run.call("free", (D,))
    return run


NAMES = tuple(misuse_calls(Script()))


@pytest.mark.parametrize("which", NAMES)
def test_misuse_that_is_accepted_is_found(which: str) -> None:
    run = prepared()
    answer = None
    name, *args = misuse_calls(run)[which]
    run.call(str(name), *args, answer=answer)
    assert {oracle for oracle, _ in run.finish()} == {"misuse"}


@pytest.mark.parametrize("which", NAMES)
def test_misuse_that_is_refused_is_right(which: str) -> None:
    run = prepared()
    name, *args = misuse_calls(run)[which]
    run.call(str(name), *args, error=REFUSED, probe=True)
    assert run.finish() == set()


@pytest.mark.parametrize(
    "call",
    [
        ("free", (A,)),
        ("free", (B, B)),
        ("share", (C,)),
        ("fork", (B,), 1),
        ("record", UseKind.FORWARD, 1, (B,), (A,), (), ()),
        ("publish", UseKind.SEND, (B,), 1),
        ("move", STATE, (A,)),
        ("pin", (A,), True),
        ("allocate", (1, 0, 0), UseKind.FORWARD, 1, "x"),
    ],
)
def test_a_legal_call_that_is_refused_is_found(call: tuple[object, ...]) -> None:
    run = prepared()
    run.call(str(call[0]), *call[1:], error=REFUSED)
    assert run.finish() == {("misuse", "13")}


def test_an_event_not_yet_recorded_is_refused() -> None:
    run = live("misuse")
    use = run.record(UseKind.FORWARD, 1, [A])
    run.call("settle", use, error=REFUSED)
    run.call("retire", use, False, error=REFUSED)
    assert run.finish() == set()
    run.call("settle", use)
    assert run.finish() == {("misuse", "8")}


def test_a_use_that_is_over_is_refused() -> None:
    run = live("misuse")
    forward = run.forward(1, [A])
    run.retire(forward)
    run.call("retire", forward.use, False)
    assert run.finish() == {("misuse", "13")}


def test_a_second_launch_is_found() -> None:
    run = live("misuse")
    forward = run.forward(1, [A])
    run.launch(forward.use)
    assert run.finish() == {("misuse", "8")}


def test_a_call_between_record_and_launch_may_be_refused_or_not() -> None:
    run = live("misuse")
    run.record(UseKind.FORWARD, 1, [A])
    run.call("free", (B,), error=REFUSED)
    run.call("free", (B,))
    assert run.finish() == set()


def test_a_probe_that_is_accepted_is_found() -> None:
    run = live("misuse")
    run.call("compact", 1, answer=0, probe=True)
    run.call("free", (A,), probe=True)
    assert run.finish() == {("misuse", "13")}


# -- atomicity -----------------------------------------------------------------------------------

BLOCKED = Blocked((Blocker(STATE, 1, "transfer"),))


@pytest.mark.parametrize(
    ("answer", "error"),
    [(BLOCKED, None), (Infeasible(0, 64), None), (None, REFUSED), (None, ValueError("x"))],
)
def test_a_refused_call_changes_nothing(answer: object, error: Exception | None) -> None:
    args = ((1, 0, 0), UseKind.FORWARD, 1, "x")
    run = live("atomicity")
    run.snapshot({STATE: (1, "LL")})
    run.call("allocate", *args, answer=answer, error=error)
    run.snapshot({STATE: (1, "LL")})
    assert run.finish() == set()
    run.call("allocate", *args, answer=answer, error=error)
    run.snapshot({STATE: (1, "LLL")}, ids={(STATE, 3): C})
    assert run.finish() == {("atomicity", "13")}


def test_a_call_that_did_something_may_change_things() -> None:
    run = live("atomicity")
    run.snapshot({STATE: (1, "LL")})
    run.call("allocate", (9, 0, 0), UseKind.FORWARD, 1, "x", answer=Infeasible(0, 64))
    run.call("free", (A,))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == set()


def test_a_question_changes_nothing_not_even_a_pending_unit() -> None:
    run = live("atomicity")
    run.forward(1, [A])
    run.call("free", (A,))
    run.snapshot({STATE: (1, "PL")})
    run.call("fits", (1, 0, 0), answer=Fits(Rung.NONE))
    run.snapshot({STATE: (1, ".L")})
    assert run.finish() == {("atomicity", "13")}


def test_a_question_that_waits_is_found() -> None:
    run = live("atomicity")
    forward = run.forward(1, [A])
    run.wait(0, forward.event)
    run.call("fits", (1, 0, 0), answer=Fits(Rung.NONE))
    assert run.finish() == {("atomicity", "6")}


def test_a_refused_call_that_enqueues_is_found() -> None:
    run = live("atomicity")
    run.own(UseKind.MOVE, 0, (0, 64, False), (64, 128, True))
    run.call("allocate", (1, 0, 0), UseKind.FORWARD, 1, "x", answer=BLOCKED)
    assert run.finish() == {("atomicity", "13")}


def test_a_full_host_tier_is_a_refusal() -> None:
    run = live("atomicity")
    run.snapshot({STATE: (1, "LL")})
    run.call("reserve_host", 0, 9, answer=())
    run.snapshot({STATE: (1, "L")})
    assert run.finish() == {("atomicity", "13")}
