"""Arenas for schedules: which model, page size, how tight, how run. All drawn from the choices.

Real geometries at small scale: the units are as large as the model's, their number is small, so
that a schedule of a few hundred steps fills the arena, runs into every refusal, and moves every
band. Layers are cut until the arena is small enough for a device on which real bytes move, whatever
the device: one choices file is one arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onearena.core.arena_state import ArenaOptions
from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.modeled_memory import Grids
from onearena.core.errors import UsageError
from onearena.core.layout import LifetimeKind
from onearena.core.models import KNOWN_MODELS, known_declaration
from onearena.core.plan import StoragePlan
from onearena.core.sub_pools import SubPoolPlan, sub_pools_of
from onearena.stress.arena_sut import ArenaSut
from onearena.stress.choices import Choices
from onearena.stress.cut_layers import fitting_cut
from onearena.stress.ranks import RankDevice
from onearena.stress.systems import Built, locator

if TYPE_CHECKING:
    from onearena.core.device.threads_paired import PairedDevice
    from onearena.stress.real_forwards import RealChecks

PORTFOLIO: Final = (
    "gpt-oss-20b",
    "qwen3.5-4b",
    "gemma-3-27b",
    "kimi-k3",
    "inkling",
    "llama-4-scout",
    "inkling-small",
    "deepseek-v3.2",
    "gemma-4-26b-a4b",
)
"""What a campaign over any model draws from: one to three sub-pools, all lifetimes."""

PAGE_SIZES: Final = (1, 16, 64)
UNITS_MAX: Final = 4096
TIGHTNESS: Final = ("exact", "short", "tight", "tight", "tight", "roomy")


HOST_BYTES_MAX: Final = 64 << 20
"""Of the host tier of one band; at least two units."""


def build(model: str, choices: Choices, *, device: str = "modeled", delays: int = 0) -> Built:
    """Draw an arena of `model` ("any": of the portfolio) and put it on a fresh device.

    `device` "threads" or "cuda" runs the work on real bytes beside the modeled device; no draw
    depends on it, nor on `delays`, which draws how late the real work is.
    """
    name = model
    if model == "any":
        name = PORTFOLIO[choices.pick("arena.model", len(PORTFOLIO))]
    declaration = known_declaration(name)
    if declaration is None:
        known = ", ".join(known.name for known in KNOWN_MODELS)
        raise UsageError("--model", model, f"give any, all, or one of {known}")
    page, sub_pools = _page(declaration_pools(name), choices)
    counts = _counts(sub_pools, choices)
    anchors = [16 * choices.pick("arena.anchor", 64) for _ in range(max(0, len(sub_pools) - 2))]
    declaration, counts = fitting_cut(name, page, counts, anchors)
    exact = StoragePlan.from_units(
        declaration, page_size=page, counts=counts, float_anchor_bytes=anchors, allow_tiny=True
    ).arena_bytes
    # A byte budget is no sum of units: the plan has to use all of it.
    sub_pools = sub_pools_of(declaration, page_size=page)
    odd_bytes = 16 * choices.pick("arena.odd_bytes", min(p.unit_bytes for p in sub_pools) // 16)
    budget_bytes = exact + odd_bytes if choices.chance("arena.odd", 500) else exact
    plan = StoragePlan.from_units(
        declaration,
        page_size=page,
        arena_bytes=budget_bytes,
        float_anchor_bytes=anchors,
        allow_tiny=True,
    )
    bands = len(sub_pools)
    options = ArenaOptions(
        zero_bands=tuple(b for b in range(bands) if choices.chance("arena.zero", 300)),
        host_units=_host_units(bands, choices),
        buffer_slots=choices.between("arena.buffer_slots", 2, 16),
        move_stream=("schedule", "moves", "moves")[choices.pick("arena.move_stream", 3)],
        zero_stream=("schedule", "zeroing", "zeroing")[choices.pick("arena.zero_stream", 3)],
    )
    grids = {
        band: (shape.grid.origin_bytes, shape.grid.unit_bytes)
        for band, shape in enumerate(plan.geometry.bands)
    }
    if device not in ("modeled", "rank"):
        # Only here: a schedule on the modeled device alone needs no memory and no torch.
        paired, real = _real_device(device, plan, options, grids, choices.seed, delays)
        sut = ArenaSut(plan, paired, options)
        sut.plan = replace(sut.plan, budget_bytes=budget_bytes)
        return Built(paired, sut, locator(sut), real=real)
    modeled = (RankDevice if device == "rank" else ModeledDevice)(grids=grids, eager=True)
    sut = ArenaSut(plan, modeled, options)
    sut.plan = replace(sut.plan, budget_bytes=budget_bytes)
    return Built(modeled, sut, locator(sut))


def _real_device(
    device: str, plan: StoragePlan, options: ArenaOptions, grids: Grids, seed: int, delays: int
) -> tuple[PairedDevice, RealChecks]:
    if device == "cuda":
        from onearena.stress.cuda_forwards import cuda_device

        return cuda_device(plan, options, grids, seed=seed, delays=delays)
    from onearena.stress.real_forwards import real_device

    return real_device(plan, options, grids, seed=seed, delays=delays)


def _host_units(bands: int, choices: Choices) -> tuple[int, ...]:
    """Half of the host tiers are small, so that a freed unit is soon somebody else's."""
    most = (10, 40)[choices.pick("arena.host_size", 2)]
    return tuple(choices.between("arena.host", 3, most) for _ in range(bands))


