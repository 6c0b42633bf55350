"""`onearena stress`: seeded campaigns against the lifecycle rules."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onearena.core.errors import UsageError
from onearena.stress.replay_cli import check_device
from onearena.stress.terminal import examples
from onearena.stress.watch_options import start_live, watch_options

if TYPE_CHECKING:
    from onearena.stress.campaign import Plan
    from onearena.stress.live import Live
    from onearena.stress.run import RunResult
    from onearena.stress.summary import Summary

SEED_MAX = (1 << 63) - 1
JOBS_MAX = 1024
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


@click.command(
    epilog=examples(
        "onearena stress --seeds 0:1000",
        "onearena stress --seed 123",
        "onearena stress --model kimi-k3 --budget 60s --out runs/tonight",
        "onearena stress --arrivals trace.jsonl --budget 5m --json",
        "onearena stress --jobs 1 --metrics-port 9464",
        "onearena stress --seeds 0:2000 --out runs/ci --junit runs/ci/junit.xml",
    )
)
@click.option("--seeds", metavar="A:B", help="Run seeds A to B-1; `A:` runs until interrupted.")
@click.option("--seed", metavar="N", help="Run one seed, in this process.")
@click.option("--budget", metavar="TIME", help="Stop after this long, e.g. 60s, 5m, 2h.")
@click.option("--model", default="any", metavar="NAME", help="A known model, any, or all in turn.")
@click.option("--system", default="arena", metavar="NAME", help="arena, toy, or toy:BUG.")
@click.option(
    "--device", default="modeled", metavar="NAME", help="modeled, or threads: real bytes."
)
@click.option(
    "--strategy", default="portfolio", metavar="NAME", help="portfolio, or one, e.g. pct-2, pos."
)
@click.option("--arrivals", metavar="FILE", help="Requests from a trace (CSV, JSONL).")
@click.option("--jobs", metavar="N", help="Processes; default: one a core.")
@click.option(
    "--out", metavar="DIR", help="Write summary.json and choices files (failures, --seed)."
)
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
    model: str,
    system: str,
    device: str,
    strategy: str,
    arrivals: str | None,
    jobs: str | None,
    out: str | None,
    keep_going: bool,
    junit: str | None,
    no_shrink: bool,
    as_json: bool,
    **watch: str | None,
) -> int:
    """Run seeded schedules against the lifecycle rules.

    Without flags: the portfolio of models and strategies on all cores until Ctrl-C. Exit codes: 0
    pass, 1 a rule broken, 2 usage, 3 nondeterminism, 4 no progress, 5 planned situations never
    reached, 6 no schedule finished in the budget, 130 interrupted.
    """
    if seeds is not None and seed is not None:
        raise UsageError("--seed", seed, "give either --seed or --seeds")
    first, last = (0, None) if seeds is None else parse_seeds(seeds)
    if seed is not None:
        first = parse_integer("--seed", seed, SEED_MAX)
        last = first + 1
    budget_s = None if budget is None else parse_budget(budget)
    count = 0 if jobs is None else parse_integer("--jobs", jobs, JOBS_MAX)
    if jobs is not None and count == 0:
        raise UsageError("--jobs", jobs, f"give a whole number from 1 to {JOBS_MAX}")
    check_names(system, model)
    check_device(device, system)
    check_strategy(strategy)
    folder = None if out is None else _folder(out)
    from onearena.stress.arrivals import read_arrivals
    from onearena.stress.auto_shrink import check_file
    from onearena.stress.campaign import Plan

    check_file("--junit", junit)
    plan = Plan(
        first=first,
        last=last,
        system=system,
        device=device,
        strategy=strategy,
        keep_recording=seed is not None and folder is not None,
        models=_models(model),
        budget_s=budget_s,
        jobs=count,
        arrivals=() if arrivals is None else read_arrivals(arrivals),
        keep_going=keep_going,
    )
    live = start_live(watch)
    try:
        return run_plan(
            plan,
            folder,
            as_json=as_json,
            arrivals=arrivals or "",
            alone=seed is not None,
            live=live,
            junit=junit,
            shrinks=not no_shrink,
        )
    finally:
        if live is not None:
            live.close()


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


def parse_budget(text: str) -> float:
    """Seconds of `90`, `60s`, `5m`, `2h`; more than 0 and at most 30 days."""
    match = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)(s|m|h|)", text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < seconds <= 30 * 86400:
        raise UsageError("--budget", text, "give a time such as 60s, 5m or 2h, at most 720h")
    return seconds


def check_names(system: str, model: str) -> None:
    """Refuse unknown systems and models before any process starts."""
    from onearena.core.models import KNOWN_MODELS, known_declaration
    from onearena.stress.systems import SYSTEMS

    if system not in SYSTEMS:
        raise UsageError("--system", system, f"give one of {', '.join(SYSTEMS)}")
    if model not in ("any", "all") and known_declaration(model) is None:
        names = ", ".join(known.name for known in KNOWN_MODELS)
        raise UsageError("--model", model, f"give any, all, or one of {names}")


def check_strategy(strategy: str) -> None:
    """Refuse a strategy that is none."""
    from onearena.stress.strategies.portfolio import DEFAULT, STRATEGIES

    if strategy not in (DEFAULT, *STRATEGIES):
        names = ", ".join((DEFAULT, *STRATEGIES))
        raise UsageError("--strategy", strategy, f"give one of {names}")


def _models(model: str) -> tuple[str, ...]:
    if model != "all":
        return (model,)
    from onearena.core.models import KNOWN_MODELS

    return tuple(known.name for known in KNOWN_MODELS)


def _folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UsageError("--out", out, f"give a folder that can be written ({error})") from None
    return folder


def run_plan(
    plan: Plan,
    folder: Path | None,
    *,
    as_json: bool,
    arrivals: str = "",
    alone: bool = False,
    live: Live | None = None,
    junit: str | None = None,
    shrinks: bool = True,
) -> int:
    """Run, show progress on a terminal, print the failures and the end block, write the files."""
    from onearena.stress.auto_shrink import Distinct
    from onearena.stress.campaign import Campaign, run_here, warm_up
    from onearena.stress.reach import planned
    from onearena.stress.report import failure_text, summary_text
    from onearena.stress.summary import Summary

    distinct = Distinct()

    def failed(result: RunResult) -> None:
        path = _save(plan, result, folder)
        distinct.note(result, path)
        if not as_json:
            click.echo(failure_text(result, path=path, arrivals=arrivals))

    def end(summary: Summary, text: str) -> int:
        small = []
        if shrinks and not summary.interrupted:
            small = distinct.shrink(plan, quiet=as_json)
        return _end(summary, text, folder, as_json=as_json, junit=junit, small=small)

    names = planned(plan.system, plan.models)
    if alone:
        import time

        summary = Summary(plan.system, 1, plan.first, planned_names=names, next_seed=plan.first)
        started = time.monotonic()
        result = run_here(plan, plan.first, live)
        summary.add(result)
        summary.seconds = time.monotonic() - started
        summary.next_seed += 1
        if result.verdict != "pass":
            failed(result)
        else:
            _save(plan, result, folder)
        return end(summary, summary_text(summary))

    warm_up(plan)
    progress = _Progress(enabled=not as_json and sys.stderr.isatty())

    def on_result(summary: Summary, result: RunResult | None) -> None:
        if result is not None and result.verdict != "pass":
            with progress.paused():
                failed(result)
        progress.show(summary)

    try:
        summary = Campaign(plan, planned=names, live=live).run(on_result)
    finally:
        progress.close()
    text = summary_text(summary)
    if summary.interrupted or (plan.last is None and not as_json):
        text += f"\nresume: onearena stress --seeds {summary.next_seed}:{plan.last or ''}"
        text += "" if plan.system == "arena" else f" --system {plan.system}"
        text += "" if plan.device == "modeled" else f" --device {plan.device}"
        text += "" if plan.strategy == "portfolio" else f" --strategy {plan.strategy}"
        if plan.models != ("any",):
            text += f" --model {'all' if plan.models[1:] else plan.models[0]}"
        text += f" --arrivals {arrivals}" if arrivals else ""
    return end(summary, text)


def _end(
    summary: Summary,
    text: str,
    folder: Path | None,
    *,
    as_json: bool,
    junit: str | None,
    small: list[dict[str, Any]],
) -> int:
    document = json.dumps({**summary.to_json(), "shrunk": small}, indent=1)
    if junit is not None:
        from onearena.stress.auto_shrink import write_file
        from onearena.stress.junit import junit_xml

        write_file("--junit", junit, junit_xml(summary))
    if folder is not None:
        (folder / "summary.json").write_text(document + "\n", encoding="utf-8")
    click.echo(document if as_json else text)
    if summary.nondeterministic and not as_json:
        seeds = ", ".join(str(seed) for seed in summary.nondeterministic)
        click.echo(f"NONDETERMINISM: two runs of these seeds differ: {seeds}")
    return summary.exit_code()


def _save(plan: Plan, result: RunResult, folder: Path | None) -> str:
    if folder is None or not result.recording:
        return ""
    from onearena.stress.recordings import dump_recording

    path = folder / f"seed-{result.seed}.choices.json"
    path.write_text(dump_recording(plan.spec(result.seed), result), encoding="utf-8")
    return str(path)


class _Progress:
    """One line on a terminal's standard error, rewritten at most five times a second."""

    def __init__(self, *, enabled: bool) -> None:
        self._status = None
        self._last = -1.0
        if enabled:
            from onearena.stress.terminal import console

            self._status = console(sys.stderr).status("starting")
            self._status.start()

    def show(self, summary: Summary) -> None:
        """Say how far it is."""
        if self._status is None or summary.seconds - self._last < 0.2:
            return
        self._last = summary.seconds
        reached = sum(1 for count in summary.planned.values() if count)
        self._status.update(
            f"{summary.schedules} schedules, {summary.schedules_per_s:.1f}/s, "
            f"{summary.steps_per_s:.0f} steps/s, reached {reached}/{len(summary.planned_names)}, "
            f">90% full {summary.crowded_share:.0%}, 3+ forwards {summary.busy_share:.0%}, "
            f"failures {len(summary.failures)}"
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No line while something else is printed."""
        if self._status is not None:
            self._status.stop()
        yield
        if self._status is not None:
            self._status.start()

    def close(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()
