"""2,000 seeded command lines and files through ``onearena plan``, in this process.

Whatever is given, the answer is a plan (exit code 0, nothing on standard error) or one line on
standard error that starts with ``onearena:`` (exit code 2, nothing on standard output).
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
from pathlib import Path

import pytest

from onearena.core.models import KNOWN_DRAFTS, KNOWN_MODELS, known_declaration
from onearena.stress import cli

CASES = 2_000
SEED = 20_261_129
SHARDS = 8

HOSTILE_TEXT = [
    "", " ", "-", "--", "-1", "0", "1", "2", "7", "16", "63", "64", "nan", "NaN", "inf", "-inf",
    "1e9", "1e999", "0x40", "1_000", "1,000", "00064", "9" * 19, "9" * 25, "9" * 5000, "1.5", "..",
    ".", "/", "~", "null", "true", "[]", "{}", "None", "GiB", "1GiB", "16KiB", "100GiB", "3EiB",
    "8EiB", "-5GiB", "1 GiB", "١٢", "𝟙𝟚", "é", "\x00", "\n", "a\nb", "\x1b[31m", "\udcff",
    "%s%n", "{0}", "$(id)", "`id`", "'; --", "../../etc/passwd", "/dev/zero", "/dev/null",
    "/proc/self/mem", "file:///etc/passwd", "a" * 5000, "a/" * 3000, "--help", "--version", "=",
    "--bytes", "1024+256:3", "1+1:0", "+", ":", "1+1:1,", "gpt-oss-20b", "GPT-OSS-20B",
]  # fmt: skip

HOSTILE_VALUES = [
    None, True, False, 0, 1, -1, 2, 15, 2**31, 2**40, 2**63, 2**64, -(2**63), 10**39, 1.5, "",
    -0.0, "x", "\x00", "a" * 10_000, "window(1)", "window(4096)", "chunk(0)", "request", "context",
    "bf16", "fp64", [], [[]], {}, {"a": {}}, [1], [0], ["full"], [None], [2**40], [2**20] * 8,
    [1] * 100, {"kinds": ["full"], "count": 4096}, {"name": "k"}, "bfloat16",
    "full_attention", ["x"] * 5000,
]  # fmt: skip

FLAGS = [
    "--bytes", "--page-size", "--draft", "--draft-tokens", "--mix", "--mem-fraction-static",
    "--weights-bytes", "--max-total-tokens", "--max-running-requests", "--max-request-tokens",
    "--state-slots", "--workspace-bytes", "--swa-full-tokens-ratio", "--mamba-full-memory-ratio",
    "--float-anchor-bytes",
]  # fmt: skip

NAMES = [known.name for known in (*KNOWN_MODELS, *KNOWN_DRAFTS)]

HF_CONFIG = {
    "model_type": "qwen3_next",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_size": 512,
    "max_position_embeddings": 4096,
    "full_attention_interval": 4,
    "layer_types": ["linear_attention"] * 7 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_num_key_heads": 4,
    "linear_value_head_dim": 16,
    "linear_num_value_heads": 8,
}
MODEL_TYPES = [
    "gpt_oss", "gemma3", "gemma4_text", "kimi_linear", "deepseek_v32", "jamba", "falcon_h1",
    "nemotron_h", "llama4", "inkling_text", "llama", "unknown", "",
]  # fmt: skip


def declaration_plain() -> dict[str, object]:
    plain = known_declaration("inkling-small").to_plain()
    plain["layers"] = plain["layers"][:6]
    return plain


def plausible(rng: random.Random, flag: str) -> str:
    """A value that the flag often accepts."""
    return {
        "--bytes": rng.choice(["8GiB", "40GB", "100GiB", "1TiB"]),
        "--page-size": rng.choice(["1", "7", "64", "2096"]),
        "--draft": rng.choice(NAMES),
        "--mix": rng.choice(["1024+256:3,16384+4096:1", "1+1", "0+7:2"]),
        "--mem-fraction-static": rng.choice(["0.9", "0.5", "1"]),
        "--swa-full-tokens-ratio": "0.5",
        "--mamba-full-memory-ratio": "0.25",
        "--weights-bytes": "1GiB",
        "--workspace-bytes": "64MiB",
        "--float-anchor-bytes": rng.choice(["0", "4096"]),
    }.get(flag, rng.choice(["1", "8", "100"]))


def command_line(rng: random.Random) -> list[str]:
    """A command that is mostly right, then hurt in a few places."""
    args = [rng.choice(NAMES), "--bytes", plausible(rng, "--bytes")]
    for flag in rng.sample(FLAGS[1:], rng.randint(0, 4)):
        args += [flag, plausible(rng, flag)]
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        place = rng.randrange(len(args) + 1)
        hurt = rng.randrange(4)
        if hurt == 0 and args:
            args[place % len(args)] = rng.choice(HOSTILE_TEXT)
        elif hurt == 1:
            args.insert(place, rng.choice([*HOSTILE_TEXT, *FLAGS, "--json", "--list", "--lanes"]))
        elif hurt == 2 and args:
            del args[place % len(args)]
        else:
            rng.shuffle(args)
    return args


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Paths of everything inside a JSON value."""
    found = []
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        found.append((*path, key))
        found += places(item, (*path, key))
    return found


