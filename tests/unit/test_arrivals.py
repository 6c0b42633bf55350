"""Traces of arrivals: both formats, and one clear line for everything malformed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core.errors import UsageError
from onearena.stress.arrivals import Arrival, read_arrivals

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SHARED = Path(
    os.environ.get("ONEARENA_SHARED", Path(__file__).resolve().parents[2].parent / "shared")
)


def _file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_azure(tmp_path: Path) -> None:
    text = HEADER + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.6805910,396,109\n"
    assert read_arrivals(_file(tmp_path, text)) == (
        Arrival(0, 374, 44),
        Arrival(1_000_001, 396, 109),
    )


def test_mooncake(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 5, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
        '{"timestamp": 7, "input_length": 1, "output_length": 2, "hash_ids": [0, 9]}\n'
    )
    assert read_arrivals(_file(tmp_path, text)) == (
        Arrival(0, 6758, 500, (0, 1)),
        Arrival(2000, 1, 2, (0, 9)),
    )


def test_rows_are_bounded(tmp_path: Path) -> None:
    text = HEADER + "2023-11-16 18:15:46.68,3,4\n" * 50 + "garbage that is never read\n"
    assert len(read_arrivals(_file(tmp_path, text), rows_max=50)) == 50


@pytest.mark.parametrize(
    ("text", "where", "field"),
    [
        ("", "--arrivals", ""),
        ("hello\n", ":1", "hello"),
        (HEADER + "2023-11-16 18:15:46.68,3\n", ":2", "3 comma-separated"),
        (HEADER + "yesterday,3,4\n", ":2", "TIMESTAMP"),
        (HEADER + "2023-11-16 18:15:46.68,-3,4\n", ":2", "ContextTokens"),
        (HEADER + "2023-11-16 18:15:46.68,3,4\n2023-11-16 18:15:46.68,3,x\n", ":3", "Generated"),
        (HEADER + "2023-11-16 18:15:46.68,99999999999,4\n", ":2", "ContextTokens"),
        ('{"timestamp": 0, "input_length": 1}\n', ":1", "output_length"),
        ('{"timestamp": 0, "input_length": true, "output_length": 1}\n', ":1", "input_length"),
        ('{"timestamp": NaN, "input_length": 1, "output_length": 1}\n', ":1", "timestamp"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n[1]\n', ":2", "object"),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1, "a"]}\n',
            ":1",
            "hash_ids[1]",
        ),
        ("{" + '"a":' * 100_000, ":1", "object"),
        (b"\xff\xfe\x00", ":1", "UTF-8"),
        ("{" + " " * (1 << 20) + "\n", ":1", "1 MiB"),
    ],
)
def test_bad_lines_name_line_and_field(
    tmp_path: Path, text: str | bytes, where: str, field: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_arrivals(_file(tmp_path, text))
    message = str(caught.value)
    assert "\n" not in message
    assert where in message
    assert field in message


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="readable"):
        read_arrivals(tmp_path / "none")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_usage_error_or_arrivals(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_bytes(raw)
    message = ""
    try:
        assert read_arrivals(path)
    except UsageError as error:
        message = str(error)
    assert "\n" not in message


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "prefixes"),
    [
        ("azure_llm_2023_conv_first10000.csv", 10_000, False),
        ("mooncake_fast25_conversation_first1500.jsonl", 1_500, True),
    ],
)
def test_the_recorded_traces(name: str, rows: int, prefixes: bool) -> None:
    path = SHARED / "traces" / name
    if not path.exists():
        pytest.skip(f"no trace at {path}; set ONEARENA_SHARED")
    arrivals = read_arrivals(path)
    assert len(arrivals) == rows
    assert all(row.prompt_tokens > 0 for row in arrivals)
    assert any(row.prefix for row in arrivals) is prefixes
    assert arrivals[0].at_us == 0