def declaration_pools(name: str) -> dict[int, tuple[SubPoolPlan, ...]]:
    """Sub-pools of a model at each page size that keeps one request below `UNITS_MAX` small
    units.
    """
    known = _POOLS.get(name)
    if known is None:
        declaration = known_declaration(name)
        assert declaration is not None, f"{name} is not a known model"
        known = {page: sub_pools_of(declaration, page_size=page) for page in PAGE_SIZES}
        fitting = {page: pools for page, pools in known.items() if 2 * _ratio(pools) < UNITS_MAX}
        known = _POOLS[name] = fitting or {max(known): known[max(known)]}
    return known


_POOLS: dict[str, dict[int, tuple[SubPoolPlan, ...]]] = {}


def _ratio(pools: Sequence[SubPoolPlan]) -> int:
    sizes = [pool.unit_bytes for pool in pools]
    return max(sizes) // min(sizes)


def _page(
    pools: dict[int, tuple[SubPoolPlan, ...]], choices: Choices
) -> tuple[int, tuple[SubPoolPlan, ...]]:
    pages = sorted(pools)
    page = pages[choices.pick("arena.page", len(pages))]
    return page, pools[page]


def _counts(pools: Sequence[SubPoolPlan], choices: Choices) -> list[int]:
    """Units per band that the arena holds at once: those of one request, or of several.

    `short` is one unit of the smallest kind below one request: the largest request cannot be
    served.
    """
    tightness = TIGHTNESS[choices.pick("arena.tightness", len(TIGHTNESS))]
    context = choices.between("arena.context_units", 3, 10)
    requests = 1
    if tightness == "tight":
        requests = choices.between("arena.requests", 2, 5)
    elif tightness == "roomy":
        requests = choices.between("arena.requests", 6, 14)
    smallest = min(pool.unit_bytes for pool in pools)
    one = [_units_of_one(pool, context) for pool in pools]
    bytes_of_one = sum(n * pool.unit_bytes for n, pool in zip(one, pools, strict=True))
    requests = max(1, min(requests, UNITS_MAX * smallest // bytes_of_one))
    counts = [requests * n for n in one]
    if tightness == "short":
        least = min(range(len(pools)), key=lambda band: pools[band].unit_bytes)
        counts[least] = max(1, counts[least] - 1)
    return counts


def _units_of_one(pool: SubPoolPlan, context: int) -> int:
    if pool.lifetime.kind is LifetimeKind.REQUEST:
        return 1
    if pool.lifetime.kind is LifetimeKind.CONTEXT:
        return context
    return max(2, context // 2)
