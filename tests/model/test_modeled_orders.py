"""The modeled device reaches every order that streams, events and transfers allow, and no other.

A program is a list of host calls. What orders are legal is stated here as a partial order over
points and nothing else: host calls in order; each stream's items in order; a wait after its
event; what the host waits for after what it waits for; a transfer after its beginning only. All
linearisations of that partial order are compared, as sets, with all runs of the device.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice, product
from typing import TypeAlias

import pytest

from onearena.core.device.interface import Access, Space, TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.rules import UseKind

Call: TypeAlias = tuple[str, *tuple[int, ...]]
"""`launch stream effects`, `record stream`, `wait stream k`, `see k`, `send effects`, `see_send k`;
k counts the program's records (or sends) from 0.
"""
Program: TypeAlias = tuple[Call, ...]
Order: TypeAlias = tuple[str, ...]

STREAMS = 3


# -- the rule: a partial order over named points
# ----------------------------------------------------


def partial_order(program: Program) -> dict[str, set[str]]:
    """Point -> the points that come before it (direct edges are enough)."""
    before: dict[str, set[str]] = {}
    tail: dict[int, str] = {}  # last point of the newest item of each stream
    completions: list[str] = []
    sends: list[str] = []

    def chain(first_after: set[str], *points: str) -> str:
        edges = first_after
        for point in points:
            before[point] = edges
            edges = {point}
        return points[-1]

    def on_stream(stream: int, call: str, *points: str) -> None:
        edges = {call} | ({tail[stream]} if stream in tail else set())
        tail[stream] = chain(edges, *points)

    for i, (name, *numbers) in enumerate(program):
        call = f"call{i}"
        before[call] = {f"call{i - 1}"} if i else set()
        if name == "launch":
            effects = [f"effect{i}.{k}" for k in range(numbers[1])]
            on_stream(numbers[0], call, f"start{i}", *effects, f"end{i}")
        elif name == "record":
            on_stream(numbers[0], call, f"complete{i}")
            completions.append(f"complete{i}")
        elif name == "wait":
            on_stream(numbers[0], call, f"pass{i}")
            before[f"pass{i}"].add(completions[numbers[1]])
        elif name == "see":
            before[call].add(completions[numbers[0]])
        elif name == "send":
            effects = [f"effect{i}.{k}" for k in range(numbers[0])]
            sends.append(chain({call}, f"start{i}", *effects, f"end{i}"))
        else:
            before[call].add(sends[numbers[0]])
    return before


def linearisations(before: dict[str, set[str]]) -> Iterator[Order]:
    """Every total order that agrees with the partial one."""
    done: list[str] = []

    def extend() -> Iterator[Order]:
        if len(done) == len(before):
            yield tuple(done)
        reached = set(done)
        for point, earlier in before.items():
            if point not in reached and earlier <= reached:
                done.append(point)
                yield from extend()
                done.pop()

    return extend()


# -- the device: run it along every choice
# ----------------------------------------------------------


class Run:
    """One run of a program on a fresh device, named point by named point."""

    def __init__(self, program: Program, *, eager: bool) -> None:
        self.program = program
        self.device = ModeledDevice(eager=eager)
        for k in range(STREAMS):
            self.device.stream(f"s{k}")
        self.called = 0
        self.order: list[str] = []
        self.items: dict[int, list[int]] = {k: [] for k in range(STREAMS)}  # calls, oldest first
        self.effects: dict[int, int] = {}
        self.events: list[int] = []
        self.sends: list[int] = []
        self.call_of_send: dict[int, int] = {}

    def choices(self) -> list[Step | None]:
        """Device steps, and None for the next host call where it can return."""
        choices: list[Step | None] = list(self.device.enabled())
        if self.called < len(self.program):
            name, *numbers = self.program[self.called]
            event = self.events[numbers[0]] if name == "see" else None
            blocked = event is not None and not self.device.complete(event)
            if name == "see_send":
                transfer = self.sends[numbers[0]]
                blocked = not self._send_over(transfer)
            if not blocked:
                choices.append(None)
        return choices

    def _send_over(self, transfer: int) -> bool:
        return f"end{self.call_of_send[transfer]}" in self.order

    def take(self, choice: Step | None) -> None:
        if choice is None:
            self._call()
        elif choice.kind >= StepKind.TRANSFER_START:
            self._transfer_step(choice)
        else:
            self._stream_step(choice)

    def _call(self) -> None:
        i = self.called
        name, *numbers = self.program[i]
        self.called += 1
        self.order.append(f"call{i}")
        if name == "launch":
            access = Access(Space.ARENA, 0, 16 * numbers[1], True)
            work = Work(UseKind.ZEROING, (access,) if numbers[1] else (), pieces=max(numbers[1], 1))
            self.device.launch(numbers[0], work)
            self.items[numbers[0]].append(i)
        elif name == "record":
            self.events.append(self.device.record(numbers[0]))
            self.items[numbers[0]].append(i)
        elif name == "wait":
            self.device.wait(numbers[0], self.events[numbers[1]])
            self.items[numbers[0]].append(i)
        elif name == "see":
            assert self.device.query(self.events[numbers[0]])
        elif name == "send":
            access = Access(Space.ARENA, 0, 16 * numbers[0], False)
            work = Work(UseKind.SEND, (access,) if numbers[0] else (), pieces=max(numbers[0], 1))
            transfer = self.device.begin_transfer(work)
            self.sends.append(transfer)
            self.call_of_send[transfer] = i
        else:
            status = self.device.transfer_status(self.sends[numbers[0]])
            assert status is TransferStatus.DONE

    def _effect(self, i: int) -> str:
        k = self.effects.get(i, 0)
        self.effects[i] = k + 1
        return f"effect{i}.{k}"

    def _stream_step(self, step: Step) -> None:
        i = self.items[step.number][0]
        names = {StepKind.START: "start", StepKind.END: "end"}
        names |= {StepKind.PASS: "pass", StepKind.COMPLETE: "complete"}
        self.device.step(step)
        self.order.append(
            self._effect(i) if step.kind == StepKind.EFFECT else f"{names[step.kind]}{i}"
        )
        if step.kind not in (StepKind.START, StepKind.EFFECT):
            self.items[step.number].pop(0)

    def _transfer_step(self, step: Step) -> None:
        i = self.call_of_send[step.number]
        self.device.step(step)
        if step.kind == StepKind.TRANSFER_EFFECT:
            self.order.append(self._effect(i))
        else:
            self.order.append(f"{'start' if step.kind == StepKind.TRANSFER_START else 'end'}{i}")


def device_orders(program: Program) -> Iterator[Order]:
    """The order of every complete run, by depth-first search with a fresh device for each run."""
    todo: list[list[int]] = [[]]
    while todo:
        prefix = todo.pop()
        run = Run(program, eager=False)
        depth = 0
        while choices := run.choices():
            if depth == len(prefix):
                todo += [[*prefix, k] for k in range(1, len(choices))]
                prefix = [*prefix, 0]
            run.take(choices[prefix[depth]])
            depth += 1
        yield tuple(run.order)


def compare(program: Program) -> int:
    legal = list(linearisations(partial_order(program)))
    reached = list(device_orders(program))
    assert len(set(legal)) == len(legal)
    assert len(set(reached)) == len(reached), "two schedules took the same steps in the same order"
    missing = set(legal) - set(reached)
    forbidden = set(reached) - set(legal)
    assert not missing, f"{program}: cannot be reached: {min(missing)}"
    assert not forbidden, f"{program}: must not happen: {min(forbidden)}"
    return len(legal)


NAMED: dict[str, Program] = {
    "no edge": (("launch", 0, 1), ("launch", 1, 1)),
    "fifo": (("launch", 0, 2), ("launch", 0, 1)),
    "wait": (("launch", 0, 1), ("record", 0), ("wait", 1, 0), ("launch", 1, 1)),
    "record covers what was before": (
        ("launch", 0, 1),
        ("record", 0),
        ("launch", 0, 1),
        ("wait", 1, 0),
        ("launch", 1, 0),
    ),
    "wait covers what comes after": (
        ("launch", 0, 0),
        ("record", 0),
        ("launch", 1, 1),
        ("wait", 1, 0),
        ("launch", 1, 1),
    ),
    "host": (("launch", 0, 1), ("record", 0), ("see", 0), ("launch", 1, 2)),
    "chain of three": (
        ("launch", 0, 1),
        ("record", 0),
        ("wait", 1, 0),
        ("record", 1),
        ("wait", 2, 1),
        ("launch", 2, 1),
    ),
    "send beside a stream": (("send", 2), ("launch", 0, 1)),
    "send, then see it": (("send", 1), ("launch", 0, 1), ("see_send", 0), ("launch", 1, 1)),
    "two sends": (("send", 1), ("send", 1)),
    "work without effects": (("launch", 0, 0), ("record", 0), ("wait", 1, 0), ("send", 0)),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_program(name: str) -> None:
    assert compare(NAMED[name]) > 1


def well_formed(program: Program) -> bool:
    """Waits and observations name earlier records and sends."""
    records = sends = 0
    for name, *numbers in program:
        if name in ("wait", "see") and numbers[-1] >= records:
            return False
        if name == "see_send" and numbers[0] >= sends:
            return False
        records += name == "record"
        sends += name == "send"
    return True


ALPHABET: tuple[Call, ...] = (
    ("launch", 0, 1),
    ("launch", 1, 1),
    ("record", 0),
    ("record", 1),
    ("wait", 0, 0),
    ("wait", 1, 0),
    ("wait", 1, 1),
    ("see", 0),
    ("send", 1),
    ("see_send", 0),
)


ORDERS_MAX = 600
"""Programs with more orders than this are left to the random sample, for time."""


def test_every_program_of_up_to_three_calls() -> None:
    programs = [
        program
        for calls in range(4)
        for program in product(ALPHABET, repeat=calls)
        if well_formed(program)
    ]
    small = [
        program
        for program in programs
        if count_at_most(partial_order(program), ORDERS_MAX) <= ORDERS_MAX
    ]
    orders = sum(compare(program) for program in small)
    assert (len(programs), len(small), orders) == (278, 251, 15_413)


def count_at_most(before: dict[str, set[str]], limit: int) -> int:
    """The number of linearisations, or limit + 1 when there are more."""
    return sum(1 for _ in islice(linearisations(before), limit + 1))


def random_program(draw: random.Random, calls: int) -> Program:
    while True:
        program: list[Call] = []
        for _ in range(calls):
            records = sum(call[0] == "record" for call in program)
            sends = sum(call[0] == "send" for call in program)
            name = draw.choice(
                ("launch", "launch", "record", "wait", "wait", "see", "send", "see_send")
            )
            stream = draw.randrange(STREAMS)
            if name == "launch":
                program.append((name, stream, draw.randrange(3)))
            elif name == "record":
                program.append((name, stream))
            elif name == "wait" and records:
                program.append((name, stream, draw.randrange(records)))
            elif name == "see" and records:
                program.append((name, draw.randrange(records)))
            elif name == "send":
                program.append((name, draw.randrange(2)))
            elif name == "see_send" and sends:
                program.append((name, draw.randrange(sends)))
        if well_formed(tuple(program)):
            return tuple(program)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int) -> None:
    draw = random.Random(seed)
    checked = 0
    while checked < 25:
        program = random_program(draw, draw.randrange(4, 8))
        if 2 <= count_at_most(partial_order(program), ORDERS_MAX) <= ORDERS_MAX:
            compare(program)
            checked += 1


# -- merged steps
# ------------------------------------------------------------------------------------


def visible(order: Order) -> Order:
    """What anyone can see: host calls and effects."""
    return tuple(point for point in order if point.startswith(("call", "effect")))


class EagerRun(Run):
    """With `eager`, one step may do several points; the trace tells which effects happened."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, eager=True)
        self.call_of: dict[int, int] = {}
        self.ended: set[int] = set()
        self.device.trace.subscribe(self._record)

    def _record(self, record: tuple[int, ...]) -> None:
        name = type(record).__name__
        if name in ("Enqueue", "TransferBegin"):
            self.call_of[record[0]] = self.called - 1
        elif name == "Effect":
            self.order.append(self._effect(self.call_of[record[0]]))
        elif name == "End":
            self.ended.add(record[0])

    def _send_over(self, transfer: int) -> bool:
        return transfer in self.ended

    def _stream_step(self, step: Step) -> None:
        self.device.step(step)

    def _transfer_step(self, step: Step) -> None:
        self.device.step(step)


def eager_orders(program: Program) -> set[Order]:
    todo: list[list[int]] = [[]]
    found: set[Order] = set()
    while todo:
        prefix = todo.pop()
        run = EagerRun(program)
        depth = 0
        while choices := run.choices():
            if depth == len(prefix):
                todo += [[*prefix, k] for k in range(1, len(choices))]
                prefix = [*prefix, 0]
            run.take(choices[prefix[depth]])
            depth += 1
        found.add(tuple(run.order))
    return found


def compare_eager(program: Program) -> None:
    legal = {visible(order) for order in linearisations(partial_order(program))}
    reached = eager_orders(program)
    assert reached == legal, f"{program}: differs in {min(reached ^ legal)}"


@pytest.mark.parametrize("name", NAMED)
def test_merged_steps_reach_the_same_visible_orders(name: str) -> None:
    compare_eager(NAMED[name])


@pytest.mark.parametrize("seed", range(3))
def test_merged_steps_on_random_programs(seed: int) -> None:
    draw = random.Random(100 + seed)
    checked = 0
    while checked < 25:
        program = random_program(draw, draw.randrange(4, 8))
        if 2 <= count_at_most(partial_order(program), 1500) <= 1500:
            compare_eager(program)
            checked += 1
