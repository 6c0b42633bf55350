"""The parts of `ci/gpu_check`: each a process with a time limit of its own, then one JSON.

Exit codes: 0 every part passed, 1 one did not, 2 usage, or a GPU was asked for and there is none.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gpu_check_ptx
from evidence_common import git, machine

CI = Path(__file__).resolve().parent
TESTS = CI.parent / "tests" / "cuda"
PACKAGES = ("torch", "numba", "numba-cuda", "llvmlite", "numpy", "nvidia-cuda-nvcc-cu12")
OUTPUT_KEPT = 4000


@dataclass(frozen=True, slots=True)
class Part:
    """One process: arguments of the interpreter, and seconds it may take."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float
    shows: str


def _script(name: str, *arguments: str) -> tuple[str, ...]:
    return (str(CI / f"gpu_check_{name}.py"), *arguments)


WITHOUT_GPU = (
    Part(
        "ptx",
        _script("ptx"),
        120,
        "every kernel compiles for sm_80 and sm_90 and assembles without a spill or a stack frame",
    ),
    Part(
        "simulator",
        (str(TESTS / "simulated_kernels.py"),),
        60,
        "what the kernels compute at small sizes, in numba's CUDA simulator",
    ),
    Part(
        "choices",
        _script("choices", "--device", "fake", "--seeds", "200:212", "--jobs", "2"),
        150,
        "choices files on the cuda device over the strict fake: digests of the modeled device",
    ),
    Part(
        "mutants",
        _script("mutants", "--device", "fake", "--only", "W-forward-forward", "--budget", "20"),
        60,
        "a missing wait shows in bytes, over the strict fake",
    ),
    Part("bench", _script("bench", "--device", "fake"), 60, "the measuring code runs"),
)
# Limits of these sum up to six minutes.
WITH_GPU = (
    replace(WITHOUT_GPU[0], limit_s=60),
    Part(
        "tests",
        ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "cuda", str(TESTS)),
        70,
        "what the kernels compute and the device's calls do, on this GPU",
    ),
    Part(
        "choices",
        _script("choices", "--device", "cuda", "--seeds", "0:200", "--jobs", "4"),
        100,
        "choices files on this GPU: digests of the modeled device, and clean bytes",
    ),
    Part(
        "mutants",
        _script("mutants", "--device", "cuda", "--budget", "10", "--jobs", "5"),
        80,
        "ten missing waits show in this GPU's bytes",
    ),
    Part(
        "bench",
        _script("bench", "--device", "cuda"),
        50,
        "page copy against a plain copy, launch overhead, the ledger's cost of a forward",
    ),
)
NOT_SHOWN = (
    "that a GPU runs the kernels, or that their results on one are those of the simulator",
    "that torch's and numba's streams, events and captured graphs do what their pages say",
    "that real work overlaps, and that a missing wait then shows in a GPU's bytes",
    "any bandwidth, launch overhead or cost of the ledger",
    "another torch, numba or CUDA than the ones named above",
)


def run(part: Part, more: dict[str, str] | None = None) -> dict[str, Any]:
    """One part, ended with all its processes when its time is up; `more` environment for it."""
    command = [sys.executable, *part.arguments]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=CI.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**_environment(), **(more or {})},
    )
    try:
        output, _ = process.communicate(timeout=part.limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = 124
    lines = output.strip().splitlines()
    found: Any = None
    if lines and lines[-1].startswith("{"):
        found = json.loads(lines.pop())
    return {
        "part": part.name,
        "command": shlex.join(part.arguments),
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        "limit_s": part.limit_s,
        "result": found,
        "output": "\n".join(lines)[-OUTPUT_KEPT:],
    }


def find_onearena() -> None:
    """Without an installation, take the tree: its folders are packages under `ci/ns`."""
    try:
        found = importlib.util.find_spec("onearena.core")
    except ModuleNotFoundError:
        found = None
    if found is None:
        sys.path.append(str(CI / "ns"))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.environ.get("PYTHONPATH"), str(CI / "ns")])
        )


def toolkit_for_numba(folder: Path) -> dict[str, str]:
    """Where numba finds its compiler library on a GPU: in the toolkit that the machine names or
    has; else in the pinned package, laid out in `folder`. Empty if there is nothing to add.
    """
    named = any(os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    if named or Path("/usr/local/cuda").exists() or not _has_package():
        return {}
    gpu_check_ptx.toolkit(folder, gpu_check_ptx.package_folder())
    return {"CUDA_HOME": str(folder)}


def _has_package() -> bool:
    try:
        return importlib.util.find_spec("nvidia.cuda_nvcc") is not None
    except ModuleNotFoundError:
        return False


def _environment() -> dict[str, str]:
    """Scripts import what lies beside them, and the tests' helpers."""
    paths = [str(TESTS), str(CI), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def versions() -> dict[str, str]:
    """Packages that matter here; what is not installed is left out."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def driver() -> str:
    """What `nvidia-smi` says of card and driver; empty where there is none."""
    query = "--query-gpu=name,driver_version,memory.total"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def summary(part: Part, row: dict[str, Any]) -> str:
    """One line of a part."""
    said = "passed" if row["exit_code"] == 0 else f"FAILED (exit code {row['exit_code']})"
    if row["exit_code"] == 124:
        said = f"FAILED: not done after {part.limit_s:.0f} s"
    more = ""
    result = row["result"] or {}
    if part.name == "choices" and "replayed" in result:
        more = f"; {result['agreeing']} of {result['replayed']} replayed agree, of "
        more += f"{result['asked']} asked for"
    return f"{part.name}: {said} in {row['seconds']} s: {part.shows}{more}"


def main() -> int:
    """All parts, their summary, the JSON."""
    parser = argparse.ArgumentParser(prog="ci/gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--no-gpu", action="store_true", help="only what needs no GPU")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there")
    parser.add_argument("--only", metavar="PART,...", help="some parts only")
    chosen = parser.parse_args()
    parts = WITHOUT_GPU if chosen.no_gpu else WITH_GPU
    if chosen.only:
        names = chosen.only.split(",")
        unknown = sorted(set(names) - {part.name for part in parts})
        if unknown:
            parser.error(f"--only: no part {unknown[0]}; give {', '.join(p.name for p in parts)}")
        parts = tuple(part for part in parts if part.name in names)
    find_onearena()
    if not chosen.no_gpu:
        from onearena.core.device.cuda_api import cuda_available

        if not cuda_available():
            parser.error("this machine shows no CUDA device to torch; give --no-gpu")
    print("versions: " + ", ".join(f"{name} {text}" for name, text in versions().items()))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        more = {} if chosen.no_gpu else toolkit_for_numba(Path(folder))
        for part in parts:
            row = run(part, more)
            rows.append(row)
            print(summary(part, row), flush=True)
            if row["exit_code"]:
                print(row["output"])
    if chosen.no_gpu:
        print("Not shown, because no GPU was used:")
        for text in NOT_SHOWN:
            print(f"  - {text}")
    if chosen.out is not None:
        document = {
            "version": 1,
            "command": shlex.join(["ci/gpu_check", *sys.argv[1:]]),
            "commit": git("rev-parse", "HEAD"),
            "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "card_and_driver": driver(),
            "versions": versions(),
            "not_shown": list(NOT_SHOWN) if chosen.no_gpu else [],
            "parts": rows,
        }
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(row["exit_code"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
