"""The Prometheus text format (0.0.4), byte for byte as the client library writes it, in less time.

A scrape takes processor time from the engine's own process, and most of it would go into escaping
label values that need no escaping. OpenMetrics adds exemplars and creation times; none are exported
here, so every scraper gets the text format, which all of them accept.
"""

from __future__ import annotations

from typing import Final

from prometheus_client.core import Metric as Family
from prometheus_client.registry import CollectorRegistry

from onearena.metrics.families import RowsFamily, escaped, number

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TYPES: Final = {
    "info": "gauge",
    "stateset": "gauge",
    "gaugehistogram": "histogram",
    "unknown": "untyped",
}
_LATE: Final = ("_created", "_gsum", "_gcount")


def render(registry: CollectorRegistry) -> bytes:
    """All families of a registry. Cost: samples."""
    out: list[str] = []
    for family in registry.collect():
        _render(out, family)
    return "".join(out).encode()


def _render(out: list[str], family: Family) -> None:
    name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
    kind = _TYPES.get(family.type, family.type)
    text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    out.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
    if isinstance(family, RowsFamily):
        family.lines(out)
        return
    late: dict[str, list[str]] = {}
    for sample in family.samples:
        labels = ",".join(
            [f'{key}="{escaped(value)}"' for key, value in sorted(sample.labels.items())]
        )
        braces = f"{{{labels}}}" if labels else ""
        when = ""
        if sample.timestamp is not None:
            when = f" {int(float(sample.timestamp) * 1000)}"
        line = f"{sample.name}{braces} {number(sample.value)}{when}\n"
        suffix = sample.name[len(family.name) :]
        if suffix in _LATE:
            late.setdefault(suffix, []).append(line)
        else:
            out.append(line)
    for suffix, lines in sorted(late.items()):
        whole = family.name + suffix
        out.append(f"# HELP {whole} {text}\n# TYPE {whole} gauge\n")
        out += lines
