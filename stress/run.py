"""One schedule: build device, system under test, world and oracles; run, drain, judge.

`run_schedule` is pure in its spec: equal specs give equal results, in any process. A spec is a
seed, or a recording to replay.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from onearena.core.device.modeled import ModeledDevice
from onearena.core.device.trace import (
    End,
    Enqueue,
    Observe,
    Record,
    TransferBegin,
    TransferEnd,
    WaitEvent,
)
from onearena.core.errors import DeviceError
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.stress.actors_admission import Admission
from onearena.stress.actors_copies import Copies
from onearena.stress.actors_forwards import Forwards
from onearena.stress.actors_memory import Memory
from onearena.stress.actors_requests import Requests
from onearena.stress.actors_transfers import Transfers
from onearena.stress.arrivals import Arrival
from onearena.stress.calls import Call, LoggedSut
from onearena.stress.choices import Choices, Divergence, StepRecord
from onearena.stress.drain import Actors, StuckError, drain
from onearena.stress.oracles.base import NO_VIOLATIONS, ByteRange, Violation
from onearena.stress.oracles.conservation import ConservationOracle
from onearena.stress.oracles.geometry import GeometryOracle
from onearena.stress.oracles.order import OrderOracle
from onearena.stress.oracles.suite import CallOracles
from onearena.stress.oracles.table_reach import TableReach
from onearena.stress.ranks import ORACLE as RANKS_ORACLE
from onearena.stress.ranks import Follower, follower_of, has_follower
from onearena.stress.strategies.coverage import is_guided, run_guided
from onearena.stress.strategies.pct import Pct
from onearena.stress.strategies.portfolio import DEFAULT, STRATEGIES
from onearena.stress.sut import SystemUnderTest
from onearena.stress.systems import Built, build_system
from onearena.stress.workload import Options, RequestSource, draw_options
from onearena.stress.world import World

if TYPE_CHECKING:
    from onearena.stress.real_forwards import RealChecks

ORDER_RECORDS: Final = (Enqueue, Record, WaitEvent, Observe, TransferBegin, TransferEnd)
ORACLES_OF_TRACES: Final = frozenset(("order", "threads-order", "threads-bytes"))
FULL_EVERY_STEPS: Final = 64
VIOLATIONS_KEPT_MAX: Final = 8
CROWDED_PER_MILLE: Final = 900


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run. `system` and `model` name what `stress/systems.py` builds.

    `recording` (set-up first) replays; `steps` 0 draws the length. `arrivals` feed the requests.
    `device` is one of `stress.systems.DEVICES`; with `state_digests` the result has a digest of the
    system's state after every step, and the recording. `judges` names the oracles whose reports
    count (None: all). Without `to_end` a run that broke no rule by its last step is not drained.
    `delays` draws how late the threads are, and decides nothing else. `strategy` is drawn from the
    portfolio unless it names one of `STRATEGIES`. `setup` gives decisions of the set-up to a run
    whose steps are drawn.
    """

    seed: int
    system: str = "arena"
    model: str = "any"
    steps: int = 0
    arrivals: tuple[Arrival, ...] = ()
    recording: tuple[StepRecord, ...] | None = None
    keep_trace: bool = False
    device: str = "modeled"
    delays: int = 0
    state_digests: bool = False
    judges: frozenset[str] | None = None
    to_end: bool = True
    strategy: str = DEFAULT
    setup: Mapping[str, Sequence[int]] | None = None

    def judged(self, oracle: str) -> bool:
        """Whether reports of that oracle count."""
        return self.judges is None or oracle in self.judges


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a schedule. `verdict` is pass, violation, crash or stuck.

    `crowded_steps` are those above 90% occupancy, `busy_steps` those with three or more forwards
    in flight on the device. `recording` is kept for failures. `real_accesses` counts what threads
    really did, `real_overlaps` those that began while one of another thread was going on. `pct` is
    depth, device actors and device steps of a PCT schedule.
    """

    seed: int
    system: str
    model: str
    verdict: str
    steps: int
    digest: str
    reach: Mapping[str, int]
    crowded_steps: int
    busy_steps: int
    violations: tuple[Violation, ...] = ()
    crash: str = ""
    divergence: Divergence | None = None
    recording: tuple[StepRecord, ...] = ()
    options: Options | None = None
    calls: int = 0
    records: int = 0
    model_asked: str = "any"
    device: str = "modeled"
    state_digests: tuple[str, ...] = ()
    real_accesses: int = 0
    real_overlaps: int = 0
    pct: tuple[int, int, int] = (0, 0, 0)
    strategy_asked: str = DEFAULT
    seconds: float = field(default=0.0, compare=False)  # of this process's clock


class Probe(Protocol):
    """Looks on while a schedule runs, and changes nothing."""

    def begin(self, world: World) -> None:
        """A schedule starts; nothing was called yet."""

    def tick(self) -> None:
        """A quiet point: a step of the world is over."""

    def end(self) -> None:
        """The last step is over, or one raised."""


@runtime_checkable
class HasStateDigest(Protocol):
    """A system that can say in one hash what state it is in."""

    def state_digest(self) -> str:
        """Equal states give equal digests."""


class _Meter:
    """Counts forwards running on the device, from the trace alone."""

    __slots__ = ("forwards",)

    def __init__(self) -> None:
        self.forwards: set[int] = set()

    def enqueue(self, record: Enqueue) -> None:
        if record.kind == UseKind.FORWARD:
            self.forwards.add(record.op)

    def end(self, record: End) -> None:
        self.forwards.discard(record.op)


@dataclass(slots=True)
class Rig:
    """Everything of one run, wired together."""

    world: World
    device: ModeledDevice
    actors: Actors
    cells: TableReach
    violations: list[Violation] = field(default_factory=list)
    oracles: list[Any] = field(default_factory=list)
    meter: _Meter = field(default_factory=_Meter)
    real: RealChecks | None = None
    follower: Follower | None = None
    state_digests: list[str] = field(default_factory=list)
    calls: int = 0
    crowded_steps: int = 0
    busy_steps: int = 0


def build_rig(spec: RunSpec, choices: Choices) -> Rig:
    """Wire device, system, oracles and world; draws the set-up from `choices`."""
    built = build_system(spec.system, spec.model, choices, device=spec.device, delays=spec.delays)
    follower = _follower(spec, choices)
    device, inner = built.device, built.sut
    violations: list[Violation] = []
    cells = TableReach()
    order = OrderOracle(locate=built.locate, reach=cells)
    call_oracles = CallOracles(inner.plan, capabilities=inner.capabilities, only=spec.judges)
    # Where nobody's verdict depends on calls, the oracles of calls are left out: half the time.
    watches_calls = spec.judges is None or not spec.judges <= ORACLES_OF_TRACES
    if watches_calls:
        call_oracles.watch(device.memory)

    def watch(feed: Callable[[Any], tuple[Violation, ...]]) -> Callable[[Any], None]:
        def follow(record: Any) -> None:
            found = feed(record)
            if found:
                violations.extend(v for v in found if _counts(v, spec, built))

        return follow

    device.trace.subscribe(watch(order.feed), ORDER_RECORDS)
    # The trace alone shows these oracles nothing wrong: its records go to their facts.
    for kind, handler in call_oracles.facts.trace_handlers.items() if watches_calls else ():
        device.trace.subscribe(handler, (kind,))
    shape = GeometryOracle(inner.plan, frontiers_retreat=inner.capabilities.moves)
    sums = ConservationOracle()

    def judge(call: Call) -> tuple[Violation, ...]:
        if not watches_calls:
            return NO_VIOLATIONS
        found = call_oracles.feed(call)
        if isinstance(call.answer, Snapshot):
            found += shape.feed(call.answer) if spec.judged(shape.name) else ()
            found += sums.feed(call.answer) if spec.judged(sums.name) else ()
        return found

    watch(shape.feed)(None)  # what it has to say of the plan
    sut = LoggedSut(inner, watch(judge))
    if follower is not None:
        names = device.trace.stream_names
        hears = watch(lambda heard: follower.hear(heard, names))
        sut.follow(hears)
        sut.follow_own(hears)
    options = draw_options(choices, inner.plan, inner.capabilities, steps=spec.steps)
    if spec.strategy != DEFAULT:
        options = replace(options, strategy=spec.strategy)
    strategy = STRATEGIES[options.strategy](choices)
    world = World(sut, device, choices, options, strategy)
    requests = Requests(world, RequestSource(choices, options, inner.plan, spec.arrivals))
    forwards = Forwards(world, requests)
    copies = Copies(world, requests) if inner.capabilities.host_tier else None
    transfers = Transfers(world, requests) if inner.capabilities.transfers else None
    Memory(world, requests)
    if inner.capabilities.pricing:
        Admission(world, requests)
    actors = Actors(requests, forwards, copies, transfers)
    oracles: list[Any] = [order, call_oracles] if watches_calls else [order]
    if follower is not None:
        oracles.append(follower)
    rig = Rig(world, device, actors, cells, violations, oracles, real=built.real, follower=follower)
    device.trace.subscribe(rig.meter.enqueue, (Enqueue,))
    device.trace.subscribe(rig.meter.end, (End,))
    return rig


def _follower(spec: RunSpec, choices: Choices) -> Follower | None:
    """The second rank, where this schedule has one: it needs an arena, and a device that waits."""
    wanted = spec.system == "arena" and spec.device == "modeled" and spec.judged(RANKS_ORACLE)
    if not wanted or not has_follower(spec.seed):
        return None
    return follower_of(spec.seed, spec.model, choices)


def _counts(violation: Violation, spec: RunSpec, built: Built) -> bool:
    """Whether a report is one that this run is judged by."""
    return spec.judged(violation.oracle) and violation.oracle not in built.unjudged


def run_schedule(
    spec: RunSpec, probe: Probe | None = None, *, choices: Choices | None = None
) -> RunResult:
    """Run one schedule to its end or to the first broken rule. Never raises for what the system
    does. `probe` looks on and changes nothing. `choices` takes all decisions in the seed's place.
    """
    if choices is None and is_guided(spec):
        return run_guided(spec, _run_drawn, probe)
    started = time.perf_counter()
    recording = spec.recording
    if choices is None:
        choices = Choices(spec.seed, setup=recording[0].decisions if recording else spec.setup)
    rig: Rig | None = None
    verdict, crash = "pass", ""
    try:
        rig = build_rig(spec, choices)
        run_rig(rig, spec, probe)
    except StuckError as stuck:
        verdict, crash = "stuck", str(stuck)
    except Exception:  # noqa: BLE001 - whatever a system raises is a result, not our end
        verdict, crash = "crash", traceback.format_exc(limit=12)
    if rig is not None and rig.real is not None:
        verdict, crash = _end_real(rig, spec, verdict, crash)
    if rig is None:
        return RunResult(
            spec.seed,
            spec.system,
            spec.model,
            verdict,
            0,
            "",
            {},
            0,
            0,
            crash=crash,
            model_asked=spec.model,
            device=spec.device,
        )
    if rig.violations:
        verdict = "violation"
    failed = verdict != "pass"
    world = rig.world
    return RunResult(
        seed=spec.seed,
        system=spec.system,
        model=world.facts.model or spec.model,
        verdict=verdict,
        steps=world.taken,
        digest=_digest(rig),
        reach={**world.reach, **rig.cells.counts(), **_reach_of_ranks(rig)},
        crowded_steps=rig.crowded_steps,
        busy_steps=rig.busy_steps,
        violations=tuple(rig.violations[:VIOLATIONS_KEPT_MAX]),
        crash=crash,
        divergence=choices.divergence,
        recording=choices.record() if failed or recording or spec.state_digests else (),
        options=world.options,
        calls=world.sut.serial,
        records=rig.device.trace.count,
        model_asked=spec.model,
        device=spec.device,
        state_digests=tuple(rig.state_digests),
        real_accesses=rig.real.accesses if rig.real is not None else 0,
        real_overlaps=rig.real.overlaps if rig.real is not None else 0,
        pct=_pct(world.strategy),
        strategy_asked=spec.strategy,
        seconds=time.perf_counter() - started,
    )


def _reach_of_ranks(rig: Rig) -> dict[str, int]:
    return {} if rig.follower is None else {"ranks.calls": rig.follower.calls}


def _run_drawn(spec: RunSpec, probe: Probe | None) -> RunResult:
    """A schedule of its own: part of no block of coverage-guided ones."""
    return run_schedule(spec, probe, choices=Choices(spec.seed, setup=spec.setup))


def _pct(strategy: object) -> tuple[int, int, int]:
    """What the bound of a PCT schedule is made of."""
    if not isinstance(strategy, Pct):
        return 0, 0, 0
    return strategy.depth, strategy.actors, strategy.taken


def run_rig(rig: Rig, spec: RunSpec, probe: Probe | None = None) -> None:
    """All steps and the end of a run, or up to the first violation; raises what the system does."""
    if probe is None:
        _run_steps(rig, spec)
    else:
        probe.begin(rig.world)
        try:
            _run_steps(rig, spec, probe)
        finally:
            probe.end()
    if not rig.violations:
        if spec.to_end:
            _finish(rig)
    else:
        # A last look: what the state shows belongs to the report of what the calls showed.
        rig.world.survey()


def _run_steps(rig: Rig, spec: RunSpec, probe: Probe | None = None) -> None:
    world, meter = rig.world, rig.meter
    crowded_at = world.facts.arena_bytes * CROWDED_PER_MILLE // 1000
    labels: Sequence[StepRecord] | None = None
    if spec.recording:
        labels = [step for step in spec.recording[1:] if step.label != "drain"]
    count = len(labels) if labels is not None else world.options.steps
    for index in range(count):
        if labels is None:
            world.step()
        else:
            world.replay_step(labels[index].label, dict(labels[index].decisions))
        if probe is not None:
            probe.tick()
        if spec.state_digests:
            rig.state_digests.append(state_digest(world.sut.inner))
        if rig.real is not None:
            rig.violations.extend(v for v in rig.real.poll() if spec.judged(v.oracle))
        if rig.violations:
            return
        if world.held_bytes >= crowded_at:
            rig.crowded_steps += 1
        if len(meter.forwards) >= 3:
            rig.busy_steps += 1
        if not index % world.options.survey_every_steps:
            world.survey()
            if rig.violations:
                return


def _end_real(rig: Rig, spec: RunSpec, verdict: str, crash: str) -> tuple[str, str]:
    """What the threads' bytes and accesses show at the end; then they are joined."""
    real = rig.real
    assert real is not None
    try:
        if verdict != "crash":
            rig.violations.extend(v for v in real.finish() if spec.judged(v.oracle))
    except DeviceError as error:
        verdict, crash = "crash", f"{crash}{error}"
    try:
        real.close()
    except DeviceError as error:
        verdict, crash = "crash", f"{crash}{error}"
    return verdict, crash


