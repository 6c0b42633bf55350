#!/usr/bin/env python3
"""Evidence: no request of the sample traces comes to hold more than it was priced at.

Replays whole traces for six geometries and writes docs/evidence/pricing.json. Exit codes: 0 nothing
under-priced, 1 something was, 2 no traces.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from evidence_common import ROOT, git, machine

from onearena.core.demand import ServingPolicy
from onearena.core.models import known_declaration
from onearena.core.sub_pools import sub_pools_of
from onearena.stress.arrivals import iter_arrivals
from onearena.stress.pricing_replay import replay

MODELS = ("gpt-oss-20b", "qwen3.5-4b", "gemma-3-27b", "kimi-k3", "inkling", "llama-4-scout")
POLICIES = {
    "overlap": ServingPolicy(),
    "short chunks, drafts": ServingPolicy(chunk_tokens=512, steps_in_flight=3, lookahead_tokens=4),
    "checkpoints": ServingPolicy(chunk_tokens=2048, checkpoint_tokens=1024, tracking_slots=2),
}
PAGE_SIZES = (1, 64)


def main() -> int:
    """Replay everything and write the evidence."""
    parser = argparse.ArgumentParser(description=__doc__)
    shared = Path(os.environ.get("ONEARENA_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--traces", type=Path, default=shared / "traces")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "evidence" / "pricing.json")
    options = parser.parse_args()
    files = sorted([*options.traces.glob("*.csv"), *options.traces.glob("*.jsonl")])
    if not files:
        print(
            f"--traces: {options.traces} holds no trace; give a folder with some", file=sys.stderr
        )
        return 2
    rows = []
    for file in files:
        arrivals = tuple(iter_arrivals(file))
        for model in MODELS:
            declaration = known_declaration(model)
            assert declaration is not None, model
            for page_size in PAGE_SIZES:
                pools = sub_pools_of(declaration, page_size=page_size)
                for name, policy in POLICIES.items():
                    report = replay(pools, arrivals, policy)
                    rows.append(
                        {
                            "trace": file.name,
                            "model": model,
                            "page_size": page_size,
                            "policy": name,
                            "requests": report.requests,
                            "questions": report.questions,
                            "under_priced": sum(pool.under_priced for pool in report.pools),
                            "pools": [
                                {**asdict(pool), "over_pricing": round(pool.over_pricing, 4)}
                                for pool in report.pools
                            ],
                        }
                    )
                    print(f"{file.name} {model} {page_size} {name}: {rows[-1]['under_priced']}")
    evidence = {
        "version": 1,
        "claim": "no request comes to hold more units of any sub-pool than it was priced at",
        "command": "make evidence-price",
        "commit": git("rev-parse", "HEAD"),
        "machine": machine(),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "policies": {name: asdict(policy) for name, policy in POLICIES.items()},
        "under_priced": sum(int(row["under_priced"]) for row in rows),
        "questions": sum(int(row["questions"]) for row in rows),
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n", encoding="utf-8")
    print(f"{evidence['questions']} questions, {evidence['under_priced']} under-priced")
    return 1 if evidence["under_priced"] else 0


if __name__ == "__main__":
    sys.exit(main())
