"""Declarations of known models, and how the name or file a user gives becomes one.

Sources: the models' public ``config.json`` files and the engines' state shape rules; fields that
no public file confirms are marked "inferred". The order of layers follows each family's rule;
bytes depend on the counts alone.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from onearena.core.declaration import ModelDeclaration, load_plain
from onearena.core.errors import UsageError
from onearena.core.layout import Dtype, chunk, window
from onearena.core.model_parts import (
    Parts,
    declare,
    dsa_index,
    gated_delta,
    gqa,
    kimi_delta,
    mamba1,
    mamba2,
    mla,
    short_convs,
)
from onearena.core.models_hf import declaration_from_hf

Layers = list[tuple[str, Parts]]

_K = 1024
_MLA_ROW = 512 + 64
_INDEX_DIM = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One row of the list of known models."""

    name: str
    hf_id: str
    note: str
    max_context_tokens: int
    layers: Callable[[], Layers]

    def declaration(self) -> ModelDeclaration:
        """The declaration, built anew (cheap: a few hundred small objects)."""
        return declare(self.name, self.max_context_tokens, self.layers())


def _every(count: int, period: int, rare: tuple[str, Parts], common: tuple[str, Parts]) -> Layers:
    """``count`` layers; the last of every ``period`` is ``rare``, the others ``common``."""
    return [rare if (index + 1) % period == 0 else common for index in range(count)]


def _gpt_oss(count: int) -> Layers:
    return _every(count, 2, ("full", gqa(8, 64)), ("window", gqa(8, 64, lifetime=window(128))))


def _qwen(count: int, kv_heads: int, value_heads: int, dtype: Dtype = Dtype.FP32) -> Layers:
    state = gated_delta(
        key_heads=16, key_dim=128, value_heads=value_heads, value_dim=128, temporal_dtype=dtype
    )
    return _every(count, 4, ("full", gqa(kv_heads, 256)), ("linear", state))


def _gemma(count: int, full: Parts, kv_heads: int, head_dim: int) -> Layers:
    local = gqa(kv_heads, head_dim, lifetime=window(1024))
    return _every(count, 6, ("full", full), ("window", local))


def _kimi(count: int, heads: int, *, index: bool = False) -> Layers:
    full = mla(_MLA_ROW) + (dsa_index(_INDEX_DIM) if index else ())
    layers = _every(count, 4, ("mla", full), ("kda", kimi_delta(heads=heads, head_dim=128)))
    layers[-1] = ("mla", full)
    return layers


def _jamba() -> Layers:
    state = mamba1(width=2 * 4096, d_state=16)
    return [("full", gqa(8, 128)) if i % 8 == 4 else ("mamba", state) for i in range(32)]


def _falcon_h1() -> Layers:
    # Attention and Mamba run side by side: one layer with two lifetimes.
    state = mamba2(heads=24, head_dim=128, groups=1, d_state=256)
    return [("parallel", gqa(2, 128) + state)] * 44


def _pattern(text: str, kinds: Mapping[str, tuple[str, Parts]]) -> Layers:
    return [kinds[letter] for letter in text]


def _nemotron_h() -> Layers:
    kinds: dict[str, tuple[str, Parts]] = {
        "M": ("mamba", mamba2(heads=256, head_dim=64, groups=8, d_state=256)),
        "*": ("full", gqa(8, 128)),
        "-": ("mlp", ()),
    }
    # 10 groups of 5 Mamba layers with one attention layer each, then 4 Mamba layers (inferred).
    return _pattern("M-M-M*-M-M-" * 10 + "M-" * 4, kinds)


def _nemotron_3_nano() -> Layers:
    kinds: dict[str, tuple[str, Parts]] = {
        "M": (
            "mamba",
            mamba2(heads=64, head_dim=64, groups=8, d_state=128, temporal_dtype=Dtype.FP32),
        ),
        "*": ("full", gqa(2, 128)),
        "E": ("moe", ()),
    }
    return _pattern("MEMEM*E" + "MEMEM*E" * 4 + "MEMEMEM*E" + "MEMEMEME", kinds)


def _llama4() -> Layers:
    local = gqa(8, 128, lifetime=chunk(8192))
    return _every(48, 4, ("full", gqa(8, 128)), ("chunk", local))


def _inkling(count: int, hidden: int, local_heads: int) -> Layers:
    full = gqa(8, 128) + short_convs(kv_width=8 * 128, hidden=hidden)
    local = gqa(local_heads, 128, lifetime=window(512))
    local += short_convs(kv_width=local_heads * 128, hidden=hidden)
    return _every(count, 6, ("full", full), ("window", local))


def _model(
    name: str, hf_id: str, context: int, layers: Callable[[], Layers], note: str = ""
) -> KnownModel:
    return KnownModel(name=name, hf_id=hf_id, max_context_tokens=context, layers=layers, note=note)


_MIB_TOKENS = 1024 * _K

