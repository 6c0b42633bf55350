"""A record survives a kill: whatever was in the file at that moment is read afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from ui_server import ROOT

from onearena.dashboard.record_source import RecordSource

WITHIN_S = 60.0
FRAMES = 4


@pytest.mark.timeout(90)
def test_a_campaign_that_is_killed_leaves_a_record_that_opens(tmp_path):
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-m", "onearena.stress.cli", "stress", "--system", "toy"]
    command += ["--jobs", "1", "--seeds", "0:", "--keep-going"]
    campaign = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run"), "--record", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        there = _frames_of(path, campaign)
        os.killpg(campaign.pid, signal.SIGKILL)
        assert campaign.wait(WITHIN_S) == -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(campaign.pid, signal.SIGKILL)
        campaign.wait()
    record = RecordSource(path)
    assert len(record.frames) >= there >= FRAMES
    moments = [entry.moment for entry in record.frames]
    assert moments == sorted(moments)
    for at in range(len(record.frames)):
        snapshot = record.frame(at).snapshot
        units = sum(
            (band.high_unit - band.low_unit) * band.unit_bytes
            for band in snapshot.bands
            if band.has_units
        )
        gaps = sum(gap.end_bytes - gap.start_bytes for gap in snapshot.gaps)
        assert units + gaps == snapshot.arena_bytes, at


def _frames_of(path, campaign):
    """Whole lines with a frame in the file, once there are `FRAMES`, while the campaign runs."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        assert campaign.poll() is None, "the campaign ended by itself"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        found = sum(b'"states"' in line for line in lines)
        if found >= FRAMES:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {FRAMES} frames within {WITHIN_S} s")
