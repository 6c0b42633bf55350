"""The options of commands that can be watched while they run: served, recorded, on a screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from onearena.core.errors import UsageError

if TYPE_CHECKING:
    from onearena.stress.live import Live

PORT_MAX: Final = 65535

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    ("port", "PORT", "Serve metrics over HTTP while running, e.g. 9464; 0: any free port."),
    ("address", "ADDR", "Listen there; default: 127.0.0.1."),
    ("cert", "FILE", "TLS: PEM certificate."),
    ("key", "FILE", "TLS: PEM key of the certificate."),
    ("client-ca", "FILE", "TLS: take clients whose certificate these PEM authorities signed."),
    ("passwords", "FILE", "Basic auth: lines of user:password, file mode 600."),
)


def watch_options(command: Command) -> Command:
    """Add the options; the command gets them as keywords that begin with `metrics_`."""
    for name, metavar, text in reversed(_OPTIONS):
        command = click.option(f"--metrics-{name}", metavar=metavar, help=text)(command)
    command = click.option(
        "--dashboard",
        metavar="PORT",
        is_flag=False,
        flag_value="8501",
        help="Show it in a browser while it runs, at 127.0.0.1:PORT; default: 8501.",
    )(command)
    return click.option(
        "--record",
        metavar="FILE",
        help="Record the arena, every failure and the summary; the dashboard opens it.",
    )(command)


def start_live(options: dict[str, str | None]) -> Live | None:
    """What the options ask for, serving already; None if nobody watches."""
    given = {name.removeprefix("metrics_"): value for name, value in options.items()}
    port, record, screen = given.pop("port"), given.pop("record"), given.pop("dashboard")
    if port is None and screen is not None:
        port = "0"
    if port is None:
        for name, value in given.items():
            if value is not None:
                flag = f"--metrics-{name.replace('_', '-')}"
                raise UsageError(flag, value, "give --metrics-port with it")
        return None if record is None else _recording(record)
    if not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise UsageError("--metrics-port", port, f"give a whole number from 0 to {PORT_MAX}")
    from onearena.metrics.exporter import ADDRESS
    from onearena.metrics.security import Security
    from onearena.stress.live import Live, Watch

    files = {name: None if (text := given[name]) is None else Path(text) for name in _FILES}
    security = Security(
        certificate=files["cert"],
        key=files["key"],
        client_ca=files["client_ca"],
        passwords=files["passwords"],
    )
    address = given["address"] or ADDRESS
    try:
        live = Live(Watch(port=int(port), address=address, security=security, record=record))
    except UsageError as error:
        if error.field == "record":
            raise UsageError("--record", error.value, error.fix) from None
        flag = _FLAGS.get(error.field, error.field)
        raise UsageError(f"--metrics-{flag}", error.value, error.fix) from None
    assert live.exporter is not None, "a port was given"
    click.echo(f"metrics at {live.exporter.url}/metrics", err=True)
    if screen is not None:
        from onearena.stress.dashboard_cli import start_dashboard

        try:
            live.screen = start_dashboard(live.exporter.url, screen)
        except BaseException:
            live.close()
            raise
    return live


def _recording(record: str) -> Live:
    """Nothing served, all recorded."""
    from onearena.stress.live import Live, Watch

    try:
        return Live(Watch(port=None, record=record))
    except UsageError as error:
        raise UsageError("--record", error.value, error.fix) from None


_FILES: Final = ("cert", "key", "client_ca", "passwords")
_FLAGS: Final = {"certificate": "cert", "client_ca": "client-ca"}
