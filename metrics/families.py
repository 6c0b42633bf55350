"""Metric families whose samples are made only for those who ask for them one by one.

The client library's registries hand out families of sample objects with a dictionary of labels
each. Our own exporter needs the text only; it is put together from rows. The part of each line that
never changes is kept from scrape to scrape, and a row whose value is the last one's is kept whole.
"""

from __future__ import annotations

import math
from typing import Final

from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from onearena.metrics.metric import Metric

Histogram = tuple[tuple[int, ...], float]
Value = float | Histogram

ROWS_KEPT_MAX: Final = 1 << 14


class _Kept:
    """What the last scrape wrote for a row: heads of its lines; its value and their text."""

    __slots__ = ("heads", "last")

    def __init__(self, heads: tuple[str, ...]) -> None:
        self.heads = heads
        self.last: tuple[object, str] = (self, "")  # one reference: any thread may render


_KEPT: dict[tuple[str, tuple[str, ...], tuple[str, ...]], _Kept] = {}


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
        name, label_names = self.name, self.label_names
        for labels, value in self.rows:
            kept = _KEPT.get((name, label_names, labels)) or self._keep(labels)
            before, text = kept.last
            # Equal zeros may differ in sign, and so in text; the same object does not.
            if value is not before and not (value and value == before):
                if isinstance(value, tuple):
                    parts = zip(kept.heads, _values(value), strict=True)
                    text = "".join([f"{head}{number(part)}\n" for head, part in parts])
                else:
                    text = f"{kept.heads[0]}{number(value)}\n"
                kept.last = (value, text)
            out.append(text)

    def _parts(self) -> list[tuple[str, str]]:
        """(suffix, upper bound) of each sample of a row."""
        if self.metric.kind != "histogram":
            return [(self.metric.exposed.removeprefix(self.name), "")]
        bounds = [*map(number, self.metric.buckets), "+Inf"]
        return [*(("_bucket", bound) for bound in bounds), ("_count", ""), ("_sum", "")]

    def _keep(self, labels: tuple[str, ...]) -> _Kept:
        """Name and labels of each sample of a row, up to its value."""
        named = dict(zip(self.label_names, labels, strict=True))
        heads = []
        for suffix, bound in self._parts():
            pairs = sorted({**named, "le": bound}.items() if bound else named.items())
            text = ",".join(f'{name}="{escaped(value)}"' for name, value in pairs)
            heads.append(f"{self.name}{suffix}{f'{{{text}}}' if text else ''} ")
        if len(_KEPT) >= ROWS_KEPT_MAX:
            _KEPT.clear()
        kept = _KEPT[self.name, self.label_names, labels] = _Kept(tuple(heads))
        return kept


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
