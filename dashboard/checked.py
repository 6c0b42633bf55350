"""Reading JSON that nobody vouches for: every field is checked, and a complaint names it.

The dashboard shows what a process or a file says. Neither is trusted: a wrong type, a number out
of bounds or a list without end is one `SourceError` with one line, never a traceback on the page.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any, Final, Literal

TEXT_MAX: Final = 1 << 18
INT_MAX: Final = (1 << 63) - 1
Trouble = Literal["disconnected", "unusable"]


class SourceError(Exception):
    """A source that cannot be shown: `message` is one line that says why and what to try.

    `trouble` is `disconnected` if it may come back by itself, `unusable` if it has to be changed.
    """

    def __init__(self, message: str, *, trouble: Trouble = "unusable") -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.trouble: Trouble = trouble


class Checked:
    """One JSON object and where it is in its document."""

    __slots__ = ("path", "value")

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise SourceError(f"{path}: an object was expected, and it is {kind_of(value)}")
        self.value: dict[str, Any] = value
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.value.get(name) is not None

    def wrong(self, name: str, wanted: str) -> SourceError:
        """The complaint about a field."""
        found = kind_of(self.value.get(name))
        return SourceError(f"{self.path}.{name}: {wanted} was expected, and it is {found}")

    def integer(self, name: str, *, least: int = 0, most: int = INT_MAX) -> int:
        """A whole number from `least` to `most`."""
        value = self.value.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e18:
            raise self.wrong(name, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.value.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, *, most: int = TEXT_MAX) -> str:
        """A text of at most `most` characters."""
        value = self.value.get(name)
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(name, f"a text of at most {most} characters")
        return value

    def objects(self, name: str, *, most: int) -> list[Checked]:
        """A list of at most `most` objects."""
        rows = self.items(name, most=most)
        return [Checked(row, f"{self.path}.{name}[{at}]") for at, row in enumerate(rows)]

    def child(self, name: str) -> Checked:
        """An object."""
        return Checked(self.value.get(name), f"{self.path}.{name}")

    def items(self, name: str, *, most: int) -> list[Any]:
        """A list of at most `most` entries of any kind."""
        value = self.value.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name, f"a list of at most {most} entries")
        return value

    def integers(self, name: str, *, most: int) -> tuple[int, ...]:
        """A list of at most `most` whole numbers."""
        return tuple(self._integers(self.items(name, most=most), name))

    def rows(self, name: str, *, width: int, most: int) -> tuple[tuple[int, ...], ...]:
        """A list of at most `most` lists of `width` whole numbers each."""
        found = []
        for row in self.items(name, most=most):
            if not isinstance(row, list) or len(row) != width:
                raise self.wrong(name, f"a list of lists of {width} whole numbers")
            found.append(tuple(self._integers(row, name)))
        return tuple(found)

    def counts(self, name: str, *, most: int = 4096) -> dict[str, int]:
        """An object of whole numbers."""
        inner = self.child(name)
        if len(inner.value) > most:
            raise self.wrong(name, f"an object of at most {most} fields")
        return {key: inner.integer(key) for key in inner.value}

    def data(self, name: str, *, length: int) -> bytes:
        """`length` bytes in base64."""
        text = self.value.get(name)
        if not isinstance(text, str) or len(text) > length * 4 // 3 + 8:
            raise self.wrong(name, f"{length} bytes in base64")
        return _decoded(text, f"{self.path}.{name}", length)

    def packed(self, name: str, *, length: int) -> bytes:
        """`length` bytes, compressed, in base64."""
        text = self.value.get(name)
        if not isinstance(text, str):
            raise self.wrong(name, "compressed bytes in base64")
        return unpacked(text, f"{self.path}.{name}", length=length)

    def _integers(self, values: list[Any], name: str) -> list[int]:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > INT_MAX:
                raise self.wrong(name, "a list of whole numbers")
        return values


def unpacked(text: str, path: str, *, length: int) -> bytes:
    """`length` bytes of compressed base64; never makes more than that, whatever it says."""
    try:
        engine = zlib.decompressobj()
        data = engine.decompress(base64.b64decode(text, validate=True), max(1, length))
    except (binascii.Error, zlib.error, ValueError):
        raise SourceError(f"{path}: compressed bytes were expected, and it is not") from None
    if len(data) != length or engine.unconsumed_tail:
        raise SourceError(f"{path}: {length} bytes were expected, and it has another number")
    return data


def _decoded(text: str, path: str, length: int) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SourceError(f"{path}: base64 was expected, and it is not") from None
    if len(data) != length:
        raise SourceError(f"{path}: {length} bytes were expected, and it has {len(data)}")
    return data


def parse_json(text: bytes | str, where: str) -> Any:
    """The document, or one line that says where it is broken."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{where}: this is no JSON ({str(error)[:80]})") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")


def kind_of(value: object) -> str:
    """What a value is, in a few words, whatever it holds."""
    if value is None:
        return "missing"
    if isinstance(value, bool | int | float):
        return repr(value)[:40]
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else type(value).__name__
