"""Declaration files: the JSON and TOML forms, and a refusal by field for everything else."""

from __future__ import annotations

import copy
import json
import os
import re

import pytest

from onearena.core.declaration import ModelDeclaration, load_plain
from onearena.core.errors import UsageError
from onearena.core.models import KNOWN_MODELS
from onearena.core.models_hf import FAMILIES
from onearena.core.plain import (
    FILE_BYTES_MAX,
    parse_bytes,
    parse_count,
    parse_ppm,
    parse_text,
    read_text,
)
from onearena.core.plan import StoragePlan

PLAIN = {
    "format": "onearena.declaration",
    "version": 1,
    "name": "mine",
    "max_context_tokens": 131072,
    "kinds": {
        "full": [
            {"name": "k", "shape": [8, 64], "dtype": "fp8_e4m3", "lifetime": "context"},
            {"name": "v4", "shape": [8, 32], "dtype": "fp4x2", "lifetime": "context"},
            {"name": "scale", "shape": [8], "dtype": "fp32", "lifetime": "context"},
        ],
        "window": [
            {"name": "k", "shape": [8, 64], "dtype": "bf16", "lifetime": "window(4096)"},
            {
                "name": "state",
                "shape": [4, 16, 16],
                "dtype": "fp32",
                "lifetime": "request",
                "zero": True,
            },
            {
                "name": "ring",
                "shape": [8, 16],
                "dtype": "int8",
                "lifetime": "request",
                "ring": True,
            },
        ],
        "mlp": [],
    },
    "layers": ["full", {"kinds": ["window", "mlp"], "count": 3}, "full"],
}

TOML = """
version = 1
name = "mine"
max_context_tokens = 131072
layers = ["full", { kinds = ["window", "mlp"], count = 3 }, "full"]
[kinds]
mlp = []
[[kinds.full]]
name = "k"
shape = [8, 64]
dtype = "fp8_e4m3"
lifetime = "context"
[[kinds.full]]
name = "v4"
shape = [8, 32]
dtype = "fp4x2"
lifetime = "context"
[[kinds.full]]
name = "scale"
shape = [8]
dtype = "fp32"
lifetime = "context"
[[kinds.window]]
name = "k"
shape = [8, 64]
dtype = "bf16"
lifetime = "window(4096)"
[[kinds.window]]
name = "state"
shape = [4, 16, 16]
dtype = "fp32"
lifetime = "request"
zero = true
[[kinds.window]]
name = "ring"
shape = [8, 16]
dtype = "int8"
lifetime = "request"
ring = true
"""


def test_json_and_toml_say_the_same():
    from_json = ModelDeclaration.from_plain(PLAIN, source="f.json")
    plain = parse_text(TOML, source="f.toml", toml=True)
    assert ModelDeclaration.from_plain(plain, source="f.toml") == from_json
    assert [layer.kind for layer in from_json.layers] == ["full", *["window", "mlp"] * 3, "full"]
    plan = StoragePlan.from_units(from_json, page_size=2, arena_bytes=1 << 20)
    entries = {pool.name: pool.entry.entry_bytes for pool in plan.sub_pools}
    # 512 + 256 + 32 twice; 1,024 three times; 4,096 + 128 three times.
    assert entries == {"full": 1600, "window_4096": 3072, "state": 12672}


@pytest.mark.parametrize("known", KNOWN_MODELS, ids=lambda known: known.name)
def test_every_known_model_reads_back_from_its_json(known):
    declaration = known.declaration()
    text = json.dumps(declaration.to_plain())
    plain = parse_text(text, source="f", toml=False)
    assert ModelDeclaration.from_plain(plain, source="f") == declaration


