"""Each wrong use of streams and events, planted in the device, is refused or convicted."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from fake_cuda import Misuse
from fake_runs import order_of, run_on_fake

from onearena.stress.mutants import Mutant, check_patches, load_registry
from onearena.stress.run import RunSpec

WRONG_USES = load_registry(Path(__file__).with_name("wrong_uses.toml"))
# What has the device's modules by name, in the order in which they import each other.
MODULES = (
    "onearena.core.device.cuda_launches",
    "onearena.core.device.cuda",
    "onearena.core.device.cuda_paired",
    "onearena.stress.cuda_forwards",
)
SEEDS_MAX = 60
"""A hunt ends at its first conviction; most need a schedule or two, one in ten shows some faults.
"""
LAZY = 2000
"""Hardly anything runs before the host asks: what it does not ask for stays undone for long."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The cuda device, compiled anew with the mutant's patches, in place of the real one."""
    before = {name: importlib.import_module(name) for name in MODULES}
    texts = {patch.module for patch in mutant.patches}
    assert texts <= set(MODULES), texts
    try:
        for name in MODULES:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            source = Path(spec.origin).read_text(encoding="utf-8")
            for patch in mutant.patches:
                if patch.module == name:
                    source = patch.apply(source, mutant=mutant.id)
            _replace(name, source, spec.origin)
        yield
    finally:
        for name, module in before.items():
            _install(name, module)


def _replace(name: str, source: str, origin: str) -> None:
    module = ModuleType(name)
    module.__file__, module.__package__ = origin, name.rpartition(".")[0]
    _install(name, module)
    exec(compile(source, origin, "exec"), module.__dict__)


def _install(name: str, module: ModuleType) -> None:
    parent, _, short = name.rpartition(".")
    sys.modules[name] = module
    setattr(sys.modules[parent], short, module)


def verdict(seed: int) -> tuple[str, str]:
    """Who objects to a schedule on the device as it is now, and what they say."""
    try:
        result, gpu = run_on_fake(RunSpec(seed, device="cuda"), seed=seed, lazy=LAZY)
    except Misuse:  # met, perhaps once more, when the device was closed
        return "fake", Misuse.seen[0]
    if Misuse.seen:
        return "fake", Misuse.seen[0]
    if "without a verdict" in result.crash:
        return "device", result.crash
    conflict = order_of(gpu)
    if conflict is not None:
        return "order", conflict.message
    return result.verdict, result.crash


def test_there_are_ten_and_they_apply_to_the_source_as_it_is() -> None:
    assert len(WRONG_USES) >= 10
    assert {mutant.intended for mutant in WRONG_USES} == {"fake", "order", "device"}
    assert check_patches(WRONG_USES) == []


@pytest.mark.parametrize("mutant", WRONG_USES, ids=lambda mutant: mutant.id)
def test_a_wrong_use_is_refused_or_convicted(mutant: Mutant) -> None:
    found: list[tuple[str, str]] = []
    with planted(mutant):
        for seed in range(SEEDS_MAX):
            found.append(verdict(seed))
            if found[-1][0] == mutant.intended:
                break
    print(found[-1])
    assert found[-1][0] == mutant.intended, found


def test_the_device_as_it_is_has_no_objector() -> None:
    """The same seeds, planted with nothing: compiled anew, and clean."""
    with planted(Mutant("none", "nothing", "6", "order", ())):
        assert {verdict(seed)[0] for seed in range(3)} == {"pass"}
