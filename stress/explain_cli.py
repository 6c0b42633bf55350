"""`onearena explain`: one failure, for a person."""

from __future__ import annotations

import click

from onearena.stress.terminal import examples


@click.command(
    epilog=examples(
        "onearena explain runs/tonight/seed-123.choices.json.min",
        "onearena explain small.json --html failure.html",
    )
)
@click.argument("file", metavar="FILE")
@click.option("--html", metavar="FILE", help="Write one page that needs nothing else.")
def explain(*, file: str, html: str | None) -> int:
    """Explain a failing schedule: the rule, what happened in order, the edge that was missing.

    Shows the bytes and the unit concerned, the arena before and after at true scale, both events
    with who enqueued them, and how to see it again. Shrink the file first: a page about ten calls
    is read, one about two hundred is not. Exit codes: 0 explained, 2 usage (also: FILE passes).
    """
    from onearena.stress.auto_shrink import check_file, write_file
    from onearena.stress.explain import explain as explained
    from onearena.stress.explain import explain_text
    from onearena.stress.recordings import load_recording

    check_file("--html", html, file)
    spec, _ = load_recording(file)
    page = explained(spec, file=file)
    if html is None:
        click.echo(explain_text(page))
        return 0
    from onearena.stress.explain_html import explain_html

    write_file("--html", html, explain_html(page))
    click.echo(f"written: {html}")
    return 0
