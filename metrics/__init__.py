"""Prometheus metrics, read from immutable snapshots of an arena.

`register` exports an arena of this process; `start_exporter` serves a registry over HTTP.
`docs/metrics.md` describes both, every metric and every endpoint. Names are loaded when they are
asked for: the process that serves the metrics is of this package too, and needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onearena.metrics.embed import register
    from onearena.metrics.exporter import Exporter, start_exporter
    from onearena.metrics.harness import HarnessSource, Progress
    from onearena.metrics.recorder import Recorder
    from onearena.metrics.reply import Limits
    from onearena.metrics.security import Security
    from onearena.metrics.source import Published, SnapshotSource

_HOMES: Final = {
    "Exporter": "exporter",
    "HarnessSource": "harness",
    "Limits": "reply",
    "Progress": "harness",
    "Published": "source",
    "Recorder": "recorder",
    "Security": "security",
    "SnapshotSource": "source",
    "register": "embed",
    "start_exporter": "exporter",
}

__all__ = [
    "Exporter",
    "HarnessSource",
    "Limits",
    "Progress",
    "Published",
    "Recorder",
    "Security",
    "SnapshotSource",
    "register",
    "start_exporter",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
