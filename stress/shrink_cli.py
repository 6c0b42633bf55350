"""`onearena shrink`: make a failing schedule small."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import COLUMNS_MAX, examples
from onearena.stress.user_systems import trusting

if TYPE_CHECKING:
    from onearena.stress.choices import StepRecord
    from onearena.stress.shrink import Shrunk

SUFFIX = ".min"


def steps_text(steps: tuple[StepRecord, ...]) -> list[str]:
    """The steps of a small recording, one a line, with the decisions that are not 0."""
    lines: list[str] = []
    for index, step in enumerate(steps[1:], 1):
        decisions = [
            f"{name.partition('.')[2]}={','.join(map(str, values))}"
            for name, values in step.decisions.items()
            if any(values) and name.partition(".")[2] not in {"ask", "speculate", "blind", "side"}
        ]
        line = f"  {index:3} {step.label:<16} {' '.join(decisions)}".rstrip()
        lines.append(line if len(line) <= COLUMNS_MAX else line[: COLUMNS_MAX - 3] + "...")
    return lines


def shrunk_text(small: Shrunk, path: str) -> str:
    """What a person reads about it."""
    first = small.result.violations[0] if small.result.violations else None
    broken = small.result.verdict if first is None else f"{first.oracle}, rule {first.rule}"
    trusted = trusting(small.spec.system)
    checked = "verified by a replay of the file" if small.verified else "its replay DIFFERS"
    lines = [
        f"shrunk: {small.after.words()} (was {small.before.words()})",
        f"same failure: {broken}; {checked}",
        f"{small.replays} replays, {small.seconds:.1f} s of processor time"
        + ("" if small.finished else "; the budget ended first: more may go"),
        *steps_text(small.spec.recording or ()),
        f"reproduce: {trusted}onearena replay {path}",
        f"explain: {trusted}onearena explain {path}",
    ]
    return "\n".join(lines)


def shrunk_json(small: Shrunk, path: str) -> dict[str, Any]:
    """What a program reads about it."""
    return {
        "version": 1,
        "file": path,
        "before": asdict(small.before),
        "after": asdict(small.after),
        "replays": small.replays,
        "seconds": round(small.seconds, 3),
        "finished": small.finished,
        "verified": small.verified,
        "verdict": small.result.verdict,
        "violations": [violation.to_json() for violation in small.result.violations],
    }


def write_shrunk(small: Shrunk, path: str) -> None:
    """Write the choices file; `UsageError` where that cannot be done."""
    try:
        Path(path).write_text(small.text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError("--out", path, f"give a file that can be written ({error})") from None


@click.command(
    epilog=examples(
        "onearena shrink runs/tonight/seed-123.choices.json",
        "onearena shrink failure.json --out small.json --budget 2m",
    )
)
@click.argument("file", metavar="FILE")
@click.option("--out", metavar="FILE", help="Where the small schedule goes; default: FILE.min.")
@click.option(
    "--budget", default="30s", metavar="TIME", help="Processor time at most, e.g. 30s, 5m."
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def shrink(*, file: str, out: str | None, budget: str, as_json: bool) -> int:
    """Make a failing schedule small: fewest host calls, then device steps, then sizes.

    The small schedule breaks the same rule, by the same oracle's report, and is replayed from its
    own text before it is written. Exit codes: 0 written, 2 usage (also: FILE does not fail), 3 FILE
    breaks another rule now than the one it recorded, or the small file's replay differs.
    """
    from onearena.stress.recordings import load_recording
    from onearena.stress.shrink import Shrinker
    from onearena.stress.stress_cli import parse_budget

    budget_s = parse_budget(budget)
    path = out or file + SUFFIX
    spec, head = load_recording(file)
    shrinker = Shrinker(spec, budget_s=budget_s)
    recorded = head.get("violations")
    if isinstance(recorded, list) and recorded and isinstance(recorded[0], dict):
        was = (str(recorded[0].get("oracle")), str(recorded[0].get("rule")))
        now = shrinker.target.first
        if was != now:
            click.echo(
                f"{file} recorded {was[0]}, rule {was[1]}; it breaks {now[0]}, rule {now[1]} now"
            )
            return 3
    small = shrinker.run()
    write_shrunk(small, path)
    if as_json:
        click.echo(json.dumps(shrunk_json(small, path), indent=1))
    else:
        click.echo(shrunk_text(small, path))
    return 0 if small.verified else 3
