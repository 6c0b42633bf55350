"""`onearena dashboard`: the live arena, or a recorded one, in a browser."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from onearena.core.errors import DeviceError, UsageError
from onearena.stress.terminal import examples

PORT: Final = 8501
ADDRESS: Final = "127.0.0.1"
SOURCE: Final = "http://127.0.0.1:9464"
PORT_MAX: Final = 65535


@click.command(
    name="dashboard",
    epilog=examples(
        "onearena stress --jobs 1 --metrics-port 9464",
        "onearena dashboard --source http://127.0.0.1:9464",
        "onearena dashboard --source tonight.record.jsonl",
        "onearena dashboard --source runs/0001/seed-12.choices.json",
    ),
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="URL|FILE|DIR",
    help=f"A process, a record, a choices file or a run; repeatable. Default: {SOURCE}.",
)
@click.option("--folder", metavar="DIR", help="Files may be chosen from it; default: FILE's.")
@click.option("--port", metavar="PORT", help=f"Where the browser finds it; default: {PORT}.")
@click.option("--address", metavar="ADDR", help=f"Listen there; default: {ADDRESS}.")
def dashboard(
    *, sources: tuple[str, ...], folder: str | None, port: str | None, address: str | None
) -> int:
    """Show the arena of a running process, or a recorded one, in a browser.

    It reads snapshots over HTTP or from a file, and never calls the arena: a slow browser slows
    nothing. Ends with Ctrl-C.
    """
    with TemporaryDirectory(prefix="onearena-") as made:
        command, environment = dashboard_command(sources, folder, port, address, made=Path(made))
        return _wait_for(command, environment)


def _wait_for(command: list[str], environment: dict[str, str]) -> int:
    try:
        return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - ours
    except KeyboardInterrupt:
        return 0


def start_dashboard(url: str, port: str) -> subprocess.Popen[bytes]:
    """The dashboard of a campaign that runs here, in a process of its own, quiet."""
    number = _port(port, flag="--dashboard")
    command, environment = dashboard_command((url,), None, str(number), None, made=Path())
    started = subprocess.Popen(  # noqa: S603 - ours
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    click.echo(f"dashboard at http://{ADDRESS}:{number}", err=True)
    return started


def dashboard_command(
    sources: tuple[str, ...],
    folder: str | None,
    port: str | None,
    address: str | None,
    *,
    made: Path,
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of the dashboard's process.

    Records of choices files and of stored runs are made in the folder `made`.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise DeviceError("streamlit is not installed; run: pip install 'onearena[dashboard]'")
    from onearena.dashboard.settings import Settings
    from onearena.stress.dashboard_files import record_of

    number = PORT if port is None else _port(port)
    urls = tuple(text for text in sources if re.match(r"https?://", text))
    files = [text for text in sources if text not in urls]
    if len(files) > 1:
        raise UsageError("--source", files[1], "give one file; others are chosen on the page")
    file, place = "", folder
    if files:
        path = record_of(files[0], made)
        file, place = path.name, str(path.resolve().parent)
        if folder is not None and Path(folder).resolve() != path.resolve().parent:
            raise UsageError("--folder", folder, "give the folder of --source, or leave it out")
    if place is not None and not Path(place).is_dir():
        raise UsageError("--folder", place, "give a folder that is there")
    if not urls and place is None:
        urls = (SOURCE,)
    for url in urls:
        _check_url(url)
    settings = Settings(urls, "" if place is None else str(Path(place).resolve()), file)
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(_script()),
        "--server.headless=true",
        f"--server.address={address or ADDRESS}",
        f"--server.port={number}",
        "--server.fileWatcherType=none",
        "--browser.gatherUsageStats=false",
        "--client.toolbarMode=minimal",
        # Colours of states, and with enough contrast for small words on either page.
        "--theme.light.primaryColor=#0072b2",
        "--theme.dark.primaryColor=#56b4e9",
    ]
    return command, dict(os.environ) | settings.to_environment()


def _script() -> Path:
    """What Streamlit serves; found without importing Streamlit."""
    found = importlib.util.find_spec("onearena.dashboard")
    assert found is not None, "the package is installed whole"
    assert found.origin is not None, "the package has a file"
    return Path(found.origin).parent / "launch" / "serve.py"


def _port(text: str, *, flag: str = "--port") -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) <= PORT_MAX:
        raise UsageError(flag, text, f"give a whole number from 1 to {PORT_MAX}")
    return int(text)


def _check_url(url: str) -> None:
    from onearena.dashboard.checked import SourceError
    from onearena.dashboard.http_source import HttpSource

    try:
        HttpSource(url)
    except SourceError as error:
        raise UsageError("--source", url, error.message) from None
