"""What the Plan page says: a storage plan in numbers and pictures, and what fits of a mix. Pure.

Beside the arena stands a fixed split: the same bytes cut once into a pool for each kind, by the two
ratios that engines without one arena are started with. A window pool gets `window_ratio` tokens for
each full token, a state pool `state_ratio` bytes for each full byte, as the plan's placement hints
have them; a request fits if each pool has its units.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from onearena.core.declaration import ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.geometry import pack
from onearena.core.layout import LifetimeKind
from onearena.core.models import KNOWN_DRAFTS, KNOWN_MODELS, known_declaration
from onearena.core.models_hf import declaration_from_hf
from onearena.core.plain import parse_bytes, parse_count, parse_ppm, parse_text
from onearena.core.plan import StoragePlan
from onearena.core.requests import MixFit, RequestClass, fit_mix, largest_request, parse_mix
from onearena.core.sizing import PlanSettings
from onearena.core.snapshot import BandSnapshot, GapSnapshot, Snapshot
from onearena.dashboard.frame import Frame
from onearena.dashboard.view_model import Table
from onearena.dashboard.words import bytes_text

ARRIVALS_MAX: Final = 65_536
ARRIVALS_BYTES_MAX: Final = 32 << 20
CLASSES: Final = 8
CONFIG_MAX: Final = 1 << 20
PAGE_SIZE_MAX: Final = 1 << 16
UNITS_DRAWN_MAX: Final = 1 << 23
MODELS: Final = tuple(model.name for model in KNOWN_MODELS)
DRAFTS: Final = ("none", *(model.name for model in KNOWN_DRAFTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """What the page asks for, as texts of its fields."""

    model: str
    config: str = ""
    draft: str = "none"
    budget: str = "100GiB"
    page_size: str = "64"
    mix: str = "1024+256:3,16384+4096:1"
    window_ratio: str = "0.8"
    state_ratio: str = "0.9"


@dataclass(frozen=True, slots=True, eq=False)
class PlanView:
    """Everything the Plan page shows."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sub_pools: Table
    outside: Table
    lanes: tuple[tuple[str, Table], ...]
    fits: Table
    pools: Table
    verdict: str
    frame: Frame | None
    alt: str


def plan_view(wish: PlanWish, *, mix: tuple[RequestClass, ...] | None = None) -> PlanView:
    """The page of a wish; `mix` stands for its text where it came from arrivals.

    `UsageError` names the field at fault. O(lanes + log of the requests that fit).
    """
    plan = plan_of(wish)
    classes = parse_mix(wish.mix, field="request mix") if mix is None else mix
    window_ppm = parse_ppm(wish.window_ratio, field="window ratio", maximum=1000)
    state_ppm = parse_ppm(wish.state_ratio, field="state ratio", maximum=1000)
    limits = split_units(plan, window_ppm=window_ppm, state_ppm=state_ppm)
    ours = fit_mix(plan, classes)
    theirs = fit_mix(
        plan, classes, fits=lambda counts: all(n <= m for n, m in zip(counts, limits, strict=True))
    )
    largest = largest_request(plan)
    declaration = plan.declaration
    return PlanView(
        title=declaration.name + (f" with draft {plan.draft.name}" if plan.draft else ""),
        facts=(
            ("Arena", bytes_text(plan.arena_bytes)),
            ("Outside the arena", bytes_text(plan.outside_bytes)),
            ("Layers", f"{len(declaration.layers):,}"),
            ("Sub-pools", f"{len(plan.sub_pools)}"),
            ("Largest request", "unbounded" if largest is None else f"{largest:,} tokens"),
        ),
        sub_pools=_sub_pools(plan),
        outside=Table(
            ("what", "bytes"), tuple((item.name, item.size_bytes) for item in plan.outside)
        ),
        lanes=tuple((pool.name, _lanes(plan, at)) for at, pool in enumerate(plan.sub_pools)),
        fits=_fits(classes, ours, theirs),
        pools=_pools(plan, ours, theirs, limits),
        verdict=verdict(ours.requests, theirs.requests),
        frame=packed_frame(plan, ours.counts),
        alt=f"{plan.arena_bytes} bytes, packed with {ours.requests} requests of the mix.",
    )


def plan_of(wish: PlanWish) -> StoragePlan:
    """The storage plan of a wish."""
    if len(wish.config) > CONFIG_MAX:
        raise UsageError("config", f"{len(wish.config)} characters", f"paste at most {CONFIG_MAX}")
    declared = _declared(wish.config) if wish.config.strip() else known_declaration(wish.model)
    if declared is None:
        raise UsageError("model", wish.model, f"give one of {', '.join(MODELS)}")
    draft = None if wish.draft == "none" else known_declaration(wish.draft)
    settings = PlanSettings(
        budget_bytes=parse_bytes(wish.budget, field="bytes"),
        draft_tokens=int(draft is not None),
        swa_full_tokens_ratio_ppm=parse_ppm(wish.window_ratio, field="window ratio", maximum=1000),
        mamba_full_memory_ratio_ppm=parse_ppm(wish.state_ratio, field="state ratio", maximum=1000),
    )
    page_size = parse_count(wish.page_size, field="page size", minimum=1, maximum=PAGE_SIZE_MAX)
    return StoragePlan.build(declared, settings, page_size=page_size, draft=draft)


