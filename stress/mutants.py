"""Planted faults: source patches of product code, applied when a module is imported.

A registry (TOML, outside the package) lists mutants. Each names the rule it breaks, the oracle that
is meant to see it, and patches: a module, a text that occurs exactly once in its source, and what
stands there instead. The patched module is compiled from the changed text; product code has no
switch and no guard, and nothing after the import can tell which mutant is on.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from onearena.core.errors import UsageError

REGISTRY_BYTES_MAX: Final = 1 << 21
KERNELS: Final = "onearena.core.kernels"
REGISTRY_DEFAULT: Final = Path("tests/mutants/registry.toml")


@dataclass(frozen=True, slots=True)
class Patch:
    """`old`, which occurs exactly once in the source of `module`, becomes `new`."""

    module: str
    old: str
    new: str

    def apply(self, source: str, *, mutant: str) -> str:
        """The patched source; `UsageError` if the text is not there exactly once."""
        count = source.count(self.old)
        if count != 1:
            raise UsageError(
                f"mutant {mutant}: {self.module}",
                self.old.strip().splitlines()[0] if self.old.strip() else self.old,
                f"the text to replace occurs {count} times; make it occur exactly once",
            )
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted fault. `intended` is the oracle meant to see it, `rule` what it breaks."""

    id: str
    title: str
    rule: str
    intended: str
    patches: tuple[Patch, ...]

    @property
    def touches_kernels(self) -> bool:
        """Whether compiled kernels change, so that their cache must not be shared."""
        return any(patch.module == KERNELS for patch in self.patches)

    def fingerprint(self) -> str:
        """A short hash of the patches, for a cache folder of compiled kernels."""
        digest = hashlib.blake2b(digest_size=8)
        for patch in self.patches:
            digest.update(f"{patch.module}\0{patch.old}\0{patch.new}\0".encode())
        return digest.hexdigest()


def load_registry(path: Path) -> tuple[Mutant, ...]:
    """All mutants of a registry file, in order. `UsageError` names what is wrong with it."""
    try:
        with path.open("rb") as file:
            raw = file.read(REGISTRY_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(
            "--registry", str(path), f"give a registry file ({error.strerror})"
        ) from None
    if len(raw) > REGISTRY_BYTES_MAX:
        raise UsageError("--registry", str(path), f"keep it below {REGISTRY_BYTES_MAX} bytes")
    try:
        table = tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError("--registry", str(path), f"make it valid TOML ({error})") from None
    rows = table.get("mutant")
    if not isinstance(rows, list) or not rows:
        raise UsageError("--registry", str(path), "list mutants as [[mutant]] tables")
    mutants = tuple(_mutant(row, f"mutant[{index}]") for index, row in enumerate(rows))
    seen: set[str] = set()
    for mutant in mutants:
        if mutant.id in seen:
            raise UsageError("mutant.id", mutant.id, "give each mutant an id of its own")
        seen.add(mutant.id)
    return mutants


def _mutant(row: object, where: str) -> Mutant:
    if not isinstance(row, dict):
        raise UsageError(where, row, "make it a table")
    fields = {name: _text(row, name, where) for name in ("id", "title", "rule", "intended")}
    patches = row.get("patch")
    if not isinstance(patches, list) or not patches:
        raise UsageError(f"{where}.patch", patches, "list at least one [[mutant.patch]]")
    return Mutant(
        **fields,
        patches=tuple(
            _patch(item, f"{where}.patch[{index}]") for index, item in enumerate(patches)
        ),
    )


def _patch(row: object, where: str) -> Patch:
    if not isinstance(row, dict):
        raise UsageError(where, row, "make it a table")
    module = _text(row, "module", where)
    if not module.startswith("onearena."):
        raise UsageError(f"{where}.module", module, "name a module of onearena")
    return Patch(module, _text(row, "old", where), _text(row, "new", where, empty=True))


def _text(row: dict[str, Any], name: str, where: str, *, empty: bool = False) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise UsageError(f"{where}.{name}", value, "give a text")
    return value


class _PatchedLoader(importlib.machinery.SourceFileLoader):
    """Compiles the patched text; never reads or writes a bytecode cache."""

    patches: tuple[Patch, ...] = ()
    mutant: str = ""

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_source(fullname)
        assert source is not None, fullname
        for patch in self.patches:
            source = patch.apply(source, mutant=self.mutant)
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds patched modules first; leaves all others to the finders behind it."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._modules = {patch.module for patch in mutant.patches}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.origin is not None:
                loader = _PatchedLoader(fullname, spec.origin)
                loader.patches = tuple(p for p in self._mutant.patches if p.module == fullname)
                loader.mutant = self._mutant.id
                return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)
        return None


def plant(mutant: Mutant) -> None:
    """Plant `mutant` in this process, before any module it patches is imported."""
    loaded = sorted(patch.module for patch in mutant.patches if patch.module in sys.modules)
    assert not loaded, f"mutant {mutant.id} comes too late: {loaded} are imported"
    sys.meta_path.insert(0, _Finder(mutant))


def check_patches(mutants: Iterable[Mutant]) -> list[str]:
    """One line for each patch that does not apply to today's source, or changes nothing."""
    wrong = []
    for mutant in mutants:
        for patch in mutant.patches:
            spec = importlib.util.find_spec(patch.module)
            if spec is None or spec.origin is None:
                wrong.append(f"{mutant.id}: no module {patch.module}")
                continue
            source = Path(spec.origin).read_text(encoding="utf-8")
            try:
                changed = patch.apply(source, mutant=mutant.id)
                compile(changed, spec.origin, "exec", dont_inherit=True)
            except (UsageError, SyntaxError) as error:
                wrong.append(f"{mutant.id}: {error}")
                continue
            if changed == source:
                wrong.append(f"{mutant.id}: {patch.module}: the patch changes nothing")
    return wrong
