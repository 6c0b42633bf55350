"""The `--metrics-…` options of commands that can be watched while they run."""

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
    return command


def start_live(options: dict[str, str | None]) -> Live | None:
    """The exporter that the options ask for, serving already; None without a port."""
    given = {name.removeprefix("metrics_"): value for name, value in options.items()}
    port = given.pop("port")
    if port is None:
        for name, value in given.items():
            if value is not None:
                flag = f"--metrics-{name.replace('_', '-')}"
                raise UsageError(flag, value, "give --metrics-port with it")
        return None
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
        live = Live(Watch(port=int(port), address=address, security=security))
    except UsageError as error:
        flag = _FLAGS.get(error.field, error.field)
        raise UsageError(f"--metrics-{flag}", error.value, error.fix) from None
    click.echo(f"metrics at {live.exporter.url}/metrics", err=True)
    return live


_FILES: Final = ("cert", "key", "client_ca", "passwords")
_FLAGS: Final = {"certificate": "cert", "client_ca": "client-ca"}