def _declared(text: str) -> ModelDeclaration:
    """A pasted declaration or Hugging Face config; JSON, or TOML if it does not begin like JSON."""
    toml = not text.lstrip().startswith("{")
    plain = parse_text(text, source="config", toml=toml)
    if isinstance(plain, dict) and "model_type" in plain and "kinds" not in plain:
        return declaration_from_hf(plain, source="config")
    return ModelDeclaration.from_plain(plain, source="config")


# -- the fixed split
def split_units(plan: StoragePlan, *, window_ppm: int, state_ppm: int) -> tuple[int, ...]:
    """Units of each pool when the arena's bytes are cut by the two ratios, in millionths.

    The weights are those of the plan's placement hints: a full token's bytes for a context part,
    `window_ppm` of its own token's bytes for a window or chunk, `state_ppm` of a full token's bytes
    for a state.
    """
    pools = plan.sub_pools
    base = next(
        (p.entry.entry_bytes for p in pools if p.lifetime.kind is LifetimeKind.CONTEXT),
        pools[-1].entry.entry_bytes,
    )
    weights = []
    for pool in pools:
        if not pool.lifetime.per_token:
            weights.append(base * state_ppm)
        elif pool.lifetime.length:
            weights.append(pool.entry.entry_bytes * window_ppm)
        else:
            weights.append(base * 1_000_000)
    total = sum(weights)
    return tuple(
        plan.arena_bytes * weight // total // pool.unit_bytes
        for pool, weight in zip(pools, weights, strict=True)
    )


def verdict(ours: int, theirs: int) -> str:
    """The comparison in one line."""
    if ours == theirs:
        return f"One arena and the fixed split hold the same: {ours:,} requests at once."
    more = f" ({ours / theirs:.2f} times as many)" if theirs else ""
    return f"One arena holds {ours:,} requests at once, the fixed split {theirs:,}{more}."


# -- tables
def _sub_pools(plan: StoragePlan) -> Table:
    rows = [
        (
            pool.name,
            pool.lifetime.text,
            pool.placement.value.replace("_", " "),
            pool.entry.entry_bytes,
            pool.entry.padding_bytes,
            pool.page_size,
            pool.unit_bytes,
            band.grid.capacity_units,
            pool.reason,
        )
        for pool, band in zip(plan.sub_pools, plan.geometry.bands, strict=True)
    ]
    names = ("band", "lifetime", "place", "entry_bytes", "of it padding_bytes", "entries a unit")
    return Table((*names, "unit_bytes", "capacity units", "why there"), tuple(rows))


def _lanes(plan: StoragePlan, band: int) -> Table:
    """The entry of a sub-pool: equal parts of its layers in one row, in order of their bytes."""
    groups: dict[tuple[bool, str, str, str, int], list[int]] = {}
    for lane in plan.sub_pools[band].entry.lanes:
        shape = "x".join(str(n) for n in lane.shape)
        key = (lane.draft, lane.part, lane.dtype.name.lower(), shape, lane.size_bytes)
        groups.setdefault(key, []).append(lane.offset_bytes)
    rows = [
        (("draft " if draft else "") + part, dtype, shape, size, len(offsets), size * len(offsets))
        for (draft, part, dtype, shape, size), offsets in groups.items()
    ]
    names = ("part", "dtype", "shape", "lane_bytes", "lanes", "in an entry_bytes")
    return Table(names, tuple(rows))


def _fits(classes: Sequence[RequestClass], ours: MixFit, theirs: MixFit) -> Table:
    rows: list[tuple[str | int | float, ...]] = [
        (each.input_tokens, each.output_tokens, each.weight, mine, other)
        for each, mine, other in zip(classes, ours.per_class, theirs.per_class, strict=True)
    ]
    rows.append(("all", "", "", ours.requests, theirs.requests))
    names = ("input tokens", "output tokens", "weight", "one arena", "fixed split")
    return Table(names, tuple(tuple(str(cell) for cell in row) for row in rows))


def _pools(plan: StoragePlan, ours: MixFit, theirs: MixFit, limits: Sequence[int]) -> Table:
    rows = []
    for at, pool in enumerate(plan.sub_pools):
        stranded = (limits[at] - theirs.counts[at]) * pool.unit_bytes
        cells = (ours.counts[at] * pool.unit_bytes, limits[at] * pool.unit_bytes, stranded)
        rows.append((pool.name, ours.counts[at], theirs.counts[at], limits[at], *cells))
    names = ("band", "one arena: units", "fixed split: units", "of its pool's units")
    sizes = ("one arena: held_bytes", "fixed split: pool_bytes", "fixed split: idle_bytes")
    return Table((*names, *sizes), tuple(rows))


