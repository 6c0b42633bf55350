"""Known models against literals and public geometries; Hugging Face configs against both."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from onearena.core.errors import UsageError
from onearena.core.layout import CONTEXT, REQUEST, Dtype, LifetimeKind, chunk, window
from onearena.core.model_parts import dsa_index, mamba2, replay_rings
from onearena.core.models import (
    KNOWN_DRAFTS,
    KNOWN_MODELS,
    known_declaration,
    resolve_declaration,
)
from onearena.core.models_hf import FAMILIES, declaration_from_hf

# Bytes of one token (context, window, chunk) or one slot (request), over all layers, unpadded.
BYTES = {
    "gpt-oss-20b": {"context": 24_576, "window(128)": 24_576},
    "gpt-oss-120b": {"context": 36_864, "window(128)": 36_864},
    "qwen3.5-4b": {"context": 32_768, "request": 51_511_296},
    "qwen3.5-27b": {"context": 65_536, "request": 153_944_064},
    "qwen3.5-35b-a3b": {"context": 20_480, "request": 64_389_120},
    "qwen3-next-80b-a3b": {"context": 24_576, "request": 39_518_208},
    "gemma-3-27b": {"context": 81_920, "window(1024)": 425_984},
    "gemma-4-26b-a4b": {"context": 20_480, "window(1024)": 204_800},
    "kimi-linear-48b-a3b": {"context": 8_064, "request": 43_417_600},
    "kimi-k3": {"context": 27_648, "request": 449_372_160},
    "kimi-k3.1-like": {"context": 30_816, "request": 449_372_160},
    "deepseek-v3.2": {"context": 78_324},
    "jamba-v0.1": {"context": 16_384, "request": 8_716_288},
    "falcon-h1-7b": {"context": 45_056, "request": 70_152_192},
    "nemotron-h-56b": {"context": 40_960, "request": 459_620_352},
    "nemotron-3-nano-30b-a3b": {"context": 6_144, "request": 49_082_368},
    "llama-4-scout": {"context": 49_152, "chunk(8192)": 147_456},
    "inkling": {"context": 45_056, "window(512)": 450_560, "request": 6_352_896},
    "inkling-small": {"context": 28_672, "window(512)": 143_360, "request": 2_580_480},
}
DRAFT_BYTES = {
    "qwen3.5-4b-mtp": 4_096,
    "qwen3.5-27b-mtp": 4_096,
    "qwen3.5-35b-a3b-mtp": 2_048,
    "deepseek-v3.2-mtp": 1_284,
}


def payloads(declaration) -> dict[str, int]:
    return {life.text: declaration.payload_bytes(life) for life in declaration.lifetimes()}


def test_the_list_holds_exactly_the_nineteen_models():
    assert [model.name for model in KNOWN_MODELS] == list(BYTES)
    assert {draft.name for draft in KNOWN_DRAFTS} == set(DRAFT_BYTES)


@pytest.mark.parametrize("name", BYTES)
def test_bytes_per_token_and_per_slot(name):
    assert payloads(known_declaration(name)) == BYTES[name]


@pytest.mark.parametrize("name", DRAFT_BYTES)
def test_bytes_of_drafts(name):
    assert payloads(known_declaration(name)) == {"context": DRAFT_BYTES[name]}


@pytest.mark.shared
def test_every_row_equals_the_public_geometry(shared_folder):
    path = shared_folder / "models" / "model_geometries.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert [model["id"] for model in document["models"]] == list(BYTES)
    for model in document["models"]:
        declaration = known_declaration(model["id"])
        assert len(declaration.layers) == model["layers_total"], model["id"]
        context = model["max_position_embeddings"]
        assert context in (None, declaration.max_context_tokens)
        expected: Counter[tuple[object, ...]] = Counter()
        for kind in model["kinds"]:
            lifetime = {"full": CONTEXT, "state": REQUEST}.get(kind["kind"])
            if lifetime is None:
                make = chunk if kind.get("window_kind") == "chunked_local" else window
                lifetime = make(kind["window"])
            for group in kind.get("layer_groups", [kind]):
                for row in group["parts_per_layer"]:
                    key = (lifetime.text, row["name"], tuple(row["shape"]), row["dtype"])
                    expected[key] += group["layers"]
                    assert row["bytes"] > 0
        found = Counter(
            (part.lifetime.text, part.name, part.shape, part.dtype.value)
            for layer in declaration.layers
            for part in layer.parts
        )
        assert found == expected, model["id"]
        lane = model.get("draft_lane")
        if lane:
            draft = known_declaration(model["id"] + "-mtp")
            assert draft.payload_bytes(CONTEXT) == lane["bytes_per_token"]


def test_falcon_h1_layers_keep_two_lifetimes_each():
    for layer in known_declaration("falcon-h1-7b").layers:
        assert {part.lifetime.kind for part in layer.parts} == {
            LifetimeKind.CONTEXT,
            LifetimeKind.REQUEST,
        }


def test_models_are_found_by_hugging_face_id_in_any_case():
    assert known_declaration("qwen/qwen3.5-4B") == known_declaration("qwen3.5-4b")


def test_zeroing_is_asked_for_where_another_dtype_shares_the_arena():
    mixed = known_declaration("qwen3.5-4b")
    assert all(part.zero for layer in mixed.layers for part in layer.parts)
    one_dtype = known_declaration("gpt-oss-20b")
    assert not any(part.zero for layer in one_dtype.layers for part in layer.parts)


def test_replay_rings_are_request_parts_of_a_state_layer():
    rings = replay_rings(8, heads=24, head_dim=128, d_state=256)
    assert [(ring.name, ring.shape, ring.dtype) for ring in rings] == [
        ("ring_x", (8, 24, 128), Dtype.BF16),
        ("ring_dt", (8, 24), Dtype.FP32),
        ("ring_b", (8, 24, 256), Dtype.BF16),
    ]
    assert all(ring.ring and ring.lifetime == REQUEST for ring in rings)


def test_state_shape_rules():
    conv, temporal = mamba2(heads=24, head_dim=128, groups=1, d_state=256)
    assert conv.shape == (3, 3584)
    assert temporal.shape == (24, 128, 256)
    assert dsa_index(128)[0].shape == (132,)
    assert dsa_index(130)[0].shape == (138,)


TEXT_QWEN = {
    "model_type": "qwen3_5_text",
    "dtype": "bfloat16",
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_size": 2560,
    "max_position_embeddings": 262144,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
    "linear_num_value_heads": 32,
    "mamba_ssm_dtype": "float32",
}


def kimi(layers: int, heads: int) -> dict[str, object]:
    full = [*range(4, layers, 4), layers]
    return {
        "model_type": "kimi_linear",
        "dtype": "bfloat16",
        "num_hidden_layers": layers,
        "max_position_embeddings": 1048576,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "linear_attn_config": {
            "head_dim": 128,
            "num_heads": heads,
            "short_conv_kernel_size": 4,
            "full_attn_layers": full,
            "kda_layers": [layer for layer in range(1, layers + 1) if layer not in full],
        },
    }


def mamba_heads(**more: object) -> dict[str, object]:
    return {"num_attention_heads": 32, "torch_dtype": "bfloat16", **more}


CONFIGS: dict[str, dict[str, object]] = {
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 24,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "qwen3.5-4b": {"model_type": "qwen3_5", "text_config": TEXT_QWEN},
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe",
        "text_config": {
            **TEXT_QWEN,
            "model_type": "qwen3_5_moe_text",
            "num_hidden_layers": 40,
            "num_key_value_heads": 2,
        },
    },
    "qwen3-next-80b-a3b": {
        **{key: value for key, value in TEXT_QWEN.items() if key != "mamba_ssm_dtype"},
        "model_type": "qwen3_next",
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
    },
    "gemma-3-27b": {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
            "max_position_embeddings": 131072,
        },
    },
    "gemma-4-26b-a4b": {
        "model_type": "gemma4",
        "text_config": {
            "model_type": "gemma4_text",
            "dtype": "bfloat16",
            "num_hidden_layers": 30,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "global_head_dim": 512,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "sliding_window": 1024,
            "num_kv_shared_layers": 0,
            "max_position_embeddings": 262144,
        },
    },
    "kimi-linear-48b-a3b": kimi(27, 32),
    "kimi-k3": {"model_type": "kimi_k3", "text_config": kimi(93, 96)},
    "kimi-k3.1-like": {
        "model_type": "kimi_k3",
        "text_config": {**kimi(93, 96), "index_head_dim": 128},
    },
    "deepseek-v3.2": {
        "model_type": "deepseek_v32",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 61,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "index_head_dim": 128,
        "max_position_embeddings": 163840,
    },
    "jamba-v0.1": mamba_heads(
        model_type="jamba",
        num_hidden_layers=32,
        num_key_value_heads=8,
        hidden_size=4096,
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        max_position_embeddings=262144,
    ),
    "falcon-h1-7b": mamba_heads(
        model_type="falcon_h1",
        num_hidden_layers=44,
        num_key_value_heads=2,
        head_dim=128,
        mamba_d_ssm=3072,
        mamba_n_heads=24,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_conv=4,
        max_position_embeddings=262144,
    ),
    "nemotron-3-nano-30b-a3b": mamba_heads(
        model_type="nemotron_h",
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        num_key_value_heads=2,
        head_dim=128,
        mamba_num_heads=64,
        mamba_head_dim=64,
        n_groups=8,
        ssm_state_size=128,
        conv_kernel=4,
        mamba_ssm_cache_dtype="float32",
        max_position_embeddings=262144,
    ),
    "nemotron-h-56b": mamba_heads(
        model_type="nemotron_h",
        layers_block_type=["mamba", "mlp"] * 54 + ["attention"] * 10,
        num_key_value_heads=8,
        head_dim=128,
        mamba_num_heads=256,
        mamba_head_dim=64,
        n_groups=8,
        ssm_state_size=256,
        conv_kernel=4,
        max_position_embeddings=8192,
    ),
    "llama-4-scout": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "torch_dtype": "bfloat16",
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "attention_chunk_size": 8192,
            "max_position_embeddings": 10485760,
            "no_rope_layers": [],
        },
    },
    "inkling": {
        "model_type": "inkling_mm_model",
        "dtype": "bfloat16",
        "text_config": {
            "model_type": "inkling_text",
            "hidden_size": 6144,
            "num_hidden_layers": 66,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "swa_num_key_value_heads": 16,
            "swa_head_dim": 128,
            "sliding_window_size": 512,
            "conv_kernel_size": 4,
            "max_position_embeddings": 1048576,
        },
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hugging_face_config_gives_the_known_models_bytes(name):
    loaded = declaration_from_hf(CONFIGS[name], source="config.json")
    known = known_declaration(name)
    assert payloads(loaded) == BYTES[name]
    assert len(loaded.layers) == len(known.layers)
    assert loaded.max_context_tokens == known.max_context_tokens
    if name != "nemotron-h-56b":  # its public layer order is not known here
        assert [layer.parts for layer in loaded.layers] == [layer.parts for layer in known.layers]


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("gpt-oss-20b", ["sliding_attention", "full_attention"] * 12),
        ("qwen3.5-4b", (["linear_attention"] * 3 + ["full_attention"]) * 8),
        ("gemma-4-26b-a4b", (["sliding_attention"] * 5 + ["full_attention"]) * 5),
        ("llama-4-scout", (["chunked_attention"] * 3 + ["full_attention"]) * 12),
        ("inkling", (["hybrid_sliding"] * 5 + ["hybrid"]) * 11),
    ],
)
def test_the_familys_own_rule_and_a_list_of_layer_types_agree(name, types):
    config = CONFIGS[name]
    outer = config.get("text_config", config)
    plain = {key: value for key, value in outer.items() if key != "layer_types"}
    by_rule = declaration_from_hf(plain, source="c")
    by_list = declaration_from_hf({**plain, "layer_types": types}, source="c")
    assert by_rule == by_list
    assert [layer.kind for layer in by_rule.layers] == types
    swapped = declaration_from_hf({**plain, "layer_types": types[::-1]}, source="c")
    assert swapped != by_rule


def test_kimi_is_read_in_the_spelling_that_transformers_saves():
    checkpoint = kimi(27, 32)
    linear = checkpoint["linear_attn_config"]
    saved = {key: value for key, value in checkpoint.items() if key != "linear_attn_config"}
    del saved["max_position_embeddings"]
    saved |= {
        "model_max_length": 1048576,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
        "layer_types": [
            "full_attention" if layer in linear["full_attn_layers"] else "linear_attention"
            for layer in range(1, 28)
        ],
    }
    by_lists = declaration_from_hf(checkpoint, source="c")
    assert declaration_from_hf(saved, source="c") == by_lists


@pytest.mark.parametrize(
    ("given", "name"),
    [("org/model", "org/model"), ("", "gpt_oss"), (7, "gpt_oss"), ("\n", "gpt_oss")],
)
def test_the_name_in_a_config_is_used_only_if_it_is_one(given, name):
    config = {**CONFIGS["gpt-oss-20b"], "_name_or_path": given}
    assert declaration_from_hf(config, source="c").name == name


def test_every_family_of_the_list_is_read_by_some_config():
    read = {config["model_type"] for config in CONFIGS.values()}
    read |= {
        text["model_type"] for config in CONFIGS.values() if (text := config.get("text_config"))
    }
    simple = {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3", "glm_moe_dsa"}
    assert set(FAMILIES) - read == simple


def test_families_with_attention_only():
    base = {
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "hidden_size": 512,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }
    for family in ("llama", "qwen2", "qwen3", "qwen3_moe", "mistral"):
        config = {**base, "model_type": family, "sliding_window": None}
        loaded = declaration_from_hf(config, source="config.json")
        # No num_key_value_heads and no head_dim: 8 heads of 64, K and V, 2 bytes, 4 layers.
        assert payloads(loaded) == {"context": 4 * 2 * 8 * 64 * 2}
    windowed = {**base, "model_type": "mistral", "sliding_window": 1024}
    assert payloads(declaration_from_hf(windowed, source="c")) == {"window(1024)": 8192}
    partly = {**windowed, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3}
    assert payloads(declaration_from_hf(partly, source="c")) == {
        "context": 3 * 2048,
        "window(1024)": 2048,
    }
    unused = {**partly, "use_sliding_window": False}
    assert payloads(declaration_from_hf(unused, source="c")) == {"context": 8192}
    latent = {**base, "kv_lora_rank": 32, "qk_rope_head_dim": 16}
    assert payloads(declaration_from_hf({**latent, "model_type": "deepseek_v3"}, source="c")) == {
        "context": 4 * 48 * 2
    }
    index = {**latent, "model_type": "glm_moe_dsa", "index_head_dim": 128}
    assert payloads(declaration_from_hf(index, source="c")) == {"context": 4 * (48 * 2 + 132)}


def test_shared_kv_layers_of_gemma_4_keep_nothing():
    text = {**CONFIGS["gemma-4-26b-a4b"]["text_config"], "num_kv_shared_layers": 6}
    loaded = declaration_from_hf({"model_type": "gemma4", "text_config": text}, source="c")
    assert [bool(layer.parts) for layer in loaded.layers] == [True] * 24 + [False] * 6
    assert payloads(loaded) == {"context": 4 * 4096, "window(1024)": 20 * 8192}


def test_llama_4_reads_the_list_of_layers_with_rope():
    text = {**CONFIGS["llama-4-scout"]["text_config"], "no_rope_layers": [1] * 40 + [0] * 8}
    loaded = declaration_from_hf({"model_type": "llama4", "text_config": text}, source="c")
    assert payloads(loaded) == {"context": 8 * 4096, "chunk(8192)": 40 * 4096}


def without(config: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in config.items() if key != name}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "rwkv9"}, ["config.json: model_type", "rwkv9", "gpt_oss", "jamba"]),
        ({}, ["config.json: model_type"]),
        ([], ["config.json:", "table"]),
        (without(CONFIGS["gpt-oss-20b"], "sliding_window"), ["config.json: sliding_window"]),
        (without(CONFIGS["jamba-v0.1"], "mamba_d_state"), ["config.json: mamba_d_state"]),
        ({**CONFIGS["jamba-v0.1"], "num_hidden_layers": 10**9}, ["num_hidden_layers", "4096"]),
        ({**CONFIGS["jamba-v0.1"], "num_hidden_layers": True}, ["num_hidden_layers"]),
        ({**CONFIGS["jamba-v0.1"], "hidden_size": 1e3}, ["hidden_size"]),
        ({**CONFIGS["jamba-v0.1"], "torch_dtype": "float64"}, ["torch_dtype", "bf16"]),
        ({**CONFIGS["gpt-oss-20b"], "layer_types": ["full_attention"]}, ["layer_types", "24"]),
        ({**CONFIGS["gpt-oss-20b"], "layer_types": ["x"] * 24}, ["layer_types[0]"]),
        ({**CONFIGS["falcon-h1-7b"], "mamba_n_heads": 7}, ["mamba_n_heads", "divisor"]),
        ({**CONFIGS["nemotron-3-nano-30b-a3b"], "hybrid_override_pattern": "MX"}, ["pattern"]),
        ({"model_type": "qwen3_5", "text_config": 3}, ["config.json: text_config"]),
    ],
)
def test_a_config_at_fault_is_refused_by_field(config, words):
    with pytest.raises(UsageError) as refused:
        declaration_from_hf(config, source="config.json")
    for word in words:
        assert word in refused.value.message


@pytest.mark.parametrize(
    ("full", "linear", "word"),
    [([1], [1, 2], "each layer once"), ([1], [], "layer 2"), ([9], [1, 2], "from 1 to 2")],
)
def test_kimi_lists_must_name_each_layer_once(full, linear, word):
    config = kimi(2, 4)
    config["linear_attn_config"] |= {"full_attn_layers": full, "kda_layers": linear}
    with pytest.raises(UsageError, match=word):
        declaration_from_hf(config, source="c")


def test_files_are_told_apart_by_their_fields(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS["gpt-oss-20b"]), encoding="utf-8")
    assert payloads(resolve_declaration(str(config), field="MODEL")) == BYTES["gpt-oss-20b"]
    declared = tmp_path / "mine.json"
    known = known_declaration("inkling")
    declared.write_text(json.dumps(known.to_plain()), encoding="utf-8")
    assert resolve_declaration(str(declared), field="MODEL") == known


def test_a_misspelt_model_is_answered_with_the_nearest_name():
    with pytest.raises(UsageError, match=r"MODEL.*did you mean qwen3.5-4b\?"):
        resolve_declaration("qwen3.5-4bb", field="MODEL")
