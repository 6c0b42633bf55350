"""`onearena trace`: a recorded schedule as a trace for a viewer."""

from __future__ import annotations

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import examples


@click.command(epilog=examples("onearena trace small.json --perfetto small.trace.json"))
@click.argument("file", metavar="FILE")
@click.option("--perfetto", metavar="FILE", help="Where the trace goes (JSON trace events).")
def trace(*, file: str, perfetto: str | None) -> int:
    """Replay a schedule and write it as a trace for ui.perfetto.dev.

    A track for the host, each stream, the transfers and each band; arrows from where an event is
    recorded to who waits for it. Time is the order of events. Exit codes: 0 written, 2 usage.
    """
    from onearena.stress.auto_shrink import check_file, write_file
    from onearena.stress.recordings import load_recording
    from onearena.stress.trace_export import export_text

    if perfetto is None:
        raise UsageError("--perfetto", None, "give the file to write")
    check_file("--perfetto", perfetto)
    spec, _ = load_recording(file)
    text = export_text(spec)
    write_file("--perfetto", perfetto, text)
    count = text.count("\n") - 2
    click.echo(f"written: {perfetto} ({count} trace events); open it in ui.perfetto.dev")
    return 0
