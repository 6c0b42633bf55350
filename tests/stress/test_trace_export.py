"""Exported traces: each track and arrow stands for something that happened in the replay."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from onearena.core.device.trace import Observe, Record, TransferEnd, WaitEvent
from onearena.stress.choices import Choices
from onearena.stress.cli import run
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunSpec, build_rig, run_rig, run_schedule
from onearena.stress.trace_export import BANDS_PID, HOST_PID, STREAMS_PID, export, export_text


@pytest.fixture(scope="module")
def failing() -> RunSpec:
    for seed in range(60):
        spec = RunSpec(seed, "toy:last-use-only")
        result = run_schedule(spec)
        # Long enough for the host to have seen events.
        raced = any(violation.oracle == "order" for violation in result.violations)
        if raced and result.steps > 60:
            return replace(spec, recording=result.recording)
    raise AssertionError("no race was found")


@pytest.fixture(scope="module")
def events(failing: RunSpec) -> list[dict]:
    return export(failing)["traceEvents"]


def records_of(spec: RunSpec) -> tuple[list[object], list[str], list[str]]:
    """The device's own trace, its streams and the bands, from a rig built by hand."""
    assert spec.recording
    rig = build_rig(spec, Choices(spec.seed, setup=spec.recording[0].decisions))
    kept: list[object] = []
    rig.device.trace.subscribe(kept.append)
    run_rig(rig, spec)
    return kept, rig.device.trace.stream_names, [band.name for band in rig.world.bands]


def test_there_is_a_track_for_each_stream_and_each_band(failing, events) -> None:
    _, streams, bands = records_of(failing)
    threads = [
        (e["pid"], e["args"]["name"])
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    ]
    assert [name for pid, name in threads if pid == STREAMS_PID] == [*streams, "transfers"]
    assert [name for pid, name in threads if pid == BANDS_PID] == bands


def test_arrows_lead_from_records_to_waits(failing, events) -> None:
    kept, _, _ = records_of(failing)
    wanted: Counter[str] = Counter()
    for record in kept:
        if isinstance(record, (WaitEvent, Observe)):
            wanted[f"event {record.event}"] += 1
        if isinstance(record, TransferEnd):
            wanted[f"transfer {record.transfer}"] += 1
    starts = {e["id"]: e for e in events if e["ph"] == "s" and e["name"] != "MISSING ORDER"}
    ends = {e["id"]: e for e in events if e["ph"] == "f" and e["name"] != "MISSING ORDER"}
    assert set(starts) == set(ends)
    assert Counter(e["name"] for e in ends.values()) == wanted
    assert all(starts[number]["ts"] < ends[number]["ts"] for number in starts)


def test_an_arrow_starts_on_the_stream_that_recorded(failing, events) -> None:
    kept, _, _ = records_of(failing)
    stream = {f"event {r.event}": r.stream for r in kept if isinstance(r, Record)}
    for event in events:
        if event["ph"] == "s" and event["name"] in stream:
            assert (event["pid"], event["tid"]) == (STREAMS_PID, 1 + stream[event["name"]])


def test_arrows_begin_and_end_inside_slices(events) -> None:
    slices = [e for e in events if e["ph"] == "X"]
    spans = {(e["pid"], e["tid"], e["ts"]): e["dur"] for e in slices}
    for event in events:
        if event["ph"] in "sf":
            key = (event["pid"], event["tid"], int(event["ts"]))
            assert 0 < event["ts"] - key[2] < spans[key]


def test_the_missing_order_is_an_arrow_of_its_own(failing, events) -> None:
    assert [e["ph"] for e in events if e["name"] == "MISSING ORDER"] == ["s", "f"]
    clean = replace(failing, system="toy")
    names = [e["name"] for e in export(clean)["traceEvents"]]
    assert "MISSING ORDER" not in names


def test_counters_add_up_to_the_band(events) -> None:
    counters = [e for e in events if e["ph"] == "C"]
    assert counters
    totals = Counter(e["name"] for e in counters)
    assert len(set(totals.values())) == 1
    for name in totals:
        sums = {sum(e["args"].values()) for e in counters if e["name"] == name}
        assert len(sums) == 1  # the toy's bands never grow


def test_async_slices_of_bands_come_in_pairs(events) -> None:
    opened = Counter((e["cat"], e["id"]) for e in events if e["ph"] == "b")
    closed = Counter((e["cat"], e["id"]) for e in events if e["ph"] == "e")
    assert opened == closed
    assert opened


def test_world_steps_cover_their_rows(events) -> None:
    steps = {
        int(e["name"].split()[0]): e
        for e in events
        if e["pid"] == HOST_PID and e.get("tid") == 2 and e["ph"] == "X"
    }
    for event in events:
        if event["ph"] == "X" and "step" in event.get("args", {}):
            step = steps[event["args"]["step"]]
            assert step["ts"] <= event["ts"] < step["ts"] + step["dur"]


def test_the_text_is_json_and_the_same_each_time(failing) -> None:
    text = export_text(failing)
    assert json.loads(text) == export(failing)
    assert export_text(failing) == text


def test_the_command(failing, tmp_path, capsys) -> None:
    path, out = tmp_path / "f.json", tmp_path / "out.json"
    result = run_schedule(failing)
    path.write_text(dump_recording(failing, result))
    assert run(["trace", str(path), "--perfetto", str(out)]) == 0
    count = len(json.loads(out.read_text())["traceEvents"])
    assert f"({count} trace events)" in capsys.readouterr().out
    for args in ([str(path)], [str(path), "--perfetto", str(tmp_path)], ["no", "--perfetto", "x"]):
        assert run(["trace", *args]) == 2
        assert capsys.readouterr().err.count("\n") == 1
