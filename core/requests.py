"""What fits in an otherwise empty arena: the largest request, and how many of a mix.

Both use the packing inequality, so they are exact for the units they count: the peak units of
every request at its full length, with nothing shared and nothing in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onearena.core.errors import UsageError
from onearena.core.layout import LifetimeKind
from onearena.core.plan import StoragePlan

_CLASSES_MAX = 64
_TOKENS_MAX = 1 << 40
_WEIGHT_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests of one shape in a mix: ``weight`` of them in every round of the mix."""

    input_tokens: int
    output_tokens: int
    weight: int

    @property
    def tokens(self) -> int:
        """Tokens held at the end: input and output."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MixFit:
    """How many requests of a mix fit at once, per class, and the units they hold."""

    requests: int
    per_class: tuple[int, ...]
    counts: tuple[int, ...]


def parse_mix(text: str, *, field: str) -> tuple[RequestClass, ...]:
    """``INPUT+OUTPUT:WEIGHT`` items with commas, e.g. ``1024+256:3,16384+4096:1``.

    The weight may be left out (1). ``UsageError`` names ``field``.
    """
    items = text.split(",")
    if len(items) > _CLASSES_MAX:
        raise UsageError(field, text, f"give at most {_CLASSES_MAX} request shapes")
    return tuple(_parse_class(item, field) for item in items)


def _parse_class(item: str, field: str) -> RequestClass:
    shape, _, weight = item.partition(":")
    first, plus, second = shape.partition("+")
    weight = weight if ":" in item else "1"
    numbers: list[int] = []
    limits = ((0, _TOKENS_MAX), (0, _TOKENS_MAX), (1, _WEIGHT_MAX))
    for digits, (low, high) in zip((first, second, weight), limits, strict=True):
        plain = digits.strip()
        if not plus or not (plain.isascii() and plain.isdigit()) or len(plain) > 15:
            raise UsageError(field, item, "use INPUT+OUTPUT:WEIGHT, for example 1024+256:3")
        if not low <= int(plain) <= high:
            fix = f"use tokens up to {_TOKENS_MAX} and weights from 1 to {_WEIGHT_MAX}"
            raise UsageError(field, item, fix)
        numbers.append(int(plain))
    request = RequestClass(input_tokens=numbers[0], output_tokens=numbers[1], weight=numbers[2])
    if request.tokens == 0:
        raise UsageError(field, item, "give a request at least one token")
    return request


def largest_request(plan: StoragePlan) -> int | None:
    """Most tokens one request can hold in an empty arena; 0 if none, None if nothing bounds it.

    Nothing bounds it when every part is bounded (windows and state only). O(bands x log S).
    """
    if not plan.fits(plan.peak_demand(1)):
        return 0
    unbounded = [p for p in plan.sub_pools if p.lifetime.kind is LifetimeKind.CONTEXT]
    if not unbounded:
        settled = max(pool.lifetime.length + pool.page_size for pool in plan.sub_pools)
        if plan.fits(plan.peak_demand(settled)):
            return None
        return _largest(lambda tokens: plan.fits(plan.peak_demand(tokens)), settled)
    band = plan.sub_pools.index(unbounded[0])
    most = plan.geometry.bands[band].grid.capacity_units * unbounded[0].page_size
    return _largest(lambda tokens: plan.fits(plan.peak_demand(tokens)), most)


def fit_mix(
    plan: StoragePlan,
    mix: Sequence[RequestClass],
    *,
    fits: Callable[[Sequence[int]], bool] | None = None,
) -> MixFit:
    """How many requests fit at once when they arrive in rounds of the mix's weights.

    `fits` says whether units per band can be held, the plan's own arena by default; it must hold
    for nothing and for less than what it holds for. Another rule compares the arena with a split.

    Requests are taken in a fixed order (each round: all of the first class, then the second,
    ...), so more requests never need fewer units and a binary search is exact.
    """
    assert mix, "a mix needs at least one request shape"
    demands = [plan.peak_demand(request.tokens) for request in mix]

    def counts_of(requests: int) -> tuple[int, ...]:
        per_class = _per_class(mix, requests)
        return tuple(
            sum(number * demand[band] for number, demand in zip(per_class, demands, strict=True))
            for band in range(len(plan.sub_pools))
        )

    smallest = min(pool.unit_bytes for pool in plan.sub_pools)
    # Every request holds at least one unit of some band.
    most = plan.arena_bytes // smallest + 1
    holds = plan.fits if fits is None else fits
    requests = _largest(lambda number: holds(counts_of(number)), most)
    return MixFit(
        requests=requests, per_class=_per_class(mix, requests), counts=counts_of(requests)
    )


def _per_class(mix: Sequence[RequestClass], requests: int) -> tuple[int, ...]:
    """Requests per class among the first ``requests`` of the rounds."""
    rounds, rest = divmod(requests, sum(request.weight for request in mix))
    result: list[int] = []
    for request in mix:
        extra = min(rest, request.weight)
        rest -= extra
        result.append(rounds * request.weight + extra)
    return tuple(result)


def _largest(holds: Callable[[int], bool], high: int) -> int:
    """Largest n in [0, high] with ``holds(n)``; ``holds`` is monotone and true at 0."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
