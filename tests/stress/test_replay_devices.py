"""One choices file for every device: same decisions, same allocator states, on real threads too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onearena.core.device import threads_paired
from onearena.core.device.interface import Access, Space
from onearena.core.device.threads import ThreadsDevice
from onearena.core.device.threads_programs import Pacing
from onearena.core.device.trace import Effect, End, Enqueue, Observe
from onearena.core.layout import LifetimeKind
from onearena.core.models import KNOWN_MODELS
from onearena.core.sub_pools import sub_pools_of
from onearena.stress.cli import run
from onearena.stress.cut_layers import ARENA_BYTES_MAX, cut_model, fitting_cut, rarest_kind
from onearena.stress.real_forwards import BYTES_ORACLE, ORDER_ORACLE, order_records
from onearena.stress.recordings import dump_recording, parse_recording
from onearena.stress.run import RunSpec, run_schedule

SEEDS = (0, 3, 5, 9, 14)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_recording_of_the_model_replays_on_threads_step_by_step(seed: int) -> None:
    modeled = run_schedule(RunSpec(seed, state_digests=True))
    assert modeled.verdict == "pass", modeled.crash
    assert len(modeled.state_digests) >= 200
    assert len(set(modeled.state_digests)) > 10, "the state changes"
    spec, _ = parse_recording(dump_recording(RunSpec(seed), modeled))
    real = run_schedule(replace(spec, device="threads", state_digests=True))
    assert (real.verdict, real.divergence, real.violations) == ("pass", None, ())
    assert real.state_digests == modeled.state_digests
    assert real.digest == modeled.digest
    assert real.real_accesses > 50


def test_decisions_do_not_depend_on_how_late_the_threads_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = run_schedule(RunSpec(4, device="threads", state_digests=True))
    monkeypatch.setattr(threads_paired, "pacing", lambda _seed, number: Pacing(number % 3, 99))
    second = run_schedule(RunSpec(4, device="threads", state_digests=True))
    assert (first.verdict, second.verdict) == ("pass", "pass")
    assert first.state_digests == second.state_digests


def test_threads_without_waits_are_convicted_by_log_and_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model waits, the threads do not: only their own log and bytes can tell."""
    monkeypatch.setattr(ThreadsDevice, "wait", lambda _self, _stream, _event: None)
    found: set[str] = set()
    for seed in range(8):
        result = run_schedule(RunSpec(seed, device="threads"))
        found |= {violation.oracle for violation in result.violations}
        placed = [v for v in result.violations if v.bytes is not None]
        assert len(placed) == len(result.violations)
    assert found == {ORDER_ORACLE, BYTES_ORACLE}


def test_threads_that_copy_nothing_are_convicted_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ThreadsDevice.launch

    def launch(self: ThreadsDevice, stream: int, work: object) -> int:
        return real(self, stream, replace(work, pairs=()))  # type: ignore[type-var]

    monkeypatch.setattr(ThreadsDevice, "launch", launch)
    found = [
        violation
        for seed in range(6)
        for violation in run_schedule(RunSpec(seed, device="threads")).violations
        if violation.oracle == BYTES_ORACLE and violation.unit is not None
    ]
    assert found
    assert "lane" in found[0].message
    assert found[0].details["expected_stamp"] != found[0].details["found_stamp"]


def test_a_stuck_device_ends_the_schedule_as_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads never complete an event that the model shows: an error within the bound."""
    monkeypatch.setattr("onearena.stress.real_forwards.TIMEOUT_S", 0.4)
    real = ThreadsDevice._put

    def put(
        self: ThreadsDevice, worker: object, command: int, argument: int, count: int = 0
    ) -> None:
        if command != 2:  # no event is ever recorded on the threads
            real(self, worker, command, argument, count)  # type: ignore[arg-type]

    monkeypatch.setattr(ThreadsDevice, "_put", put)
    result = run_schedule(RunSpec(0, device="threads"))
    assert result.verdict == "crash"
    assert "is stuck" in result.crash


def test_order_records_hold_what_was_touched() -> None:
    declared = (Access(Space.ARENA, 0, 64, True),)
    touched = (Access(Space.ARENA, 128, 192, True), Access(Space.ARENA, 0, 16, False))
    records = [
        Enqueue(0, 0, 0, "", declared),
        Enqueue(1, 0, 0, "", declared),
        Observe(0),
        Effect(0, 0, touched[:1]),
        Effect(0, 1, touched),
        End(0),
        Effect(1, 0, touched[:1]),
    ]
    first, second, seen = order_records(records)
    assert first == Enqueue(0, 0, 0, "", touched)
    assert isinstance(second, Enqueue)
    assert set(second.accesses) == {*touched[:1], *declared}, "it has not ended"
    assert seen == Observe(0)


@pytest.mark.parametrize("name", [known.name for known in KNOWN_MODELS])
def test_cut_models_keep_lanes_and_ratios(name: str) -> None:
    whole, cut = cut_model(name, 0), cut_model(name, 1)
    assert rarest_kind(name) >= 1
    before = {pool.name: pool for pool in sub_pools_of(whole, page_size=16)}
    after = {pool.name: pool for pool in sub_pools_of(cut, page_size=16)}
    assert list(before) == list(after)
    lanes = {
        pool: {(lane.part, lane.shape, lane.dtype) for lane in plan.entry.lanes}
        for pool, plan in before.items()
    }
    for pool, plan in after.items():
        assert {(lane.part, lane.shape, lane.dtype) for lane in plan.entry.lanes} == lanes[pool]
    # Ratios of units are the model's up to the rounding of layers.
    first = next(iter(before))
    for pool, plan in before.items():
        then = plan.unit_bytes / before[first].unit_bytes
        now = after[pool].unit_bytes / after[first].unit_bytes
        assert 0.6 < now / then < 1.7, (pool, then, now)


@pytest.mark.parametrize("name", ["kimi-k3", "qwen3.5-4b", "gemma-3-27b", "deepseek-v3.2"])
@pytest.mark.parametrize("page", [16, 64])
def test_cut_arenas_fit(name: str, page: int) -> None:
    pools = sub_pools_of(cut_model(name, 0), page_size=page)
    wanted = [4 if pool.lifetime.kind is LifetimeKind.REQUEST else 24 for pool in pools]
    declaration, counts = fitting_cut(name, page, wanted, [0] * max(0, len(pools) - 2))
    after = sub_pools_of(declaration, page_size=page)
    sizes = [count * pool.unit_bytes for count, pool in zip(counts, after, strict=True)]
    assert sum(sizes) <= ARENA_BYTES_MAX
    assert all(0 < count <= most for count, most in zip(counts, wanted, strict=True))


def test_replay_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", "--seed", "8", "--out", str(tmp_path)]) == 0
    path = str(tmp_path / "seed-8.choices.json")
    capsys.readouterr()
    states = []
    for device in ("modeled", "threads"):
        assert run(["replay", path, "--device", device, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["device"] == device
        assert document["same_trace"]
        states.append(document["state_digests"])
    assert states[0] == states[1]
    assert len(states[0]) >= 200
    assert run(["replay", path, "--device", "gpu"]) == 2
    assert "--device" in capsys.readouterr().err


def test_a_device_that_cannot_run_the_system_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["stress", "--system", "toy", "--seed", "1", "--device", "threads"]) == 2
    assert "modeled device only" in capsys.readouterr().err
