"""Going back to a moment: all is as it was, in the same objects; or the moment is refused."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from onearena.stress.exhaustive import NAMED, Rig, Search, Step
from onearena.stress.exhaustive_state import Moment


class Slotted:
    """Has slots, one of them empty."""

    __slots__ = ("empty", "value")

    def __init__(self, value: object) -> None:
        self.value = value


class Plain:
    """Has a `__dict__`."""

    def __init__(self, value: object) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class Frozen:
    """Cannot change, but what it holds can."""

    inner: list[int]


def counting() -> tuple[Callable[[], int], Callable[[], int]]:
    """What adds one to a variable of its own, and what tells it."""
    number = 0

    def add() -> int:
        nonlocal number
        number += 1
        return number

    return add, lambda: number


def test_every_kind_of_content_comes_back() -> None:
    array = np.arange(6)
    add, told = counting()
    thing = Plain([1, 2])
    slotted = Slotted({"a": [1]})
    root = {
        "list": [[1], 2],
        "set": {1, 2},
        "deque": deque([1, 2], maxlen=5),
        "bytes": bytearray(b"abc"),
        "view of array": array[2:4],
        "memoryview": array.data,
        "counter": Counter("aab"),
        "plain": thing,
        "slotted": slotted,
        "frozen": Frozen([1]),
        "method": deque([7]).append,
        "bound": thing.__init__,
        "partial": partial(print, [3]),
        "functions": (add, told),
        "tuple": ([5],),
    }
    inner, letters = slotted.value, root["counter"]
    assert isinstance(inner, dict)
    assert isinstance(letters, Counter)
    moment = Moment(root)
    for _ in range(2):  # a moment serves as often as one likes
        root["list"][0].append(9)
        del root["list"][1]
        root["set"] ^= {2, 3}
        root["deque"].rotate()
        root["bytes"] += b"d"
        array[:] = 0
        letters["b"] += 7
        thing.value.clear()
        thing.other = 1  # type: ignore[attr-defined]
        inner["a"].append(2)
        slotted.value, slotted.empty = None, 3
        root["frozen"].inner.append(2)
        root["method"](8)
        root["partial"].args[0].append(4)
        add()
        root["tuple"][0].append(6)
        root["new"] = root.pop("set")
        moment.again()
        assert root["list"] == [[1], 2]
        assert root["set"] == {1, 2}
        assert [*root["deque"]] == [1, 2]
        assert root["deque"].maxlen == 5
        assert root["bytes"] == b"abc"
        assert array.tolist() == [0, 1, 2, 3, 4, 5]
        assert letters is root["counter"]
        assert letters == {"a": 2, "b": 1}
        assert vars(thing) == {"value": [1, 2]}
        assert slotted.value is inner
        assert inner == {"a": [1]}
        assert not hasattr(slotted, "empty")
        assert root["frozen"].inner == [1]
        assert [*root["method"].__self__] == [7]
        assert root["partial"].args == ([3],)
        assert told() == 0
        assert root["tuple"] == ([5],)
        assert "new" not in root
        assert [*root][1] == "set"  # orders come back as well


@pytest.mark.parametrize(
    "one",
    [itertools.count(), iter([1]), random.Random(1), threading.Lock(), (n for n in (1, 2))],
    ids=lambda one: type(one).__name__,
)
def test_what_cannot_be_reached_is_refused(one: object) -> None:
    with pytest.raises(TypeError, match="out of reach"):
        Moment([one])


def facts(rig: Rig) -> tuple[object, ...]:
    """All that a finished run leaves: what the device was asked and did, the last state, counts."""
    trace = bytes(rig.device.trace._buffer)
    return trace, rig.sut.snapshot(), rig.device.steps, rig.cells.counts(), rig.found[:]


WRITTEN: tuple[Step, ...] = (("allocate", 0, 4), ("launch", 0, "writes", "a"), ("free", "a"))


@pytest.mark.parametrize(
    ("system", "scope", "name", "prefix"),
    [
        ("arena", "one", "two receives into one unit", ()),
        ("arena", "two", "room is made by a move", ()),
        ("arena", "one", "", ()),
        ("arena", "two", "", ()),
        ("toy:free-at-once", "one", "", (*WRITTEN, ("allocate", 0, 1))),
    ],
)
def test_going_back_is_as_good_as_a_fresh_system(
    system: str, scope: str, name: str, prefix: tuple[Step, ...]
) -> None:
    runs: dict[tuple[Step, ...], tuple[object, ...]] = {}
    named = NAMED[name][1] if name else ()

    def seen(taken: tuple[Step, ...], rig: Rig) -> None:
        assert taken not in runs
        runs[taken] = facts(rig)

    length = len(named) or len(prefix) + (1 if prefix else 2)
    count = Search(system, scope, length, prefix=prefix, named=named, seen=seen).run()
    assert len(runs) > 20
    assert bool(count.failed) == (system != "arena")
    for taken, at_end in [*runs.items()][:: len(runs) // 60 + 1]:
        fresh = Rig(system, scope)
        for step in taken:
            fresh.world.take(step)
        if not fresh.found:
            fresh.finish()
        assert facts(fresh) == at_end, taken
