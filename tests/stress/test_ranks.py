"""The second rank: equal where calls decide, told apart where anything else does."""

from __future__ import annotations

from typing import Any, Final

import pytest

from onearena.core.answers import Blocked
from onearena.core.arena import Arena
from onearena.core.device.interface import Access, Space, TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import MisuseError
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.stress.calls import Call
from onearena.stress.choices import Choices
from onearena.stress.ranks import EVERY_SEEDS, LAGS_CALLS, follower_of, has_follower
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.sut import Grant, Use
from onearena.stress.systems import build_system

WAYS: Final = 2 * len(LAGS_CALLS)


@pytest.mark.parametrize("turn", range(WAYS))
def test_ranks_that_hear_the_same_calls_decide_the_same(turn: int) -> None:
    seed = EVERY_SEEDS * turn + EVERY_SEEDS - 1
    assert has_follower(seed)
    result = run_schedule(RunSpec(seed))
    assert result.verdict == "pass", (result.violations, result.crash)
    # Price, fits and snapshots too; only `boot` is no call of the arena.
    assert result.reach["ranks.calls"] > result.calls // 2


def test_a_follower_changes_nothing() -> None:
    seed = EVERY_SEEDS - 1
    alone = run_schedule(RunSpec(seed, judges=frozenset(("order", "legality"))))
    both = run_schedule(RunSpec(seed))
    assert "ranks.calls" not in alone.reach
    assert "ranks.calls" in both.reach
    assert alone.digest == both.digest


def test_ways_of_followers_are_all_there() -> None:
    choices = Choices(3)
    build_system("arena", "any", choices)
    ways = set()
    for turn in range(WAYS):
        follower = follower_of(EVERY_SEEDS * turn, "any", choices)
        ways.add((follower.lag, follower.ahead))
    assert len(ways) == WAYS
    assert sum(has_follower(seed) for seed in range(800)) == 800 // EVERY_SEEDS


def calls_of(seed: int) -> tuple[Choices, list[Call]]:
    """A schedule's set-up, and one call that hands out units on it."""
    choices = Choices(seed)
    built = build_system("arena", "any", choices)
    demand = (1,) * len(built.sut.plan.bands)
    stream = built.device.stream("forward0")
    answer = built.sut.allocate(demand, writer=UseKind.FORWARD, stream=stream, caller="other")
    assert isinstance(answer, Grant), answer
    args = (demand, UseKind.FORWARD, stream, "other")
    return choices, [Call(1, 1, "allocate", args, answer)]


def test_an_answer_of_its_own_is_told_with_its_place() -> None:
    choices, (call,) = calls_of(5)
    names = ["schedule", "forward0"]
    assert follower_of(0, "any", choices).hear(call, names) == ()
    answer = call.answer
    assert isinstance(answer, Grant)
    other = Grant(((answer.ids[0][0] + 1,), *answer.ids[1:]))
    (found,) = follower_of(0, "any", choices).hear(call._replace(answer=other), names)
    assert (found.oracle, found.rule) == ("ranks", "10")
    assert found.unit is not None
    assert found.unit.unit == answer.ids[0][0] + 1
    refused = call._replace(answer=None, error=MisuseError("no", argument="demand"))
    follower = follower_of(0, "any", choices)
    assert len(follower.hear(refused, names)) == 1
    assert follower.hear(call, names) == (), "what parted once says nothing more"


def test_what_was_heard_late_is_compared_at_the_end() -> None:
    choices, (call,) = calls_of(5)
    wrong = call._replace(answer=Blocked(()))
    follower = follower_of(EVERY_SEEDS, "any", choices)
    assert follower.lag
    assert follower.hear(wrong, ["schedule", "forward0"]) == ()
    assert len(follower.finish()) == 1


@pytest.mark.parametrize("done_first", [False, True])
def test_a_lost_connection_ends_receives_as_failed_on_every_rank(*, done_first: bool) -> None:
    """Whether the peer was done is what one rank's device knows and another's may not."""
    device = ModeledDevice(eager=True)
    arena: Any = Arena(chain_geometry(128, (("context", 32),)), device)
    stream = device.stream("forward0")
    granted = arena.allocate((1,), writer=UseKind.RECEIVE, stream=stream, caller="pd-prealloc")
    (vid,) = granted.ids[0]
    use = arena.publish(UseKind.RECEIVE, [vid], peer=1)
    assert isinstance(use, Use)
    _, start, end = use.writes[0]
    work = Work(UseKind.RECEIVE, (Access(Space.ARENA, start, end, True),), stamp=7, peer=1)
    transfer = arena.launch(use, work)
    if done_first:
        device.run_until_idle()
    arena.disconnect(1)
    expected = TransferStatus.DONE if done_first else TransferStatus.FAILED
    assert device.transfer_status(transfer) is expected
    with pytest.raises(MisuseError, match="undefined content"):
        arena.record(UseKind.FORWARD, stream, reads=[vid])
