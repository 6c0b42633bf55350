"""Metric families whose samples are made only for those who ask for them one by one.

The client library's registries hand out families of sample objects with a dictionary of labels
each. Our own exporter needs the text only; it is put together from rows, with the part of each line
that never changes kept from scrape to scrape.
"""

from __future__ import annotations

import math
from typing import Final

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from onearena.metrics.metric import Metric

Histogram = tuple[tuple[int, ...], float]
Value = float | Histogram

HEADS_KEPT_MAX: Final = 1 << 14

_HEADS: dict[tuple[str, tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}


class RowsFamily(Family):
    """A family made of (label values, value) rows of one metric of the catalogue."""

    def __init__(self, metric: Metric, label_names: tuple[str, ...]) -> None:
        # Not the base class's: it would make the list of samples that `samples` makes when asked.
        self.name = metric.name
        self.documentation = metric.help
        self.unit = ""
        self.type = metric.kind
        self.metric = metric
        self.label_names = label_names
        self.rows: list[tuple[tuple[str, ...], Value]] = []

    @property
    def samples(self) -> list[Sample]:  # type: ignore[override]
        """All samples, made now."""
        found = []
        for labels, value in self.rows:
            named = dict(zip(self.label_names, labels, strict=True))
            for (suffix, bound), part in zip(self._parts(), _values(value), strict=True):
                more = {"le": bound} if bound else {}
                found.append(Sample(self.name + suffix, {**named, **more}, part))
        return found

    def lines(self, out: list[str]) -> None:
        """Append the text of all samples; the same as of `samples`."""
        for labels, value in self.rows:
            heads = _HEADS.get((self.name, self.label_names, labels)) or self._heads(labels)
            if isinstance(value, tuple):
                for head, part in zip(heads, _values(value), strict=True):
                    out.append(f"{head}{number(part)}\n")
            else:
                out.append(f"{heads[0]}{number(value)}\n")

    def _parts(self) -> list[tuple[str, str]]:
        """(suffix, upper bound) of each sample of a row."""
        if self.metric.kind != "histogram":
            return [(self.metric.exposed.removeprefix(self.name), "")]
        bounds = [*map(number, self.metric.buckets), "+Inf"]
        return [*(("_bucket", bound) for bound in bounds), ("_count", ""), ("_sum", "")]

    def _heads(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Name and labels of each sample of a row, up to its value."""
        named = dict(zip(self.label_names, labels, strict=True))
        heads = []
        for suffix, bound in self._parts():
            pairs = sorted({**named, "le": bound}.items() if bound else named.items())
            text = ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)
            heads.append(f"{self.name}{suffix}{f'{{{text}}}' if text else ''} ")
        if len(_HEADS) >= HEADS_KEPT_MAX:
            _HEADS.clear()
        _HEADS[self.name, self.label_names, labels] = tuple(heads)
        return tuple(heads)


def _values(value: Value) -> list[float]:
    """A row's value as those of its samples: of a histogram, cumulated buckets, count and sum."""
    if not isinstance(value, tuple):
        return [value]
    counts, total = value
    seen = 0
    found: list[float] = []
    for count in counts:
        seen += count
        found.append(seen)
    return [*found, seen, total]


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    if "\\" in value or "\n" in value or '"' in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: float) -> str:
    """A sample's value as Go writes it: 5.0, 1e+06, +Inf, NaN."""
    given = float(value)
    if -1e6 < given < 1e6:
        return repr(given)
    if math.isnan(given):
        return "NaN"
    if math.isinf(given):
        return "+Inf" if given > 0 else "-Inf"
    text = repr(given)
    dot = text.find(".")
    if given > 0 and dot > 6:
        mantissa = f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{dot - 1:02d}"
    return text
