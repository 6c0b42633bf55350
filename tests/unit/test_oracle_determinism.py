"""Digests and first differences of two runs."""

from __future__ import annotations

from onearena.core.device.interface import Access, Space, Work
from onearena.core.device.trace import Enqueue
from onearena.core.rules import UseKind
from onearena.stress.calls import Call
from onearena.stress.oracles.determinism import CallDigest, describe, first_difference


def call(serial: int, *args: object, answer: object = None) -> Call:
    return Call(serial, serial, "free", args, answer)


def digest(calls: list[Call]) -> str:
    made = CallDigest()
    for one in calls:
        made.feed(one)
    return made.hexdigest()


def test_equal_runs_have_equal_digests() -> None:
    assert digest([call(1, (1, 2)), call(2, (3,))]) == digest([call(1, (1, 2)), call(2, (3,))])


def test_another_argument_answer_or_order_changes_the_digest() -> None:
    runs = [
        [call(1, (1, 2)), call(2, (3,))],
        [call(1, (1, 2)), call(2, (4,))],
        [call(1, (1, 2)), call(2, (3,), answer=5)],
        [call(2, (3,)), call(1, (1, 2))],
        [call(1, (1, 2))],
    ]
    assert len({digest(run) for run in runs}) == len(runs)


def test_other_records_do_not_count_in_the_digest() -> None:
    made = CallDigest()
    made.feed(object())
    assert made.calls == 0
    assert made.hexdigest() == CallDigest().hexdigest()


def test_a_body_or_a_set_has_no_address_and_no_hash_order() -> None:
    work = Work(UseKind.FORWARD, body=lambda: None)
    text = describe(call(1, work, {"b", "a"}))
    assert " at 0x" not in text
    assert "{'a', 'b'}" in text


def test_the_first_difference_is_named() -> None:
    first = [call(1, (1,)), Enqueue(1, 0, 0, "", (Access(Space.ARENA, 0, 64, True),)), call(2)]
    second = [call(1, (1,)), Enqueue(1, 0, 0, "", (Access(Space.ARENA, 0, 32, True),)), call(2)]
    found = first_difference(first, second)
    assert found is not None
    assert found.details["index"] == 1
    assert "32" in found.events[1]
    assert first_difference(first, list(first)) is None


def test_a_run_that_ends_early_differs() -> None:
    found = first_difference([call(1)], [])
    assert found is not None
    assert found.events[1] == "second: nothing"
