"""`onearena price`: prices of requests measured against a replayed trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import console, examples

if TYPE_CHECKING:
    from onearena.core.demand import ServingPolicy
    from onearena.stress.pricing_replay import PriceReport

REPORT_VERSION: Final = 1
Command = TypeVar("Command", bound=Callable[..., Any])
TOKENS_MAX: Final = 1 << 24
EXPLANATIONS: Final = {
    "context": "rounding of the last page only: the price knows the final length",
    "window": "the price assumes the worst page alignment and full chunks in flight; short "
    "requests and decode hold less",
    "chunk": "the price assumes that a whole chunk and the steps in flight are held at once",
    "request": "one slot, plus tracking slots: exact",
}


def _count(name: str, default: int, low: int, text: str) -> Callable[[Command], Command]:
    return click.option(
        name, default=default, show_default=True, type=click.IntRange(low, TOKENS_MAX), help=text
    )


@click.command(
    epilog=examples(
        "onearena price inkling --arrivals trace.jsonl",
        "onearena price FILE.json --arrivals azure.csv --page-size 16 --json",
    )
)
@click.argument("model")
@click.option("--arrivals", required=True, type=click.Path(path_type=Path), help="Trace file.")
@_count("--page-size", 64, 1, "Tokens a page.")
@_count("--chunk-tokens", 8192, 1, "Most prompt tokens of one forward.")
@_count("--steps-in-flight", 2, 1, "Forwards launched before the oldest is processed.")
@_count("--lookahead-tokens", 0, 0, "Draft tokens beyond the last accepted one.")
@_count("--checkpoint-tokens", 0, 0, "Tokens between recurrent checkpoints; 0: none.")
@_count("--tracking-slots", 0, 0, "State slots a request holds for checkpoints.")
@_count("--limit", 1_000_000, 1, "Requests of the trace to replay.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def price(
    model: str, arrivals: Path, limit: int, page_size: int, *, as_json: bool, **policy: int
) -> int:
    """Replay a trace and compare what requests were priced at with what they came to hold.

    Under-pricing breaks a promise: exit 1. Over-pricing costs concurrency: it is printed.
    """
    from onearena.core.demand import ServingPolicy
    from onearena.core.models import resolve_declaration
    from onearena.core.sub_pools import sub_pools_of
    from onearena.stress.arrivals import iter_arrivals
    from onearena.stress.pricing_replay import replay

    pools = sub_pools_of(resolve_declaration(model, field="MODEL"), page_size=page_size)
    rules = ServingPolicy(**policy)
    report = replay(pools, islice(iter_arrivals(arrivals), limit), rules)
    if not report.requests:
        raise UsageError("--arrivals", str(arrivals), "give a trace with at least one request")
    if as_json:
        click.echo(json.dumps(_as_json(model, page_size, rules, report), indent=1))
    else:
        _show(model, page_size, report)
    return 1 if report.under else 0


def _as_json(
    model: str, page_size: int, rules: ServingPolicy, report: PriceReport
) -> dict[str, Any]:
    return {
        "version": REPORT_VERSION,
        "model": model,
        "page_size": page_size,
        "policy": asdict(rules),
        "requests": report.requests,
        "questions": report.questions,
        "pools": [{**asdict(row), "over_pricing": row.over_pricing} for row in report.pools],
        "under": report.under,
    }


def _show(model: str, page_size: int, report: PriceReport) -> None:
    from rich.table import Table

    table = Table(title=f"{model}, pages of {page_size}: {report.requests} requests", box=None)
    for heading in ("sub-pool", "priced", "held", "steady", "over", "worst", "under"):
        table.add_column(heading, justify="left" if heading == "sub-pool" else "right")
    for row in report.pools:
        table.add_row(
            row.name,
            f"{row.priced_units}",
            f"{row.used_units}",
            f"{row.steady_units}",
            f"{row.over_pricing:.1%}",
            f"{row.over_units_max}",
            f"{row.under_priced}",
        )
    out = console()
    out.print(table)
    for row in report.pools:
        out.print(f"  {row.name}: {EXPLANATIONS[row.lifetime]}")
    for line in report.under:
        out.print(f"UNDER-PRICED {line}")
    out.print(f"{report.questions} questions asked, {len(report.under)} under-priced")
