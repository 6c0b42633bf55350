"""Schedules as a Hypothesis strategy: Hypothesis draws every step's decisions, shrinks and keeps
them.

    @given(schedules(build, steps=40))
    def test_my_pool(schedule):
        schedule.check()

Importing this module needs Hypothesis, which onearena itself does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from onearena.stress.choices import Choices
from onearena.stress.factory_runs import BrokenRuleError
from onearena.stress.user_systems import Factory, given

if TYPE_CHECKING:
    from onearena.stress.run import RunResult

STEPS_DEFAULT: Final = 40
SETUPS: Final = 1 << 16

Draw = Callable[[st.SearchStrategy[int]], int]


@lru_cache(maxsize=1024)
def _below(bound: int) -> st.SearchStrategy[int]:
    return st.integers(0, bound - 1)


class DrawnChoices(Choices):
    """Choices whose set-up comes from a seed and whose steps Hypothesis decides.

    Sizes and rates of the set-up belong together, so they are drawn at once; each decision of a
    step is an integer of its own. 0 is the simplest value of every decision, for Hypothesis as for
    onearena's own shrinking. Everything is recorded, so that a failure replays without Hypothesis.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: Draw, setup_seed: int) -> None:
        super().__init__(setup_seed)
        self._ask = ask

    def pick(self, name: str, bound: int) -> int:
        """A value in [0, bound)."""
        if not self.step:
            return super().pick(name, bound)
        value = self._ask(_below(bound))
        self._journal.append((name, value))
        return value

    def draw(self, name: str, bound: int) -> int:
        """A value that the step's label tells already; not recorded."""
        return self._ask(_below(bound)) if self.step else super().draw(name, bound)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that ran, and what came of it."""

    system: str
    result: RunResult

    def check(self) -> None:
        """Raise `BrokenRuleError` with the report, if the schedule broke a rule or crashed."""
        from onearena.stress.report import failure_text
        from onearena.stress.shrink_cli import steps_text

        if self.result.verdict != "pass":
            # The seed alone would draw other steps: only the choices make this schedule again.
            report = failure_text(self.result, seeded=False)
            again = "reproduce: write schedule.to_text() to a file, then onearena replay FILE"
            steps = steps_text(self.result.recording)
            raise BrokenRuleError("\n".join([report, again, *steps]))

    def to_text(self) -> str:
        """The choices file of a failing schedule, for `onearena replay` and `onearena explain`."""
        from onearena.stress.recordings import dump_recording
        from onearena.stress.run import RunSpec

        spec = RunSpec(self.result.seed, self.system, steps=len(self.result.recording))
        return dump_recording(spec, self.result)

    def __repr__(self) -> str:
        labels = [step.label for step in self.result.recording[1:]]
        shown = ", ".join(labels) if labels else f"{self.result.steps} steps"
        return f"Schedule({self.system}, {self.result.verdict}: {shown})"


@st.composite
def schedules(
    draw: Callable[[st.SearchStrategy[int]], int], factory: Factory, *, steps: int = STEPS_DEFAULT
) -> Schedule:
    """Schedules of `steps` world steps against what `factory` builds; run as they are drawn.

    `factory` takes the choices and gives a system under test, fresh each time. Cost: as much as a
    schedule, plus about 20 us a decision.
    """
    from onearena.stress.run import RunSpec, run_schedule

    assert steps > 0, f"steps {steps}: a schedule has at least one"
    seed = draw(_below(SETUPS))
    with given(factory) as system:
        choices = DrawnChoices(draw, seed)
        result = run_schedule(
            RunSpec(seed, system, steps=steps, strategy="random"), choices=choices
        )
    return Schedule(system, result)
