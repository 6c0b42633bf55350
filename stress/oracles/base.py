"""What every oracle looks like, and the one form in which each of them reports.

An oracle is fed the records of one run, one at a time, in the order of the run. It keeps its own
state and answers with the violations that the record proves. It never raises for a broken rule; it
raises `ValueError` for a record that no device may log, because then nothing it says can be
trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

VIOLATION_VERSION: Final = 1

NO_VIOLATIONS: Final[tuple[Violation, ...]] = ()
"""What `feed` and `finish` return when nothing is wrong; one shared empty tuple."""

Plain = None | bool | int | str | list["Plain"] | dict[str, "Plain"]
"""What the JSON form of a violation consists of."""


@dataclass(frozen=True, slots=True)
class UnitName:
    """A unit as people name it: the band's name and the physical unit number in the band's grid."""

    band: str
    unit: int

    def __str__(self) -> str:
        return f"{self.band}[{self.unit}]"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start_bytes, end_bytes) of one space; `space` is its lower-case name."""

    space: str
    start_bytes: int
    end_bytes: int

    def __str__(self) -> str:
        return f"{self.space}[{self.start_bytes}:{self.end_bytes})"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Fields: `oracle`, the oracle's `name`; `rule`, the number of the lifecycle rule as text ("6"),
    or a word for facts outside those rules ("geometry"); `message`, one sentence for a person;
    `unit` and `bytes`, what it happened to, None where no single unit or range is meant; `events`,
    the records concerned, in the order they happened, one line each; `details`, facts for
    programs: plain values with string keys only.
    """

    oracle: str
    rule: str
    message: str
    unit: UnitName | None = None
    bytes: ByteRange | None = None
    events: tuple[str, ...] = ()
    details: Mapping[str, Plain] = field(default_factory=dict)

    def text(self) -> str:
        """Several lines for a terminal: oracle and rule, where, the sentence, then the events."""
        where = [str(place) for place in (self.unit, self.bytes) if place is not None]
        head = f"{self.oracle}: rule {self.rule} broken" + (
            f" at {', '.join(where)}" if where else ""
        )
        return "\n".join([head, f"  {self.message}", *(f"  {event}" for event in self.events)])

    def to_json(self) -> dict[str, Plain]:
        """The versioned plain form: what `json.dumps` takes, with a fixed order of keys."""
        unit: Plain = (
            None if self.unit is None else {"band": self.unit.band, "unit": self.unit.unit}
        )
        extent: Plain = None
        if self.bytes is not None:
            extent = {
                "space": self.bytes.space,
                "start_bytes": self.bytes.start_bytes,
                "end_bytes": self.bytes.end_bytes,
            }
        return {
            "version": VIOLATION_VERSION,
            "oracle": self.oracle,
            "rule": self.rule,
            "message": self.message,
            "unit": unit,
            "bytes": extent,
            "events": list(self.events),
            "details": dict(self.details),
        }


class Oracle(Protocol):
    """One check of one run. Make a new object for each run; not thread-safe."""

    name: str

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Take the next record; ignore kinds it does not know. Usually returns `NO_VIOLATIONS`."""

    def finish(self) -> tuple[Violation, ...]:
        """The run is over: report what can only be said at its end. Called once."""


def feed_all(oracle: Oracle, records: Iterable[object]) -> list[Violation]:
    """Feed a whole run to one oracle and finish it; all its violations in order."""
    found: list[Violation] = []
    for record in records:
        found.extend(oracle.feed(record))
    found.extend(oracle.finish())
    return found
