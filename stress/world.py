"""The world: what a serving engine around the allocator may do, one legal step at a time.

A world step is one host action (a call or a short run of calls that belong together) or one step
of the device. The strategy chooses the kind from those possible now, the actors choose the rest;
every choice is named and recorded. All steps are legal for a correct system; the world obeys the
engine's own duties (a shared unit is forked before it is written, a use is retired after its event
was seen, record and launch are one step) and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from onearena.core.answers import Blocked, Fits, Infeasible
from onearena.core.device.interface import ZERO, EventId, TransferId
from onearena.core.device.modeled import ModeledDevice, Step, StepKind
from onearena.core.rules import UseKind
from onearena.core.uses import Grant, Use
from onearena.stress.calls import LoggedSut
from onearena.stress.choices import Choices
from onearena.stress.forwards import NOTHING, UnitState
from onearena.stress.workload import Options

if TYPE_CHECKING:
    from onearena.metrics.recorder import Recorder

DEAD_KEPT_MAX: Final = 32
_COMPLETE: Final = StepKind.COMPLETE
DRAIN_ROUNDS_MAX: Final = 20_000


class StuckError(Exception):
    """The drain phase made no progress: a liveness failure."""


class StrategyLike(Protocol):
    """What the world asks of a strategy; see `stress/strategies`."""

    def kind(self, kinds: Sequence[str], weights: Sequence[int], can: Callable[[int], bool]) -> int:
        """Index of the kind of the next world step, one that `can` be taken; -1 when none can."""

    def device(self, steps: Sequence[Step], names: Sequence[str]) -> int:
        """Index of the next device step."""


class OpenUse:
    """A launched use that is not retired. `done` is called with whether it failed."""

    __slots__ = ("done", "event", "fails", "processed", "settled", "use")

    def __init__(
        self, use: Use, event: EventId, done: Callable[[bool], None], *, fails: bool = False
    ) -> None:
        self.use = use
        self.event = event
        self.done = done
        self.fails = fails
        self.processed = False
        self.settled = False


class OpenTransfer:
    """A begun transfer. `done` gets the outcome: done, failed, cancelled or lost."""

    __slots__ = ("cancelled", "done", "ids", "peer", "transfer", "use")

    def __init__(
        self,
        use: Use,
        transfer: TransferId,
        ids: Sequence[int],
        peer: int,
        done: Callable[[str], None],
    ) -> None:
        self.use = use
        self.transfer = transfer
        self.ids = tuple(ids)
        self.peer = peer
        self.done = done
        self.cancelled = False


Act = Callable[[], None]
Can = Callable[[], bool]


class World:
    """State that all actors share, and the loop that takes steps."""

    def __init__(
        self,
        sut: LoggedSut,
        device: ModeledDevice,
        choices: Choices,
        options: Options,
        strategy: StrategyLike,
    ) -> None:
        self.sut = sut
        self.device = device
        self.choices = choices
        self.options = options
        self.strategy = strategy
        self.facts = sut.plan
        self.bands = self.facts.bands
        self.units: dict[int, UnitState] = {}
        self.dead: list[int] = []
        self.held_bytes = 0
        self.uses: list[OpenUse] = []
        self.transfers: list[OpenTransfer] = []
        self.lost: dict[int, list[OpenTransfer]] = {}
        self.reach: dict[str, int] = {}
        self.reports: Recorder | None = None  # who is told of evictions and retractions
        self.taken = 0
        self.draining = False
        self.schedule = self.facts.schedule_stream
        self.forward_streams = (device.stream("forward0"), device.stream("forward1"))
        self.d2h_streams = (device.stream("d2h0"), device.stream("d2h1"))
        self.h2d_streams = (device.stream("h2d0"), device.stream("h2d1"))
        self.forks = device.stream("forks")
        self.side = device.stream("side")
        self.stamp = 0
        self.running_forwards = 0
        self._names = ["device"]
        self._cans: list[Can] = [self._device_can]
        self._acts: list[Act] = [self.device_step]
        self._weights = [options.weights["device"]]
        self._steps: list[Step] = []
        self._every: list[Step] = []
        self._stalled: set[TransferId] = set()
        self._faults = bool(options.faults["transfer_fail"] or options.faults["peer_dies"])
        if options.faults["query_false"]:
            device.gate = self._gate

    # -- steps
    def add(self, kind: str, can: Can, act: Act) -> None:
        """Offer a kind of step, if its weight in this run is not 0."""
        weight = self.options.weights.get(kind, 0)
        if weight:
            self._names.append(kind)
            self._cans.append(can)
            self._acts.append(act)
            self._weights.append(weight)

    def _device_can(self) -> bool:
        self._every = self._steps = self.device.enabled()
        if self._stalled:
            held = self._stalled
            self._steps = [s for s in self._every if s.kind <= _COMPLETE or s.number not in held]
        return bool(self._steps)

    def step(self) -> None:
        """Take one step of the strategy's choosing."""
        chosen = self.strategy.kind(self._names, self._weights, self._can)
        if chosen < 0:
            self.begin("idle")
        elif not chosen:
            self.device_step()
        else:
            kind = self._names[chosen]
            self.begin(kind)
            self.note("step." + kind)
            self._acts[chosen]()

    def _can(self, index: int) -> bool:
        return self._cans[index]()

    def replay_step(self, label: str, given: dict[str, Sequence[int]] | None) -> None:
        """Take the recorded step `label`; one that is not possible now is skipped and diverges."""
        if label.startswith("dev:"):
            steps = self.device.enabled()
            names = [self.step_name(step, steps) for step in steps]
            fault = [] if label in names else self.device.enabled(faults=True)
            self.taken += 1
            self.sut.step = self.taken
            self.choices.begin_step(label, given=given)
            if label in names:
                self.device.step(steps[names.index(label)])
                return
            names = [self.step_name(step, fault) for step in fault]
            if label in names:
                self.device.step(fault[names.index(label)])
                self._note_fault(fault[names.index(label)])
            else:
                self.choices.diverge(label, "the device cannot take this step now")
            return
        self.begin(label, given)
        if label == "idle":
            return
        if label not in self._names or not self._cans[self._names.index(label)]():
            self.choices.diverge(label, "this step is not possible now")
            return
        self.note("step." + label)
        self._acts[self._names.index(label)]()

    def begin(self, label: str, given: dict[str, Sequence[int]] | None = None) -> None:
        """Count the step and open it in the recording."""
        self.taken += 1
        self.sut.step = self.taken
        self.choices.begin_step(label, given=given)

    def device_step(self) -> None:
        """One step of the device; now and then one of its faults."""
        steps = self._steps
        if self._faults and self.transfers:
            fault = self._drawn_fault()
            if fault is not None:
                every = self.device.enabled(faults=True)
                self.begin(self.step_name(fault, every))
                self.device.step(fault)
                self._note_fault(fault)
                return
        # Ranks among all transfers, those that stand still too: a replay knows no others.
        names = [self.step_name(step, self._every) for step in steps]
        chosen = self.strategy.device(steps, names)
        self.begin(names[chosen])
        self.device.step(steps[chosen])

    def step_name(self, step: Step, steps: Sequence[Step]) -> str:
        """A name that survives edits: the stream's, or the transfer's rank among its like."""
        if step.kind <= StepKind.COMPLETE:
            return "dev:" + self.device.trace.stream_names[step.number]
        if step.kind is StepKind.PEER_DIES:
            return f"dev:peer_dies:{step.number}"
        like = [other.number for other in steps if other.kind is step.kind]
        return f"dev:{step.kind.name.lower()}:{like.index(step.number)}"

    def _drawn_fault(self) -> Step | None:
        faults = self.options.faults
        if self.choices.draw("device.fault", 1000) >= 80:
            return None
        every = self.device.enabled(faults=True)
        kind = StepKind.TRANSFER_FAIL
        if self.choices.draw("device.peer_dies", 1000) < faults["peer_dies"]:
            kind = StepKind.PEER_DIES
        elif self.choices.draw("device.transfer_fail", 1000) >= faults["transfer_fail"]:
            return None
        steps = [step for step in every if step.kind is kind]
        return steps[self.choices.draw("device.which", len(steps))] if steps else None

    def _note_fault(self, fault: Step) -> None:
        self.note("fault." + fault.kind.name.lower())

    def fault(self, name: str) -> bool:
        """Whether a fault of `workload.FAULTS` happens now; none does once the end has begun."""
        rate = self.options.faults[name]
        if not rate or self.draining or not self.choices.chance(f"fault.{name}", rate):
            return False
        self.note("fault." + name)
        return True

    def _gate(self, kind: str, _: int) -> bool:
        return kind != "event" or not self.fault("query_false")

    def stop_faults(self) -> None:
        """The end has begun: what stood still moves on, and queries tell the truth."""
        self.draining = True
        self._stalled.clear()
        self.device.gate = None

    def survey(self) -> None:
        """Take a snapshot and count the states and protections that are there now."""
        seen = self.sut.snapshot()
        self.note("snapshots")
        for band in seen.bands:
            for state, count in (
                ("hole", band.hole_units),
                ("pending", band.pending_units),
                ("vacated", band.vacated_units),
                ("transfer", band.transfer_units),
                ("pinned", band.pinned_units),
                ("quarantined", band.quarantined_units),
            ):
                if count:
                    self.note("state." + state)
        if seen.fences:
            self.note("state.fenced")

    def note(self, name: str, count: int = 1) -> None:
        """Count something reached."""
        self.reach[name] = self.reach.get(name, 0) + count

    # -- ids
    def next_stamp(self) -> int:
        """A stamp nobody has used."""
        self.stamp += 1
        return self.stamp

    def born(self, grant: Grant) -> tuple[tuple[int, ...], ...]:
        """Enter granted ids."""
        for band, ids in enumerate(grant.ids):
            nbytes = self.bands[band].unit_bytes
            # Where units are zeroed on hand-out, zeros are content that anybody may read.
            fresh = ((0, nbytes, ZERO),) if self.bands[band].zero_on_hand_out else NOTHING
            for name in ids:
                assert name not in self.units, f"id {name} was handed out twice"
                self.units[name] = UnitState(band, nbytes)
                self.units[name].runs = fresh
                self.held_bytes += nbytes
        return grant.ids

    def allocate(
        self, demand: Sequence[int], writer: UseKind, stream: int, caller: str
    ) -> tuple[tuple[int, ...], ...] | None:
        """Ask for units, sometimes after asking whether they fit; None and a note when refused."""
        if self.choices.chance("allocate.ask", 250):
            fits = self.sut.fits(demand)
            self.note("rung." + fits.rung.name.lower() if isinstance(fits, Fits) else "fits.no")
            if isinstance(fits, Fits) and fits.rung and self.fault("refuse_rung"):
                return None
        answer = self.sut.allocate(demand, writer=writer, stream=stream, caller=caller)
        return self._granted(answer, caller)

    def fork(self, ids: Sequence[int], stream: int) -> tuple[int, ...] | None:
        """Fork ids; the new ones in the order of the old, or None when there is no room."""
        answer = self.sut.fork(ids, stream=stream)
        granted = self._granted(answer, "fork")
        if granted is None:
            return None
        queues = [list(band) for band in granted]
        made: list[int] = []
        for name in ids:
            old = self.units[name]
            new = queues[old.band].pop(0)
            made.append(new)
            self.units[new].runs = old.runs
            self.units[new].stamp = old.stamp
        for name in ids:
            self._unreference(name)
        return tuple(made)

    def _granted(
        self, answer: Grant | Blocked | Infeasible, caller: str
    ) -> tuple[tuple[int, ...], ...] | None:
        if isinstance(answer, Grant):
            self.note("answer.grant." + caller)
            return self.born(answer)
        blocked = isinstance(answer, Blocked)
        self.note(("answer.blocked." if blocked else "answer.infeasible.") + caller)
        return None

    def share(self, ids: Sequence[int]) -> None:
        """One more reference each."""
        if ids:
            self.sut.share(ids)
            for name in ids:
                self.units[name].refs += 1

    def free(self, ids: Sequence[int]) -> None:
        """One reference less each; the world forgets ids nobody holds."""
        if ids:
            self.sut.free(ids)
            for name in ids:
                self._unreference(name)

    def _unreference(self, name: int) -> None:
        unit = self.units[name]
        unit.refs -= 1
        if not unit.refs:
            del self.units[name]
            self.held_bytes -= unit.nbytes
            if unit.fixed:
                self.note("free.under_transfer")
            if len(self.dead) >= DEAD_KEPT_MAX:
                del self.dead[: DEAD_KEPT_MAX // 2]
            self.dead.append(name)

    # -- uses
    def room_for_use(self) -> bool:
        """Whether another use may be in flight."""
        return len(self.uses) < self.options.uses_max

    def read_undefined(
        self, kind: str, *, reads: Sequence[int] = (), host_reads: Sequence[int] = ()
    ) -> None:
        """Content that a failed copy or receive left undefined is read: that must be refused."""
        if not self.sut.capabilities.virtual_ids:
            return
        use = UseKind.FORWARD if reads else UseKind.LOAD
        stream = self.forward_streams[0] if reads else self.schedule
        refused = self.sut.probe(
            lambda: self.sut.record(use, stream, reads=reads, host_reads=host_reads)
        )
        self.note(("misuse.refused." if refused is not None else "misuse.accepted.") + kind)

    def opened(
        self, use: Use, event: int, done: Callable[[bool], None], *, fails: bool = False
    ) -> OpenUse:
        """Enter a launched use."""
        entry = OpenUse(use, event, done, fails=fails)
        self.uses.append(entry)
        return entry

    def begun(
        self,
        use: Use,
        transfer: int,
        ids: Sequence[int],
        peer: int,
        done: Callable[[str], None],
    ) -> None:
        """Enter a begun transfer; its units are fixed."""
        for name in ids:
            unit = self.units.get(name)
            if unit is not None:
                unit.fixed += 1
        self.transfers.append(OpenTransfer(use, transfer, ids, peer, done))
        if self.fault("transfer_stall"):
            self._stalled.add(transfer)

    def retire(self, entry: OpenUse) -> None:
        """The host has seen the event: the use is over."""
        self.uses.remove(entry)
        if not entry.processed and entry.use.kind is UseKind.FORWARD:
            entry.processed = True
            self.sut.process(entry.use)
        self.sut.retire(entry.use, failed=entry.fails)
        if entry.fails:
            self.note("fault.copy_failed")
        entry.done(entry.fails)

    def unfix(self, ids: Sequence[int]) -> None:
        """A transfer of these units is over."""
        for name in ids:
            unit = self.units.get(name)
            if unit is not None:
                unit.fixed -= 1

    def pick_of(self, name: str, count: int, window: int = 0) -> int:
        """An index below `count`; with `window`, below that, for lists whose old entries come
        first.
        """
        return self.choices.pick(name, min(count, window) if window else count)
