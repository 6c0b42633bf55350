"""Pricing: how many units of every sub-pool a request needs, for whoever asks.

One function, `price`, serves the memory clip, prefill admission, commitment across chunks, decode
headroom, host load-back, prefill-decode preallocation and cache eviction, so they cannot disagree.
It is an upper bound of what the request can hold between now and the end of what is priced; the
terms it adds to the steady state are listed in `docs/pricing.md`. Pure integers, O(bands).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onearena.core.answers import Demand
from onearena.core.layout import LifetimeKind
from onearena.core.sub_pools import SubPoolPlan


class Caller(enum.Enum):
    """Who asks. The value names the caller in metrics and in check mode."""

    CLIP = "clip"
    PREFILL = "prefill"
    CHUNK = "chunk"
    DECODE = "decode"
    LOAD_BACK = "load_back"
    PREALLOC = "prealloc"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPolicy:
    """How the engine runs requests, as far as it bounds what they hold.

    chunk_tokens: most prompt tokens of one forward.
    steps_in_flight: forwards launched before the oldest is processed (1: no overlap); rows of the
        window are retired when a forward is processed, so they outlive it by these steps.
    lookahead_tokens: draft tokens written beyond the last accepted one in each decode step.
    checkpoint_tokens: a recurrent checkpoint is taken every so many tokens (0: none); window rows
        back to the last one are kept, so that the request can be resumed from it.
    tracking_slots: state slots a running request holds for checkpoints besides its own.
    """

    chunk_tokens: int = 8192
    steps_in_flight: int = 2
    lookahead_tokens: int = 0
    checkpoint_tokens: int = 0
    tracking_slots: int = 0

    def __post_init__(self) -> None:
        assert self.chunk_tokens >= 1, self
        assert self.steps_in_flight >= 1, self
        least = min(self.lookahead_tokens, self.checkpoint_tokens, self.tracking_slots)
        assert least >= 0, self


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """What is known of one request when the question is asked. Tokens.

    prompt_tokens, output_tokens: the whole request; `output_tokens` is the expected decode
        allowance, or the bound where nothing better is known.
    computed_tokens: tokens that have rows already, by this request or by a shared prefix.
    shared_tokens: leading tokens whose rows the prefix cache holds (part of `computed_tokens`);
        their whole pages cost nothing, a page they fill in part is forked when it is written.
    in_flight_tokens: of the computed ones, those whose forwards are launched and not processed.
    held: units the request holds already, per sub-pool (shared ones not counted).
    shares_slot: the state slot it starts from is shared, so its first write forks it.
    """

    prompt_tokens: int
    output_tokens: int
    computed_tokens: int = 0
    shared_tokens: int = 0
    in_flight_tokens: int = 0
    held: Demand = ()
    shares_slot: bool = False

    def __post_init__(self) -> None:
        assert self.prompt_tokens >= 0 <= self.output_tokens, self
        assert 0 <= self.shared_tokens <= self.computed_tokens, self
        assert self.computed_tokens <= self.prompt_tokens + self.output_tokens, self


def price(
    pools: Sequence[SubPoolPlan], shape: RequestShape, policy: ServingPolicy, caller: Caller
) -> Demand:
    """Units per sub-pool (chain order) that `caller` has to see fit, beyond what is held.

    An upper bound of what the request holds at any moment up to `_last_token`, less `shape.held`.
    """
    last = _last_token(shape, policy, caller)
    held = shape.held or (0,) * len(pools)
    assert len(held) == len(pools), f"held {held} for {len(pools)} sub-pools"
    return tuple(
        max(0, _peak(pool, shape, policy, caller, last) - have)
        for pool, have in zip(pools, held, strict=True)
    )


def _last_token(shape: RequestShape, policy: ServingPolicy, caller: Caller) -> int:
    """Tokens the request may have rows for when what is priced ends, drafts included."""
    whole = shape.prompt_tokens + shape.output_tokens
    if caller is Caller.DECODE:
        # The next step of every forward that may be in flight, not the rest of the request.
        steps = policy.steps_in_flight * (1 + policy.lookahead_tokens)
        return min(shape.computed_tokens + steps, whole + policy.lookahead_tokens)
    if caller is Caller.LOAD_BACK:
        return shape.computed_tokens
    if caller is Caller.EVICT:
        return min(shape.computed_tokens + policy.chunk_tokens, whole) + policy.lookahead_tokens
    return whole + policy.lookahead_tokens


def _peak(
    pool: SubPoolPlan, shape: RequestShape, policy: ServingPolicy, caller: Caller, last: int
) -> int:
    kind, page = pool.lifetime.kind, pool.page_size
    if kind is LifetimeKind.REQUEST:
        if caller is Caller.LOAD_BACK:
            return 1
        # A shared slot stays with its holders: the copy is one more, and its own from then on.
        return 1 + policy.tracking_slots + shape.shares_slot
    if kind is LifetimeKind.CONTEXT:
        # Whole shared pages are the cache's; one filled in part is forked, so it is paid for.
        return -(-last // page) - shape.shared_tokens // page
    return min(-(-last // page), pages_touched(_span(pool, policy, caller, shape), page))


def _span(pool: SubPoolPlan, policy: ServingPolicy, caller: Caller, shape: RequestShape) -> int:
    """Most tokens of a window or chunk that have rows at one moment.

    The part's own length; what the forwards in flight add before the oldest is processed and
    retires its rows; rows kept back to the last checkpoint; drafts.
    """
    length = pool.lifetime.length
    if caller is Caller.LOAD_BACK:
        return length
    prefilling = shape.computed_tokens < shape.prompt_tokens and caller is not Caller.DECODE
    step = 1 + policy.lookahead_tokens
    if prefilling:
        left = shape.prompt_tokens - shape.computed_tokens
        step = max(step, min(policy.chunk_tokens, left))
    return (
        length
        + _tokens_in_flight(shape.in_flight_tokens, step, policy)
        + policy.checkpoint_tokens
        + policy.lookahead_tokens
    )


def _tokens_in_flight(now: int, step: int, policy: ServingPolicy) -> int:
    """Most tokens launched and not processed, from `now` on, when each new launch adds `step`.

    After the j-th new launch at most `steps_in_flight - j` of the launches of now are left; before
    the first, all of them are.
    """
    steps = policy.steps_in_flight
    most_of_one = max(step, policy.chunk_tokens)
    return max(
        now,
        *(min(now, (steps - new) * most_of_one) + new * step for new in range(1, steps + 1)),
    )


def pages_touched(tokens: int, page: int) -> int:
    """Most pages that a run of `tokens` consecutive tokens can touch, wherever it starts."""
    return 0 if tokens <= 0 else (page - 1 + tokens - 1) // page + 1


def joint(demands: Sequence[Demand]) -> Demand:
    """The sum of demands: what several requests need together."""
    assert demands, "a joint demand of nothing has no number of bands"
    return tuple(sum(column) for column in zip(*demands, strict=True))


def clip_output_tokens(
    pools: Sequence[SubPoolPlan],
    shape: RequestShape,
    policy: ServingPolicy,
    *,
    fits: Callable[[Demand], bool],
) -> int | None:
    """The memory clip: most tokens up to `shape.output_tokens` that the request may generate.

    `fits` is the joint test, over an empty arena or a loaded one. None: not even the prompt fits.
    O(log output_tokens) joint tests; the price is monotone in the tokens.
    """

    def affordable(tokens: int) -> bool:
        asked = RequestShape(
            prompt_tokens=shape.prompt_tokens,
            output_tokens=tokens,
            computed_tokens=min(shape.computed_tokens, shape.prompt_tokens + tokens),
            shared_tokens=min(shape.shared_tokens, shape.prompt_tokens + tokens),
            in_flight_tokens=shape.in_flight_tokens,
            held=shape.held,
            shares_slot=shape.shares_slot,
        )
        return fits(price(pools, asked, policy, Caller.CLIP))

    if not affordable(0):
        return None
    low, high = 0, shape.output_tokens
    while low < high:
        middle = (low + high + 1) // 2
        if affordable(middle):
            low = middle
        else:
            high = middle - 1
    return low
