"""What a campaign of the default profile is planned to reach, by name; vacuity is judged against
this.
"""

from __future__ import annotations

from onearena.stress.workload import STEP_KINDS

_TOY_LACKS = ("move", "compact", "pin", "unpin")

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
    "retire.window",
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
    "retire.chunk",
)


def planned(system: str) -> tuple[str, ...]:
    """Names of all situations planned for a system."""
    steps = ["step." + kind for kind in STEP_KINDS if kind != "device"]
    if system != "arena":
        steps = [name for name in steps if name.removeprefix("step.") not in _TOY_LACKS]
        return (*steps, *_ANSWERS, *_EVENTS)
    return (*steps, *_ANSWERS, *_EVENTS, *_ARENA)
