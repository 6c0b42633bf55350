"""Compiled kernels for a process with patched kernels: a cache of its own, filled where safe.

numba looks a kernel up by its name, first line and byte code, and sees no change in what it calls.
So a patched process gets a cache folder of its own, and from the clean cache only kernels that
neither contain a changed line nor call, through any number of others, one that does. The rest is
compiled anew: seconds in place of minutes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from onearena.stress.mutants import KERNELS, Mutant

CACHE_SUFFIXES: Final = ("*.nbi", "*.nbc")


def cache_folder(mutant: Mutant) -> Path:
    """The folder for `NUMBA_CACHE_DIR` of a process with this mutant, filled if it is new."""
    spec = importlib.util.find_spec(KERNELS)
    origin = Path((spec and spec.origin) or "")
    assert origin.is_file(), f"{KERNELS} is not there"
    source = origin.read_text(encoding="utf-8")
    stamp = hashlib.blake2b(source.encode(), digest_size=6).hexdigest()
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    folder = (
        Path(tempfile.gettempdir()) / f"onearena-mutants-{user}" / f"{mutant.fingerprint()}-{stamp}"
    )
    # numba's own name for the folder of one source file below the cache folder.
    place = hashlib.sha1(str(origin.parent).encode()).hexdigest()  # noqa: S324 - no secret
    inner = folder / f"{origin.parent.name}_{place}"
    if not inner.exists():
        inner.mkdir(parents=True)
        for name, line in safe_kernels(source, mutant):
            for suffix in CACHE_SUFFIXES:
                for file in (origin.parent / "__pycache__").glob(
                    f"{origin.stem}.{name}-{line}.{suffix}"
                ):
                    shutil.copy2(file, inner / file.name)
    return folder


def safe_kernels(source: str, mutant: Mutant) -> list[tuple[str, int]]:
    """(name, first line) of the kernels that a mutant changes neither themselves nor below."""
    functions = {
        node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
    }
    changed: set[str] = set()
    for patch in mutant.patches:
        if patch.module != KERNELS:
            continue
        at = source.index(patch.old)
        first = source.count("\n", 0, at) + 1
        lines = range(first, first + patch.old.count("\n"))
        inside = {
            name
            for name, node in functions.items()
            if _first_line(node) <= lines[0] and lines[-1] <= (node.end_lineno or 0)
        }
        if not inside:
            return []  # a constant, or more than one function: anything may have changed
        changed |= inside
    calls = {
        name: {
            call.func.id
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        for name, node in functions.items()
    }
    grown = True
    while grown:
        more = {name for name, called in calls.items() if called & changed} - changed
        changed |= more
        grown = bool(more)
    return [(name, _first_line(node)) for name, node in functions.items() if name not in changed]


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
