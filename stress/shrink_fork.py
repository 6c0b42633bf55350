"""A candidate run in a fork of this process, and what that costs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from onearena.stress.choices import StepRecord
from onearena.stress.forks import in_fork
from onearena.stress.shrink_parts import Outcome, Size


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def outcome_in_fork(run: Callable[[], Outcome | None]) -> Outcome | None:
    """What `run` returns, from a fork; None too if the fork dies. What it changed is lost.

    For systems whose compiled code may write anywhere. Cost: the fork, some milliseconds.
    """
    ended = in_fork(lambda tell: tell(_plain(run())))
    found = ended.said[-1] if ended.said else None
    return None if found is None else _outcome(found)


def _plain(outcome: Outcome | None) -> object:
    if outcome is None:
        return None
    steps = [
        [step.label, {n: list(v) for n, v in step.decisions.items()}] for step in outcome.steps
    ]
    size = outcome.size
    sizes = [size.host_calls, size.host_steps, size.device_steps, size.values]
    return [steps, sizes, sorted(outcome.skipped)]


def _outcome(found: list[Any]) -> Outcome:
    steps, sizes, skipped = found
    return Outcome(
        tuple(StepRecord(label, decisions) for label, decisions in steps),
        Size(*sizes),
        frozenset(skipped),
    )
