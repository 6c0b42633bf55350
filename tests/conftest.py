"""What every test shares: one OpenMP thread, Hypothesis profiles, optional shared data."""

from __future__ import annotations

import os

# Before anything imports torch or numba: with more threads, OpenMP workers of several processes
# spin against each other and a step takes ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent

# No deadline: a numba kernel that compiles inside a test would break any that is worth having.
hypothesis.settings.register_profile("default", deadline=None)
# In CI the same examples every time, and a failure that can be pasted: @reproduce_failure.
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session", autouse=True)
def runs_folder() -> Iterator[Path]:
    """Campaigns of the tests keep their runs there, and leave none in the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("ONEARENA_RUNS")
        os.environ["ONEARENA_RUNS"] = folder
        yield Path(folder)
        if before is None:
            del os.environ["ONEARENA_RUNS"]
        else:
            os.environ["ONEARENA_RUNS"] = before


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Model geometries and traces from outside the project; skips where they are not there."""
    folder = Path(os.environ.get("ONEARENA_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(
            f"ONEARENA_SHARED names no folder ({folder}): the data lies outside the project"
        )
    return folder


@pytest.fixture(scope="session")
def warm_kernels() -> None:
    """Compile (or load) the numba kernels once, so that a timed test measures their work only."""
    name = "onearena.core.kernels"
    if importlib.util.find_spec(name) is None:
        return
    warm_up = getattr(importlib.import_module(name), "warm_up", None)
    if warm_up is not None:
        warm_up()
