"""Lines of an engine's log, read with suspicion: each one typed and bounded, or refused.

A refusal is a `UsageError` that names the line and the field. Nothing here judges what the lines
say; `stress/log_check.py` does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from onearena.core.device.interface import Access, OpKind, Space
from onearena.core.errors import UsageError
from onearena.core.rules import UseKind
from onearena.stress.engine_log import (
    LOG_VERSION,
    OUTCOMES,
    OWN_KINDS,
    SPACES,
    TRANSFER_KINDS,
    WORLD_KINDS,
    LogBand,
)

LINE_BYTES_MAX: Final = 1 << 20
NAME_CHARACTERS_MAX: Final = 120
BANDS_MAX: Final = 32
ADDRESS_MAX: Final = 1 << 60
NUMBER_MAX: Final = (1 << 63) - 1
IGNORED_FIELDS: Final = frozenset(("do", "time_ns", "note"))
"""An engine may add these to any line."""

KIND_NUMBERS: Final[dict[str, int]] = {
    **{kind.name.lower(): int(kind) for kind in UseKind},
    **{kind.name.lower(): int(kind) for kind in OpKind},
}


class LogHeader(NamedTuple):
    """The first line."""

    arena_bytes: int
    bands: tuple[LogBand, ...]
    schedule_stream: str
    has_uses: bool


class Begin(NamedTuple):
    """One call of the allocator begins."""


class End(NamedTuple):
    """The call is over."""


class HandOut(NamedTuple):
    """Units become live."""

    band: str
    units: tuple[int, ...]


class Free(NamedTuple):
    """Units are freed logically."""

    band: str
    units: tuple[int, ...]


class Move(NamedTuple):
    """Contents live elsewhere: (from, to)."""

    band: str
    moves: tuple[tuple[int, int], ...]


class Reusable(NamedTuple):
    """Units are holes."""

    band: str
    units: tuple[int, ...]


class Retreat(NamedTuple):
    """Units are outside the band."""

    band: str
    units: tuple[int, ...]


class UseLine(NamedTuple):
    """A use is recorded. `kind` is a `UseKind` value."""

    use: int
    kind: int
    stream: str
    accesses: tuple[Access, ...]


class EnqueueLine(NamedTuple):
    """Work is put on a stream. `kind` is a `UseKind` or `OpKind` value."""

    op: int
    kind: int
    stream: str
    accesses: tuple[Access, ...]
    use: int | None
    label: str


class TouchLine(NamedTuple):
    """What work really touched."""

    op: int
    accesses: tuple[Access, ...]


class RecordLine(NamedTuple):
    """An event is recorded."""

    event: int
    stream: str


class WaitLine(NamedTuple):
    """A stream waits."""

    stream: str
    event: int


class ObserveLine(NamedTuple):
    """The host has seen an event."""

    event: int


class ProcessLine(NamedTuple):
    """The host has processed a result."""

    use: int


class TransferLine(NamedTuple):
    """A peer may touch bytes."""

    transfer: int
    kind: int
    peer: int
    accesses: tuple[Access, ...]


class TransferEndLine(NamedTuple):
    """The host has seen a transfer end."""

    transfer: int
    outcome: str


class DisconnectLine(NamedTuple):
    """A connection is torn down."""

    peer: int


LogLine = (
    Begin
    | End
    | HandOut
    | Free
    | Move
    | Reusable
    | Retreat
    | UseLine
    | EnqueueLine
    | TouchLine
    | RecordLine
    | WaitLine
    | ObserveLine
    | ProcessLine
    | TransferLine
    | TransferEndLine
    | DisconnectLine
)


class _BadField(Exception):  # noqa: N818 - never leaves this module
    """A field's value and how to mend it."""

    def __init__(self, value: object, fix: str) -> None:
        super().__init__(fix)
        self.value = value
        self.fix = fix


