"""What all commands share for talking to a terminal: width, colour, examples under a help text."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:  # rich costs 40 ms, and `--help` must stay fast
    from rich.console import Console

COLUMNS_MAX = 100


def columns() -> int:
    """Columns to write for: the terminal's, at most 100; 100 when the output is piped."""
    if not sys.stdout.isatty():
        return COLUMNS_MAX
    return min(shutil.get_terminal_size(fallback=(COLUMNS_MAX, 24)).columns, COLUMNS_MAX)


def console(stream: TextIO | None = None) -> Console:
    """A rich console on `stream` (standard output by default); no colour when piped."""
    from rich.console import Console

    return Console(
        file=stream or sys.stdout,
        width=columns(),
        highlight=False,
        soft_wrap=False,
        markup=False,
        emoji=False,
    )


def examples(*lines: str) -> str:
    """The epilog of a command: its examples, one a line, which click must not re-wrap."""
    assert lines, "a command shows at least one example"
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def note_compiling() -> None:
    """Say on standard error that the first use of the kernels takes a minute, if it is to come."""
    spec = importlib.util.find_spec("onearena.core.kernels")
    assert spec is not None
    assert spec.origin is not None
    folder = os.environ.get("NUMBA_CACHE_DIR") or str(Path(spec.origin).parent / "__pycache__")
    if next(Path(folder).rglob("kernels.*.nbi"), None) is None:
        click.echo("compiling the kernels (once, about a minute)", err=True)
