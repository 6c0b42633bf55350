"""One choices file, the cuda device over the strict fake: the decisions and states of the model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_kernels
import pytest
from fake_kernels import Touched
from fake_runs import fake_gpus, order_of, run_on_fake

from onearena.core.device import cuda_api
from onearena.core.device.cuda_api import cuda_available
from onearena.core.device.trace import Effect
from onearena.stress.cli import run
from onearena.stress.recordings import dump_recording, parse_recording
from onearena.stress.run import RunSpec, run_schedule

SEEDS = range(40)
"""Of the 200 that `make evidence-cuda` replays."""


@pytest.mark.parametrize("first", SEEDS[::4])
def test_recordings_of_the_model_replay_on_cuda_over_the_fake(first: int) -> None:
    for seed in range(first, first + 4):
        modeled = run_schedule(RunSpec(seed, state_digests=True))
        assert modeled.verdict == "pass", modeled.crash
        spec, _ = parse_recording(dump_recording(RunSpec(seed), modeled))
        spec = replace(spec, device="cuda", state_digests=True)
        result, gpu = run_on_fake(spec, seed=seed, lazy=seed % 5)
        assert (result.verdict, result.divergence, result.violations) == ("pass", None, ()), (
            result.crash
        )
        assert result.state_digests == modeled.state_digests
        assert result.digest == modeled.digest
        assert result.real_accesses > 0
        assert order_of(gpu) is None
        assert any(type(record) is Effect for record in gpu.log.records)


def test_forwards_run_as_graph_replays_too() -> None:
    calls: Counter[str] = Counter()
    for seed in (2, 4, 5):
        result, gpu = run_on_fake(RunSpec(seed, device="cuda"))
        assert result.verdict == "pass"
        calls.update(gpu.calls)
    assert calls["replay"] > 10
    assert calls["launch"] > 50
    assert calls["capture_begin"] < calls["replay"], "captured once, replayed"


def test_nothing_on_the_path_waits_for_the_device() -> None:
    """The constructor waits; after it only the judge at the end, when all streams are empty."""
    few, small = run_on_fake(RunSpec(1, device="cuda"))
    many, large = run_on_fake(RunSpec(0, device="cuda"))
    assert (few.verdict, many.verdict) == ("pass", "pass")
    assert many.steps > few.steps or large.calls["launch"] > 2 * small.calls["launch"]
    assert large.calls["synchronize"] == small.calls["synchronize"] == 2
    # What else waits is copies of guards from and to pageable memory: a number of the plan.
    assert large.calls["cpu"] < 12
    assert small.calls["cpu"] < 12


def test_without_a_gpu_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if cuda_available():
        pytest.skip("there is a GPU")
    spec = RunSpec(1, device="cuda")
    with fake_gpus():
        text = dump_recording(spec, run_schedule(replace(spec, state_digests=True)))
    path = tmp_path / "seed-1.choices.json"
    path.write_text(text, encoding="utf-8")
    for command in (
        ["stress", "--seed", "1", "--device", "cuda"],
        ["replay", str(path), "--device", "cuda"],
        ["replay", str(path)],
    ):
        code = run(command)
        captured = capsys.readouterr()
        assert code == 2
        assert len(captured.err.strip().splitlines()) == 1
        assert "no CUDA device" in captured.err
        assert captured.out == ""
    assert run(["replay", str(path), "--device", "modeled"]) == 0


def test_the_commands_run_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the fake in the GPU's place: the same states on the command line."""
    with pytest.MonkeyPatch.context() as patch, fake_gpus() as made:
        patch.setattr(cuda_api, "cuda_available", lambda: True)
        assert run(["stress", "--seed", "8", "--device", "cuda", "--out", str(tmp_path)]) == 0
        path = str(tmp_path / "seed-8.choices.json")
        capsys.readouterr()
        states = []
        for device in ("modeled", "cuda"):
            assert run(["replay", path, "--device", device, "--json"]) == 0
            document = json.loads(capsys.readouterr().out)
            assert (document["device"], document["same_trace"]) == (device, True)
            states.append(document["state_digests"])
    assert states[0] == states[1]
    assert len(states[0]) >= 200
    assert len(made) == 2


def test_a_gpu_that_copies_nothing_is_convicted_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_kernels.run

    def run_kernel(name: str, arguments: tuple[Any, ...]) -> list[Touched]:
        if name != "page_copy":
            return real(name, arguments)
        before = arguments[2].words.copy()
        touched = real(name, arguments)
        arguments[2].words[:] = before
        return touched

    monkeypatch.setattr(fake_kernels, "run", run_kernel)
    found = [
        violation
        for seed in range(5)
        for violation in run_on_fake(RunSpec(seed, device="cuda"))[0].violations
        if violation.oracle == "cuda-bytes" and violation.unit is not None
    ]
    assert found
    assert "a copy differs from its source while it runs" in found[0].message
    assert found[0].details["expected_word"] != found[0].details["found_word"]
