"""The end of a run: faults stop, nothing new starts, and everything that is open has to end.

If it does not within a bounded number of rounds, the run is `StuckError`: a liveness failure of
the system or of what it made the device wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onearena.stress.actors_copies import Copies
from onearena.stress.actors_forwards import Forwards
from onearena.stress.actors_requests import Requests
from onearena.stress.actors_transfers import Transfers
from onearena.stress.world import StuckError, World

ROUNDS_MAX: Final = 64
STEPS_MAX: Final = 50_000

__all__ = ["Actors", "StuckError", "drain"]


@dataclass(frozen=True, slots=True)
class Actors:
    """Who may hold something at the end; None: the system under test cannot do it."""

    requests: Requests
    forwards: Forwards
    copies: Copies | None
    transfers: Transfers | None


def drain(world: World, actors: Actors) -> None:
    """Free all, run the device dry, retire all, tear lost connections down. Raises `StuckError`."""
    world.stop_faults()
    _free_all(world, actors)
    for _ in range(ROUNDS_MAX):
        _run_dry(world)
        while actors.forwards.launched:
            actors.forwards.process()
        for entry in list(world.uses):
            if world.device.query(entry.event):
                world.retire(entry)
        transfers = actors.transfers
        if transfers is not None:
            for open_transfer in list(world.transfers):
                transfers.look(open_transfer)
            while world.lost:
                transfers.disconnect()
        _free_all(world, actors)
        for use, event in world.sut.outstanding():
            if world.device.query(event):
                world.sut.retire_own(use)
        if not (world.uses or world.transfers or world.units or world.device.enabled()):
            return
    left = [f"use {entry.use.serial} of kind {entry.use.kind.name}" for entry in world.uses]
    left += [
        f"unit of {world.bands[unit.band].name} under id {name}"
        for name, unit in world.units.items()
    ]
    left += [f"transfer {entry.transfer}" for entry in world.transfers]
    raise StuckError(
        f"after {ROUNDS_MAX} rounds of draining these have not ended: {', '.join(left[:6])}; "
        f"{len(world.units)} ids are still held"
    )


def _run_dry(world: World) -> None:
    for _ in range(STEPS_MAX):
        steps = world.device.enabled()
        if not steps:
            return
        world.device.step(steps[0])
    raise StuckError(f"the device still had work after {STEPS_MAX} steps")


def _free_all(world: World, actors: Actors) -> None:
    """Whatever anybody holds and may free now."""
    requests, copies, transfers = actors.requests, actors.copies, actors.transfers
    while requests.active:
        requests.release(requests.active[0])
    while requests.cache:
        world.free(requests.cache.pop().all_ids())
    if copies is not None:
        while copies.queued:
            copies.cancel()
        while copies.copies:
            copies.drop()
    if transfers is not None:
        for waiting in transfers.waiting:
            if waiting.request is None:
                world.free(waiting.sequence.all_ids())
        transfers.waiting.clear()
