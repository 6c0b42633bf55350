"""The results of one campaign in one file, written so that a kill at any moment loses no more
than the last batch.

The file is an SQLite database in WAL mode. Results go in by batches, each one transaction: after a
kill -9 the committed ones are there, the open one is not, and nothing is half there. (After a
power cut the last transactions may be missing too; the seeds then run again.) One process writes,
which holds a lock beside the file; any number may read meanwhile.

A file that is not such a store, or of another version, or damaged, raises `UsageError`: one line.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from onearena.core.errors import UsageError
from onearena.stress.campaign_plan import Plan, plan_from_json
from onearena.stress.recordings import dump_recording
from onearena.stress.run import RunResult
from onearena.stress.run_file import (
    STORE_NAME,
    StoreLock,
    check_file,
    check_pages,
    check_schema,
    connect,
    holds_run,
    make_tables,
    reported,
    write_ahead,
)
from onearena.stress.run_rows import (
    failure_document,
    failure_fields,
    pack_choices,
    pack_counts,
    steps_of,
    unpack_choices,
    unpack_counts,
)

if TYPE_CHECKING:
    from onearena.stress.summary import Summary

BATCH_RESULTS: Final = 64
BATCH_S: Final = 1.0
CHOICES_KEPT_MAX: Final = 64
"""Recordings kept; a later failure's seed still makes it again."""
ENDS: Final = ("complete", "failed", "budget", "interrupted")


@dataclass(frozen=True, slots=True)
class Minimal:
    """The minimal schedule of a failure. `form` names its shape: failures of one rule and one form
    are one. `document` is what `shrunk_json` said, `choices` the small choices file.
    """

    seed: int
    verdict: str
    oracle: str
    rule: str
    form: str
    document: str
    choices: str


