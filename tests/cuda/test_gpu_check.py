"""What `ci/gpu_check` says: its readers of PTX see what they are for, and it speaks of its gaps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = """
// Cuda compilation tools, release 12.9, V12.9.86
.version 8.8
.target sm_90
.address_size 64
	ld.global.v2.u64 	{%rd20, %rd21}, [%rd19];
	st.global.v2.u64 	[%rd17], {%rd20, %rd21};
	ld.volatile.global.u64 %rd1, [%rd2];
"""
REPORT = """
ptxas info    : Compiling entry function 'k' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 48 registers, used 0 barriers
"""


@pytest.fixture
def ptx(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    import gpu_check_ptx

    return gpu_check_ptx


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "ci"))
    import gpu_check_parts

    return gpu_check_parts


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sm_90", "sm_80", "its target is sm_80"),
        (".target sm_90\n", "", "its target is None"),
        (".address_size 64", ".address_size 32", "not of 64 bits"),
        ("12.9.86", "13.0.88", "not made by version 12.9.86"),
        ("ld.global.v2.u64", "ld.global.u64", "no 16-byte load"),
        ("st.global.v2.u64", "st.global.u64", "no 16-byte store"),
        ("%rd1, [%rd2]", "%rd1, [%r2]", "address of 32 bits"),
        ("ld.volatile", ".local .align 8 .b8 __local_depot0[8];\nld.volatile", "local memory"),
    ],
)
def test_ptx_that_is_not_as_it_should_be_is_told(
    ptx: ModuleType, old: str, new: str, said: str
) -> None:
    assert ptx.ptx_problems("page_copy", GOOD, "9.0", "12.9.86") == []
    assert old in GOOD
    found = ptx.ptx_problems("page_copy", GOOD.replace(old, new), "9.0", "12.9.86")
    assert len(found) == 1
    assert said in found[0]


def test_an_assembly_that_spills_is_told(ptx: ModuleType) -> None:
    assert ptx.assembly_problems(REPORT) == []
    assert ptx.registers_of(REPORT) == 48
    for old, new in (
        ("0 bytes stack", "16 bytes stack"),
        ("0 bytes spill stores", "8 bytes spill stores"),
        ("0 bytes spill loads", "8 bytes spill loads"),
        ("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", ""),
    ):
        assert ptx.assembly_problems(REPORT.replace(old, new)) == [
            "it spills, or has a stack frame"
        ]
    assert "0 kernels were assembled" in ptx.assembly_problems("ptxas fatal : no")[0]


def test_the_parts_fit_six_minutes_and_a_part_that_hangs_is_ended(parts: ModuleType) -> None:
    assert sum(part.limit_s for part in parts.WITH_GPU) <= 360
    slow = parts.Part("slow", ("-c", "import time; print('on'); time.sleep(60)"), 1.0, "nothing")
    row = parts.run(slow)
    assert row["exit_code"] == 124
    assert row["seconds"] < 30
    assert "FAILED: not done after 1 s" in parts.summary(slow, row)
    bad = parts.Part("bad", ("-c", "print('why'); raise SystemExit(3)"), 20.0, "nothing")
    row = parts.run(bad)
    assert (row["exit_code"], row["output"]) == (3, "why")
    assert "FAILED (exit code 3)" in parts.summary(bad, row)


def test_numba_gets_a_toolkit_only_where_the_machine_names_none(
    parts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not parts._has_package():
        pytest.skip("needs the package nvidia-cuda-nvcc-cu12")
    monkeypatch.setenv("CUDA_HOME", "somewhere")
    assert parts.toolkit_for_numba(tmp_path / "a") == {}
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    real = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: str(path) != "/usr/local/cuda" and real(path))
    home = tmp_path / "b"
    assert parts.toolkit_for_numba(home) == {"CUDA_HOME": str(home)}
    assert (home / "nvvm" / "lib64" / "libnvvm.so.4").resolve().is_file()
    assert list((home / "nvvm" / "libdevice").glob("libdevice*.bc"))


def test_without_an_installation_the_tree_is_taken(parts: ModuleType) -> None:
    """Another interpreter's view: nothing is installed, only the scripts are there."""
    text = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "import gpu_check_parts as parts\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in str(f)]\n"
        "parts.find_onearena()\n"
        "from onearena.core import geometry\n"
        "print(geometry.__file__)\n"
    )
    command = [sys.executable, "-c", text, str(ROOT / "ci")]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip())
    assert found.is_relative_to(ROOT / "ci" / "ns"), "not by an installation"
    assert found.resolve() == ROOT / "core" / "geometry.py"


def test_the_mutants_named_are_in_the_registry(parts: ModuleType) -> None:
    from gpu_check_common import NAMED_MUTANTS, REGISTRY

    from onearena.stress.mutants import load_registry

    assert len(NAMED_MUTANTS) == len(set(NAMED_MUTANTS)) == 10
    assert set(NAMED_MUTANTS) <= {mutant.id for mutant in load_registry(REGISTRY)}


def _gpu_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "ci" / "gpu_check"), *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "PYTHON": sys.executable},
    )


def test_one_part_passes_and_says_what_no_gpu_leaves_open() -> None:
    done = _gpu_check("--no-gpu", "--only", "bench")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bench: passed in" in done.stdout
    assert "Not shown, because no GPU was used:" in done.stdout
    assert done.stdout.count("\n  - ") == 5


def test_misuse_is_one_line_and_exit_code_2() -> None:
    from onearena.core.device.cuda_api import cuda_available

    done = _gpu_check("--no-gpu", "--only", "nothing")
    assert done.returncode == 2
    assert "--only: no part nothing" in done.stderr
    if not cuda_available():
        done = _gpu_check()
        assert done.returncode == 2
        assert "give --no-gpu" in done.stderr
