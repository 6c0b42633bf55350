"""One trace through the order oracle and through the reference: do they say the same?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from order_reference import Finding, Unrecorded, findings

from onearena.core.device.interface import Space
from onearena.core.device.trace import TraceRecord
from onearena.stress.oracles.base import Violation
from onearena.stress.oracles.order import SINKS, OrderOracle
from onearena.stress.oracles.races import Race

Exempt = dict[Space, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Comparison:
    """`differences` is empty when both agree; `findings` is what the reference found."""

    findings: list[Finding | Unrecorded]
    differences: list[str]


def compare(
    records: Sequence[TraceRecord],
    exempt: Exempt | None = None,
    *,
    sweep_always: bool = False,
    oracle: type[OrderOracle] = OrderOracle,
) -> Comparison:
    """Both answers: the first report of an oracle that stops, and all of one that goes on.

    With `sweep_always` the oracle drops what is retired after every record, not only now and then.
    """
    ranges = dict(SINKS) if exempt is None else exempt
    expected = findings(records, ranges)
    differences = []
    first = _reports(oracle(exempt=ranges), records, sweep_always=sweep_always)
    if first != expected[:1]:
        differences.append(f"first: oracle {first}, reference {expected[:1]}")
    going_on = oracle(exempt=ranges, multiple=True)
    everything = _reports(going_on, records, sweep_always=sweep_always)
    if everything != expected:
        wrong = [pair for pair in zip(everything, expected, strict=False) if pair[0] != pair[1]][:1]
        differences.append(f"all: {len(everything)} against {len(expected)}, first other: {wrong}")
    return Comparison(findings=expected, differences=differences)


def _reports(
    oracle: OrderOracle, records: Sequence[TraceRecord], *, sweep_always: bool
) -> list[Finding | Unrecorded]:
    reports: list[Finding | Unrecorded] = []
    for record in records:
        races_before = len(oracle.races)
        violations = oracle.feed(record)
        races = oracle.races[races_before:]
        if races:
            assert len(races) == len(violations)
            reports += [_of_race(*pair) for pair in zip(races, violations, strict=True)]
        else:
            reports += [_of_unrecorded(violation) for violation in violations]
        if sweep_always:
            oracle.sweep()
    return reports


def _of_race(race: Race, violation: Violation) -> Finding:
    """The race in the reference's form. What the violation repeats must be what the race says."""
    edge = race.edge
    assert violation.bytes is not None
    assert (violation.bytes.start_bytes, violation.bytes.end_bytes) == (
        race.start_bytes,
        race.end_bytes,
    )
    return Finding(
        later=(race.later.index, race.later.position),
        earlier=(race.earlier.index, race.earlier.position),
        space=race.space,
        start_bytes=race.start_bytes,
        end_bytes=race.end_bytes,
        rule=violation.rule,
        cell=race.cell,
        edge=(
            edge.need,
            edge.from_stream,
            edge.from_number,
            edge.to_stream,
            edge.to_number,
            edge.nearest_event,
        ),
    )


def _of_unrecorded(violation: Violation) -> Unrecorded:
    assert violation.rule == "8"
    index, event = violation.details["index"], violation.details["event"]
    assert isinstance(index, int)
    assert isinstance(event, int)
    return Unrecorded(index, event)