def state_digest(system: SystemUnderTest) -> str:
    """A digest of all that later calls of the system depend on: its own, or of its snapshot."""
    if isinstance(system, HasStateDigest):
        return system.state_digest()
    return hashlib.blake2b(repr(system.snapshot()).encode(), digest_size=16).hexdigest()


def _finish(rig: Rig) -> None:
    """Drain everything, then the checks that only hold at the end."""
    rig.world.choices.begin_step("drain")
    drain(rig.world, rig.actors)
    if rig.violations:
        return
    last = rig.world.sut.snapshot()
    for oracle in rig.oracles:
        rig.violations.extend(oracle.finish())
    for band in last.bands:
        left = band.live_units + band.pending_units + band.vacated_units
        if left and not rig.violations:
            rig.violations.append(
                Violation(
                    "liveness",
                    "1",
                    f"after everything was freed and every use had ended, {band.live_units} live, "
                    f"{band.pending_units} pending and {band.vacated_units} vacated units of "
                    f"{band.name} were left.",
                    bytes=ByteRange("arena", band.start_bytes, band.end_bytes),
                )
            )


def _digest(rig: Rig) -> str:
    """A hash over the device trace and what the world did."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(rig.device.trace.digest().encode())
    for name, count in sorted(rig.world.reach.items()):
        digest.update(b"%b=%d;" % (name.encode(), count))
    digest.update(b"%d,%d" % (rig.world.taken, rig.world.sut.serial))
    return digest.hexdigest()


__all__ = ["Call", "RunResult", "RunSpec", "run_schedule"]
