"""The part of torch and of numba's CUDA target that the cuda device calls, as one value.

The device reaches a GPU through nothing else, so tests put a strict fake in its place.
`docs/cuda.md` lists every call and the documented rule it has to keep.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from onearena.core.errors import DeviceError

Answer = TypeVar("Answer")

UNAVAILABLE = "this machine shows no CUDA device to torch; give modeled or threads"


@dataclass(frozen=True, slots=True)
class CudaApi:
    """torch: `empty`, the dtypes, and `cuda` with `Stream`, `Event`, `stream`, `CUDAGraph`,
    `synchronize`. numba_cuda: `as_cuda_array`, `external_stream`. kernels: by name, launched as
    `kernel[blocks, threads, stream](*arguments)`. errors: what a failed call raises.
    """

    torch: Any
    numba_cuda: Any
    kernels: Mapping[str, Any]
    errors: tuple[type[Exception], ...]


class Checked:
    """Makes calls and turns what they raise into `DeviceError`, once and for all: a CUDA error may
    be sticky and may have hit any work, so nothing is called after it.
    """

    __slots__ = ("_errors", "error")

    def __init__(self, errors: tuple[type[Exception], ...]) -> None:
        self._errors = errors
        self.error: str | None = None

    def check(self) -> None:
        """Raise `DeviceError` if a call has failed before."""
        if self.error is not None:
            raise DeviceError(f"the device broke down: {self.error}")

    def fail(self, message: str) -> DeviceError:
        """Remember the first error; answers the exception to raise."""
        if self.error is None:
            self.error = message
        return DeviceError(f"the device broke down: {self.error}")

    def call(self, what: str, call: Callable[..., Answer], *arguments: Any) -> Answer:
        """`call(*arguments)`; `what` names it in the error."""
        self.check()
        try:
            return call(*arguments)
        except self._errors as error:
            raise self.fail(f"{what}: {type(error).__name__}: {error}") from error


def cuda_available() -> bool:
    """Whether torch and numba both see a CUDA device. Imports both; 1 s."""
    import torch

    if not torch.cuda.is_available():
        return False
    cuda: Any = importlib.import_module("numba.cuda")
    return bool(cuda.is_available())


def open_api() -> CudaApi:
    """The real thing; `DeviceError` where there is no GPU. Slow: the kernels are compiled at their
    first launch.
    """
    if not cuda_available():
        raise DeviceError(UNAVAILABLE)
    torch: Any = importlib.import_module("torch")
    cuda: Any = importlib.import_module("numba.cuda")
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    from numba.cuda.cudadrv.driver import CudaAPIError

    from onearena.core.device import cuda_kernels

    # A launch over few rows is small, and meant to be: numba would warn of each of them.
    dispatcher.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    # numba keeps the context that torch has made: both use the device's primary one.
    torch.cuda.init()
    kernels = {name: getattr(cuda_kernels, name) for name in cuda_kernels.SIGNATURES}
    return CudaApi(torch, cuda, kernels, (RuntimeError, CudaAPIError))
