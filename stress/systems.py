"""The systems a schedule can run against, by name: the arena, the toy with or without a bug, and
what users bring (`stress/user_systems.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onearena.core.device.interface import Space
from onearena.core.device.modeled import ModeledDevice
from onearena.core.errors import UsageError
from onearena.stress.choices import Choices
from onearena.stress.forks import Limits, Tell, in_fork
from onearena.stress.oracles.base import UnitName
from onearena.stress.sut import Capabilities, PlanFacts, SystemUnderTest
from onearena.stress.toy import BUGS, Toy
from onearena.stress.toy_parts import ToyBand
from onearena.stress.user_systems import is_user_system, load_factory

if TYPE_CHECKING:
    from onearena.stress.real_forwards import RealChecks

Locate = Callable[[Space, int, int], UnitName | None]

SYSTEMS: Final = ("arena", "toy", *(f"toy:{bug}" for bug in BUGS))


CHOICE: Final = (
    f"give one of {', '.join(SYSTEMS)}, or a factory of your own: FILE.py:FACTORY or MODULE:FACTORY"
)

DEVICES: Final = ("modeled", "threads", "cuda")

FACTORY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Built:
    """A device and a system on it, fresh; `locate` names the unit a byte range belongs to.

    `real` judges the bytes and accesses of a device on which work really runs; its caller closes
    it.

    `unjudged` names oracles whose reports do not count: a system that waits more often than it
    must, and says so, is not told on.
    """

    device: ModeledDevice
    sut: SystemUnderTest
    locate: Locate
    unjudged: frozenset[str] = frozenset()
    real: RealChecks | None = None


def build_system(
    system: str, model: str, choices: Choices, *, device: str = "modeled", delays: int = 0
) -> Built:
    """Build one of `SYSTEMS`; its sizes are drawn. Raises `UsageError` for a name that is none, and
    for a device the system cannot run on.
    """
    if device not in DEVICES:
        raise UsageError("--device", device, f"give one of {', '.join(DEVICES)}")
    if system == "arena":
        if importlib.util.find_spec("onearena.stress.arena_sut") is None:
            raise UsageError("--system", system, "this build has no arena; give toy")
        module = importlib.import_module("onearena.stress.arena_scenarios")
        built = module.build(model, choices, device=device, delays=delays)
        assert isinstance(built, Built), f"arena_scenarios.build gave {built!r}"
        return built
    if system not in SYSTEMS and not is_user_system(system):
        raise UsageError("--system", system, CHOICE)
    if device != "modeled":
        raise UsageError("--device", device, f"{system} runs on the modeled device only")
    if system not in SYSTEMS:
        return _user(system, choices)
    return _toy(system.partition(":")[2], choices)


def check_system(system: str, field: str = "--system") -> None:
    """Refuse, before anything runs, a name that builds nothing or that nobody said to trust."""
    if system in SYSTEMS:
        return
    if not is_user_system(system):
        raise UsageError(field, system, CHOICE)
    load_factory(system, field)


def check_factory(system: str) -> None:
    """Refuse a factory of somebody's own that gives no system. It is called once, in a fork, since
    it may do anything; what it raises is a crash of a schedule, and what never returns meets the
    limit of schedules.
    """
    if system in SYSTEMS:
        return

    def build(tell: Tell) -> None:
        try:
            _user(system, Choices(0))
        except UsageError as error:
            tell(error.fix)

    said = in_fork(build, Limits(wall_s=FACTORY_S)).said
    if said:
        raise UsageError("--system", system, said[0])


def _user(system: str, choices: Choices) -> Built:
    sut = load_factory(system)(choices)
    for name, kind in (("capabilities", Capabilities), ("plan", PlanFacts)):
        if not isinstance(getattr(sut, name, None), kind):
            fix = f"make it give a system, with its `{name}` (onearena.stress.sut.{kind.__name__})"
            raise UsageError("--system", system, fix)
    device = sut.device
    if not isinstance(device, ModeledDevice):
        fix = "build it on an onearena.core.device.modeled.ModeledDevice of its own"
        raise UsageError("--system", system, fix)
    unjudged = getattr(sut, "unjudged", frozenset(("economy",)))
    return Built(device, sut, locator(sut), frozenset(unjudged))


def _toy(bug: str, choices: Choices) -> Built:
    page = (1, 4, 16)[choices.pick("toy.page", 3)]
    kinds = (("context", 0), ("window", 4 * page), ("request", 0))
    count = (1, 2, 3)[choices.pick("toy.bands", 3)]
    order = {1: (0,), 2: (0, 1), 3: (2, 1, 0)}[count]
    bands: list[ToyBand] = []
    for kind in order:
        lifetime, span = kinds[kind]
        entry_bytes = 64 * (1 + choices.pick("toy.entry", 4))
        entries = 1 if lifetime == "request" else page
        units = choices.between("toy.units", 8, 24)
        bands.append(ToyBand(lifetime, entry_bytes * entries, units, lifetime, span, entries))
    device = ModeledDevice(eager=True)
    toy = Toy(device, bands, host_units=choices.between("toy.host", 2, 16), bug=bug)
    return Built(device, toy, locator(toy), frozenset(("economy",)))


def locator(sut: SystemUnderTest) -> Locate:
    """Names the unit that bytes belong to now, for reports: bands move, so it asks the system."""

    def locate(space: Space, start: int, end: int) -> UnitName | None:
        if space is not Space.ARENA:
            return None
        for band in sut.snapshot(units=False).bands:
            unit, rest = divmod(start - band.origin_bytes, band.unit_bytes)
            if band.low_unit <= unit < band.high_unit and rest + end - start <= band.unit_bytes:
                return UnitName(band.name, unit)
        return None

    return locate