def _integer(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _BadField(value, f"give a whole number from {low} to {high}")
        return value

    return parse


_number = _integer(0, NUMBER_MAX)
_address = _integer(-ADDRESS_MAX, ADDRESS_MAX)
_unit = _integer(-NUMBER_MAX, NUMBER_MAX)


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARACTERS_MAX:
        raise _BadField(value, f"give a name of 1 to {NAME_CHARACTERS_MAX} characters")
    if not value.isprintable():
        raise _BadField(value, "use printable characters")
    return value


def _label(value: object) -> str:
    return "" if value == "" else _name(value)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise _BadField(value, "give true or false")
    return value


def _one_of(names: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise _BadField(value, f"give one of {', '.join(names)}")
        return value

    return parse


def _kind(names: tuple[str, ...]) -> Callable[[object], int]:
    known = _one_of(names)
    return lambda value: KIND_NUMBERS[known(value)]


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise _BadField(value, f"give a list of {what}")
    return value


def _units(value: object) -> tuple[int, ...]:
    return tuple(_unit(item) for item in _list(value, "unit numbers"))


def _moves(value: object) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for item in _list(value, "[from, to]"):
        if not isinstance(item, list) or len(item) != 2:
            raise _BadField(item, "give [from, to], two unit numbers")
        found.append((_unit(item[0]), _unit(item[1])))
    return tuple(found)


def _accesses(value: object) -> tuple[Access, ...]:
    found: list[Access] = []
    for item in _list(value, "[space, start, end, read or write]"):
        if not isinstance(item, list) or len(item) != 4:
            raise _BadField(item, 'give [space, start, end, "read" or "write"]')
        space, start, end, verb = item
        if not isinstance(space, str) or space not in SPACES:
            raise _BadField(item, f"start with one of {', '.join(SPACES)}")
        if verb not in ("read", "write"):
            raise _BadField(item, "end with read or write")
        if _address(start) > _address(end):
            raise _BadField(item, "give start <= end")
        found.append(Access(Space(SPACES.index(space)), start, end, verb == "write"))
    return tuple(found)


_REQUIRED: Final = object()
Field = tuple[Callable[[object], Any], object]


def _need(parse: Callable[[object], Any]) -> Field:
    return parse, _REQUIRED


_STREAM_KINDS: Final = (*WORLD_KINDS, *OWN_KINDS)
_USE_KINDS: Final = tuple(
    kind for kind in _STREAM_KINDS if kind in {k.name.lower() for k in UseKind}
)
_OF_UNITS: Final[dict[str, Field]] = {"band": _need(_name), "units": _need(_units)}
# In the order of the fields of each type.
LINES: Final[dict[str, tuple[type[Any], dict[str, Field]]]] = {
    "begin": (Begin, {}),
    "end": (End, {}),
    "hand_out": (HandOut, _OF_UNITS),
    "free": (Free, _OF_UNITS),
    "move": (Move, {"band": _need(_name), "moves": _need(_moves)}),
    "reusable": (Reusable, _OF_UNITS),
    "retreat": (Retreat, _OF_UNITS),
    "use": (
        UseLine,
        {
            "use": _need(_number),
            "kind": _need(_kind(_USE_KINDS)),
            "stream": _need(_name),
            "accesses": _need(_accesses),
        },
    ),
    "enqueue": (
        EnqueueLine,
        {
            "op": _need(_number),
            "kind": _need(_kind(_STREAM_KINDS)),
            "stream": _need(_name),
            "accesses": _need(_accesses),
            "use": (_number, None),
            "label": (_label, ""),
        },
    ),
    "touch": (TouchLine, {"op": _need(_number), "accesses": _need(_accesses)}),
    "record": (RecordLine, {"event": _need(_number), "stream": _need(_name)}),
    "wait": (WaitLine, {"stream": _need(_name), "event": _need(_number)}),
    "observe": (ObserveLine, {"event": _need(_number)}),
    "process": (ProcessLine, {"use": _need(_number)}),
    "transfer": (
        TransferLine,
        {
            "transfer": _need(_number),
            "kind": _need(_kind(TRANSFER_KINDS)),
            "peer": _need(_number),
            "accesses": _need(_accesses),
        },
    ),
    "transfer_end": (
        TransferEndLine,
        {"transfer": _need(_number), "outcome": _need(_one_of(OUTCOMES))},
    ),
    "disconnect": (DisconnectLine, {"peer": _need(_number)}),
}


def read_log(source: BinaryIO, *, name: str = "LOG") -> tuple[LogHeader, Iterator[LogLine]]:
    """The header, and the lines as they are asked for: nothing but the current one is kept.

    Line n of the file is the n-1st of the iterator. Raises `UsageError` here for the header, and
    from the iterator for the line at fault.
    """
    header = _header(_parsed(_next_line(source, 1, name), 1, name), name)

    def lines() -> Iterator[LogLine]:
        number = 1
        while True:
            number += 1
            raw = _next_line(source, number, name)
            if not raw:
                return
            yield parse_line(_parsed(raw, number, name), number, name)

    return header, lines()


def parse_line(value: object, number: int, name: str = "LOG") -> LogLine:
    """One line from its JSON value; `UsageError` names the line and the field."""
    where = f"{name} line {number}"
    if not isinstance(value, dict):
        raise UsageError(where, value, 'give an object such as {"do": "record", ...}')
    do = value.get("do")
    made = LINES.get(do) if isinstance(do, str) else None
    if made is None:
        raise UsageError(f"{where}, do", do, f"give one of {', '.join(LINES)}")
    kind, fields = made
    for key in value:
        if key not in fields and key not in IGNORED_FIELDS:
            known = ", ".join(fields) or "no field"
            raise UsageError(f"{where}, {key}", value[key], f"`{do}` has {known}")
    row: list[object] = []
    for field, (parse, default) in fields.items():
        if field not in value and default is not _REQUIRED:
            row.append(default)
            continue
        row.append(_field(value, field, parse, where))
    line: LogLine = kind(*row)
    return line


def _field(table: dict[str, Any], field: str, parse: Callable[[object], Any], where: str) -> Any:
    if field not in table:
        raise UsageError(f"{where}, {field}", None, "give this field; the line needs it")
    try:
        return parse(table[field])
    except _BadField as bad:
        raise UsageError(f"{where}, {field}", bad.value, bad.fix) from None


def _next_line(source: BinaryIO, number: int, name: str) -> bytes:
    raw = source.readline(LINE_BYTES_MAX + 1)
    if len(raw) > LINE_BYTES_MAX:
        raise UsageError(f"{name} line {number}", len(raw), f"keep it below {LINE_BYTES_MAX} bytes")
    return raw


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twin!r} is there twice")
    return table


def json_fault(error: Exception) -> str:
    """What is wrong with a text, in a few words, without the place in a file it has not."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {error.start}"
    return str(error).partition(";")[0] or type(error).__name__


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON number")


def _parsed(raw: bytes, number: int, name: str) -> object:
    where = f"{name} line {number}"
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        if not raw:
            fix = 'start the log with {"onearena_log": ...}; the file is empty'
            raise UsageError(where, "", fix) from None
        cut = "" if raw.endswith(b"\n") else "; the file ends in the middle of it"
        shown = raw[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\n")
        fix = f"give one JSON object a line ({json_fault(error)}){cut}"
        raise UsageError(where, shown, fix) from None


def _header(value: object, name: str) -> LogHeader:
    where = f"{name} line 1"
    version = value.get("onearena_log") if isinstance(value, dict) else None
    if not isinstance(value, dict) or type(version) is not int or version != LOG_VERSION:
        fix = f'start the log with {{"onearena_log": {LOG_VERSION}, "arena_bytes": ..., ...}}'
        raise UsageError(f"{where}, onearena_log", version, fix)
    arena_bytes = _field(value, "arena_bytes", _integer(1, ADDRESS_MAX), where)
    rows = value.get("bands")
    if not isinstance(rows, list) or not 0 < len(rows) <= BANDS_MAX:
        raise UsageError(f"{where}, bands", rows, f"give a list of 1 to {BANDS_MAX} bands")
    bands = tuple(
        _band(row, f"{where}, bands[{index}]", arena_bytes) for index, row in enumerate(rows)
    )
    names = [band.name for band in bands]
    if len(set(names)) != len(names):
        raise UsageError(f"{where}, bands", names, "give each band a name of its own")
    return LogHeader(
        arena_bytes,
        bands,
        _field(value, "schedule_stream", _name, where),
        _field(value, "has_uses", _flag, where) if "has_uses" in value else True,
    )


def _band(row: object, where: str, arena_bytes: int) -> LogBand:
    if not isinstance(row, dict):
        raise UsageError(where, row, "give an object with name, unit_bytes and units")
    band = LogBand(
        _field(row, "name", _name, where),
        _field(row, "unit_bytes", _integer(1, ADDRESS_MAX), where),
        _field(row, "units", _integer(0, ADDRESS_MAX), where),
        _field(row, "origin_bytes", _address, where) if "origin_bytes" in row else 0,
        _field(row, "first_unit", _unit, where) if "first_unit" in row else 0,
    )
    start = band.origin_bytes + band.first_unit * band.unit_bytes
    end = start + band.units * band.unit_bytes
    if start < 0 or end > arena_bytes:
        raise UsageError(where, [start, end], f"keep its units inside bytes 0 to {arena_bytes}")
    return band
