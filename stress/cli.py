"""The `onearena` command: one table of subcommands, each imported only when it is called.

A subcommand is a `click.Command` in a module of its own. It ends with `ctx.exit(code)` or returns
an `int`, which becomes the exit code; it reports a bad argument by raising
`onearena.core.errors.UsageError`, and a device that is not there by raising `DeviceError`. This
module alone turns errors into words and exit codes.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NoReturn

import click

from onearena.core.errors import DeviceError, UsageError
from onearena.stress.terminal import COLUMNS_MAX, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_USAGE = 2
EXIT_BUG = 70  # not 1: that says an oracle saw a rule broken
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as a C program would end


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a subcommand lives, and the line that `onearena --help` shows without importing it."""

    module: str
    attribute: str
    summary: str


COMMANDS: dict[str, LazyCommand] = {
    "bench": LazyCommand(
        "onearena.stress.bench",
        "bench",
        "Measure allocate, free and move bookkeeping through the public methods.",
    ),
    "check": LazyCommand(
        "onearena.stress.check_cli",
        "check",
        "Check the log of a live engine against the lifecycle rules, offline.",
    ),
    "dashboard": LazyCommand(
        "onearena.stress.dashboard_cli",
        "dashboard",
        "Show the arena of a running process, or a recorded one, in a browser.",
    ),
    "demo": LazyCommand(
        "onearena.stress.demo_cli", "demo", "Show the arena, or the harness, at work."
    ),
    "doctor": LazyCommand(
        "onearena.stress.doctor", "doctor", "Say what this machine has, and what is missing."
    ),
    "explain": LazyCommand(
        "onearena.stress.explain_cli",
        "explain",
        "Explain a failing schedule: the rule, what happened in order, the edge that was missing.",
    ),
    "mutants": LazyCommand(
        "onearena.stress.mutants_cli",
        "mutants",
        "Plant faults one at a time and count the ones an oracle reports.",
    ),
    "plan": LazyCommand(
        "onearena.stress.plan_cli", "plan", "Show the storage plan of MODEL and a byte budget."
    ),
    "price": LazyCommand(
        "onearena.stress.price_cli",
        "price",
        "Replay a trace and compare what requests were priced at with what they came to hold.",
    ),
    "replay": LazyCommand(
        "onearena.stress.replay_cli",
        "replay",
        "Replay a recorded schedule and print the same failure.",
    ),
    "runs": LazyCommand(
        "onearena.stress.runs_cli",
        "runs",
        "List, show, compare and prune the campaigns that were kept.",
    ),
    "shrink": LazyCommand(
        "onearena.stress.shrink_cli",
        "shrink",
        "Make a failing schedule small: fewest host calls, then device steps, then sizes.",
    ),
    "stress": LazyCommand(
        "onearena.stress.stress_cli", "stress", "Run seeded schedules against the lifecycle rules."
    ),
    "trace": LazyCommand(
        "onearena.stress.trace_cli",
        "trace",
        "Replay a schedule and write it as a trace for ui.perfetto.dev.",
    ),
}


class LazyGroup(click.Group):
    """A group whose subcommands come from `COMMANDS`; only the one that is called gets imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names whose module exists, sorted."""
        return sorted(name for name, lazy in COMMANDS.items() if _present(lazy.module))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand; None for a name that is not there."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None or not _present(lazy.module):
            return None
        command = getattr(importlib.import_module(lazy.module), lazy.attribute)
        assert isinstance(command, click.Command), f"{lazy.module}:{lazy.attribute} is {command!r}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands from the table."""
        # click's own version asks every subcommand for its help, which would import them all.
        rows = [(name, COMMANDS[name].summary) for name in self.list_commands(ctx)]
        assert rows, "the installed package holds no command at all"
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand, or say which one may have been meant."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, n=1)
            fix = f"did you mean `{close[0]}`?" if close else f"give one of {', '.join(known)}"
            raise UsageError("COMMAND", name, fix)
        return super().resolve_command(ctx, args)


def _present(module: str) -> bool:
    """Whether the module can be found; that imports its parent packages, nothing else."""
    return importlib.util.find_spec(module) is not None


def _version() -> str:
    try:
        return version("onearena")
    except PackageNotFoundError:
        return "unknown (not installed; run: pip install -e .)"


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and not ctx.resilient_parsing:
        click.echo(f"onearena {_version()}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    name="onearena",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS_MAX},
    epilog=examples("onearena doctor", "onearena COMMAND --help"),
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """One arena for every token lifetime, and a harness that tries to break it."""


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors become one line on standard error.

    0 pass, 1 a rule broken (or, from `doctor`, something missing), 2 usage or an unavailable
    device, 3 to 6 as `docs/commands.md` says, 70 a bug in onearena (with its traceback), 130
    interrupted, 141 the reader of our output went away.
    """
    context: click.Context | None = None
    try:
        # Not cli.main(): it answers a closed pipe with 1, which here means that a rule was broken.
        with cli.make_context("onearena", list(args) or ["--help"]) as context:
            result = cli.invoke(context)
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return _flushed(error.exit_code)
    except click.ClickException as error:
        return _say(_click_line(error))
    except (UsageError, DeviceError) as error:
        return _say(error.message)
    except (KeyboardInterrupt, click.Abort):
        click.echo("onearena: interrupted", err=True)
        return EXIT_INTERRUPTED
    except OSError as error:
        return _io_error(error)
    except Exception:  # noqa: BLE001 - the last stop: shown in full, with an exit code of its own
        traceback.print_exc()
        _say("this is a bug in onearena, not in what you gave it; please report the lines above")
        return EXIT_BUG


def _say(line: str) -> int:
    """Print one line, whatever the message holds, and return the exit code of a usage error."""
    words = " ".join(line.split()).encode("utf-8", "backslashreplace").decode()
    click.echo(f"onearena: {words}", err=True)
    return EXIT_USAGE


def _click_line(error: click.ClickException) -> str:
    """Click's complaint on one line, with the field in front and the way to the fix at the end."""
    # Click repeats what it was given, whole and raw: bound it, and let no escape reach a terminal.
    text = " ".join(error.format_message().split())
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    message = (shown if len(shown) <= 300 else shown[:300] + "...").rstrip(". ")
    context = getattr(error, "ctx", None)
    where = context.command_path if isinstance(context, click.Context) else "onearena"
    return f"{message}; see `{where} --help`"


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        return _io_error(error)
    return code


def _io_error(error: OSError) -> int:
    if error.errno == errno.EPIPE:
        # The interpreter flushes once more at exit and would complain: give it a stream that
        # accepts all.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    if error.errno in {errno.ENOSPC, errno.EIO, errno.EDQUOT} and error.filename is None:
        return _say(f"output: {error.strerror}; write it somewhere else")
    if error.filename is None:
        traceback.print_exc()
        return EXIT_BUG
    reason = error.strerror or type(error).__name__
    return _say(f"{error.filename}: {reason}; give a path that can be read or written")


def main() -> NoReturn:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 shows an escape; it never gets a traceback for a box sign.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    completion = os.environ.get("_ONEARENA_COMPLETE")
    if completion:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "onearena", "_ONEARENA_COMPLETE", completion))
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
