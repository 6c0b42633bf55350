"""A unit that two dead peers were reading stays quarantined until both connections are down."""

from __future__ import annotations

from onearena.core.arena import Arena
from onearena.core.device.interface import TransferStatus, Work
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.geometry import chain_geometry
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use


def lose(device: ModeledDevice, number: int, peer: int) -> None:
    """The peer of a transfer dies: its end will never be confirmed."""
    device.step(Step(StepKind.PEER_DIES, peer))
    assert device.transfer_status(number) is TransferStatus.UNKNOWN


def sent_to(peers: int) -> tuple[ModeledDevice, Arena, int, list[tuple[Use, int, int]]]:
    """A unit that so many peers are reading: device, arena, its id, (use, transfer, peer) each."""
    device = ModeledDevice()
    arena = Arena(chain_geometry(256, [("state", 64), ("full", 32)]), device)
    granted = arena.allocate((0, 1), writer=UseKind.FORWARD, stream=0)
    assert isinstance(granted, Grant)
    (vid,) = granted.ids[1]
    uses = []
    for peer in range(1, peers + 1):
        use = arena.publish(UseKind.SEND, [vid], peer=peer)
        assert isinstance(use, Use)
        uses.append((use, arena.launch(use, Work(int(use.kind), use.accesses, peer=peer)), peer))
    return device, arena, vid, uses


def test_the_second_connection_keeps_the_unit_out_of_capacity() -> None:
    device, arena, vid, uses = sent_to(2)
    for use, number, peer in uses:
        lose(device, number, peer)
        arena.end_transfer(use, outcome="lost")
    arena.free([vid])
    assert arena.snapshot().bands[1].quarantined_units == 1
    arena.disconnect(1)
    assert arena.snapshot().bands[1].quarantined_units == 1
    assert not arena.would_fit((0, 8))
    arena.disconnect(2)
    assert arena.snapshot().bands[1].quarantined_units == 0
    assert arena.would_fit((0, 8))


def test_a_transfer_that_still_runs_does_not_hide_the_lost_one() -> None:
    device, arena, _, uses = sent_to(3)
    for use, number, peer in uses[:2]:
        lose(device, number, peer)
        arena.end_transfer(use, outcome="lost")
    arena.disconnect(1)  # the second is lost, the third goes on
    assert arena.snapshot().bands[1].quarantined_units == 1
    arena.disconnect(2)
    assert arena.snapshot().bands[1].quarantined_units == 0
