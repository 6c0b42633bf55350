"""The command lines: what they print and with what code they end, whatever they are given."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from onearena.stress.cli import run
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunResult, RunSpec, run_schedule

FUZZED_FILES = 1400
FUZZED_LINES = 600


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for seed in range(60):
        spec = RunSpec(seed, "toy:free-at-once")
        result = run_schedule(spec)
        if result.verdict == "violation":
            path = tmp_path_factory.mktemp("replay") / "failing.choices.json"
            path.write_text(dump_recording(spec, result))
            return path
    raise AssertionError("no failing schedule")


def test_demo_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "bug"]) == 1
    out = capsys.readouterr().out
    assert "First the correct toy: 10 schedules, 0 failures." in out
    assert "reproduce: onearena stress --system toy:free-at-once --seed" in out
    assert "would have ordered them" in out


def test_stress_of_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", "--system", "toy", "--seed", "3"]) == 0
    assert "1 schedule of toy" in capsys.readouterr().out


def test_stress_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = ["--seeds", "0:24", "--jobs", "1", "--json", "--out", str(tmp_path / "o")]
    assert run(["stress", "--system", "toy:free-at-once", *seeds]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["exit_code"] == 1
    assert document["failures"][0]["violations"][0]["rule"]
    assert json.loads((tmp_path / "o" / "summary.json").read_text()) == document
    seed = document["failures"][0]["seed"]
    path = tmp_path / "o" / f"seed-{seed}.choices.json"
    assert run(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert "same failure as recorded: yes" in out
    assert "same trace as recorded: yes" in out


def test_stress_with_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"timestamp": at, "input_length": 500 * (1 + at % 7), "output_length": 90, "hash_ids": [0]}
        for at in range(40)
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["stress", "--system", "toy", "--seed", "5", "--arrivals", str(path)]) == 0
    assert "1 schedule of toy" in capsys.readouterr().out


def test_replay_of_a_pass_and_of_json(failing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(failing), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["same_failure"] is True
    assert document["same_trace"] is True
    assert document["divergence"] is None


def test_replay_names_the_first_divergence(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(failing.read_text())
    document["system"] = "toy"
    document["steps"].insert(3, ["finish", {}])
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    assert run(["replay", str(path)]) == 3
    out = capsys.readouterr().out
    assert "first divergence at step 3: finish: this step is not possible now" in out


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--seeds", "5"], "--seeds"),
        (["--seeds", "9:3"], "--seeds"),
        (["--seeds", "a:b"], "--seeds"),
        (["--seed", "-1"], "--seed"),
        (["--seed", "1", "--seeds", "0:2"], "--seed"),
        (["--budget", "soon"], "--budget"),
        (["--budget", "0s"], "--budget"),
        (["--jobs", "0"], "--jobs"),
        (["--model", "gpt-9"], "--model"),
        (["--system", "tony"], "--system"),
        (["--arrivals", "/nonexistent"], "--arrivals"),
        (["--out", "/proc/none/x"], "--out"),
        (["--out", "/dev/null"], "this is a file"),
        (["--out", ""], "--out"),
        (["--resume", "gone", "--strategy", "pos"], "'pos' is not accepted"),
        (["--junit", "/"], "this is a folder"),
        (["--system", "mine.py"], "FILE.py:FACTORY"),
        (["--what"], "--what"),
    ],
)
def test_bad_arguments(args: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", *args]) == 2
    _one_line(capsys, word)


def _one_line(capsys: pytest.CaptureFixture[str], word: str = "") -> None:
    err = capsys.readouterr().err
    assert err.startswith("onearena: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert word in err


def _mutate(rng: random.Random, text: str) -> str:
    """One or a few edits of a file: of its characters, or of a value in its JSON."""
    if rng.random() < 0.5:
        chars = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(chars))
            chars[at : at + rng.randint(0, 3)] = rng.choice(
                ["", "{", "]", '"', "-1", "\x00", "é", "9"]
            )
        return "".join(chars)
    document = json.loads(text)
    odd = rng.choice(
        [None, True, -1, 1 << 70, 1.5, "", "x" * 500, [], {}, [[]], {"a": 1}, "toy:none", "\n"]
    )
    key = rng.choice(sorted(document))
    if key == "steps" and rng.random() < 0.8:
        at = rng.randrange(len(document["steps"]))
        choice = rng.randrange(4)
        if choice == 0:
            document["steps"][at] = odd
        elif choice == 1:
            document["steps"][at][rng.randrange(2)] = odd
        elif choice == 2:
            document["steps"][at][1]["x"] = odd
        else:
            del document["steps"][at]
    elif rng.random() < 0.3:
        del document[key]
    else:
        document[key] = odd
    return json.dumps(document)


def _stub(spec: RunSpec) -> RunResult:
    return RunResult(spec.seed, spec.system, spec.model, "pass", 0, "", {}, 0, 0)


def test_fuzzed_replay_files(
    failing: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What a file asks for is run for a part only: here it is the reading that is tested.
    rng = random.Random(20)
    text = failing.read_text()
    path = tmp_path / "fuzzed.json"
    codes: dict[int, int] = {}
    for index in range(FUZZED_FILES):
        if index == 40:
            monkeypatch.setattr("onearena.stress.run.run_schedule", _stub)
        path.write_text(_mutate(rng, text), encoding="utf-8", errors="replace")
        code = run(["replay", str(path)])
        assert code in (0, 1, 2, 3, 4), code
        codes[code] = codes.get(code, 0) + 1
        if code == 2:
            _one_line(capsys)
        else:
            assert "Traceback" not in capsys.readouterr().err
    assert codes[2] > FUZZED_FILES // 4, codes


def test_fuzzed_command_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onearena.stress.stress_run.run_plan", lambda *a, **k: 0)
    rng = random.Random(21)
    flags = [
        "--seeds",
        "--seed",
        "--budget",
        "--model",
        "--system",
        "--arrivals",
        "--jobs",
        "--json",
    ]
    values = [
        "",
        "0:5",
        "5:",
        ":",
        "-3",
        "1e9",
        "9" * 40,
        "60s",
        "∞",
        "any",
        "toy",
        "x\ny",
        "--",
        "\x00",
    ]
    for _ in range(FUZZED_LINES):
        args = [rng.choice(("stress", "replay", "demo", "strss"))]
        args += rng.choices(flags + values + values, k=rng.randint(0, 4))
        if args[:2] == ["demo", "bug"]:
            continue
        code = run(args)
        assert code in (0, 2), (args, code)
        if code == 2:
            _one_line(capsys)
        else:
            assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        ["explain", "{0}", "--html", "{0}"],
        ["trace", "{0}", "--perfetto", "{0}"],
        ["trace", "{0}", "--perfetto", "{1}", "--log", "{1}"],
    ],
)
def test_no_command_writes_over_what_it_reads_or_writes(
    line: list[str], failing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = failing.read_bytes()
    assert run([word.format(failing, failing.with_name("other")) for word in line]) == 2
    _one_line(capsys, "named twice")
    assert failing.read_bytes() == before
    assert not failing.with_name("other").exists()