class RunStore:
    """One campaign's results. Made by `create` or `open`; `close` it, or use it as a context.

    One thread. `add` costs some 80 microseconds, with one transaction for each batch.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: StoreLock | None) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock
        self._names: dict[str, int] = {}
        self._pending: list[tuple[RunResult, bool]] = []
        self._seconds = 0.0
        self._seconds_before = 0.0  # of earlier sessions
        self._session: int | None = None
        self._flushed = time.monotonic()
        self._recordings = 0
        self._plan: Plan | None = None

    # Making, opening, closing

    @classmethod
    def create(cls, folder: Path, plan: Plan, sources: str) -> RunStore:
        """A new store in a folder that exists. One that was begun and holds no plan is made anew.

        Raises `UsageError` if the folder holds a run.
        """
        path = folder / STORE_NAME
        lock = StoreLock(path)
        try:
            _make_room(path)
            with reported(path):
                store = cls(path, connect(path, writes=True), lock)
                write_ahead(store._connection)
        except BaseException:
            lock.release()
            raise
        with store._guarded(), store._transaction() as connection:
            make_tables(connection)
            store._write_meta("plan", json.dumps(plan.to_json()))
            store._write_meta("sources", sources)
            store._write_meta("status", "running")
        store._plan = plan
        return store

    @classmethod
    def open(cls, folder: Path, *, writes: bool = False) -> RunStore:
        """The store of a folder; with `writes` under its lock. `UsageError` if it is none."""
        path = folder / STORE_NAME
        check_file(path)
        lock = StoreLock(path) if writes else None
        connection: sqlite3.Connection | None = None
        try:
            with reported(path):
                connection = connect(path, writes=writes)
                check_schema(path, connection)
                if writes:
                    check_pages(path, connection)
                    write_ahead(connection)
        except BaseException:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.release()
            raise
        store = cls(path, connection, lock)
        with store._guarded():
            row = connection.execute("SELECT count(choices) FROM failures").fetchone()
            store._recordings = int(row[0])
        return store

    def close(self) -> None:
        """Close the file; a pending batch is written first."""
        try:
            if self._lock is not None:
                self.flush()
        finally:
            self._connection.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def begin(self, jobs: int, began: str) -> None:
        """A session starts: `began` is a date for people."""
        with self._guarded(), self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO sessions(began, jobs, seconds, ended) VALUES(?, ?, 0.0, '')",
                (began, jobs),
            )
            self._session = cursor.lastrowid
            self._write_meta("status", "running")
        self._seconds_before = self.seconds()

    def add(self, result: RunResult, *, second: bool, seconds: float) -> None:
        """Keep a result. It is on disk after the batch: 64 results, a second, or a failure.

        `seconds` is how long the campaign has run so far, all sessions together.
        """
        self._pending.append((result, second))
        self._seconds = seconds
        full = len(self._pending) >= BATCH_RESULTS
        late = time.monotonic() - self._flushed >= BATCH_S
        if full or late or result.verdict != "pass":
            self.flush()

    def flush(self) -> None:
        """Write the pending results in one transaction. Interrupted, it writes none of them and
        keeps them.
        """
        if not self._pending:
            return
        with self._guarded(), self._transaction():
            for result, second in self._pending:
                self._insert(result, second=second)
            if self._session is not None:
                self._connection.execute(
                    "UPDATE sessions SET seconds = ? WHERE id = ?",
                    (self._seconds - self._seconds_before, self._session),
                )
        self._pending.clear()
        self._flushed = time.monotonic()

    def end(self, summary: Summary, ended: str) -> None:
        """The session is over: write what is pending, and how it ended (one of `ENDS`)."""
        assert ended in ENDS, ended
        self._seconds = summary.seconds
        self.flush()
        with self._guarded(), self._transaction() as connection:
            if self._session is not None:
                connection.execute(
                    "UPDATE sessions SET seconds = ?, ended = ? WHERE id = ?",
                    (summary.seconds - self._seconds_before, ended, self._session),
                )
            self._write_meta("status", ended)
            self._write_meta("summary", json.dumps(summary.to_json()))

    def set_plan(self, plan: Plan) -> None:
        """The run has another end, budget or patience now."""
        with self._guarded(), self._transaction():
            self._write_meta("plan", json.dumps(plan.to_json()))
        self._plan = plan

    def add_minimal(self, minimal: Minimal) -> None:
        """Keep the minimal schedule of a failure."""
        row = (
            minimal.seed,
            minimal.verdict,
            minimal.oracle,
            minimal.rule,
            minimal.form,
            minimal.document,
            pack_choices(minimal.choices),
        )
        with self._guarded(), self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO minimal VALUES(?, ?, ?, ?, ?, ?, ?)", row)

    def _insert(self, result: RunResult, *, second: bool) -> None:
        # "Or ignore": an interrupt between a commit and our noting it makes this run once more.
        execute = self._connection.execute
        if second:
            execute("INSERT OR IGNORE INTO rechecks VALUES(?, ?)", (result.seed, result.digest))
            return
        strategy = "" if result.options is None else result.options.strategy
        reach = sorted((self._name(name), count) for name, count in result.reach.items())
        execute(
            "INSERT OR IGNORE INTO schedules VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                result.seed,
                self._name(result.verdict),
                result.steps,
                result.digest,
                self._name(result.model),
                self._name(strategy),
                result.crowded_steps,
                result.busy_steps,
                result.real_accesses,
                result.real_overlaps,
                pack_counts([result.pct[:2], (result.pct[2], 0)]),
                pack_counts(reach),
                result.seconds,
            ),
        )
        if result.verdict == "pass":
            return
        choices = None
        if result.recording and self._recordings < CHOICES_KEPT_MAX:
            self._recordings += 1
            choices = pack_choices(dump_recording(self.plan().spec(result.seed), result))
        execute(
            "INSERT OR IGNORE INTO failures VALUES(?, ?, ?)",
            (result.seed, failure_document(result), choices),
        )

    def _name(self, name: str) -> int:
        """The number of a name; a new one gets the next. Inside a transaction."""
        number = self._names.get(name)
        if number is None:
            execute = self._connection.execute
            execute("INSERT OR IGNORE INTO names(name) VALUES(?)", (name,))
            row = execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()
            number = self._names[name] = int(row[0])
        return number

    def _write_meta(self, key: str, value: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, value))

    # Reading

    def meta(self, key: str) -> str:
        """`sources`, `status` or `summary`; empty if it was never written."""
        with self._guarded():
            row = self._connection.execute(
                "SELECT value FROM meta WHERE key = ?", (key,)
            ).fetchone()
        return "" if row is None else str(row[0])

    def plan(self) -> Plan:
        """The plan, its arrivals read again."""
        if self._plan is None:
            with self._guarded():
                self._plan = plan_from_json(json.loads(self.meta("plan")))
        return self._plan

    def plan_document(self) -> dict[str, Any]:
        """The plan's JSON form, as written."""
        with self._guarded():
            return dict(json.loads(self.meta("plan")))

    def count(self) -> int:
        """How many schedules have a result."""
        with self._guarded():
            return int(self._connection.execute("SELECT count(*) FROM schedules").fetchone()[0])

    def verdicts(self) -> dict[str, int]:
        """Verdict -> schedules."""
        with self._guarded():
            rows = self._connection.execute(
                "SELECT n.name, count(*) FROM schedules s JOIN names n ON n.id = s.verdict "
                "GROUP BY n.name ORDER BY n.name"
            )
            return {str(name): int(count) for name, count in rows}

    def digests(self) -> Iterator[tuple[int, str, str]]:
        """Seed, verdict and digest of all results, by seed."""
        with self._guarded():
            yield from self._connection.execute(
                "SELECT s.seed, n.name, s.digest FROM schedules s JOIN names n ON n.id = s.verdict "
                "ORDER BY s.seed"
            )

    def results(self) -> Iterator[tuple[RunResult, str]]:
        """All results by seed, each with its strategy; bounded memory. Failures have what they
        reported, and their recording if it was kept.
        """
        with self._guarded():
            plan = self.plan_document()
            first, last = int(plan["first"]), plan["last"]
            names = dict(self._connection.execute("SELECT id, name FROM names"))
            rows = self._connection.execute(
                "SELECT s.*, f.document, f.choices FROM schedules s "
                "LEFT JOIN failures f ON f.seed = s.seed ORDER BY s.seed"
            )
            for row in rows:
                result = _result(row, names, str(plan["system"]))
                if not first <= result.seed or (last is not None and result.seed >= last):
                    raise ValueError(f"seed {result.seed} is none of the plan")
                yield result, names[row[5]]

    def rechecks(self) -> dict[int, str]:
        """Digest of the second run of each seed that had one."""
        with self._guarded():
            return dict(self._connection.execute("SELECT seed, digest FROM rechecks"))

    def choices(self, seed: int) -> str:
        """The choices file of a failure; empty where none was kept."""
        with self._guarded():
            row = self._connection.execute(
                "SELECT choices FROM failures WHERE seed = ?", (seed,)
            ).fetchone()
            return "" if row is None or row[0] is None else unpack_choices(row[0])

    def minimal(self) -> list[Minimal]:
        """The minimal schedules there are, by seed."""
        with self._guarded():
            rows = self._connection.execute("SELECT * FROM minimal ORDER BY seed")
            return [Minimal(a, b, c, d, e, f, unpack_choices(g)) for a, b, c, d, e, f, g in rows]

    def seconds(self) -> float:
        """How long the campaign has run, all sessions together."""
        with self._guarded():
            total = self._connection.execute("SELECT sum(seconds) FROM sessions").fetchone()[0]
            return float(total or 0.0)

    def sessions(self) -> list[tuple[str, int, float, str]]:
        """When each session began, its jobs, its seconds and how it ended ("" for a kill)."""
        with self._guarded():
            rows = self._connection.execute(
                "SELECT began, jobs, seconds, ended FROM sessions ORDER BY id"
            )
            return [(str(a), int(b), float(c), str(d)) for a, b, c, d in rows]

    # Within

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing, whatever interrupts it."""
        assert self._lock is not None, f"{self.path} was opened to be read"
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            self._names.clear()  # numbers that were given inside are not there
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with reported(self.path):
            yield


def _make_room(path: Path) -> None:
    """Refuse a folder that holds a run; take away what a kill left of one that never began."""
    if holds_run(path):
        folder = path.parent
        raise UsageError("--out", str(folder), f"it holds a run; go on with --resume {folder}")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _result(row: tuple[Any, ...], names: dict[int, str], system: str) -> RunResult:
    """A row with its failure. `ValueError` for anything that `_insert` does not write."""
    try:
        (pct_depth, pct_actors), (pct_steps, _) = unpack_counts(row[10])
        reach = {names[name]: count for name, count in unpack_counts(row[11])}
        verdict, model = names[row[1]], names[row[4]]
        _ = names[row[5]]
        numbers = (row[0], row[2], row[6], row[7], row[8], row[9])
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"numbers {numbers}")
        failed = {} if row[13] is None else failure_fields(row[13])
        return RunResult(
            seed=row[0],
            system=system,
            model=model,
            verdict=verdict,
            steps=row[2],
            digest=str(row[3]),
            reach=reach,
            crowded_steps=row[6],
            busy_steps=row[7],
            recording=() if row[14] is None else steps_of(row[14]),
            real_accesses=row[8],
            real_overlaps=row[9],
            pct=(pct_depth, pct_actors, pct_steps),
            seconds=float(row[12]),
            **failed,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"result of seed {row[0]!r}: {error!r}") from None
