"""What the harness keeps, as a record that the dashboard opens: choices files and stored runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from onearena.core.errors import UsageError
from onearena.metrics.record import RecordWriter
from onearena.stress.failure_document import explained_failure, failure_document

SHOWN_MAX: Final = 16
HEAD_BYTES: Final = 4096


def record_of_choices(path: Path, target: Path) -> Path:
    """A record of the failure of a choices file, explained by replaying it."""
    from onearena.stress.recordings import load_recording

    spec, _ = load_recording(path)
    document = explained_failure(spec, file=str(path), minimal=path.name.endswith(".min"))
    if document is None:
        raise UsageError("--source", str(path), "it passes on this code; give one that fails")
    writer = RecordWriter(target, about={"what": path.name})
    writer.failure(document)
    writer.close()
    return target


def record_of_run(folder: Path, target: Path) -> Path:
    """A record of a stored run: its summary, its minimal failures, then the others."""
    from onearena.stress.recordings import parse_recording
    from onearena.stress.run_store import RunStore

    summary = folder / "summary.json"
    with RunStore.open(folder) as store:
        writer = RecordWriter(target, about={"what": folder.name})
        if summary.is_file():
            document = json.loads(summary.read_text(encoding="utf-8"))
            taken = summary.stat().st_mtime
            writer.campaign({"version": 1, "taken_s": taken, "summary": document})
        plan = store.plan()
        for small in store.minimal()[:SHOWN_MAX]:
            spec, _ = parse_recording(small.choices, where=f"seed {small.seed}")
            explained = explained_failure(spec, minimal=True)
            if explained is not None:
                writer.failure(explained)
        failed = [result for result, _ in store.results() if result.verdict != "pass"]
        for result in failed[:SHOWN_MAX]:
            writer.failure(failure_document(result, plan.spec(result.seed)))
        writer.close()
    return target


def record_of(source: str, folder: Path) -> Path:
    """The record to open for a file or a run folder; one made in `folder` if it is none itself."""
    path = Path(source)
    target = folder / f"{path.name or 'run'}.record.jsonl"
    if path.is_dir():
        return record_of_run(path, target)
    if not path.is_file():
        raise UsageError("--source", source, "give http://host:port, a recorded file, or a run")
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b'"onearena_choices"' in head:
        return record_of_choices(path, target)
    return path
