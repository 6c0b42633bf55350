"""The log of a live engine: what one line means, and a writer for engines to embed.

A log is JSON lines, UTF-8. The first line is the header (arena, bands, schedule stream); each later
line is an object whose `do` names what happened, in the order in which the engine's control thread
did it. `docs/engine-log.md` describes every line; `onearena check LOG` judges a log.

This module needs neither torch nor numpy. A writer belongs to the control thread of its arena; it
buffers nothing of its own, so the file object decides when bytes reach the disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

LOG_VERSION: Final = 1

SPACES: Final = ("arena", "host", "table", "buffer")
"""Address spaces by name, in the order of `onearena.core.device.interface.Space`."""

WORLD_KINDS: Final = ("forward", "backup", "load")
"""Stream work that the engine orders for its own sake: each piece names the use it belongs to."""

OWN_KINDS: Final = ("move", "fork", "zeroing", "table_update", "translate")
"""Stream work that an allocator enqueues inside its own calls."""

TRANSFER_KINDS: Final = ("send", "receive")
OUTCOMES: Final = ("done", "failed", "cancelled", "lost")

Span = tuple[str, int, int, str]
"""(space, start, end, "read" or "write"): bytes [start, end); arena bytes count from its first."""


class TextOut(Protocol):
    """Whatever takes the lines: an open text file, a pipe, a list's append behind a method."""

    def write(self, text: str, /) -> object:
        """Take one line, newline included."""


@dataclass(frozen=True, slots=True)
class LogBand:
    """One kind of unit. Unit `u` occupies `unit_bytes` bytes from `origin_bytes + u * unit_bytes`.

    `first_unit` is the smallest number inside the arena, `units` how many fit its grid there. Grids
    of several bands may cover the same bytes; hand-outs say who owns them.
    """

    name: str
    unit_bytes: int
    units: int
    origin_bytes: int = 0
    first_unit: int = 0


def read(start: int, end: int, *, space: str = "arena") -> Span:
    """Bytes [start, end) are read."""
    return space, start, end, "read"


def write(start: int, end: int, *, space: str = "arena") -> Span:
    """Bytes [start, end) are written."""
    return space, start, end, "write"


class LogWriter:
    """Writes the log of one arena. Every method writes one line, at once; about 5 us a line.

    Numbers of operations, events, uses and transfers are counted here unless the caller gives its
    own (`number`). Streams are named; a name is a stream from its first line on. Call everything
    from the thread that owns the arena, in the order in which it calls the device.

    `has_uses` False: the engine records no uses of its own, and whether work touches only what was
    recorded for it is not judged.
    """

    def __init__(
        self,
        out: TextOut,
        *,
        arena_bytes: int,
        bands: Sequence[LogBand],
        schedule_stream: str,
        has_uses: bool = True,
    ) -> None:
        self._out = out
        self._counts = {"op": 0, "event": 0, "use": 0, "transfer": 0}
        self._line(
            {
                "onearena_log": LOG_VERSION,
                "arena_bytes": arena_bytes,
                "bands": [
                    {
                        "name": band.name,
                        "unit_bytes": band.unit_bytes,
                        "units": band.units,
                        "origin_bytes": band.origin_bytes,
                        "first_unit": band.first_unit,
                    }
                    for band in bands
                ],
                "schedule_stream": schedule_stream,
                "has_uses": has_uses,
            }
        )

    # -- units
    @contextmanager
    def call(self) -> Iterator[None]:
        """One call of the allocator: what it enqueues inside is for the units it hands out inside.

        Without it, a line about units is judged alone, against all work enqueued before it.
        """
        self._line({"do": "begin"})
        try:
            yield
        finally:
            self._line({"do": "end"})

    def hand_out(self, band: str, units: Iterable[int]) -> None:
        """Units get a new life: they are live from here on."""
        self._line({"do": "hand_out", "band": band, "units": list(units)})

    def free(self, band: str, units: Iterable[int]) -> None:
        """The last reference of each unit is dropped: freed logically, whatever still uses it."""
        self._line({"do": "free", "band": band, "units": list(units)})

    def move(self, band: str, moves: Iterable[tuple[int, int]]) -> None:
        """Contents live at other units now: (from, to) each. In the `call` that enqueues the copies
        and after them.
        """
        self._line({"do": "move", "band": band, "moves": [list(pair) for pair in moves]})

    def reusable(self, band: str, units: Iterable[int]) -> None:
        """The allocator takes these freed or vacated units for holes from here on. Optional."""
        self._line({"do": "reusable", "band": band, "units": list(units)})

    def retreat(self, band: str, units: Iterable[int]) -> None:
        """The band's frontier left these units behind: their bytes are fenced, and may be handed
        out by any band as long as their next writer waits.
        """
        self._line({"do": "retreat", "band": band, "units": list(units)})

    # -- uses and streams
    def use(
        self, kind: str, stream: str, accesses: Iterable[Span], *, number: int | None = None
    ) -> int:
        """Record a use, before its work is enqueued; its number."""
        use = self._number("use", number)
        line = {"do": "use", "use": use, "kind": kind, "stream": stream}
        self._line({**line, "accesses": [list(span) for span in accesses]})
        return use

    def enqueue(
        self,
        kind: str,
        stream: str,
        accesses: Iterable[Span],
        *,
        use: int | None = None,
        label: str = "",
        number: int | None = None,
    ) -> int:
        """Work is put on a stream; its number. `use` is the use it was recorded by."""
        op = self._number("op", number)
        line: dict[str, object] = {"do": "enqueue", "op": op, "kind": kind, "stream": stream}
        if use is not None:
            line["use"] = use
        if label:
            line["label"] = label
        self._line({**line, "accesses": [list(span) for span in accesses]})
        return op

    def touch(self, op: int, accesses: Iterable[Span]) -> None:
        """What the work really touched, where the engine can tell. Optional."""
        self._line({"do": "touch", "op": op, "accesses": [list(span) for span in accesses]})

    def record(self, stream: str, *, number: int | None = None) -> int:
        """An event stands for all that the stream was given so far; its number."""
        event = self._number("event", number)
        self._line({"do": "record", "event": event, "stream": stream})
        return event

    def wait(self, stream: str, event: int) -> None:
        """What the stream is given from now on runs after the event."""
        self._line({"do": "wait", "stream": stream, "event": event})

    def observe(self, event: int) -> None:
        """The host has seen the event complete, and takes all it stands for as retired."""
        self._line({"do": "observe", "event": event})

    def process(self, use: int) -> None:
        """The host has processed the result of this forward."""
        self._line({"do": "process", "use": use})

    # -- transfers
    def transfer(
        self, kind: str, peer: int, accesses: Iterable[Span], *, number: int | None = None
    ) -> int:
        """A peer may touch these bytes from now on; the transfer's number."""
        transfer = self._number("transfer", number)
        line = {"do": "transfer", "transfer": transfer, "kind": kind, "peer": peer}
        self._line({**line, "accesses": [list(span) for span in accesses]})
        return transfer

    def transfer_end(self, transfer: int, outcome: str) -> None:
        """The host has seen the end: done, failed or cancelled. `lost`: no end can be confirmed."""
        self._line({"do": "transfer_end", "transfer": transfer, "outcome": outcome})

    def disconnect(self, peer: int) -> None:
        """The connection is torn down: no transfer of the peer touches anything any more."""
        self._line({"do": "disconnect", "peer": peer})

    # -- inside
    def _number(self, what: str, given: int | None) -> int:
        if given is not None:
            return given
        self._counts[what] += 1
        return self._counts[what]

    def _line(self, line: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
