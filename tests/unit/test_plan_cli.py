"""``onearena plan``: what it prints, its JSON, its pictures, and one line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from onearena.core.layout import CONTEXT, Dtype, EntryLayout, Part
from onearena.core.models import KNOWN_MODELS
from onearena.core.plan import StoragePlan
from onearena.stress import cli
from onearena.stress.plan_view import entry_bar, lane_groups, scaled_columns, size_text


@pytest.fixture
def call(capsys):
    """Run ``onearena plan ...`` in this process: (exit code, stdout, stderr)."""

    def run(*args: str) -> tuple[int, str, str]:
        code = cli.run(["plan", *args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_plan_of_a_model_with_three_kinds_shows_all_it_promises(call):
    code, out, err = call("inkling", "--bytes", "100GiB", "--mix", "1024+256:3,16384+4096:1")
    assert (code, err) == (0, "")
    for word in (
        "66 layers, 3 sub-pools, page size 64",
        "window_512  window(512)  floating",
        "6,352,896",  # state entry and slot
        "28,835,840",  # window page
        "2,883,584",  # full page
        "grows with every step and without bound: the high end",
        "layers 5-65 step 6",
        "3x6144  bf16",
        "sinks                     38,072,320",
        "guards",
        "request rows",
        "captured workspace",
        "speculative scratch",
        "slack: at most",
        "largest request:",
        "request mix: 199 requests at once",
        "150 of 1,024 input + 256 output tokens (weight 3)",
        "One entry of each sub-pool",
        "Bands when the arena is full of that mix",
    ):
        assert word in out, word
    # The page of full is a tenth of a window's page, and drawn so.
    assert f"|{'1' * 96}|" in out
    assert f"|{'2' * 10}|" in out


@pytest.mark.parametrize("known", KNOWN_MODELS, ids=lambda known: known.name)
def test_every_known_model_is_planned_within_100_columns_without_colour(call, known):
    code, out, err = call(known.name, "--bytes", "100GiB", "--page-size", "64")
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "\x1b" not in out
    assert "�" not in out


def test_json_is_the_plan_and_what_fits(call):
    args = ("qwen3.5-4b", "--bytes", "40GiB", "--draft", "qwen3.5-4b-mtp", "--draft-tokens", "2")
    code, out, err = call(*args, "--max-running-requests", "8", "--mix", "100+28", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    plan = StoragePlan.from_json(json.dumps(report["plan"]))
    assert plan.sub_pools[1].entry.payload_bytes == 32_768 + 4_096
    sizes = {item.name: item.size_bytes for item in plan.outside}
    assert sizes["speculative_scratch"] == 8 * 2 * 51_511_296
    tokens = report["largest_request_tokens"]
    assert plan.fits(plan.peak_demand(tokens))
    assert not plan.fits(plan.peak_demand(tokens + 1))
    assert report["mix"]["requests"] == report["mix"]["classes"][0]["requests"]
    assert report["mix"]["units"] == {
        "state": report["mix"]["requests"],
        "full": 2 * report["mix"]["requests"],
    }
    assert call(*args, "--max-running-requests", "8", "--mix", "100+28", "--json")[1] == out


def test_all_settings_reach_the_plan(call):
    code, out, _ = call(
        "inkling", "--bytes", "200GB", "--page-size", "16", "--mem-fraction-static", "0.85",
        "--weights-bytes", "20GB", "--max-total-tokens", "2000000", "--max-running-requests", "33",
        "--max-request-tokens", "100000", "--state-slots", "3", "--draft-tokens", "4",
        "--workspace-bytes", "1MiB", "--swa-full-tokens-ratio", "0.5",
        "--mamba-full-memory-ratio", "0.25", "--float-anchor-bytes", "4096", "--json",
    )  # fmt: skip
    assert code == 0
    plan = json.loads(out)["plan"]
    assert plan["page_size"] == 16
    assert plan["float_anchor_bytes"] == [4096]
    assert plan["settings"] == {
        "budget_bytes": 200_000_000_000,
        "mem_fraction_static_ppm": 850_000,
        "weights_bytes": 20_000_000_000,
        "max_total_tokens": 2_000_000,
        "max_running_requests": 33,
        "max_request_tokens": 100_000,
        "state_slots_per_request": 3,
        "draft_tokens": 4,
        "workspace_bytes": 1 << 20,
        "forwards_in_flight": 2,
        "swa_full_tokens_ratio_ppm": 500_000,
        "mamba_full_memory_ratio_ppm": 250_000,
    }


def test_a_declaration_file_and_a_hugging_face_config_are_planned(call, tmp_path):
    declared = tmp_path / "mine.toml"
    declared.write_text(
        'version = 1\nname = "mine"\nmax_context_tokens = 4096\nlayers = ["full"]\n'
        '[[kinds.full]]\nname = "kv"\nshape = [64]\ndtype = "fp4x2"\nlifetime = "context"\n',
        encoding="utf-8",
    )
    code, out, _ = call(str(declared), "--bytes", "1GiB", "--page-size", "7")
    assert code == 0
    assert "fp4x2" in out
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "hidden_size": 256,
                "max_position_embeddings": 2048,
            }
        ),
        encoding="utf-8",
    )
    code, out, _ = call(str(config), "--bytes", "1GiB", "--draft", str(declared), "--json")
    assert code == 0
    lanes = json.loads(out)["plan"]["derived"]["sub_pools"][0]["lanes"]
    assert [lane["name"] for lane in lanes] == [
        "layers.0.k",
        "layers.0.v",
        "layers.1.k",
        "layers.1.v",
        "draft.layers.0.kv",
    ]


def test_the_list_names_every_model_and_draft(call):
    code, out, _ = call("--list")
    assert code == 0
    assert all(f"{known.name} " in out for known in KNOWN_MODELS)
    assert "qwen3.5-4b-mtp" in out
    assert len(json.loads(call("--list", "--json")[1])["models"]) == 23


def test_lanes_are_listed_one_by_one_when_asked_for(call):
    _, short, _ = call("inkling", "--bytes", "100GiB")
    _, long, _ = call("inkling", "--bytes", "100GiB", "--lanes")
    assert "uneven" in short
    assert "uneven" not in long
    # 66 x 4 convolution states, 55 x 2 window rows and 11 x 2 full rows.
    lines = [line for line in long.splitlines() if " layer " in line and "bf16" in line]
    assert len(lines) == 264 + 110 + 22


def test_a_request_longer_than_fits_is_said_to_be_clipped(call):
    code, out, _ = call("llama-4-scout", "--bytes", "100GiB")
    assert code == 0
    assert "longer ones are clipped" in out
    code, out, err = call("llama-4-scout", "--bytes", "100GiB", "--max-request-tokens", "10485760")
    assert (code, out) == (2, "")
    assert "full 163,840 pages x 3,145,728 = 515,396,075,520" in err
    assert "--bytes" in err
    assert "--max-request-tokens" in err


MISTAKES = [
    ([], "MODEL"),
    (["gpt-oss-20b"], "--bytes"),
    (["gpt-oss-99b", "--bytes", "1GiB"], "did you mean gpt-oss-20b"),
    (["nothing-like-it-at-all", "--bytes", "1GiB"], "onearena plan --list"),
    (["gpt-oss-20b", "--bytes", "-5"], "--bytes"),
    (["gpt-oss-20b", "--bytes", "0"], "--bytes"),
    (["gpt-oss-20b", "--bytes", "lots"], "80GiB"),
    (["gpt-oss-20b", "--bytes", "9999999999EiB"], "--bytes"),
    (["gpt-oss-20b", "--bytes", "3EiB", "--page-size", "1"], "--page-size"),
    (["gpt-oss-20b", "--bytes", "8MiB"], "--bytes"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--page-size", "0"], "--page-size"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--page-size", "-64"], "--page-size"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--page-size", "64.5"], "--page-size"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--page-size", "99999999999999999999"], "--page-size"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--mix", "12"], "--mix"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--draft", "qwen3.5-4bb-mtp"], "--draft"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--draft", "inkling"], "window(512)"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--mem-fraction-static", "1.2"], "--mem-fraction-static"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--mem-fraction-static", "nan"], "--mem-fraction-static"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--weights-bytes", "2GiB"], "--bytes"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--max-running-requests", "0"], "--max-running-requests"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--max-running-requests", "1" * 18], "--max-running"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--float-anchor-bytes", "16"], "--float-anchor-bytes"),
    (["inkling", "--bytes", "90GiB", "--float-anchor-bytes", "24"], "multiple of 16"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--state-slots", "x"], "--state-slots"),
    (["gpt-oss-20b", "--bytes", "1GiB", "--nonsense"], "--nonsense"),
    (["gpt-oss-20b", "second", "--bytes", "1GiB"], "second"),
    (["./missing.json", "--bytes", "1GiB"], "MODEL"),
    ([os.sep, "--bytes", "1GiB"], "MODEL"),
    (["x\0y.json", "--bytes", "1GiB"], "MODEL"),
]


@pytest.mark.parametrize(("args", "word"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_gets_one_line_with_its_field_and_exit_code_2(call, args, word):
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert word in err
    assert "Traceback" not in err


def test_core_setting_names_are_shown_as_flags(call):
    _, _, err = call("gpt-oss-20b", "--bytes", "8MiB")
    assert "budget_bytes" not in err
    _, _, err = call("gpt-oss-20b", "--bytes", "1GiB", "--weights-bytes", "2GiB")
    assert "raise --bytes" in err


def test_help_and_planning_stay_clear_of_torch():
    code = (
        "import sys\n"
        "from onearena.stress import cli\n"
        "assert cli.run(['plan', 'inkling', '--bytes', '90GiB']) == 0\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'numba')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_entry_is_drawn_at_true_scale():
    rows = [("a", 16), ("b", 48), ("c", 1)]
    entry = EntryLayout.of_parts(
        (0, Part(name=name, shape=(size,), dtype=Dtype.UINT8, lifetime=CONTEXT), False)
        for name, size in rows
    )
    # 80 bytes in 40 columns: 8 of a, 24 of b; c, one byte, misses its column's middle byte.
    assert entry_bar(entry, 40) == "a" * 8 + "b" * 24 + "." * 8
    assert entry_bar(entry, 80) == "a" * 16 + "b" * 48 + "c" + "." * 15


def test_bands_are_drawn_at_true_scale_and_never_vanish():
    assert scaled_columns([(0, 25), (50, 100)], 100, 20) == "0" * 5 + "." * 5 + "1" * 10
    assert scaled_columns([(0, 1), (9_999, 10_000)], 10_000, 10) == "0........1"
    assert scaled_columns([(0, 0), (0, 100)], 100, 4) == "1111"
    assert scaled_columns([(0, 1), (1, 2), (8, 9)], 100, 10) == "+........."
    assert scaled_columns([(18, 19), (20, 100)], 100, 10) == ".011111111"
    assert scaled_columns([(0, 14), (14, 15), (15, 100)], 100, 10) == "0+22222222"


def test_layers_are_grouped_only_when_they_are_alike():
    def part(name: str, size: int) -> Part:
        return Part(name=name, shape=(size,), dtype=Dtype.BF16, lifetime=CONTEXT)

    layers = [(0, 8), (1, 8), (2, 16), (3, 8)]
    entry = EntryLayout.of_parts((layer, part("k", size), False) for layer, size in layers)
    groups = [(g.layers_text, g.lane.offset_bytes, g.stride_bytes) for g in lane_groups(entry)]
    assert groups == [("layers 0-1, 3", 0, None), ("layer 2", 32, 0)]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (10_239, "10,239 B"), (10_240, "10.0 KiB"), (100 << 30, "100.0 GiB")],
)
def test_sizes_for_people(size, text):
    assert size_text(size) == text
