"""What a GPU's bytes say: schedules whose work runs on the cuda device, and their verdict.

The oracles are those of the threads device (`real_forwards`), under names of their own:
`cuda-bytes` and `cuda-order`.
"""

from __future__ import annotations

from dataclasses import replace

from onearena.core.arena_state import ArenaOptions
from onearena.core.device import cuda_api
from onearena.core.device.cuda_paired import CudaPairedDevice
from onearena.core.device.modeled_memory import Grids
from onearena.core.plan import StoragePlan
from onearena.stress.oracles.base import Violation
from onearena.stress.real_forwards import SALTS, TIMEOUT_S, RealChecks


def cuda_device(
    plan: StoragePlan, options: ArenaOptions, grids: Grids, *, seed: int, delays: int = 0
) -> tuple[CudaPairedDevice, CudaChecks]:
    """A modeled device with a GPU beside it, on fresh memory for `plan`, and its oracles.
    `DeviceError` where there is no GPU.
    """
    pools = plan.sub_pools
    host = sum(
        count * pool.unit_bytes for count, pool in zip(options.host_units, pools, strict=True)
    )
    device = CudaPairedDevice(
        cuda_api.open_api(),
        plan.geometry,
        grids=grids,
        host_bytes=host,
        buffer_slots=options.buffer_slots,
        entry_bytes=[pool.entry.entry_bytes for pool in pools],
        seed=1 + seed + (delays << 64),
        salt=1 + seed % SALTS,
        timeout_s=TIMEOUT_S,
    )
    return device, CudaChecks(device, plan)


class CudaChecks(RealChecks):
    """The oracles of one run on a GPU."""

    def poll(self) -> tuple[Violation, ...]:
        """See `RealChecks.poll`."""
        return _renamed(super().poll())

    def finish(self) -> tuple[Violation, ...]:
        """See `RealChecks.finish`."""
        return _renamed(super().finish())


def _renamed(violations: tuple[Violation, ...]) -> tuple[Violation, ...]:
    return tuple(
        replace(violation, oracle=violation.oracle.replace("threads-", "cuda-"))
        for violation in violations
    )
