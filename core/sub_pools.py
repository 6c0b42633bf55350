"""Sub-pools of a declaration: which parts share an entry, in which order bands lie, and why.

Everything here follows from lifetimes alone; no model, layer kind or part name is special.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from onearena.core.declaration import ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.geometry import Placement, placement_of
from onearena.core.layout import EntryLayout, Lifetime, LifetimeKind, Part

PAGE_SIZE_MAX = 1 << 40
"""Largest page in entries: beyond any use, and its bytes are checked against 64 bits."""

BANDS_MAX = 32
"""A virtual id has 5 bits for its band."""

INDEX_MAX = (1 << 26) - 1
"""A virtual id has 26 bits for its index; index 0 is the sink's."""

BYTES_MAX = (1 << 63) - 1
"""All address arithmetic is signed 64-bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubPoolPlan:
    """One kind of state: its entry, its unit, its place in the chain and the reason for it.

    ``page_size`` is entries per unit: the plan's page size, or 1 for a state slot.
    """

    name: str
    lifetime: Lifetime
    page_size: int
    entry: EntryLayout
    placement: Placement
    reason: str

    @property
    def unit_bytes(self) -> int:
        """Bytes of one page or slot."""
        return self.page_size * self.entry.entry_bytes

    @property
    def unit_word(self) -> str:
        """``page`` or ``slot``."""
        return "page" if self.lifetime.per_token else "slot"

    def units_for_tokens(self, tokens: int) -> int:
        """Units that a request of ``tokens`` tokens holds in steady state.

        A context part: ceil(tokens / page_size). A window: pages that touch the last ``length``
        tokens. A chunk: pages that touch the chunk of the last token. A slot: 1.
        32,768 tokens with 64-token pages: 512 full pages, 64 pages of a 4,096-token window.
        """
        assert tokens >= 0, f"{tokens} tokens"
        if tokens == 0:
            return 0
        kind, length = self.lifetime.kind, self.lifetime.length
        if kind is LifetimeKind.REQUEST:
            return 1
        first = 0
        if kind is LifetimeKind.WINDOW:
            first = max(0, tokens - length)
        elif kind is LifetimeKind.CHUNK:
            first = (tokens - 1) // length * length
        return (tokens - 1) // self.page_size - first // self.page_size + 1

    def peak_units(self, tokens: int) -> int:
        """Upper bound of ``units_for_tokens`` over every length up to ``tokens``; monotone.

        Exact for context parts, slots, and pages that divide a chunk; a window reaches it once
        ``tokens`` is at least its length plus one page.
        """
        if tokens == 0 or self.lifetime.kind is LifetimeKind.REQUEST:
            return min(tokens, 1)
        size, length = self.page_size, self.lifetime.length
        pages = -(-tokens // size)
        if self.lifetime.kind is LifetimeKind.CONTEXT:
            return pages
        # The retained run starts at any token of a page (window), or at a multiple of
        # gcd(length, page) (chunk): the latest such start touches the most pages.
        step = 1 if self.lifetime.kind is LifetimeKind.WINDOW else math.gcd(length, size)
        return min(pages, (size - step + length - 1) // size + 1)


@lru_cache(maxsize=1024)
def sub_pools_of(
    declaration: ModelDeclaration, *, page_size: int, draft: ModelDeclaration | None = None
) -> tuple[SubPoolPlan, ...]:
    """Sub-pools in chain order, low to high; draft lanes lie in the target's entries.

    ``UsageError`` for a page size that is no positive integer, more than 32 kinds, a draft part
    whose lifetime the target does not have, or a unit beyond 64-bit addresses. O(lanes) the first
    time; equal arguments give the same tuple again.
    """
    if not 1 <= page_size <= PAGE_SIZE_MAX:
        raise UsageError("page_size", page_size, f"use an integer from 1 to {PAGE_SIZE_MAX}")
    parts: dict[Lifetime, list[tuple[int, Part, bool]]] = {}
    for lifetime in declaration.lifetimes():
        parts[lifetime] = [(layer, part, False) for layer, part in declaration.parts_of(lifetime)]
    if not parts:
        raise UsageError("layers", declaration.name, "declare at least one part")
    if draft is not None:
        _add_draft(parts, declaration, draft)
    if len(parts) > BANDS_MAX:
        fix = f"merge window lengths: an arena has at most {BANDS_MAX} sub-pools"
        raise UsageError("layers", len(parts), fix)
    entries = {lifetime: EntryLayout.of_parts(rows) for lifetime, rows in parts.items()}
    for lifetime, entry in entries.items():
        if entry.entry_bytes * (page_size if lifetime.per_token else 1) > BYTES_MAX >> 2:
            fix = f"make units of sub-pool {lifetime.sub_pool_name} smaller: 64 bits address them"
            raise UsageError("page_size", page_size, fix)
    order = _chain_order(entries)
    return tuple(
        SubPoolPlan(
            name=lifetime.sub_pool_name,
            lifetime=lifetime,
            page_size=page_size if lifetime.per_token else 1,
            entry=entries[lifetime],
            placement=placement_of(index, len(order)),
            reason=reason,
        )
        for index, (lifetime, reason) in enumerate(order)
    )


def _add_draft(
    parts: dict[Lifetime, list[tuple[int, Part, bool]]],
    target: ModelDeclaration,
    draft: ModelDeclaration,
) -> None:
    """Append the draft's parts; a draft row must live exactly as long as the entry it joins."""
    for lifetime in draft.lifetimes():
        if lifetime not in parts:
            have = ", ".join(known.text for known in parts)
            fix = (
                f"its lanes cannot join an entry of {target.name}: no sub-pool there lives as "
                f"long (it has {have}); give a draft whose lifetimes are among these"
            )
            raise UsageError("draft", f"{draft.name}: {lifetime.text}", fix)
        parts[lifetime] += [(layer, part, True) for layer, part in draft.parts_of(lifetime)]


def _chain_order(entries: dict[Lifetime, EntryLayout]) -> list[tuple[Lifetime, str]]:
    """Lifetimes low to high, each with the reason for its place.

    Ends never relocate as a whole, so the per-request state and the per-step grower take them;
    what is bounded and cheap to move floats.
    """
    rest = sorted(
        (lifetime for lifetime in entries if lifetime.length),
        key=lambda lifetime: (-entries[lifetime].entry_bytes, -lifetime.length, lifetime.text),
    )
    state = [lifetime for lifetime in entries if lifetime.kind is LifetimeKind.REQUEST]
    full = [lifetime for lifetime in entries if lifetime.kind is LifetimeKind.CONTEXT]
    if len(entries) == 1:
        return [(next(iter(entries)), "the only kind of state: it grows up from the low end")]
    high: tuple[Lifetime, str]
    if full:
        high = (full[0], "grows with every step and without bound: the high end")
    else:
        # No context part: the longest bounded kind is what grows for the most steps.
        longest = max(rest, key=lambda lifetime: (lifetime.length, lifetime.text))
        rest.remove(longest)
        high = (longest, "keeps the most tokens, so it grows for the most steps: the high end")
    low: tuple[Lifetime, str]
    if state:
        low = (state[0], "one slot per request, the costliest unit to move: the low end")
    else:
        low = (rest.pop(0), "bounded, with the largest entry of its like: the low end")
    floats = [(lifetime, "bounded and cheap to move: it floats") for lifetime in rest]
    return [low, *floats, high]
