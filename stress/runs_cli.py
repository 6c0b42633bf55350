"""`onearena runs`: the campaigns that were kept."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from onearena.core.errors import UsageError
from onearena.stress.terminal import COLUMNS_MAX, examples

if TYPE_CHECKING:
    from onearena.stress.run_compare import Comparison
    from onearena.stress.run_report import Kept

KEEP_DEFAULT: Final = 20
KEEP_MAX: Final = 1_000_000
SHOWN_MAX: Final = 12
EXIT_WORSE: Final = 1
EXIT_DIFFERS: Final = 3


def table(head: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """Aligned columns; those in `left` to the left, numbers to the right. At most 100 columns."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    cut = [line if len(line) <= COLUMNS_MAX else f"{line[: COLUMNS_MAX - 3]}..." for line in lines]
    return "\n".join(cut)


@click.group(
    epilog=examples(
        "onearena runs list",
        "onearena runs show 0007",
        "onearena runs compare runs/before runs/after",
        "onearena runs prune --keep 20 --yes",
    )
)
def runs() -> None:
    """List, show, compare and prune the campaigns that were kept."""


@runs.command("list", epilog=examples("onearena runs list", "onearena runs list --json"))
@click.option("--root", metavar="DIR", help="Folder of runs; default: ONEARENA_RUNS, or runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_runs(*, root: str | None, as_json: bool) -> None:
    """List the runs below a folder, each with how it ended.

    Status: running, complete, failed (stopped at a failure), budget, interrupted, killed (its
    process is gone: go on with --resume), damaged.
    """
    found = _kept(root)
    if as_json:
        rows = [kept.to_json() for kept in found]
        click.echo(json.dumps({"version": 1, "root": str(_root(root)), "runs": rows}, indent=1))
        return
    if not found:
        click.echo(f"no runs below {_root(root)}")
        return
    head = ("run", "began (UTC)", "status", "system", "seeds", "schedules", "failures", "time")
    click.echo(
        table(
            head,
            [
                (
                    kept.name,
                    kept.began[:16].replace("T", " "),
                    kept.status,
                    kept.system,
                    kept.seeds,
                    kept.schedules,
                    kept.failures,
                    _time(kept.seconds),
                )
                for kept in found
            ],
            left=(0, 1, 2, 3, 4),
        )
    )


@runs.command(epilog=examples("onearena runs show 0007", "onearena runs show runs/night --json"))
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, run: str, as_json: bool) -> None:
    """Sum up a run, also while it goes on: its reach, its failures by rule and minimal schedule."""
    from onearena.stress.report import summary_text
    from onearena.stress.run_folders import find_run
    from onearena.stress.run_report import read_run

    kept, summary, broken = read_run(find_run("RUN", run))
    if as_json:
        document = {
            **summary.to_json(),
            "run": kept.to_json(),
            "distinct_failures": [one.to_json() for one in broken],
        }
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(f"{kept.folder}: {kept.status}, seeds {kept.seeds}, {kept.sessions} sessions")
    click.echo(summary_text(summary))
    if not broken:
        return
    click.echo("\nfailures, by rule and minimal schedule")
    rows = [
        (
            one.oracle or one.verdict,
            one.rule,
            one.schedules,
            one.first_seed,
            "-" if one.host_calls is None else one.host_calls,
            one.file or "-",
        )
        for one in broken
    ]
    head = ("reported by", "rule", "schedules", "first seed", "host calls", "minimal schedule")
    click.echo(table(head, rows, left=(0, 5)))


@runs.command(epilog=examples("onearena runs compare runs/before runs/after"))
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compare(*, a: str, b: str, as_json: bool) -> int:
    """Compare two runs seed by seed: verdicts, traces, reach.

    Exit codes: 0 no seed is worse in B, 1 a seed that passes in A fails in B, 2 usage, 3 the same
    sources gave a seed two traces.
    """
    from onearena.stress.run_compare import compare_runs
    from onearena.stress.run_folders import find_run

    found = compare_runs(find_run("A", a), find_run("B", b))
    click.echo(json.dumps(found.to_json(), indent=1) if as_json else _compared(found))
    if found.nondeterministic:
        return EXIT_DIFFERS
    return EXIT_WORSE if found.worse else 0


