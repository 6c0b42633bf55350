"""An arena's counters, named as in the catalogue: from `demands/decode/none/fits` to samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from onearena.metrics.metric import CALLERS_MAX, KINDS, REASONS

Values = dict[tuple[str, tuple[str, ...]], float]
"""By metric and label values, the arena's own label left out."""

OTHER: Final = "other"
CALLERS: Final = (
    "admission",
    "prefill",
    "decode",
    "fork",
    "load-back",
    "pd-prealloc",
    "evict",
    "checkpoint",
    "draft",
    OTHER,
)
"""Callers that have a label value of their own without asking; any other counts as `other`."""

_BY_KIND: Final = {"uses": "onearena_uses", "waits": "onearena_waits"}
_BY_BAND: Final = {
    "bound": "onearena_bound_refusals",
    "allocated_units": "onearena_allocated_units",
    "freed_units": "onearena_freed_units",
}
_BY_REASON: Final = {"moves": "onearena_moves", "moved_bytes": "onearena_moved_bytes"}
_PLAIN: Final = {
    "settles": "onearena_settles",
    "broken_promises": "onearena_broken_promises",
}


def counter_values(
    counters: Mapping[str, int], bands: Sequence[str], callers: Iterable[str] = ()
) -> Values:
    """Samples of all counters of an arena whose bands have these names; those not met yet are 0.

    `callers` are label values beside `CALLERS`, up to `CALLERS_MAX` in all. Counters that the
    catalogue does not have are left out. O(counters).
    """
    known = tuple(dict.fromkeys((*CALLERS, *callers)))[:CALLERS_MAX]
    values: Values = _zeros(bands)
    for key, count in counters.items():
        name, *rest = key.split("/")
        sample: tuple[str, tuple[str, ...]]
        match rest:
            case [] if name in _PLAIN:
                sample = (_PLAIN[name], ())
            case [kind] if name in _BY_KIND:
                sample = (_BY_KIND[name], (kind,))
            case [band] if name in _BY_BAND:
                sample = (_BY_BAND[name], (bands[int(band)],))
            case [band, reason] if name in _BY_REASON:
                sample = (_BY_REASON[name], (bands[int(band)], reason))
            case [*caller, rung, answer] if name == "demands":
                who = "/".join(caller)
                sample = ("onearena_demands", (who if who in known else OTHER, rung, answer))
            case _:
                continue
        values[sample] = values.get(sample, 0) + count
    return values


def _zeros(bands: Sequence[str]) -> Values:
    """What exists before anything happened, so that rates see the first event."""
    values: Values = {(metric, ()): 0 for metric in _PLAIN.values()}
    for metric in _BY_KIND.values():
        values.update({(metric, (kind,)): 0 for kind in KINDS})
    for band in bands:
        values.update({(metric, (band,)): 0 for metric in _BY_BAND.values()})
        for metric in _BY_REASON.values():
            values.update({(metric, (band, reason)): 0 for reason in REASONS})
    return values


def add_values(base: Mapping[tuple[str, tuple[str, ...]], float], more: Values) -> Values:
    """The sum, sample by sample."""
    total = dict(base)
    for sample, count in more.items():
        total[sample] = total.get(sample, 0) + count
    return total
