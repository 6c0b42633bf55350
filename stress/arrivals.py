"""Request arrivals from recorded traces: two public formats, read in one pass with bounded memory.

* Azure LLM inference trace, CSV with the header ``TIMESTAMP,ContextTokens,GeneratedTokens``.
* Mooncake trace, one JSON object a line: ``timestamp`` (ms), ``input_length``, ``output_length``,
``hash_ids`` (one id per 512-token block of the prompt; equal leading ids mean an equal prefix).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from onearena.core.errors import UsageError

ROWS_MAX: Final = 65_536
LINE_BYTES_MAX: Final = 1 << 20
TOKENS_MAX: Final = 1 << 31
HASH_IDS_MAX: Final = 1 << 16
PREFIX_BLOCK_TOKENS: Final = 512
_AZURE_HEADER: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: arrival in microseconds since the first one, tokens in and out, prefix block
    ids.
    """

    at_us: int
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()


def read_arrivals(path: str | Path, *, rows_max: int = ROWS_MAX) -> tuple[Arrival, ...]:
    """The first `rows_max` arrivals of a trace file; later lines are not read.

    Raises `UsageError` naming file, line and field for anything malformed. Memory is bounded by
    `rows_max` rows of at most `LINE_BYTES_MAX` bytes.
    """
    rows: list[Arrival] = []
    for arrival in iter_arrivals(path):
        rows.append(arrival)
        if len(rows) >= rows_max:
            break
    if not rows:
        raise UsageError("--arrivals", str(path), "give a trace with at least one request")
    return tuple(rows)


def iter_arrivals(path: str | Path) -> Iterator[Arrival]:
    """Stream the arrivals of one file; the format is told from its first line."""
    lines = _lines(Path(path))
    first = next(lines, None)
    if first is None:
        return
    number, text = first
    start: float | None = None
    if text.lstrip().startswith("{"):
        while True:
            row, start = _mooncake(f"{path}:{number}", text, start)
            yield row
            following = next(lines, None)
            if following is None:
                return
            number, text = following
    if tuple(cell.strip() for cell in text.split(",")) != _AZURE_HEADER:
        header = ",".join(_AZURE_HEADER)
        raise UsageError(
            f"{path}:{number}", text[:80], f"give JSON lines, or a CSV headed {header}"
        )
    for number, text in lines:
        row, start = _azure(f"{path}:{number}", text, start)
        yield row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered non-empty lines; bounded length; strict UTF-8."""
    number = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(raw) > LINE_BYTES_MAX:
                    raise UsageError(
                        f"{path}:{number}", f"{len(raw)}+ bytes", "keep a line below 1 MiB"
                    )
                text = raw.decode("utf-8").strip()
                if text:
                    yield number, text
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}:{number}", str(error), "give a UTF-8 text file") from None
    except (OSError, ValueError) as error:
        raise UsageError("--arrivals", str(path), f"give a readable file ({error})") from None


def _tokens(field: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= TOKENS_MAX:
        raise UsageError(field, value, f"give a whole number of tokens from 0 to {TOKENS_MAX}")
    return value


def _azure(where: str, text: str, start: float | None) -> tuple[Arrival, float]:
    cells = text.split(",")
    if len(cells) != len(_AZURE_HEADER):
        raise UsageError(where, text, f"give {len(_AZURE_HEADER)} comma-separated fields")
    stamp = cells[0].strip()
    try:
        # Seven decimals in the trace; datetime takes six.
        head, _, fraction = stamp.partition(".")
        at = datetime.fromisoformat(f"{head}.{(fraction + '000000')[:6]}")
        seconds = at.replace(tzinfo=UTC).timestamp()
    except (ValueError, TypeError, OverflowError):
        raise UsageError(f"{where} TIMESTAMP", stamp, "write YYYY-MM-DD HH:MM:SS.ffffff") from None
    counts = []
    for name, cell in zip(_AZURE_HEADER[1:], cells[1:], strict=True):
        digits = cell.strip()
        plain = digits.isascii() and digits.isdigit() and len(digits) <= 10
        counts.append(_tokens(f"{where} {name}", int(digits) if plain else digits))
    start = seconds if start is None else start
    return Arrival(max(0, round((seconds - start) * 1e6)), counts[0], counts[1]), start


def _mooncake(where: str, text: str, start: float | None) -> tuple[Arrival, float]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(where, text[:80], "write one JSON object on the line") from None
    if not isinstance(row, dict):
        raise UsageError(where, text[:80], "write one JSON object on the line")
    for name in ("timestamp", "input_length", "output_length"):
        if name not in row:
            raise UsageError(f"{where} {name}", None, "add the field")
    stamp = row["timestamp"]
    if type(stamp) not in (int, float) or not 0 <= stamp < 1e15:
        raise UsageError(f"{where} timestamp", stamp, "give milliseconds, at least 0")
    hashes = row.get("hash_ids", [])
    if not isinstance(hashes, list) or len(hashes) > HASH_IDS_MAX:
        raise UsageError(f"{where} hash_ids", hashes, f"give a list of at most {HASH_IDS_MAX} ids")
    for index, value in enumerate(hashes):
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise UsageError(f"{where} hash_ids[{index}]", value, "give a non-negative integer")
    start = float(stamp) if start is None else start
    arrival = Arrival(
        max(0, round((stamp - start) * 1000)),
        _tokens(f"{where} input_length", row["input_length"]),
        _tokens(f"{where} output_length", row["output_length"]),
        tuple(hashes),
    )
    return arrival, start
