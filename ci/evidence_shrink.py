#!/usr/bin/env python3
"""Evidence: how small the minimal reproduction of each planted fault is, and what it costs.

Every mutant of the registry is planted in a process of its own (a fork of one that has every kernel
loaded, unless it changes a kernel); its first failing schedule is shrunk within the default budget
of processor time, and verified. Finished mutants go to a state
file, so a run that was stopped goes on; those of other sources do not count. Exit codes: 0 the
bounds hold (median at most 10 host calls, 95 of 100 at most 20, all verified), 1 they do not,
2 usage, 6 mutants are missing (what is done is written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from evidence_common import git, machine

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "tests" / "mutants" / "registry.toml"
HINTS = ROOT / "docs" / "evidence" / "mutants.json"
SOURCES: Final = ("core", "stress")
MEDIAN_CALLS: Final = 10
P95_CALLS: Final = 20
READS_A_CLOCK: Final = frozenset(("M64",))
"""Its failure may come on a replay or not: the tool refuses it, or says that a replay differs."""
SEEDS_MAX: Final = 3_000
CANDIDATE_S: Final = 5.0
"""Processor time; candidates take milliseconds, and the longest schedules tenths of a second."""
Row = dict[str, Any]


def main() -> int:
    """Shrink what is missing; write what there is."""
    options = _options()
    if options.one:
        print(json.dumps(shrink_one(options.one, options.seed, options.shrink_budget)))
        return 0
    if options.serve:
        serve(options.shrink_budget)
        return 0
    from onearena.stress.mutants import load_registry

    digest = _digest()
    mutants = load_registry(REGISTRY)
    wanted = options.only.split(",") if options.only else [mutant.id for mutant in mutants]
    options.state.parent.mkdir(parents=True, exist_ok=True)
    done = _rows(options.state, digest)
    todo = [m for m in mutants if m.id in wanted and m.id not in done]
    hints = _hints(options.out, options.state)
    code = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        tasks = [(mutant, hints.get(mutant.id, 0), options) for mutant in todo]
        try:
            for row in pool.map(_ask, tasks):
                if row is None:
                    continue
                with options.state.open("a") as file:
                    file.write(json.dumps({"digest": digest, **row}) + "\n")
                if "error" not in row:
                    done[row["id"]] = row
                print(_line(row), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            print(f"interrupted; go on with: {shlex.join(sys.argv)}")
            code = 130
    evidence = _evidence(digest, done, len(mutants), options.shrink_budget)
    print(json.dumps(evidence["result"], indent=1))
    if not options.only:
        options.out.write_text(json.dumps(evidence, indent=2) + "\n")
        print(f"written to {options.out}")
    if code or len(done) < len(mutants):
        return code or 6
    return 0 if evidence["result"]["bounds_hold"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="ids, comma-separated; nothing is written")
    parser.add_argument("--shrink-budget", type=float, default=30.0, help="seconds for a mutant")
    parser.add_argument("--budget", type=float, default=0.0, help="begin none after so many s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/shrink.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/shrink.jsonl")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.end = time.monotonic() + options.budget if options.budget else float("inf")
    return options


def _ask(task: tuple[Any, int, argparse.Namespace]) -> Row | None:
    """One mutant in a process of its own; None once the time is over."""
    mutant, seed, options = task
    if time.monotonic() > options.end:
        return None
    budget = str(options.shrink_budget)
    if not mutant.touches_kernels:
        server = getattr(_SERVERS, "server", None)
        if server is None or server.poll() is not None:
            server = _SERVERS.server = subprocess.Popen(
                [sys.executable, __file__, "--serve", "--shrink-budget", budget],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        print(json.dumps([mutant.id, seed]), file=server.stdin, flush=True)
        line = server.stdout.readline()
        return _row(mutant.id, line, "no answer")
    from onearena.stress.mutant_cache import cache_folder

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["NUMBA_CACHE_DIR"] = str(cache_folder(mutant))
    command = [sys.executable, __file__, "--one", mutant.id, "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--shrink-budget", budget],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return _row(mutant.id, done.stdout, done.stderr.strip().splitlines()[-1:])


_SERVERS: Final = threading.local()
"""A server for each thread that asks."""


def _row(name: str, text: str, why: object) -> Row:
    """What a process answered; why it did not."""
    row: Row = json.loads(text) if text else {"id": name, "error": why}
    return row


def serve(budget_s: float) -> None:
    """Answer `[id, seed]` lines with a row each, from a fork of this process with the fault."""
    from onearena.stress.forks import in_fork
    from onearena.stress.mutant_worker import Nursery

    nursery = Nursery()
    for line in sys.stdin:
        name, seed = json.loads(line)
        said = in_fork(_shrinking(nursery, name, seed, budget_s)).said
        print(json.dumps(said[-1] if said else {"id": name, "error": "died"}), flush=True)


def _shrinking(nursery: Any, name: str, seed: int, budget_s: float) -> Any:
    """What a fork does: forget, plant, shrink, tell."""

    def run(tell: Any) -> None:
        try:
            nursery.forget()
            row = shrink_one(name, seed, budget_s)
        except BaseException as error:  # noqa: BLE001 - whatever a fault raises is a result
            row = {"id": name, "error": [f"{type(error).__name__}: {error}"]}
        tell(row)

    return run


def shrink_one(name: str, seed: int, budget_s: float) -> Row:
    """Plant, find the first failure from `seed` on (then from 0), shrink it."""
    from onearena.stress.mutants import load_registry, plant

    mutant = next(mutant for mutant in load_registry(REGISTRY) if mutant.id == name)
    plant(mutant)
    from onearena.core.errors import UsageError
    from onearena.core.kernels import warm_up
    from onearena.stress.run import RunSpec, run_schedule
    from onearena.stress.shrink import Shrinker

    warm_up()
    started = time.process_time()
    for tried in (seed, *range(SEEDS_MAX)):
        result = run_schedule(RunSpec(tried))
        if result.verdict in ("violation", "stuck"):
            break
    else:
        return {"id": name, "error": [f"no failure in {SEEDS_MAX} seeds"]}
    found = time.process_time()
    # A fault in compiled code may write anywhere: a candidate that dies must not end it all.
    isolated = mutant.touches_kernels
    spec = RunSpec(tried, recording=result.recording)
    try:
        shrinker = Shrinker(spec, budget_s=budget_s, isolated=isolated)
    except UsageError as error:
        return {
            "id": name,
            "seed": tried,
            "refused": str(error),
            "commit": git("rev-parse", "HEAD"),
        }
    _watch(shrinker)
    small = shrinker.run()
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    first = small.result.violations[0] if small.result.violations else None
    return {
        "id": name,
        "seed": tried,
        "oracle": first.oracle if first else small.result.verdict,
        "rule": first.rule if first else "",
        "before_calls": small.before.host_calls,
        "host_calls": small.after.host_calls,
        "host_steps": small.after.host_steps,
        "device_steps": small.after.device_steps,
        "replays": small.replays,
        "seconds": round(small.seconds, 2),
        "hunt_seconds": round(found - started, 2),
        "finished": small.finished,
        "verified": small.verified,
        "steps": [step.label for step in small.spec.recording or ()][1:],
        "commit": git("rev-parse", "HEAD"),
    }


def _watch(shrinker: Any) -> None:
    """End a candidate in which the system has got into an endless loop, as some faults make it:
    the error raised in it makes it a crash, which is not the failure that is looked for.
    """
    seen = -1

    def tick(_signal: int, _frame: object) -> None:
        nonlocal seen
        if shrinker.replays == seen:
            raise TimeoutError(f"a candidate took {CANDIDATE_S} s of processor time")
        seen = shrinker.replays

    signal.signal(signal.SIGVTALRM, tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, CANDIDATE_S, CANDIDATE_S)


def _line(row: Row) -> str:
    if "error" in row:
        return f"{row['id']:<20} {row['error']}"
    if "refused" in row:
        return f"{row['id']:<20} refused: {row['refused']}"
    return (
        f"{row['id']:<20} {row['before_calls']:>4} -> {row['host_calls']:>3} host calls, "
        f"{row['replays']:>5} replays, {row['seconds']:>6.2f} s{'' if row['finished'] else ' *'}"
        f"{'' if row['verified'] else ' NOT VERIFIED'}"
    )


def _hints(out: Path, state: Path) -> dict[str, int]:
    """Where each mutant's failure was found last: by the score, or by this run on any sources."""
    rows: list[Row] = []
    for path in (HINTS, out):
        if path.is_file():
            rows += json.loads(path.read_text())["mutants"]
    rows += _lines(state)
    return {row["id"]: row["seed"] for row in rows if "seed" in row}


