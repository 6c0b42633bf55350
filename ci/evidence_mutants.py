#!/usr/bin/env python3
"""Evidence: every planted fault is reported by an oracle, within its budget of processor time.

Hunts every mutant of the registry once for each first seed and appends each finished hunt to a
state file, so a run that was stopped goes on where it was; hunts of other sources are not counted.
At the end it writes the evidence file and the page of the score. Exit codes: 0 all caught, 1 one
missed, 2 usage.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from onearena.stress.mutants import Mutant, check_patches, load_registry
from onearena.stress.mutants_cli import Hunters
from onearena.stress.score import wilson

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "mutants" / "registry.toml"
WAITING = ROOT / "tests" / "mutants" / "waiting.toml"
STATE = ROOT / "build" / "evidence" / "mutants.jsonl"
EVIDENCE = ROOT / "docs" / "evidence" / "mutants.json"
PAGE = ROOT / "docs" / "mutants.md"

CLAIM = (
    "each mutant is planted in product code in a process of its own; within the budget of "
    "processor time the default campaign reports it, by an oracle that names a rule and a unit or "
    "a range of bytes; crashes do not count"
)

PAGE_HEADER = """# Planted faults and the score

Written by `ci/evidence_mutants.py` (`make evidence-mutants`); do not edit. The raw figures are in
`evidence/mutants.json`.

A mutant is a small patch of product code, listed in `tests/mutants/registry.toml` with the rule it
breaks and the oracle that is meant to see it; both were fixed there in an earlier commit than this
score. It is planted in a process of its own, and the default campaign runs from its first seed
until an oracle reports a broken rule with a unit or a range of bytes, or the budget ends. A mutant
raises nothing and disables no check; a crash of product code is counted apart and catches nothing.

