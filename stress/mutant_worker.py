"""Hunts mutants: plants one, runs schedules until an oracle reports, says what came of it.

`python -m onearena.stress.mutant_worker REGISTRY` reads one JSON object a line, `{"id",
"budget_s", "first_seed"}` (and `"device": "threads"` for a hunt on real bytes), and answers each
with a line of JSON. A mutant runs in a process of its own. Where its patches leave the kernels
alone, that is a fork of this one, made after clean schedules have loaded every kernel; all other
modules are forgotten and imported again, patched. Else this process itself plants it, and answers
nothing more.

Only a report that names a rule and a unit (or a range of bytes) counts; a crash does not.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onearena.stress.forks import Limits, Tell, in_fork
from onearena.stress.mutants import Mutant, load_registry, plant

if TYPE_CHECKING:
    from onearena.stress.run import RunResult

PACKAGE: Final = "onearena."
BUSY: Final = 20.0  # budgets are processor time; on a busy machine they take longer
GRACE_S: Final = 60.0
DELAY_DRAWS: Final = 4


class Nursery:
    """A process with every kernel loaded, to fork from. Costs one clean schedule."""

    def __init__(self, device: str = "modeled") -> None:
        self.device = device
        import onearena.core.kernels  # noqa: F401

        self.kept = {name for name in sys.modules if name.startswith(PACKAGE)}
        from onearena.stress.run import RunSpec, run_schedule

        for seed in range(3):
            result = run_schedule(RunSpec(seed, device=device))
            assert result.verdict == "pass", f"the clean tree fails seed {seed}: {result}"

    def takes(self, mutant: Mutant) -> bool:
        """Whether a fork can plant this mutant: it patches nothing that stays imported."""
        return not any(patch.module in self.kept for patch in mutant.patches)

    def hunt(self, mutant: Mutant, budget_s: float, first_seed: int) -> dict[str, Any]:
        """Hunt in a fork, and end it when it takes too long."""
        how = hunt if self.device == "modeled" else hunt_real

        def run(tell: Tell) -> None:
            try:
                self.forget()
                plant(mutant)
                answer = how(mutant, budget_s, first_seed)
            except BaseException as error:  # noqa: BLE001 - whatever a mutant raises is a result
                answer = {"crashed": 1, "crash": f"{type(error).__name__}: {error}"}
            tell(answer)

        said = in_fork(run, _limits(budget_s)).said
        found: dict[str, Any] = (
            said[-1] if said else {"crashed": 1, "crash": "ran out of time, or died"}
        )
        return found

    def forget(self) -> None:
        """As if nothing but the kernels had ever been imported."""
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            if name in self.kept or name == __name__:
                continue
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            if parent in sys.modules and hasattr(sys.modules[parent], last):
                delattr(sys.modules[parent], last)


def hunt(
    mutant: Mutant,
    budget_s: float,
    first_seed: int,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Run schedules from `first_seed` on until an oracle has reported, at most `budget_s` seconds.

    If another oracle than the intended one was first, the hunt goes on for as long again, at most
    to the budget, to see whether the intended one speaks too (`intended_after` schedules).
    Seconds are the processor's: other work on the machine costs none. Kernels are made before they
    count: a campaign finds them cached. `tell` gets each seed before it runs, and what was found
    so far when an oracle has reported.
    """
    # Only now: these import the code that the mutant changes.
    from onearena.core.kernels import warm_up
    from onearena.stress.run import RunSpec, run_schedule

    warm_up()
    started = time.process_time()
    found: dict[str, Any] = {"caught": False, "crashed": 0, "crash": "", "schedules": 0, "steps": 0}
    schedules = 0
    end = started + budget_s
    while time.process_time() < end:
        tell(first_seed + schedules)
        result = run_schedule(RunSpec(first_seed + schedules))
        schedules += 1
        seconds = round(time.process_time() - started, 3)
        if not found["caught"]:
            found.update(schedules=schedules, seconds=seconds, steps=found["steps"] + result.steps)
            if result.verdict == "crash":
                found["crashed"] += 1
                found["crash"] = found["crash"] or result.crash.strip().splitlines()[-1]
        reported = report(result)
        if not reported:
            continue
        if not found["caught"]:
            found.update(reported)
            end = min(end, started + max(2 * seconds, 10.0))
            tell(found)
        if mutant.intended in reported["oracles"]:
            return {**found, "intended_after": schedules}
    return found


