"""A cuda device beside a modeled one: the model decides what the host sees, the GPU does it.

As `threads_paired` says; but no program on a GPU waits for the model. What is late there is late
by itself, or by the pauses inside its accesses.
"""

from __future__ import annotations

from collections.abc import Sequence

from onearena.core.device.cuda import CudaDevice
from onearena.core.device.cuda_api import Checked, CudaApi
from onearena.core.device.cuda_memory import CudaMemory
from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.modeled_memory import Grids
from onearena.core.device.threads_paired import PairedDevice
from onearena.core.device.trace import Trace
from onearena.core.geometry import ArenaGeometry


class CudaPairedDevice(PairedDevice):
    """A modeled device whose work also runs on a GPU. Digests of `trace` are the model's."""

    def __init__(
        self,
        api: CudaApi,
        geometry: ArenaGeometry,
        *,
        grids: Grids,
        host_bytes: int,
        buffer_slots: int,
        entry_bytes: Sequence[int],
        seed: int = 0,
        salt: int = 0,
        timeout_s: float = 30.0,
        eager: bool = True,
    ) -> None:
        """`seed` draws pauses; no decision depends on it. `salt` goes into every pattern."""
        ModeledDevice.__init__(self, grids=grids, eager=eager)
        checked = Checked(api.errors)
        memory = CudaMemory(
            api,
            checked,
            geometry,
            host_bytes=host_bytes,
            buffer_slots=buffer_slots,
            entry_bytes=entry_bytes,
            salt=salt,
        )
        device = CudaDevice(
            api, memory, checked, trace=Trace(keep=True), seed=seed, timeout_s=timeout_s
        )
        self._pair(device)
