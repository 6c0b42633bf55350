"""`onearena doctor`: what this machine has, what is missing, and the command that fixes it.

Every check is a function that returns `Check` values and changes nothing: no file is written, and
a port is tried by binding it for an instant. torch is imported only to ask for a GPU.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import shutil
import socket
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from onearena.stress.terminal import console, examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REPORT_VERSION: Final = 1
PORTS: Final = (("exporter", 9464), ("dashboard", 8501))
DISK_FREE_BYTES_MIN: Final = 1 << 30
MEMORY_AVAILABLE_BYTES_MIN: Final = 1 << 30
PROGRAMS: Final = (
    ("promtool", "the tests of alert rules", "apt-get install prometheus"),
    ("chromium", "the browser tests of the dashboard", "apt-get install chromium"),
)

Status = Literal["ok", "note", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report.

    `ok`: as it should be. `note`: something optional is absent or taken. `fail`: onearena cannot
    run as it should until `fix` is done.
    """

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All checks, in the order in which they are shown; `healthy` is false if any failed."""

    version: int
    healthy: bool
    checks: tuple[Check, ...]


def examine() -> Report:
    """Run every check; imports torch if it is installed (about a second)."""
    checks = (
        *_check_python(),
        *_check_requirements(),
        *_check_machine(),
        _check_gpu(),
        *_check_programs(),
        *(_check_port(user, port) for user, port in PORTS),
    )
    healthy = all(check.status != "fail" for check in checks)
    return Report(version=REPORT_VERSION, healthy=healthy, checks=checks)


def _check_python() -> Iterator[Check]:
    yield Check("onearena", "ok", _installed("onearena") or "not installed")
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Check(
        "python",
        "ok" if supported else "fail",
        found,
        "" if supported else "use Python 3.11, 3.12 or 3.13",
    )


@dataclass(frozen=True, slots=True)
class _Requirement:
    distribution: str
    specifier: str  # ">=2.2,<2.5"; empty: any
    extra: str  # empty: a base dependency


_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[[^]]*\])?\s*(?P<spec>[^;]*)(?P<marker>;.*)?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


def _requirements() -> list[_Requirement]:
    """What the installed metadata says that onearena needs, so this list cannot drift from it."""
    found = []
    try:
        lines = metadata.requires("onearena") or []
    except metadata.PackageNotFoundError:
        return []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line.strip())
        assert match is not None, f"a requirement that cannot be read: {line!r}"
        extra = _EXTRA.search(match["marker"] or "")
        name = match["name"]
        if name != "onearena":  # "onearena[dashboard]" inside another extra
            found.append(_Requirement(name, match["spec"].strip(), extra[1] if extra else ""))
    return found


def _check_requirements() -> Iterator[Check]:
    """The base dependencies one by one; the extras as a whole, with the command that adds them."""
    requirements = _requirements()
    if not requirements:
        yield Check("onearena", "fail", "no installed metadata", "pip install -e .")
    for need in requirements:
        if not need.extra:
            problem = _problem(need)
            yield Check(
                need.distribution,
                "fail" if problem else "ok",
                problem or _installed(need.distribution) or "",
                f"pip install '{need.distribution}{need.specifier}'" if problem else "",
            )
    for extra in dict.fromkeys(need.extra for need in requirements if need.extra):
        problems = [
            f"{need.distribution} {problem}"
            for need in requirements
            if need.extra == extra and (problem := _problem(need))
        ]
        yield Check(
            f"extra {extra}",
            "note" if problems else "ok",
            "; ".join(problems) or "installed",
            f"pip install -e '.[{extra}]'" if problems else "",
        )


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _problem(need: _Requirement) -> str:
    """What is wrong with this requirement here; empty if it is met."""
    found = _installed(need.distribution)
    if found is None:
        return "missing"
    if not satisfies(found, need.specifier):
        return f"is {found}, needs {need.specifier}"
    return ""


def satisfies(found: str, specifier: str) -> bool:
    """Whether a version meets a specifier of `>=`, `<`, `==` and `==X.*` clauses.

    Only release numbers count (local and pre-release suffixes are dropped), which is enough for
    the ranges in our own metadata and spares a dependency. Unknown operators are an error of the
    metadata's author, hence an assertion.
    """
    have = _release(found)
    for clause in filter(None, (part.strip() for part in specifier.split(","))):
        match = re.fullmatch(r"(>=|<|==)\s*([\w.]+?)(\.\*)?", clause)
        assert match is not None, f"a version clause that cannot be read: {clause!r}"
        operator, wanted_text, wildcard = match.groups()
        wanted = _release(wanted_text)
        length = max(len(have), len(wanted))
        have_padded = have + (0,) * (length - len(have))
        wanted_padded = wanted + (0,) * (length - len(wanted))
        if operator == ">=":
            met = have_padded >= wanted_padded
        elif operator == "<":
            met = have_padded < wanted_padded
        elif wildcard:
            met = have[: len(wanted)] == wanted
        else:
            met = have_padded == wanted_padded
        if not met:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    assert match is not None, f"a version without a number: {version!r}"
    return tuple(int(number) for number in match[0].split("."))


def _check_machine() -> Iterator[Check]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Check("cores", "ok", f"{usable} usable, {platform.machine()}")
    memory = _memory_bytes()
    if memory is None:
        yield Check("memory", "note", "cannot be read here")
    else:
        total, available = memory
        low = available < MEMORY_AVAILABLE_BYTES_MIN
        yield Check(
            "memory",
            "note" if low else "ok",
            f"{_gib(available)} available of {_gib(total)}",
            "give smaller budgets, or free memory" if low else "",
        )
    free = shutil.disk_usage(os.curdir).free
    low = free < DISK_FREE_BYTES_MIN
    yield Check(
        "disk",
        "fail" if low else "ok",
        f"{_gib(free)} free in the current folder",
        "free 1 GiB, or run in another folder" if low else "",
    )


def _memory_bytes() -> tuple[int, int] | None:
    """(total, available) bytes of main memory, or None where the system does not say."""
    try:
        with Path("/proc/meminfo").open(encoding="ascii") as lines:
            kib = {name: int(rest.split()[0]) for name, rest in (ln.split(":", 1) for ln in lines)}
        return kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    except (OSError, KeyError, ValueError):
        return None


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / (1 << 30):.1f} GiB"


def _check_gpu() -> Check:
    if _installed("torch") is None:
        return Check("gpu", "note", "unknown: torch is not installed")
    try:
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            return Check("gpu", "note", "none that torch can use; the modeled device needs none")
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    except (ImportError, OSError, RuntimeError) as error:
        # A broken driver or a half-installed torch: the text of the error is what a person needs.
        return Check("gpu", "note", f"torch cannot say: {error}", "reinstall torch or the driver")
    return Check("gpu", "ok", names)


def _check_programs() -> Iterator[Check]:
    for program, purpose, fix in PROGRAMS:
        path = shutil.which(program)
        yield Check(
            program, "ok" if path else "note", path or f"absent ({purpose})", "" if path else fix
        )


def _check_port(user: str, port: int) -> Check:
    """Whether a server could bind this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = error.strerror or str(error)
            return Check(f"port {port}", "note", f"{user}: {reason}", "give another port")
    return Check(f"port {port}", "ok", f"free ({user})")


def _print(checks: Sequence[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    style = {"ok": "green", "note": "yellow", "fail": "bold red"}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        text = Text(check.found)
        if check.fix:
            text.append(f"  -> {check.fix}", style="cyan")
        table.add_row(Text(check.status, style=style[check.status]), check.name, text)
    console().print(table)


@click.command(epilog=examples("onearena doctor", "onearena doctor --json"))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def doctor(*, as_json: bool) -> int:
    """Say what this machine has, and what is missing.

    Exits 0 if onearena can run here, 1 if something it needs is missing.
    """
    report = examine()
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        _print(report.checks)
        failed = sum(check.status == "fail" for check in report.checks)
        click.echo("healthy" if report.healthy else f"{failed} problem(s), marked fail above")
    return 0 if report.healthy else 1
