"""What the exporter counts about itself; counted by its own thread only."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Final

CUT_REASONS: Final = ("slow", "crowded", "broken")


class ExporterStats:
    """Requests, cut connections, open connections, and the thread's processor time."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.cut: dict[str, int] = dict.fromkeys(CUT_REASONS, 0)
        self.open = 0
        self._cpu_clock: int | None = None

    def begin(self) -> None:
        """Called in the exporter's thread, whose processor time counts from then on."""
        self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())

    def end(self) -> None:
        """Called before that thread ends."""
        self._cpu_clock = None

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the thread between `begin` and `end`; any thread may ask."""
        clock = self._cpu_clock
        return 0.0 if clock is None else time.clock_gettime(clock)

    def to_json(self) -> dict[str, Any]:
        """What the server counted, for the process that exports it."""
        requests = [[*pair, count] for pair, count in self.requests.items()]
        return {"requests": requests, "cut": self.cut, "open": self.open}

    def receive(self, counts: dict[str, Any]) -> None:
        """Take over what a server in another process counted: `to_json` of its counts."""
        self.requests = Counter({(end, code): n for end, code, n in counts["requests"]})
        self.cut = counts["cut"]
        self.open = counts["open"]

    def rows(self) -> dict[str, Any]:
        """Samples as the collector wants them; any thread may call."""
        return {
            "onearena_exporter_requests": list(self.requests.items()) or [(("/metrics", "200"), 0)],
            "onearena_exporter_cut_connections": [((r,), n) for r, n in self.cut.items()],
            "onearena_exporter_connections": [((), self.open)],
            "onearena_exporter_cpu_seconds": [((), self.cpu_seconds)],
        }
