"""Work in a fork: what it said is known, however it ended."""

from __future__ import annotations

import mmap
import os
import signal
import time
from typing import Any

import pytest

from onearena.stress.forks import Limits, Tell, in_fork

NO_RESERVE = 0x4000  # of Linux; later Pythons have it as mmap.MAP_NORESERVE


def ended_by(status: int) -> str:
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "itself"


def test_what_it_told_comes_in_order_and_what_it_changed_is_lost() -> None:
    changed: list[int] = []

    def run(tell: Tell) -> None:
        for number in range(3):
            changed.append(number)
            tell({"number": number, "text": "line\nbreak"})

    ended = in_fork(run)
    assert ended.said == [{"number": number, "text": "line\nbreak"} for number in range(3)]
    assert ended.status == 0
    assert changed == []


def test_it_costs_processor_time_that_is_told() -> None:
    def busy(tell: Tell) -> None:
        while time.process_time() < 0.2:
            pass
        tell(time.process_time())

    ended = in_fork(busy)
    assert ended.seconds >= ended.said[0] >= 0.2


def test_an_exception_ends_it_with_status_1() -> None:
    def fail(tell: Tell) -> None:
        tell("before")
        raise ValueError

    ended = in_fork(fail)
    assert ended.said == ["before"]
    assert os.waitstatus_to_exitcode(ended.status) == 1


def test_a_line_that_a_death_cut_short_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(pipe: Any, what: object) -> None:
        pipe.write('"whole"\n"cut')
        pipe.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("onearena.stress.forks._tell", cut)
    ended = in_fork(lambda tell: tell(""))
    assert ended.said == ["whole"]
    assert ended_by(ended.status) == "SIGKILL"


@pytest.mark.parametrize(
    ("limits", "end"),
    [(Limits(cpu_s=1), "SIGKILL"), (Limits(wall_s=0.5), "SIGKILL")],
    ids=["processor", "clock"],
)
def test_a_loop_ends_at_its_limit_and_what_it_said_stays(limits: Limits, end: str) -> None:
    def loop(tell: Tell) -> None:
        tell("begun")
        while True:
            pass

    ended = in_fork(loop, limits)
    assert ended.said == ["begun"]
    assert ended_by(ended.status) == end


@pytest.mark.parametrize(("limit_bytes", "said"), [(None, "taken"), (64 << 30, "refused")])
def test_memory_has_a_limit(limit_bytes: int | None, said: str) -> None:
    def take(tell: Tell) -> None:
        # Address space that nothing stands behind: only the limit can refuse it.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        try:
            mmap.mmap(-1, 64 << 30, flags=flags).close()
        except OSError:
            tell("refused")
        else:
            tell("taken")

    assert in_fork(take, Limits(memory_bytes=limit_bytes)).said == [said]
