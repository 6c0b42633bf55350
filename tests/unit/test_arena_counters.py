"""The arena's counters, recounted by hand: metrics, reports and alerts are made of these."""

from __future__ import annotations

from hazard_rig import Rig

from onearena.core.answers import Blocked, Infeasible
from onearena.core.rules import UseKind
from onearena.core.uses import Grant


def test_counters_are_a_recount_of_what_was_asked_and_done() -> None:
    rig = Rig(16 * 20, 16, 16)
    arena = rig.arena

    def ask(*demand: int, caller: str) -> object:
        return arena.allocate(demand, writer=UseKind.FORWARD, stream=rig.forwards, caller=caller)

    granted = ask(6, 0, caller="prefill")
    assert isinstance(granted, Grant)
    low = list(granted.ids[0])
    assert isinstance(ask(15, 0, caller="prefill"), Infeasible)
    assert isinstance(ask(0, 15, caller="decode"), Infeasible)
    assert isinstance(ask(0, 16, caller="decode"), Infeasible)
    rig.finish(rig.forward(writes=low[:5]))  # the sixth unit holds nothing yet
    arena.free(low[:3])
    arena.pin(low[5:], pinned=True)
    assert isinstance(ask(0, 17, caller="decode"), Blocked)
    arena.pin(low[5:], pinned=False)
    assert isinstance(ask(0, 17, caller="decode"), Grant)  # three units move, two are copied

    counters = dict(arena.snapshot(units=False).counters)
    assert {name: count for name, count in counters.items() if count} == {
        "demands/prefill/none/fits": 1,
        "demands/prefill/none/infeasible": 1,
        "demands/decode/none/infeasible": 2,
        "demands/decode/none/blocked": 1,
        "demands/decode/compact/fits": 1,
        "bound/0": 1,
        "bound/1": 2,
        "allocated_units/0": 6,
        "allocated_units/1": 17,
        "freed_units/0": 3,
        "freed": 3,
        "moves/0/compact": 3,
        "moved_bytes/0/compact": 2 * 16,
        "uses/forward": 1,
        "waits/forward": 1,  # for the translation of its ids (rule 9)
        "uses/move": 1,
    }
