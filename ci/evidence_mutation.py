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
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

from evidence_common import ROOT, git, machine
from mutation import Edit, edits_of
from mutation_plain import INSTRUCTIONS, THREADS

SAMPLE = 400
KERNELS_SHARE = 4
LEAST_KILLED = 0.9
SEEDS = 40
SEEDS_FIRST = 3
CHEAP_S = 2.0
"""Of the tests that reach an edit, those that take this long together run before most seeds."""
WITHIN_S = 6.0
SEEDS_MOST = 20
"""Tests beyond this time and schedules beyond this many judge only with `--again`."""
MODULES = (
    *("ledger", "fences", "uses", "rules", "recording", "relayout", "relayout_words", "fit"),
    *("fit_words", "band", "store", "store_answers", "arena_state", "realise"),
)
UNIT_TESTS = (
    *("band", "ledger", "fences", "hazards_uses", "hazards_units", "hazards_admission"),
    *("realise_failures", "figure4_plan", "figure4_bytes", "store", "demand", "snapshot_oracles"),
    *("oracle_reference", "table_reach", "metrics_collector", "metrics_recorder", "arena_counters"),
    *("compaction", "recorded_work", "plan_bounds", "observer", "buffer"),
)
MODEL_TESTS = (
    *("planning_pieces", "fit", "relayout", "planning_words", "planning_maps", "store_growth"),
    "store_machine",
)
PLAIN_MODEL_TESTS = ("planning_pieces", "planning_maps", "store_machine")
PLAIN_TESTS = (
    *(f"tests/unit/test_{name}.py" for name in ("kernels", *UNIT_TESTS)),
    *(f"tests/model/test_{name}.py" for name in PLAIN_MODEL_TESTS),
)
TESTS = (
    "tests/regressions/test_two_lost_transfers.py",
    *(f"tests/unit/test_{name}.py" for name in UNIT_TESTS),
    *(f"tests/model/test_{name}.py" for name in MODEL_TESTS),
)
SURVIVORS = ROOT / "ci/mutation_survivors.toml"
JUDGES = ("core", "stress", "tests", "ci")
KINDS = ("nothing", "speed", "hole")


