"""Configs that transformers itself writes are read, with the layers it would build.

Needs the ``models`` extra; nothing is downloaded.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from onearena.core.models_hf import FAMILIES, declaration_from_hf

transformers = pytest.importorskip("transformers", reason="needs the models extra")

# What a layer keeps, per layer type of transformers.
KEEPS = {
    "full_attention": {"context"},
    "indexed_attention": {"context"},
    "sliding_attention": {"window"},
    "chunked_attention": {"chunk"},
    "linear_attention": {"request"},
    "hybrid": {"context", "request"},
    "hybrid_sliding": {"window", "request"},
    "moe": set(),
    "mlp": set(),
}
# Kimi K3 has no class of its own; Falcon H1 and the Nemotron default name their layers otherwise.
OTHERS = {"kimi_k3", "falcon_h1"}


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - OTHERS))
def test_a_default_config_keeps_what_its_layer_types_say(family):
    config = transformers.AutoConfig.for_model(family)
    plain = json.loads(config.to_json_string(use_diff=False))
    if family == "kimi_linear":
        plain.setdefault("model_max_length", 1048576)
    declared = declaration_from_hf(plain, source="config.json")
    text = config.get_text_config()
    types = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    found = Counter(
        frozenset(part.lifetime.kind.value for part in layer.parts) for layer in declared.layers
    )
    if family == "mistral":  # every layer slides, and its config lists no types
        types = ["sliding_attention"] * len(types)
    assert found == Counter(frozenset(KEEPS[kind]) for kind in types)
