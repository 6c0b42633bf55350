"""The storage plan: declarations in, sub-pools, geometry and budget out; pure data, integers only.

``StoragePlan.build`` sizes a plan from a byte budget. ``StoragePlan.from_units`` makes one of an
exact number of arena bytes for harnesses and tests. Both are deterministic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from onearena.core.declaration import ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.geometry import ALIGN_BYTES, ArenaGeometry, pack, packed_bytes
from onearena.core.layout import Lane
from onearena.core.plain import Fields, integer, parse_text
from onearena.core.sizing import (
    OutsideItem,
    PlanSettings,
    chain_units,
    check_floor,
    geometry_of,
    peak_demand,
    placement_hints,
    solve_arena_bytes,
)
from onearena.core.sub_pools import BYTES_MAX, SubPoolPlan, sub_pools_of

__all__ = [
    "ModelDeclaration",
    "OutsideItem",
    "PlanSettings",
    "StoragePlan",
    "SubPoolPlan",
]

PLAN_FORMAT = "onearena.plan"
PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlan:
    """Everything an arena is built from.

    ``sub_pools``, ``geometry.bands`` and every demand are in chain order, low to high, so a band
    number indexes all of them. The byte of entry e of lane L in band B of the buffer is
    ``prefix_bytes + grid.origin_bytes + e * entry_bytes + lane.offset_bytes``; entry e of
    physical unit u is ``u * page_size + k``, and unit 0 (entries 0..page_size-1) is the sink.
    ``settings`` is None and ``outside`` empty in a plan made by ``from_units``.
    """

    declaration: ModelDeclaration
    draft: ModelDeclaration | None
    page_size: int
    sub_pools: tuple[SubPoolPlan, ...]
    float_anchor_bytes: tuple[int, ...]
    settings: PlanSettings | None
    outside: tuple[OutsideItem, ...]
    geometry: ArenaGeometry
    placement_hint_bytes: tuple[int, ...] = field(default=())

    @property
    def arena_bytes(self) -> int:
        """S."""
        return self.geometry.arena_bytes

    @property
    def outside_bytes(self) -> int:
        """Bytes of the budget that are not arena bytes."""
        return sum(item.size_bytes for item in self.outside)

    @property
    def unused_bytes(self) -> int:
        """Bytes of the budget that neither the arena nor anything outside it uses."""
        if self.settings is None:
            return 0
        return self.settings.static_bytes - self.arena_bytes - self.outside_bytes

    @property
    def slack_bound_bytes(self) -> int:
        """Most bytes that no layout can use: grids of floats, and below the smallest unit.

        ``pack(geometry, counts).slack_bytes`` is the exact figure for given counts.
        """
        floats = sum(pool.unit_bytes - ALIGN_BYTES for pool in self.sub_pools[1:-1])
        return floats + min(pool.unit_bytes for pool in self.sub_pools) - ALIGN_BYTES

    def band(self, name: str) -> int:
        """Band number of the sub-pool of that name; ``KeyError`` if there is none."""
        for index, pool in enumerate(self.sub_pools):
            if pool.name == name:
                return index
        raise KeyError(f"no sub-pool {name!r}; there are {[p.name for p in self.sub_pools]}")

    def lane(self, name: str) -> tuple[int, Lane]:
        """``(band, lane)`` of the lane of that name, e.g. ``layers.3.k``. O(lanes).

        A layer with two lifetimes has lanes of different names in different bands.
        """
        for index, pool in enumerate(self.sub_pools):
            for lane in pool.entry.lanes:
                if lane.name == name:
                    return index, lane
        raise KeyError(f"no lane {name!r} in any sub-pool")

    def lane_byte(self, band: int, lane: Lane, entry: int) -> int:
        """Buffer byte at which the lane's row of that physical entry starts."""
        grid = self.geometry.bands[band].grid
        inside = entry * self.sub_pools[band].entry.entry_bytes + lane.offset_bytes
        return self.geometry.prefix_bytes + grid.origin_bytes + inside

    def units_for_tokens(self, band: int, tokens: int) -> int:
        """Steady-state units of one request of ``tokens`` tokens in that band."""
        return self.sub_pools[band].units_for_tokens(tokens)

    def peak_demand(self, tokens: int) -> tuple[int, ...]:
        """Most units per band that one request holds while it grows to ``tokens`` tokens."""
        slots = self.settings.state_slots_per_request if self.settings else 1
        return peak_demand(self.sub_pools, tokens, state_slots=slots)

    def fits(self, counts: Sequence[int]) -> bool:
        """Whether an otherwise empty arena can hold these units per band: exact, O(bands)."""
        return pack(self.geometry, counts).feasible

    @classmethod
    def build(
        cls,
        declaration: ModelDeclaration,
        settings: PlanSettings,
        *,
        page_size: int = 64,
        draft: ModelDeclaration | None = None,
        float_anchor_bytes: Sequence[int] = (),
    ) -> StoragePlan:
        """Size a plan from the byte budget of ``settings``.

        ``UsageError`` names the setting and the fix: a budget below one worst-case request
        (itemised), a page size too small for 26-bit ids, a draft that cannot fuse, overflow.
        """
        sub_pools = sub_pools_of(declaration, page_size=page_size, draft=draft)
        anchors = _anchors(float_anchor_bytes, sub_pools)
        context = declaration.max_context_tokens
        geometry, outside = solve_arena_bytes(
            sub_pools, settings, context_tokens=context, float_anchor_bytes=anchors
        )
        check_floor(
            sub_pools,
            settings,
            geometry,
            outside,
            context_tokens=context,
            float_anchor_bytes=anchors,
        )
        return cls(
            declaration=declaration,
            draft=draft,
            page_size=page_size,
            sub_pools=sub_pools,
            float_anchor_bytes=anchors,
            settings=settings,
            outside=outside,
            geometry=geometry,
            placement_hint_bytes=placement_hints(sub_pools, settings, geometry.arena_bytes),
        )

    @classmethod
    def from_units(
        cls,
        declaration: ModelDeclaration,
        *,
        page_size: int = 1,
        counts: Mapping[str, int] | Sequence[int] | None = None,
        arena_bytes: int | None = None,
        draft: ModelDeclaration | None = None,
        float_anchor_bytes: Sequence[int] = (),
        allow_tiny: bool = False,
    ) -> StoragePlan:
        """Make a plan of an exact arena, with no budget for what lies outside it.

        Either ``arena_bytes`` (any multiple of 16), or the fewest bytes that hold ``counts``
        units (per sub-pool name, or in chain order). Unless ``allow_tiny``, one token must fit.
        """
        sub_pools = sub_pools_of(declaration, page_size=page_size, draft=draft)
        anchors = _anchors(float_anchor_bytes, sub_pools)
        if (counts is None) == (arena_bytes is None):
            raise UsageError("counts", counts, "give either counts or arena_bytes")
        if arena_bytes is None:
            assert counts is not None
            arena_bytes = packed_bytes(
                chain_units(sub_pools), _counts(counts, sub_pools), float_anchor_bytes=anchors
            )
        integer(arena_bytes, field="arena_bytes", minimum=0, maximum=BYTES_MAX)
        if arena_bytes % ALIGN_BYTES:
            raise UsageError("arena_bytes", arena_bytes, f"use a multiple of {ALIGN_BYTES}")
        geometry = geometry_of(sub_pools, arena_bytes, float_anchor_bytes=anchors)
        one_token = peak_demand(sub_pools, 1)
        if not allow_tiny and not pack(geometry, one_token).feasible:
            needed = packed_bytes(chain_units(sub_pools), one_token, float_anchor_bytes=anchors)
            fix = f"use at least {needed}: one token must fit (or pass allow_tiny)"
            raise UsageError("arena_bytes", arena_bytes, fix)
        hints = placement_hints(sub_pools, PlanSettings(budget_bytes=1), arena_bytes)
        return cls(
            declaration=declaration,
            draft=draft,
            page_size=page_size,
            sub_pools=sub_pools,
            float_anchor_bytes=anchors,
            settings=None,
            outside=(),
            geometry=geometry,
            placement_hint_bytes=hints,
        )

    def to_plain(self) -> dict[str, object]:
        """The JSON form: the inputs, and under ``derived`` all that follows from them."""
        return {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "declaration": self.declaration.to_plain(),
            "draft": None if self.draft is None else self.draft.to_plain(),
            "page_size": self.page_size,
            "float_anchor_bytes": list(self.float_anchor_bytes),
            "settings": None if self.settings is None else asdict(self.settings),
            "arena_bytes": self.arena_bytes,
            "derived": _derived(self),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """``to_plain`` as text; equal plans give equal text."""
        return json.dumps(self.to_plain(), indent=indent)

    @classmethod
    def from_json(cls, text: str, *, source: str = "plan") -> StoragePlan:
        """Inverse of ``to_json``.

        Rebuilds the plan from its inputs and compares what was derived, so a plan edited by hand
        or made by other rules is refused (``UsageError``).
        """
        fields = Fields(parse_text(text, source=source, toml=False), f"{source}:")
        if fields.text("format") != PLAN_FORMAT:
            raise UsageError(fields.path("format"), fields.raw("format"), f'use "{PLAN_FORMAT}"')
        fields.integer("version", minimum=1, maximum=PLAN_VERSION)
        declaration = ModelDeclaration.from_plain(
            fields.raw("declaration"), source=f"{source}: declaration"
        )
        draft_plain = fields.raw("draft", default=None)
        draft = None
        if draft_plain is not None:
            draft = ModelDeclaration.from_plain(draft_plain, source=f"{source}: draft")
        page_size = fields.integer("page_size", minimum=1, maximum=BYTES_MAX)
        path = fields.path("float_anchor_bytes")
        anchors = [
            integer(value, field=f"{path}[{index}]", minimum=0, maximum=BYTES_MAX)
            for index, value in enumerate(fields.items("float_anchor_bytes", limit=64))
        ]
        arena_bytes = fields.integer("arena_bytes", minimum=0, maximum=BYTES_MAX)
        settings = _settings(fields)
        derived = fields.raw("derived")
        fields.done()
        if settings is None:
            plan = cls.from_units(
                declaration,
                page_size=page_size,
                arena_bytes=arena_bytes,
                draft=draft,
                float_anchor_bytes=anchors,
                allow_tiny=True,
            )
        else:
            plan = cls.build(
                declaration,
                settings,
                page_size=page_size,
                draft=draft,
                float_anchor_bytes=anchors,
            )
        if plan.arena_bytes != arena_bytes or _derived(plan) != derived:
            fix = "make the plan anew: its numbers do not follow from its inputs"
            raise UsageError(fields.path("derived"), f"arena_bytes {arena_bytes}", fix)
        return plan


def _anchors(anchors: Sequence[int], sub_pools: Sequence[SubPoolPlan]) -> tuple[int, ...]:
    """Checked anchors, one per floating band; none given means 0 for each."""
    floats = max(0, len(sub_pools) - 2)
    values = tuple(anchors) or (0,) * floats
    if len(values) != floats:
        fix = f"give {floats} values, one per floating band"
        raise UsageError("float_anchor_bytes", list(values), fix)
    for index, value in enumerate(values):
        where = f"float_anchor_bytes[{index}]"
        integer(value, field=where, minimum=0, maximum=BYTES_MAX >> 1)
        if value % ALIGN_BYTES:
            raise UsageError(where, value, f"use a multiple of {ALIGN_BYTES}")
    return values


def _counts(
    counts: Mapping[str, int] | Sequence[int], sub_pools: Sequence[SubPoolPlan]
) -> tuple[int, ...]:
    names = [pool.name for pool in sub_pools]
    if isinstance(counts, Mapping):
        unknown = [name for name in counts if name not in names]
        if unknown:
            raise UsageError("counts", unknown[0], f"use sub-pools of the plan: {', '.join(names)}")
        values = tuple(counts.get(name, 0) for name in names)
    else:
        values = tuple(counts)
        if len(values) != len(names):
            raise UsageError("counts", list(values), f"give one count per sub-pool: {names}")
    for name, value in zip(names, values, strict=True):
        integer(value, field=f"counts[{name}]", minimum=0, maximum=1 << 40)
    return values


def _settings(fields: Fields) -> PlanSettings | None:
    if fields.raw("settings", default=None) is None:
        return None
    table = fields.table("settings")
    known = PlanSettings.__dataclass_fields__
    values: dict[str, int | None] = {}
    for name in known:
        value = table.raw(name, default=None)
        optional = name in ("max_total_tokens", "max_request_tokens")
        if value is None and optional:
            values[name] = None
            continue
        values[name] = table.integer(name, minimum=0, maximum=BYTES_MAX)
    table.done()
    return PlanSettings(**values)  # type: ignore[arg-type]  # names and types come from the class


def _derived(plan: StoragePlan) -> dict[str, object]:
    """All that follows from the inputs, in the words of the vocabulary."""
    return {
        "prefix_bytes": plan.geometry.prefix_bytes,
        "suffix_bytes": plan.geometry.suffix_bytes,
        "buffer_bytes": plan.geometry.buffer_bytes,
        "guards": [list(guard) for guard in plan.geometry.guard_ranges()],
        "slack_bound_bytes": plan.slack_bound_bytes,
        "unused_bytes": plan.unused_bytes,
        "outside": [asdict(item) for item in plan.outside],
        "placement_hint_bytes": list(plan.placement_hint_bytes),
        "sub_pools": [
            {
                "name": pool.name,
                "lifetime": pool.lifetime.text,
                "placement": pool.placement.value,
                "reason": pool.reason,
                "page_size": pool.page_size,
                "entry_bytes": pool.entry.entry_bytes,
                "payload_bytes": pool.entry.payload_bytes,
                "unit_bytes": pool.unit_bytes,
                "zero_on_hand_out": pool.entry.zero_on_hand_out,
                "origin_bytes": band.grid.origin_bytes,
                "first_unit": band.grid.first_unit,
                "capacity_units": band.grid.capacity_units,
                "sink": list(plan.geometry.sink_range(index)),
                "lanes": [_lane_plain(lane) for lane in pool.entry.lanes],
            }
            for index, (pool, band) in enumerate(
                zip(plan.sub_pools, plan.geometry.bands, strict=True)
            )
        ],
    }


def _lane_plain(lane: Lane) -> dict[str, object]:
    plain: dict[str, object] = {
        "name": lane.name,
        "shape": list(lane.shape),
        "dtype": lane.dtype.value,
        "offset_bytes": lane.offset_bytes,
        "size_bytes": lane.size_bytes,
    }
    plain.update({flag: True for flag in ("draft", "zero", "ring") if getattr(lane, flag)})
    return plain
