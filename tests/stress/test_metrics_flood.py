"""A flood of hostile connections: health checks stay quick, nothing is left, no trace differs."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from onearena.stress.campaign import Campaign, Plan
from onearena.stress.live import Live, Watch
from onearena.stress.run import run_schedule

pytestmark = pytest.mark.slow

FLOOD_S = 12.0
HEALTH_S = 1.0
CLIENT = Path(__file__).with_name("flood_client.py")


def descriptors(process="self"):
    """What a process has open, by what it is; a socket by its number, which no other one gets."""
    found = Counter()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            found[str(entry.readlink())] += 1
        except OSError:
            continue  # the one this listing was read through
    return found


def settles(what, wanted, *, within_s=60.0):
    """What it is in the end: as wanted, or as it was when a busy machine had had its time."""
    deadline = time.monotonic() + within_s
    while (found := what()) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def test_a_flood_changes_nothing_and_leaves_nothing():
    plan = Plan(budget_s=FLOOD_S + 2, jobs=1)
    run_schedule(plan.spec(0))
    # What a first exporter imports and opens for good is not counted.
    Live(Watch(port=0)).close()
    gc.collect()
    before, threads_before = descriptors(), set(threading.enumerate())
    watched = Live(Watch(port=0))
    assert set(threading.enumerate()) - threads_before == {watched.exporter.thread}
    serving = watched.exporter.pid
    digests, most_threads = {}, 0

    def note(_, result):
        nonlocal most_threads
        most_threads = max(most_threads, len(list(Path(f"/proc/{serving}/task").iterdir())))
        if result is not None:
            digests[result.seed] = result.digest

    command = [sys.executable, str(CLIENT), str(watched.exporter.port), str(FLOOD_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        summary = Campaign(plan, live=watched).run(note)
        here = set(threading.enumerate()) - threads_before
        told, _ = client.communicate(timeout=150)
    found = json.loads(told)
    print({**found, "seconds": sorted(found["seconds"])[-3:], "schedules": len(digests)})
    # The flood was one, and nobody went without an answer, or waited for it.
    assert found["most"] >= 1000
    assert found["opened"] > 2000
    assert found["failed"] == []
    assert len(found["seconds"]) > FLOOD_S
    assert max(found["seconds"]) <= HEALTH_S
    # One thread for all of it on either side, and no connection stays when its client is gone.
    assert here == {watched.exporter.thread}
    assert most_threads == 1
    listening = settles(lambda: sockets(serving), 2)
    assert listening == 2, "the port and the channel between the two"
    watched.close()
    assert settles(lambda: set(threading.enumerate()) - threads_before, set()) == set()
    assert settles(lambda: descriptors() - before, Counter()) == Counter()
    assert not Path(f"/proc/{serving}").exists()
    # The campaign did what it does unwatched.
    assert set(summary.verdicts) == {"pass"}
    assert len(digests) >= 3
    for seed in sorted(digests)[:40]:
        assert run_schedule(plan.spec(seed)).digest == digests[seed], seed


def sockets(process):
    """Sockets that a process has open, but the pair that wakes its event loop."""
    return sum(name.startswith("socket:") for name in descriptors(process)) - 2
