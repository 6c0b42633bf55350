"""What an embedding application may watch: times are the observer's, decisions never read them.

The arena tells its observer what it just did; whoever wants durations brings a clock. All calls
come from the control thread, in the middle of an arena call: an observer returns quickly, calls
nothing of the arena, and raises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onearena.core.ledger import Units
from onearena.core.rules import UseKind


class ArenaObserver(Protocol):
    """Hooks of one arena. Bands are chain positions, units physical unit numbers (int64[n])."""

    def waited(self, writer: UseKind, stream: int, ticket: int) -> None:
        """A use of kind `writer` made its stream wait for use `ticket` of `stream`."""

    def launched(self, serial: int, kind: UseKind, stream: int, ticket: int, band: int) -> None:
        """A use was enqueued; `stream` is -1 for a transfer, `band` its first band or -1."""

    def retired(self, serial: int) -> None:
        """The use is over: the host has seen its end."""

    def freed(self, band: int, waiting: Units, ready_units: int) -> None:
        """Units were freed or vacated: `waiting` have a use left, `ready_units` have none."""

    def reusable(self, band: int, units: Units) -> None:
        """Units among `units` that were waiting are holes now, or beyond a frontier."""

    def moved(self, band: int, sources: Units, targets: Units) -> None:
        """Units of `band` were moved, `sources[i]` to `targets[i]`; copies may still run."""

    def planning(self) -> None:
        """A demand did not fit in place; planning of moves begins."""

    def planned(self, rung: str) -> None:
        """Planning ended: 'none', 'compact', 'relayout', or 'refused'."""


def first_band(touches: Sequence[tuple[int, Units]], bands: int) -> int:
    """The first device band among these (domain, units) pairs; -1 if there is none."""
    return next((domain for domain, _ in touches if domain < bands), -1)
