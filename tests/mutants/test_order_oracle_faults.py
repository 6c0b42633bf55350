"""Faults planted in the order oracle: the comparison with the reference has to see each one."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest
from order_compare import compare
from order_traces import random_trace

PACKAGE = "onearena.stress.oracles"
MODULES = ("clocks", "intervals", "races", "order")
SEEDS = 400

# name: (module, old text, new text); the old text must occur exactly once.
FAULTS: dict[str, tuple[str, str, str]] = {
    "a wait orders nothing": (
        "clocks",
        "_join(self._tail(stream).clock, known.clock)",
        "self._tail(stream)",
    ),
    "a wait orders the host": (
        "clocks",
        "_join(self._tail(stream).clock, known.clock)",
        "_join(self.host, known.clock); self._host_version += 1",
    ),
    "an observation reaches no stream": (
        "clocks",
        "if _join(self.host, known.clock):",
        "if _join(self.host, known.clock) and False:",
    ),
    "an event also covers what its stream gets later": (
        "clocks",
        "clock=tail.clock.copy()",
        "clock=tail.clock",
    ),
    "a new operation is not after the host's call": (
        "clocks",
        "        self._follow_host(tail)\n        tail.clock[tail.component] += 1",
        "        tail.clock[tail.component] += 1",
    ),
    "an operation has no tick of its own": (
        "clocks",
        "tail.clock[tail.component] += 1",
        "tail.clock[tail.component] = 1",
    ),
    "the end of a transfer is not seen": (
        "clocks",
        "self.host[running.component] = running.tick",
        "pass",
    ),
    "a transfer's component is lent with an old tick": (
        "clocks",
        "tick = self.host[component] + 1",
        "tick = 1",
    ),
    "a transfer is after all that was enqueued": (
        "clocks",
        "clock = self.host.copy()",
        "clock = [1 << 60] * len(self.host)",
    ),
    "the component of a running transfer is lent again": (
        "clocks",
        "        self._transfers[transfer] = running\n",
        (
            "        self._transfers[transfer] = running\n"
            "        self._free_components.append(component)\n"
        ),
    ),
    "events the host half knows are dropped": (
        "clocks",
        "return all(tick <= other[component]",
        "return any(tick <= other[component]",
    ),
    "the nearest event is the latest": (
        "clocks",
        "known.index < best_index",
        "known.index > best_index",
    ),
    "the nearest event may be of any stream": (
        "clocks",
        "known.stream == stream and known.tick >= tick",
        "known.tick >= tick",
    ),
    "the nearest event is after, never at, the operation": (
        "clocks",
        "known.tick >= tick",
        "known.tick > tick",
    ),
    "a read is not compared with writes": (
        "intervals",
        (
            "            for other in writes[cell]:\n"
            "                if other[2] > clock[other[1]] and "
            "(race is None or other[0] > race[0]):\n"
            "                    race = other\n"
            "            kept"
        ),
        "            kept",
    ),
    "a write is not compared with reads": (
        "intervals",
        "            for other in reads[cell]:\n                if other[2] > clock[other[1]] and",
        "            for other in reads[cell]:\n                if False and",
    ),
    "a read replaces unordered reads": (
        "intervals",
        "reads[cell] = (*kept, stamp) if kept else own",
        "reads[cell] = own",
    ),
    "a racing write replaces unordered writes": (
        "intervals",
        "writes[cell] = (*_unordered(writes[cell], clock), stamp)",
        "writes[cell] = (stamp,)",
    ),
    "a racing write replaces unordered reads": (
        "intervals",
        "reads[cell] = _unordered(reads[cell], clock)",
        "reads[cell] = NOTHING",
    ),
    "a cut forgets the reads": (
        "intervals",
        "self._reads.insert(cell, self._reads[cell - 1])",
        "self._reads.insert(cell, NOTHING)",
    ),
    "a cut forgets the writes": (
        "intervals",
        "self._writes.insert(cell, self._writes[cell - 1])",
        "self._writes.insert(cell, NOTHING)",
    ),
    "no cut at the end of an access": (
        "intervals",
        "if bounds[last] != end:",
        "if False:",
    ),
    "no cut at the start of an access": (
        "intervals",
        "if bounds[first] != start:",
        "if False:",
    ),
    "a sweep joins cells with other reads": (
        "intervals",
        "if cell_writes != last_writes or cell_reads != last_reads:",
        "if cell_writes != last_writes:",
    ),
    "a sweep drops an operation too many": (
        "intervals",
        (
            "if stamp[2] <= clock[stamp[1]]:\n            return tuple("
            "stamp for stamp in stamps if stamp[2] > clock[stamp[1]])"
        ),
        (
            "if stamp[2] <= clock[stamp[1]] + 1:\n            return tuple("
            "stamp for stamp in stamps if stamp[2] > clock[stamp[1]] + 1)"
        ),
    ),
    "the first partner is reported, not the latest, in a cell": (
        "intervals",
        (
            "            for other in reads[cell]:\n"
            "                if other[2] > clock[other[1]] and "
            "(race is None or other[0] > race[0]):"
        ),
        (
            "            for other in reads[cell]:\n"
            "                if other[2] > clock[other[1]] and "
            "(race is None or other[0] < race[0]):"
        ),
    ),
    "accesses of one operation are not told apart": (
        "order",
        "stamp = (order + position,",
        "stamp = (order,",
    ),
    "an access that ends in the sinks is not checked": (
        "order",
        "if start < exempt_end[space]:",
        "if start < exempt_end[space]:\n                continue\n            if False:",
    ),
    "sinks are checked": (
        "order",
        "if start < exempt_end[space]:",
        "if False:",
    ),
    "the shared bytes end where the longer access does": (
        "order",
        "min(earlier.end_bytes, later.end_bytes)",
        "max(earlier.end_bytes, later.end_bytes)",
    ),
    "a wait for an unrecorded event is silent": (
        "order",
        'return self._unrecorded(record.event, f"stream {record.stream} waits for it")',
        "return NO_VIOLATIONS",
    ),
    "one space for all": (
        "order",
        "{space: IntervalShadow() for space in Space}",
        "dict.fromkeys(Space, IntervalShadow())",
    ),
    "a second report although told to stop": (
        "order",
        "REPORT_LIMIT if multiple else 1",
        "REPORT_LIMIT",
    ),
    "rule 7 for what follows a transfer": (
        "races",
        'return "7" if self.later.stream is None',
        'return "7" if self.earlier.stream is None',
    ),
    "the tables are swapped": (
        "races",
        'table = "writer" if self.later.writes else "reader"',
        'table = "reader" if self.later.writes else "writer"',
    ),
    "buffers fall under rule 6": (
        "races",
        "in (Space.TABLE, Space.BUFFER)",
        "in (Space.TABLE,)",
    ),
}


def load_with(fault: tuple[str, str, str] | None, monkeypatch: pytest.MonkeyPatch) -> type:
    """The oracle's class from fresh copies of its modules, one of them changed."""
    folder = Path(importlib.import_module(PACKAGE).__path__[0])
    for name in MODULES:
        text = (folder / f"{name}.py").read_text()
        if fault is not None and fault[0] == name:
            assert text.count(fault[1]) == 1, f"{fault[1]!r} occurs {text.count(fault[1])} times"
            text = text.replace(fault[1], fault[2])
        module = types.ModuleType(f"{PACKAGE}.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return sys.modules[f"{PACKAGE}.order"].OrderOracle


def first_difference(oracle: type) -> int | None:
    """The first seed on which the oracle differs from the reference, or trips its own assertion."""
    for seed in range(SEEDS):
        trace = random_trace(seed)
        try:
            result = compare(trace.records, sweep_always=seed % 2 == 1, oracle=oracle)
        except AssertionError as error:
            if "without a shared byte" not in str(error):
                raise
            return seed
        if result.differences:
            return seed
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_comparison_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_difference(load_with(FAULTS[name], monkeypatch)) is not None


def test_unchanged_copy_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_difference(load_with(None, monkeypatch)) is None
