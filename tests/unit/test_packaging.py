"""The packages, their data and the command are in the wheel, and heavy imports stay lazy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("core", "dashboard", "metrics", "stress")
HEAVY = ("torch", "numba", "streamlit", "pandas", "prometheus_client", "rich.console", "numpy")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def _folders() -> set[Path]:
    """Every folder under the packages that holds Python, whether or not it was declared."""
    return {path.parent.relative_to(ROOT) for top in TOPS for path in (ROOT / top).rglob("*.py")}


def test_package_list_equals_the_folders(pyproject):
    # A folder that the list misses imports fine from a checkout and is absent from the wheel.
    declared = set(pyproject["tool"]["setuptools"]["packages"])
    assert declared == {"onearena." + ".".join(folder.parts) for folder in _folders()}
    assert set(pyproject["tool"]["setuptools"]["package-dir"].items()) == {
        (f"onearena.{top}", top) for top in TOPS
    }


def test_every_package_is_typed_and_a_package():
    for folder in _folders():
        for name in ("__init__.py", "py.typed"):
            assert (ROOT / folder / name).is_file(), f"{folder}/{name} is missing"
    # onearena itself is a namespace: a file there would be in no folder of the checkout.
    assert not (ROOT / "onearena").exists()


def test_links_for_type_checkers_reach_the_folders():
    links = ROOT / "ci" / "ns" / "onearena"
    assert sorted(link.name for link in links.iterdir()) == sorted(TOPS)
    for link in links.iterdir():
        assert link.resolve() == ROOT / link.name
        assert link.readlink() == Path(f"../../../{link.name}")


def test_imports_come_from_this_checkout_once():
    import onearena.core.errors

    assert Path(onearena.core.errors.__file__).resolve() == ROOT / "core" / "errors.py"
    assert "core" not in sys.modules, "a test imported core beside onearena.core"


def test_every_dependency_has_its_reason(pyproject):
    page = (ROOT / "docs" / "dependencies.md").read_text()
    rows = {tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in page.splitlines()}
    reasons = {row[:2] for row in rows if len(row) == 3 and row[2]}
    project = pyproject["project"]
    for requirement in project["dependencies"]:
        name = re.match(r"[\w-]+", requirement)[0]
        assert (name, requirement.removeprefix(name)) in reasons, requirement
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements:
            name = re.match(r"[\w-]+", requirement)[0]
            named = any(row[0] == extra and name in row[1].split(", ") for row in reasons)
            assert named or name == "onearena", f"{extra}: {requirement}"


def _imported_by(statement: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after the statement."""
    code = f"{statement}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.rsplit("\n", 2)[-2]))


def test_help_imports_nothing_heavy():
    loaded = _imported_by("from onearena.stress.cli import run; assert run(['--help']) == 0")
    assert loaded.isdisjoint(HEAVY)
    # The other way round: this way of looking does see them when they are imported.
    assert "numpy" in _imported_by("import numpy")


@pytest.mark.parametrize("module", ["geometry", "plan", "fit", "relayout", "models", "demand"])
def test_pure_modules_import_no_torch(module):
    if not (ROOT / "core" / f"{module}.py").exists():
        pytest.skip(f"core/{module}.py does not exist yet")
    loaded = _imported_by(f"import onearena.core.{module}")
    assert loaded.isdisjoint({"torch", "streamlit", "prometheus_client"})


@pytest.mark.parametrize("package", TOPS)
def test_dependencies_point_inward(package):
    # core knows nobody; the dashboard and the metrics read data from core and never the harness.
    allowed = {
        "core": {"core"},
        "dashboard": {"core", "dashboard", "metrics"},
        "metrics": {"core", "metrics"},
        "stress": {"core", "dashboard", "metrics", "stress"},
    }[package]
    for path in (ROOT / package).rglob("*.py"):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] in {"from", "import"}:
                target = words[1].split(".")
                if target[0] == "onearena" and len(target) > 1:
                    assert target[1] in allowed, f"{path.relative_to(ROOT)}: {line.strip()}"


@pytest.mark.slow
def test_wheel_holds_every_source_and_data_file(tmp_path):
    # In a copy: setuptools builds in place, and an old build/ would hide a file that is missing
    # now.
    source = tmp_path / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source)
    for top in TOPS:
        shutil.copytree(ROOT / top, source / top, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    if done.returncode != 0 and "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("pip cannot fetch setuptools here, and a wheel cannot be built without it")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "onearena = onearena.stress.cli:main" in archive.read(entry_points).decode()
    expected = set()
    for top in TOPS:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(f"onearena/{path.relative_to(ROOT)}")
    assert expected <= names, f"not in the wheel: {sorted(expected - names)}"