KNOWN_MODELS: tuple[KnownModel, ...] = (
    _model("gpt-oss-20b", "openai/gpt-oss-20b", 128 * _K, lambda: _gpt_oss(24)),
    _model("gpt-oss-120b", "openai/gpt-oss-120b", 128 * _K, lambda: _gpt_oss(36)),
    _model("qwen3.5-4b", "Qwen/Qwen3.5-4B", 256 * _K, lambda: _qwen(32, 4, 32), "also 9B"),
    _model("qwen3.5-27b", "Qwen/Qwen3.5-27B", 256 * _K, lambda: _qwen(64, 4, 48)),
    _model("qwen3.5-35b-a3b", "Qwen/Qwen3.5-35B-A3B", 256 * _K, lambda: _qwen(40, 2, 32)),
    _model(
        "qwen3-next-80b-a3b",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        256 * _K,
        lambda: _qwen(48, 2, 32, Dtype.BF16),
        "inferred",
    ),
    _model(
        "gemma-3-27b", "google/gemma-3-27b-it", 128 * _K, lambda: _gemma(62, gqa(16, 128), 16, 128)
    ),
    _model(
        "gemma-4-26b-a4b",
        "google/gemma-4-26B-A4B",
        256 * _K,
        lambda: _gemma(30, gqa(2, 512), 8, 256),
        "K and V stored apart in full layers: inferred",
    ),
    _model(
        "kimi-linear-48b-a3b",
        "moonshotai/Kimi-Linear-48B-A3B-Instruct",
        _MIB_TOKENS,
        lambda: _kimi(27, 32),
    ),
    _model("kimi-k3", "moonshotai/Kimi-K3", _MIB_TOKENS, lambda: _kimi(93, 96)),
    _model(
        "kimi-k3.1-like",
        "(hypothetical)",
        _MIB_TOKENS,
        lambda: _kimi(93, 96, index=True),
        "K3 with a sparse attention index beside every MLA row",
    ),
    _model(
        "deepseek-v3.2",
        "deepseek-ai/DeepSeek-V3.2",
        160 * _K,
        lambda: [("dsa", mla(_MLA_ROW) + dsa_index(_INDEX_DIM))] * 61,
    ),
    _model("jamba-v0.1", "ai21labs/Jamba-v0.1", 256 * _K, _jamba, "bf16 state: inferred"),
    _model(
        "falcon-h1-7b",
        "tiiuae/Falcon-H1-7B-Instruct",
        256 * _K,
        _falcon_h1,
        "two lifetimes in every layer; bf16 state: inferred",
    ),
    _model(
        "nemotron-h-56b",
        "nvidia/Nemotron-H-56B-Base-8K",
        8 * _K,
        _nemotron_h,
        "bf16 state: inferred",
    ),
    _model(
        "nemotron-3-nano-30b-a3b",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        256 * _K,
        _nemotron_3_nano,
    ),
    _model(
        "llama-4-scout",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
        10 * _MIB_TOKENS,
        _llama4,
        "chunks retire whole",
    ),
    _model(
        "inkling",
        "thinkingmachines/Inkling",
        _MIB_TOKENS,
        lambda: _inkling(66, 6144, 16),
        "3 kinds",
    ),
    _model(
        "inkling-small",
        "thinkingmachines/Inkling-Small",
        _MIB_TOKENS,
        lambda: _inkling(42, 4096, 8),
        "3 kinds",
    ),
)

KNOWN_DRAFTS: tuple[KnownModel, ...] = (
    _model("qwen3.5-4b-mtp", "Qwen/Qwen3.5-4B", 256 * _K, lambda: [("mtp", gqa(4, 256))]),
    _model("qwen3.5-27b-mtp", "Qwen/Qwen3.5-27B", 256 * _K, lambda: [("mtp", gqa(4, 256))]),
    _model("qwen3.5-35b-a3b-mtp", "Qwen/Qwen3.5-35B-A3B", 256 * _K, lambda: [("mtp", gqa(2, 256))]),
    _model(
        "deepseek-v3.2-mtp",
        "deepseek-ai/DeepSeek-V3.2",
        160 * _K,
        lambda: [("mtp", mla(_MLA_ROW) + dsa_index(_INDEX_DIM))],
    ),
)


@lru_cache(maxsize=64)
def known_declaration(name: str) -> ModelDeclaration | None:
    """The declaration of a known model or draft, by name or Hugging Face id (any case)."""
    wanted = name.casefold()
    for model in KNOWN_MODELS:
        if wanted in (model.name, model.hf_id.casefold()):
            return model.declaration()
    for draft in KNOWN_DRAFTS:
        if wanted == draft.name:
            return draft.declaration()
    return None


def resolve_declaration(name_or_path: str, *, field: str) -> ModelDeclaration:
    """A known model's declaration, or one read from a file.

    A file is a declaration (JSON, or TOML by its ``.toml`` suffix) or a Hugging Face
    ``config.json``, told apart by ``kinds`` and ``model_type``. ``UsageError`` names the field.
    """
    known = known_declaration(name_or_path)
    if known is not None:
        return known
    suffixed = name_or_path.endswith((".json", ".toml"))
    # Unlike Path.exists, this answers False for a name too long or with a zero byte in it.
    exists = os.path.exists(name_or_path)  # noqa: PTH110
    looks_like_path = "/" in name_or_path or suffixed or exists
    if not looks_like_path:
        names = [model.name for model in (*KNOWN_MODELS, *KNOWN_DRAFTS)]
        close = difflib.get_close_matches(name_or_path.casefold()[:80], names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        fix = f"{hint}give a known model (`onearena plan --list`) or a path such as ./config.json"
        raise UsageError(field, name_or_path, fix)
    plain = load_plain(name_or_path, field=field)
    if isinstance(plain, dict) and "model_type" in plain and "kinds" not in plain:
        return declaration_from_hf(plain, source=name_or_path)
    return ModelDeclaration.from_plain(plain, source=name_or_path)
