"""How a schedule's result is kept: compact columns for all, a JSON document for those that failed.

A campaign keeps every result, so a row must stay small: names (reach, models, strategies) are
numbers of a table of the store, and reach counts are one blob of LEB128 pairs, some 200 bytes.
Whatever is read back may be damaged: readers raise `ValueError` and never anything else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.stress.choices import Divergence, StepRecord
from onearena.stress.oracles.base import ByteRange, UnitName, Violation
from onearena.stress.recordings import parse_recording
from onearena.stress.run import RunResult
from onearena.stress.workload import Options

FAILURE_VERSION: Final = 1
CHOICES_BYTES_MAX: Final = 64 << 20
VARINT_BITS_MAX: Final = 63


def pack_counts(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Pairs of non-negative integers below 2**63 as LEB128 numbers, one after the other."""
    packed = bytearray()
    for pair in pairs:
        for number in pair:
            assert 0 <= number < 1 << VARINT_BITS_MAX, f"{pair} is no pair of counts"
            value = number
            while value > 127:
                packed.append(value & 127 | 128)
                value >>= 7
            packed.append(value)
    return bytes(packed)


def unpack_counts(blob: bytes) -> list[tuple[int, int]]:
    """The pairs of `pack_counts`; `ValueError` for bytes that are none."""
    numbers: list[int] = []
    value = shift = 0
    for byte in blob:
        value |= (byte & 127) << shift
        if byte & 128:
            shift += 7
            if shift >= VARINT_BITS_MAX:
                raise ValueError("a number of more than 63 bits")
        else:
            numbers.append(value)
            value = shift = 0
    if shift or len(numbers) % 2:
        raise ValueError("half a pair at the end")
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def failure_document(result: RunResult) -> str:
    """What a failed result has beyond its row, without the recording."""
    divergence = result.divergence
    return json.dumps(
        {
            "version": FAILURE_VERSION,
            "violations": [violation.to_json() for violation in result.violations],
            "crash": result.crash,
            "divergence": None if divergence is None else asdict(divergence),
            "options": None if result.options is None else result.options.to_json(),
            "calls": result.calls,
            "records": result.records,
            "model_asked": result.model_asked,
            "device": result.device,
            "strategy_asked": result.strategy_asked,
        }
    )


def failure_fields(text: str) -> dict[str, Any]:
    """The keywords of a `RunResult` that a document holds. `ValueError` if it is damaged."""
    try:
        document = json.loads(text)
        if document["version"] != FAILURE_VERSION:
            raise ValueError(f"a failure of version {document['version']!r}")
        divergence = document["divergence"]
        return {
            "violations": tuple(_violation(row) for row in document["violations"]),
            "crash": str(document["crash"]),
            "divergence": None if divergence is None else Divergence(**divergence),
            "options": _options(document["options"]),
            "calls": int(document["calls"]),
            "records": int(document["records"]),
            "model_asked": str(document["model_asked"]),
            "device": str(document["device"]),
            "strategy_asked": str(document["strategy_asked"]),
        }
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a damaged failure ({type(error).__name__}: {error})") from None


def _violation(row: Mapping[str, Any]) -> Violation:
    unit, extent = row["unit"], row["bytes"]
    return Violation(
        oracle=str(row["oracle"]),
        rule=str(row["rule"]),
        message=str(row["message"]),
        unit=None if unit is None else UnitName(str(unit["band"]), int(unit["unit"])),
        bytes=None
        if extent is None
        else ByteRange(str(extent["space"]), int(extent["start_bytes"]), int(extent["end_bytes"])),
        events=tuple(str(event) for event in row["events"]),
        details=dict(row["details"]),
    )


def _options(row: Mapping[str, Any] | None) -> Options | None:
    """None too where another version drew other options: they only explain."""
    if row is None or set(row) != {one.name for one in fields(Options)}:
        return None
    return Options(**row)


def pack_choices(text: str) -> bytes:
    """A choices file, compressed."""
    return zlib.compress(text.encode(), 6)


def unpack_choices(blob: bytes) -> str:
    """The text of `pack_choices`; `ValueError` for damaged bytes and for more than the bound."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(blob, CHOICES_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"a damaged recording ({error})") from None
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("a recording that is cut short or too large")
    return text.decode()


def steps_of(blob: bytes) -> tuple[StepRecord, ...]:
    """The recording that a packed choices file holds."""
    try:
        spec, _ = parse_recording(unpack_choices(blob), where="recording", to_run=False)
    except UsageError as error:
        raise ValueError(error.message) from None
    return spec.recording or ()
