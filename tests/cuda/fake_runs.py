"""Schedules on the cuda device over the fake, and the order oracle over what the fake saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fake_cuda import FakeGpu

from onearena.core.device import cuda_api
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.real_forwards import order_records
from onearena.stress.run import RunResult, RunSpec, run_schedule


@contextmanager
def fake_gpus(*, seed: int = 0, lazy: int = 3) -> Iterator[list[FakeGpu]]:
    """Whoever opens the CUDA device inside gets a fake one; the list has them in order."""
    made: list[FakeGpu] = []

    def open_api() -> cuda_api.CudaApi:
        made.append(FakeGpu(seed=seed + len(made), lazy=lazy))
        return made[-1].api()

    real, cuda_api.open_api = cuda_api.open_api, open_api
    try:
        yield made
    finally:
        cuda_api.open_api = real


def run_on_fake(spec: RunSpec, *, seed: int = 0, lazy: int = 3) -> tuple[RunResult, FakeGpu]:
    """One schedule on the cuda device over a fake GPU of its own."""
    with fake_gpus(seed=seed, lazy=lazy) as made:
        result = run_schedule(spec)
    assert len(made) == 1, f"{len(made)} devices were opened; {result.crash}"
    return result, made[0]


def order_of(gpu: FakeGpu) -> Violation | None:
    """The first conflict of the calls and accesses that the fake saw that no edge orders."""
    oracle = OrderOracle()
    for record in order_records(gpu.log.records):
        for violation in oracle.feed(record):
            return violation
    return None