def main() -> int:
    """Plant the sample, or what is left of it."""
    options = _options()
    sources = {name: (ROOT / f"core/{name}.py").read_text() for name in (*MODULES, "kernels")}
    sample = _sample(sources, options.sample, options.seed)
    options.state.parent.mkdir(parents=True, exist_ok=True)
    done = _finished(options.state, _digest(json.dumps(sources)))
    if options.again:
        explained = _explained()
        done = {name: row for name, row in done.items() if row["killed"] or name in explained}
    left = [edit for edit in sample if edit.name not in done]
    print(f"{len(sample) - len(left)} of {len(sample)} are done already", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _judge_all(left, sources, options, done)
    except KeyboardInterrupt:
        print("interrupted; run again to go on")
        return 130
    return _report([done[edit.name] for edit in sample], options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--again",
        action="store_true",
        help="judge survivors without an explanation again, by every test however long it takes",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/mutation.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/mutation.jsonl")
    return parser.parse_args()


def _sample(sources: dict[str, str], wanted: int, seed: int) -> list[Edit]:
    """A quarter from the kernels, the rest from the modules above them; drawn evenly from each."""
    draw = random.Random(seed)
    above: list[Edit] = []
    for name in MODULES:
        above += edits_of(f"onearena.core.{name}", sources[name])
    # The threads device's kernels have no plain form; nor have the machine instructions. What
    # warms kernels up decides nothing.
    plain = sources["kernels"].index(THREADS)
    kernels = [
        edit
        for edit in edits_of("onearena.core.kernels", sources["kernels"])
        if edit.start < plain and not edit.where.startswith(("warm_up", "_warm", *INSTRUCTIONS))
    ]
    from_kernels = wanted // KERNELS_SHARE
    return draw.sample(above, wanted - from_kernels) + draw.sample(kernels, from_kernels)


def _judge_all(
    left: list[Edit],
    sources: dict[str, str],
    options: argparse.Namespace,
    done: dict[str, dict[str, Any]],
) -> None:
    """Plant the edits, each job one after the other; every row is kept as soon as it is known."""
    judges = [Judge(sources, options.state, thorough=options.again) for _ in range(options.jobs)]
    work: queue.SimpleQueue[Edit] = queue.SimpleQueue()
    for edit in left:
        work.put(edit)
    lock, stop = threading.Lock(), threading.Event()
    broken: list[BaseException] = []

    def one(judge: Judge) -> None:
        try:
            while not stop.is_set() and not work.empty():
                edit = work.get_nowait()
                row = judge.row(edit)
                with lock:
                    _keep(row, done, options.state)
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - raised again below, in the main thread
            broken.append(error)
            stop.set()

    threads = [threading.Thread(target=one, args=(judge,), daemon=True) for judge in judges]
    try:
        for plain in sorted({is_plain(edit) for edit in left}):
            judges[0].record(plain=plain)
            for other in judges[1:]:
                other.record(plain=plain)  # from the file that the first one wrote
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            threads[0].join(0.5)
            time.sleep(0.1)
    finally:
        stop.set()
        for judge in judges:
            judge.close()
    if broken:
        raise broken[0]


def _keep(row: dict[str, Any], done: dict[str, dict[str, Any]], state: Path) -> None:
    done[row["name"]] = row
    with state.open("a") as file:
        file.write(json.dumps(row) + "\n")
    verdict = "killed" if row["killed"] else "SURVIVED"
    print(f"{len(done)} {row['seconds']}s: {verdict} {row['name']!r} by {row['by']}", flush=True)


def is_plain(edit: Edit) -> bool:
    """Whether the edit needs the kernels as plain Python."""
    return edit.module.endswith(".kernels")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _finished(state: Path, digest: str) -> dict[str, dict[str, Any]]:
    if not state.is_file():
        return {}
    rows = [json.loads(line) for line in state.read_text().splitlines() if line.endswith("}")]
    return {row["name"]: row for row in rows if row["digest"] == digest}


class Judge:
    """Two workers, one with compiled kernels and one without, and what their clean runs reach."""

    def __init__(self, sources: dict[str, str], state: Path, *, thorough: bool) -> None:
        self._sources = sources
        self._digest = _digest(json.dumps(sources))
        self._commit = git("rev-parse", "HEAD")
        self._state = state
        self._within_s = float("inf") if thorough else WITHIN_S
        self._seeds_most = SEEDS if thorough else SEEDS_MOST
        self._workers: dict[bool, subprocess.Popen[str]] = {}
        self._reach: dict[bool, dict[str, Any]] = {}

    def row(self, edit: Edit) -> dict[str, Any]:
        """Plant one edit: who noticed, how long that took, and how much could have."""
        short, plain = edit.module.rpartition(".")[2], is_plain(edit)
        seeds, tests = reaching(self._reach[plain], edit)
        row = {"name": edit.name, "line": edit.line, "digest": self._digest}
        row["commit"] = self._commit
        seeds = seeds[: self._seeds_most]
        run = affordable(tests, self._within_s)
        row |= {"seeds": len(seeds), "tests": run, "tests_left_out": len(tests) - run}
        if not seeds and not tests:
            return {**row, "killed": False, "by": "", "seconds": 0.0}
        source = edit.apply(self._sources[short])
        asked = {"module": edit.module, "source": source, "rounds": rounds(seeds, tests[:run])}
        return {**row, **self._ask(asked, plain=plain)}

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            worker.kill()
            worker.wait()

    def record(self, *, plain: bool) -> None:
        """What the clean tree reaches; kept in a file beside the state, by the files' contents."""
        kept = self._state.with_suffix(".plain.json" if plain else ".reach.json")
        known = json.loads(kept.read_text()) if kept.is_file() else {}
        names = ("kernels",) if plain else MODULES
        reach: dict[str, Any] = {"at_import": {}, "seeds": [], "tests": {}}
        parts = {}
        for file in ("", *(PLAIN_TESTS if plain else TESTS)):
            key = _digest(self._digest + file + ((ROOT / file).read_text() if file else ""))
            if key not in known:
                asked = {
                    "modules": [f"onearena.core.{name}" for name in names],
                    "seeds": 0 if file else SEEDS,
                    "file": file,
                }
                known[key] = self._ask({"record": asked}, plain=plain)
                assert "killed" not in known[key], f"{file or 'schedules'}: {known[key]}"
                print(f"recorded {file or 'schedules'}: {known[key]['seconds']}s", flush=True)
                if known[key]["failed"]:
                    print(
                        f"left out, they fail uncompiled or take too long: {known[key]['failed']}",
                        flush=True,
                    )
                assert plain or not known[key]["failed"], "the clean tree fails"
                kept.write_text(json.dumps(known))
            parts[key] = known[key]
            reach["at_import"] |= parts[key]["at_import"]
            reach["seeds"] += parts[key]["seeds"]
            reach["tests"] |= parts[key]["tests"]
        kept.write_text(json.dumps(parts))
        self._reach[plain] = reach

    def _ask(self, asked: dict[str, Any], *, plain: bool) -> dict[str, Any]:
        if plain not in self._workers:
            self._workers[plain] = _worker(plain=plain)
        worker = self._workers[plain]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(asked) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        assert answer, "a mutation worker died; what it said is above"
        found: dict[str, Any] = json.loads(answer)
        return found


def reaching(reach: dict[str, Any], edit: Edit) -> tuple[list[int], list[tuple[str, float]]]:
    """Seeds whose schedule runs a line of the edit, and such tests with their seconds, cheap first.

    What runs with the import (all outside functions does) may be noticed by anyone.
    """
    first, last = edit.lines

    def within(lines: dict[str, list[int]]) -> bool:
        return any(first <= line <= last for line in lines.get(edit.module, []))

    everyone = not first or within(reach["at_import"])

    def runs(lines: dict[str, list[int]]) -> bool:
        return everyone or within(lines)

    seeds = [seed for seed, lines in enumerate(reach["seeds"]) if runs(lines)]
    tests = [
        (name, float(test["seconds"]))
        for name, test in reach["tests"].items()
        if runs(test["lines"])
    ]
    return seeds, sorted(tests, key=lambda test: (test[1], test[0]))


def affordable(tests: list[tuple[str, float]], within_s: float) -> int:
    """How many of these tests, taken in order, take at most so long together."""
    total = 0.0
    for count, (_, seconds) in enumerate(tests):
        total += seconds
        if total > within_s:
            return count
    return len(tests)


def rounds(seeds: list[int], tests: list[tuple[str, float]]) -> list[dict[str, Any]]:
    """A few schedules, the cheap tests, the other schedules, the other tests."""
    cheap = affordable(tests, CHEAP_S)
    return [
        {"seeds": seeds[:SEEDS_FIRST]},
        {"tests": tests[:cheap]},
        {"seeds": seeds[SEEDS_FIRST:]},
        {"tests": tests[cheap:]},
    ]


def _worker(*, plain: bool) -> subprocess.Popen[str]:
    # The links of ci/ns: the worker runs this checkout, whichever one is installed.
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "ci/ns"))
    environment.pop("NUMBA_DISABLE_JIT", None)
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