def hurt_value(rng: random.Random, plain: object) -> object:
    """The same JSON value with a few places replaced, removed, renamed or doubled."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        paths = places(plain)
        if not paths:
            break
        *way, last = rng.choice(paths)
        target = plain
        for step in way:
            target = target[step]
        how = rng.randrange(4)
        if how == 0:
            del target[last]
        elif how == 1 and isinstance(target, list):
            target.append(copy.deepcopy(target[last]))
        elif how == 1:
            target[rng.choice(["x", "na me", "", "a" * 300])] = target.pop(last)
        else:
            target[last] = copy.deepcopy(rng.choice(HOSTILE_VALUES))
    return plain


def hurt_bytes(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with flips, a cut, or an insertion."""
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(4)
        if how == 0:
            data = data[:place]
        elif how == 1 and data:
            place %= len(data)
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        else:
            extra = rng.choice([b"\x00", b"\xff\xfe", b"{", b"[" * 3000, b'"', b"NaN", b"9" * 5000])
            data = data[:place] + extra + data[place:]
    return data


def toml_of(plain: dict[str, object]) -> str:
    """Top-level fields as TOML; JSON lists and inline tables of these values are TOML too."""
    lines = []
    for key, value in plain.items():
        if key == "kinds" and isinstance(value, dict):
            for kind, parts in value.items():
                for part in parts if isinstance(parts, list) else [parts]:
                    lines.append(f"[[kinds.{json.dumps(kind)}]]")
                    fields = part.items() if isinstance(part, dict) else [("x", part)]
                    lines += [f"{json.dumps(name)} = {json.dumps(item)}" for name, item in fields]
        else:
            lines.insert(0, f"{json.dumps(key)} = {json.dumps(value)}")
    return "\n".join(lines)


def file_case(rng: random.Random, folder: Path) -> list[str]:
    """A command on a file that is mostly right, then hurt in its values or its bytes."""
    kind = rng.randrange(5)
    name = "f.json"
    if kind == 0:
        data = rng.randbytes(rng.randrange(400))
    elif kind == 1:
        config = {**HF_CONFIG, "model_type": rng.choice([*MODEL_TYPES, *["qwen3_next"] * 9])}
        data = json.dumps(hurt_value(rng, config)).encode()
    elif kind == 2:
        name = "f.toml"
        hurt = hurt_value(rng, declaration_plain())
        data = toml_of(hurt if isinstance(hurt, dict) else {}).encode()
    else:
        data = json.dumps(hurt_value(rng, declaration_plain())).encode()
    path = folder / name
    path.write_bytes(hurt_bytes(rng, data))
    args = [str(path), "--bytes", rng.choice(["4GiB", "100GiB"])]
    if rng.random() < 0.2:
        args = ["inkling-small", "--bytes", "100GiB", "--draft", str(path)]
    return args + rng.choice([[], ["--json"], ["--page-size", "1"]])


def run(args: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["plan", *args])
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_any_command_line_and_file_gets_a_plan_or_one_line(shard, tmp_path):
    codes = {0: 0, 2: 0}
    for number in range(CASES * shard // SHARDS, CASES * (shard + 1) // SHARDS):
        rng = random.Random(SEED + number)
        args = command_line(rng) if number % 2 else file_case(rng, tmp_path)
        code, out, err = run(args)
        case = f"case {number}: {args!r:.300}\n{err[-1500:]}"
        assert code in codes, case
        codes[code] += 1
        if code == 0:
            assert err == "", case
            assert out, case
        else:
            assert out == "", case
            assert err.startswith("onearena: "), case
            assert err.endswith("\n"), case
            assert len(err.splitlines()) == 1, case
            assert "Traceback" not in err, case
            assert len(err) < 2_000, case
    # Neither half of the promise is tested by accident only.
    assert min(codes.values()) > CASES // SHARDS // 10, codes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.json", "f.toml"]
