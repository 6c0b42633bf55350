"""Write docs/metrics.md, the alert rules and the Grafana dashboard; with --check, compare them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from onearena.metrics.alerts import ALERTS, RECORDINGS, rules_text
from onearena.metrics.catalogue import CATALOGUE, PER_ARENA, SERIES_MAX, SERIES_PER_ARENA_MAX
from onearena.metrics.endpoints import SNAPSHOT_BYTES_MAX, STALE_S, UNITS_MAX
from onearena.metrics.exporter import PORT
from onearena.metrics.front import QUESTIONS_MAX
from onearena.metrics.metric import ARENAS_MAX, BANDS_MAX, CALLERS_MAX, Metric
from onearena.metrics.panels import PANELS, dashboard
from onearena.metrics.pixels import NAMES, WIDTH_MAX
from onearena.metrics.reply import APART_CONNECTIONS_MAX, CONNECTIONS_MAX, Limits
from onearena.metrics.server import HEAD_BYTES_MAX

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "ci" / "metrics-page.txt"

TITLES = {
    "arena": "Arenas",
    "observer": "Times (with an observer)",
    "engine": "What the engine reports",
    "collector": "The collector",
    "exporter": "The exporter",
    "harness": "Campaigns",
}


def catalogue_tables() -> str:
    """The catalogue, one table a source."""
    parts = []
    for source, title in TITLES.items():
        rows = [metric for metric in CATALOGUE if metric.source == source]
        parts.append(f"### {title}\n")
        parts.append("| name | type | unit | labels | help and meaning | adds up to |")
        parts.append("|---|---|---|---|---|---|")
        parts += [_row(metric) for metric in rows]
        parts.append("")
    return "\n".join(parts).rstrip()


def _row(metric: Metric) -> str:
    labels = []
    for label in metric.labels:
        values = " ".join(label.values)
        labels.append(f"{label.name} ({values})" if values and len(values) < 90 else label.name)
    cells = (
        f"`{metric.exposed}`",
        metric.kind,
        metric.unit,
        ", ".join(labels),
        f"{metric.help} {metric.meaning}",
        metric.sums,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def alert_table() -> str:
    """Alerts with their runbooks, and the recordings."""
    rows = ["| alert | severity | after | says |", "|---|---|---|---|"]
    rows += [
        f"| [{a.name}](runbooks/{a.name}.md) | {a.severity} | {a.hold} | {_plain(a.summary)} |"
        for a in ALERTS
    ]
    recorded = ", ".join(f"`{recording.record}`" for recording in RECORDINGS)
    return "\n".join(rows) + f"\n\nRecorded: {recorded}."


def _plain(summary: str) -> str:
    return summary.replace("{{ $labels.", "").replace("{{ $value }}", "N").replace(" }}", "")


def page() -> str:
    """docs/metrics.md: the written text with tables and limits filled in."""
    fills = {
        "CATALOGUE": catalogue_tables(),
        "ALERTS": alert_table(),
        "PANELS": "\n".join(f"- {panel.title}: {panel.text}" for panel in PANELS),
        "PORT": PORT,
        "PIXELS": ", ".join(f"{code} {name}" for code, name in enumerate(NAMES)),
        "WIDTH_MAX": f"{WIDTH_MAX:,}",
        "UNITS_MAX": f"{UNITS_MAX:,}",
        "SNAPSHOT_KIB": SNAPSHOT_BYTES_MAX >> 10,
        "STALE_S": f"{STALE_S:g}",
        "REQUEST_S": f"{Limits().request_s:g}",
        "ANSWER_S": f"{Limits().answer_s:g}",
        "IDLE_S": f"{Limits().idle_s:g}",
        "HEAD_BYTES_MAX": f"{HEAD_BYTES_MAX:,}",
        "CONNECTIONS_MAX": CONNECTIONS_MAX,
        "APART_CONNECTIONS_MAX": f"{APART_CONNECTIONS_MAX:,}",
        "QUESTIONS_MAX": QUESTIONS_MAX,
        "ARENAS_MAX": ARENAS_MAX,
        "BANDS_MAX": BANDS_MAX,
        "CALLERS_MAX": CALLERS_MAX,
        "SERIES_PER_ARENA_MAX": f"{SERIES_PER_ARENA_MAX:,}",
        "SERIES_MAX": f"{SERIES_MAX:,}",
        "PER_ARENA": len(PER_ARENA),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, fill in fills.items():
        text = text.replace(f"<<{name}>>", str(fill))
    assert "<<" not in text, text[text.index("<<") :][:60]
    return text


def grafana_text() -> str:
    """The dashboard's JSON."""
    return json.dumps(dashboard(), indent=1) + "\n"


FILES = {
    ROOT / "docs" / "metrics.md": page,
    ROOT / "metrics" / "rules" / "onearena.yml": rules_text,
    ROOT / "metrics" / "grafana" / "onearena.json": lambda: (
        json.dumps(dashboard(), indent=1) + "\n"
    ),
}


def main(arguments: list[str]) -> int:
    """Write all, or say which differ."""
    differ = []
    for path, made in FILES.items():
        text = made()
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            differ.append(str(path.relative_to(ROOT)))
    if differ:
        print(f"{', '.join(differ)}: not what ci/generate_metrics.py writes; run it")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
