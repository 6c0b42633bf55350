"""Recorded schedules, replayed: what they found must stay found, and what was mended, mended.

`NAME.choices.json` beside this file is a minimal schedule that failed once. If its system is a toy
with a mistake, the replay has to break the same rule again: the harness still sees it. Else the
arena failed, by a mistake that was mended since, or one that was planted for the recording
(`planted-ID`, an id of the registry of mutants): the replay breaks no rule.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onearena.stress.recordings import load_recording, same_failure
from onearena.stress.run import run_schedule

FILES = sorted(Path(__file__).parent.glob("*.choices.json"))


def test_there_are_some() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".choices.json"))
def test_replay(path: Path) -> None:
    spec, head = load_recording(path)
    assert head["verdict"] != "pass", "a schedule that never failed is no regression"
    result = run_schedule(spec)
    if spec.system.startswith("toy:"):
        assert same_failure(head, result), (result.violations, result.divergence)
    else:
        assert result.verdict == "pass", result.violations or result.crash
