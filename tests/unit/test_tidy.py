"""The project's own rules about its text: sizes, words, links, pages that a program writes.

Every rule has a twin below that feeds it a text that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "stress", "metrics", "dashboard")
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500

# Functions that may be longer, each up to its number of lines and for its reason. The list only
# shrinks: an entry that is no longer needed fails.
LONG_FUNCTIONS: dict[str, tuple[int, str]] = {
    "core/kernels.py:_search_band": (
        72,
        "one sliding minimum; its eight moving counters would be arguments and results of a helper",
    ),
}
# All compiled kernels live in one file (those of a GPU in another one), because numba's cache does
# not notice a change in another.
LONG_FILES = {"core/kernels.py", "core/device/cuda_kernels.py"}

# Words that say that something was left for later, or was looked at and forgotten.
UNFINISHED = re.compile(r"\b(FIXME|TODO|XXX|HACK)\b|\bbreakpoint\(\)|\bpdb\b")
# The project speaks only of itself: no path of some machine, no tracker, no registry host.
FOREIGN = re.compile(
    r"/(work|root|home/\w+|opt/wheels)\b(?!-)|\b(issue|task|ticket) #?\d+\b|pypi\.org|pythonhosted"
    r"|download\.pytorch\.org",
    re.IGNORECASE,
)
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".cfg", ".sh", ".css", ".js", ".html", ""}
# The licence, and schedules that a run recorded, are not ours to word.
DATA = ("LICENSE", "tests/regressions/")


def _tracked() -> list[str]:
    """Files of the project: what git knows, new files included, or all in an unpacked archive."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.splitlines()
    if done.returncode != 0:
        folders = (*PACKAGES, "tests", "docs", "ci", ".ci")
        names = [str(path.relative_to(ROOT)) for top in folders for path in (ROOT / top).rglob("*")]
        names += [path.name for path in ROOT.iterdir()]
    return sorted(
        name
        for name in names
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink() and "__pycache__" not in name
    )


FILES = _tracked()
PYTHON = [name for name in FILES if name.endswith(".py")]
TEXTS = [name for name in FILES if Path(name).suffix in TEXT and not name.startswith(DATA)]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _wide_lines(text: str) -> list[int]:
    # Notes to the tools at the end of a line do not count, as in ruff.
    lines = (re.sub(r"\s*# (noqa|type: ignore|fmt:).*$", "", line) for line in text.splitlines())
    return [n for n, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]


def _matches(pattern: re.Pattern[str], text: str) -> list[str]:
    return [
        f"{n}: {match[0]}"
        for n, line in enumerate(text.splitlines(), 1)
        for match in pattern.finditer(line)
    ]


def _function_lengths(source: str) -> dict[str, int]:
    """Lines of each function, its decorators and its docstring not counted."""
    lengths = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}{child.name}"
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                if ast.get_docstring(child) is not None:
                    docstring = child.body[0]
                    lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
                lengths[name] = lines
                visit(child, f"{name}.")
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return lengths


def _prints(source: str) -> list[int]:
    lines = source.splitlines()
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint"}
        # A worker process answers on its standard output, and says so to ruff with a reason.
        and "# noqa: T201" not in lines[(node.end_lineno or node.lineno) - 1]
    ]


def _broken_links(page: Path, text: str) -> list[str]:
    """Targets of relative links in a Markdown page that do not exist, anchors included."""
    broken = []
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code):
        if re.match(r"[a-z]+:", target):
            continue
        path_text, _, anchor = target.partition("#")
        path = (page.parent / path_text).resolve() if path_text else page
        if not path.exists():
            broken.append(target)
        elif anchor and path.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
            if anchor not in slugs:
                broken.append(target)
    return broken


def test_there_is_something_to_check():
    assert len(PYTHON) > 20
    assert {"README.md", "docs/vocabulary.md", "core/errors.py", "ci/test"} <= set(TEXTS)


def test_python_lines_are_at_most_100_columns():
    wide = {name: lines for name in PYTHON if (lines := _wide_lines(_read(name)))}
    assert wide == {}


def test_functions_are_at_most_70_lines():
    found = {
        f"{name}:{function}": lines
        for name in PYTHON
        if not name.startswith("tests/")
        for function, lines in _function_lengths(_read(name)).items()
        if lines > FUNCTION_LINES_MAX
    }
    allowed = {where: lines for where, (lines, _) in LONG_FUNCTIONS.items()}
    assert {where: n for where, n in found.items() if n > allowed.get(where, 0)} == {}
    assert set(allowed) <= set(found), "shrunk below the limit: take it off the list"


def test_files_are_at_most_500_lines():
    lengths = {name: len(_read(name).splitlines()) for name in PYTHON if name.startswith(PACKAGES)}
    long = {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX}
    assert set(long) <= LONG_FILES, long


def test_no_unfinished_and_no_foreign_words():
    found = {
        name: words
        for name in TEXTS
        if name != "tests/unit/test_tidy.py"
        if (words := _matches(UNFINISHED, _read(name)) + _matches(FOREIGN, _read(name)))
    }
    assert found == {}


def test_no_print_in_the_packages():
    sources = [name for name in PYTHON if name.startswith(PACKAGES)]
    assert {name: lines for name in sources if (lines := _prints(_read(name)))} == {}


def test_links_in_pages_resolve():
    pages = [name for name in FILES if name.endswith(".md")]
    assert {n: broken for n in pages if (broken := _broken_links(ROOT / n, _read(n)))} == {}


@pytest.mark.parametrize("name", [n for n in PYTHON if n.startswith("ci/generate_")])
def test_generated_pages_are_up_to_date(name):
    command = [sys.executable, str(ROOT / name), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_task_and_check_script_exists():
    makefile = _read("Makefile")
    checks = re.search(r"^CHECKS := (.+)$", makefile, re.MULTILINE)
    assert checks is not None
    for script in {*re.findall(r"@ci/([a-z-]+)", makefile), *checks[1].split()}:
        path = ROOT / "ci" / script
        assert path.is_file(), f"Makefile calls ci/{script}"
        assert path.stat().st_mode & 0o111, f"ci/{script} cannot be run"
    tasks = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "tests/README.md", ".ci/run"):
        for task in re.findall(r"(?:^|`)make (?:-k )?([a-z-]+)", _read(name), re.MULTILINE):
            assert task in tasks, f"{name} speaks of `make {task}`"


# The twins: each rule sees what it is for.


def test_rules_see_what_they_are_for(tmp_path):
    assert _wide_lines("x" * 100 + "\n" + "y" * 101) == [2]
    assert _matches(UNFINISHED, "a\n# TO" + "DO: later") == ["2: TO" + "DO"]
    for text in ("/ro" + "ot/venv", "see iss" + "ue #12", "http://py" + "pi.org/simple"):
        assert _matches(FOREIGN, text), text
    for text in ("the root/branch", "network/peer", "a task of 3", "issue a warning"):
        assert not _matches(FOREIGN, text), text
    long = "class A:\n    def f(self):\n        '''Doc.'''\n" + "        x = 1\n" * 70
    assert _function_lengths(long) == {"A.f": 71}
    assert _prints("def f():\n    print(1)\n    self.print(2)\n") == [2]
    page = tmp_path / "page.md"
    page.write_text("# One Title\n")
    links = "[a](page.md#one-title) [b](gone.md) [c](#two) `[d](code.md)` [e](https://x.example)"
    assert _broken_links(page, links) == ["gone.md", "#two"]
