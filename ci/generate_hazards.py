"""Write docs/hazards.md from tests/mutants/hazards.toml; with --check, compare it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "hazards.md"
TABLE = ROOT / "tests" / "mutants" / "hazards.toml"
FAULTS = ("registry.toml", "hazard_faults.toml")

HEADER = """# Hazards

Written by `ci/generate_hazards.py` from `tests/mutants/hazards.toml`; do not edit.

What went wrong in systems that do the same job, numbered as it was collected, each with the test
that shows it here and the fault under which that test fails. `tests/mutants/test_hazard_patches.py`
plants every fault and sees the test fail, and sees it pass without. Faults starting with `H` are in
`tests/mutants/hazard_faults.toml`, all others in `tests/mutants/registry.toml` (see `mutants.md`).

| hazard | what goes wrong | test | fails when |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    titles: dict[str, str] = {}
    for name in FAULTS:
        with (TABLE.parent / name).open("rb") as file:
            titles |= {row["id"]: row["title"] for row in tomllib.load(file)["mutant"]}
    with TABLE.open("rb") as file:
        rows = tomllib.load(file)["hazard"]
    lines = []
    for row in rows:
        if "waits" in row:
            shown, when = "-", f"waits for {row['waits']}"
        else:
            shown = "<br>".join(f"`{test}`" for test in row["tests"])
            when = "; ".join(f"{fault}: {titles[fault]}" for fault in row["faults"])
        lines.append(f"| {row['number']} | {row['hazard']} | {shown} | {when} |")
    waiting = sum("waits" in row for row in rows)
    tail = f"\n{len(rows)} hazards: {len(rows) - waiting} tested, {waiting} waiting.\n"
    return HEADER + "\n".join(lines) + "\n" + tail


def main() -> int:
    """Write or compare."""
    text = render()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.name} is out of date: run python {Path(__file__).name}", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
