"""Seeded, named, recorded decisions.

Everything a schedule decides goes through `Choices.pick(name, bound)`. The k-th decision of a name depends on
the seed, the name and k alone: other decisions, the hash seed, the platform and the order of the code do not
enter, so an edit that adds a decision elsewhere changes nothing here. Values are recorded per name and replay
per name; the first decision or step that a replay cannot honour is kept as a `Divergence`.

The generator is counter based: block b of a name is BLAKE2b(seed, name, b), sixteen 32-bit words; word w gives
`w * bound >> 32` (Lemire's multiply-shift; its bias is below bound / 2**32, nothing for our bounds).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BOUND_MAX = 1 << 24
"""Largest range of one decision; keeps the bias of the multiply-shift below 2**-8 of one value."""

_WORDS = struct.Struct("<16I")


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay first left its recording: world step, decision (or step) name, and what happened."""

    step: int
    name: str
    message: str

    def __str__(self) -> str:
        return f"step {self.step}: {self.name}: {self.message}"


class _Lane:
    """The decisions of one name: the values taken so far and the words of the current block."""

    __slots__ = ("name", "recorded", "values", "words")

    def __init__(self, name: str, recorded: Sequence[int] | None) -> None:
        self.name = name
        self.values: list[int] = []
        self.words: tuple[int, ...] = ()
        self.recorded = recorded


class Choices:
    """The decisions of one schedule. One thread; a decision costs well under a microsecond.

    `recorded` (name -> values) replays them: a value outside its bound is reduced into it, a missing one comes
    from the seed, and both are divergences. `step` is set by the world, for the message of a divergence only.
    """

    __slots__ = ("_lanes", "_prefix", "_recorded", "divergence", "seed", "step")

    def __init__(self, seed: int, *, recorded: Mapping[str, Sequence[int]] | None = None) -> None:
        assert 0 <= seed < 1 << 64, f"seed {seed} is not an unsigned 64-bit integer"
        self.seed = seed
        self.step = 0
        self.divergence: Divergence | None = None
        self._prefix = b"onearena/choices/1\0%d\0" % seed
        self._recorded = recorded
        self._lanes: dict[str, _Lane] = {}

    def pick(self, name: str, bound: int) -> int:
        """A value in `[0, bound)`; `1 <= bound <= BOUND_MAX`. Records it under `name`."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._open(name)
        values = lane.values
        index = len(values)
        if lane.recorded is not None:
            return self._replayed(lane, index, bound)
        if not index & 15:
            lane.words = self._block(name, index >> 4)
        value = lane.words[index & 15] * bound >> 32
        values.append(value)
        return value

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

    def record(self) -> dict[str, list[int]]:
        """All values taken so far, per name, in the order the names were first used."""
        return {name: list(lane.values) for name, lane in self._lanes.items()}

    def count(self) -> int:
        """How many decisions were taken so far."""
        return sum(len(lane.values) for lane in self._lanes.values())

    def diverge(self, name: str, message: str) -> None:
        """Note that the replay left its recording; only the first note is kept."""
        if self.divergence is None:
            self.divergence = Divergence(self.step, name, message)

    def _open(self, name: str) -> _Lane:
        recorded = None
        if self._recorded is not None:
            recorded = self._recorded.get(name)
        lane = self._lanes[name] = _Lane(name, recorded)
        return lane

    def _block(self, name: str, block: int) -> tuple[int, ...]:
        data = b"%b%b\0%d" % (self._prefix, name.encode(), block)
        return _WORDS.unpack(hashlib.blake2b(data).digest())

    def _replayed(self, lane: _Lane, index: int, bound: int) -> int:
        recorded = lane.recorded
        assert recorded is not None
        if index < len(recorded):
            value = recorded[index]
            if not 0 <= value < bound:
                self.diverge(lane.name, f"decision {index} was {value}, now the range is 0..{bound - 1}")
                value %= bound
        else:
            self.diverge(lane.name, f"decision {index} was never recorded")
            value = self._block(lane.name, index >> 4)[index & 15] * bound >> 32
        lane.values.append(value)
        return value
