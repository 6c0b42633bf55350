#!/usr/bin/env python3
"""Page copy against the C library's memcpy, over the same offsets, in the same run.

For units of 16 KiB to 64 MiB: a list of pages, source and target offsets shuffled, copied by
`kernels.copy_pages` and by one memcpy a page called from compiled code (a C function pointer from
the C library, called in a compiled loop). Rounds alternate, the order of the two swaps each round,
and the figure is the best round of each: on a shared machine all others measure the neighbours.
Prints a table, or JSON with --json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import time
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from onearena.core import kernels

AIM = 0.9
UNITS = (16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
REGION_BYTES = 256 << 20
ROUNDS = 40

_memcpy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t)(
    ("memcpy", ctypes.CDLL(None))
)


@njit(nogil=True)
def _libc_copies(target: Any, targets: Any, source: Any, sources: Any, nbytes: int) -> None:
    into, out_of = target.ctypes.data, source.ctypes.data
    for k in range(sources.size):
        _memcpy(into + targets[k], out_of + sources[k], nbytes)


def measure(unit_bytes: int, memory: NDArray[np.uint8], rounds: int) -> dict[str, Any]:
    """Bytes per second of both over one list of pages; half of the region is read, half written."""
    pages = min(len(memory) // (2 * unit_bytes), 256)
    rng = np.random.default_rng(unit_bytes)
    slots = rng.permutation(len(memory) // unit_bytes)[: 2 * pages] * unit_bytes
    sources, targets = slots[:pages].astype(np.int64), slots[pages:].astype(np.int64)
    calls = {"copy_pages": kernels.copy_pages, "libc memcpy": _libc_copies}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name in sorted(calls, reverse=bool(turn % 2)):
            started = time.perf_counter()
            calls[name](memory, targets, memory, sources, unit_bytes)
            if turn:  # the first round touches the pages
                seconds[name].append(time.perf_counter() - started)
    for source, target in zip(sources[:4].tolist(), targets[:4].tolist(), strict=True):
        same = memory[source : source + unit_bytes] == memory[target : target + unit_bytes]
        assert same.all(), f"page at {source} was not copied to {target}"
    rates = {name: pages * unit_bytes / min(times) / 1e9 for name, times in seconds.items()}
    return {
        "unit_bytes": unit_bytes,
        "pages": pages,
        "gb_per_s": {name: round(rate, 2) for name, rate in rates.items()},
        "ratio": round(rates["copy_pages"] / rates["libc memcpy"], 3),
    }


def main() -> int:
    """Measure every unit size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {options.rounds}")
    memory = np.random.default_rng(1).integers(0, 256, REGION_BYTES, np.uint8)
    rows = [measure(unit, memory, options.rounds) for unit in UNITS]
    report = {
        "aim": AIM,
        "met": all(row["ratio"] >= AIM for row in rows),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "rows": rows,
    }
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    for row in rows:
        rates = ", ".join(f"{name} {rate:.2f} GB/s" for name, rate in row["gb_per_s"].items())
        print(f"{row['unit_bytes'] >> 10:>6} KiB x {row['pages']:>3}: {rates}, {row['ratio']:.2f}")
    print(f"aim: at least {AIM} everywhere: {'met' if report['met'] else 'NOT met'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
