"""Determinism: the same seed, or the same recorded choices, give the same run in any process.

A run's `CallDigest` covers every call with its arguments and answer; together with the device
trace's own digest it covers all that a run decides. Two digests that differ are a violation;
`first_difference` of two kept runs says where they part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum

from onearena.stress.calls import Call
from onearena.stress.oracles.base import Violation


class CallDigest:
    """A hash over calls. Cost: a few microseconds a call; memory constant."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.calls = 0

    def feed(self, record: object) -> None:
        """Take the next record; only calls count."""
        if type(record) is Call:
            self.calls += 1
            self._hash.update(describe(record).encode())
            self._hash.update(b"\n")

    def hexdigest(self) -> str:
        """32 hex digits over everything fed so far."""
        return self._hash.hexdigest()


def describe(call: Call) -> str:
    """A call on one line, equal in every process: no address, no hash order, no time."""
    outcome = f"{type(call.error).__name__}" if call.error is not None else _plain(call.answer)
    return f"{call.serial} {call.step} {call.name}({_plain(call.args)}) -> {outcome}"


def first_difference(
    first: Iterable[object], second: Iterable[object], *, oracle: str = "determinism"
) -> Violation | None:
    """Where two runs of the same choices part: the first record that is not the same in both."""
    left, right = iter(first), iter(second)
    last = "the beginning"
    for index in range(1 << 62):
        a, b = next(left, None), next(right, None)
        if a is None and b is None:
            return None
        texts = tuple("nothing" if r is None else _line(r) for r in (a, b))
        if texts[0] != texts[1]:
            return Violation(
                oracle,
                "10",
                f"two runs of the same choices part at record {index}, after {last}.",
                events=(f"first: {texts[0]}", f"second: {texts[1]}"),
                details={"index": index},
            )
        last = texts[0]
    return None


def _line(record: object) -> str:
    return describe(record) if isinstance(record, Call) else _plain(record)


def _plain(value: object) -> str:
    """Like `repr`, without what differs between processes (functions, sets in hash order)."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | str | float | bytes):
        return repr(value)
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(_plain(item) for item in value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(_plain(item) for item in value)})"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(_plain(item) for item in value) + ")"
    if is_dataclass(value):
        inside = (_plain(getattr(value, field.name)) for field in fields(value))
        return f"{type(value).__name__}({', '.join(inside)})"
    return type(value).__name__
