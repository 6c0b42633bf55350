"""`onearena demo`: things to watch. `onearena demo bug` shows the harness catching a real
mistake.
"""

from __future__ import annotations

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import examples, note_compiling

DEMO_SEEDS_MAX = 400
STORIES = {
    "free-at-once": (
        "The toy allocator puts a freed unit straight back on its hole list and forgets who used",
        "it. A forward on another stream may still be reading it when its next owner writes.",
    ),
    "last-use-only": (
        "The toy allocator keeps one event for each unit: the latest. With two streams at work,",
        "waiting for the latest use says nothing about the one before.",
    ),
    "read-fast-path": (
        "The toy allocator records who writes a unit and not who reads it. A reader that is still",
        "running sees the next owner's bytes.",
    ),
}


@click.group(epilog=examples("onearena demo bug"))
def demo() -> None:
    """Show the arena, or the harness, at work."""


@demo.command(epilog=examples("onearena demo bug", "onearena demo bug --bug last-use-only"))
@click.option(
    "--bug", "name", default="free-at-once", metavar="NAME", help="Which mistake to plant."
)
def bug(*, name: str) -> int:
    """Let the harness find a mistake in a small allocator, and explain it.

    Exit code 1: the mistake was found (as `onearena stress` answers a broken rule).
    """
    from onearena.stress.report import failure_text
    from onearena.stress.run import RunSpec, run_schedule
    from onearena.stress.toy import BUGS

    if name not in BUGS:
        raise UsageError("--bug", name, f"give one of {', '.join(BUGS)}")
    click.echo("\n".join(STORIES[name]))
    clean = [seed for seed in range(10) if run_schedule(RunSpec(seed, "toy")).verdict != "pass"]
    click.echo(f"First the correct toy: 10 schedules, {len(clean)} failures.")
    first = 0
    for seed in range(DEMO_SEEDS_MAX):
        result = run_schedule(RunSpec(seed, f"toy:{name}"))
        if result.verdict == "pass":
            continue
        first = first or seed + 1
        # A newcomer sees most in a report that names the wait that was left out.
        if not any(violation.oracle == "order" for violation in result.violations):
            continue
        click.echo(f"Then the same schedules with the mistake: caught in schedule {first}.")
        if seed + 1 > first:
            click.echo(f"Schedule {seed + 1} also names the wait that was left out:")
        click.echo()
        click.echo(failure_text(result))
        return 1
    if first:
        click.echo(f"caught in schedule {first}, and the missing wait named by none")
        return 1
    click.echo(f"not caught in {DEMO_SEEDS_MAX} schedules: this is a failure of the harness")
    return 0


@demo.command(epilog=examples("onearena demo relayout"))
def relayout() -> int:
    """Draw figure 4: three holes cannot serve four pages, and one move can."""
    from onearena.stress.relayout_view import story

    note_compiling()
    click.echo("\n".join(story()))
    return 0
