#!/usr/bin/env python3
"""Evidence: a seeded sample of general mutants, and who noticed each.

Small edits of the ledger, relayout, feasibility and bands, and of the kernels below them (run
without the compiler), one at a time. A mutant is killed by a schedule that does not pass, or by a
failing test. Survivors are looked at by hand: `ci/mutation_survivors.toml` has a line on each, and
one without a line fails the run. Exit codes: 0 enough killed, 1 too few or an unexplained
survivor, 2 usage, 130 interrupted. Finished mutants are kept in a state file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import queue
import random
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

from evidence_common import ROOT, git, machine
from mutation import Edit, edits_of

SAMPLE = 400
KERNELS_SHARE = 4
LEAST_KILLED = 0.9
SEEDS = 40
KERNEL_SEEDS = 12
UNITS = ("tests/unit/test_hazards_units.py", "tests/unit/test_realise_failures.py")
LEDGER = (
    "tests/unit/test_ledger.py",
    "tests/unit/test_fences.py",
    "tests/unit/test_hazards_uses.py",
)
PLANS = (
    "tests/unit/test_figure4_plan.py",
    "tests/model/test_fit.py",
    "tests/model/test_relayout.py",
    "tests/model/test_planning_words.py",
    "tests/model/test_planning_maps.py",
)
STORES = (
    "tests/unit/test_store.py",
    "tests/model/test_store_growth.py",
    "tests/model/test_store_machine.py",
)
TESTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ledger", "fences", "uses", "rules", "recording"), LEDGER + UNITS),
    **dict.fromkeys(("relayout", "relayout_words", "fit", "fit_words"), PLANS),
    **dict.fromkeys(("band", "store", "store_answers"), STORES + UNITS),
    **dict.fromkeys(("arena_state", "realise"), UNITS + LEDGER),
    "kernels": ("tests/unit/test_kernels.py", *STORES[:2], "tests/model/test_planning_words.py"),
}
SURVIVORS = ROOT / "ci/mutation_survivors.toml"


def main() -> int:
    """Plant the sample, or what is left of it."""
    options = _options()
    sources = {name: (ROOT / f"core/{name}.py").read_text() for name in TESTS}
    digest = hashlib.blake2b(json.dumps(sources).encode(), digest_size=16).hexdigest()
    sample = _sample(sources, options.sample, options.seed)
    done = _finished(options.state, digest)
    left = [edit for edit in sample if edit.name not in done]
    print(f"{len(sample) - len(left)} of {len(sample)} are done already", flush=True)
    options.state.parent.mkdir(parents=True, exist_ok=True)
    try:
        _plant_all(left, sources, digest, options, done)
    except KeyboardInterrupt:
        print("interrupted; run again to go on")
        return 130
    return _report(sample, done, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/mutation.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/mutation.jsonl")
    return parser.parse_args()


def _sample(sources: dict[str, str], wanted: int, seed: int) -> list[Edit]:
    """A quarter from the kernels, the rest from the modules above them; drawn evenly from each."""
    draw = random.Random(seed)
    above: list[Edit] = []
    for name, source in sources.items():
        if name != "kernels":
            above += edits_of(f"onearena.core.{name}", source)
    kernels = edits_of("onearena.core.kernels", sources["kernels"])
    # What warms the kernels up or only names them decides nothing.
    kernels = [edit for edit in kernels if not edit.where.startswith(("warm_up", "_warm"))]
    from_kernels = wanted // KERNELS_SHARE
    return draw.sample(above, wanted - from_kernels) + draw.sample(kernels, from_kernels)


def _finished(state: Path, digest: str) -> dict[str, dict[str, Any]]:
    if not state.is_file():
        return {}
    rows = [json.loads(line) for line in state.read_text().splitlines() if line.endswith("}")]
    return {row["name"]: row for row in rows if row["digest"] == digest}


def _plant_all(
    left: list[Edit],
    sources: dict[str, str],
    digest: str,
    options: argparse.Namespace,
    done: dict[str, dict[str, Any]],
) -> None:
    work: queue.SimpleQueue[Edit] = queue.SimpleQueue()
    for edit in left:
        work.put(edit)
    lock = threading.Lock()
    stop = threading.Event()

    def one() -> None:
        workers: dict[bool, subprocess.Popen[str]] = {}
        try:
            while not stop.is_set():
                try:
                    edit = work.get_nowait()
                except queue.Empty:
                    return
                found = _ask(workers, edit, sources)
                with lock:
                    row = {"name": edit.name, "line": edit.line, "digest": digest, **found}
                    done[edit.name] = row
                    with options.state.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(
                        f"{len(done)}: {'killed' if found['killed'] else 'SURVIVED'} {edit.name!r}"
                        f" by {found['by']}",
                        flush=True,
                    )
        finally:
            for worker in workers.values():
                worker.kill()
                worker.wait()

    threads = [threading.Thread(target=one) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
    except KeyboardInterrupt:
        stop.set()
        raise


def _ask(
    workers: dict[bool, subprocess.Popen[str]], edit: Edit, sources: dict[str, str]
) -> dict[str, Any]:
    short = edit.module.rpartition(".")[2]
    plain = short == "kernels"
    if plain not in workers:
        workers[plain] = _worker(plain=plain)
        clean = _exchange(workers[plain], "", "", short)
        assert not clean["killed"], f"the clean tree fails: {clean}"
    return _exchange(workers[plain], edit.module, edit.apply(sources[short]), short)


def _worker(*, plain: bool) -> subprocess.Popen[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if plain:
        environment["NUMBA_DISABLE_JIT"] = "1"
    return subprocess.Popen(
        [sys.executable, str(ROOT / "ci/mutation_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def _exchange(
    worker: subprocess.Popen[str], module: str, source: str, short: str
) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    seeds = KERNEL_SEEDS if short == "kernels" else SEEDS
    asked = {"module": module, "source": source, "tests": TESTS[short], "seeds": seeds}
    worker.stdin.write(json.dumps(asked) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    assert answer, "a mutation worker died; what it said is above"
    found: dict[str, Any] = json.loads(answer)
    return found


def _report(
    sample: list[Edit], done: dict[str, dict[str, Any]], options: argparse.Namespace
) -> int:
    rows = [done[edit.name] for edit in sample]
    killed = sum(row["killed"] for row in rows)
    table = tomllib.loads(SURVIVORS.read_text()) if SURVIVORS.is_file() else {}
    why = {row["mutant"]: row["why"] for row in table.get("survivor", [])}
    survivors = [row for row in rows if not row["killed"]]
    silent = [row["name"] for row in survivors if row["name"] not in why]
    by_schedule = sum(row["killed"] and "seed" in row for row in rows)
    evidence = {
        "name": "mutation",
        "claim": "small edits of the modules that decide are noticed by schedules or tests",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": git("rev-parse", "HEAD"),
        "command": f"make evidence-mutation ARGS='--sample {options.sample} --seed {options.seed}'",
        "machine": machine(),
        "sample": len(rows),
        "killed": killed,
        "killed_by_schedules": by_schedule,
        "killed_by_tests": killed - by_schedule,
        "survivors": [
            {"mutant": row["name"], "line": row["line"], "why": why.get(row["name"], "")}
            for row in survivors
        ],
        "mutants": [{key: row[key] for key in ("name", "line", "killed", "by")} for row in rows],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n")
    print(f"{killed} of {len(rows)} killed, {by_schedule} by schedules alone")
    for name in silent:
        print(f"no line in {SURVIVORS.relative_to(ROOT)} for {name!r}")
    return int(bool(silent) or killed < LEAST_KILLED * len(rows))


if __name__ == "__main__":
    sys.exit(main())
