"""Planted faults of the arena, judged from their logs by a process that knows of none."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from onearena.stress.log_check import LogChecker
from onearena.stress.log_lines import read_log

PROGRAM = Path(__file__).with_name("log_of_mutant.py")
# Oracles whose facts are in a log; the others judge answers, prices and contents.
IN_LOGS = ("order", "legality")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["T-vacated-wait", "T-one-use", "W-forward-zeroing", "U-buffer"])
def test_what_order_and_legality_say_online_they_say_of_the_log(name) -> None:
    command = [sys.executable, str(PROGRAM), name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, _, log = done.stdout.partition("\n")
    said = json.loads(head)["violations"]
    online = [row for row in said if row["oracle"] in IN_LOGS]
    assert online, f"{name} was not reported by {IN_LOGS}: {said}"
    header, rows = read_log(io.BytesIO(log.encode()))
    checker = LogChecker(header)
    offline = [violation.to_json() for row in rows for violation in checker.feed(row)]
    for row in online:
        same = [v for v in offline if (v["oracle"], v["rule"]) == (row["oracle"], row["rule"])]
        assert same, f"{name}: {row} is not among {offline}"
        # The same bytes, where the report names some; the same unit otherwise.
        where = "bytes" if row["bytes"] is not None else "unit"
        assert row[where] in [violation[where] for violation in same]
