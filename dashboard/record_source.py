"""A recorded file as a source: frames to step through, failures, the campaign's summary.

Reads what `onearena.metrics.record` writes, whoever wrote it: the file may be cut, foreign or
huge. It may grow, and may be written anew, while it is read: `refresh` notices both.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from onearena.dashboard.checked import Checked, SourceError, kind_of, parse_json
from onearena.dashboard.frame import Frame, parse_frame
from onearena.dashboard.history_model import Sample, sample_of

RECORD_VERSION: Final = 1
FILE_BYTES_MAX: Final = 1 << 30
LINE_BYTES_MAX: Final = 16 << 20
FRAMES_MAX: Final = 20_000
FAILURES_MAX: Final = 1000
CAMPAIGNS_MAX: Final = 5000
HEAD_BYTES_MAX: Final = 1 << 16
CHECKED_BYTES: Final = 128
_KIND: Final = re.compile(rb'\{"kind":"(frame|failure|campaign)"')
_WHEN: Final = re.compile(
    rb'\{"kind":"frame","taken_s":([0-9.e+]{1,32}),'
    rb'"schedule":(-?[0-9]{1,19}),"step":(-?[0-9]{1,9}),'
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the file: where it is, and what its head says."""

    offset: int
    length: int
    number: int
    taken_s: float = 0.0
    schedule: int = -1
    step: int = -1

    @property
    def moment(self) -> int:
        """Milliseconds since 1970: what links name a frame by."""
        return int(self.taken_s * 1000)


def file_in(folder: Path, name: str) -> Path:
    """The file of that name in `folder`, and in no other folder; `SourceError` otherwise."""
    if not name or name in (".", "..") or Path(name).name != name or "\0" in name:
        raise SourceError(f"file {name[:80]!r}: give the name of a file in {folder}, no path")
    path = (folder / name).resolve()
    if path.parent != folder.resolve():
        raise SourceError(f"file {name[:80]!r}: it lies outside {folder}")
    if not path.is_file():
        raise SourceError(f"file {name[:80]!r}: there is no such file in {folder}")
    return path


