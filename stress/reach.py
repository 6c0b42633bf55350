"""What a campaign of the default profile is planned to reach, by name; vacuity is judged against
this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onearena.stress.user_systems import is_user_system
from onearena.stress.workload import STEP_KINDS

_TOY_LACKS = ("move", "compact", "pin", "unpin", "price", "choose_victims", "boot")

_ANSWERS = (
    "answer.grant.admission",
    "answer.grant.decode",
    "answer.grant.fork",
    "answer.grant.load-back",
    "answer.grant.pd-prealloc",
    "answer.infeasible.admission",
    "answer.infeasible.decode",
)
_EVENTS = (
    "abort.in_flight",
    "retract.in_flight",
    "share.prefix",
    "draft.rejected",
    "side_stream",
    "settled",
    "free.under_transfer",
    "published.send",
    "published.receive",
    "publish.blocked.send",
    "publish.blocked.receive",
    "transfer.done",
    "transfer.failed",
    "transfer.cancelled",
    "transfer.lost",
    "disconnected",
    "fault.copy_failed",
    "fault.transfer_fail",
    "fault.peer_dies",
    "fault.query_false",
    "fault.mid_snapshot",
    "fault.zero_demand",
    "fault.transfer_stall",
    "fault.process_batch",
    "fault.read_only",
    "fault.publish_at_once",
    "host.full",
    "misuse.refused.double_free",
    "misuse.refused.negative",
    "misuse.refused.too_often",
)
_ARENA = (
    "moved.demanded",
    "moved.opportunistic",
    "pinned",
    "misuse.refused.move_fixed",
    "misuse.refused.failed_receive",
    "state.hole",
    "state.pending",
    "state.vacated",
    "state.transfer",
    "state.pinned",
    "state.quarantined",
    "rung.none",
    "fault.evict_veto",
)
_TWO_BANDS = ("fault.refuse_rung", "trimmed", "state.fenced", "rung.compact")
_WRITERS = ("forward", "load", "move", "fork", "zeroing", "receive")
_READERS = ("forward", "move", "fork", "backup", "send")
_USES = ("forward", "backup", "load", "move", "fork", "zeroing", "send", "receive")
_READ_ONLY = ("backup", "send")

VACUITY_SCHEDULES: Final = 2000
FEWER_MEASURED: Final = 5
_RARE: Final = {
    "cell.writer.receive.load": 5000,
    "cell.writer.receive.move": 3000,
    "fault.evict_veto": 3000,
}

USER_SYSTEMS = (
    *(f"step.{kind}" for kind in ("admit", "forward", "process", "finish", "poll")),
    "answer.grant.admission",
    "answer.grant.decode",
    "abort.in_flight",
)
"""What every allocator can reach, whatever its capabilities leave out."""


def planned(system: str, models: Sequence[str] = ("any",)) -> tuple[str, ...]:
    """Names of the situations that a campaign over these models can reach."""
    if is_user_system(system):
        return USER_SYSTEMS
    bands, lifetimes = _shape(system, models)
    steps = ["step." + kind for kind in STEP_KINDS if kind != "device"]
    if bands < 2:
        steps.remove("step.trim")
    if not lifetimes & {"window", "chunk"}:
        steps.remove("step.window")  # nothing falls behind
    names = [*_ANSWERS, *_EVENTS]
    names += [f"retire.{kind}" for kind in ("window", "chunk") if kind in lifetimes]
    if system != "arena":
        steps = [name for name in steps if name.removeprefix("step.") not in _TOY_LACKS]
        return (*steps, *names, *(cell for cell in table_cells() if not _toy_lacks(cell)))
    names += _ARENA
    if bands > 1:
        names += _TWO_BANDS
    if bands > 2:
        names.append("rung.relayout")
    return (*steps, *names, *table_cells())


def judged_from(system: str, models: Sequence[str] = ("any",)) -> dict[str, int]:
    """Planned name -> schedules from which its absence says something, where that is more than the
    2,000 of all others: a situation so rare that chance alone may leave it out.

    On 100,000 schedules of the portfolio of models every name but those of `_RARE` was in so many
    of 200 blocks that missing it in 2,000 schedules has a chance below 1e-5; these are judged
    where that holds for them. Of a chosen model some hundred schedules were measured, with rates
    down to a fifth of the portfolio's: its cells need five times as many.
    """
    if system != "arena":
        return {}
    if tuple(models) == ("any",):
        return dict(_RARE)
    late = dict.fromkeys(table_cells(), FEWER_MEASURED * VACUITY_SCHEDULES)
    return late | {name: FEWER_MEASURED * count for name, count in _RARE.items()}


def _toy_lacks(cell: str) -> bool:
    """Cells with moves and zeroing, which it has not, and two that its forks never come to: what
    was forked is written by a forward before anybody publishes it (870 schedules).
    """
    row, column = cell.split(".")[2:4]
    if {row, column} & {"move", "zeroing"}:
        return True
    return column == "fork" and row in ("receive", "send")


def _shape(system: str, models: Sequence[str]) -> tuple[int, frozenset[str]]:
    """The most bands of any model, and all lifetimes."""
    if system != "arena":
        return 3, frozenset(("context", "window", "request"))
    if tuple(models) == ("any",):
        return 3, frozenset(("context", "window", "chunk", "request"))
    from onearena.core.models import known_declaration

    found = [known_declaration(model) for model in models]
    kinds = [
        {lifetime.kind.value for lifetime in declaration.lifetimes()}
        for declaration in found
        if declaration is not None
    ]
    most = max((len(declaration.lifetimes()) for declaration in found if declaration), default=1)
    return most, frozenset().union(*kinds)


def table_cells() -> tuple[str, ...]:
    """Every cell of rule 6 that a schedule can put to the test, named as `TableReach` names it.

    Left out: what reads only is never read after; a backup writes host units, which only loads and
    backups used before; a load reads host units, which only backups wrote. Cells of one stream
    count with those of two.
    """
    cells = [f"cell.writer.{row}.{column}" for row in _WRITERS for column in _USES]
    cells += ["cell.writer.backup.load", "cell.writer.backup.backup", "cell.reader.load.backup"]
    cells += [
        f"cell.reader.{row}.{column}"
        for row in _READERS
        for column in _USES
        if column not in _READ_ONLY
    ]
    return tuple(cells)


def count_of(reach: Mapping[str, int], name: str) -> int:
    """How often a planned name was reached; a cell counts on one stream and on two."""
    return reach.get(name, 0) + reach.get(name + ".stream", 0)
