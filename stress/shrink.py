"""Shrinking: from a recording that fails to a small one that breaks the same rule.

Host steps go first (delta debugging over the recording), then device steps, then the values of the
decisions, set-up included: small arenas, short requests, one piece a copy. A candidate is kept if
it breaks the same rule by the same oracle's report and is smaller; `Size` says what smaller means,
host calls before everything else. Steps that a candidate could not take are dropped, and decisions
it had to draw anew are written down, so every recording kept is complete.

That ends where no single step and no pair of host steps can go, which may be far from the least: a
schedule that fills a large arena cannot lose a step, and a smaller arena alone makes it pass. So
schedules near it are tried in which several things change at once (`shrink_draw`), and now and then
short ones are drawn anew; what fails the same way with less is where it goes on from. Nothing here
depends on a clock unless the budget ends: equal files shrink to equal files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from onearena.core.errors import UsageError
from onearena.stress.choices import StepRecord
from onearena.stress.recordings import dump_recording, parse_recording, same_failure
from onearena.stress.run import RunResult, RunSpec, run_schedule
from onearena.stress.shrink_draw import CHANCE_LEAST, MODEL, MODELS, drawn_setup, varied
from onearena.stress.shrink_fork import outcome_in_fork, processor_seconds
from onearena.stress.shrink_parts import (
    CALLS_MAX,
    NO,
    Outcome,
    Size,
    Tally,
    Target,
    is_device,
    size_of,
    weight,
)

BUDGET_S: Final = 30.0
REPLAYS_MAX: Final = 8000
KINDS_FROM_STEPS: Final = 60
"""In schedules longer than this whole kinds of step are tried first."""
PAIRS_MAX: Final = 26
"""Most host steps of which all pairs are tried in the end."""
PAIRS_AT_ONCE: Final = 10
"""The same before."""
PATIENCE: Final = ((8, 0), (14, 1), (20, 2))
"""Host calls, and the rounds without a gain after which a schedule of no more is small enough."""
KEPT_REPLAYS: Final = 3
"""The budget keeps time for so many of the dearest replay so far: a candidate that is just within
it, the replay of what was found, and that of the file's text.
"""
SEARCH_SHARE: Final = 0.75
"""Of the budget; the rest is for the last descent."""
FAR_EVERY: Final = 4
"""Rounds without a gain, of which one draws schedules anew."""
VARIATIONS: Final = 120
"""Schedules tried near the one at hand in one round."""
SAMPLES: Final = 60
"""Short schedules drawn in one round."""
SAMPLES_IDLE: Final = 30
"""Of them without a gain, once one was found, after which the round ends."""
SAMPLE_STEPS_MAX: Final = 60
ROUNDS_MAX: Final = 40
"""Rounds without a gain after which the search ends, however large the schedule is."""

Steps = tuple[StepRecord, ...]


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What came of it. `spec` replays the small schedule, `result` is that replay.

    `finished`: no budget cut it short. `verified`: the file's text, read back, fails the same way
    with the same trace and without a divergence. `seconds` are the processor's.
    """

    spec: RunSpec
    result: RunResult
    text: str
    before: Size
    after: Size
    replays: int
    seconds: float
    finished: bool
    verified: bool


class _SpentError(Exception):
    """Time or replays are used up."""