def files_of(folder: Path) -> list[str]:
    """Names of the files in a folder that may be records, sorted; at most 1,000."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in (".jsonl", ".json"))
    return names[:1000]


class RecordSource:
    """One record. Any thread. `SourceError` if the file is no record, or no longer one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.frames: list[Entry] = []
        self.failures: list[Entry] = []
        self.campaigns: list[Entry] = []
        self.torn = False
        """Whether the last line is cut: the writer was killed, or is writing."""
        self._lock = threading.Lock()
        self._samples: list[Sample] = []
        self._inode = -1
        self._head = self._tail = b""
        self._read_to = 0
        self._lines = 0
        self.refresh()

    def refresh(self) -> None:
        """Take in what was added; from the start if the file was written anew."""
        with self._lock, self._open() as file:
            facts = os.fstat(file.fileno())
            if facts.st_size > FILE_BYTES_MAX:
                raise SourceError(
                    f"{self.name}: it has {facts.st_size} bytes, and {FILE_BYTES_MAX} are read"
                )
            if facts.st_ino != self._inode or not self._same(file):
                self._begin(file, facts.st_ino)
            if facts.st_size > self._read_to:
                file.seek(self._read_to)
                for offset, line in self._whole_lines(file):
                    self._take(offset, line)

    def frame(self, index: int) -> Frame:
        """Frame `index` of `frames`."""
        entry = self.frames[index]
        return parse_frame(self._document(entry), f"{self.name}, line {entry.number}")

    def failure(self, index: int) -> Mapping[str, Any]:
        """The document of failure `index`."""
        entry = self.failures[index]
        return Checked(self._document(entry), f"{self.name}, line {entry.number}").value

    def campaign(self, index: int = -1) -> Mapping[str, Any]:
        """The summary that the campaign had reached at line `index` of `campaigns`."""
        entry = self.campaigns[index]
        return Checked(self._document(entry), f"{self.name}, line {entry.number}").value

    def samples(self) -> list[Sample]:
        """The numbers of every frame, in order; O(frames) the first time, then what is new."""
        with self._lock:
            known = len(self._samples)
        fresh = [sample_of(self.frame(at)) for at in range(known, len(self.frames))]
        with self._lock:
            if known == len(self._samples):
                self._samples += fresh
            return list(self._samples[: len(self.frames)])

    # -- lines
    def _open(self) -> IO[bytes]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise SourceError(f"{self.name}: this is no regular file")
            return os.fdopen(descriptor, "rb")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SourceError(f"{self.name}: it cannot be read ({reason})") from None

    def _same(self, file: IO[bytes]) -> bool:
        """Whether what was read is still there: its first and its last bytes say so."""
        file.seek(0)
        head = file.read(len(self._head))
        file.seek(max(0, self._read_to - len(self._tail)))
        return head == self._head and file.read(len(self._tail)) == self._tail

    def _begin(self, file: IO[bytes], inode: int) -> None:
        self.frames, self.failures, self.campaigns = [], [], []
        self._samples = []
        file.seek(0)
        self._inode = -1  # until its first line is known to be right
        head = file.readline(HEAD_BYTES_MAX)
        where = f"{self.name}, line 1"
        if not head.endswith(b"\n"):
            raise SourceError(f"{self.name}: this is no record of onearena: its first line is none")
        document = Checked(parse_json(head, where), where)
        if document.value.get("onearena") != "record":
            raise SourceError(
                f"{self.name}: this is no record of onearena; make one with "
                "`onearena stress --record FILE`"
            )
        version = document.value.get("version")
        if version != RECORD_VERSION:
            raise SourceError(
                f"{self.name}: records of version {RECORD_VERSION} are understood, and this one is "
                f"{kind_of(version)}"
            )
        self._inode, self._read_to, self._lines = inode, len(head), 1
        self._head, self._tail = head[:CHECKED_BYTES], head[-CHECKED_BYTES:]

    def _whole_lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        self.torn = False
        while True:
            offset = self._read_to
            line = file.readline(LINE_BYTES_MAX)
            if not line:
                return
            if not line.endswith(b"\n"):
                if len(line) >= LINE_BYTES_MAX:
                    raise SourceError(f"{self.name}, line {self._lines + 1}: it is too long")
                self.torn = True
                return
            self._read_to += len(line)
            self._lines += 1
            self._tail = line[-CHECKED_BYTES:]
            yield offset, line

    def _take(self, offset: int, line: bytes) -> None:
        if not line.strip():
            return
        kind = _KIND.match(line)
        if kind is None:
            raise SourceError(
                f"{self.name}, line {self._lines}: a frame, failure or campaign was expected"
            )
        entry = Entry(offset, len(line), self._lines)
        if kind[1] == b"failure":
            self._room(self.failures, FAILURES_MAX).append(entry)
        elif kind[1] == b"campaign":
            self._room(self.campaigns, CAMPAIGNS_MAX).append(entry)
        else:
            when = _WHEN.match(line)
            if when is None:
                raise SourceError(f"{self.name}, line {self._lines}: this frame has no time")
            try:
                taken = float(when[1])
            except ValueError:
                raise SourceError(f"{self.name}, line {self._lines}: its time is none") from None
            entry = Entry(offset, len(line), self._lines, taken, int(when[2]), int(when[3]))
            self._room(self.frames, FRAMES_MAX).append(entry)

    def _room(self, entries: list[Entry], most: int) -> list[Entry]:
        if len(entries) >= most:
            raise SourceError(f"{self.name}: more than {most} lines of a kind; record it anew")
        return entries

    def _document(self, entry: Entry) -> object:
        with self._open() as file:
            file.seek(entry.offset)
            line = file.read(entry.length)
        return parse_json(line, f"{self.name}, line {entry.number}")
