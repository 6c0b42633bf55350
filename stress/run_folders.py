"""Where runs are kept: one folder each, with the store of results and the files for people."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onearena.core.errors import UsageError
from onearena.stress.run_file import BESIDE, STORE_NAME, StoreLock

ROOT_VARIABLE: Final = "ONEARENA_RUNS"
ROOT_DEFAULT: Final = "runs"
NUMBER_DIGITS: Final = 4
RUNS_MAX: Final = 1_000_000
WRITTEN: Final = ("summary.json", "seed-*.choices.json", "seed-*.choices.json.min")
"""What a campaign writes beside its store."""
FOLDERS_LOOKED_AT_MAX: Final = 100_000


def runs_root() -> Path:
    """The folder of runs: `ONEARENA_RUNS`, or `runs` in the working directory."""
    return Path(os.environ.get(ROOT_VARIABLE) or ROOT_DEFAULT)


def new_run() -> Path:
    """A folder of its own for another run: the next number below `runs_root`."""
    root = runs_root()
    number = 1 + max((int(p.name) for p in _numbered(root)), default=0)
    while number <= RUNS_MAX:
        folder = root / f"{number:0{NUMBER_DIGITS}}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1  # another campaign took it in between
            continue
        except (OSError, ValueError) as error:
            raise UsageError(
                "--out", str(root), f"give a folder that can be written ({error})"
            ) from None
        return folder
    raise UsageError("--out", str(root), "it is full of runs; drop some with onearena runs prune")


def _numbered(root: Path) -> Iterator[Path]:
    try:
        entries = list(root.iterdir())
    except OSError:
        return
    for path in entries:
        if path.name.isascii() and path.name.isdigit() and len(path.name) < len(str(RUNS_MAX)):
            yield path


def made_folder(out: str) -> Path:
    """The folder of `--out`, made if it is not there."""
    if not out:
        raise UsageError("--out", out, "give the name of a folder")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        fix = "give a folder: this is a file, or lies below one"
        raise UsageError("--out", out, fix) from None
    except (OSError, ValueError) as error:
        raise UsageError("--out", out, f"give a folder that can be written ({error})") from None
    return folder


def find_run(field: str, name: str) -> Path:
    """The folder of a run: a path to it or to its store, or its name below `runs_root`."""
    for folder in (Path(name), runs_root() / name):
        try:
            if folder.name == STORE_NAME and folder.is_file():
                return folder.parent
            if (folder / STORE_NAME).is_file():
                return folder
        except (OSError, ValueError):
            continue
    raise UsageError(field, name, "give the folder of a run, or a name that `onearena runs` lists")


def all_runs(root: Path) -> list[Path]:
    """The folders of runs directly below `root`, by name; links are not followed."""
    try:
        with os.scandir(root) as entries:
            found = [
                Path(entry.path)
                for _, entry in zip(range(FOLDERS_LOOKED_AT_MAX), entries, strict=False)
                if entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError("--root", str(root), f"give a folder that can be read ({error})") from None
    return sorted(path for path in found if (path / STORE_NAME).is_file())


def drop_run(folder: Path) -> int:
    """Delete what a campaign wrote, under the store's lock; and the folder, if nothing else is in
    it. Returns how many other files are. `UsageError` while a process writes the run.
    """
    store = folder / STORE_NAME
    lock = StoreLock(store)
    try:
        for pattern in WRITTEN:
            for path in folder.glob(pattern):
                path.unlink()
        # The store last: what is cut short here is still a run, and can be dropped again.
        for suffix in reversed(BESIDE):
            store.with_name(store.name + suffix).unlink(missing_ok=True)
        others = sum(1 for _ in folder.iterdir())
        if not others:
            folder.rmdir()
    except OSError as error:
        raise UsageError("run", str(folder), f"it cannot be deleted ({error.strerror})") from None
    finally:
        lock.release()
    return others


def sources_hash(system: str = "") -> str:
    """A hash of all code that a schedule runs: results of two versions are not mixed. Of a system
    named `path/to/file.py:factory` the file counts too; what it imports does not.
    """
    import onearena.core
    import onearena.stress

    digest = hashlib.blake2b(digest_size=16)
    for package in (onearena.core, onearena.stress):
        for top in package.__path__:
            for path in sorted(Path(top).rglob("*.py")):
                digest.update(path.relative_to(top).as_posix().encode() + b"\0")
                digest.update(path.read_bytes())
    file = Path(system.rpartition(":")[0])
    if file.suffix == ".py" and file.is_file():
        digest.update(file.read_bytes())
    return digest.hexdigest()
