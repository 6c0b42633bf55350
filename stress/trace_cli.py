"""`onearena trace`: a recorded schedule as a trace for a viewer."""

from __future__ import annotations

import io

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import examples


@click.command(
    epilog=examples(
        "onearena trace small.json --perfetto small.trace.json",
        "onearena trace small.json --log small.log.jsonl",
    )
)
@click.argument("file", metavar="FILE")
@click.option("--perfetto", metavar="FILE", help="Write JSON trace events, for ui.perfetto.dev.")
@click.option("--log", metavar="FILE", help="Write an engine's log, for `onearena check`.")
def trace(*, file: str, perfetto: str | None, log: str | None) -> int:
    """Replay a schedule and write it as a trace for ui.perfetto.dev.

    A track for the host, each stream, the transfers and each band; arrows from where an event is
    recorded to who waits for it. Time is the order of events. With --log, write the log that an
    engine would have kept of it. Exit codes: 0 written, 2 usage.
    """
    from onearena.stress.auto_shrink import check_file, write_file
    from onearena.stress.recordings import load_recording

    if perfetto is None and log is None:
        raise UsageError("--perfetto", None, "give the file to write, here or by --log")
    check_file("--perfetto", perfetto, file)
    check_file("--log", log, file, perfetto)
    spec, _ = load_recording(file)
    if perfetto is not None:
        from onearena.stress.trace_export import export_text

        text = export_text(spec)
        write_file("--perfetto", perfetto, text)
        count = text.count("\n") - 2
        click.echo(f"written: {perfetto} ({count} trace events); open it in ui.perfetto.dev")
    if log is not None:
        from onearena.stress.log_export import export_log

        lines = io.StringIO()
        export_log(spec, lines)
        write_file("--log", log, lines.getvalue())
        count = lines.getvalue().count("\n")
        click.echo(f"written: {log} ({count} lines); judge it with `onearena check {log}`")
    return 0