def test_the_documented_example_is_a_declaration_and_the_families_are_all_listed(root):
    page = (root / "docs" / "plan.md").read_text(encoding="utf-8")
    example = page.split("```json\n")[1].split("```")[0]
    plain = parse_text(example, source="docs/plan.md", toml=False)
    declared = ModelDeclaration.from_plain(plain, source="docs/plan.md")
    assert len(declared.layers) == 25
    listed = page.split("## Hugging Face configs")[1].split("refused by name: ")[1]
    words = [word for line in re.findall(r"`([^`]*)`", listed) for word in line.split()]
    assert [word for word in words if word in FAMILIES] == list(FAMILIES)


def test_layers_of_one_kind_name_with_other_parts_keep_their_parts():
    plain = copy.deepcopy(PLAIN)
    plain["kinds"]["full_2"] = plain["kinds"]["window"]
    plain["layers"] = ["full", "full_2", "window"]
    declared = ModelDeclaration.from_plain(plain, source="f")
    again = ModelDeclaration.from_plain(declared.to_plain(), source="f")
    assert [layer.parts for layer in again.layers] == [layer.parts for layer in declared.layers]


def changed(path: list[object], value: object) -> dict[str, object]:
    plain = copy.deepcopy(PLAIN)
    target = plain
    for step in path[:-1]:
        target = target[step]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["name"], ..., "f.json: name"),
        (["name"], "", "f.json: name"),
        (["name"], "a\nb", "f.json: name"),
        (["name"], "x" * 300, "f.json: name"),
        (["version"], 2, "f.json: version"),
        (["version"], ..., "f.json: version"),
        (["version"], True, "f.json: version"),
        (["format"], "other", "f.json: format"),
        (["max_context_tokens"], 0, "f.json: max_context_tokens"),
        (["max_context_tokens"], 10**30, "f.json: max_context_tokens"),
        (["max_context_tokens"], 4096.0, "f.json: max_context_tokens"),
        (["kinds"], [], "f.json: kinds"),
        (["kinds", "full"], {}, "f.json: kinds.full"),
        (["kinds", "full"], [3], "f.json: kinds.full[0]"),
        (["kinds", "full", 0, "shape"], [], "f.json: kinds.full[0].shape"),
        (["kinds", "full", 0, "shape"], [8, -1], "f.json: kinds.full[0].shape[1]"),
        (["kinds", "full", 0, "shape"], [1] * 9, "f.json: kinds.full[0].shape"),
        (["kinds", "full", 0, "shape"], "8x64", "f.json: kinds.full[0].shape"),
        (["kinds", "full", 0, "shape"], [2**39, 4], "f.json: kinds.full[0].shape"),
        (["kinds", "full", 0, "dtype"], "fp64", "f.json: kinds.full[0].dtype"),
        (["kinds", "full", 0, "lifetime"], "window(0)", "f.json: kinds.full[0].lifetime"),
        (["kinds", "full", 0, "ring"], True, "f.json: kinds.full[0].lifetime"),
        (["kinds", "full", 0, "zero"], 1, "f.json: kinds.full[0].zero"),
        (["kinds", "full", 0, "name"], "v4", "f.json: kinds.full[1].name"),
        (["kinds", "full", 0, "name"], "../k", "f.json: kinds.full[0].name"),
        (["kinds", "full", 0, "dtyp"], "bf16", "f.json: kinds.full[0].dtyp"),
        (["layers"], [], "f.json: layers"),
        (["layers"], ["mlp"], "f.json: layers"),
        (["layers", 0], "ful", "f.json: layers[0]"),
        (["layers", 0], 7, "f.json: layers[0]"),
        (["layers", 1, "count"], 0, "f.json: layers[1].count"),
        (["layers", 1, "count"], 4096, "f.json: layers[1].count"),
        (["layers", 1, "kinds"], [1], "f.json: layers[1].kinds[0]"),
        (["layers"], ["full"] * 5000, "f.json: layers"),
        (["extra"], 1, "f.json: extra"),
    ],
)
def test_a_value_at_fault_is_named_by_its_path(path, value, field):
    with pytest.raises(UsageError) as refused:
        ModelDeclaration.from_plain(changed(path, value), source="f.json")
    assert refused.value.field == field
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 600


