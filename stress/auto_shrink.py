"""After a campaign: failures made small, and told apart by rule and minimal schedule."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.campaign_plan import Plan
from onearena.stress.run import RunResult
from onearena.stress.shrink import Shrunk, shrink
from onearena.stress.shrink_cli import SUFFIX, shrunk_json, shrunk_text, write_shrunk

if TYPE_CHECKING:
    from onearena.stress.run_store import RunStore

RULES_MAX: Final = 4
TRIES_PER_RULE: Final = 2
BUDGET_S: Final = 30.0

Broken = tuple[str, str, str]
"""Verdict, and oracle and rule of the first report ("" without one)."""


def broken(result: RunResult) -> Broken:
    """What a failure broke."""
    first = result.violations[0] if result.violations else None
    return (result.verdict, *(("", "") if first is None else (first.oracle, first.rule)))


def form_of(small: Shrunk) -> str:
    """The shape of a minimal schedule: its steps in order, whatever their sizes. Failures that
    broke the same and have one form count as one.
    """
    return ",".join(step.label for step in (small.spec.recording or ())[1:])


def choose(failures: Sequence[RunResult]) -> list[RunResult]:
    """Those worth shrinking: `TRIES_PER_RULE` of each of the first `RULES_MAX` kinds, by seed."""
    chosen: dict[Broken, list[RunResult]] = {}
    for result in sorted(failures, key=lambda failure: failure.seed):
        kind = broken(result)
        if not result.recording or (kind not in chosen and len(chosen) >= RULES_MAX):
            continue
        same = chosen.setdefault(kind, [])
        if len(same) < TRIES_PER_RULE:
            same.append(result)
    return [result for same in chosen.values() for result in same]


def shrink_distinct(
    plan: Plan,
    failures: Sequence[RunResult],
    path_of: Callable[[int], str],
    *,
    store: RunStore | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Shrink the failures that `choose` picks, `BUDGET_S` of processor time each, unless the store
    has them; print each distinct one unless `quiet`. Returns their JSON forms.

    `path_of` names the choices file of a seed's failure ("" for none); the small schedule goes
    beside it. Without a file only its steps are shown.
    """
    documents: list[dict[str, Any]] = []
    kept = {} if store is None else {one.seed: one for one in store.minimal()}
    seen = {(one.verdict, one.oracle, one.rule, one.form) for one in kept.values()}
    for result in choose(failures):
        if result.seed in kept:
            documents.append(json.loads(kept[result.seed].document))
            continue
        spec = replace(plan.spec(result.seed), recording=result.recording, state_digests=False)
        try:
            small = shrink(spec, budget_s=BUDGET_S)
        except UsageError as error:
            # Real threads may not fail again; that is a fact about the failure, so say it.
            if not quiet:
                click.echo(f"seed {result.seed} was not shrunk: {error.message}")
            continue
        kind = (*broken(result), form_of(small))
        if kind in seen:
            continue
        seen.add(kind)
        path = path_of(result.seed)
        target = f"{path}{SUFFIX}" if path else ""
        if target:
            write_shrunk(small, target)
        document = {"seed": result.seed, **shrunk_json(small, target)}
        documents.append(document)
        if store is not None:
            _keep(store, result, small, document)
        if not quiet:
            lines = shrunk_text(small, target).splitlines()
            # Without a file there is nothing to replay; --out writes one.
            click.echo("\n".join(lines if target else [*lines[:-2], NO_FILE]))
    return documents


def _keep(store: RunStore, result: RunResult, small: Shrunk, document: dict[str, Any]) -> None:
    from onearena.stress.run_store import Minimal

    verdict, oracle, rule = broken(result)
    store.add_minimal(
        Minimal(
            seed=result.seed,
            verdict=verdict,
            oracle=oracle,
            rule=rule,
            form=form_of(small),
            document=json.dumps(document),
            choices=small.text,
        )
    )


NO_FILE: Final = "with --out DIR the small schedule is written there, to replay and explain"


def check_file(field: str, path: str | None, *others: str | None) -> None:
    """Refuse, before a long run, a file that can never be written after it, and one of `others`,
    which are read or written besides.
    """
    if path is None:
        return
    try:
        is_folder = Path(path).is_dir()
        wrong = not Path(path).absolute().parent.is_dir()
    except (OSError, ValueError):
        is_folder, wrong = False, True
    if any(other and not wrong and _same_file(path, other) for other in others):
        raise UsageError(field, path, "give a file of its own: this one is named twice")
    if is_folder:
        raise UsageError(field, path, "give a file: this is a folder")
    if wrong:
        raise UsageError(field, path, "give a file in a folder that exists")


def _same_file(path: str, other: str) -> bool:
    return Path(path).resolve() == Path(other).resolve()


def write_file(field: str, path: str, text: str) -> None:
    """Write a report; `UsageError` where that cannot be done."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(field, path, f"give a file that can be written ({error})") from None
