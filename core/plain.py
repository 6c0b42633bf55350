"""Reading plain data that nobody vouches for: bounded files, JSON, TOML, checked fields.

Every refusal is a ``UsageError`` whose field is the path of the value, as in
``model.json: layers[3].count``. Nothing here evaluates or unpickles anything.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from typing import NoReturn

from onearena.core.errors import UsageError

FILE_BYTES_MAX = 4 << 20
"""Largest declaration, config or plan file read; real ones are a few kilobytes."""

_DIGITS_MAX = 40
_MISSING = object()


def read_text(path: str, *, field: str, limit_bytes: int = FILE_BYTES_MAX) -> str:
    """Text of a regular UTF-8 file of at most ``limit_bytes``; reads no further than that."""
    try:
        # Opened without blocking: a named pipe has no writer yet, and is refused below.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        fix = f"give the path of a readable file ({reason})"
        raise UsageError(field, path, fix) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(field, path, "give a regular file, not a folder, pipe or device")
        data = _read_bounded(descriptor, limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        raise UsageError(field, path, f"give a file of at most {limit_bytes} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fix = f"give UTF-8 text (byte {error.start} is not)"
        raise UsageError(field, path, fix) from None


def _read_bounded(descriptor: int, limit_bytes: int) -> bytes:
    blocks: list[bytes] = []
    left = limit_bytes
    while left and (block := os.read(descriptor, min(left, 1 << 16))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def parse_text(text: str, *, source: str, toml: bool) -> object:
    """Parse JSON or TOML; refuses duplicates, NaN, infinities and endless nesting."""
    language = "TOML" if toml else "JSON"
    try:
        if toml:
            return tomllib.loads(text)
        return json.loads(
            text,
            object_pairs_hook=lambda pairs: _unique(pairs, source),
            parse_constant=lambda word: _refuse_number(word, source),
            parse_int=lambda digits: _bounded_int(digits, source),
            parse_float=lambda digits: _finite_float(digits, source),
        )
    except RecursionError:
        raise UsageError(source, "a value", "nest less deeply: this is no declaration") from None
    except ValueError as error:  # covers JSONDecodeError and TOMLDecodeError
        excerpt = text[:24]
        fix = f"give valid {language} ({error})"
        raise UsageError(source, excerpt, fix) from None


def _unique(pairs: list[tuple[str, object]], source: str) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise UsageError(f"{source}: {_short(key)}", key, "give each field once")
        result[key] = value
    return result


def _refuse_number(word: str, source: str) -> NoReturn:
    raise UsageError(source, word, "use finite numbers")


def _bounded_int(digits: str, source: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise UsageError(source, digits, "use integers below 2^63")
    return int(digits)


def _finite_float(digits: str, source: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UsageError(source, digits, "use finite numbers")
    return value


def _short(text: str, limit: int = 40) -> str:
    shown = text if len(text) <= limit else text[:limit] + "..."
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)


class Fields:
    """The fields of one table of plain data; ``path`` is how its owner would name it."""

    __slots__ = ("_asked", "_path", "_table")

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise UsageError(path, value, "give a table of named fields")
        self._table: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(path, key, "use text for field names")
            self._table[key] = item
        self._path = path
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return self._table.get(name) is not None

    def names(self) -> Iterator[str]:
        """Field names in file order."""
        return iter(self._table)

    def path(self, name: str) -> str:
        """How an error names field ``name``."""
        separator = " " if self._path.endswith(":") else "."
        return f"{self._path}{separator}{_short(name)}"

    def raw(self, name: str, *, default: object = _MISSING) -> object:
        """The value as it stands; absent and null count as missing."""
        self._asked.append(name)
        value = self._table.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise UsageError(self.path(name), None, "add this field")
        return default

    def integer(self, name: str, *, minimum: int, maximum: int, default: int | None = None) -> int:
        """An integer in the range; missing is refused unless ``default`` is given."""
        value = self.raw(name) if default is None else self.raw(name, default=default)
        return integer(value, field=self.path(name), minimum=minimum, maximum=maximum)

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.raw(name, default=default)
        if not isinstance(value, bool):
            raise UsageError(self.path(name), value, "use true or false")
        return value

    def text(self, name: str, *, default: str | None = None, limit: int = 200) -> str:
        """Printable text of 1 to ``limit`` characters."""
        value = self.raw(name) if default is None else self.raw(name, default=default)
        ok = isinstance(value, str) and 1 <= len(value) <= limit and value.isprintable()
        if not ok or not isinstance(value, str):
            raise UsageError(self.path(name), value, f"use 1 to {limit} printable characters")
        return value

    def items(self, name: str, *, limit: int, default: list[object] | None = None) -> list[object]:
        """A list of at most ``limit`` values."""
        value = self.raw(name) if default is None else self.raw(name, default=default)
        if not isinstance(value, list) or len(value) > limit:
            raise UsageError(self.path(name), value, f"use a list of at most {limit} values")
        return value

    def table(self, name: str) -> Fields:
        """A table inside this one."""
        return Fields(self.raw(name), self.path(name))

    def done(self) -> None:
        """Refuse any field that was never asked for: a misspelt one must not pass silently."""
        for name in self._table:
            if name not in self._asked:
                close = difflib.get_close_matches(name[:80], self._asked, n=1)
                known = ", ".join(sorted(set(self._asked)))
                hint = f"did you mean {close[0]}?" if close else f"known fields: {known}"
                raise UsageError(self.path(name), _short(name), f"remove this field; {hint}")


def integer(value: object, *, field: str, minimum: int, maximum: int) -> int:
    """``value`` if it is an integer (never a bool) in the range, else ``UsageError``."""
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise UsageError(field, value, f"use an integer from {minimum} to {maximum}")
    return value


_BYTE_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 10 ** (3 * power) for power, letter in enumerate("kmgtpe", start=1)},
    **{f"{letter}ib": 2 ** (10 * power) for power, letter in enumerate("kmgtpe", start=1)},
}
_NUMBER = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,9}))?")
_SIZE = re.compile(r"([0-9.]{1,32})\s{0,4}([A-Za-z]{0,3})")


def parse_bytes(text: str, *, field: str, minimum: int = 1) -> int:
    """Bytes written as ``107374182400``, ``100GiB``, ``1.5GB``; exact, rounded down to a byte."""
    match = _SIZE.fullmatch(text.strip())
    number = _NUMBER.fullmatch(match[1]) if match else None
    scale = _BYTE_UNITS.get(match[2].lower()) if match else None
    if number is None or scale is None:
        raise UsageError(field, text, "use bytes such as 80GiB, 80GB or 85899345920")
    digits = number[2] or ""
    value: int = int(number[1] + digits) * scale // 10 ** len(digits)
    if not minimum <= value < 1 << 62:
        raise UsageError(field, text, f"use at least {minimum} and less than 4EiB")
    return value


def parse_ppm(text: str, *, field: str, maximum: int) -> int:
    """A fraction or ratio above 0 and at most ``maximum``, in millionths (6 decimals count)."""
    number = _NUMBER.fullmatch(text.strip())
    value = 0
    if number is not None and len(number[2] or "") <= 6:
        value = int(number[1]) * 1_000_000 + int((number[2] or "0").ljust(6, "0"))
    if not 1 <= value <= maximum * 1_000_000:
        fix = f"use a number above 0 and at most {maximum}, with up to 6 decimals"
        raise UsageError(field, text, fix)
    return value


def parse_count(text: str, *, field: str, minimum: int, maximum: int) -> int:
    """A whole number in the range, in decimal digits (underscores and commas are refused)."""
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 20):
        raise UsageError(field, text, f"use a whole number from {minimum} to {maximum}")
    return integer(int(plain), field=field, minimum=minimum, maximum=maximum)
