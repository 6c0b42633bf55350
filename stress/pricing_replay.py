"""Prices against replayed traces: what a request was priced at, and what it came to hold.

The replay is a plain simulation of serving, written from what the parts' lifetimes mean and not
from the price: a request prefills in chunks and decodes token by token, forwards are processed some
steps after their launch, and only then are rows that no later token reads retired, page by page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onearena.core.demand import Caller, RequestShape, ServingPolicy, price
from onearena.core.layout import LifetimeKind
from onearena.core.sub_pools import SubPoolPlan
from onearena.stress.arrivals import PREFIX_BLOCK_TOKENS, Arrival

Tokens = NDArray[np.int64]


@dataclass(slots=True)
class PoolReport:
    """One sub-pool over a trace. Units summed over requests, except the largest single gap."""

    name: str
    lifetime: str
    priced_units: int = 0
    used_units: int = 0
    steady_units: int = 0
    over_units_max: int = 0
    under_priced: int = 0

    @property
    def over_pricing(self) -> float:
        """Priced but never held, as a share of what was held."""
        return (self.priced_units - self.used_units) / self.used_units if self.used_units else 0.0


@dataclass(slots=True)
class PriceReport:
    """A whole trace. `under` lists the first under-priced questions, each in one line."""

    requests: int = 0
    questions: int = 0
    pools: list[PoolReport] = field(default_factory=list)
    under: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A request's life in launches: before launch i, `processed[i]` tokens were processed; after
    it, rows exist up to `written[i]`. `computed[i]` is the rows' end before it.
    """

    computed: Tokens
    written: Tokens
    processed: Tokens


def timeline(prompt: int, output: int, shared: int, policy: ServingPolicy) -> Timeline:
    """Launches of one request that starts behind `shared` cached tokens."""
    chunks = list(range(min(shared, prompt), prompt, policy.chunk_tokens))
    ends = np.array(
        [
            *(min(start + policy.chunk_tokens, prompt) for start in chunks),
            *range(prompt + 1, prompt + output + 1),
        ],
        np.int64,
    )
    computed = np.concatenate([[min(shared, prompt)], ends[:-1]]).astype(np.int64)
    # Launch i finds all but the last (steps_in_flight - 1) launches processed.
    behind = policy.steps_in_flight - 1
    processed = np.concatenate([np.full(behind, computed[0]), computed])[: len(ends)]
    return Timeline(computed, ends + policy.lookahead_tokens, processed)


def held_units(pool: SubPoolPlan, line: Timeline, shared: int, policy: ServingPolicy) -> Tokens:
    """Units of `pool` that the request holds right after each launch."""
    page = pool.page_size
    kind, length = pool.lifetime.kind, pool.lifetime.length
    if kind is LifetimeKind.REQUEST:
        return np.full(len(line.written), 1 + policy.tracking_slots, np.int64)
    last_page = (line.written - 1) // page
    if kind is LifetimeKind.CONTEXT:
        held: Tokens = last_page + 1 - shared // page
        return held
    resumed = line.processed
    if policy.checkpoint_tokens:
        resumed = resumed // policy.checkpoint_tokens * policy.checkpoint_tokens
    first = resumed // length * length if kind is LifetimeKind.CHUNK else resumed - length
    spanned: Tokens = last_page - np.maximum(first, 0) // page + 1
    return spanned


def replay(
    pools: Sequence[SubPoolPlan], arrivals: Iterable[Arrival], policy: ServingPolicy
) -> PriceReport:
    """Price every request of a trace at admission and again before each chunk, and watch it
    live.
    """
    report = PriceReport(pools=[PoolReport(pool.name, pool.lifetime.kind.value) for pool in pools])
    seen: set[int] = set()
    for arrival in arrivals:
        shared = _shared_tokens(arrival, seen)
        _replay_one(report, pools, arrival, shared, policy)
        report.requests += 1
    return report


def _shared_tokens(arrival: Arrival, seen: set[int]) -> int:
    """Leading prompt tokens that earlier requests left in an unbounded prefix cache."""
    blocks = 0
    for block in arrival.prefix:
        if block not in seen:
            break
        blocks += 1
    seen.update(arrival.prefix)
    # At least one token is computed: a request needs the last one's output.
    return max(0, min(blocks * PREFIX_BLOCK_TOKENS, arrival.prompt_tokens - 1))


def _replay_one(
    report: PriceReport,
    pools: Sequence[SubPoolPlan],
    arrival: Arrival,
    shared: int,
    policy: ServingPolicy,
) -> None:
    prompt, output = arrival.prompt_tokens, arrival.output_tokens
    if prompt + output == 0:
        return
    line = timeline(prompt, output, shared, policy)
    held = [held_units(pool, line, shared, policy) for pool in pools]
    shape = RequestShape(
        prompt_tokens=prompt, output_tokens=output, computed_tokens=shared, shared_tokens=shared
    )
    priced = price(pools, shape, policy, Caller.PREFILL)
    report.questions += 1
    for pool, row, units, cost in zip(pools, report.pools, held, priced, strict=True):
        used = int(units.max())
        row.priced_units += cost
        row.used_units += used
        row.steady_units += pool.units_for_tokens(prompt + output)
        row.over_units_max = max(row.over_units_max, cost - used)
        if used > cost:
            _under(report, row, arrival, f"admission priced {cost} units and it held {used}")
    _check_later(report, pools, arrival, shape, line, held, policy)


def _check_later(
    report: PriceReport,
    pools: Sequence[SubPoolPlan],
    arrival: Arrival,
    shape: RequestShape,
    line: Timeline,
    held: Sequence[Tokens],
    policy: ServingPolicy,
) -> None:
    """Commitment before each later chunk, and decode headroom at some decode steps."""
    launches = len(line.written)
    prefills = int((line.computed < shape.prompt_tokens).sum())
    decodes = range(max(prefills, 1), launches, 61)
    for at in (*range(1, prefills), *decodes):
        caller = Caller.CHUNK if at < prefills else Caller.DECODE
        now = tuple(int(units[at - 1]) for units in held)
        later = RequestShape(
            prompt_tokens=shape.prompt_tokens,
            output_tokens=shape.output_tokens,
            computed_tokens=int(line.computed[at]),
            shared_tokens=shape.shared_tokens,
            in_flight_tokens=int(line.computed[at] - line.processed[at]),
            held=now,
        )
        more = price(pools, later, policy, caller)
        until = launches if caller is Caller.CHUNK else at + policy.steps_in_flight
        report.questions += 1
        for row, units, have, cost in zip(report.pools, held, now, more, strict=True):
            peak = int(units[at:until].max())
            if peak > have + cost:
                said = f"{caller.value} at launch {at} priced {have}+{cost} and it held {peak}"
                _under(report, row, arrival, said)


def _under(report: PriceReport, row: PoolReport, arrival: Arrival, said: str) -> None:
    row.under_priced += 1
    if len(report.under) < 20:
        report.under.append(
            f"{row.name}: {arrival.prompt_tokens}+{arrival.output_tokens} tokens: {said}"
        )
