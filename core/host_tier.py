"""Units of the host tier: one fixed pool a sub-pool, mirrored unit for unit (same unit bytes).

Host units live under the same ledger as device units: there a backup (D2H) writes and a load (H2D)
reads. A host id is `HOST_BIT | generation << 32 | band << 26 | slot`; it can never be mistaken for
a device id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from onearena.core.errors import MisuseError
from onearena.core.ledger import Units

HOST_BIT: Final = 1 << 62
_SLOT_MASK: Final = (1 << 26) - 1


class HostTier:
    """Slots per band with generations; which of them are free, held, or pending is known here.

    Control thread only; every call costs O(ids). The ledger says when a freed slot is over.
    """

    def __init__(self, counts: Sequence[int], unit_bytes: Sequence[int]) -> None:
        self.counts = tuple(counts)
        self.unit_bytes = tuple(unit_bytes)
        self.starts: list[int] = []
        start = 0
        for count, size in zip(counts, unit_bytes, strict=True):
            self.starts.append(start)
            start += count * size
        self.total_bytes = start
        self._generation = [[0] * count for count in counts]
        self._held: list[set[int]] = [set() for _ in counts]
        self._free = [deque(range(count)) for count in counts]
        self.undefined: set[int] = set()

    def reserve(self, band: int, count: int) -> tuple[int, ...]:
        """`count` ids of `band`, or none when so many are not free."""
        free = self._free[band]
        if len(free) < count:
            return ()
        ids = []
        for _ in range(count):
            slot = free.popleft()
            self._held[band].add(slot)
            self._generation[band][slot] += 1
            ids.append(HOST_BIT | self._generation[band][slot] << 32 | band << 26 | slot)
        return tuple(ids)

    def locate(self, host_id: int) -> tuple[int, int]:
        """(band, slot) of a held id; `MisuseError` for anything else."""
        band, slot = host_id >> 26 & 31, host_id & _SLOT_MASK
        known = (
            host_id & HOST_BIT
            and band < len(self.counts)
            and slot in self._held[band]
            and self._generation[band][slot] == (host_id ^ HOST_BIT) >> 32
        )
        if not known:
            raise MisuseError(
                f"host id {host_id} is not held; pass ids that reserve_host gave and nobody freed",
                argument="host_ids",
                unit=host_id,
            )
        return band, slot

    def span(self, host_id: int) -> tuple[int, int, int]:
        """(id, start, end) in the host tier's bytes."""
        band, slot = self.locate(host_id)
        start = self.starts[band] + slot * self.unit_bytes[band]
        return host_id, start, start + self.unit_bytes[band]

    def release(self, host_ids: Sequence[int]) -> list[tuple[int, Units]]:
        """End the lives of `host_ids`: (band, slots). They are free only after `reuse`."""
        placed = [self.locate(host_id) for host_id in host_ids]
        if len(set(placed)) != len(placed):
            raise MisuseError("the same host id is freed twice; free it once", argument="host_ids")
        bands: dict[int, list[int]] = {}
        for band, slot in placed:
            self._held[band].discard(slot)
            bands.setdefault(band, []).append(slot)
        self.undefined.difference_update(host_ids)
        return [(band, np.array(slots, np.int64)) for band, slots in bands.items()]

    def reuse(self, band: int, slots: Units) -> None:
        """Every use of these freed slots is over: hand them out again."""
        self._free[band].extend(slots.tolist())

    def free_units(self, band: int) -> int:
        """Slots that can be reserved now."""
        return len(self._free[band])
