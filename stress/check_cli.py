"""`onearena check`: a recorded log of a live engine, judged offline."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import COLUMNS_MAX, examples

if TYPE_CHECKING:
    from onearena.stress.log_check import LogChecker
    from onearena.stress.oracles.base import Violation

REPORTS_SHOWN_MAX: Final = 20
EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOTHING_TESTED: Final = 5


@click.command(
    epilog=examples(
        "onearena check engine.log.jsonl",
        "onearena check engine.log.jsonl --json",
        "zcat engine.log.jsonl.gz | onearena check -",
    )
)
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def check(*, log: str, as_json: bool) -> int:
    """Check the log of a live engine against the lifecycle rules, offline.

    Reads LOG (`-`: standard input) once, line by line; memory grows with what is live and
    unfinished, not with the log. Each report names the line, the rule, the bytes and unit, and the
    wait that was missing. Exit codes: 0 clean, 1 a rule broken (also when a bad line follows), 2
    usage or a bad line, 5 the log holds no work, so nothing was put to the test.
    """
    if log == "-":
        return _judge(sys.stdin.buffer, "standard input", as_json=as_json)
    try:
        source = open(log, "rb")  # noqa: SIM115, PTH123 - closed below; `-` is no path
    except (OSError, ValueError) as error:
        raise UsageError("LOG", log, f"give a readable log ({error})") from None
    with source:
        return _judge(source, log, as_json=as_json)


def _judge(source: BinaryIO, name: str, *, as_json: bool) -> int:
    from onearena.stress.log_check import LogChecker
    from onearena.stress.log_lines import read_log

    header, rows = read_log(source, name=name)
    checker = LogChecker(header, name=name)
    kept: list[tuple[int, Violation]] = []
    count = 0
    bad = ""
    try:
        for row in rows:
            for violation in checker.feed(row):
                count += 1
                if len(kept) < REPORTS_SHOWN_MAX:
                    kept.append((checker.number, violation))
                    if not as_json:
                        click.echo(_text(checker.number, violation, checker.stream_names()))
    except UsageError as error:
        if not count:
            raise
        bad = error.message
    code = EXIT_BROKEN if count else 0 if checker.works else EXIT_NOTHING_TESTED
    if as_json:
        click.echo(json.dumps(_document(name, checker, kept, count, bad, code), indent=1))
    else:
        _summary(name, checker, count)
    if bad:
        click.echo(f"onearena: {bad}", err=True)
    return code


def _text(line: int, violation: Violation, streams: list[str]) -> str:
    from onearena.stress.explain import named

    head, *rest = violation.text().splitlines()
    return "\n".join([f"line {line}: {head}", *(named(row, streams) for row in rest)])


def _summary(name: str, checker: LogChecker, count: int) -> None:
    cells = checker.reach.counts()
    tested = sum(cells.values())
    parts = [
        f"{name}: {checker.number} lines, {checker.works} operations and transfers",
        f"put to the test: {tested} meetings with earlier uses in {len(cells)} cells of rule 6",
    ]
    if checker.is_in_call:
        parts.append("the log ends inside a call: its last units were not judged")
    if count:
        more = f", {REPORTS_SHOWN_MAX} of them shown" if count > REPORTS_SHOWN_MAX else ""
        parts.append(f"BROKEN: {count} report{'s'[: count > 1]}{more}")
    elif not checker.works:
        parts.append("nothing was put to the test: log what the engine enqueues")
    else:
        parts.append("clean: no rule broken")
        if not tested:
            parts.append("no bytes were used twice: no order was put to the test")
    click.echo("\n".join(part[: 2 * COLUMNS_MAX] for part in parts))


def _document(
    name: str,
    checker: LogChecker,
    kept: list[tuple[int, Violation]],
    count: int,
    bad: str,
    code: int,
) -> dict[str, Any]:
    return {
        "version": 1,
        "file": name,
        "lines": checker.number,
        "works": checker.works,
        "exit_code": code,
        "reports": count,
        "violations": [{"line": line, **violation.to_json()} for line, violation in kept],
        "streams": checker.stream_names(),
        "reach": checker.reach.counts(),
        "kept": checker.sizes(),
        "ends_in_call": checker.is_in_call,
        "bad_line": bad,
    }
