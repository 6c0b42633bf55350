"""The time that one schedule may take in a worker: a call that never returns stalls no campaign.

The watch is the interpreter's own (`faulthandler`): a thread outside Python that ends the process
and first writes down where each thread was. So it also ends loops in compiled code, and waits for
locks. It goes by the clock of the wall, and a process that was stopped for a while (Ctrl-Z, a
laptop asleep) may be ended though nothing is wrong with its schedule; whoever started it runs the
schedule again, and takes only what happens twice for a result.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Final

LIMIT_S: Final = 300.0
"""A schedule takes a twentieth of a second, with real threads up to some seconds."""
READ_BYTES: Final = 1 << 16
LINES_MAX: Final = 40
BEGINNING: Final = "Timeout ("
"""With this `faulthandler` begins what it writes."""


@contextlib.contextmanager
def limited(limit_s: float, report: Connection | None = None) -> Iterator[None]:
    """End this process if the body takes longer; where it was goes to `report`, else to stderr.

    One body of a process at a time. Costs some 50 us.
    """
    if report is None:
        faulthandler.dump_traceback_later(limit_s, exit=True)
    else:
        # Full, it loses the rest: a process that waits for a reader would not end.
        os.set_blocking(report.fileno(), False)
        faulthandler.dump_traceback_later(limit_s, exit=True, file=report.fileno())
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def where_it_was(report: Connection) -> str:
    """What `limited` wrote in a process that has ended; empty if it ended for another reason."""
    os.set_blocking(report.fileno(), False)
    try:
        text = os.read(report.fileno(), READ_BYTES).decode(errors="replace")
    except BlockingIOError:
        return ""
    if not text.startswith(BEGINNING):
        return ""
    return "\n".join(text.splitlines()[1 : 1 + LINES_MAX])