@pytest.mark.parametrize(
    ("text", "toml", "word"),
    [
        ("{", False, "valid JSON"),
        ("", False, "valid JSON"),
        ('{"a": NaN}', False, "finite"),
        ('{"a": -Infinity}', False, "finite"),
        ('{"a": 1e999}', False, "finite"),
        ('{"a": 1, "a": 2}', False, "once"),
        ('{"a": ' + "9" * 5000 + "}", False, "below 2"),
        ("[" * 100_000, False, "nest less"),
        ("a = ", True, "valid TOML"),
        ("a = 1\na = 2", True, "valid TOML"),
        ("a = " + "9" * 5000, True, "valid TOML"),
        ("a = " + "[" * 100_000, True, "nest less"),
        ("\x00\x01", True, "valid TOML"),
    ],
)
def test_hostile_text_is_refused(text, toml, word):
    with pytest.raises(UsageError, match=word) as refused:
        parse_text(text, source="f", toml=toml)
    assert len(refused.value.message) < 600


def test_files_that_are_no_readable_text_are_refused(tmp_path):
    cases = {"folder": tmp_path, "missing": tmp_path / "missing.json"}
    cases["garbage"] = tmp_path / "garbage.json"
    cases["garbage"].write_bytes(bytes(range(128, 256)))
    cases["huge"] = tmp_path / "huge.json"
    with cases["huge"].open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: reading it whole would take hours
    cases["pipe"] = tmp_path / "pipe.json"
    os.mkfifo(cases["pipe"])
    for path in cases.values():
        with pytest.raises(UsageError, match="MODEL"):
            load_plain(str(path), field="MODEL")
    for path in ("a\0b", "x" * 5000, "\udcff", "/dev/zero"):
        with pytest.raises(UsageError, match="MODEL"):
            read_text(path, field="MODEL")


def test_the_limit_on_files_is_exact(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b" " * FILE_BYTES_MAX)
    assert len(read_text(str(path), field="f")) == FILE_BYTES_MAX
    path.write_bytes(b" " * (FILE_BYTES_MAX + 1))
    with pytest.raises(UsageError, match="at most"):
        read_text(str(path), field="f")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("107374182400", 100 << 30),
        ("100GiB", 100 << 30),
        ("100 gib", 100 << 30),
        ("1.5GB", 1_500_000_000),
        ("0.1KiB", 102),
        ("2TiB", 2 << 40),
        ("3kb", 3000),
        ("7B", 7),
    ],
)
def test_byte_sizes_are_exact(text, size):
    assert parse_bytes(text, field="--bytes") == size


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "1e9", "GiB", "1.GiB", ".5GiB", "1..2GiB", "1GiBs", "nan", "inf", "0x10",
     "1_000", "1,000", "99999999999999999999GiB", "4EiB", "1 2GiB", "١GiB", "9" * 40],
)  # fmt: skip
def test_other_byte_sizes_are_refused(text):
    with pytest.raises(UsageError, match="--bytes"):
        parse_bytes(text, field="--bytes")


def test_ratios_and_counts_are_exact_and_bounded():
    assert parse_ppm("0.9", field="r", maximum=1) == 900_000
    assert parse_ppm("1", field="r", maximum=1) == 1_000_000
    assert parse_ppm("0.000001", field="r", maximum=1) == 1
    for text in ("0", "1.000001", "nan", "inf", "-0.5", "0.1234567", "1e-3", "", ".5"):
        with pytest.raises(UsageError, match="r:"):
            parse_ppm(text, field="r", maximum=1)
    assert parse_count("64", field="n", minimum=1, maximum=99) == 64
    for text in ("0", "100", "-1", "1.0", "٣", "1_0", "", "9" * 30):
        with pytest.raises(UsageError, match="n:"):
            parse_count(text, field="n", minimum=1, maximum=99)
