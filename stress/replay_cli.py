"""`onearena replay`: run a recorded schedule again."""

from __future__ import annotations

import json

import click

from onearena.stress.terminal import examples


@click.command(epilog=examples("onearena replay runs/tonight/seed-123.choices.json"))
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def replay(*, file: str, as_json: bool) -> int:
    """Replay a recorded schedule and print the same failure.

    Exit codes: 0 it passes now, 1 a rule is broken, 2 usage, 3 it broke another rule or left its
    recording and passed, 4 no progress.
    """
    from onearena.stress.recordings import load_recording, same_failure
    from onearena.stress.report import failure_text
    from onearena.stress.run import run_schedule

    spec, head = load_recording(file)
    result = run_schedule(spec)
    same = same_failure(head, result)
    equal = head.get("digest") == result.digest
    diverged = None if result.divergence is None else str(result.divergence)
    if as_json:
        document = {
            "version": 1,
            "file": file,
            "verdict": result.verdict,
            "recorded_verdict": str(head.get("verdict")),
            "same_failure": same,
            "same_trace": equal,
            "divergence": diverged,
            "steps": result.steps,
            "violations": [violation.to_json() for violation in result.violations],
            "crash": result.crash,
        }
        click.echo(json.dumps(document, indent=1))
    else:
        if result.verdict != "pass":
            click.echo(failure_text(result, path=file))
        else:
            click.echo(f"passes: {result.steps} steps of seed {result.seed} broke no rule")
        click.echo(f"same failure as recorded: {'yes' if same else 'no'}")
        click.echo(f"same trace as recorded: {'yes' if equal else 'no'}")
        if diverged is not None and result.verdict == "pass":
            click.echo(f"first divergence at {diverged}")
    if result.verdict in ("violation", "crash"):
        return 1
    if result.verdict == "stuck":
        return 4
    return 3 if diverged is not None and not same else 0
