"""Seeded, named, recorded decisions.

Everything a schedule decides goes through `Choices.pick(name, bound)`. The k-th decision of a name
depends on the seed, the name and k alone: other decisions, the hash seed, the platform and the
order of the code do not enter, so an edit that adds a decision elsewhere changes nothing here.

A recording is the list of the world's steps, each with its label and the values of its decisions
by name. A replay takes the steps as written: a decision that the recording does not hold comes
from the seed, and the first step or decision that could not be honoured is kept as a `Divergence`.
Removing a step removes its decisions and no other's, which is what shrinking needs.

The generator is counter based: block b of a name is BLAKE2b(seed, name, b), sixteen 32-bit words;
word w gives `w * bound >> 32` (Lemire's multiply-shift; its bias is below bound / 2**32, nothing
for our bounds).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BOUND_MAX = 1 << 24
"""Largest range of one decision; keeps the bias of the multiply-shift below 2**-8 of one value."""

_WORDS = struct.Struct("<16I")


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay first left its recording: world step, decision (or step) name, what
    happened.
    """

    step: int
    name: str
    message: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a recording: its label and the values of its decisions, by name, in order."""

    label: str
    decisions: Mapping[str, Sequence[int]] = field(default_factory=dict)


class _Lane:
    """The drawn decisions of one name: how many so far, and the words of the current block."""

    __slots__ = ("count", "words")

    def __init__(self) -> None:
        self.count = 0
        self.words: tuple[int, ...] = ()


class Choices:
    """The decisions of one schedule. One thread; a decision costs about half a microsecond.

    `begin_step(label)` opens a step; decisions before the first one belong to a step labelled
    "setup". With `begin_step(label, given=...)` the decisions of the step are replayed.
    """

    __slots__ = (
        "_given",
        "_journal",
        "_lanes",
        "_marks",
        "_prefix",
        "_taken",
        "divergence",
        "seed",
    )

    def __init__(self, seed: int, *, setup: Mapping[str, Sequence[int]] | None = None) -> None:
        """`setup`: recorded decisions of the set-up, replayed."""
        assert 0 <= seed < 1 << 64, f"seed {seed} is not an unsigned 64-bit integer"
        self.seed = seed
        self.divergence: Divergence | None = None
        self._prefix = b"onearena/choices/1\0%d\0" % seed
        self._lanes: dict[str, _Lane] = {}
        self._journal: list[tuple[str, int]] = []
        self._marks: list[tuple[str, int]] = [("setup", 0)]
        self._given = setup
        self._taken: dict[str, int] = {}

    @property
    def step(self) -> int:
        """Number of the open step; 0 is the set-up."""
        return len(self._marks) - 1

    @property
    def label(self) -> str:
        """Label of the open step."""
        return self._marks[-1][0]

    def begin_step(self, label: str, *, given: Mapping[str, Sequence[int]] | None = None) -> None:
        """Open the next step; `given` replays its decisions."""
        self._marks.append((label, len(self._journal)))
        self._given = given
        if given is not None:
            self._taken = {}

    def pick(self, name: str, bound: int) -> int:
        """A value in `[0, bound)`; `1 <= bound <= BOUND_MAX`. Records it under `name`."""
        if self._given is not None:
            value = self._replayed(name, bound)
        else:  # `draw`, written out: half of all decisions come here
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane()
            index = lane.count
            lane.count = index + 1
            if not index & 15:
                lane.words = self._block(name, index >> 4)
            value = lane.words[index & 15] * bound >> 32
        self._journal.append((name, value))
        return value

    def later(self, name: str, bound: int) -> int:
        """`pick`, for a decision that older files lack: replayed from those it is 0."""
        if self._given is not None and name not in self._given:
            self._journal.append((name, 0))
            return 0
        return self.pick(name, bound)

    def draw(self, name: str, bound: int) -> int:
        """Like `pick`, but not recorded: for what the label of a step says already."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        index = lane.count
        lane.count = index + 1
        if not index & 15:
            lane.words = self._block(name, index >> 4)
        return lane.words[index & 15] * bound >> 32

    def chance(self, name: str, per_mille: int) -> bool:
        """True with probability `per_mille / 1000`."""
        return self.pick(name, 1000) < per_mille

    def between(self, name: str, low: int, high: int) -> int:
        """A value in `[low, high]`, both included."""
        return low + self.pick(name, high - low + 1)

    def weighted(self, name: str, weights: Sequence[int]) -> int:
        """An index, drawn in proportion to its integer weight. At least one weight is positive."""
        point = self.pick(name, sum(weights))
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
        raise AssertionError(f"weights {weights} of {name}")

    def record(self) -> tuple[StepRecord, ...]:
        """All steps so far with their decisions, the set-up first."""
        ends = [start for _, start in self._marks[1:]] + [len(self._journal)]
        steps: list[StepRecord] = []
        for (label, start), end in zip(self._marks, ends, strict=True):
            decisions: dict[str, list[int]] = {}
            for name, value in self._journal[start:end]:
                decisions.setdefault(name, []).append(value)
            steps.append(StepRecord(label, decisions))
        return tuple(steps)

    def count(self) -> int:
        """How many decisions were taken so far."""
        return len(self._journal)

    def diverge(self, name: str, message: str) -> None:
        """Note that the replay left its recording; only the first note is kept."""
        if self.divergence is None:
            self.divergence = Divergence(self.step, name, message)

    def _block(self, name: str, block: int) -> tuple[int, ...]:
        data = b"%b%b\0%d" % (self._prefix, name.encode(), block)
        return _WORDS.unpack(hashlib.blake2b(data).digest())

    def _replayed(self, name: str, bound: int) -> int:
        assert self._given is not None
        recorded = self._given.get(name, ())
        index = self._taken.get(name, 0)
        self._taken[name] = index + 1
        if index < len(recorded):
            value = recorded[index]
            if 0 <= value < bound:
                return value
            self.diverge(name, f"the recorded value {value} is outside 0..{bound - 1} now")
            return value % bound
        self.diverge(name, f"decision {index + 1} of this name in the step was never recorded")
        return self.draw(name, bound)
