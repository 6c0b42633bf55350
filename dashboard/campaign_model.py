"""What the Campaign page says of a summary, live or stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onearena.dashboard.checked import Checked, SourceError, kind_of
from onearena.dashboard.view_model import Table
from onearena.dashboard.words import age_text, plural

SUMMARY_VERSION: Final = 1
MUTANTS_VERSION: Final = 1
SITUATIONS_MAX: Final = 20_000
FAILURES_MAX: Final = 1000
MUTANTS_MAX: Final = 5000


@dataclass(frozen=True, slots=True)
class CampaignPoint:
    """A campaign at one moment: for growth over time."""

    seconds: float
    schedules: int
    situations: int
    planned_reached: int
    failures: int


@dataclass(frozen=True, slots=True)
class CampaignView:
    """Everything the Campaign page shows."""

    facts: tuple[tuple[str, str], ...]
    verdict: str
    planned: Table
    missing: tuple[str, ...]
    reached: Table
    failures: Table
    rules: Table
    strategies: Table
    models: Table
    growth: Table


def campaign_point(document: Mapping[str, Any]) -> CampaignPoint:
    """The point of one `/campaign` document or recorded line."""
    summary = _summary(document)
    planned = summary.counts("planned", most=SITUATIONS_MAX)
    return CampaignPoint(
        seconds=summary.number("seconds"),
        schedules=summary.integer("schedules"),
        situations=len(summary.counts("reach", most=SITUATIONS_MAX)),
        planned_reached=sum(1 for count in planned.values() if count),
        failures=len(summary.items("failures", most=FAILURES_MAX)),
    )


def campaign_view(
    document: Mapping[str, Any], points: Sequence[CampaignPoint] = ()
) -> CampaignView:
    """The page of a document, with `points` of the moments before it, oldest first."""
    summary = _summary(document)
    planned = summary.counts("planned", most=SITUATIONS_MAX)
    reach = summary.counts("reach", most=SITUATIONS_MAX)
    missing = tuple(name for name, count in planned.items() if not count)
    failures = summary.objects("failures", most=FAILURES_MAX)
    steps = summary.child("steps")
    facts = (
        ("Schedules", f"{summary.integer('schedules'):,}"),
        ("Schedules/s", f"{summary.number('schedules_per_second'):.1f}"),
        ("Steps/s", f"{summary.number('steps_per_second'):,.0f}"),
        ("Running for", age_text(summary.number("seconds"))),
        ("Planned reached", f"{len(planned) - len(missing)} of {len(planned)}"),
        ("Failures", f"{len(failures):,}"),
        ("Steps, median", f"{steps.integer('median'):,}"),
        ("Above 90% full", f"{summary.number('share_above_90_percent'):.0%}"),
        ("3+ forwards", f"{summary.number('share_three_forwards'):.0%}"),
        ("Rechecked", f"{summary.integer('rechecked'):,}"),
    )
    return CampaignView(
        facts=facts,
        verdict=_verdict(summary, failures),
        planned=_counts("situation", planned),
        missing=missing,
        reached=_counts("situation", reach),
        failures=_failures(failures),
        rules=_rules(failures),
        strategies=_counts("strategy", summary.counts("strategies")),
        models=_counts("model", summary.counts("models")),
        growth=growth_table([*points, campaign_point(document)]),
    )


def growth_table(points: Sequence[CampaignPoint]) -> Table:
    """Situations reached over time, in long form; points of a campaign that began anew are cut."""
    kept: list[CampaignPoint] = []
    for point in points:
        if kept and point.schedules < kept[-1].schedules:
            kept = []
        kept.append(point)
    rows: list[tuple[str | int | float, ...]] = []
    for point in kept:
        rows.append((round(point.seconds, 2), "situations", point.situations))
        rows.append((round(point.seconds, 2), "planned ones", point.planned_reached))
    return Table(("seconds", "reached", "count"), tuple(rows))


def _summary(document: Mapping[str, Any]) -> Checked:
    summary = Checked(document.get("summary"), "campaign.summary")
    version = summary.value.get("version")
    if version != SUMMARY_VERSION:
        raise SourceError(
            f"campaign: summaries of version {SUMMARY_VERSION} are understood, and this one is "
            f"{kind_of(version)}"
        )
    return summary


def _verdict(summary: Checked, failures: Sequence[Checked]) -> str:
    if summary.items("nondeterministic_seeds", most=1 << 16):
        return "nondeterminism: a schedule gave another trace the second time"
    if failures:
        return f"{plural(len(failures), 'schedule')} failed"
    return "no rule broken so far: these seeds, these schedules, no proof"


def _counts(name: str, counts: Mapping[str, int]) -> Table:
    rows = sorted(counts.items(), key=lambda item: (item[1], item[0]))
    return Table((name, "times"), tuple(rows))


def _failures(failures: Sequence[Checked]) -> Table:
    rows = []
    for failure in failures:
        found = failure.objects("violations", most=64)
        rule = found[0].text("rule", most=64) if found else ""
        oracle = found[0].text("oracle", most=64) if found else failure.text("verdict", most=64)
        message = found[0].text("message") if found else failure.text("crash")
        rows.append((failure.integer("seed"), rule, oracle, failure.integer("step"), message[:200]))
    return Table(("seed", "rule", "oracle", "step", "what"), tuple(rows))


def _rules(failures: Sequence[Checked]) -> Table:
    counts: dict[str, int] = {}
    for row in _failures(failures).rows:
        name = f"rule {row[1]}" if row[1] else str(row[2])
        counts[name] = counts.get(name, 0) + 1
    return _counts("broken", counts)


def mutants_table(value: object, where: str) -> Table:
    """The table of planted faults from the evidence of a mutant run; those missed come first."""
    document = Checked(value, where)
    if document.value.get("name") != "mutants" or document.value.get("version") != MUTANTS_VERSION:
        raise SourceError(f"{where}: this is no evidence of planted faults of version 1")
    rows = []
    for mutant in document.objects("mutants", most=MUTANTS_MAX):
        caught = mutant.flag("caught")
        rows.append(
            (
                "caught" if caught else "missed",
                mutant.text("id", most=128),
                mutant.text("rule", most=64),
                mutant.text("intended", most=64),
                mutant.text("by", most=64) if caught else "",
                mutant.integer("schedules"),
                mutant.text("title", most=512),
            )
        )
    rows.sort(key=lambda row: (row[0] == "caught", row[1]))
    names = ("outcome", "fault", "rule", "intended", "by", "schedules", "what is broken")
    return Table(names, tuple(rows))
