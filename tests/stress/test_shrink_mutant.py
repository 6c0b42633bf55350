"""A fault planted in the arena: found, made small, explained, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import json, sys
from dataclasses import replace
from pathlib import Path
from onearena.stress.mutants import load_registry, plant

registry, wanted = sys.argv[1:]
plant({mutant.id: mutant for mutant in load_registry(Path(registry))}[wanted])

from onearena.stress.explain import explain, explain_text
from onearena.stress.run import RunSpec, run_schedule
from onearena.stress.shrink import Shrinker

for seed in range(400):
    result = run_schedule(RunSpec(seed))
    if any(violation.oracle == "order" for violation in result.violations):
        break
small = Shrinker(
    replace(RunSpec(seed), recording=result.recording), budget_s=30, rounds_max=1
).run()
page = explain(small.spec)
print(json.dumps({
    "before": small.before.host_calls,
    "calls": small.after.host_calls,
    "verified": small.verified,
    "rule": page.rule,
    "marks": [side.mark for side in page.sides],
    "edge": page.edge,
    "kinds": [page.rows[side.row].text.split(";")[0] for side in page.sides],
    "text": explain_text(page),
}))
"""


@pytest.mark.slow
def test_a_planted_fault_ends_as_a_short_page(root: Path) -> None:
    """Two forwards write the same unit from two streams, and the second does not wait."""
    registry = root / "tests" / "mutants" / "registry.toml"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(registry), "W-forward-forward"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verified"]
    assert found["calls"] <= 10 < found["before"]
    assert found["rule"] == "6"
    assert found["marks"] == ["A", "B"]
    assert all(": forward" in kind for kind in found["kinds"])
    assert "must wait for an event recorded on stream" in found["edge"]
    assert found["edge"].split(" must")[0] in found["text"].replace("\n         ", " ")