def hunt_on(mutant: Mutant, budget_s: float, first_seed: int) -> dict[str, Any]:
    """`hunt` for changed kernels: compiled code may write anywhere, and end its process.

    Such a death is a crash of the schedule that ran; the hunt goes on behind it in another fork.
    """
    from onearena.core.kernels import warm_up

    warm_up()
    seed, spent_s, deaths, why = first_seed, 0.0, 0, ""
    while True:
        left_s = budget_s - spent_s
        ended = in_fork(_hunt_told(mutant, left_s, seed), _limits(left_s))
        found = next((row for row in reversed(ended.said) if isinstance(row, dict)), None)
        if found is not None and (ended.status == 0 or found["caught"]):
            break
        last = next((row for row in reversed(ended.said) if isinstance(row, int)), seed)
        deaths += 1
        code = os.waitstatus_to_exitcode(ended.status)
        why = why or f"schedule {last} ended its process ({code})"
        spent_s += ended.seconds
        seed = last + 1
        if spent_s >= budget_s:
            found = {"caught": False, "crashed": 0, "crash": "", "schedules": 0, "seconds": 0.0}
            break
    before = seed - first_seed
    for name in ("schedules", "intended_after"):
        if name in found:
            found[name] += before
    found["seconds"] = round(found["seconds"] + spent_s, 3)
    return {**found, "crashed": found["crashed"] + deaths, "crash": found["crash"] or why}


def _hunt_told(mutant: Mutant, budget_s: float, seed: int) -> Callable[[Tell], None]:
    return lambda tell: tell(hunt(mutant, budget_s, seed, tell))


def _limits(budget_s: float) -> Limits:
    """A fault may loop without an end inside one call, where no budget is looked at."""
    return Limits(cpu_s=int(2 * budget_s + GRACE_S), wall_s=BUSY * budget_s + GRACE_S)


def hunt_real(_mutant: Mutant, budget_s: float, first_seed: int) -> dict[str, Any]:
    """Hunt on the threads device, judged by nothing but real accesses and real bytes.

    A quick look at each seed on the model says whether its schedule breaks an order at all; those
    that do run on the threads, with several draws of how late these are. Ends when the order oracle
    has reported from the access log and some access has found wrong bytes, or with the budget:
    `order_s` and `bytes_s` say when (processor seconds), if ever.
    """
    from onearena.stress.real_forwards import BYTES_ORACLE, ORDER_ORACLE
    from onearena.stress.run import RunSpec, run_schedule

    wanted = {ORDER_ORACLE: "order", BYTES_ORACLE: "bytes"}
    started = time.process_time()
    found: dict[str, Any] = {"caught": False, "crashed": 0, "crash": "", "schedules": 0}
    found["seconds"] = budget_s
    while time.process_time() < started + budget_s:
        seed = first_seed + found["schedules"]
        found["schedules"] += 1
        looked = run_schedule(RunSpec(seed, judges=frozenset(("order",))))
        draws = DELAY_DRAWS if looked.violations else 0
        for delays in range(draws):
            result = run_schedule(
                RunSpec(seed, device="threads", judges=frozenset(wanted), delays=delays)
            )
            seconds = found["seconds"] = round(time.process_time() - started, 3)
            if result.verdict == "crash":
                found["crashed"] += 1
                found["crash"] = found["crash"] or result.crash.strip().splitlines()[-1]
            for violation in result.violations:
                name = wanted.get(violation.oracle)
                if name is not None and f"{name}_s" not in found:
                    found.update({f"{name}_s": seconds, f"{name}_message": violation.message})
            found["caught"] = "order_s" in found
            if found["caught"] and "bytes_s" in found:
                return found
            if time.process_time() > started + budget_s:
                break
    return found


def report(result: RunResult) -> dict[str, Any]:
    """What an oracle reported in this run: who first, which rule, where; empty if nobody did."""
    if result.verdict == "stuck":
        return {
            "caught": True,
            "by": "liveness",
            "broken": "1",
            "unit": result.crash,
            "message": result.crash,
            "seed": result.seed,
            "oracles": ["liveness"],
        }
    placed = [v for v in result.violations if v.unit is not None or v.bytes is not None]
    if result.verdict != "violation" or not placed:
        return {}
    first = placed[0]
    return {
        "caught": True,
        "by": first.oracle,
        "broken": first.rule,
        "unit": str(first.unit or first.bytes),
        "message": first.message,
        "seed": result.seed,
        "oracles": sorted({violation.oracle for violation in placed}),
    }


def main(registry: str) -> None:
    """Answer requests until there are no more."""
    mutants = {mutant.id: mutant for mutant in load_registry(Path(registry))}
    nurseries: dict[str, Nursery] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        mutant, budget_s = mutants[asked["id"]], float(asked["budget_s"])
        if mutant.touches_kernels:
            plant(mutant)
            _answer(asked["id"], hunt_on(mutant, budget_s, asked["first_seed"]))
            return
        device = asked.get("device", "modeled")
        nursery = nurseries.get(device) or nurseries.setdefault(device, Nursery(device))
        assert nursery.takes(mutant), f"{mutant.id} patches what kernels import: plant it alone"
        _answer(asked["id"], nursery.hunt(mutant, budget_s, asked["first_seed"]))


def _answer(name: str, found: dict[str, Any]) -> None:
    print(json.dumps({"id": name, **found}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