def _lines(state: Path) -> list[Row]:
    """All whole lines of the state file."""
    rows: list[Row] = []
    for line in state.read_text().splitlines() if state.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off by a kill
    return rows


def _rows(state: Path, digest: str) -> dict[str, Row]:
    """Finished mutants, by today's sources."""
    rows = [row for row in _lines(state) if row["digest"] == digest and "error" not in row]
    return {row["id"]: row for row in rows}


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    digest.update(REGISTRY.read_bytes())
    return digest.hexdigest()


def _share(values: list[int], share: float) -> int:
    """The smallest value that at least so large a share does not exceed."""
    values = sorted(values)
    return values[max(0, -(-int(share * len(values) * 1000) // 1000) - 1)] if values else 0


def _evidence(digest: str, done: dict[str, Row], mutants: int, budget_s: float) -> Row:
    rows = [row for row in done.values() if "refused" not in row]
    calls = [row["host_calls"] for row in rows]
    seconds = [row["seconds"] for row in rows]
    median = statistics.median(calls) if calls else 0
    p95 = _share(calls, 0.95)
    unverified = sorted(row["id"] for row in rows if not row["verified"])
    return {
        "evidence": "shrink",
        "version": 1,
        "claim": (
            f"the first failing schedule of each planted fault shrinks to a median of at most "
            f"{MEDIAN_CALLS} host calls, 95 of 100 to at most {P95_CALLS}, each within its budget "
            "of processor time; each small file is replayed and fails the same way, but for faults "
            "that read a clock: what a clock decided is in no file"
        ),
        "command": "make evidence-shrink",
        "commits": sorted({row["commit"] for row in rows}),
        "sources_digest": digest,
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "result": {
            "mutants": mutants,
            "shrunk": len(rows),
            # Its recorded failure passes on replay, and the tool says so.
            "refused": sorted(row["id"] for row in done.values() if "refused" in row),
            "verified": len(rows) - len(unverified),
            "unverified": unverified,
            "host_calls_median": median,
            "host_calls_p95": p95,
            "host_calls_max": max(calls, default=0),
            "above_p95_bound": sorted(r["id"] for r in rows if r["host_calls"] > P95_CALLS),
            "seconds_median": statistics.median(seconds) if seconds else 0,
            "seconds_max": max(seconds, default=0),
            "budget_ended": sum(not row["finished"] for row in rows),
            "bounds_hold": bool(rows)
            and median <= MEDIAN_CALLS
            and p95 <= P95_CALLS
            and max(seconds) <= budget_s
            and set(unverified) <= READS_A_CLOCK,
        },
        "mutants": sorted(done.values(), key=lambda row: str(row["id"])),
    }


if __name__ == "__main__":
    sys.exit(main())
