"""Which lines of a module each schedule and each test runs: only those can notice an edit there.

Recorded once on the clean tree, with Python's line tracing, for modules that run as plain Python.
"""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import hypothesis
import pytest

TEST_S: Final = 40.0
"""Processor seconds for one traced test. One that takes longer is too dear to judge edits."""


def few_examples() -> None:
    """Hypothesis: a failing example is enough, its smallest form is not looked for."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "kill", hypothesis.settings.get_profile("ci"), phases=phases, print_blob=False
    )
    hypothesis.settings.load_profile("kill")


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"{TEST_S} s of processor time")


class Tracer:
    """Collects the lines of some files that run between `start` and `stop`."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._module_of: dict[str, str] = {}
        for module in modules:
            spec = importlib.util.find_spec(module)
            assert spec is not None, module
            assert spec.origin is not None, module
            self._module_of[spec.origin] = module
        self._lines: dict[str, set[int]] = {}

    def start(self) -> None:
        """Forget what was collected, and begin."""
        self._lines = {path: set() for path in self._module_of}
        sys.settrace(self._call)

    def stop(self) -> dict[str, list[int]]:
        """End; the lines of each module that ran any, sorted."""
        sys.settrace(None)
        return {
            self._module_of[path]: sorted(lines) for path, lines in self._lines.items() if lines
        }

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        lines = self._lines.get(frame.f_code.co_filename)
        if lines is None:
            return None
        add = lines.add

        def line(frame: FrameType, _event: str, _arg: object) -> Any:
            add(frame.f_lineno)
            return line

        return line


class Recorder:
    """A pytest plugin: seconds and lines of each test that passes, and the names of those not."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._passed = True
        self._started = 0.0
        self.tests: dict[str, dict[str, Any]] = {}
        self.failed: list[str] = []

    def pytest_configure(self) -> None:
        """Called by pytest: the same examples as in the runs that judge."""
        few_examples()
        signal.signal(signal.SIGPROF, _too_long)

    def pytest_runtest_logstart(self) -> None:
        """Called by pytest before each test."""
        signal.setitimer(signal.ITIMER_PROF, TEST_S)
        self._passed = True
        self._started = time.process_time()
        self._tracer.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        self._passed = self._passed and not report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Called by pytest after each test."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = self._tracer.stop()
        seconds = round(time.process_time() - self._started, 3)
        if self._passed:
            self.tests[nodeid] = {"seconds": seconds, "lines": lines}
        else:
            self.failed.append(nodeid)


def record(
    run_tests: Callable[[Sequence[str], object], int],
    *,
    modules: Sequence[str],
    seeds: int,
    file: str,
) -> dict[str, Any]:
    """Lines of `modules` that the first `seeds` schedules run, and the tests of `file` ("": none).

    Answers `{"at_import": lines, "seeds": [lines, ...], "tests": {name: {"seconds", "lines"}},
    "failed": [name, ...]}`, where `lines` is `{module: [line, ...]}`. A test that fails on the
    clean tree is only named. `at_import`, too, is empty without seeds.
    """
    tracer = Tracer(modules)
    recorder = Recorder(tracer)
    at_import: dict[str, list[int]] = {}
    of_seeds = []
    if seeds:
        tracer.start()
        for module in modules:
            importlib.import_module(module)
        at_import = tracer.stop()
        from onearena.stress.run import RunSpec, run_schedule

        for seed in range(seeds):
            tracer.start()
            result = run_schedule(RunSpec(seed))
            of_seeds.append(tracer.stop())
            assert result.verdict == "pass", f"the clean tree fails seed {seed}: {result.crash}"
    if file:
        run_tests([file], recorder)
    return {
        "at_import": at_import,
        "seeds": of_seeds,
        "tests": recorder.tests,
        "failed": recorder.failed,
    }
