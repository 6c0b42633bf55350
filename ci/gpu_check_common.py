"""What the parts of `ci/gpu_check` share: the choice of a GPU or the fake, and where things lie."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "mutants" / "registry.toml"
DEVICES = ("cuda", "fake")
NAMED_MUTANTS = (
    "W-forward-forward",
    "W-forward-fork",
    "W-forward-move",
    "W-forward-zeroing",
    "W-move-forward",
    "W-zeroing-forward",
    "R-forward-forward",
    "R-forward-load",
    "R-move-forward",
    "W-load-forward",
)
"""Missing waits of rule 6 that show in bytes; those that the registry has."""


@contextmanager
def device(name: str, *, seed: int = 0, lazy: int = 3) -> Iterator[list[Any]]:
    """Inside, schedules with `device="cuda"` run on the GPU, or over the strict fake. The list has
    the fakes that were opened.
    """
    if name == "cuda":
        yield []
        return
    folder = str(ROOT / "tests" / "cuda")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from fake_runs import fake_gpus

    with fake_gpus(seed=seed, lazy=lazy) as made:
        yield made


def seeds_of(text: str) -> range:
    """`A:B`."""
    first, _, last = text.partition(":")
    return range(int(first), int(last))
