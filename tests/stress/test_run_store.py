"""The store of a run: what is written is read back, and what is no store is refused in a line."""

from __future__ import annotations

import os
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onearena.core.errors import UsageError
from onearena.stress.campaign import Campaign
from onearena.stress.campaign_plan import Plan, plan_from_json
from onearena.stress.engine import HereEngine, Task
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunResult, run_schedule
from onearena.stress.run_file import STORE_BYTES_MAX, STORE_NAME
from onearena.stress.run_report import look
from onearena.stress.run_rows import pack_counts, unpack_counts
from onearena.stress.run_store import RunStore

FAILING = Plan(0, 4, "toy:free-at-once", keep_going=True)


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    found = [run_schedule(FAILING.spec(seed)) for seed in range(4)]
    assert any(one.verdict != "pass" for one in found)
    return found


@pytest.fixture
def folder(tmp_path: Path, results: list[RunResult]) -> Path:
    """A run with four results, stopped in an orderly way."""
    with RunStore.create(tmp_path, FAILING, "s") as store:
        store.begin(2, "2026-01-01T00:00:00+00:00")
        for one in results:
            store.add(one, second=False, seconds=1.5)
    return tmp_path


@given(st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 40))))
def test_counts_come_back(pairs: list[tuple[int, int]]) -> None:
    assert unpack_counts(pack_counts(pairs)) == pairs


@given(st.binary(max_size=40))
def test_any_bytes_are_counts_or_a_value_error(blob: bytes) -> None:
    try:
        pairs = unpack_counts(blob)
    except ValueError:
        return
    assert all(number >= 0 for pair in pairs for number in pair)


def test_results_come_back(folder: Path, results: list[RunResult]) -> None:
    with RunStore.open(folder) as store:
        back = list(store.results())
    for (one, strategy), was in zip(back, results, strict=True):
        assert was.options is not None
        assert strategy == was.options.strategy
        for name in ("seed", "verdict", "model", "steps", "digest", "reach", "crowded_steps"):
            assert getattr(one, name) == getattr(was, name), name
        for name in ("busy_steps", "violations", "crash", "pct", "seconds", "real_accesses"):
            assert getattr(one, name) == getattr(was, name), name
        if was.verdict != "pass":
            assert one.options == was.options
            spec = FAILING.spec(one.seed)
            assert dump_recording(spec, one) == dump_recording(spec, was)


def test_a_plan_comes_back_and_its_arrivals_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    from onearena.stress.arrivals import read_arrivals

    plan = Plan(
        5,
        9,
        "toy",
        ("any",),
        budget_s=2.5,
        arrivals=read_arrivals(path),
        arrivals_path=str(path),
        strategy="pct-2",
    )
    assert plan_from_json(plan.to_json()) == plan
    path.write_text(path.read_text().replace("374", "375"))
    with pytest.raises(UsageError, match="has changed"):
        plan_from_json(plan.to_json())


def test_two_writers_are_refused(folder: Path) -> None:
    with (
        RunStore.open(folder, writes=True),
        pytest.raises(UsageError, match="another process writes it"),
    ):
        RunStore.open(folder, writes=True)
    RunStore.open(folder, writes=True).close()


def test_a_run_is_not_overwritten(folder: Path) -> None:
    with pytest.raises(UsageError, match="--resume"):
        RunStore.create(folder, FAILING, "s")
    with RunStore.open(folder) as store:
        assert store.count() == 4


