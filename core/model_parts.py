"""Parts of the known layer kinds: which rows attention and recurrent layers keep.

State shape rules (one request, no speculative rows), as the inference engines compute them:
conv rows are kernel - 1; GDN width 2*Hk*Dk + Hv*Dv and temporal [Hv, Dv, Dk]; KDA width 3*H*D
and recurrent [H, D, D] in fp32; Mamba2 width heads*head_dim + 2*groups*d_state and temporal
[heads, head_dim, d_state]; Mamba1 width expand*hidden and temporal [width, d_state].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onearena.core.declaration import LayerDeclaration, ModelDeclaration
from onearena.core.layout import CONTEXT, REQUEST, Dtype, Lifetime, Part

Parts = tuple[Part, ...]

INDEX_SCALE_BYTES = 4
"""A DSA index row ends with one fp32 scale per 128 fp8 values."""

INDEX_SCALE_EVERY = 128


def gqa(
    kv_heads: int, head_dim: int, *, lifetime: Lifetime = CONTEXT, dtype: Dtype = Dtype.BF16
) -> Parts:
    """K and V rows ``[kv_heads, head_dim]`` of one attention layer."""
    shape = (kv_heads, head_dim)
    return (
        Part(name="k", shape=shape, dtype=dtype, lifetime=lifetime),
        Part(name="v", shape=shape, dtype=dtype, lifetime=lifetime),
    )


def mla(row: int, *, lifetime: Lifetime = CONTEXT, dtype: Dtype = Dtype.BF16) -> Parts:
    """The one latent row ``[kv_lora_rank + rope]`` of a multi-head latent attention layer."""
    return (Part(name="mla_kv", shape=(row,), dtype=dtype, lifetime=lifetime),)


def dsa_index(head_dim: int, *, lifetime: Lifetime = CONTEXT) -> Parts:
    """The indexer key of a sparse attention layer: fp8 values and fp32 scales, as bytes."""
    scales = -(-head_dim // INDEX_SCALE_EVERY) * INDEX_SCALE_BYTES
    shape = (head_dim + scales,)
    return (Part(name="indexer_key", shape=shape, dtype=Dtype.UINT8, lifetime=lifetime),)


def recurrent(
    *,
    conv_rows: int,
    conv_width: int,
    temporal: tuple[int, ...],
    temporal_dtype: Dtype,
    conv_dtype: Dtype = Dtype.BF16,
    temporal_name: str = "temporal",
) -> Parts:
    """Conv rows and temporal state of one recurrent layer, for one request."""
    conv = Part(name="conv", shape=(conv_rows, conv_width), dtype=conv_dtype, lifetime=REQUEST)
    state = Part(name=temporal_name, shape=temporal, dtype=temporal_dtype, lifetime=REQUEST)
    return (conv, state)


def gated_delta(
    *,
    key_heads: int,
    key_dim: int,
    value_heads: int,
    value_dim: int,
    kernel: int = 4,
    temporal_dtype: Dtype = Dtype.FP32,
    conv_dtype: Dtype = Dtype.BF16,
) -> Parts:
    """State of a gated delta net (GDN) layer."""
    return recurrent(
        conv_rows=kernel - 1,
        conv_width=2 * key_heads * key_dim + value_heads * value_dim,
        temporal=(value_heads, value_dim, key_dim),
        temporal_dtype=temporal_dtype,
        conv_dtype=conv_dtype,
    )


def kimi_delta(
    *, heads: int, head_dim: int, kernel: int = 4, conv_dtype: Dtype = Dtype.BF16
) -> Parts:
    """State of a Kimi delta attention (KDA) layer."""
    return recurrent(
        conv_rows=kernel - 1,
        conv_width=3 * heads * head_dim,
        temporal=(heads, head_dim, head_dim),
        temporal_dtype=Dtype.FP32,
        conv_dtype=conv_dtype,
        temporal_name="recurrent",
    )


def mamba1(
    *,
    width: int,
    d_state: int,
    kernel: int = 4,
    temporal_dtype: Dtype = Dtype.BF16,
    conv_dtype: Dtype = Dtype.BF16,
) -> Parts:
    """State of a Mamba layer."""
    return recurrent(
        conv_rows=kernel - 1,
        conv_width=width,
        temporal=(width, d_state),
        temporal_dtype=temporal_dtype,
        conv_dtype=conv_dtype,
    )


def mamba2(
    *,
    heads: int,
    head_dim: int,
    groups: int,
    d_state: int,
    kernel: int = 4,
    temporal_dtype: Dtype = Dtype.BF16,
    conv_dtype: Dtype = Dtype.BF16,
) -> Parts:
    """State of a Mamba-2 layer."""
    return recurrent(
        conv_rows=kernel - 1,
        conv_width=heads * head_dim + 2 * groups * d_state,
        temporal=(heads, head_dim, d_state),
        temporal_dtype=temporal_dtype,
        conv_dtype=conv_dtype,
    )


def short_convs(*, kv_width: int, hidden: int, kernel: int = 4, dtype: Dtype = Dtype.BF16) -> Parts:
    """Inkling's four convolution states of one layer: K, V, attention output, MLP output."""
    widths = {
        "conv_k": kv_width,
        "conv_v": kv_width,
        "conv_attn_out": hidden,
        "conv_mlp_out": hidden,
    }
    return tuple(
        Part(name=name, shape=(kernel - 1, width), dtype=dtype, lifetime=REQUEST)
        for name, width in widths.items()
    )


def replay_rings(
    rows: int, *, heads: int, head_dim: int, d_state: int, dtype: Dtype = Dtype.BF16
) -> Parts:
    """Replay rings of one recurrent layer: the last ``rows`` inputs x, dt (fp32) and B.

    They lie in the state entry, so a slot's allocation and moves carry them.
    """
    shapes: tuple[tuple[str, tuple[int, ...], Dtype], ...] = (
        ("ring_x", (rows, heads, head_dim), dtype),
        ("ring_dt", (rows, heads), Dtype.FP32),
        ("ring_b", (rows, heads, d_state), dtype),
    )
    return tuple(
        Part(name=name, shape=shape, dtype=part_dtype, lifetime=REQUEST, ring=True)
        for name, shape, part_dtype in shapes
    )


def declare(
    name: str, max_context_tokens: int, layers: Iterable[tuple[str, Parts]]
) -> ModelDeclaration:
    """A declaration from ``(kind, parts)`` per layer, with zeroing asked for where it is needed.

    A state slot starts from zero by definition. A token part asks for zeroing when a sub-pool
    of another dtype shares the arena: its stale bytes may read as NaN, and kernels load whole
    pages.
    """
    rows = list(layers)
    dtypes = {part.dtype for _, parts in rows for part in parts}
    lifetimes = {part.lifetime for _, parts in rows for part in parts}
    mixed = len(dtypes) > 1 and len(lifetimes) > 1
    return ModelDeclaration(
        name=name,
        max_context_tokens=max_context_tokens,
        layers=tuple(
            LayerDeclaration(
                kind=kind,
                parts=tuple(
                    replace(part, zero=mixed if part.lifetime.per_token else not part.ring)
                    for part in parts
                ),
            )
            for kind, parts in rows
        ),
    )
