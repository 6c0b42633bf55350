"""`onearena check`: one line for a bad log, an exit code for each outcome, bounded memory."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from onearena.core.errors import UsageError
from onearena.stress import log_check
from onearena.stress.cli import run
from onearena.stress.engine_log import LogBand, LogWriter, read, write
from onearena.stress.log_check import STREAMS_MAX, LogChecker
from onearena.stress.log_export import export_log
from onearena.stress.log_lines import LINE_BYTES_MAX, LINES, read_log
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunSpec, run_schedule

ROOT = Path(__file__).resolve().parents[2]
UNIT = 64
HEADER = {
    "onearena_log": 1,
    "arena_bytes": 1024,
    "bands": [{"name": "full", "unit_bytes": UNIT, "units": 16}],
    "schedule_stream": "schedule",
}
RACE = [
    {"do": "hand_out", "band": "full", "units": [3]},
    {"do": "use", "use": 1, "kind": "forward", "stream": "a", "accesses": []},
    {"do": "enqueue", "op": 1, "kind": "zeroing", "stream": "a", "accesses": []},
]


def text_of(*rows, header=HEADER) -> str:
    return "".join(json.dumps(row) + "\n" for row in (header, *rows))


def write_log(tmp_path, text) -> str:
    path = tmp_path / "engine.log.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.fixture(scope="module")
def clean() -> str:
    out = io.StringIO()
    assert export_log(RunSpec(5, "toy"), out).verdict == "pass"
    return out.getvalue()


@pytest.fixture(scope="module")
def racy() -> str:
    out = io.StringIO()
    for seed in range(40):
        out = io.StringIO()
        result = export_log(RunSpec(seed, "toy:last-use-only"), out)
        if any(v.oracle == "order" and v.rule == "6" for v in result.violations):
            return out.getvalue()
    raise AssertionError("no race was found")


def test_exit_codes_and_words(tmp_path, capsys, clean, racy) -> None:
    assert run(["check", write_log(tmp_path, clean)]) == 0
    assert "clean: no rule broken" in capsys.readouterr().out
    assert run(["check", write_log(tmp_path, racy)]) == 1
    said = capsys.readouterr().out
    assert "order: rule 6 broken" in said
    assert "must wait for an event recorded on stream" in said
    assert "BROKEN" in said
    assert max(map(len, said.splitlines())) < 400
    assert run(["check", write_log(tmp_path, text_of())]) == 5
    assert "nothing was put to the test" in capsys.readouterr().out
    assert run(["check", str(tmp_path / "none")]) == 2
    assert run(["check", str(tmp_path)]) == 2


def test_a_log_without_work_that_breaks_a_rule_is_broken(tmp_path, capsys) -> None:
    log = write_log(tmp_path, text_of({"do": "observe", "event": 7}))
    assert run(["check", log]) == 1
    said = capsys.readouterr().out
    assert "BROKEN: 1 report" in said.splitlines()
    assert "nothing was put to the test" not in said


def test_the_json_form_names_the_line(tmp_path, capsys, racy) -> None:
    assert run(["check", write_log(tmp_path, racy), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    first = next(v for v in document["violations"] if v["oracle"] == "order")
    line = json.loads(racy.splitlines()[first["line"] - 1])
    assert line["do"] == "enqueue"
    assert line["op"] == first["details"]["later"]["number"]
    extent = first["bytes"]
    assert any(
        space == "arena" and start <= extent["start_bytes"] and extent["end_bytes"] <= end
        for space, start, end, _ in line["accesses"]
    )
    assert document["reports"] >= len(document["violations"]) >= 1


def test_standard_input_is_read(racy) -> None:
    command = [sys.executable, "-m", "onearena.stress.cli", "check", "-"]
    done = subprocess.run(command, input=racy.encode(), capture_output=True, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    assert b"standard input" in done.stdout


def test_a_violation_is_not_lost_to_a_bad_line_behind_it(tmp_path, capsys, racy) -> None:
    assert run(["check", write_log(tmp_path, racy + '{"do":"wai')]) == 1
    said = capsys.readouterr()
    assert "rule 6" in said.out
    assert f"line {racy.count(chr(10)) + 1}" in said.err


BAD = [
    ("", "the file is empty"),
    ("[]\n", "onearena_log"),
    ('{"onearena_log": true}\n', "onearena_log"),
    (text_of(header={**HEADER, "onearena_log": 2}), "onearena_log"),
    (text_of(header={**HEADER, "arena_bytes": 0}), "arena_bytes"),
    (text_of(header={**HEADER, "bands": []}), "bands"),
    (text_of(header={**HEADER, "bands": HEADER["bands"] * 2}), "bands"),
    (text_of(header={**HEADER, "arena_bytes": 64}), "bands[0]"),
    (text_of(header={**HEADER, "schedule_stream": ""}), "schedule_stream"),
    (text_of(7), "line 2"),
    (text_of({"do": "sing"}), "line 2, do"),
    (text_of({"do": []}), "line 2, do"),
    (text_of({"do": "begin", "colour": 1}), "line 2, colour"),
    (text_of({"do": "begin"}, {"do": "begin"}), "line 3, do"),
    (text_of({"do": "end"}), "line 2, do"),
    (text_of({"do": "hand_out", "band": "x", "units": [1]}), "line 2, band"),
    (text_of({"do": "hand_out", "band": "full"}), "line 2, units"),
    (text_of({"do": "hand_out", "band": "full", "units": [16]}), "line 2, units"),
    (text_of({"do": "hand_out", "band": "full", "units": [True]}), "line 2, units"),
    (text_of({"do": "hand_out", "band": "full", "units": [1.0]}), "line 2, units"),
    (text_of({"do": "move", "band": "full", "moves": [[1, 2]]}), "line 2, do"),
    (text_of({"do": "begin"}, {"do": "move", "band": "full", "moves": [[1]]}), "line 3, moves"),
    (text_of({"do": "record", "event": -1, "stream": "a"}), "line 2, event"),
    (text_of({"do": "record", "event": 1 << 63, "stream": "a"}), "line 2, event"),
    (text_of({"do": "record", "event": 1, "stream": "a\x1b"}), "line 2, stream"),
    (text_of({"do": "process", "use": 4}), "line 2, use"),
    (text_of(RACE[1], RACE[1]), "line 3, use"),
    (text_of(RACE[1], header={**HEADER, "has_uses": False}), "line 2, do"),
    (text_of(RACE[2], RACE[2]), "line 3, op"),
    (text_of({**RACE[1], "kind": "send"}), "line 2, kind"),
    (text_of({**RACE[1], "accesses": [["gpu", 0, 1, "read"]]}), "line 2, accesses"),
    (text_of({**RACE[1], "accesses": [["arena", 2, 1, "read"]]}), "line 2, accesses"),
    (text_of({**RACE[1], "accesses": [["arena", 0, 1, "eat"]]}), "line 2, accesses"),
    (text_of({**RACE[1], "accesses": {}}), "line 2, accesses"),
    (text_of({"do": "transfer_end", "transfer": 1, "outcome": "done"}), "line 2, transfer"),
    (text_of({"do": "transfer_end", "transfer": 1, "outcome": "ok"}), "line 2, outcome"),
    (text_of() + '{"do": "observe", "event": NaN}\n', "(NaN is no JSON number)"),
    (text_of() + '{"do": "observe", "do": "free", "event": 1}\n', "('do' is there twice)"),
    (text_of() + '{"do": "observe", "event": ' + "9" * 5000 + "}\n", "line 2"),
    (text_of() + "x" * (LINE_BYTES_MAX + 2), "line 2"),
    (text_of() + "[" * 100_000 + "\n", "line 2"),
    (text_of() + '{"do": "begin"', "ends in the middle"),
    (text_of().encode() + b"\xff\xfe\n", "line 2"),
]


@pytest.mark.parametrize(("text", "field"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_one_line_naming_the_field(tmp_path, capsys, text, field) -> None:
    assert run(["check", write_log(tmp_path, text)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert field in said.err
    assert not said.out
    assert len(said.err) < 700


def test_engines_may_add_notes_and_times() -> None:
    rows = [{"do": "begin", "time_ns": 17, "note": "x"}, {"do": "end"}]
    _, lines = read_log(io.BytesIO(text_of(*rows).encode()))
    assert len(list(lines)) == 2


def damaged(text: str, rng: random.Random) -> bytes:
    """One to three damages of the kinds that disks, crashes and editors make."""
    lines = text.encode().splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        how = rng.randrange(9)
        line = lines[place]
        if how == 0:
            del lines[place]
        elif how == 1:
            lines.insert(place, line)
        elif how == 2:
            lines[place] = line[: rng.randrange(len(line))]
        elif how == 3:
            at = rng.randrange(len(line))
            lines[place] = line[:at] + bytes([rng.randrange(256)]) + line[at + 1 :]
        elif how == 4:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], line
        elif how == 5:
            del lines[place + 1 :]
        elif how == 6:
            lines[place] = line.replace(b"0", b"-9999999999999999999")
        else:
            row = json.loads(line) if line.startswith(b"{") and line.endswith(b"}\n") else {}
            if row:
                key = rng.choice(sorted(row))
                values = [None, [], {}, "", -1, 1 << 70, 0.5, True, "full", [[]], "arena"]
                row[key] = rng.choice(values)
                lines[place] = json.dumps(row).encode() + b"\n"
        if not lines:
            break
    return b"".join(lines)


def verdict(raw: bytes) -> tuple[str, str]:
    """What a log comes to; anything but a refusal would be raised."""
    try:
        header, rows = read_log(io.BytesIO(raw))
        checker = LogChecker(header)
        found = sum(len(checker.feed(row)) for row in rows)
    except UsageError as error:
        return "bad", error.message
    return "broken" if found else "clean", ""


def test_500_damaged_logs_end_in_a_verdict_or_one_line(clean, racy) -> None:
    rng = random.Random(20261129)
    clean, racy = ("".join(text.splitlines(keepends=True)[:250]) for text in (clean, racy))
    ends = {"clean": 0, "broken": 0, "bad": 0}
    for number in range(500):
        end, message = verdict(damaged(clean if number % 2 else racy, rng))
        ends[end] += 1
        assert end != "bad" or ("line " in message and "\n" not in message), message
    # The damages are of all kinds: some show, some break a rule, some change nothing that matters.
    assert min(ends.values()) > 20, ends


def long_log(rounds: int, out) -> None:
    """A decode loop that stays small: 8 requests live, two streams, retired three forwards late."""
    bands = [LogBand("full", UNIT, 64)]
    log = LogWriter(out, arena_bytes=64 * UNIT, bands=bands, schedule_stream="schedule")
    late: list[tuple[int, int, int]] = []
    last = -1
    for turn in range(rounds):
        unit = turn * 5 % 64
        if len(late) > 3:
            old, _, _ = late.pop(0)
            log.observe(late[0][1])  # its only reader: the forward after it
            log.process(late[0][2])
            log.free("full", [old])
            if turn % 2:
                log.reusable("full", [old])
        log.hand_out("full", [unit])
        stream = f"forward{turn % 2}"
        if last >= 0:
            log.wait(stream, last)
        spans = [write(unit * UNIT, unit * UNIT + UNIT)]
        spans += [read(old * UNIT, old * UNIT + UNIT) for old, _, _ in late[-1:]]
        use = log.use("forward", stream, spans)
        op = log.enqueue("forward", stream, spans, use=use)
        log.touch(op, spans)
        last = log.record(stream)
        late.append((unit, last, use))
        if turn % 50 == 49:
            old, event, _ = late[-1]
            log.observe(event)
            number = log.transfer("send", 1, [read(old * UNIT, old * UNIT + UNIT)])
            log.transfer_end(number, "done")
        if turn % 30 == 29:
            with log.call():
                source, target = late[-1][0], (turn * 5 + 3) % 64
                if target not in {old for old, _, _ in late}:
                    log.wait("schedule", last)
                    span = read(source * UNIT, source * UNIT + UNIT)
                    log.enqueue(
                        "move", "schedule", [span, write(target * UNIT, target * UNIT + UNIT)]
                    )
                    last = log.record("schedule")
                    log.move("full", [(source, target)])
                    late[-1] = (target, last, use)


def peak(rounds: int) -> tuple[dict[str, int], int]:
    out = io.StringIO()
    long_log(rounds, out)
    header, rows = read_log(io.BytesIO(out.getvalue().encode()))
    checker = LogChecker(header)
    most: dict[str, int] = {}
    for index, row in enumerate(rows):
        assert checker.feed(row) == ()
        if index % 97 == 0:
            for name, size in checker.sizes().items():
                most[name] = max(most.get(name, 0), size)
    return most, checker.number


def test_what_is_kept_does_not_grow_with_the_log() -> None:
    short, few = peak(400)
    long, many = peak(4000)
    assert many > 9 * few > 20_000
    assert set(long) == set(short)
    # Every count of the long log is one that the short log reached too, give or take a sweep.
    assert {name: size for name, size in long.items() if size > 1.5 * short[name] + 64} == {}
    assert short["units"] > 4
    assert long["runs_of_numbers"] <= 4


def test_an_idle_engine_that_only_waits_keeps_nothing() -> None:
    header, _ = read_log(io.BytesIO(text_of().encode()))
    checker = LogChecker(header)
    for event in range(3000):
        checker.feed(LINES["record"][0](event, "a"))
        checker.feed(LINES["wait"][0]("b", event))
        checker.feed(LINES["observe"][0](event))
    assert max(checker.sizes().values()) < 400


def test_numbers_and_streams_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(log_check, "RUNS_MAX", 500)
    header, _ = read_log(io.BytesIO(text_of().encode()))
    checker = LogChecker(header)
    record = LINES["record"][0]
    for stream in range(STREAMS_MAX - 1):
        checker.feed(record(stream, f"s{stream}"))
    with pytest.raises(UsageError, match="stream"):
        checker.feed(record(9999, "one more"))
    for number in range(0, 998, 2):
        checker.feed(record(10_000 + number, "s1"))  # far apart: each is a run of its own
    checker.feed(record(10_001, "s1"))  # between two: they become one
    checker.feed(record(12_000, "s1"))
    with pytest.raises(UsageError, match="event"):
        checker.feed(record(13_000, "s1"))


def test_trace_writes_a_log_of_a_recording(tmp_path, capsys) -> None:
    spec = RunSpec(2, "toy:last-use-only")
    result = run_schedule(replace(spec, state_digests=True))
    path = tmp_path / "choices.json"
    path.write_text(dump_recording(spec, result))
    log = tmp_path / "engine.log.jsonl"
    assert run(["trace", str(path), "--log", str(log)]) == 0
    assert "judge it with" in capsys.readouterr().out
    direct = io.StringIO()
    export_log(replace(spec, recording=result.recording), direct)
    assert log.read_text() == direct.getvalue()
    assert run(["trace", str(path)]) == 2


def test_the_writer_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, onearena.stress.engine_log\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout
    assert "'onearena.stress.engine_log'" in loaded
    assert "'torch'" not in loaded
    assert "'numpy'" not in loaded