def test_an_interrupt_inside_a_batch_writes_none_of_it_and_keeps_it(
    folder: Path, results: list[RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore.open(folder, writes=True) as store:
        store.set_plan(replace(FAILING, last=9))
        insert, calls = store._insert, []

        def interrupted(result: RunResult, *, second: bool) -> None:
            calls.append(result.seed)
            if len(calls) == 2:
                raise KeyboardInterrupt
            insert(result, second=second)

        monkeypatch.setattr(store, "_insert", interrupted)
        store.add(replace(results[0], seed=7, verdict="pass"), second=False, seconds=2.0)
        with pytest.raises(KeyboardInterrupt):
            store.add(replace(results[0], seed=8), second=False, seconds=2.0)
        assert store.count() == 4
        store.flush()
        assert store.count() == 6


def test_a_torn_log_gives_a_prefix(tmp_path: Path, results: list[RunResult]) -> None:
    """Whatever is cut off the end of what a kill left: the batches before it are there, whole."""
    store = RunStore.create(tmp_path, replace(FAILING, last=64), "s")
    for seed in range(40):
        store.add(replace(results[0], seed=seed), second=False, seconds=0.0)
        store.flush()
    # What a kill leaves is what lies on disk while the store is still open.
    image = {
        suffix: (tmp_path / (STORE_NAME + suffix)).read_bytes()
        for suffix in ("", "-wal")
        if (tmp_path / (STORE_NAME + suffix)).exists()
    }
    store.close()
    rng, counts = random.Random(3), set()
    for number in range(30):
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        (copy / STORE_NAME).write_bytes(image[""])
        (copy / f"{STORE_NAME}-wal").write_bytes(image["-wal"][: rng.randrange(len(image["-wal"]))])
        try:
            with RunStore.open(copy, writes=True) as opened:
                held = [seed for seed, _, _ in opened.digests()]
        except UsageError as error:
            assert "stopped before its first result" in error.message  # noqa: PT017
            continue
        assert held == list(range(len(held)))
        counts.add(len(held))
    assert len(counts) > 5, counts


def _files(folder: Path) -> dict[str, bytes]:
    whole = (folder / STORE_NAME).read_bytes()
    other = folder / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x(y)")
    connection.close()
    return {
        "empty": b"",
        "text": b"not a store at all\n" * 100,
        "other database": other.read_bytes(),
        "head only": whole[:100],
        "half": whole[: len(whole) // 2 // 4096 * 4096],
        "zeros behind": whole[:4096] + bytes(len(whole) - 4096),
    }


@pytest.mark.parametrize(
    "name", ["empty", "text", "other database", "head only", "half", "zeros behind"]
)
def test_what_is_no_store_is_refused(folder: Path, name: str) -> None:
    data = _files(folder)[name]
    for beside in folder.glob(f"{STORE_NAME}-*"):
        beside.unlink()
    (folder / STORE_NAME).write_bytes(data)
    with pytest.raises(UsageError) as caught, RunStore.open(folder, writes=True) as store:
        list(store.results())
    assert caught.value.message.count("\n") == 0
    assert look(folder).status == "damaged"
    assert (folder / STORE_NAME).read_bytes() == data


def test_other_kinds_of_file_are_refused(folder: Path) -> None:
    path = folder / STORE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole)
    os.truncate(path, STORE_BYTES_MAX + 4096)  # sparse
    with pytest.raises(UsageError, match="at most"):
        RunStore.open(folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="folder that a campaign wrote"):
        RunStore.open(folder)
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match="folder that a campaign wrote"):
        RunStore.open(folder)


def _edit(folder: Path, *statements: str) -> None:
    connection = sqlite3.connect(folder / STORE_NAME, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("PRAGMA user_version = 2", "version 2"),
        ("PRAGMA application_id = 1", "no store"),
        ("CREATE TABLE more(x)", "other tables"),
        ("CREATE VIEW more AS SELECT 1", "other tables"),
        ("DROP TABLE rechecks", "other tables"),
        ("UPDATE schedules SET reach = x'ff'", "damaged"),
        ("UPDATE schedules SET reach = x'7f01'", "damaged"),
        ("UPDATE schedules SET verdict = 99", "damaged"),
        ("UPDATE schedules SET steps = 'many'", "damaged"),
        ("UPDATE schedules SET steps = -1", "damaged"),
        ("UPDATE schedules SET seed = seed + 1000", "none of the plan"),
        ("UPDATE failures SET document = '{}'", "damaged"),
        ("UPDATE failures SET document = '['", "damaged"),
        ("UPDATE failures SET choices = x'00'", "damaged"),
        ("UPDATE meta SET value = '[]' WHERE key = 'plan'", "damaged"),
        ("DELETE FROM meta WHERE key = 'plan'", "damaged"),
    ],
)
def test_edited_stores_are_refused(folder: Path, statement: str, word: str) -> None:
    _edit(folder, statement)
    with pytest.raises(UsageError, match=word), RunStore.open(folder, writes=True) as store:
        Campaign(store.plan(), store=store, engine=HereEngine(FAILING))


def test_random_damage_is_refused_or_harmless(folder: Path, results: list[RunResult]) -> None:
    """Flipped bytes are seen, or hit nothing that is read: no traceback, no invented seed."""
    path = folder / STORE_NAME
    whole, rng, seen = path.read_bytes(), random.Random(11), 0
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        for beside in folder.glob(f"{STORE_NAME}-*"):
            beside.unlink()
        path.write_bytes(data)
        try:
            with RunStore.open(folder, writes=True) as store:
                held = [one.seed for one, _ in store.results()]
        except UsageError:
            seen += 1
            continue
        assert set(held) <= {one.seed for one in results}
    assert seen > 20, seen


def test_a_big_gap_costs_no_memory(folder: Path) -> None:
    plan = replace(FAILING, last=None)
    with RunStore.open(folder, writes=True) as store:
        store.set_plan(plan)
        _edit(folder, "UPDATE schedules SET seed = 4000000000000000 WHERE seed = 3")
        campaign = Campaign(plan, store=store, engine=HereEngine(plan))
        assert list(campaign._tasks) == [Task(3, 4_000_000_000_000_000)]
        assert campaign._next_task() == Task(3, 11)
