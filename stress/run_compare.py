"""Two kept runs beside each other, seed by seed. Memory is bounded by what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.stress.run_report import Kept, look, summary_of
from onearena.stress.run_store import RunStore

SEEDS_KEPT_MAX: Final = 10_000
OF_A_SCHEDULE: Final = ("system", "models", "device", "strategy", "arrivals_hash")
"""What besides the seed says which schedule it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two runs have in common, and what not. Lists of seeds hold the first 10,000.

    `unlike`: fields of the plans that differ; then a seed is another schedule in each run, and
    seeds are not compared. `worse`: pass in A, fail in B; `better` the other way round;
    `differing`: same verdict, another trace.
    """

    a: Kept
    b: Kept
    unlike: tuple[str, ...]
    same_sources: bool
    common: int
    equal: int
    worse: tuple[int, ...]
    better: tuple[int, ...]
    differing: tuple[int, ...]
    reached: tuple[int, int]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    @property
    def nondeterministic(self) -> bool:
        """The same sources gave one seed two traces or verdicts."""
        return self.same_sources and bool(self.worse or self.better or self.differing)

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        runs = {"a": self.a.to_json(), "b": self.b.to_json()}
        return {"version": 1, **asdict(self), **runs, "nondeterministic": self.nondeterministic}


def compare_runs(a: Path, b: Path) -> Comparison:
    """Compare two runs; two passes over each. `UsageError` if one is damaged."""
    kept = look(a), look(b)
    for each in kept:
        if each.plan is None:
            raise UsageError("RUN", str(each.folder), each.damage)
    plans = [each.plan or {} for each in kept]
    unlike = tuple(name for name in OF_A_SCHEDULE if plans[0].get(name) != plans[1].get(name))
    common = equal = 0
    lists: dict[str, list[int]] = {"worse": [], "better": [], "differing": []}
    with RunStore.open(a) as one, RunStore.open(b) as two:
        for seed, (was, before), (now, after) in () if unlike else _both(one, two):
            common += 1
            if (was, before) == (now, after):
                equal += 1
                continue
            name = "differing"
            if (was == "pass") != (now == "pass"):
                name = "worse" if was == "pass" else "better"
            if len(lists[name]) < SEEDS_KEPT_MAX:
                lists[name].append(seed)
        reach = summary_of(one).reach.keys(), summary_of(two).reach.keys()
    return Comparison(
        a=kept[0],
        b=kept[1],
        unlike=unlike,
        same_sources=not unlike and kept[0].sources == kept[1].sources,
        common=common,
        equal=equal,
        worse=tuple(lists["worse"]),
        better=tuple(lists["better"]),
        differing=tuple(lists["differing"]),
        reached=(len(reach[0]), len(reach[1])),
        only_a=tuple(sorted(reach[0] - reach[1])),
        only_b=tuple(sorted(reach[1] - reach[0])),
    )


Row = tuple[str, str]
"""Verdict and digest."""


def _both(one: RunStore, two: RunStore) -> Iterator[tuple[int, Row, Row]]:
    """The seeds that both have, in order: a merge of two sorted streams."""
    left, right = one.digests(), two.digests()
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        if a[0] == b[0]:
            yield a[0], a[1:], b[1:]
            a, b = next(left, None), next(right, None)
        elif a[0] < b[0]:
            a = next(left, None)
        else:
            b = next(right, None)