def _compared(found: Comparison) -> str:
    one, two = found.a, found.b
    rows = [
        ("schedules", one.schedules, two.schedules),
        ("failures", one.failures, two.failures),
        ("schedules/s", f"{one.schedules_per_s:.1f}", f"{two.schedules_per_s:.1f}"),
        ("situations reached", found.reached[0], found.reached[1]),
    ]
    lines = [table(("", str(one.folder), str(two.folder)), rows), ""]
    if found.unlike:
        lines.append(f"a seed is another schedule in each: {', '.join(found.unlike)} differ")
    else:
        lines += [
            f"seeds in both: {found.common}, with equal traces {found.equal}",
            f"passes in A, fails in B: {_seeds(found.worse)}",
            f"fails in A, passes in B: {_seeds(found.better)}",
        ]
        same = "the same sources: NONDETERMINISM" if found.same_sources else "other sources"
        if found.differing:
            lines.append(f"other trace ({same}): {_seeds(found.differing)}")
    for name, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
            lines.append(f"reached in {name} only: {', '.join(names[:SHOWN_MAX])}{more}")
    return "\n".join(lines)


def _seeds(seeds: Sequence[int]) -> str:
    if not seeds:
        return "none"
    more = f" and {len(seeds) - SHOWN_MAX} more" if len(seeds) > SHOWN_MAX else ""
    return ", ".join(map(str, seeds[:SHOWN_MAX])) + more


@runs.command(
    epilog=examples(
        "onearena runs prune",
        "onearena runs prune --keep 5 --yes",
        "onearena runs prune --older-than 720h --failed --yes",
    )
)
@click.option("--root", metavar="DIR", help="Folder of runs; default: ONEARENA_RUNS, or runs.")
@click.option("--keep", metavar="N", help=f"Keep the newest N; default: {KEEP_DEFAULT}.")
@click.option("--older-than", metavar="TIME", help="Only runs that began before that, e.g. 168h.")
@click.option("--failed", is_flag=True, help="Runs with failures too; else they stay.")
@click.option("--yes", is_flag=True, help="Do it; else only say what would go.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prune(
    *,
    root: str | None,
    keep: str | None,
    older_than: str | None,
    failed: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Drop old runs. Files that a campaign did not write stay, and so does their folder.

    A run that goes on now, one that can be resumed to its end, and one with failures stay, unless
    --failed is given; a damaged one stays always.
    """
    from onearena.stress.run_folders import drop_run
    from onearena.stress.stress_cli import parse_budget, parse_integer

    count = KEEP_DEFAULT if keep is None else parse_integer("--keep", keep, KEEP_MAX)
    before = None
    if older_than is not None:
        age = dt.timedelta(seconds=parse_budget(older_than, "--older-than"))
        before = (dt.datetime.now(dt.UTC) - age).isoformat(timespec="seconds")
    found = sorted(_kept(root), key=lambda kept: (kept.began, kept.name), reverse=True)
    going = [
        kept
        for kept in found[count:]
        if kept.status in ("complete", "budget", *(("failed",) if failed else ()))
        and (failed or not kept.failures)
        and (before is None or kept.began < before)
    ]
    left: dict[str, int] = {}
    for kept in going if yes else ():
        others = drop_run(kept.folder)
        if others:
            left[str(kept.folder)] = others
    if as_json:
        document = {
            "version": 1,
            "dropped": [str(kept.folder) for kept in going] if yes else [],
            "would_drop": [] if yes else [str(kept.folder) for kept in going],
            "folders_left": left,
        }
        click.echo(json.dumps(document, indent=1))
        return
    verb = "dropped" if yes else "would drop"
    for kept in going:
        click.echo(f"{verb} {kept.folder} ({kept.schedules} schedules, {kept.status})")
    for folder, others in left.items():
        click.echo(f"{folder} stays: it holds {others} other files")
    size = sum(kept.size_bytes for kept in going)
    click.echo(
        f"{verb} {len(going)} of {len(found)} runs, {size / 1e6:.1f} MB"
        + ("" if yes or not going else "; add --yes to do it")
    )


def _root(root: str | None) -> Path:
    from onearena.stress.run_folders import runs_root

    return runs_root() if root is None else Path(root)


def _kept(root: str | None) -> list[Kept]:
    from onearena.stress.run_folders import all_runs
    from onearena.stress.run_report import look

    folder = _root(root)
    if root is not None and not folder.is_dir():
        raise UsageError("--root", root, "give a folder that holds runs")
    return [look(each) for each in all_runs(folder)]


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
