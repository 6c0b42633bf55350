"""The exporter of the metrics: where it listens, and who serves there.

The server is one event loop, in a thread of the process that owns the arenas or in a process of
its own. In a thread, each of its system calls gives the interpreter's lock away and may wait a
switch interval for it, so that a flood of connections is worked off at the speed of lock hand-overs
while the control thread computes. In a process of its own it has an interpreter for itself, and
the flood ends there: see `apart`.
"""

from __future__ import annotations

import errno
import socket
import threading
from typing import Final, Protocol

from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from onearena.core.errors import UsageError
from onearena.metrics.apart import ApartRunner
from onearena.metrics.collector import collector_of
from onearena.metrics.endpoints import STALE_S, Endpoints
from onearena.metrics.harness import HarnessSource
from onearena.metrics.local import LocalRunner
from onearena.metrics.reply import APART_CONNECTIONS_MAX, CONNECTIONS_MAX, Limits
from onearena.metrics.security import Passwords, Security
from onearena.metrics.server import BACKLOG
from onearena.metrics.stats import ExporterStats

PORT: Final = 9464
ADDRESS: Final = "127.0.0.1"
CLOSE_S: Final = 30.0


class Runner(Protocol):
    """Who serves."""

    @property
    def thread(self) -> threading.Thread:
        """The thread of this process that answers."""

    @property
    def pid(self) -> int:
        """The process that serves."""

    def stop(self, timeout_s: float) -> None:
        """End it; a second time: nothing."""


class Exporter:
    """A running server; `close` ends it and its thread or process. Made by `start_exporter`."""

    def __init__(self, runner: Runner, *, scheme: str, address: str, port: int) -> None:
        self._runner = runner
        self._scheme = scheme
        self.address = address
        self.port = port

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self._scheme}://{host}:{self.port}"

    @property
    def thread(self) -> threading.Thread:
        """The thread of this process that answers; the only one that was started."""
        return self._runner.thread

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._runner.pid

    def close(self, *, timeout_s: float = CLOSE_S) -> None:
        """Stop serving, end all connections, join the thread. Again: nothing."""
        self._runner.stop(timeout_s)


def _bind(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError("address", address, f"give an address to listen on ({error})") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        bound.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            fix = "another process listens there; give another port, or 0 for a free one"
            raise UsageError("port", port, fix) from None
        raise UsageError("address", f"{address}:{port}", f"it cannot be had ({error})") from None
    return bound


def start_exporter(
    port: int = PORT,
    *,
    address: str = ADDRESS,
    registry: CollectorRegistry = REGISTRY,
    security: Security | None = None,
    harness: HarnessSource | None = None,
    stale_s: float = STALE_S,
    limits: Limits | None = None,
    apart: bool = False,
) -> Exporter:
    """Serve a registry over HTTP; any thread may call this. One thread of this process is started.

    `port` 0 takes a free one. `apart` serves from a process of its own, which asks this process
    for what it answers: then a flood of connections takes nothing from this one, and /healthz does
    not wait for it. Everything is read-only and bounded; `docs/metrics.md` lists the endpoints.
    `UsageError` says what is wrong with a port, a certificate or a password file. Passwords need
    TLS unless the address is loopback.
    """
    wanted = security or Security()
    loopback = address in ("localhost", "::1") or address.startswith("127.")
    if wanted.passwords is not None and wanted.certificate is None and not loopback:
        raise UsageError(
            "passwords", str(wanted.passwords), "give a certificate too: they would go in clear"
        )
    scheme = "http" if wanted.context() is None else "https"
    if wanted.passwords is not None:
        Passwords(wanted.passwords)
    collector = collector_of(registry)
    stats = ExporterStats()
    bounds = limits or Limits(connections=APART_CONNECTIONS_MAX if apart else CONNECTIONS_MAX)
    endpoints = Endpoints(
        registry, collector, stale_s=stale_s, render_every_s=bounds.render_every_s
    )
    listening = _bind(address, port)
    found_address, found_port = listening.getsockname()[:2]
    kind = ApartRunner if apart else LocalRunner
    runner = kind(endpoints, stats, security=wanted, limits=bounds, listening=listening)
    collector.exporter = stats
    if harness is not None:
        collector.harness = harness
    return Exporter(runner, scheme=scheme, address=found_address, port=found_port)
