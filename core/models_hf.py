"""Hugging Face ``config.json`` to declaration, for the model families listed in ``FAMILIES``.

Reads data that nobody vouches for. A needed field that is missing is refused by name; only
defaults that the config classes themselves define are filled in. Weights' quantisation does not
decide the cache's dtype: KV rows take the model's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onearena.core.declaration import ModelDeclaration
from onearena.core.errors import UsageError
from onearena.core.layout import CONTEXT as CONTEXT_LIFETIME
from onearena.core.layout import MAX_LENGTH, Dtype, Lifetime, chunk, dtype_named, window
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
from onearena.core.plain import Fields, integer

Layers = list[tuple[str, Parts]]

_LAYERS_MAX = 4096
_SIZE_MAX = 1 << 20

_FULL = "full_attention"
_SLIDING = "sliding_attention"
_CHUNKED = "chunked_attention"
_LINEAR = "linear_attention"


class _Config:
    """A config's text part, with the checks that every family shares."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.dtype = _dtype(fields, ("dtype", "torch_dtype"), default=Dtype.BF16)

    def size(self, name: str, *, default: int | None = None) -> int:
        """A positive integer field."""
        return self.fields.integer(name, minimum=1, maximum=_SIZE_MAX, default=default)

    def count(self, name: str, *, default: int | None = None) -> int:
        """A number of layers, 0 allowed."""
        return self.fields.integer(name, minimum=0, maximum=_LAYERS_MAX, default=default)

    @property
    def layers(self) -> int:
        """Number of layers, at least 1."""
        return self.fields.integer("num_hidden_layers", minimum=1, maximum=_LAYERS_MAX)

    @property
    def kv_heads(self) -> int:
        """KV heads; without the field, as many as attention heads."""
        if "num_key_value_heads" in self.fields:
            return self.size("num_key_value_heads")
        return self.size("num_attention_heads")

    @property
    def head_dim(self) -> int:
        """Head dimension; without the field, hidden size over attention heads."""
        if "head_dim" in self.fields:
            return self.size("head_dim")
        return max(1, self.size("hidden_size") // self.size("num_attention_heads"))

    def window(self, name: str = "sliding_window") -> Lifetime:
        """Window length from the field of that name."""
        return window(self.fields.integer(name, minimum=1, maximum=MAX_LENGTH))

    def attention(self, lifetime: Lifetime = CONTEXT_LIFETIME) -> Parts:
        """K and V of the config's own heads."""
        return gqa(self.kv_heads, self.head_dim, lifetime=lifetime, dtype=self.dtype)

    def state_dtype(self, *names: str) -> Dtype:
        """Dtype of the temporal state: the first field present, else the model's dtype."""
        return _dtype(self.fields, names, default=self.dtype)

    def layer_types(
        self, fallback: Callable[[int], str], allowed: Mapping[str, object]
    ) -> list[str]:
        """The list of layer types: the config's own, or the family's rule by layer number."""
        if "layer_types" not in self.fields:
            return [fallback(index) for index in range(self.layers)]
        path = self.fields.path("layer_types")
        types: list[str] = []
        for index, value in enumerate(self.fields.items("layer_types", limit=_LAYERS_MAX)):
            if not isinstance(value, str) or value not in allowed:
                fix = f"use one of {', '.join(allowed)}"
                raise UsageError(f"{path}[{index}]", value, fix)
            types.append(value)
        if len(types) != self.layers:
            fix = f"give {self.layers} types, one per layer (num_hidden_layers)"
            raise UsageError(path, len(types), fix)
        return types

    def typed(self, fallback: Callable[[int], str], kinds: Mapping[str, Parts]) -> Layers:
        """Layers from their types; ``kinds`` gives the parts of each type."""
        return [(kind, kinds[kind]) for kind in self.layer_types(fallback, kinds)]


def _dtype(fields: Fields, names: tuple[str, ...], *, default: Dtype) -> Dtype:
    for name in names:
        if name in fields and fields.raw(name) != "auto":
            return dtype_named(fields.raw(name), field=fields.path(name))
    return default


def _full_only(config: _Config) -> Layers:
    return [("full", config.attention())] * config.layers


def _mistral(config: _Config) -> Layers:
    return _sliding_where(config, lambda _: True)


def _qwen_full(config: _Config) -> Layers:
    first = config.layers
    if config.fields.boolean("use_sliding_window", default=False):
        first = config.count("max_window_layers")
    return _sliding_where(config, lambda index: index >= first)


def _sliding_where(config: _Config, slides: Callable[[int], bool]) -> Layers:
    """Attention only; ``slides`` says which layers have the window, if there is one."""
    if "sliding_window" not in config.fields:
        return config.typed(lambda _: _FULL, {_FULL: config.attention()})
    kinds = {_SLIDING: config.attention(config.window()), _FULL: config.attention()}
    return config.typed(lambda index: _SLIDING if slides(index) else _FULL, kinds)


def _gpt_oss(config: _Config) -> Layers:
    kinds = {_SLIDING: config.attention(config.window()), _FULL: config.attention()}
    return config.typed(lambda index: _FULL if index % 2 else _SLIDING, kinds)


def _qwen_linear(config: _Config) -> Layers:
    state = gated_delta(
        key_heads=config.size("linear_num_key_heads"),
        key_dim=config.size("linear_key_head_dim"),
        value_heads=config.size("linear_num_value_heads"),
        value_dim=config.size("linear_value_head_dim"),
        kernel=_kernel(config, "linear_conv_kernel_dim"),
        temporal_dtype=config.state_dtype("mamba_ssm_dtype"),
        conv_dtype=config.dtype,
    )
    every = config.size("full_attention_interval", default=4)
    kinds = {_LINEAR: state, _FULL: config.attention()}
    return config.typed(lambda index: _LINEAR if (index + 1) % every else _FULL, kinds)


def _kernel(config: _Config, name: str) -> int:
    """A conv kernel size; a state keeps one row fewer, so at least 2."""
    return config.fields.integer(name, minimum=2, maximum=1024)


def _gemma3(config: _Config) -> Layers:
    every = config.size("sliding_window_pattern", default=6)
    kinds = {_SLIDING: config.attention(config.window()), _FULL: config.attention()}
    return config.typed(lambda index: _SLIDING if (index + 1) % every else _FULL, kinds)


def _gemma4(config: _Config) -> Layers:
    heads = config.kv_heads
    if config.fields.boolean("attention_k_eq_v", default=False):
        heads = config.size("num_global_key_value_heads", default=heads)
    full = gqa(heads, config.size("global_head_dim", default=512), dtype=config.dtype)
    kinds = {_SLIDING: config.attention(config.window()), _FULL: full}
    layers = config.typed(lambda index: _SLIDING if (index + 1) % 6 else _FULL, kinds)
    # The last layers may read an earlier layer's rows: they keep none of their own.
    shared = min(config.count("num_kv_shared_layers", default=0), len(layers))
    return layers[: len(layers) - shared] + [("shared", ())] * shared


def _latent(config: _Config) -> Parts:
    row = config.size("kv_lora_rank") + config.fields.integer(
        "qk_rope_head_dim", minimum=0, maximum=_SIZE_MAX
    )
    parts = mla(row, dtype=config.dtype)
    if "index_head_dim" in config.fields:
        parts += dsa_index(config.size("index_head_dim"))
    return parts


def _latent_only(config: _Config) -> Layers:
    return [("mla", _latent(config))] * config.layers


def _kimi(config: _Config) -> Layers:
    full = _latent(config)
    if "linear_attn_config" not in config.fields:
        # The spelling of a config that transformers has saved again.
        state = kimi_delta(
            heads=config.size("linear_num_heads"),
            head_dim=config.size("linear_head_dim"),
            kernel=_kernel(config, "linear_conv_kernel_dim"),
            conv_dtype=config.dtype,
        )
        kinds_by_name = {_LINEAR: state, _FULL: full}
        return config.typed(lambda i: _FULL if i and i % 4 == 0 else _LINEAR, kinds_by_name)
    linear = config.fields.table("linear_attn_config")
    state = kimi_delta(
        heads=linear.integer("num_heads", minimum=1, maximum=_SIZE_MAX),
        head_dim=linear.integer("head_dim", minimum=1, maximum=_SIZE_MAX),
        kernel=linear.integer("short_conv_kernel_size", minimum=2, maximum=1024),
        conv_dtype=config.dtype,
    )
    count = config.layers
    kinds: list[str] = [""] * count
    for name, kind in (("full_attn_layers", _FULL), ("kda_layers", _LINEAR)):
        for position, value in enumerate(linear.items(name, limit=_LAYERS_MAX)):
            # The checkpoint counts layers from 1.
            where = f"{linear.path(name)}[{position}]"
            layer = integer(value, field=where, minimum=1, maximum=count)
            if kinds[layer - 1]:
                raise UsageError(where, layer, "name each layer once")
            kinds[layer - 1] = kind
    if "" in kinds:
        missing = kinds.index("") + 1
        raise UsageError(linear.path("kda_layers"), missing, f"name layer {missing} in a list")
    return [(kind, full if kind == _FULL else state) for kind in kinds]


def _jamba(config: _Config) -> Layers:
    state = mamba1(
        width=config.size("mamba_expand") * config.size("hidden_size"),
        d_state=config.size("mamba_d_state"),
        kernel=_kernel(config, "mamba_d_conv"),
        temporal_dtype=config.state_dtype("mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
        conv_dtype=config.dtype,
    )
    period = config.size("attn_layer_period")
    offset = config.count("attn_layer_offset")
    full = config.attention()
    return [
        ("full", full) if index % period == offset else ("mamba", state)
        for index in range(config.layers)
    ]


def _falcon_h1(config: _Config) -> Layers:
    heads = config.size("mamba_n_heads")
    if "mamba_d_ssm" in config.fields:
        width = config.size("mamba_d_ssm")
    else:
        width = config.size("mamba_expand") * config.size("hidden_size")
    if width % heads:
        path = config.fields.path("mamba_n_heads")
        raise UsageError(path, heads, f"use a divisor of the state width {width}")
    state = mamba2(
        heads=heads,
        head_dim=width // heads,
        groups=config.size("mamba_n_groups"),
        d_state=config.size("mamba_d_state"),
        kernel=_kernel(config, "mamba_d_conv"),
        temporal_dtype=config.state_dtype("mamba_ssm_cache_dtype"),
        conv_dtype=config.dtype,
    )
    return [("parallel", config.attention() + state)] * config.layers


_NEMOTRON_LETTERS = {"M": _LINEAR, "*": _FULL, "-": "mlp", "E": "moe"}
_NEMOTRON_WORDS = {
    "mamba": _LINEAR,
    "attention": _FULL,
    _LINEAR: _LINEAR,
    _FULL: _FULL,
    "mlp": "mlp",
    "moe": "moe",
}


def _nemotron_h(config: _Config) -> Layers:
    state = mamba2(
        heads=config.size("mamba_num_heads"),
        head_dim=config.size("mamba_head_dim"),
        groups=config.size("n_groups"),
        d_state=config.size("ssm_state_size"),
        kernel=_kernel(config, "conv_kernel"),
        temporal_dtype=config.state_dtype("mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
        conv_dtype=config.dtype,
    )
    kinds: dict[str, Parts] = {_LINEAR: state, _FULL: config.attention(), "mlp": (), "moe": ()}
    return [(kind, kinds[kind]) for kind in _nemotron_kinds(config)]


def _nemotron_kinds(config: _Config) -> list[str]:
    """Layer kinds from whichever of three spellings the config has."""
    fields = config.fields
    if "hybrid_override_pattern" in fields:
        pattern = fields.text("hybrid_override_pattern", limit=_LAYERS_MAX)
        for letter in pattern:
            if letter not in _NEMOTRON_LETTERS:
                path = fields.path("hybrid_override_pattern")
                raise UsageError(path, letter, "use the letters M, *, - and E")
        return [_NEMOTRON_LETTERS[letter] for letter in pattern]
    name = "layers_block_type" if "layers_block_type" in fields else "layer_types"
    kinds: list[str] = []
    for index, word in enumerate(fields.items(name, limit=_LAYERS_MAX)):
        if not isinstance(word, str) or word not in _NEMOTRON_WORDS:
            fix = f"use one of {', '.join(_NEMOTRON_WORDS)}"
            raise UsageError(f"{fields.path(name)}[{index}]", word, fix)
        kinds.append(_NEMOTRON_WORDS[word])
    return kinds


def _llama4(config: _Config) -> Layers:
    local = chunk(config.fields.integer("attention_chunk_size", minimum=1, maximum=MAX_LENGTH))
    kinds = {_CHUNKED: config.attention(local), _FULL: config.attention()}
    every = config.size("no_rope_layer_interval", default=4)
    no_rope = config.fields.items("no_rope_layers", limit=_LAYERS_MAX, default=[])
    if no_rope and "layer_types" not in config.fields:
        # Despite its name, 1 marks a layer WITH rope, which is a chunked one.
        path = config.fields.path("no_rope_layers")
        if len(no_rope) != config.layers:
            raise UsageError(path, len(no_rope), f"give {config.layers} values, one per layer")
        marks = [
            integer(value, field=f"{path}[{index}]", minimum=0, maximum=1)
            for index, value in enumerate(no_rope)
        ]
        return [(kind, kinds[kind]) for kind in (_CHUNKED if mark else _FULL for mark in marks)]
    return config.typed(lambda index: _CHUNKED if (index + 1) % every else _FULL, kinds)


def _inkling(config: _Config) -> Layers:
    hidden = config.size("hidden_size")
    name = "conv_kernel_size" if "conv_kernel_size" in config.fields else "sconv_kernel_size"
    kernel = _kernel(config, name)
    heads, dim = config.kv_heads, config.head_dim
    local_heads = config.size("swa_num_key_value_heads", default=heads)
    local_dim = config.size("swa_head_dim", default=dim)
    rows = config.window("sliding_window_size")
    full = gqa(heads, dim, dtype=config.dtype)
    full += short_convs(kv_width=heads * dim, hidden=hidden, kernel=kernel, dtype=config.dtype)
    local = gqa(local_heads, local_dim, lifetime=rows, dtype=config.dtype)
    local += short_convs(
        kv_width=local_heads * local_dim, hidden=hidden, kernel=kernel, dtype=config.dtype
    )
    kinds = {"hybrid_sliding": local, "hybrid": full}
    listed = config.fields.items("local_layer_ids", limit=_LAYERS_MAX, default=[])
    if listed and "layer_types" not in config.fields:
        path = config.fields.path("local_layer_ids")
        last = config.layers - 1
        ids = {
            integer(value, field=f"{path}[{index}]", minimum=0, maximum=last)
            for index, value in enumerate(listed)
        }
        return config.typed(lambda i: "hybrid_sliding" if i in ids else "hybrid", kinds)
    return config.typed(lambda i: "hybrid_sliding" if (i + 1) % 6 else "hybrid", kinds)


FAMILIES: Mapping[str, Callable[[_Config], Layers]] = {
    "deepseek_v3": _latent_only,
    "deepseek_v32": _latent_only,
    "falcon_h1": _falcon_h1,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "gemma4": _gemma4,
    "gemma4_text": _gemma4,
    "glm_moe_dsa": _latent_only,
    "gpt_oss": _gpt_oss,
    "inkling_mm_model": _inkling,
    "inkling_text": _inkling,
    "jamba": _jamba,
    "kimi_k3": _kimi,
    "kimi_linear": _kimi,
    "llama": _full_only,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "mistral": _mistral,
    "nemotron_h": _nemotron_h,
    "qwen2": _qwen_full,
    "qwen3": _qwen_full,
    "qwen3_5": _qwen_linear,
    "qwen3_5_moe": _qwen_linear,
    "qwen3_5_moe_text": _qwen_linear,
    "qwen3_5_text": _qwen_linear,
    "qwen3_moe": _qwen_full,
    "qwen3_next": _qwen_linear,
}
"""``model_type`` to the rule that reads it; in a composite config the text part is read."""


def declaration_from_hf(plain: object, *, source: str) -> ModelDeclaration:
    """The declaration of a Hugging Face config; ``UsageError`` names the field at fault."""
    fields = Fields(plain, f"{source}:")
    model_type = fields.text("model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        known = ", ".join(FAMILIES)
        fix = f"use a known model_type ({known}) or write a declaration (docs/plan.md)"
        raise UsageError(fields.path("model_type"), model_type, fix)
    text = fields
    for name in ("text_config", "llm_config"):
        if name in fields:
            text = fields.table(name)
            break
    config = _Config(text)
    if text is not fields and not {"dtype", "torch_dtype"} & set(text.names()):
        config.dtype = _dtype(fields, ("dtype", "torch_dtype"), default=config.dtype)
    longest = "max_position_embeddings"
    if longest not in text and "model_max_length" in text:
        longest = "model_max_length"
    context = text.integer(longest, minimum=1, maximum=MAX_LENGTH)
    given = fields.raw("_name_or_path", default="")
    # Informative only, and often empty: anything but a short printable name is passed over.
    named = isinstance(given, str) and 1 <= len(given) <= 200 and given.isprintable()
    name = str(given) if named else model_type
    layers = family(config)
    for index, (_, parts) in enumerate(layers):
        for part in parts:
            if part.size_bytes > MAX_LENGTH:
                fix = f"use smaller sizes: part {part.name} of layer {index} is too large"
                raise UsageError(f"{source}:", part.size_bytes, fix)
    if not any(parts for _, parts in layers):
        raise UsageError(f"{source}:", model_type, "give a config with a layer that keeps state")
    return declare(name, context, layers)
