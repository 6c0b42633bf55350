"""The misuse oracle: what rule 13 forbids is refused, and nothing else is.

Each call is judged before its effect is known, from what earlier calls left: ids and their
references, uses, transfers, host units. Three verdicts:

    refuse   rules 8, 11, 13 forbid it: only a `MisuseError` is right
    accept   nothing forbids it: a `MisuseError` is wrong (a capacity answer is not)
    either   section 5 leaves it open, or the call stands between a record and its launch

That a refused call changes nothing is the atomicity oracle's to check. A crash (any other
exception) is no verdict of an oracle: the harness counts it apart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

from onearena.core.answers import Blocked
from onearena.core.errors import MisuseError
from onearena.core.rules import UseKind
from onearena.stress.calls import Call
from onearena.stress.oracles.base import NO_VIOLATIONS, Violation
from onearena.stress.oracles.fact_types import TRANSFERS, UseFact
from onearena.stress.oracles.facts import Facts
from onearena.stress.sut import Use

OUTCOMES: Final = frozenset(("done", "failed", "cancelled", "lost"))
READERS: Final = frozenset(
    (UseKind.FORWARD, UseKind.BACKUP, UseKind.LOAD, UseKind.MOVE, UseKind.FORK)
)
# Calls that change a unit, a mapping or a reference: none may stand between record and launch.
CHANGING: Final = frozenset(
    ("allocate", "free", "share", "fork", "record", "publish", "move", "compact", "free_host")
)


class Verdict(enum.Enum):
    """What a correct system does with a call."""

    REFUSE = "refuse"
    ACCEPT = "accept"
    EITHER = "either"


Judgement = tuple[Verdict, str, str]
"""Verdict, the rule as text, and why."""

ACCEPT: Final[Judgement] = (Verdict.ACCEPT, "", "nothing forbids it")


def _refuse(why: str, rule: str = "13") -> Judgement:
    return Verdict.REFUSE, rule, why


def _either(why: str) -> Judgement:
    return Verdict.EITHER, "", why


class MisuseOracle:
    """Feed `Call` records *before* the facts take them. Cost: what the call names."""

    name = "misuse"

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._unlaunched: int | None = None
        self._judges: dict[str, Callable[[tuple[Any, ...]], Judgement]] = {
            "allocate": self._demand,
            "fits": self._demand,
            "free": self._free,
            "share": self._live,
            "fork": self._fork,
            "record": self._record,
            "publish": self._publish,
            "launch": self._launch,
            "process": self._process,
            "settle": self._stream_use,
            "retire": self._stream_use,
            "end_transfer": self._end_transfer,
            "move": self._move,
            "pin": self._live,
            "free_host": self._free_host,
        }

    def feed(self, record: object) -> tuple[Violation, ...]:
        """Judge one call; other records are ignored."""
        if type(record) is not Call:
            return NO_VIOLATIONS
        judge = self._judges.get(record.name)
        if judge is None:
            return NO_VIOLATIONS
        verdict, rule, why = judge(record.args)
        if self._unlaunched is not None and record.name in CHANGING and verdict is Verdict.ACCEPT:
            verdict, rule, why = _either("it stands between a record and its launch")
        self._follow(record)
        if record.error is None:
            accepted = verdict is Verdict.REFUSE and not isinstance(record.answer, Blocked)
            if accepted or (record.probe and not isinstance(record.answer, Blocked)):
                reason = why if accepted else "a call made to be refused"
                return (self._report(record, rule or "13", f"{record.name} accepted: {reason}."),)
        elif (
            isinstance(record.error, MisuseError) and verdict is Verdict.ACCEPT and not record.probe
        ):
            message = f"a legal {record.name} was refused: {record.error}"
            return (self._report(record, "13", message),)
        return NO_VIOLATIONS

    def finish(self) -> tuple[Violation, ...]:
        """Nothing is left to say."""
        return NO_VIOLATIONS

    def _follow(self, call: Call) -> None:
        if call.error is None and isinstance(call.answer, Use):
            self._unlaunched = call.answer.serial
        elif call.name == "launch" and call.error is None:
            self._unlaunched = None

    # -- one judge a call ------------------------------------------------------------------------
    def _demand(self, args: tuple[Any, ...]) -> Judgement:
        demand = args[0]
        if len(demand) != len(self.facts.bands) or any(count < 0 for count in demand):
            return _either("a malformed demand is a usage error")
        return ACCEPT

    def _missing(self, ids: Sequence[int], what: str) -> Judgement | None:
        known = self.facts.ids
        for name in ids:
            if name not in known:
                return _refuse(f"{what} names {self._kind_of(name)}")
        return None

    def _kind_of(self, name: int) -> str:
        if name < 0:
            return f"negative id {name}"
        if name in self.facts.ever:
            return f"id {name}, which was freed"
        return f"id {name}, which was never handed out"

    def _live(self, args: tuple[Any, ...]) -> Judgement:
        return self._missing(args[0], "ids") or ACCEPT

    def _free(self, args: tuple[Any, ...]) -> Judgement:
        missing = self._missing(args[0], "ids")
        if missing is not None:
            return missing
        ids, known = args[0], self.facts.ids
        repeated = len(set(ids)) < len(ids)
        for name in set(ids):
            if (ids.count(name) if repeated else 1) > known[name].references:
                return _refuse(f"id {name} is freed more often than it is held")
        return ACCEPT

    def _fork(self, args: tuple[Any, ...]) -> Judgement:
        judgement = self._free(args)
        if judgement[0] is Verdict.ACCEPT and len(set(args[0])) != len(args[0]):
            return _either("an id is forked twice")
        if self._any_undefined(args[0]):
            return _either("a source has undefined content")
        return judgement

    def _any_undefined(self, ids: Sequence[int]) -> bool:
        known = self.facts.ids
        for name in ids:
            fact = known.get(name)
            if fact is not None and fact.undefined:
                return True
        return False

    def _record(self, args: tuple[Any, ...]) -> Judgement:
        kind, _, reads, writes, host_reads, host_writes = args
        missing = self._missing(reads, "reads") or self._missing(writes, "writes")
        if missing is not None:
            return missing
        for name in (*host_reads, *host_writes):
            if name not in self.facts.host_ids:
                return _refuse(f"host id {name} is not reserved")
        shared = self._shared(writes)
        if shared is not None:
            return shared
        if kind in TRANSFERS:
            return _either("a transfer is published, not recorded")
        if kind not in (UseKind.FORWARD, UseKind.BACKUP, UseKind.LOAD):
            return _either("the system makes such uses itself")
        if kind in READERS and self._any_undefined(reads):
            return _either("a read names undefined content")
        if len(set(reads)) < len(reads) or len(set(writes)) < len(writes):
            return _either("an id is named twice")
        return ACCEPT

    def _shared(self, writes: Sequence[int]) -> Judgement | None:
        for name in writes:
            references = self.facts.ids[name].references
            if references > 1:
                return _refuse(f"id {name} is written and has {references} references", "11")
        return None

    def _publish(self, args: tuple[Any, ...]) -> Judgement:
        kind, ids, _ = args
        if kind not in TRANSFERS:
            return _either("only a send or a receive is published")
        missing = self._missing(ids, "ids")
        if missing is not None:
            return missing
        if kind is UseKind.RECEIVE:
            shared = self._shared(ids)
            if shared is not None:
                return shared
        if len(set(ids)) < len(ids) or self._any_undefined(ids):
            return _either("an id is named twice, or has undefined content")
        return ACCEPT

    def _use(self, args: tuple[Any, ...]) -> UseFact | None:
        return self.facts.uses.get(args[0].serial)

    def _launch(self, args: tuple[Any, ...]) -> Judgement:
        fact = self._use(args)
        if fact is None or fact.op >= 0:
            return _refuse(f"use {args[0].serial} is not waiting for its launch", "8")
        return ACCEPT if self._unlaunched == fact.serial else _either("another use came between")

    def _process(self, args: tuple[Any, ...]) -> Judgement:
        fact = self._use(args)
        if fact is None:
            return _refuse(f"use {args[0].serial} is over or unknown")
        if fact.op < 0:
            return _refuse(f"use {fact.serial} was not launched", "8")
        return _either("no forward") if fact.kind != UseKind.FORWARD else ACCEPT

    def _stream_use(self, args: tuple[Any, ...]) -> Judgement:
        fact = self._use(args)
        if fact is None:
            return _refuse(f"use {args[0].serial} is over or unknown")
        if fact.op < 0:
            return _refuse(f"the event of use {fact.serial} is not recorded", "8")
        if fact.is_transfer:
            return _either("a transfer has no event")
        return ACCEPT

    def _end_transfer(self, args: tuple[Any, ...]) -> Judgement:
        fact = self._use(args)
        if fact is None:
            return _refuse(f"transfer use {args[0].serial} is over or unknown")
        if args[1] not in OUTCOMES or not fact.is_transfer or fact.outcome or fact.op < 0:
            return _either("an odd end")
        return ACCEPT

    def _move(self, args: tuple[Any, ...]) -> Judgement:
        band, ids = args
        missing = self._missing(ids, "ids")
        if missing is not None:
            return missing
        for name in ids:
            fact = self.facts.ids[name]
            if fact.band != band:
                return _refuse(f"id {name} belongs to band {fact.band}")
            if fact.transfers > 0:
                return _refuse(f"id {name} is under a transfer")
            if fact.pins:
                return _either(f"id {name} is pinned")
        return _either("an id is named twice") if len(set(ids)) < len(ids) else ACCEPT

    def _free_host(self, args: tuple[Any, ...]) -> Judgement:
        names = args[0]
        if len(set(names)) < len(names) or any(n not in self.facts.host_ids for n in names):
            return _refuse("a host id is not reserved")
        return ACCEPT

    def _report(self, call: Call, rule: str, message: str) -> Violation:
        return Violation(
            self.name,
            rule,
            message,
            events=(f"call #{call.serial} {call.name}",),
            details={"call": call.serial, "step": call.step},
        )
