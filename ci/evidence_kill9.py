#!/usr/bin/env python3
"""Evidence: campaigns killed at random moments, in mid-write too, resume to the same result.

Blocks of kills run one after the other; each finished block is appended to a state file, so a
stopped run goes on where it was. Blocks of other sources are not counted. Exit codes: 0 every
resumed campaign equals one that was never stopped, 1 one does not, 2 usage.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import shlex
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from evidence_common import ROOT, git, machine

sys.path.insert(0, str(ROOT / "tests" / "stress"))

# After the path is set: the kills lie beside the tests.
from kill9_case import killed_campaigns, remember

from onearena.stress.campaign_plan import Plan

BLOCK_KILLS = 50
FULL_KILLS = 1000
PLANS = (Plan(60, 88, "toy"), Plan(0, 12, "toy:free-at-once", keep_going=True))
SOURCES = (
    "stress/campaign.py",
    "stress/campaign_plan.py",
    "stress/engine.py",
    "stress/run_file.py",
    "stress/run_rows.py",
    "stress/run_store.py",
    "stress/summary.py",
    "tests/stress/kill9_case.py",
)
CLAIM = (
    "a campaign whose process is killed between statements, within a statement, in the middle of a "
    "write or by the clock, and resumed (and killed again), holds every seed once and comes to the "
    "summary of a campaign that was never stopped"
)


def main() -> int:
    """Run, or go on with, the kills."""
    options = _options()
    digest = _digest()
    done = _finished(options.state, digest)
    blocks = range(-(-options.kills // BLOCK_KILLS))
    print(f"{sum(block in done for block in blocks)} of {len(blocks)} blocks are done already")
    plans = [(plan, remember(plan)) for plan in PLANS]
    options.state.parent.mkdir(parents=True, exist_ok=True)
    for block in blocks:
        if block in done:
            continue
        started = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                counts = killed_campaigns(Path(folder), plans, seed=block, kills=BLOCK_KILLS)
        except AssertionError:
            traceback.print_exc()
            print(f"block {block}: a resumed campaign differs")
            return 1
        done[block] = {"counts": dict(counts), "seconds": round(time.monotonic() - started, 1)}
        with options.state.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"digest": digest, "block": block, **done[block]}) + "\n")
        print(f"block {block + 1} of {len(blocks)}: {dict(counts)}", flush=True)
    document = _document([done[block] for block in blocks], options, digest)
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["result"], indent=1))
    print(f"written to {options.out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=FULL_KILLS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/evidence/kill9.json")
    parser.add_argument("--state", type=Path, default=ROOT / "build/evidence/kill9.jsonl")
    options = parser.parse_args()
    if options.kills < 1:
        parser.error("--kills must be at least 1")
    return options


def _digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in SOURCES:
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return digest.hexdigest()


def _finished(state: Path, digest: str) -> dict[int, dict[str, Any]]:
    """Blocks of the same sources; a line cut short by a kill is left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in state.read_text().splitlines() if state.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row["digest"] == digest:
            found[row["block"]] = {"counts": row["counts"], "seconds": row["seconds"]}
    return found


def _document(
    blocks: list[dict[str, Any]], options: argparse.Namespace, digest: str
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(block["counts"])
    campaigns, sessions = counts.pop("campaigns"), counts.pop("sessions")
    return {
        "name": "kill9",
        "claim": CLAIM,
        "version": 1,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": git("rev-parse", "HEAD"),
        "sources_changed_since_commit": bool(git("status", "--porcelain", *SOURCES)),
        "sources_digest": digest,
        "command": shlex.join(["make", "evidence-kill9", f"ARGS=--kills {options.kills}"]),
        "seeds": f"blocks 0 to {len(blocks) - 1} of {BLOCK_KILLS} kills",
        "machine": machine(),
        "seconds": round(sum(block["seconds"] for block in blocks), 1),
        "result": {
            "kills": sum(counts.values()),
            "kills_by_kind": dict(sorted(counts.items())),
            "sessions": sessions,
            "campaigns_resumed_and_equal": campaigns,
            "schedules_of_a_campaign": [plan.last - plan.first for plan in PLANS if plan.last],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
