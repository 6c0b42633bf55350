#!/usr/bin/env python3
"""Evidence: pages about planted faults, and what a reader without the code made of them.

    ci/evidence_explain.py draw --seed 7      # hunts, shrinks and explains three mutants
    ci/evidence_explain.py reveal             # once the answers are written
    ci/evidence_explain.py again              # the same schedules, as today's pages tell them

`draw` takes three mutants of different rules by a seeded draw and says nothing of which they are:
the ids go to a file below build/. The reader gets `READER.md` and the pages, and writes
`page-N.answer.md`. `reveal` refuses to speak before all answers are there, keeps a digest of each,
and writes `page-N.truth.md`. `again` leaves the pages that were read as they are and writes
`page-N.now.*`. Exit codes: 0 done, 1 a mutant was not caught, 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from onearena.stress.mutants import Mutant, load_registry, plant

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "mutants" / "registry.toml"
SECRET = ROOT / "build" / "evidence" / "explain-ids.json"
PAGES = ROOT / "docs" / "evidence" / "explain"
COUNT: Final = 3
SEEDS_MAX: Final = 3_000
SHRINK_S: Final = 40.0


def drawn(seed: int) -> list[Mutant]:
    """Three mutants whose rules differ; those in kernels are left out, they take a minute each."""
    rng = random.Random(seed)
    pool = [mutant for mutant in load_registry(REGISTRY) if not mutant.touches_kernels]
    rng.shuffle(pool)
    found: list[Mutant] = []
    for mutant in pool:
        if mutant.rule not in {other.rule for other in found}:
            found.append(mutant)
        if len(found) == COUNT:
            return found
    raise SystemExit(f"the registry has no {COUNT} mutants of different rules")


def make_page(mutant: Mutant, number: int, folder: Path) -> None:
    """In a process of its own: plant, hunt, shrink, explain, write."""
    plant(mutant)
    from dataclasses import replace

    from onearena.stress.explain import explain, explain_text
    from onearena.stress.explain_html import explain_html
    from onearena.stress.mutant_worker import report
    from onearena.stress.run import RunSpec, run_schedule
    from onearena.stress.shrink import shrink

    name = f"page-{number}.choices.json"
    for seed in range(SEEDS_MAX):
        spec = RunSpec(seed)
        result = run_schedule(spec)
        if report(result) and result.recording:
            break
    else:
        raise SystemExit(1)
    small = shrink(replace(spec, recording=result.recording), budget_s=SHRINK_S)
    page = explain(small.spec, file=name)
    (folder / name).write_text(small.text, encoding="utf-8")
    (folder / f"page-{number}.html").write_text(explain_html(page), encoding="utf-8")
    (folder / f"page-{number}.txt").write_text(explain_text(page) + "\n", encoding="utf-8")


def retell(mutant: Mutant, number: int, folder: Path) -> None:
    """In a process of its own: plant, replay the schedule that was read, explain it as of today."""
    plant(mutant)
    from onearena.stress.explain import explain, explain_text
    from onearena.stress.explain_html import explain_html
    from onearena.stress.recordings import parse_recording

    name = f"page-{number}.choices.json"
    spec, _ = parse_recording((folder / name).read_text(encoding="utf-8"))
    page = explain(spec, file=name)
    (folder / f"page-{number}.now.html").write_text(explain_html(page), encoding="utf-8")
    (folder / f"page-{number}.now.txt").write_text(explain_text(page) + "\n", encoding="utf-8")


def again() -> None:
    """All pages, by the ids that their truths name."""
    for number in range(1, COUNT + 1):
        child("retell", number)


def child(what: str, number: int) -> None:
    """Make one page in a process of its own."""
    command = [sys.executable, __file__, what, "--number", str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        # What a mutant prints may name it: say only that it failed.
        print(f"page {number}: not caught, or failed")
        raise SystemExit(1)
    print(f"page {number}: written")


def id_of(number: int) -> str:
    """Which mutant: from the truth once it is known, else from the file that nobody reads."""
    truth = PAGES / f"page-{number}.truth.md"
    if truth.is_file():
        return truth.read_text(encoding="utf-8").split("`")[1]
    name: str = json.loads(SECRET.read_text())["ids"][number - 1]
    return name


def draw(seed: int, only: int) -> None:
    """All pages, or one of them."""
    PAGES.mkdir(parents=True, exist_ok=True)
    SECRET.parent.mkdir(parents=True, exist_ok=True)
    found = drawn(seed)
    if any(PAGES.glob("*.truth.md")):
        print("the truth of these pages is out: take them away first")
        raise SystemExit(2)
    SECRET.write_text(json.dumps({"seed": seed, "ids": [mutant.id for mutant in found]}))
    for number in range(1, COUNT + 1):
        if only and number != only:
            continue
        child("page", number)


def reveal() -> None:
    """What each page was about, beside what the reader said."""
    secret = json.loads(SECRET.read_text())
    answers = [PAGES / f"page-{number}.answer.md" for number in range(1, COUNT + 1)]
    missing = [path.name for path in answers if not path.is_file()]
    if missing:
        print(f"not before the answers are written: {', '.join(missing)}")
        raise SystemExit(2)
    mutants = {mutant.id: mutant for mutant in load_registry(REGISTRY)}
    for number, (name, answer) in enumerate(zip(secret["ids"], answers, strict=True), 1):
        mutant = mutants[name]
        digest = hashlib.blake2b(answer.read_bytes(), digest_size=16).hexdigest()
        lines = [
            f"# Page {number}: the truth",
            "",
            f"Mutant `{mutant.id}`: {mutant.title}. Registered rule {mutant.rule}, intended oracle",
            f"{mutant.intended}. Drawn with seed {secret['seed']}.",
            "",
            f"The answer as it was when this was written has BLAKE2b-128 `{digest}`.",
            "",
        ]
        for patch in mutant.patches:
            lines += [f"In `{patch.module}`:", "", "```", patch.old.strip("\n"), "```", "became"]
            lines += ["", "```", patch.new.strip("\n") or "(nothing)", "```", ""]
        text = "\n".join(lines)
        (PAGES / f"page-{number}.truth.md").write_text(text, encoding="utf-8")
        print(f"page {number}: {mutant.id}, rule {mutant.rule}: {mutant.title}")


def main() -> None:
    """Parse and do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["draw", "reveal", "again", "page", "retell"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--number", type=int, default=0)
    given = parser.parse_args()
    if given.what == "draw":
        draw(given.seed, given.number)
    elif given.what == "reveal":
        reveal()
    elif given.what == "again":
        again()
    else:
        name = id_of(given.number)
        wanted = next(mutant for mutant in load_registry(REGISTRY) if mutant.id == name)
        make = make_page if given.what == "page" else retell
        make(wanted, given.number, PAGES)


if __name__ == "__main__":
    main()
