"""Layers cut from a model until its arena is small enough for memory that is really touched.

Lanes, dtypes and the ratio of the units stay the model's: every kind of layer loses the same
share, the layers that stay are spread evenly, and at least one of each kind stays. Where one layer
of the rarest kind is still too many, the commoner kinds lose more (of the known models that is
Kimi K3: two or one KDA layers beside one MLA layer, instead of three). Each device runs the same
cut arena, so that one choices file means the same on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from onearena.core.declaration import LayerDeclaration, ModelDeclaration
from onearena.core.geometry import chain_geometry, packed_bytes
from onearena.core.models import known_declaration
from onearena.core.sub_pools import SubPoolPlan, sub_pools_of

ARENA_BYTES_MAX: Final = 64 << 20
"""Largest buffer of a schedule: arena, sinks and guards."""


def cut_layers(declaration: ModelDeclaration, left: int, most: int = 0) -> ModelDeclaration:
    """The declaration with `left` layers of its rarest kind, and as many of the others as keep
    their ratio, but at most `most` of any kind (0: no such bound). O(layers).
    """
    kinds: dict[tuple[object, ...], list[LayerDeclaration]] = {}
    for layer in declaration.layers:
        if layer.parts:
            kinds.setdefault(layer.parts, []).append(layer)
    rarest = min(len(layers) for layers in kinds.values())
    assert 1 <= left <= rarest, f"{left} layers of {rarest}"
    keep = {
        parts: min(max(1, (2 * len(layers) * left + rarest) // (2 * rarest)), most or len(layers))
        for parts, layers in kinds.items()
    }
    seen = dict.fromkeys(kinds, 0)
    kept: list[LayerDeclaration] = []
    for layer in declaration.layers:
        if not layer.parts:
            continue
        count, wanted, index = len(kinds[layer.parts]), keep[layer.parts], seen[layer.parts]
        seen[layer.parts] = index + 1
        if (index + 1) * wanted // count > index * wanted // count:
            kept.append(layer)
    return ModelDeclaration(
        name=declaration.name,
        max_context_tokens=declaration.max_context_tokens,
        layers=tuple(kept),
    )


@lru_cache(maxsize=1024)
def cut_model(name: str, left: int, most: int = 0) -> ModelDeclaration:
    """`cut_layers` of a known model; 0 cuts nothing."""
    declaration = known_declaration(name)
    assert declaration is not None, f"{name} is not a known model"
    return cut_layers(declaration, left, most) if left else declaration


@lru_cache(maxsize=1024)
def _pools(name: str, page: int, left: int, most: int = 0) -> tuple[SubPoolPlan, ...]:
    return sub_pools_of(cut_model(name, left, most), page_size=page)


@lru_cache(maxsize=256)
def _most_kept(name: str) -> int:
    """Layers of the commonest kind beside one layer of the rarest."""
    counts: dict[tuple[object, ...], int] = {}
    for layer in cut_model(name, 1).layers:
        counts[layer.parts] = counts.get(layer.parts, 0) + 1
    return max(counts.values())


@lru_cache(maxsize=256)
def rarest_kind(name: str) -> int:
    """Layers of the rarest kind of a known model."""
    counts: dict[tuple[object, ...], int] = {}
    for layer in cut_model(name, 0).layers:
        if layer.parts:
            counts[layer.parts] = counts.get(layer.parts, 0) + 1
    return min(counts.values())


def buffer_bytes(
    pools: Sequence[SubPoolPlan], counts: Sequence[int], anchors: Sequence[int]
) -> int:
    """Bytes of arena, sinks and guards that hold `counts` units, and one more of the smallest."""
    units = [(pool.name, pool.unit_bytes) for pool in pools]
    arena = packed_bytes(units, counts, float_anchor_bytes=anchors)
    arena += min(size for _, size in units)
    return chain_geometry(arena, units, float_anchor_bytes=anchors).buffer_bytes


def fitting_cut(
    name: str, page: int, counts: Sequence[int], anchors: Sequence[int]
) -> tuple[ModelDeclaration, list[int]]:
    """The least cut with which `counts` units fit, and the counts: fewer where even one layer of
    each kind is too many. Pure; O(layers) when new.
    """
    rarest = rarest_kind(name)

    def fits(cut: tuple[int, int], units: Sequence[int]) -> bool:
        return buffer_bytes(_pools(name, page, *cut), units, anchors) <= ARENA_BYTES_MAX

    if fits((0, 0), counts):
        return cut_model(name, 0), list(counts)
    whole = buffer_bytes(_pools(name, page, 0), counts, anchors)
    left, most = max(1, min(rarest, rarest * ARENA_BYTES_MAX // whole + 1)), 0
    while left > 1 and not fits((left, 0), counts):
        left -= 1
    if left == 1 and not fits((1, 0), counts):
        most = _most_kept(name)
        while most > 1 and not fits((1, most), counts):
            most -= 1
    pools, fewer = _pools(name, page, left, most), list(counts)
    while not fits((left, most), fewer):
        # What takes the most bytes gives way first.
        taken = [
            (count > 1) * count * pool.unit_bytes for count, pool in zip(fewer, pools, strict=True)
        ]
        assert any(taken), f"{name}: one unit of each kind exceeds {ARENA_BYTES_MAX} bytes"
        fewer[taken.index(max(taken))] -= 1
    return cut_model(name, left, most), fewer
