"""`onearena bench`: what the allocator's calls cost, with and without holes."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onearena.stress.terminal import console, examples, note_compiling

if TYPE_CHECKING:
    from onearena.stress.bench_cases import Measurement

REPORT_VERSION: Final = 1
SIZES: Final = (10_000, 100_000, 1_000_000)
QUICK_SIZES: Final = (10_000, 100_000)
SAMPLES, QUICK_SAMPLES = 30, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A figure to reach and the one measured; missing it fails nothing."""

    name: str
    limit: float
    measured: float
    unit: str
    met: bool


def _aim(name: str, limit: float, measured: float, unit: str) -> Aim:
    return Aim(
        name=name, limit=limit, measured=round(measured, 3), unit=unit, met=measured <= limit
    )


def aims_of(measurements: list[Measurement]) -> list[Aim]:
    """The worst measured figure for every aim, and the ratio between sizes."""
    sizes = sorted({m.band_units for m in measurements})
    aims = []
    for kind, limit in (("one band", 5.0), ("3 bands", 15.0)):
        name = f"allocate+free 1 units, {kind}"
        worst = max(m.median for m in measurements if m.name == name)
        aims.append(_aim(f"{name}, worst size", limit, worst, "us"))
    for holes, limit in ((0, 1.3), (40, 2.0)):
        medians: dict[str, dict[int, float]] = {}
        for m in measurements:
            if m.name.startswith("allocate+free") and m.holes_percent == holes:
                medians.setdefault(m.name, {})[m.band_units] = m.median
        for name, at in medians.items():
            ratio = at[sizes[-1]] / at[sizes[0]]
            label = f"{name}, {holes}% holes: {sizes[-1]:,} against {sizes[0]:,} units"
            aims.append(_aim(label, limit, ratio, "x"))
    for holes, limit in ((0, 20.0), (40, 40.0)):
        rows = [m for m in measurements if m.name == "bulk free" and m.holes_percent == holes]
        worst = max(m.median for m in rows)
        aims.append(_aim(f"bulk free, {holes}% holes, worst size", limit, worst, "ns/unit"))
    return aims


def machine_facts() -> dict[str, Any]:
    """What the figures depend on: processor, cores, load, versions."""
    import numba
    import numpy as np

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "system": f"{platform.system()} {platform.release()}",
    }


def read_old(path: str) -> dict[tuple[str, int, int], float]:
    """Medians of an earlier report by (name, units a band, holes); `UsageError` if it is none."""
    from onearena.core.errors import UsageError
    from onearena.core.plain import read_text

    try:
        report = json.loads(read_text(path, field="--compare"))
    except (ValueError, RecursionError):
        raise UsageError("--compare", path, "give the JSON of `onearena bench --json`") from None
    try:
        if report["version"] != REPORT_VERSION:
            raise UsageError(
                "--compare", report["version"], f"give a report of version {REPORT_VERSION}"
            )
        medians = {
            (str(m["name"]), int(m["band_units"]), int(m["holes_percent"])): float(m["median"])
            for m in report["measurements"]
        }
        if all(math.isfinite(median) and median > 0 for median in medians.values()):
            return medians
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise UsageError("--compare", path, "give the JSON of `onearena bench --json`")


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    machine = report["machine"]
    out.print(
        f"{machine['processor']}, {machine['cores']} cores, load {machine['load_1min']}; "
        f"Python {machine['python']}, numpy {machine['numpy']}, numba {machine['numba']}"
    )
    table = Table("case", "units a band", "holes", "median", "p10", "p90", "elapsed", "unit")
    compared = any("ratio_to_old" in row for row in report["measurements"])
    if compared:
        table.add_column("new / old")
    for row in report["measurements"]:
        cells = [
            row["name"],
            f"{row['band_units']:,}",
            f"{row['holes_percent']}%",
            f"{row['median']:.2f}",
            f"{row['p10']:.2f}",
            f"{row['p90']:.2f}",
            f"{row['elapsed_median']:.2f}",
            row["unit"],
        ]
        if compared:
            cells.append(f"{row['ratio_to_old']:.2f}" if "ratio_to_old" in row else "new")
        table.add_row(*cells)
    out.print(table)
    aims = Table("aim", "at most", "measured", "met")
    for aim in report["aims"]:
        aims.add_row(
            aim["name"],
            f"{aim['limit']:g} {aim['unit']}",
            f"{aim['measured']:.2f} {aim['unit']}",
            "yes" if aim["met"] else "NO",
        )
    out.print(aims)


@click.command(
    name="bench",
    epilog=examples(
        "onearena bench", "onearena bench --json > new.json", "onearena bench --compare old.json"
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Write the report as JSON.")
@click.option(
    "--compare",
    "compare",
    metavar="OLD.json",
    help="Put each median in relation to an earlier report's.",
)
@click.option("--quick", is_flag=True, help="Two sizes and few samples; a few seconds.")
def bench(*, as_json: bool, compare: str | None, quick: bool) -> int:
    """Measure allocate, free and move bookkeeping through the public methods.

    Sizes are 10,000, 100,000 and 1,000,000 units a band, with no holes and with 40%. A figure is
    the median of the samples, with the 10th and 90th percentile, in processor time of the thread;
    "elapsed" is the median by the clock on the wall. No bytes are copied and nothing is waited for.
    """
    old = read_old(compare) if compare is not None else None
    from onearena.core import kernels
    from onearena.stress.bench_cases import measure_all
    from onearena.stress.bench_fit import measure_fit

    def note(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"bench: {text}", err=True)

    note_compiling()
    kernels.warm_up()
    sizes = QUICK_SIZES if quick else SIZES
    samples = QUICK_SAMPLES if quick else SAMPLES
    measurements = measure_all(sizes, samples=samples, note=note)
    measurements += measure_fit(sizes, samples=samples, note=note)
    rows: list[dict[str, Any]] = []
    for m in measurements:
        row: dict[str, Any] = asdict(m)
        before = (old or {}).get((m.name, m.band_units, m.holes_percent))
        if before is not None:
            row["ratio_to_old"] = round(m.median / before, 3)
        rows.append(row)
    report = {
        "version": REPORT_VERSION,
        "quick": quick,
        "machine": machine_facts(),
        "measurements": rows,
        "aims": [asdict(aim) for aim in aims_of(measurements)],
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _print(report)
    return 0
