"""The kernels themselves under numba's CUDA simulator, at small sizes. Run as a script, with
NUMBA_ENABLE_CUDASIM=1 from the start: numba reads it when it is imported.
"""

from __future__ import annotations

import os
import sys
import warnings

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

from kernel_cases import cases

from onearena.core.device import cuda_kernels

# Blocks a row, rows at once, threads: less than there is to do, so that every loop goes round.
GRID, THREADS = (2, 2), 3


def simulate(name: str, arguments: tuple[object, ...]) -> None:
    """One launch in the simulator."""
    getattr(cuda_kernels, name)[GRID, THREADS](*arguments)


def main() -> int:
    """Every case; 1 if one fails."""
    # Patterns wrap around, as 64-bit words do; numpy warns of it, in every thread anew.
    warnings.filterwarnings("ignore", "overflow", RuntimeWarning)
    failed = 0
    for name, case in cases():
        try:
            case(simulate)
        except AssertionError as error:
            failed += 1
            print(f"{name}: {error}")
        else:
            print(f"{name}: as it must be")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
