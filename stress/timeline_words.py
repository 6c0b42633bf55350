"""Calls of the world in words: ids get short names, in the order in which they first appear."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final

from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.core.errors import OneArenaError
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use
from onearena.stress.calls import Call

IDS_SHOWN_MAX: Final = 12
TEXT_MAX: Final = 160


class CallWords:
    """Turns calls into one line each. `bands` and `streams` are names by number."""

    def __init__(self, bands: Sequence[str] = (), streams: Sequence[str] = ()) -> None:
        self._bands = bands
        self._streams = streams
        self._ids: dict[int, str] = {}
        self._host: dict[int, str] = {}
        self._told: dict[str, Callable[[tuple[object, ...]], str]] = {
            "fits": lambda a: f"asks whether {self._demand(a[0])} fits",
            "allocate": lambda a: (
                f"allocate {self._demand(a[0])} for {a[3]}; "
                f"first writer {_kind(a[1])} on {self._stream(a[2])}"
            ),
            "free": lambda a: f"free {self._names(a[0])}",
            "share": lambda a: f"share {self._names(a[0])}",
            "fork": lambda a: f"fork {self._names(a[0])} on {self._stream(a[1])}",
            "record": self._record,
            "publish": lambda a: f"publish {_kind(a[0])} of {self._names(a[1])} to peer {a[2]}",
            "launch": lambda a: f"launch {self._use(a[0])}",
            "process": lambda a: f"process {self._use(a[0])}",
            "settle": lambda a: f"settle {self._use(a[0])}: the schedule stream waits for it",
            "retire": lambda a: f"retire {self._use(a[0])}{' (it failed)' if a[1] else ''}",
            "end_transfer": lambda a: f"end of {self._use(a[0])}: {a[1]}",
            "disconnect": lambda a: f"disconnect peer {a[0]}",
            "compact": lambda a: f"compact, at most {a[0]} units",
            "move": lambda a: f"move {self._names(a[1])}",
            "pin": lambda a: f"{'pin' if a[1] else 'unpin'} {self._names(a[0])}",
            "reserve_host": lambda a: f"reserve {a[1]} host units for {self._band(a[0])}",
            "free_host": lambda a: f"free host units {self._names(a[0], host=True)}",
        }

    def text(self, call: Call) -> str:
        """The call and its answer on one line."""
        told = self._told.get(call.name)
        words = told(call.args) if told is not None else f"{call.name}{call.args!r}"
        line = words + self._answer(call)
        return line if len(line) <= TEXT_MAX else line[: TEXT_MAX - 3] + "..."

    def host_name(self, unit: int) -> str:
        """`h1`, `h2`, ...: the name that texts give a host unit."""
        return self._names((unit,), host=True)

    def _answer(self, call: Call) -> str:
        if call.error is not None:
            name = type(call.error).__name__
            told = call.error.message if isinstance(call.error, OneArenaError) else str(call.error)
            return f" -> refused, {name}: {told}"
        answer = call.answer
        if isinstance(answer, Grant):
            flat = [name for band in answer.ids for name in band]
            return f" -> {self._names(flat)}"
        if isinstance(answer, Use):
            return f" -> use {answer.serial}"
        if isinstance(answer, Fits):
            return f" -> yes, rung {answer.rung.name.lower()}"
        if isinstance(answer, Blocked):
            reasons = dict.fromkeys(blocker.reason for blocker in answer.blockers)
            return f" -> blocked: {', '.join(reasons)}"
        if isinstance(answer, Infeasible):
            return f" -> no: {answer.missing_bytes} bytes short"
        if call.name in {"compact", "move"}:
            return f" -> {answer} moved"
        if call.name == "reserve_host" and isinstance(answer, tuple):
            return f" -> {self._names(answer, host=True)}"
        return ""

    def _record(self, args: tuple[object, ...]) -> str:
        kind, stream, reads, writes, host_reads, host_writes = args
        parts = [f"record a {_kind(kind)} on {self._stream(stream)}"]
        for verb, ids, host in (
            ("reads", reads, False),
            ("writes", writes, False),
            ("reads host", host_reads, True),
            ("writes host", host_writes, True),
        ):
            if ids:
                parts.append(f"{verb} {self._names(ids, host=host)}")
        return ", ".join(parts)

    def _names(self, ids: object, *, host: bool = False) -> str:
        if not isinstance(ids, (tuple, list)):
            return repr(ids)
        known = self._host if host else self._ids
        names: list[str] = []
        for name in ids:
            if not isinstance(name, int):
                names.append(repr(name))
                continue
            if name not in known:
                known[name] = f"{'h' if host else 'u'}{len(known) + 1}"
            names.append(known[name])
        more = f" and {len(names) - IDS_SHOWN_MAX} more" if len(names) > IDS_SHOWN_MAX else ""
        return (" ".join(names[:IDS_SHOWN_MAX]) or "nothing") + more

    def _demand(self, demand: object) -> str:
        if not isinstance(demand, tuple):
            return repr(demand)
        wanted = [f"{n} {self._band(band)}" for band, n in enumerate(demand) if n]
        return " + ".join(wanted) or "nothing"

    def _band(self, band: object) -> str:
        if isinstance(band, int) and 0 <= band < len(self._bands):
            return self._bands[band]
        return f"band {band}"

    def _stream(self, stream: object) -> str:
        if isinstance(stream, int) and 0 <= stream < len(self._streams):
            return self._streams[stream]
        return f"stream {stream}"

    def _use(self, use: object) -> str:
        return f"use {use.serial} ({_kind(use.kind)})" if isinstance(use, Use) else repr(use)


def _kind(kind: object) -> str:
    if isinstance(kind, int) and not isinstance(kind, enum.Enum):
        kind = UseKind(kind)
    return kind.name.lower() if isinstance(kind, enum.Enum) else repr(kind)
