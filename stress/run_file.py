"""The file behind a run store: its tables, its lock, and whether a file is one at all."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from onearena.core.errors import UsageError

STORE_NAME: Final = "results.onearena-store"
LOCK_SUFFIX: Final = "-lock"
BESIDE: Final = ("", "-wal", "-shm", LOCK_SUFFIX)
"""What SQLite and the lock add to the store's name."""
APPLICATION_ID: Final = 0x6F6E6172  # "onar"
SCHEMA_VERSION: Final = 1
STORE_BYTES_MAX: Final = 64 << 30
BUSY_S: Final = 20.0
REASON_MAX: Final = 200
_MAGIC: Final = b"SQLite format 3\0"

TABLES: Final = {
    "meta": "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "names": "CREATE TABLE names(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "schedules": (
        "CREATE TABLE schedules(seed INTEGER PRIMARY KEY, verdict INTEGER NOT NULL, "
        "steps INTEGER NOT NULL, digest TEXT NOT NULL, model INTEGER NOT NULL, "
        "strategy INTEGER NOT NULL, crowded_steps INTEGER NOT NULL, busy_steps INTEGER NOT NULL, "
        "real_accesses INTEGER NOT NULL, real_overlaps INTEGER NOT NULL, pct BLOB NOT NULL, "
        "reach BLOB NOT NULL, seconds REAL NOT NULL)"
    ),
    "rechecks": "CREATE TABLE rechecks(seed INTEGER PRIMARY KEY, digest TEXT NOT NULL)",
    "failures": (
        "CREATE TABLE failures(seed INTEGER PRIMARY KEY, document TEXT NOT NULL, choices BLOB)"
    ),
    "minimal": (
        "CREATE TABLE minimal(seed INTEGER PRIMARY KEY, verdict TEXT NOT NULL, "
        "oracle TEXT NOT NULL, rule TEXT NOT NULL, form TEXT NOT NULL, "
        "document TEXT NOT NULL, choices BLOB NOT NULL)"
    ),
    "sessions": (
        "CREATE TABLE sessions(id INTEGER PRIMARY KEY, began TEXT NOT NULL, jobs INTEGER NOT NULL, "
        "seconds REAL NOT NULL, ended TEXT NOT NULL)"
    ),
}


class StoreLock:
    """Held by the one process that writes a store; the system lets it go when the process ends.

    `UsageError` while another process holds it.
    """

    def __init__(self, store: Path) -> None:
        path = store.with_name(store.name + LOCK_SUFFIX)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                "run", str(store.parent), f"give a folder that can be written ({error.strerror})"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise UsageError(
                "run", str(store.parent), "another process writes it now; wait for its end"
            ) from None

    def release(self) -> None:
        """Let others write."""
        os.close(self._file)


def is_locked(store: Path) -> bool:
    """Whether a process writes the store now."""
    try:
        file = os.open(store.with_name(store.name + LOCK_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _short(reason: object) -> str:
    """On one line, whatever the file made SQLite say."""
    return " ".join(str(reason).split())[:REASON_MAX]


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Whatever a damaged or foreign file makes of reading it becomes one clear line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise UsageError(
            "run", str(path), f"give a store that can be used ({_short(error)})"
        ) from None
    except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            "run", str(path), f"it is damaged ({_short(error)}); start another run with --out"
        ) from None


def check_file(path: Path) -> None:
    """Refuse what cannot be a store, before SQLite looks at it."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise UsageError("run", str(path), "give a folder that a campaign wrote with --out")
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            "run", str(path.parent), f"give a folder that a campaign wrote with --out ({reason})"
        ) from None
    if not head:
        raise UsageError("run", str(path), "it was stopped before its first result; start it again")
    if head != _MAGIC:
        raise UsageError("run", str(path), "give a folder that a campaign wrote: this is no store")
    if found.st_size > STORE_BYTES_MAX:
        raise UsageError("run", str(path), f"give a store of at most {STORE_BYTES_MAX} bytes")


def connect(path: Path, *, writes: bool) -> sqlite3.Connection:
    """Open the database; a reader too may have to recover what a kill left behind, so it opens the
    file for writing where it may.
    """
    if not writes:
        for mode in ("rw", "ro"):
            connection = _connect(f"{path.absolute().as_uri()}?mode={mode}")
            try:
                connection.execute("SELECT count(*) FROM sqlite_master")
            except sqlite3.OperationalError:
                connection.close()
                continue
            connection.execute("PRAGMA query_only = ON")
            return connection
        return _connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1")
    return _connect(f"{path.absolute().as_uri()}?mode=rwc")


def write_ahead(connection: sqlite3.Connection) -> None:
    """Before the first write, and not to a file that may be somebody else's: it changes it."""
    connection.execute("PRAGMA journal_mode = WAL")
    # Committed batches survive the process; only a power cut may take the last ones, whole.
    connection.execute("PRAGMA synchronous = NORMAL")


def _connect(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def make_tables(connection: sqlite3.Connection) -> None:
    """The tables of a new store; inside a transaction, so that a file has all of them or none."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    for sql in TABLES.values():
        connection.execute(sql)


def check_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a database that is not a store of this version, table by table."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    if not rows:
        raise UsageError("run", str(path), "it was stopped before its first result; start it again")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise UsageError("run", str(path), "give a folder that a campaign wrote: this is no store")
    if version != SCHEMA_VERSION:
        raise UsageError(
            "run",
            str(path),
            f"it is a store of version {version}, and this onearena reads {SCHEMA_VERSION}; use "
            "the onearena that wrote it",
        )
    found = {name: sql for kind, name, sql in rows if sql is not None or kind != "index"}
    if found != TABLES:
        raise UsageError("run", str(path), "it is damaged (other tables); start another run")


def check_pages(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a damaged file before anything is added to it. Reads the whole file once."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise UsageError(
            "run", str(path), f"it is damaged ({_short(answer)}); start another run with --out"
        )


def holds_run(path: Path) -> bool:
    """Whether a store is there with its tables. False for none, or one that a kill cut short
    before its first commit; `UsageError` for any other file.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return False
    check_file(path)
    with reported(path):
        connection = connect(path, writes=False)
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return False
            check_schema(path, connection)
        finally:
            connection.close()
    return True