def entry_table(view: PlanView) -> Table:
    """Bytes by sub-pool and part, for a picture of one entry of each."""
    rows = [(name, str(row[0]), int(row[5])) for name, lanes in view.lanes for row in lanes.rows]
    return Table(("band", "part", "bytes"), tuple(rows))


# -- the picture
def packed_frame(plan: StoragePlan, counts: Sequence[int]) -> Frame | None:
    """The arena packed with these units, as a frame; None if it has too many units to draw."""
    packing = pack(plan.geometry, counts)
    if not packing.feasible or sum(counts) > UNITS_DRAWN_MAX:
        return None
    bands = []
    for at, band in enumerate(plan.geometry.bands):
        grid = band.grid
        low = (packing.starts[at] - grid.origin_bytes) // grid.unit_bytes if counts[at] else 0
        bands.append(
            BandSnapshot(
                name=band.name,
                placement=band.placement.value,
                unit_bytes=grid.unit_bytes,
                origin_bytes=grid.origin_bytes,
                first_unit=grid.first_unit,
                capacity_units=grid.capacity_units,
                low_unit=low,
                high_unit=low + counts[at],
                live_units=counts[at],
                pending_units=0,
                vacated_units=0,
                hole_units=0,
                states=b"\x02" * counts[at],
            )
        )
    return Frame(
        arena="plan",
        device="",
        taken_s=0.0,
        serial=0,
        snapshot=Snapshot(0, plan.arena_bytes, tuple(bands), _gaps(plan, bands), (), ()),
        fit=(),
        fences_total=0,
        uses=(),
        uses_total=0,
        waits=(),
        moves=(),
        times={},
        totals={},
        window=(0, plan.arena_bytes),
        row=b"",
        whole=b"",
        columns=None,
    )


def _gaps(plan: StoragePlan, bands: Sequence[BandSnapshot]) -> tuple[GapSnapshot, ...]:
    found, start = [], 0
    edges = [(band.start_bytes, band.end_bytes) for band in bands if band.has_units]
    for low, high in [*edges, (plan.arena_bytes, plan.arena_bytes)]:
        if low > start:
            found.append(GapSnapshot(start, low, low - start, 0))
        start = high
    return tuple(found)


# -- arrivals
def mix_of_arrivals(text: str) -> tuple[RequestClass, ...]:
    """A mix that stands for recorded arrivals: `CLASSES` groups of equal number by length, and of
    each group its mean tokens, rounded up.

    Reads JSON lines with `input_length` and `output_length`, or a CSV with the columns
    `ContextTokens` and `GeneratedTokens`; at most `ARRIVALS_MAX` rows. `UsageError` names the line.
    """
    rows = sorted(_arrivals(text), key=lambda row: (row[0] + row[1], row))
    if not rows:
        raise UsageError("arrivals", "no request", "give a trace with at least one request")
    groups = min(CLASSES, len(rows))
    found = []
    for at in range(groups):
        part = rows[at * len(rows) // groups : (at + 1) * len(rows) // groups]
        means = [-(-sum(row[side] for row in part) // len(part)) for side in (0, 1)]
        found.append(RequestClass(input_tokens=max(1, means[0]), output_tokens=means[1], weight=1))
    return tuple(found)


def _arrivals(text: str) -> list[tuple[int, int]]:
    if text.lstrip().startswith("{"):
        return [
            _json_row(number, line)
            for number, line in enumerate(text.splitlines()[:ARRIVALS_MAX], 1)
            if line.strip()
        ]
    names = ("ContextTokens", "GeneratedTokens")
    reader = csv.DictReader(io.StringIO(text))
    if not set(names) <= set(reader.fieldnames or ()):
        raise UsageError("arrivals, line 1", text[:40], f"give JSON lines, or a CSV with {names}")
    found = []
    for number, row in enumerate(reader, 2):
        found.append(tuple(_tokens(f"arrivals, line {number}", name, row[name]) for name in names))
        if len(found) >= ARRIVALS_MAX:
            break
    return [(first, second) for first, second in found]


def _json_row(number: int, line: str) -> tuple[int, int]:
    where = f"arrivals, line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError(where, line[:40], "write one JSON object on the line") from None
    if not isinstance(row, dict):
        raise UsageError(where, line[:40], "write one JSON object on the line")
    first, second = (_tokens(where, name, row.get(name)) for name in _LENGTHS)
    return first, second


_LENGTHS: Final = ("input_length", "output_length")


def _tokens(where: str, name: str, value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 10:
        raise UsageError(f"{where} {name}", text[:40], "give a whole number of tokens")
    return int(text)
