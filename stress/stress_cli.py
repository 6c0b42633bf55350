"""`onearena stress`: seeded campaigns against the lifecycle rules."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from onearena.core.errors import UsageError
from onearena.stress.replay_cli import check_device
from onearena.stress.schedule_limit import LIMIT_S
from onearena.stress.terminal import examples
from onearena.stress.watch_options import start_live, watch_options

if TYPE_CHECKING:
    from onearena.stress.campaign_plan import Plan
    from onearena.stress.stress_run import Session

SEED_MAX = (1 << 63) - 1
JOBS_MAX = 1024
ENGINES = ("local", "ray")
OF_THE_PLAN = ("seed", "model", "system", "device", "strategy", "calls", "arrivals", "out")
"""Options that a resumed run has already."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


@click.command(
    epilog=examples(
        "onearena stress --seeds 0:1000",
        "onearena stress --seed 123",
        "onearena stress --model kimi-k3 --budget 60s --out runs/tonight",
        "onearena stress --seeds 0:200000 --keep-going --out runs/night",
        "onearena stress --resume runs/night",
        "onearena stress --arrivals trace.jsonl --budget 5m --json",
        "onearena stress --jobs 1 --metrics-port 9464",
        "onearena stress --seeds 0:2000 --out runs/ci --junit runs/ci/junit.xml",
    )
)
@click.option("--seeds", metavar="A:B", help="Run seeds A to B-1; `A:` runs until interrupted.")
@click.option("--seed", metavar="N", help="Run one seed, in this process.")
@click.option("--budget", metavar="TIME", help="Stop after this long, e.g. 60s, 5m, 2h.")
@click.option(
    "--schedule-limit",
    metavar="TIME",
    help="A worker's schedule that takes longer, twice, is a crash; default 5m.",
)
@click.option("--model", default="any", metavar="NAME", help="A known model, any, or all in turn.")
@click.option(
    "--system", default="arena", metavar="NAME", help="arena, toy, toy:BUG, or FILE.py:FACTORY."
)
@click.option(
    "--device", default="modeled", metavar="NAME", help="modeled; threads or cuda: real bytes."
)
@click.option(
    "--strategy", default="portfolio", metavar="NAME", help="portfolio, or one, e.g. pct-2, pos."
)
@click.option("--calls", metavar="N", help="Exhaustive: calls of a program at most; default 3.")
@click.option("--arrivals", metavar="FILE", help="Requests from a trace (CSV, JSONL).")
@click.option("--jobs", metavar="N", help="Processes; default: one a core.")
@click.option(
    "--engine", default="local", metavar="NAME", help="local (this machine), or ray: a cluster."
)
@click.option(
    "--out", metavar="DIR", help="Keep the run there; default: the next number below runs/."
)
@click.option("--resume", metavar="RUN", help="Go on with a run that was kept.")
@click.option("--keep-going", is_flag=True, help="Do not stop at the first failure.")
@click.option("--junit", metavar="FILE", help="Write a JUnit report for CI.")
@click.option("--no-shrink", is_flag=True, help="Leave failing schedules as long as they are.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@watch_options
def stress(
    *,
    seeds: str | None,
    seed: str | None,
    budget: str | None,
    schedule_limit: str | None,
    model: str,
    system: str,
    device: str,
    strategy: str,
    calls: str | None,
    arrivals: str | None,
    jobs: str | None,
    engine: str,
    out: str | None,
    resume: str | None,
    keep_going: bool,
    junit: str | None,
    no_shrink: bool,
    as_json: bool,
    **watch: str | None,
) -> int:
    """Run seeded schedules against the lifecycle rules.

    Without flags: the portfolio of models and strategies on all cores until Ctrl-C. Every result is
    kept in the run's folder (--out, or the next number below runs/, or below ONEARENA_RUNS if that
    is set), so that --resume goes on after an interrupt or a kill; of --seed only files that --out
    asks for. A resumed run takes --seeds with a later end, --budget for more time, --keep-going.

    Exit codes: 0 pass, 1 a rule broken, 2 usage, 3 nondeterminism, 4 no progress, 5 planned
    situations never reached, 6 no schedule finished in the budget, 130 interrupted.
    """
    if resume is not None:
        _check_resume(resume)
    first, last = _seeds(seed, seeds)
    budget_s = None if budget is None else parse_budget(budget)
    limit_s = (
        parse_budget(schedule_limit, "--schedule-limit") if schedule_limit is not None else LIMIT_S
    )
    count = 0 if jobs is None else _jobs(jobs)
    if engine not in ENGINES:
        raise UsageError("--engine", engine, f"give one of {', '.join(ENGINES)}")
    check_names(system, model)
    check_device(device, system)
    check_strategy(strategy)
    if strategy == "exhaustive" or calls is not None:
        from onearena.stress.exhaustive_cli import run_options

        return run_options(click.get_current_context().params, (first, last), count, budget_s)
    from onearena.stress import stress_run
    from onearena.stress.arrivals import read_arrivals
    from onearena.stress.auto_shrink import check_file
    from onearena.stress.campaign_plan import Plan
    from onearena.stress.run_folders import made_folder

    check_file("--junit", junit)
    plan = Plan(
        first=first,
        last=last,
        system=system,
        device=device,
        strategy=strategy,
        keep_recording=seed is not None and out is not None,
        models=_models(model),
        budget_s=budget_s,
        jobs=count,
        arrivals=() if arrivals is None else read_arrivals(arrivals),
        arrivals_path=arrivals or "",
        keep_going=keep_going,
        schedule_limit_s=limit_s,
    )
    session = stress_run.Session(
        folder=None if out is None else made_folder(out),
        as_json=as_json,
        alone=seed is not None,
        junit=junit,
        shrinks=not no_shrink,
        engine=engine,
    )
    return _go(plan, session, watch, resume=resume, extends=seeds is not None)


def _go(
    plan: Plan,
    session: Session,
    watch: dict[str, str | None],
    *,
    resume: str | None,
    extends: bool,
) -> int:
    """Run the plan, or what is left of a kept run, watched if that was asked for."""
    from onearena.stress import stress_run

    live, store = start_live(watch), None
    try:
        if resume is not None:
            store, plan = stress_run.resume(resume, plan, extends=extends)
        if live is not None:
            live.follow(plan.spec)
        return stress_run.run_plan(plan, replace(session, live=live, store=store))
    finally:
        if live is not None:
            live.close()


def _check_resume(run: str) -> None:
    """A resumed run keeps its plan: refuse options that would change which schedules it runs."""
    context = click.get_current_context()
    for name in OF_THE_PLAN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            fix = f"leave it out with --resume: {run} has its own"
            raise UsageError(f"--{name}", context.params[name], fix)


def _seeds(seed: str | None, seeds: str | None) -> tuple[int, int | None]:
    if seed is None:
        return parse_seeds("0:" if seeds is None else seeds)
    if seeds is not None:
        raise UsageError("--seed", seed, "give either --seed or --seeds")
    first = parse_integer("--seed", seed, SEED_MAX)
    return first, first + 1


def _jobs(text: str) -> int:
    count = parse_integer("--jobs", text, JOBS_MAX)
    if count == 0:
        raise UsageError("--jobs", text, f"give a whole number from 1 to {JOBS_MAX}")
    return count


def parse_integer(field: str, text: str, highest: int) -> int:
    """A decimal whole number from 0 to `highest`."""
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > highest:
        raise UsageError(field, text, f"give a whole number from 0 to {highest}")
    return int(text)


def parse_seeds(text: str) -> tuple[int, int | None]:
    """`A:B` or `A:`."""
    head, colon, tail = text.partition(":")
    if not colon:
        raise UsageError("--seeds", text, "give A:B, e.g. 0:1000, or A: for no end")
    first = parse_integer("--seeds", head, SEED_MAX)
    if not tail:
        return first, None
    last = parse_integer("--seeds", tail, SEED_MAX)
    if last <= first:
        raise UsageError("--seeds", text, "give A:B with B above A")
    return first, last


def parse_budget(text: str, option: str = "--budget") -> float:
    """Seconds of `90`, `60s`, `5m`, `2h`; more than 0 and at most 30 days."""
    match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(s|m|h|)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < seconds <= 30 * 86400:
        raise UsageError(option, text, "give a time such as 60s, 5m or 2h, at most 720h")
    return seconds


def check_names(system: str, model: str) -> None:
    """Refuse unknown systems and models before any process starts."""
    from onearena.core.models import KNOWN_MODELS, known_declaration
    from onearena.stress.systems import check_factory, check_system
    from onearena.stress.user_systems import is_user_system, trust

    if is_user_system(system):
        trust(system)  # whoever types a name wants its code to run
    check_system(system)
    check_factory(system)
    if model not in ("any", "all") and known_declaration(model) is None:
        names = ", ".join(known.name for known in KNOWN_MODELS)
        raise UsageError("--model", model, f"give any, all, or one of {names}")


def check_strategy(strategy: str) -> None:
    """Refuse a strategy that is none."""
    from onearena.stress.strategies.portfolio import DEFAULT, GUIDED, STRATEGIES

    known = (DEFAULT, *STRATEGIES, GUIDED, "exhaustive")
    if strategy not in known:
        names = ", ".join(known)
        raise UsageError("--strategy", strategy, f"give one of {names}")


def _models(model: str) -> tuple[str, ...]:
    if model != "all":
        return (model,)
    from onearena.core.models import KNOWN_MODELS

    return tuple(known.name for known in KNOWN_MODELS)
