"""The atomicity oracle: a call that refuses, or only asks, changes nothing.

Between two snapshots with nothing but refused calls (an exception, `Blocked`, `Infeasible`) and
pure ones (`fits`), the state is the same: bands with states and ids, gaps, fences, uses. And such
a call puts nothing on the device: no work, no wait, no event, no transfer. (Seeing that an event is
complete is allowed to a refused call, not to `fits`, whose answer may depend on no clock.)
"""

from __future__ import annotations

from typing import Final

from onearena.core.snapshot import Snapshot
from onearena.stress.oracles.base import NO_VIOLATIONS, Violation
from onearena.stress.oracles.fact_types import ALL_CALLS, CallFacts

PURE: Final = frozenset(("fits",))
PARTS: Final = ("bands", "gaps", "fences", "uses")


class AtomicityOracle:
    """Feed `CallFacts`. Cost: of a snapshot after refused calls, one comparison at C speed."""

    name = "atomicity"
    calls = ALL_CALLS

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._since: list[str] = []
        self._changed = True

    def feed(self, facts: CallFacts) -> tuple[Violation, ...]:
        """Judge one call."""
        call = facts.call
        if call.name == "snapshot":
            assert isinstance(call.answer, Snapshot)
            # Since the last call the host may have seen work of the system's own end, and told it:
            # that no call of the world recorded, so none says so.
            told = bool(facts.observed)
            same = self._since and not self._changed and not told
            found = self._compare(call.answer) if same else None
            self._before, self._changed = call.answer, False
            self._since.clear()
            return NO_VIOLATIONS if found is None else (found,)
        pure = call.name in PURE
        full = call.name == "reserve_host" and call.answer == ()
        if not (facts.refused or pure or full):
            self._changed = True
            return NO_VIOLATIONS
        if not self._changed:
            self._since.append(f"call #{call.serial} {call.name}: {_outcome(facts)}")
        did = [
            f"{len(records)} {word}"
            for word, records in (
                ("operations", facts.ops),
                ("waits", facts.waits),
                ("events", facts.events),
                ("transfers", facts.begun),
                ("observations", facts.observed if pure else ()),
            )
            if records
        ]
        if not did:
            return NO_VIOLATIONS
        return (
            self._report(
                f"{call.name} {'is pure' if pure else 'was refused'}, but left {', '.join(did)} "
                f"on the device.",
                (f"call #{call.serial} {call.name}: {_outcome(facts)}",),
                pure=pure,
            ),
        )

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _compare(self, now: Snapshot) -> Violation | None:
        before = self._before
        if before is None:
            return None
        with_units = [any(band.states for band in snap.bands) for snap in (before, now)]
        if with_units[0] != with_units[1]:
            return None  # one of the two was taken without units
        for part in PARTS:
            if getattr(before, part) != getattr(now, part):
                message = f"nothing but refused or pure calls, and {part} changed: "
                return self._report(
                    message + _difference(before, now, part), tuple(self._since), pure=False
                )
        return None

    def _report(self, message: str, events: tuple[str, ...], *, pure: bool) -> Violation:
        return Violation(self.name, "6" if pure else "13", message, events=events)


def _outcome(facts: CallFacts) -> str:
    if facts.call.error is not None:
        return f"{type(facts.call.error).__name__}: {facts.call.error}"
    return type(facts.call.answer).__name__


def _difference(before: Snapshot, now: Snapshot, part: str) -> str:
    old, new = getattr(before, part), getattr(now, part)
    for left, right in zip(old, new, strict=False):
        if left != right:
            return f"{left} became {right}."
    return f"{len(old)} became {len(new)} entries."
