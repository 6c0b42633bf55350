"""`onearena replay`: run a recorded schedule again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import examples

if TYPE_CHECKING:
    from onearena.stress.run import RunResult


def check_device(device: str, system: str) -> None:
    """Refuse a device there is not, or on which the system cannot run."""
    from onearena.stress.systems import DEVICES

    if device not in DEVICES:
        raise UsageError("--device", device, f"give one of {', '.join(DEVICES)}")
    if device != "modeled" and system != "arena":
        raise UsageError("--device", device, f"{system} runs on the modeled device only")
    if device == "cuda":
        from onearena.core.device.cuda_api import UNAVAILABLE, cuda_available

        if not cuda_available():
            raise UsageError("--device", device, UNAVAILABLE)


def states_hash(result: RunResult) -> str:
    """One hash over the states after every step, and how many steps that were."""
    text = "\n".join(result.state_digests).encode()
    digest = hashlib.blake2b(text, digest_size=16).hexdigest()
    return f"{digest} after {len(result.state_digests)} steps"


@click.command(
    epilog=examples(
        "onearena replay runs/tonight/seed-123.choices.json",
        "onearena replay runs/tonight/seed-123.choices.json --device threads",
    )
)
@click.argument("file", metavar="FILE")
@click.option("--device", metavar="NAME", help="modeled, threads or cuda; default: as recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def replay(*, file: str, device: str | None, as_json: bool) -> int:
    """Replay a recorded schedule and print the same failure.

    Every device takes the same decisions; the digests of the allocator's state after each step (in
    the JSON form; their hash otherwise) are equal on all of them.

    Exit codes: 0 it passes now, 1 a rule is broken, 2 usage, 3 it broke another rule or left its
    recording and passed, 4 no progress.
    """
    from onearena.stress.recordings import load_recording, same_failure
    from onearena.stress.report import failure_text
    from onearena.stress.run import run_schedule

    spec, head = load_recording(file)
    check_device(device or spec.device, spec.system)
    spec = replace(spec, device=device or spec.device, state_digests=True)
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
            "device": result.device,
            "state_digests": list(result.state_digests),
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
        click.echo(f"allocator state on {result.device}: {states_hash(result)}")
        if diverged is not None and result.verdict == "pass":
            click.echo(f"first divergence at {diverged}")
    if result.verdict in ("violation", "crash"):
        return 1
    if result.verdict == "stuck":
        return 4
    return 3 if diverged is not None and not same else 0
