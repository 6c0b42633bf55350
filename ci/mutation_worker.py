"""Plants general mutants one after the other, each in a fork, and says what noticed it.

`python mutation_worker.py` reads JSON lines `{"module", "source", "tests": [...], "seeds"}` and
answers each with `{"killed", "by"}`. The fork runs schedules first (any verdict but a pass kills),
then the test files one by one (any failure kills). With NUMBA_DISABLE_JIT=1 the kernels are plain
Python and can be mutated as well.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

PACKAGE = "onearena."
JIT = os.environ.get("NUMBA_DISABLE_JIT") != "1"
LIMIT_S = 150
"""Processor seconds for one mutant: a loop without an end is noticed by this."""


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles the given text in place of the file's."""

    text = ""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that the import system runs: of the given text."""
        code: CodeType = compile(self.text, self.path, "exec", dont_inherit=True)
        return code


class Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated module first."""

    def __init__(self, module: str, text: str) -> None:
        self._module, self._text = module, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The mutated module's spec; None for all others, which the next finder finds."""
        if fullname != self._module:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.origin is not None:
                loader = Loader(fullname, spec.origin)
                loader.text = self._text
                return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)
        return None


class FirstFailure:
    """Remembers which test failed first."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        if report.failed and not self.name:
            self.name = report.nodeid


def preload() -> set[str]:
    """Load the kernels and what they import; a fork keeps these, unless it mutates them."""
    if JIT:
        from onearena.core import kernels

        kernels.warm_up()
        return {name for name in sys.modules if name.startswith(PACKAGE)}
    import numba  # noqa: F401 - heavy, and the same for all

    return {name for name in sys.modules if name.startswith(PACKAGE)}


def forget(kept: set[str]) -> None:
    """As if nothing of the project but `kept` had been imported."""
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        if name not in kept:
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            if parent in sys.modules and hasattr(sys.modules[parent], last):
                delattr(sys.modules[parent], last)


def judge(asked: dict[str, Any]) -> dict[str, Any]:
    """In the fork, with the mutant planted: who notices."""
    from onearena.stress.run import RunSpec, run_schedule

    for seed in range(asked["seeds"]):
        result = run_schedule(RunSpec(seed))
        if result.verdict != "pass":
            by = sorted({violation.oracle for violation in result.violations})
            return {"killed": True, "by": ", ".join(by) or result.verdict, "seed": seed}
    for file in asked["tests"]:
        first = FirstFailure()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", file],
                plugins=[first],
            )
        if code != pytest.ExitCode.OK:
            return {"killed": True, "by": first.name or f"{file}: exit {int(code)}"}
    return {"killed": False, "by": ""}


def in_fork(asked: dict[str, Any], kept: set[str]) -> dict[str, Any]:
    """Plant and judge in a fork; one that dies or takes too long has noticed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        try:
            forget(kept)
            if asked["module"]:
                sys.meta_path.insert(0, Finder(asked["module"], asked["source"]))
            answer = json.dumps(judge(asked))
        except BaseException as error:  # noqa: BLE001 - whatever a mutant raises is a result
            answer = json.dumps({"killed": True, "by": f"{type(error).__name__}: {error}"[:200]})
        with os.fdopen(writer, "w") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    text = b""
    end = time.monotonic() + 20 * LIMIT_S
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            part = pipe.read(1 << 16)
            if not part:
                break
            text += part
    if not text:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
    os.waitpid(child, 0)
    if not text:
        return {"killed": True, "by": "ran out of time, or died"}
    found: dict[str, Any] = json.loads(text)
    return found


def main() -> None:
    """Answer until the input ends."""
    os.chdir(Path(__file__).resolve().parent.parent)
    kept = preload()
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.monotonic()
        found = in_fork(asked, kept)
        print(json.dumps({**found, "seconds": round(time.monotonic() - started, 2)}), flush=True)


if __name__ == "__main__":
    main()
