"""What a campaign runs, as plain data, and its JSON form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onearena.core.errors import UsageError
from onearena.stress.arrivals import Arrival, read_arrivals
from onearena.stress.run import RunSpec
from onearena.stress.schedule_limit import LIMIT_S
from onearena.stress.strategies.portfolio import DEFAULT

PLAN_VERSION: Final = 1
ARRIVALS_WINDOW: Final = 256
PREFIX_IDS_KEPT: Final = 64
MODELS_MAX: Final = 1024
TEXT_MAX: Final = 4096
SEED_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign runs. `last` None: until interrupted or out of budget. `models` take turns
    by seed.

    Which schedule a seed is depends on system, models, arrivals, device and strategy alone; the
    other fields say which seeds run, how long and how. `arrivals_path` is where `arrivals` came
    from.
    """

    first: int = 0
    last: int | None = None
    system: str = "arena"
    models: tuple[str, ...] = ("any",)
    budget_s: float | None = None
    jobs: int = 0
    arrivals: tuple[Arrival, ...] = ()
    keep_going: bool = False
    recheck: bool = True
    device: str = "modeled"
    keep_recording: bool = False
    strategy: str = DEFAULT
    arrivals_path: str = ""
    schedule_limit_s: float = LIMIT_S

    @property
    def default_profile(self) -> bool:
        """Whether the schedules are those that a clean campaign's reach is judged by."""
        return self.strategy == DEFAULT and not self.arrivals

    def spec(self, seed: int) -> RunSpec:
        """The schedule of one seed; pure."""
        model = self.models[seed % len(self.models)]
        return RunSpec(
            seed,
            self.system,
            model,
            arrivals=arrivals_window(self.arrivals, seed),
            device=self.device,
            state_digests=self.keep_recording,
            strategy=self.strategy,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain, versioned; of the arrivals their file and a hash."""
        return {
            "version": PLAN_VERSION,
            "first": self.first,
            "last": self.last,
            "system": self.system,
            "models": list(self.models),
            "budget_s": self.budget_s,
            "keep_going": self.keep_going,
            "recheck": self.recheck,
            "device": self.device,
            "strategy": self.strategy,
            "arrivals_path": self.arrivals_path,
            "arrivals_hash": arrivals_hash(self.arrivals),
        }


def plan_from_json(document: object) -> Plan:
    """The plan of `Plan.to_json`; its arrivals are read again. Raises `UsageError` for arrivals
    that are gone or differ, `ValueError` for a damaged document.
    """
    if not isinstance(document, Mapping) or document.get("version") != PLAN_VERSION:
        raise ValueError(f"a plan that is none of version {PLAN_VERSION}")
    try:
        models = tuple(_text(model) for model in document["models"])
        last, budget_s = document["last"], document["budget_s"]
        path = _text(document["arrivals_path"])
        plan = Plan(
            first=_seed(document["first"]),
            last=None if last is None else _seed(last),
            system=_text(document["system"]),
            models=models,
            budget_s=None if budget_s is None else float(budget_s),
            keep_going=document["keep_going"] is True,
            recheck=document["recheck"] is True,
            device=_text(document["device"]),
            strategy=_text(document["strategy"]),
            arrivals=read_arrivals(path) if path else (),
            arrivals_path=path,
        )
        wanted = _text(document["arrivals_hash"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"a damaged plan ({type(error).__name__}: {error})") from None
    if not 0 < len(models) <= MODELS_MAX:
        raise ValueError(f"a plan of {len(models)} models")
    if arrivals_hash(plan.arrivals) != wanted:
        raise UsageError("--arrivals", path, "the file has changed since the run; put it back")
    return plan


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise TypeError(f"no short text: {type(value).__name__}")
    return value


def _seed(value: object) -> int:
    if type(value) is not int or not 0 <= value <= SEED_MAX:
        raise TypeError(f"no seed: {value!r}"[:80])
    return value


def arrivals_hash(arrivals: tuple[Arrival, ...]) -> str:
    """A hash of every row; empty without any."""
    if not arrivals:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for row in arrivals:
        digest.update(repr((row.at_us, row.prompt_tokens, row.output_tokens, row.prefix)).encode())
    return digest.hexdigest()


def arrivals_window(arrivals: tuple[Arrival, ...], seed: int) -> tuple[Arrival, ...]:
    """The part of a trace that a seed uses: bounded, and another one for each seed."""
    if not arrivals:
        return ()
    first = seed * 97 % len(arrivals)
    rows = (arrivals[first:] + arrivals[:first])[:ARRIVALS_WINDOW]
    return tuple(
        Arrival(row.at_us, row.prompt_tokens, row.output_tokens, row.prefix[:PREFIX_IDS_KEPT])
        for row in rows
    )
