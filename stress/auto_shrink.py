"""After a campaign: each distinct failure made small, once, within bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.campaign import Plan
from onearena.stress.run import RunResult
from onearena.stress.shrink import shrink
from onearena.stress.shrink_cli import SUFFIX, shrunk_json, shrunk_text, write_shrunk

DISTINCT_MAX: Final = 4
BUDGET_S: Final = 30.0


class Distinct:
    """The first failure of each verdict, oracle and rule; at most `DISTINCT_MAX`."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], tuple[RunResult, str]] = {}

    def note(self, result: RunResult, path: str) -> None:
        """A failure and its choices file ("" where none was written)."""
        if not result.recording or len(self._first) >= DISTINCT_MAX:
            return
        first = result.violations[0] if result.violations else None
        oracle, rule = ("", "") if first is None else (first.oracle, first.rule)
        self._first.setdefault((result.verdict, oracle, rule), (result, path))

    def shrink(self, plan: Plan, *, quiet: bool = False) -> list[dict[str, Any]]:
        """Shrink them, `BUDGET_S` each; print each unless `quiet`. Returns their JSON forms.

        The small schedule goes beside the failure's file; without one, only its steps are shown.
        """
        documents: list[dict[str, Any]] = []
        for result, path in self._first.values():
            spec = replace(plan.spec(result.seed), recording=result.recording, state_digests=False)
            try:
                small = shrink(spec, budget_s=BUDGET_S)
            except UsageError as error:
                # Real threads may not fail again; that is a fact about the failure, so say it.
                if not quiet:
                    click.echo(f"seed {result.seed} was not shrunk: {error.message}")
                continue
            target = f"{path}{SUFFIX}" if path else ""
            if target:
                write_shrunk(small, target)
            documents.append({"seed": result.seed, **shrunk_json(small, target)})
            if not quiet:
                lines = shrunk_text(small, target).splitlines()
                # Without a file there is nothing to replay; --out writes one.
                click.echo("\n".join(lines if target else [*lines[:-2], NO_FILE]))
        return documents


NO_FILE: Final = "with --out DIR the small schedule is written there, to replay and explain"


def check_file(field: str, path: str | None) -> None:
    """Refuse, before a long run, a file that can never be written after it."""
    if path is None:
        return
    try:
        wrong = Path(path).is_dir() or not Path(path).absolute().parent.is_dir()
    except (OSError, ValueError):
        wrong = True
    if wrong:
        raise UsageError(field, path, "give a file in a folder that exists")


def write_file(field: str, path: str, text: str) -> None:
    """Write a report; `UsageError` where that cannot be done."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(field, path, f"give a file that can be written ({error})") from None
