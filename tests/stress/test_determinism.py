"""Equal specs give equal traces, in processes with different hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import sys
from onearena.stress.run import RunSpec, run_schedule
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    print(seed, run_schedule(RunSpec(seed, sys.argv[1])).digest)
"""


def digests(system: str, first: int, last: int, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, system, str(first), str(last)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_the_toy_in_two_processes() -> None:
    first = digests("toy", 0, 12, "1")
    assert first == digests("toy", 0, 12, "4242")
    assert len({line.split()[1] for line in first}) == 12


def test_the_arena_in_two_processes() -> None:
    first = digests("arena", 0, 6, "1")
    assert first == digests("arena", 0, 6, "4242")
    assert len({line.split()[1] for line in first}) == 6