`caught by` is the oracle that spoke first; where that was not the intended one, the hunt went on
for as long again to see whether the intended one speaks too. Ids: `W-a-b` a writer of kind a that
does not wait for an earlier use of kind b, `R-a-b` the same of a reader and an earlier write (both
tables of rule 6, cell by cell), `T-` transitions of the state table and fences, `U-` uses, streams,
buffers, sharing, failures, `M` the list of faults that peers' bugs suggested, with its numbers.
Where two rules guard the same bytes they are planted together: a transfer stands in the tables and
in the state table, so its cells are planted with the protection of the unit's state; a cell whose
two sides run on one stream of today's arena is planted with a second stream in turns.
"""


def main() -> int:
    """Hunt what is not hunted yet, then report."""
    options = _options()
    mutants = load_registry(REGISTRY)
    wrong = check_patches(mutants)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    digest = _digest()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    done = dict(_stored(digest))
    for seed in seeds:
        left = [m for m in mutants if (m.fingerprint(), seed, options.budget) not in done]
        print(f"first seed {seed}: {len(mutants) - len(left)} hunted before, {len(left)} to hunt")
        for mutant, row in _hunt(left, seed, options):
            done[mutant.fingerprint(), seed, options.budget] = row
            _store(digest, mutant, seed, options.budget, row)
            mark = "caught" if row["caught"] else "MISSED"
            print(f"  {mutant.id:<20} {mark} {row.get('by', '')} {row['schedules']}", flush=True)
    rows = [
        {**done[mutant.fingerprint(), seed, options.budget], "first_seed": seed}
        for seed in seeds
        for mutant in mutants
    ]
    document = _document(rows, seeds, options, digest)
    EVIDENCE.parent.mkdir(parents=True, exist_ok=True)
    EVIDENCE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render(document), encoding="utf-8")
    score = document["score"]
    print(f"caught {score['caught']} of {score['hunts']}; {PAGE.name} and {EVIDENCE.name} written")
    return 0 if score["caught"] == score["hunts"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0", help="first seeds of campaigns, with commas")
    parser.add_argument("--budget", type=float, default=60.0, help="processor seconds a hunt")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _digest() -> str:
    """What a hunt depends on: all of the product and of the harness."""
    digest = hashlib.blake2b(digest_size=8)
    for folder in ("core", "stress"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


Key = tuple[str, int, float]


def _stored(digest: str) -> Iterator[tuple[Key, dict[str, Any]]]:
    if not STATE.exists():
        return
    for line in STATE.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that a kill cut short
        if entry["digest"] == digest:
            yield (entry["fingerprint"], entry["seed"], entry["budget"]), entry["row"]


def _store(digest: str, mutant: Mutant, seed: int, budget: float, row: dict[str, Any]) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    entry = {
        "digest": digest,
        "fingerprint": mutant.fingerprint(),
        "seed": seed,
        "budget": budget,
        "row": row,
    }
    with STATE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def _hunt(
    mutants: list[Mutant], seed: int, options: argparse.Namespace
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    with (
        Hunters(REGISTRY, options.budget, seed) as hunters,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        yield from zip(mutants, pool.map(hunters.hunt, mutants), strict=True)


def _document(
    rows: list[dict[str, Any]], seeds: list[int], options: argparse.Namespace, digest: str
) -> dict[str, Any]:
    caught = [row for row in rows if row["caught"]]
    intended = sum("intended_after" in row for row in rows)
    schedules = [row["schedules"] for row in caught] or [0]
    seconds = [row["seconds"] for row in caught] or [0.0]
    low, high = wilson(len(caught), len(rows))
    arguments = f"--seeds {options.seeds} --budget {options.budget:g}"
    return {
        "name": "mutants",
        "claim": CLAIM,
        "version": 1,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "sources_changed_since_commit": bool(_git("status", "--porcelain", "core", "stress")),
        "sources_digest": digest,
        "command": f"make evidence-mutants ARGS={shlex.quote(arguments)}",
        "first_seeds": seeds,
        "budget_s": options.budget,
        "machine": {
            "cores": os.cpu_count(),
            "processor": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "score": {
            "hunts": len(rows),
            "mutants": len(rows) // len(seeds),
            "caught": len(caught),
            "caught_low_95": round(low, 4),
            "caught_high_95": round(high, 4),
            "by_intended": intended,
            "crashed_schedules": sum(row["crashed"] for row in rows),
            "schedules_median": statistics.median(schedules),
            "schedules_p95": sorted(schedules)[math.ceil(0.95 * len(schedules)) - 1],
            "schedules_max": max(schedules),
            "seconds_median": statistics.median(seconds),
            "seconds_max": max(seconds),
        },
        "mutants": rows,
    }


def render(document: dict[str, Any]) -> str:
    """The page."""
    score, rows = document["score"], document["mutants"]
    machine = document["machine"]
    missed = [row for row in rows if not row["caught"]]
    lucky = [row for row in rows if row["caught"] and "intended_after" not in row]
    lines = [
        PAGE_HEADER,
        "## Score\n",
        (
            f"Caught **{score['caught']} of {score['hunts']}** hunts of {score['mutants']} mutants "
            f"(95% interval {score['caught_low_95']:.3f} to {score['caught_high_95']:.3f}), "
            f"{score['by_intended']} by the intended oracle. Schedules to the report: median "
            f"{score['schedules_median']:g}, 95% within {score['schedules_p95']}, most "
            f"{score['schedules_max']}. Processor seconds: median {score['seconds_median']:.2f}, "
            f"most {score['seconds_max']:.1f}. Schedules of mutants that ended in a crash, which "
            f"catches nothing: {score['crashed_schedules']}.\n"
        ),
        f"Commit `{document['commit'][:12]}`"
        + (" with changes not committed" if document["sources_changed_since_commit"] else "")
        + f", {document['date']}, first seeds {document['first_seeds']}, budget "
        f"{document['budget_s']:g} s each; {machine['cores']} cores, Python {machine['python']}. "
        f"Command: `{document['command']}`.\n",
    ]
    if missed:
        names = ", ".join(f"{row['id']} (seed {row['first_seed']})" for row in missed)
        lines.append(f"Not caught: {names}.\n")
    if lucky:
        names = ", ".join(f"{row['id']} by {row['by']}" for row in lucky)
        lines.append(f"Caught by another oracle than the intended one: {names}.\n")
    lines += ["## Mutants\n", _table(rows), "", "## Waiting\n", _waiting()]
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| id | what is broken | rule | intended | caught by | schedules | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        by = row["by"] if row["caught"] else "**nobody**"
        seconds = row.get("seconds", 0.0)
        lines.append(
            f"| {row['id']} | {row['title']} | {row['rule']} | {row['intended']} | {by} "
            f"| {row['schedules']} | {seconds:.1f} |"
        )
    return "\n".join(lines)


def _waiting() -> str:
    """Faults of the list that cannot be planted yet, by name."""
    import tomllib

    with WAITING.open("rb") as file:
        rows = tomllib.load(file)["waiting"]
    return "".join(f"- {row['id']}, {row['title']}: {row['reason']}.\n" for row in rows)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
