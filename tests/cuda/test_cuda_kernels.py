"""What the kernels do to bytes: compiled for the CPU, in the simulator, and (with one) on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_kernels
import numpy as np
import pytest
from fake_kernels import Words
from kernel_cases import Runner, cases

from onearena.core import kernels
from onearena.core.device import cuda_kernels, cuda_programs
from onearena.core.device.cuda_api import cuda_available, open_api

CASES = dict(cases())


def on_cpu(name: str, arguments: tuple[Any, ...]) -> None:
    fake_kernels.run(
        name, tuple(Words(None, 0, a) if isinstance(a, np.ndarray) else a for a in arguments)
    )


def on_gpu(name: str, arguments: tuple[Any, ...]) -> None:
    import torch

    api = open_api()
    cuda = api.numba_cuda
    tensors = [torch.from_numpy(a).cuda() if isinstance(a, np.ndarray) else a for a in arguments]
    passed = [cuda.as_cuda_array(t) if isinstance(t, torch.Tensor) else t for t in tensors]
    stream = cuda.external_stream(torch.cuda.Stream().cuda_stream)
    torch.cuda.synchronize()
    api.kernels[name][(2, 2), 96, stream](*passed)
    torch.cuda.synchronize()
    for array, tensor in zip(arguments, tensors, strict=True):
        if isinstance(array, np.ndarray):
            array[:] = tensor.cpu().numpy()


@pytest.mark.parametrize("name", CASES)
def test_kernels_compiled_for_the_cpu(name: str) -> None:
    CASES[name](on_cpu)


@pytest.mark.cuda
@pytest.mark.skipif(not cuda_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", CASES)
def test_kernels_on_a_gpu(name: str) -> None:
    CASES[name](on_gpu)


def test_kernels_in_the_simulator() -> None:
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(folder / "simulated_kernels.py")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as it must be") == len(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_that_does_nothing_fails_its_case(name: str) -> None:
    """No case passes on its own."""
    runner: Runner = lambda _name, _arguments: None  # noqa: E731
    with pytest.raises(AssertionError):
        CASES[name](runner)


def test_columns_are_those_of_the_threads_device() -> None:
    shared = [
        name
        for name in vars(cuda_kernels)
        if name.startswith(("C_", "R_", "ROW_", "H_", "THREAD_")) and hasattr(kernels, name)
    ]
    assert len(shared) >= 20
    for name in shared:
        assert getattr(cuda_kernels, name) == getattr(kernels, name), name
    for name in ("H_CONTROL", "H_NUMBER", "H_GROUPS", "H_FILLS"):
        assert getattr(cuda_kernels, name) == getattr(cuda_programs, name)
        taken = {getattr(kernels, n) for n in vars(kernels) if n.startswith("H_")}
        assert getattr(cuda_kernels, name) not in taken
