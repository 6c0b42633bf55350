"""Write docs/commands.md from the commands' own help; with --check, compare it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from onearena.stress.cli import COMMANDS, cli
from onearena.stress.terminal import COLUMNS_MAX

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"

HEADER = """# Commands

Written by `ci/generate_commands.py` from the commands' own help; do not edit.

One console script, `onearena`. Output is plain when piped. Tables, pages and help are at most 100
columns wide; what an oracle reports is one line, however long, so that it can be searched for. A
bad argument, file or flag gets one line on standard error that names the field and the fix.

| exit code | meaning |
|---|---|
| 0 | pass, also when a budget ends a clean campaign |
| 1 | a rule was broken; from `doctor`, something needed is missing |
| 2 | usage, or a device that is not available |
| 3 | nondeterminism: the same choices gave different results |
| 4 | liveness: something never drained |
| 5 | vacuity: a planned situation was never reached |
| 6 | the budget ended before one schedule finished |
| 70 | a bug in onearena itself, with its traceback |
| 130 | interrupted |
| 141 | whoever read the output went away |
"""


def render() -> str:
    """The whole page; imports every command."""
    root = _context(cli, "onearena", None)
    parts = [HEADER, "## onearena", _block(root)]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None, f"{name} is listed and cannot be loaded"
        context = _context(command, name, root)
        parts += [f"## onearena {name}", COMMANDS[name].summary, _block(context)]
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                inner = command.get_command(context, child)
                assert inner is not None, f"{name} {child} is listed and cannot be loaded"
                inner_context = _context(inner, child, context)
                parts += [f"### onearena {name} {child}", _block(inner_context)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    # The same width everywhere, or the page would depend on the terminal it was made in.
    settings = {**command.context_settings, "terminal_width": COLUMNS_MAX}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _block(context: click.Context) -> str:
    return f"```\n{context.get_help()}\n```"


def main() -> int:
    """Write the page, or with --check compare it."""
    text = render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"docs/{PAGE.name} is out of date; run: .venv/bin/python ci/generate_commands.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
