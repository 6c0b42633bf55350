"""How many arena bytes a budget buys: what stays outside, the floor, and the settings.

S is what is left of the byte budget; no rounded token count is ever summed up again. Ratios are
placement hints for empty floating bands and never walls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onearena.core.errors import UsageError
from onearena.core.geometry import (
    ALIGN_BYTES,
    GUARD_BYTES,
    ArenaGeometry,
    chain_geometry,
    pack,
    packed_bytes,
)
from onearena.core.layout import LifetimeKind
from onearena.core.plain import integer
from onearena.core.sub_pools import BYTES_MAX, INDEX_MAX, SubPoolPlan

ID_BYTES = 8
"""A virtual id, and an entry of the device's id table, is one int64."""

PPM = 1_000_000
"""Fractions and ratios are integers in millionths: no float decides a size."""

_COUNT_MAX = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What an operator chooses. Bytes are bytes, ``_ppm`` are millionths.

    ``budget_bytes``: device memory the plan may divide; ``mem_fraction_static_ppm`` of it, less
    ``weights_bytes``, is the byte budget.
    ``max_total_tokens``: cap on the arena: no larger than that many tokens need.
    ``max_running_requests``: rows, scratch and captured buffers are sized for it.
    ``max_request_tokens``: longest request admitted; the plan is refused if one does not fit.
    Without it a request is clipped to what fits, and the floor is one bounded part at its bound.
    ``state_slots_per_request``: live slot plus tracking and replacement slots.
    ``swa_full_tokens_ratio_ppm``, ``mamba_full_memory_ratio_ppm``: hints where floats first open.
    """

    budget_bytes: int
    mem_fraction_static_ppm: int = PPM
    weights_bytes: int = 0
    max_total_tokens: int | None = None
    max_running_requests: int = 256
    max_request_tokens: int | None = None
    state_slots_per_request: int = 1
    draft_tokens: int = 0
    workspace_bytes: int = 0
    forwards_in_flight: int = 2
    swa_full_tokens_ratio_ppm: int = 800_000
    mamba_full_memory_ratio_ppm: int = 900_000

    def __post_init__(self) -> None:
        ranges = {
            "budget_bytes": (1, BYTES_MAX),
            "mem_fraction_static_ppm": (1, PPM),
            "weights_bytes": (0, BYTES_MAX),
            "max_running_requests": (1, 1 << 24),
            "state_slots_per_request": (1, 1 << 16),
            "draft_tokens": (0, 1 << 16),
            "workspace_bytes": (0, BYTES_MAX),
            "forwards_in_flight": (1, 1 << 10),
            "swa_full_tokens_ratio_ppm": (1, 1000 * PPM),
            "mamba_full_memory_ratio_ppm": (1, 1000 * PPM),
        }
        for name, (low, high) in ranges.items():
            integer(getattr(self, name), field=name, minimum=low, maximum=high)
        for name in ("max_total_tokens", "max_request_tokens"):
            value = getattr(self, name)
            if value is not None:
                integer(value, field=name, minimum=1, maximum=_COUNT_MAX)
        if self.static_bytes <= 0:
            fix = f"raise budget_bytes: the weights take {self.weights_bytes} bytes of it"
            raise UsageError("budget_bytes", self.budget_bytes, fix)

    @property
    def static_bytes(self) -> int:
        """The byte budget: the static fraction of the memory, less the weights."""
        return self.budget_bytes * self.mem_fraction_static_ppm // PPM - self.weights_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideItem:
    """Bytes of the budget that are not arena bytes, and why they are needed."""

    name: str
    size_bytes: int
    why: str


def chain_units(sub_pools: Sequence[SubPoolPlan]) -> list[tuple[str, int]]:
    """``(name, unit_bytes)`` in chain order, as ``chain_geometry`` takes them."""
    return [(sub_pool.name, sub_pool.unit_bytes) for sub_pool in sub_pools]


def geometry_of(
    sub_pools: Sequence[SubPoolPlan],
    arena_bytes: int,
    *,
    float_anchor_bytes: Sequence[int] = (),
    most_bytes: int = 0,
) -> ArenaGeometry:
    """The geometry of ``arena_bytes``; ``UsageError`` if ids or 64-bit addresses do not reach.

    ``most_bytes``: what the arena might have with larger pages, for the advice in that error.
    """
    geometry = chain_geometry(
        arena_bytes, chain_units(sub_pools), float_anchor_bytes=float_anchor_bytes
    )
    if geometry.buffer_bytes > BYTES_MAX:
        raise UsageError("budget_bytes", geometry.buffer_bytes, f"stay below {BYTES_MAX} bytes")
    for sub_pool, band in zip(sub_pools, geometry.bands, strict=True):
        if band.grid.capacity_units > INDEX_MAX:
            _refuse_index(sub_pool, max(arena_bytes, most_bytes))
    return geometry


def _refuse_index(sub_pool: SubPoolPlan, arena_bytes: int) -> None:
    if sub_pool.lifetime.per_token:
        enough = -(-arena_bytes // (INDEX_MAX * sub_pool.entry.entry_bytes))
        fix = (
            f"raise page_size to at least {enough}: an id has 26 bits for its index, so sub-pool "
            f"{sub_pool.name} may have at most {INDEX_MAX} pages"
        )
        raise UsageError("page_size", sub_pool.page_size, fix)
    fix = (
        f"use at most {INDEX_MAX * sub_pool.unit_bytes} arena bytes: an id has 26 bits for its "
        f"index, so sub-pool {sub_pool.name} may have at most {INDEX_MAX} slots"
    )
    raise UsageError("budget_bytes", arena_bytes, fix)


def peak_demand(
    sub_pools: Sequence[SubPoolPlan], tokens: int, *, state_slots: int = 1
) -> tuple[int, ...]:
    """Most units per band, chain order, that one request of ``tokens`` tokens holds at a time."""
    return tuple(
        sub_pool.peak_units(tokens) * (1 if sub_pool.lifetime.per_token else state_slots)
        for sub_pool in sub_pools
    )


def row_tokens(
    sub_pools: Sequence[SubPoolPlan], settings: PlanSettings, context_tokens: int
) -> int:
    """Tokens a request row has room for: the admitted, or what context and budget allow."""
    limit = settings.max_request_tokens or context_tokens
    for sub_pool in sub_pools:
        if sub_pool.lifetime.kind is LifetimeKind.CONTEXT:
            pages = settings.static_bytes // sub_pool.unit_bytes
            limit = min(limit, max(1, pages) * sub_pool.page_size)
    return limit


def outside_items(
    sub_pools: Sequence[SubPoolPlan],
    settings: PlanSettings,
    geometry: ArenaGeometry,
    context_tokens: int,
) -> tuple[OutsideItem, ...]:
    """Everything the budget pays for besides the arena, itemised. O(bands)."""
    requests = settings.max_running_requests
    tokens = row_tokens(sub_pools, settings, context_tokens)
    units = sum(peak_demand(sub_pools, tokens, state_slots=settings.state_slots_per_request))
    sinks = sum(sub_pool.unit_bytes for sub_pool in sub_pools)
    guards = sum(end - start for start, end in geometry.guard_ranges())
    ids = sum(band.grid.capacity_units + 1 for band in geometry.bands)
    slots = [pool for pool in sub_pools if not pool.lifetime.per_token]
    state_bytes = sum(
        lane.size_bytes for pool in slots for lane in pool.entry.lanes if not lane.ring
    )
    if any(lane.ring for pool in slots for lane in pool.entry.lanes):
        scratch, scratch_why = 0, "replay rings in the state entry replace state copies"
    else:
        scratch = requests * settings.draft_tokens * state_bytes
        scratch_why = (
            f"{requests} requests x {settings.draft_tokens} draft tokens"
            f" x {state_bytes} state bytes"
        )
    in_flight = settings.forwards_in_flight
    return (
        OutsideItem(name="sinks", size_bytes=sinks, why="one unit of every band's own grid"),
        OutsideItem(name="guards", size_bytes=guards, why=f"{GUARD_BYTES} bytes on each side"),
        OutsideItem(
            name="grid_alignment",
            size_bytes=geometry.prefix_bytes + geometry.suffix_bytes - sinks - guards,
            why="every sink lies on its band's grid, below the arena",
        ),
        OutsideItem(name="id_tables", size_bytes=ids * ID_BYTES, why=f"int64 x {ids} ids"),
        OutsideItem(
            name="request_rows",
            size_bytes=requests * units * ID_BYTES,
            why=f"{requests} rows x {units} virtual ids ({tokens} tokens)",
        ),
        OutsideItem(
            name="captured_workspace",
            size_bytes=in_flight * requests * units * ID_BYTES + settings.workspace_bytes,
            why=f"{in_flight} forwards x resolved ids, plus {settings.workspace_bytes} given",
        ),
        OutsideItem(name="speculative_scratch", size_bytes=scratch, why=scratch_why),
    )


def solve_arena_bytes(
    sub_pools: Sequence[SubPoolPlan],
    settings: PlanSettings,
    *,
    context_tokens: int,
    float_anchor_bytes: Sequence[int],
) -> tuple[ArenaGeometry, tuple[OutsideItem, ...]]:
    """An S such that it and everything outside it fit the byte budget, and S + 16 does not.

    Outside bytes depend on S (id tables grow with it, and the high end's phase moves its sink),
    so S is found by bisection; a cap by ``max_total_tokens`` may end it earlier.
    """
    budget = settings.static_bytes
    units = chain_units(sub_pools)

    def outside_of(arena_bytes: int) -> tuple[OutsideItem, ...]:
        geometry = chain_geometry(arena_bytes, units, float_anchor_bytes=float_anchor_bytes)
        return outside_items(sub_pools, settings, geometry, context_tokens)

    def fits(arena_bytes: int) -> bool:
        outside_bytes = sum(item.size_bytes for item in outside_of(arena_bytes))
        return arena_bytes + outside_bytes <= budget

    if not fits(0):
        outside = outside_of(0)
        total = sum(item.size_bytes for item in outside)
        listed = ", ".join(f"{item.name} {item.size_bytes:,}" for item in outside)
        fix = f"raise it above the {total:,} bytes that lie outside the arena ({listed})"
        raise UsageError("budget_bytes", settings.budget_bytes, fix)
    low, high = 0, budget // ALIGN_BYTES
    if settings.max_total_tokens is not None:
        cap = capped_bytes(sub_pools, settings, float_anchor_bytes=float_anchor_bytes)
        high = min(high, cap // ALIGN_BYTES)
    if fits(high * ALIGN_BYTES):
        low = high
    # Invariant: low fits; high does not, unless they are equal.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * ALIGN_BYTES) else (low, middle)
    arena_bytes = low * ALIGN_BYTES
    geometry = geometry_of(
        sub_pools, arena_bytes, float_anchor_bytes=float_anchor_bytes, most_bytes=budget
    )
    return geometry, outside_of(arena_bytes)


def capped_bytes(
    sub_pools: Sequence[SubPoolPlan], settings: PlanSettings, *, float_anchor_bytes: Sequence[int]
) -> int:
    """Arena bytes for ``max_total_tokens``.

    All of them in context parts, the hinted share of them in bounded parts, and a set of slots
    for every running request.
    """
    tokens = settings.max_total_tokens
    assert tokens is not None
    counts: list[int] = []
    for sub_pool in sub_pools:
        if not sub_pool.lifetime.per_token:
            counts.append(settings.max_running_requests * settings.state_slots_per_request)
        elif sub_pool.lifetime.length:
            share = -(-tokens * settings.swa_full_tokens_ratio_ppm // PPM)
            units = max(-(-share // sub_pool.page_size), sub_pool.peak_units(tokens))
            counts.append(units)
        else:
            counts.append(-(-tokens // sub_pool.page_size))
    return packed_bytes(chain_units(sub_pools), counts, float_anchor_bytes=float_anchor_bytes)


def worst_case_tokens(
    sub_pools: Sequence[SubPoolPlan], settings: PlanSettings, context_tokens: int
) -> int:
    """Tokens of the request that must fit an empty arena.

    ``max_request_tokens`` when given (never more than ``max_total_tokens``). Without it longer
    requests are clipped to what fits, so the floor is the length at which every bounded part
    has reached its bound, or the whole context if that is shorter.
    """
    if settings.max_request_tokens is not None:
        return min(settings.max_request_tokens, settings.max_total_tokens or _COUNT_MAX)
    bound = max(
        (pool.lifetime.length + pool.page_size for pool in sub_pools if pool.lifetime.length),
        default=max(pool.page_size for pool in sub_pools),
    )
    return min(context_tokens, bound, settings.max_total_tokens or _COUNT_MAX)


def check_floor(
    sub_pools: Sequence[SubPoolPlan],
    settings: PlanSettings,
    geometry: ArenaGeometry,
    outside: Sequence[OutsideItem],
    *,
    context_tokens: int,
    float_anchor_bytes: Sequence[int],
) -> None:
    """Refuse, itemised, a budget in which one worst-case request does not fit."""
    tokens = worst_case_tokens(sub_pools, settings, context_tokens)
    tokens += settings.draft_tokens
    counts = peak_demand(sub_pools, tokens, state_slots=settings.state_slots_per_request)
    if pack(geometry, counts).feasible:
        return
    needed = packed_bytes(chain_units(sub_pools), counts, float_anchor_bytes=float_anchor_bytes)
    items = [
        f"{pool.name} {count:,} {pool.unit_word}s x {pool.unit_bytes:,} = "
        f"{count * pool.unit_bytes:,}"
        for pool, count in zip(sub_pools, counts, strict=True)
        if count
    ]
    items += [f"{item.name} {item.size_bytes:,}" for item in outside if item.size_bytes]
    enough = _enough_budget_bytes(
        sub_pools,
        settings,
        needed,
        context_tokens=context_tokens,
        float_anchor_bytes=float_anchor_bytes,
    )
    advice = f"raise it to {enough:,} bytes"
    if settings.max_total_tokens is not None:
        advice = f"raise max_total_tokens to {tokens:,} and the budget to {enough:,} bytes"
    if settings.max_request_tokens is not None:
        advice += " or lower max_request_tokens"
    fix = (
        f"{advice}: one request of {tokens:,} tokens needs {needed:,} arena bytes and the budget "
        f"leaves {geometry.arena_bytes:,} (in bytes: {'; '.join(items)})"
    )
    raise UsageError("budget_bytes", settings.budget_bytes, fix)


def _enough_budget_bytes(
    sub_pools: Sequence[SubPoolPlan],
    settings: PlanSettings,
    needed: int,
    *,
    context_tokens: int,
    float_anchor_bytes: Sequence[int],
) -> int:
    """A budget with which the plan gets at least ``needed`` arena bytes.

    Rows and id tables grow with the budget, so it is raised by what is still missing until the
    plan solved with it is large enough; a cap by ``max_total_tokens`` is left aside.
    """
    budget = settings.budget_bytes
    while True:
        trial = replace(settings, budget_bytes=budget, max_total_tokens=None)
        geometry = geometry_of(sub_pools, needed, float_anchor_bytes=float_anchor_bytes)
        outside = outside_items(sub_pools, trial, geometry, context_tokens)
        excess_bytes = needed + sum(item.size_bytes for item in outside) - trial.static_bytes
        if excess_bytes <= 0:
            solved, _ = solve_arena_bytes(
                sub_pools,
                trial,
                context_tokens=context_tokens,
                float_anchor_bytes=float_anchor_bytes,
            )
            if solved.arena_bytes >= needed:
                return budget
            excess_bytes = needed - solved.arena_bytes
        budget += -(-excess_bytes * PPM // settings.mem_fraction_static_ppm) + ALIGN_BYTES


def placement_hints(
    sub_pools: Sequence[SubPoolPlan], settings: PlanSettings, arena_bytes: int
) -> tuple[int, ...]:
    """Address, per band, at which its first unit may be opened when the arena is empty.

    The arena is shared out by the two ratios (a window gets ``swa_full_tokens_ratio`` tokens
    per full token, the state ``mamba_full_memory_ratio`` bytes per full byte), then rounded down
    to 16. The low end starts at 0 and the high end at S whatever the ratios say.
    """
    # The bytes one full token stands for; without a context part, one token of the high end.
    base = next(
        (p.entry.entry_bytes for p in sub_pools if p.lifetime.kind is LifetimeKind.CONTEXT),
        sub_pools[-1].entry.entry_bytes,
    )
    weights: list[int] = []
    for pool in sub_pools:
        if not pool.lifetime.per_token:
            weights.append(base * settings.mamba_full_memory_ratio_ppm)
        elif pool.lifetime.length:
            weights.append(pool.entry.entry_bytes * settings.swa_full_tokens_ratio_ppm)
        else:
            weights.append(base * PPM)
    total = sum(weights)
    hints: list[int] = []
    below = 0
    for index, weight in enumerate(weights):
        last = index == len(weights) - 1 and index > 0
        address = arena_bytes if last else arena_bytes * below // total
        hints.append(address // ALIGN_BYTES * ALIGN_BYTES)
        below += weight
    return tuple(hints)
