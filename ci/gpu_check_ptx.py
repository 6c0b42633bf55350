"""Compile every kernel of the cuda device to PTX and assemble it; read what came out. Needs no GPU.

Compiler and assembler come from the package `nvidia-cuda-nvcc-cu12` that the `dev` extra pins,
never from what a machine happens to have: the version in each PTX text is compared with its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

PACKAGE = "nvidia-cuda-nvcc-cu12"
ARCHITECTURES = ("8.0", "9.0")
WIDE_LOADS = ("page_copy",)
WIDE_STORES = ("page_copy", "stamp_write", "zero")
LOAD_16 = re.compile(r"\bld\.global(?:\.\w+)*\.v2\.[bu]64\b")
STORE_16 = re.compile(r"\bst\.global(?:\.\w+)*\.v2\.[bu]64\b")
# The address of a memory access stands in brackets: a register of 64 bits is called %rd.
NARROW_ADDRESS = re.compile(r"\b(?:ld|st|atom|red)\.\S+\s+[^;]*\[%r\d")
NO_STACK = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"


def package_folder() -> Path:
    """Where the pinned package lies; exits with one line if it does not."""
    found = importlib.util.find_spec("nvidia.cuda_nvcc")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        sys.exit(f"gpu_check ptx: {PACKAGE} is not installed; pip install -e '.[dev]'")
    return Path(places[0])


def toolkit(folder: Path, package: Path) -> None:
    """Lay the package out as numba looks for a toolkit: with a version in the library's name."""
    libraries = folder / "nvvm" / "lib64"
    libraries.mkdir(parents=True)
    (libraries / "libnvvm.so.4").symlink_to(package / "nvvm" / "lib64" / "libnvvm.so")
    (folder / "nvvm" / "libdevice").symlink_to(package / "nvvm" / "libdevice")
    # numba asks the runtime library, where there is one, which GPUs it may compile for.
    (folder / "lib64").mkdir()
    for path in sorted(package.parent.glob("*/lib/libcudart.so.*")):
        link = folder / "lib64" / path.name
        if not link.exists():
            link.symlink_to(path)


def ptx_problems(name: str, text: str, architecture: str, version: str) -> list[str]:
    """What is wrong with the PTX of a kernel; empty if nothing is."""
    problems = []
    target = re.search(r"^\.target (\S+)", text, re.MULTILINE)
    wanted = "sm_" + architecture.replace(".", "")
    if target is None or target[1] != wanted:
        problems.append(f"its target is {target and target[1]}, not {wanted}")
    if re.search(r"^\.address_size 64$", text, re.MULTILINE) is None:
        problems.append("its addresses are not of 64 bits")
    if f"V{version}" not in text:
        problems.append(f"it was not made by version {version}")
    if NARROW_ADDRESS.search(text):
        problems.append("an access has an address of 32 bits")
    if ".local" in text:
        problems.append("it uses local memory")
    if name in WIDE_LOADS and not LOAD_16.search(text):
        problems.append("it has no 16-byte load from global memory")
    if name in WIDE_STORES and not STORE_16.search(text):
        problems.append("it has no 16-byte store to global memory")
    return problems


def assembly_problems(report: str) -> list[str]:
    """What is wrong with a kernel by what `ptxas -v` says of it."""
    entries = re.findall(r"Compiling entry function", report)
    if len(entries) != 1:
        return [f"{len(entries)} kernels were assembled: {report.strip()[:200]}"]
    return [] if report.count(NO_STACK) == 1 else ["it spills, or has a stack frame"]


def registers_of(report: str) -> int:
    """Registers of a thread."""
    found = re.search(r"Used (\d+) registers", report)
    return int(found[1]) if found else -1


def prove(architecture: str) -> int:
    """Compile and assemble all kernels for one architecture, in this process, which
    `in_new_process` has prepared.
    """
    from numba import cuda
    from numba.cuda import dispatcher

    major, minor = (int(part) for part in architecture.split("."))
    # Kernels call functions of their own, which numba compiles for the current device. There is
    # none here: it gets the one the proof is for.
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=(major, minor))
    from onearena.core.device import cuda_kernels

    package = package_folder()
    version = importlib.metadata.version(PACKAGE)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kernel, signature in cuda_kernels.SIGNATURES.items():
            function = getattr(cuda_kernels, kernel).py_func
            text, _ = cuda.compile_ptx(function, signature, cc=(major, minor))
            path = folder / f"{kernel}.ptx"
            path.write_text(text, encoding="utf-8")
            target = "sm_" + architecture.replace(".", "")
            command = [package / "bin" / "ptxas", "-v", "-arch", target, path]
            done = subprocess.run(
                [*command, "-o", folder / "out.cubin"], capture_output=True, text=True, check=False
            )
            report = done.stdout + done.stderr
            problems = ptx_problems(kernel, text, architecture, version)
            problems += assembly_problems(report)
            if done.returncode:
                problems.append(f"ptxas gave exit code {done.returncode}")
            rows.append((kernel, registers_of(report), problems))
    for kernel, registers, problems in rows:
        said = "; ".join(problems) or f"{registers} registers, no spill, no stack frame"
        print(f"sm {architecture} {kernel}: {said}")
    return int(any(problems for _, _, problems in rows))


def in_new_process(architecture: str, folder: Path) -> subprocess.Popen[str]:
    """`prove` with the environment that numba reads when it is imported."""
    home = folder / architecture
    toolkit(home, package_folder())
    environment = {
        **os.environ,
        "CUDA_HOME": str(home),
        "NUMBA_FORCE_CUDA_CC": architecture,
        "NUMBA_ENABLE_CUDASIM": "0",
    }
    command = [sys.executable, __file__, "--here", architecture]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def main() -> int:
    """All architectures, side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", metavar="X.Y", help="one architecture, in this process")
    chosen = parser.parse_args()
    if chosen.here:
        return prove(chosen.here)
    with tempfile.TemporaryDirectory() as name:
        running = [in_new_process(each, Path(name)) for each in ARCHITECTURES]
        outputs = [process.communicate()[0] for process in running]
    print("".join(outputs), end="")
    print(json.dumps({"package": PACKAGE, "version": importlib.metadata.version(PACKAGE)}))
    return int(any(process.returncode for process in running))


if __name__ == "__main__":
    sys.exit(main())
