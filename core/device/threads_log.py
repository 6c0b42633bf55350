"""The access log of the threads device: what really touched which bytes, when, and beside whom.

Every access has two sequence numbers, drawn from one atomic counter when it begins and when it
ends: an access that ended before another began has the lower numbers, on any thread. Two accesses
overlap in time if neither ended before the other began.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from onearena.core import kernels
from onearena.core.device.threads_programs import Program
from onearena.core.device.trace import Effect, End, Start, Trace

ACCESSES_KEPT_MAX: Final = 1 << 18


class AccessLog:
    """Collects ended programs. `lost` counts accesses beyond the bound, none of which is hidden:
    their effects are in the trace, only their times are gone.
    """

    __slots__ = ("_kept", "_spans", "_trace", "lost")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._spans: list[tuple[int, NDArray[np.int64]]] = []
        self._kept = 0
        self.lost = 0

    def add(self, program: Program) -> None:
        """Log a program that is done: its start, its effects, its end, and the times of each."""
        number = program.number
        emit = self._trace.emit
        emit(Start(number))
        for effect, accesses in program.effects():
            emit(Effect(number, effect, accesses))
        emit(End(number))
        rows = program.rows[1:]
        spans = rows[rows[:, kernels.C_RESULT] != 0][:, [kernels.C_FROM, kernels.C_UNTIL]]
        if self._kept + len(spans) > ACCESSES_KEPT_MAX:
            self.lost += len(spans)
            return
        self._kept += len(spans)
        self._spans.append((program.lane, spans))

    @property
    def accesses(self) -> int:
        """How many accesses were logged with their times."""
        return self._kept

    def overlaps(self) -> int:
        """How many accesses began while one of another stream or transfer was going on.
        O(n log n).
        """
        if not self._spans:
            return 0
        spans = np.concatenate([spans for _, spans in self._spans])
        lanes = np.concatenate([np.full(len(spans), lane) for lane, spans in self._spans])
        order = np.argsort(spans[:, 0], kind="stable")
        count = 0
        # The latest end so far, and the latest among other lanes than that one's.
        last, lane_of_last, other = -1, 1 << 30, -1
        for k in order.tolist():
            begin, end, lane = int(spans[k, 0]), int(spans[k, 1]), int(lanes[k])
            count += (other if lane == lane_of_last else last) > begin
            if lane == lane_of_last:
                last = max(last, end)
            elif end > last:
                last, lane_of_last, other = end, lane, last
            else:
                other = max(other, end)
        return count
