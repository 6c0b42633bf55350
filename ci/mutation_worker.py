"""Plants general mutants one after the other, each in a fork, and says what noticed it.

`python mutation_worker.py` reads JSON lines and answers each with one. `{"record": {"modules",
"seeds", "file"}}` runs the clean tree and answers which lines each schedule, or each test of a
file, runs (`mutation_reach`). `{"module", "source", "rounds"}` plants the text as the module and
answers `{"killed", "by"}`: a round is a list of seeds or of tests `[name, seconds]`, and the first
schedule that does not pass, or test that fails, ends it. With NUMBA_DISABLE_JIT=1 the kernels are
plain Python and can be planted as well.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import mutation_plain
import mutation_reach
import pytest

from onearena.stress import forks
from onearena.stress.forks import Limits

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "onearena."
KERNELS: Final = "onearena.core.kernels"
JIT: Final = os.environ.get("NUMBA_DISABLE_JIT") != "1"
MEMORY_BYTES: Final = 12 << 30
SCHEDULE_S: Final = 4.0
"""Processor seconds for one schedule: a clean one takes a tenth of one."""
WALL_S: Final = 900.0
"""Seconds for one mutant on a busy machine: one that only waits uses no processor."""
TEST_S, TEST_TIMES = 4.0, 4.0
"""Processor seconds for one test: so many, and so many times those of its clean (traced) run."""
PYTEST: Final = (
    *(
        "-q",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ),
    *("-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"),
)


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles the given text in place of the file's."""

    text = ""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code that the import system runs: of the given text."""
        if fullname == KERNELS:
            return mutation_plain.plain_code(self.text, self.path)
        code: CodeType = compile(self.text, self.path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run it; kernels get what the compiler would have given them."""
        if module.__name__ != KERNELS:
            super().exec_module(module)
            return
        mutation_plain.prepare(module)
        super().exec_module(module)
        mutation_plain.bind(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module first, with the given text."""

    def __init__(self, module: str, text: str) -> None:
        self._module, self._text = module, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec; None for all others, which the next finder finds."""
        if fullname != self._module:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.origin is not None:
                loader = Loader(fullname, spec.origin)
                loader.text = self._text
                return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)
        return None


class Chosen:
    """A pytest plugin: only the given tests, in the given order; remembers the first failure.

    Each test has processor time of its own, after which the system ends this process.
    """

    def __init__(self, tests: list[tuple[str, float]], say: Callable[[str], None]) -> None:
        self._order = {name: at for at, (name, _) in enumerate(tests)}
        self._limits_s = {name: TEST_S + TEST_TIMES * seconds for name, seconds in tests}
        self._say = say
        self.failed = ""

    def pytest_configure(self) -> None:
        """Called by pytest."""
        mutation_reach.few_examples()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Called by pytest: take the chosen ones."""
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Called by pytest before each test."""
        self._say(nodeid)
        signal.setitimer(signal.ITIMER_PROF, self._limits_s[nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def preload() -> set[str]:
    """Load what the project imports from others, and compiled kernels; a fork keeps these.

    Answers the names of the project's modules that a fork keeps: what compiled kernels import.
    """
    if JIT:
        from onearena.core import kernels

        kernels.warm_up()
    else:
        spec = importlib.util.find_spec(KERNELS)
        assert spec is not None
        assert spec.origin is not None
        text = Path(spec.origin).read_text(encoding="utf-8")
        sys.meta_path.insert(0, Finder(KERNELS, text))
    kept = {name for name in sys.modules if name.startswith(PACKAGE)} if JIT else set()
    from onearena.stress.run import RunSpec, run_schedule

    result = run_schedule(RunSpec(0))
    assert result.verdict == "pass", f"the clean tree fails seed 0: {result.crash}"
    import _hypothesis_pytestplugin  # noqa: F401
    import hypothesis.stateful  # noqa: F401
    import pytest_timeout  # noqa: F401
    import torch  # noqa: F401

    # A fork that collects garbage would copy every page: none does, and none lives long.
    gc.collect()
    gc.freeze()
    gc.disable()
    return kept


def forget(kept: set[str]) -> None:
    """As if nothing of the project but `kept` had been imported."""
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        if name not in kept:
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            if parent in sys.modules and hasattr(sys.modules[parent], last):
                delattr(sys.modules[parent], last)


def run_tests(arguments: Sequence[str], plugin: object) -> int:
    """Run test files here, silently; pytest's exit code."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return int(pytest.main([*PYTEST, *arguments], plugins=[plugin]))


def judge(asked: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """In the fork, with the mutant planted: who notices."""
    from onearena.stress.run import RunSpec, run_schedule

    for step in asked["rounds"]:
        for seed in step.get("seeds", ()):
            say(f"schedule {seed}")
            signal.setitimer(signal.ITIMER_PROF, SCHEDULE_S)
            result = run_schedule(RunSpec(seed))
            if result.verdict != "pass":
                by = sorted({violation.oracle for violation in result.violations})
                return {"killed": True, "by": ", ".join(by) or result.verdict, "seed": seed}
        signal.setitimer(signal.ITIMER_PROF, 0)
        tests = [(name, seconds) for name, seconds in step.get("tests", ())]
        if not tests:
            continue
        files = sorted({name.partition("::")[0] for name, _ in tests})
        chosen = Chosen(tests, say)
        code = run_tests(["-x", *files], chosen)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if code != pytest.ExitCode.OK:
            return {"killed": True, "by": chosen.failed or f"{', '.join(files)}: exit {code}"}
    return {"killed": False, "by": ""}


def in_fork(asked: dict[str, Any], kept: set[str]) -> dict[str, Any]:
    """Plant and judge, or record, in a fork; one that dies or takes too long has noticed.

    The fork says each step that it begins, and its answer last.
    """
    ended = forks.in_fork(
        lambda tell: tell(_in_child(asked, kept, tell)),
        Limits(wall_s=WALL_S, memory_bytes=MEMORY_BYTES),
    )
    status, seconds = ended.status, round(ended.seconds, 2)
    answer: Any = ended.said[-1] if ended.said else "start"
    if isinstance(answer, str):
        name = signal.Signals(status).name if os.WIFSIGNALED(status) else f"status {status}"
        what = "took too long" if name == "SIGPROF" else f"ended by {name}"
        seed = {"seed": int(answer.split()[1])} if answer.startswith("schedule ") else {}
        answer = {"killed": True, "by": f"{answer}: {what}", **seed}
    return {**answer, "seconds": seconds}


def _in_child(asked: dict[str, Any], kept: set[str], say: Callable[[str], None]) -> dict[str, Any]:
    try:
        forget(kept)
        if "record" in asked:
            return mutation_reach.record(run_tests, **asked["record"])
        sys.meta_path.insert(0, Finder(asked["module"], asked["source"]))
        return judge(asked, say)
    except BaseException as error:  # noqa: BLE001 - whatever a mutant raises is a result
        return {"killed": True, "by": f"{type(error).__name__}: {error}"[:200]}


def main() -> None:
    """Answer until the input ends."""
    os.chdir(ROOT)
    os.environ["CI"] = "1"  # Hypothesis draws the same examples every time
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    kept = preload()
    for line in sys.stdin:
        print(json.dumps(in_fork(json.loads(line), kept)), flush=True)


if __name__ == "__main__":
    main()