def _explained() -> dict[str, dict[str, str]]:
    table = tomllib.loads(SURVIVORS.read_text()) if SURVIVORS.is_file() else {}
    rows = {row["mutant"]: row for row in table.get("survivor", [])}
    strange = sorted(name for name, row in rows.items() if row["kind"] not in KINDS)
    assert not strange, f"{SURVIVORS.name}: the kinds are {KINDS}; see {strange}"
    return rows


def _report(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    killed = sum(row["killed"] for row in rows)
    why = _explained()
    equivalent = sum(
        why[row["name"]]["kind"] == "nothing"
        for row in rows
        if not row["killed"] and row["name"] in why
    )
    survivors = [row for row in rows if not row["killed"]]
    silent = [row["name"] for row in survivors if row["name"] not in why]
    by_schedule = sum(row["killed"] and "seed" in row for row in rows)
    arguments = f"--sample {options.sample} --seed {options.seed}"
    kept = ("name", "line", "killed", "by", "seeds", "tests", "tests_left_out", "seconds")
    evidence = {
        "name": "mutation",
        "claim": "small edits of the modules that decide are noticed by schedules or tests",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "commit": git("rev-parse", "HEAD"),
        "judged_at": sorted({row["commit"] for row in rows}),
        "changed_since": git("diff", "--name-only", "HEAD", "--", *JUDGES).splitlines(),
        "command": f"make evidence-mutation ARGS='{arguments}', then with --again",
        "machine": machine(),
        "sample": len(rows),
        "from_kernels": sum(row["name"].startswith("onearena.core.kernels:") for row in rows),
        "schedules": SEEDS,
        "killed": killed,
        "killed_by_schedules": by_schedule,
        "killed_by_tests": killed - by_schedule,
        "survivors_that_change_nothing": equivalent,
        "killed_of_those_that_change_something": round(killed / (len(rows) - equivalent), 4),
        "processor_seconds": round(sum(row["seconds"] for row in rows), 1),
        "survivors": [
            {"line": row["line"], **why.get(row["name"], {"mutant": row["name"], "why": ""})}
            for row in survivors
        ],
        "mutants": [{key: row[key] for key in kept} for row in rows],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n")
    print(f"{killed} of {len(rows)} killed, {by_schedule} by schedules alone")
    for name in silent:
        print(f"no line in {SURVIVORS.relative_to(ROOT)} for {name!r}")
    return int(bool(silent) or killed < LEAST_KILLED * len(rows))


if __name__ == "__main__":
    sys.exit(main())
