"""Coverage-guided: set-ups whose schedules reached something new are kept, changed a little, and
run again.

The set-up of a schedule (arena, swarm options, rates, strategy: some 130 recorded decisions) says
which situations it can reach. Seeds come in blocks of `BLOCK_SEEDS`. The first `FRESH` schedules of
a block are drawn as always; each later one takes the recorded set-up of an earlier one that reached
a point for the first time in this block, changes up to `CHANGES_MAX` of its values, and draws its
steps anew. Parents are drawn in proportion to how many points were theirs first.

Points are: each cell of rule 6's tables, on one stream and on two (writer kind, last use, ordered
by); each rung and answer by caller; and each kind of step with the state it came in (`facets`).

Equal seeds give equal schedules, in any process and whatever ran before: a member of a block
depends on the members before it, which are run again where this process has not run them yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from onearena.stress.choices import Choices
from onearena.stress.strategies.portfolio import DEFAULT, GUIDED, GUIDED_BLOCKS

if TYPE_CHECKING:
    from onearena.stress.run import Probe, RunResult, RunSpec
    from onearena.stress.world import World

BLOCK_SEEDS: Final = 32
FRESH: Final = 8
CHANGES_MAX: Final = 5
POINT_PREFIXES: Final = ("cell.", "rung.", "answer.", "state.", "fault.", "transfer.", "hasty.")
SESSIONS_MAX: Final = 2

Setup = Mapping[str, Sequence[int]]
Run = Callable[["RunSpec", "Probe | None"], "RunResult"]


def is_guided(spec: RunSpec) -> bool:
    """Whether this strategy runs the spec: asked for by name, or by the portfolio's share."""
    if spec.recording is not None or spec.setup is not None:
        return False
    block = spec.seed // BLOCK_SEEDS
    of_portfolio = spec.strategy == DEFAULT and block % GUIDED_BLOCKS == GUIDED_BLOCKS - 1
    return spec.strategy == GUIDED or of_portfolio


def facets(world: World) -> int:
    """What state the world is in, as bits: transfers, lost peers, forwards and uses in flight, a
    full arena, shared and pinned content asked for.
    """
    full = world.held_bytes * 10 >= world.facts.arena_bytes * 9
    bits = (
        bool(world.transfers),
        bool(world.lost),
        len(world.uses) >= 3,
        any(entry.settled for entry in world.uses),
        any(entry.processed for entry in world.uses),
        full,
        world.held_bytes == 0,
    )
    return sum(1 << place for place, bit in enumerate(bits) if bit)


class Points:
    """A probe: the points of one schedule, and its set-up. Hands everything on to `after`."""

    def __init__(self, after: Probe | None = None) -> None:
        self.seen: set[str] = set()
        self.setup: Setup = {}
        self._after = after
        self._world: World | None = None
        self._before = 0

    def begin(self, world: World) -> None:
        """A schedule starts: its set-up is known."""
        self._world = world
        self.setup = world.choices.record()[0].decisions
        if self._after is not None:
            self._after.begin(world)

    def tick(self) -> None:
        """A step is over: what kind, and in which state it came."""
        world = self._world
        assert world is not None, "ticks come after begin"
        self.seen.add(f"{world.choices.label} in {self._before}")
        self._before = facets(world)
        if self._after is not None:
            self._after.tick()

    def end(self) -> None:
        """The last step is over."""
        if self._after is not None:
            self._after.end()

    def of(self, result: RunResult) -> set[str]:
        """All points of the finished schedule."""
        return self.seen | {name for name in result.reach if name.startswith(POINT_PREFIXES)}


@dataclass(slots=True)
class Kept:
    """A set-up that reached `first` points before any other of its block."""

    setup: Setup
    first: int


@dataclass(slots=True)
class Block:
    """One block of seeds, as far as it was run. Memory: a set-up a member, and the points."""

    specs: list[RunSpec] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    points: set[str] = field(default_factory=set)

    def next_spec(self, spec: RunSpec) -> RunSpec:
        """The spec of the next member, whose seed `spec` has."""
        plain = replace(spec, strategy=DEFAULT)
        if len(self.specs) < FRESH or not self.kept:
            return plain
        choices = Choices(_mixed(spec.seed))
        point = choices.draw("coverage.parent", sum(kept.first for kept in self.kept))
        for kept in self.kept:
            point -= kept.first
            if point < 0:
                break
        return replace(plain, seed=_mixed(spec.seed), setup=changed(kept.setup, choices))

    def run(self, spec: RunSpec, run: Run, probe: Probe | None) -> RunResult:
        """Run the next member and learn from it."""
        chosen = self.next_spec(spec)
        points = Points(probe)
        result = run(chosen, points)
        self.specs.append(replace(chosen, recording=None))
        new = points.of(result) - self.points
        if new:
            self.kept.append(Kept(points.setup, len(new)))
            self.points |= new
        return result


def changed(setup: Setup, choices: Choices) -> dict[str, list[int]]:
    """The set-up with 1 to `CHANGES_MAX` values drawn anew, up to twice as large as they were."""
    new = {name: list(values) for name, values in setup.items()}
    places = [(name, place) for name, values in new.items() for place in range(len(values))]
    for _ in range(1 + choices.draw("coverage.changes", CHANGES_MAX)):
        name, place = places[choices.draw("coverage.place", len(places))]
        most = 1000 if max(new[name]) >= 100 else 2 + 2 * max(new[name])
        new[name][place] = choices.draw("coverage.value", most)
    return new


def _mixed(seed: int) -> int:
    """Another seed, so that a changed set-up does not meet the steps of its own number."""
    return int.from_bytes(hashlib.blake2b(b"coverage %d" % seed, digest_size=8).digest()) >> 1


_BLOCKS: dict[RunSpec, Block] = {}


def run_guided(spec: RunSpec, run: Run, probe: Probe | None = None) -> RunResult:
    """The schedule of `spec.seed`; runs the members of its block before it where needed.

    Pure in `spec`: what this process keeps of earlier blocks saves time and decides nothing.
    """
    first = spec.seed - spec.seed % BLOCK_SEEDS
    key = replace(spec, seed=first, keep_trace=False, state_digests=False)
    block = _BLOCKS.get(key)
    if block is None:
        if len(_BLOCKS) >= SESSIONS_MAX:
            del _BLOCKS[next(iter(_BLOCKS))]
        block = _BLOCKS[key] = Block()
    member = spec.seed - first
    while len(block.specs) < member:
        block.run(replace(key, seed=first + len(block.specs)), run, None)
    if len(block.specs) == member:
        result = block.run(spec, run, probe)
    else:
        again = replace(
            block.specs[member], keep_trace=spec.keep_trace, state_digests=spec.state_digests
        )
        result = run(again, probe)
    options = result.options and replace(result.options, strategy=GUIDED)
    # A changed set-up leaves its recording by design.
    return replace(
        result, seed=spec.seed, strategy_asked=spec.strategy, options=options, divergence=None
    )