class Shrinker:
    """Shrinks one recording. Memory: a few copies of it."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        budget_s: float,
        replays_max: int = REPLAYS_MAX,
        rounds_max: int = ROUNDS_MAX,
        isolated: bool = False,
    ) -> None:
        """`rounds_max` 0: no schedules are drawn. `isolated`: a candidate that kills its process
        ends a fork of this one, and does not fail the same way.
        """
        assert spec.recording, "a spec without a recording has nothing to shrink"
        self.spec = spec
        self.replays = 0
        self.replays_max = replays_max
        self.rounds_max = rounds_max
        self.isolated = isolated
        self.started = processor_seconds()
        self.end = self.started + budget_s
        self.search_end = self.started + SEARCH_SHARE * budget_s
        self._dearest_s = 0.0
        fix = "give a schedule that fails on every replay; what a clock decides does not"
        first = run_schedule(spec)
        if first.verdict == "pass":
            raise UsageError("FILE", first.verdict, fix)
        self.first = first
        self.target = Target.of(first)
        self.quick = self._quick()
        # Where the failure shows before the end of the run, no candidate needs its end.
        self.to_end = first.recording[-1].label == "drain" or first.verdict == "stuck"
        outcome = self._judge(replace(spec, recording=first.recording), CALLS_MAX)
        if outcome is None and self.quick is not None:
            # An oracle whose reports bear another name, or that needs another.
            self.quick = None
            outcome = self._judge(replace(spec, recording=first.recording), CALLS_MAX)
        if outcome is None:
            raise UsageError("FILE", f"{first.verdict}, once and not twice", fix)
        self.steps, self.size = outcome.steps, outcome.size
        self.before = outcome.size
        self._prune(outcome)

    def run(self) -> Shrunk:
        """Shrink until nothing helps, or until the budget ends."""
        finished = True
        try:
            if not (self.rounds_max and self._sample(0)):
                # A simpler set-up may fail earlier: that drops whole ends of the schedule.
                self._simplify_names(setup=True)
                self._vary_model()
            if self.rounds_max:
                self._descend(values=False)
                finished = self._search()
            self._descend()
        except _SpentError:
            finished = False
        return self._finish(finished=finished)

    def _search(self) -> bool:
        """Look for fewer host calls where removing steps does not lead, until some rounds in a row
        found none. False if the budget's share for this ended before.
        """
        round_ = idle = 0
        while idle < self._patience(self.size):
            if processor_seconds() >= self.search_end:
                return False
            round_ += 1
            calls = self.size.host_calls
            # What is near comes first; far ones are dear, and seldom better.
            near = self._vary(round_)
            if near or (idle % FAR_EVERY == 1 and self._sample(round_)):
                self._descend(values=False)
            idle = 0 if self.size.host_calls < calls else idle + 1
        return True

    def _patience(self, size: Size) -> int:
        """Rounds without fewer host calls after which the search ends: the smaller, the sooner."""
        for calls, rounds in PATIENCE:
            if size.host_calls <= calls:
                return min(rounds, self.rounds_max)
        return self.rounds_max

    def _vary(self, round_: int) -> bool:
        """Try schedules near this one, each gain from where it led. Whether one has other steps."""
        rng = random.Random(f"{self.spec.seed} near {round_} {len(self.steps)}")
        before = self.size
        for _ in range(VARIATIONS):
            spec = replace(self.spec, seed=rng.getrandbits(63), recording=varied(self.steps, rng))
            outcome = self._judge(spec, self.size.host_calls)
            if outcome is not None and outcome.size < self.size:
                self.steps, self.size = outcome.steps, outcome.size
                self._prune(outcome)
        return not self.size.same_steps(before)

    def _descend(self, *, values: bool = True) -> None:
        """Down to where no candidate is smaller; without `values` decisions stay as they are,
        except those of the set-up.
        """
        while True:
            before = self.size
            self._try(tuple(s for s in self.steps if not is_device(s)))
            self._remove_kinds()
            self._remove(device=False)
            self._remove(device=True)
            if values:
                self._simplify_decisions()
            else:
                self._simplify_names(setup=True)
            self._remove_pairs(PAIRS_MAX if values else PAIRS_AT_ONCE)
            if self.size == before or (not values and self.size.same_steps(before)):
                return

    def _sample(self, round_: int) -> bool:
        """Draw short schedules in set-ups between this one and the simplest; take the smallest that
        fails the same way with fewer host calls. Whether there is one.
        """
        below = self.size.host_calls
        rng = random.Random(f"{self.spec.seed} {round_} {len(self.steps)}")
        found: Outcome | None = None
        idle = 0
        for _ in range(SAMPLES):
            idle += 1
            if found is not None and idle > SAMPLES_IDLE:
                break
            spec = replace(
                self.spec,
                seed=rng.getrandbits(63),
                recording=None,
                setup=drawn_setup(self.steps, rng),
                steps=rng.randint(8, SAMPLE_STEPS_MAX),
            )
            outcome = self._judge(spec, below - 1)
            if outcome is not None and outcome.size.host_calls < below:
                below, found, idle = outcome.size.host_calls, outcome, 0
        if found is None:
            return False
        self.steps, self.size = found.steps, found.size
        self._prune(found)
        return True

    def _finish(self, *, finished: bool) -> Shrunk:
        spec = replace(self.spec, recording=self.steps, to_end=True)
        result = run_schedule(spec)
        text = dump_recording(spec, result)
        read, head = parse_recording(text)
        again = run_schedule(read)
        verified = (
            self.target.met(again)
            and same_failure(head, again)
            and again.digest == result.digest
            and again.divergence is None
        )
        return Shrunk(
            spec=read,
            result=again,
            text=text,
            before=self.before,
            after=self.size,
            replays=self.replays,
            seconds=processor_seconds() - self.started,
            finished=finished,
            verified=verified,
        )

    # -- one candidate
    def _quick(self) -> frozenset[str] | None:
        """The oracles without which no candidate can fail the same way: a run with them alone takes
        half the time (the order oracle) to three quarters.
        """
        if self.target.verdict != "violation" or self.spec.device != "modeled":
            return None
        needed = {self.target.first[0], *(("order",) if self.target.order_rule else ())}
        return frozenset(needed) if self.spec.judges is None else None

    def _replay(self, steps: Sequence[StepRecord]) -> Outcome | None:
        """Run a candidate; None if it does not fail the same way, or takes more host calls."""
        return self._judge(replace(self.spec, recording=tuple(steps)), self.size.host_calls)

    def _judge(self, spec: RunSpec, most: int) -> Outcome | None:
        """Run it; None if it does not fail the same way within `most` host calls."""
        started = processor_seconds()
        if self.replays >= self.replays_max or started >= self.end - KEPT_REPLAYS * self._dearest_s:
            raise _SpentError
        self.replays += 1
        if self.isolated:
            outcome = outcome_in_fork(lambda: self._run(spec, most))
        else:
            outcome = self._run(spec, most)
        self._dearest_s = max(self._dearest_s, processor_seconds() - started)
        return outcome

    def _run(self, spec: RunSpec, most: int) -> Outcome | None:
        if self.quick is not None:
            # Most candidates do not fail that way, and without the other oracles show it sooner.
            judged = replace(spec, to_end=self.to_end, judges=self.quick)
            if not self.target.met(run_schedule(judged, Tally(most))):
                return None
        tally = Tally(most)
        result = run_schedule(replace(spec, to_end=self.to_end), tally)
        if not self.target.met(result):
            return None
        kept = tuple(step for step in result.recording if step.label != "drain")
        return Outcome(kept, size_of(kept, tally.calls), frozenset(tally.skipped))

    def _try(self, steps: Sequence[StepRecord]) -> bool:
        """Keep a candidate if it fails the same way and is smaller."""
        outcome = self._replay(steps)
        if outcome is None or outcome.size >= self.size:
            return False
        self.steps, self.size = outcome.steps, outcome.size
        self._prune(outcome)
        return True

    def _prune(self, outcome: Outcome) -> None:
        """Drop the steps that were skipped; looks of the world then fall on other steps, so run
        it.
        """
        if not outcome.skipped:
            return
        kept = [s for i, s in enumerate(outcome.steps) if i not in outcome.skipped]
        again = self._replay(kept)
        if again is not None and again.size < self.size:
            self.steps, self.size = again.steps, again.size

    # -- steps
    def _places(self, *, device: bool) -> list[int]:
        return [i for i, s in enumerate(self.steps) if i and is_device(s) == device]

    def _without(self, gone: set[int]) -> Steps:
        return tuple(step for i, step in enumerate(self.steps) if i not in gone)

    def _remove_kinds(self) -> None:
        """All steps of a kind at once, as long as there are many."""
        for label in sorted({step.label for step in self.steps[1:]}):
            if len(self.steps) > KINDS_FROM_STEPS:
                self._try(tuple(s for i, s in enumerate(self.steps) if not i or s.label != label))

    def _remove(self, *, device: bool) -> None:
        """Delta debugging: runs of half of them, a quarter, ..., one; from the end backwards, since
        late steps have nothing after them that they could disturb.
        """
        chunk = max(1, len(self._places(device=device)) // 2)
        while True:
            changed = False
            at = len(self._places(device=device))
            while at > 0:
                places = self._places(device=device)
                at = min(at, len(places))
                first = max(0, at - chunk)
                changed |= first < at and self._try(self._without(set(places[first:at])))
                at = first
            if chunk > 1:
                chunk //= 2
            elif not changed:
                return

    def _remove_pairs(self, most: int) -> None:
        """Two host steps that only go together: a request and its end, a pin and its end. Nothing
        where there are more than `most` steps.
        """
        if len(self._places(device=False)) > most:
            return
        for a, b in self._pairs():
            self._try(self._without({a, b}))

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs of places; begins again whenever steps went."""
        seen: set[tuple[int, int]] = set()
        length = 0
        while length != len(self.steps):
            length = len(self.steps)
            seen.clear()
            places = self._places(device=False)
            for index, a in enumerate(places):
                for b in places[index + 1 :]:
                    if length == len(self.steps) and (a, b) not in seen:
                        seen.add((a, b))
                        yield a, b

    # -- values
    def _simplify_decisions(self) -> None:
        """All decisions of a name at once, then one by one."""
        for setup in (False, True):
            self._simplify_names(setup=setup)
            for name in self._names(setup=setup):
                self._simplify_each(name, setup=setup)

    def _vary_model(self) -> None:
        """Another model may need fewer calls: those that concern each band count once a band."""
        if MODEL in self.steps[0].decisions:
            for value in range(MODELS):
                self._try_all(MODEL, value, setup=True)

    def _simplify_names(self, *, setup: bool) -> None:
        for name in self._names(setup=setup):
            chance = self._largest(name) >= CHANCE_LEAST
            for value in (NO, 0) if chance else (0,):
                self._try_all(name, value, setup=setup)

    def _names(self, *, setup: bool) -> list[str]:
        steps = self.steps[:1] if setup else self.steps[1:]
        return list(dict.fromkeys(name for step in steps for name in step.decisions))

    def _largest(self, name: str) -> int:
        return max((v for step in self.steps for v in step.decisions.get(name, ())), default=0)

    def _try_all(self, name: str, value: int, *, setup: bool) -> bool:
        changed = tuple(
            _with(step, name, lambda values: [value] * len(values))
            if (not i) == setup and name in step.decisions
            else step
            for i, step in enumerate(self.steps)
        )
        return changed != self.steps and self._try(changed)

    def _simplify_each(self, name: str, *, setup: bool) -> None:
        chance = self._largest(name) >= CHANCE_LEAST
        place = 0
        # A kept candidate may have other decisions: look anew after each.
        while place < len(found := self._where(name, setup=setup)):
            at, index = found[place]
            value = self.steps[at].decisions[name][index]
            for wanted in (NO, 0) if chance else (0, value // 2, value - 1):
                if weight(wanted) < weight(value) and self._try_one(at, name, index, wanted):
                    break
            place += 1

    def _where(self, name: str, *, setup: bool) -> list[tuple[int, int]]:
        return [
            (i, index)
            for i, step in enumerate(self.steps)
            if (not i) == setup
            for index, value in enumerate(step.decisions.get(name, ()))
            if weight(value)
        ]

    def _try_one(self, at: int, name: str, index: int, value: int) -> bool:
        step = _with(
            self.steps[at], name, lambda values: [*values[:index], value, *values[index + 1 :]]
        )
        return self._try((*self.steps[:at], step, *self.steps[at + 1 :]))


def _with(
    step: StepRecord, name: str, change: Callable[[Sequence[int]], Sequence[int]]
) -> StepRecord:
    return StepRecord(step.label, {**step.decisions, name: change(step.decisions[name])})


def shrink(spec: RunSpec, *, budget_s: float = BUDGET_S, replays_max: int = REPLAYS_MAX) -> Shrunk:
    """Shrink the recording of `spec` within `budget_s` seconds of processor time, the last replays
    among them, and `replays_max` replays and two more at the end.

    Raises `UsageError` if the recording does not fail. Cost: replays; one takes from a millisecond
    to as long as the recording's schedule.
    """
    return Shrinker(spec, budget_s=budget_s, replays_max=replays_max).run()
