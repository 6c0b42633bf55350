"""Prometheus metrics, read from immutable snapshots of an arena.

`register` exports an arena of this process; `start_exporter` serves a registry over HTTP.
`docs/metrics.md` describes both, every metric and every endpoint.
"""

from __future__ import annotations

from onearena.metrics.embed import register
from onearena.metrics.exporter import Exporter, start_exporter
from onearena.metrics.harness import HarnessSource, Progress
from onearena.metrics.recorder import Recorder
from onearena.metrics.security import Security
from onearena.metrics.source import Published, SnapshotSource

__all__ = [
    "Exporter",
    "HarnessSource",
    "Progress",
    "Published",
    "Recorder",
    "Security",
    "SnapshotSource",
    "register",
    "start_exporter",
]
