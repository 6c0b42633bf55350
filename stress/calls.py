"""The log of calls to the system under test, as the oracles get it, and the proxy that writes it.

A `Call` is fed after the call returned or raised; the device records of what the call enqueued
come before it. `args` are the values in the order of the method's signature in `stress/sut.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from onearena.core.answers import Answer, Blocked, Demand, Infeasible
from onearena.core.demand import Caller, RequestShape, ServingPolicy
from onearena.core.device.interface import EventId, StreamId, TransferId, Work
from onearena.core.errors import MisuseError
from onearena.core.eviction import Candidate, Eviction
from onearena.core.rules import UseKind
from onearena.core.snapshot import Snapshot
from onearena.stress.sut import Grant, PlanFacts, PricingSystem, SystemUnderTest, Use


class Call(NamedTuple):
    """One call of the world.

    `answer` is what it returned (None when it raised), `error` what it raised. `probe` marks a
    call that a correct system refuses with `MisuseError` and nothing changed; such a call stands
    between two `snapshot` calls. `step` is the world step it belongs to.
    """

    serial: int
    step: int
    name: str
    args: tuple[object, ...]
    answer: object
    error: Exception | None = None
    probe: bool = False


class LoggedSut:
    """Stands before a system under test and hands every call to `sink`; adds about a microsecond a
    call.

    Same methods, same answers, same exceptions: an exception is logged, then raised on.
    """

    __slots__ = (
        "_own_sink",
        "_record_sink",
        "capabilities",
        "device",
        "inner",
        "plan",
        "probing",
        "serial",
        "step",
    )

    def __init__(self, inner: SystemUnderTest, sink: Callable[[Call], object]) -> None:
        self.inner = inner
        self.capabilities = inner.capabilities
        self.plan = inner.plan
        self.device = inner.device
        self.serial = 0
        self.step = 0
        self.probing = False
        self._record_sink = sink
        self._own_sink: Callable[[Use], object] | None = None

    def follow_own(self, sink: Callable[[Use], object]) -> None:
        """Hand every use that `retire_own` retires to `sink`; there is one at most."""
        assert self._own_sink is None, "somebody follows already"
        self._own_sink = sink

    def follow(self, sink: Callable[[Call], object]) -> None:
        """Hand every later call to `sink` too, after those that had it before."""
        before = self._record_sink

        def both(call: Call) -> None:
            before(call)
            sink(call)

        self._record_sink = both

    def _done(self, name: str, args: tuple[object, ...], answer: object) -> None:
        self.serial += 1
        self._record_sink(Call(self.serial, self.step, name, args, answer, None, self.probing))

    def _failed(self, name: str, args: tuple[object, ...], error: Exception) -> None:
        self.serial += 1
        self._record_sink(Call(self.serial, self.step, name, args, None, error, self.probing))

    def fits(self, demand: Sequence[int]) -> Answer:
        """Logged `SystemUnderTest.fits`."""
        args = (tuple(demand),)
        try:
            answer = self.inner.fits(demand)
        except Exception as error:
            self._failed("fits", args, error)
            raise
        self._done("fits", args, answer)
        return answer

    def allocate(
        self, demand: Sequence[int], *, writer: UseKind, stream: StreamId, caller: str
    ) -> Grant | Blocked | Infeasible:
        """Logged `SystemUnderTest.allocate`."""
        args = (tuple(demand), writer, stream, caller)
        try:
            answer = self.inner.allocate(demand, writer=writer, stream=stream, caller=caller)
        except Exception as error:
            self._failed("allocate", args, error)
            raise
        self._done("allocate", args, answer)
        return answer

    def price(self, shape: RequestShape, policy: ServingPolicy, caller: Caller) -> Demand:
        """Logged `SystemUnderTest.price`."""
        args = (shape, policy, caller)
        try:
            answer = cast("PricingSystem", self.inner).price(shape, policy, caller)
        except Exception as error:
            self._failed("price", args, error)
            raise
        self._done("price", args, answer)
        return answer

    def evict(
        self, demand: Sequence[int], candidates: Sequence[Candidate[int]], *, evictable: Demand
    ) -> Eviction[int]:
        """Logged `SystemUnderTest.evict`."""
        args = (tuple(demand), tuple(candidates), evictable)
        try:
            pricing = cast("PricingSystem", self.inner)
            answer = pricing.evict(demand, candidates, evictable=evictable)
        except Exception as error:
            self._failed("evict", args, error)
            raise
        self._done("evict", args, answer)
        return answer

    def boot(self, budget_bytes: int, request_tokens: int) -> PlanFacts | None:
        """Logged `PricingSystem.boot`."""
        args = (budget_bytes, request_tokens)
        try:
            answer = cast("PricingSystem", self.inner).boot(budget_bytes, request_tokens)
        except Exception as error:
            self._failed("boot", args, error)
            raise
        self._done("boot", args, answer)
        return answer

    def free(self, ids: Sequence[int]) -> None:
        """Logged `SystemUnderTest.free`."""
        args = (tuple(ids),)
        try:
            self.inner.free(ids)
        except Exception as error:
            self._failed("free", args, error)
            raise
        self._done("free", args, None)

    def share(self, ids: Sequence[int]) -> None:
        """Logged `SystemUnderTest.share`."""
        args = (tuple(ids),)
        try:
            self.inner.share(ids)
        except Exception as error:
            self._failed("share", args, error)
            raise
        self._done("share", args, None)

    def fork(self, ids: Sequence[int], *, stream: StreamId) -> Grant | Blocked | Infeasible:
        """Logged `SystemUnderTest.fork`."""
        args = (tuple(ids), stream)
        try:
            answer = self.inner.fork(ids, stream=stream)
        except Exception as error:
            self._failed("fork", args, error)
            raise
        self._done("fork", args, answer)
        return answer

    def record(
        self,
        kind: UseKind,
        stream: StreamId,
        *,
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        host_reads: Sequence[int] = (),
        host_writes: Sequence[int] = (),
    ) -> Use | Blocked:
        """Logged `SystemUnderTest.record`."""
        args = (kind, stream, tuple(reads), tuple(writes), tuple(host_reads), tuple(host_writes))
        try:
            answer = self.inner.record(
                kind,
                stream,
                reads=reads,
                writes=writes,
                host_reads=host_reads,
                host_writes=host_writes,
            )
        except Exception as error:
            self._failed("record", args, error)
            raise
        self._done("record", args, answer)
        return answer

    def publish(self, kind: UseKind, ids: Sequence[int], *, peer: int) -> Use | Blocked:
        """Logged `SystemUnderTest.publish`."""
        args = (kind, tuple(ids), peer)
        try:
            answer = self.inner.publish(kind, ids, peer=peer)
        except Exception as error:
            self._failed("publish", args, error)
            raise
        self._done("publish", args, answer)
        return answer

    def launch(self, use: Use, work: Work) -> EventId | TransferId:
        """Logged `SystemUnderTest.launch`."""
        args = (use, work)
        try:
            answer = self.inner.launch(use, work)
        except Exception as error:
            self._failed("launch", args, error)
            raise
        self._done("launch", args, answer)
        return answer

    def process(self, use: Use) -> None:
        """Logged `SystemUnderTest.process`."""
        try:
            self.inner.process(use)
        except Exception as error:
            self._failed("process", (use,), error)
            raise
        self._done("process", (use,), None)

    def settle(self, use: Use) -> None:
        """Logged `SystemUnderTest.settle`."""
        try:
            self.inner.settle(use)
        except Exception as error:
            self._failed("settle", (use,), error)
            raise
        self._done("settle", (use,), None)

    def retire(self, use: Use, *, failed: bool = False) -> None:
        """Logged `SystemUnderTest.retire`."""
        try:
            self.inner.retire(use, failed=failed)
        except Exception as error:
            self._failed("retire", (use, failed), error)
            raise
        self._done("retire", (use, failed), None)

    def outstanding(self) -> tuple[tuple[Use, EventId], ...]:
        """Not logged: it decides nothing."""
        return self.inner.outstanding()

    def end_transfer(self, use: Use, *, outcome: str) -> None:
        """Logged `SystemUnderTest.end_transfer`."""
        try:
            self.inner.end_transfer(use, outcome=outcome)
        except Exception as error:
            self._failed("end_transfer", (use, outcome), error)
            raise
        self._done("end_transfer", (use, outcome), None)

    def disconnect(self, peer: int) -> None:
        """Logged `SystemUnderTest.disconnect`."""
        try:
            self.inner.disconnect(peer)
        except Exception as error:
            self._failed("disconnect", (peer,), error)
            raise
        self._done("disconnect", (peer,), None)

    def compact(self, *, budget_units: int) -> int:
        """Logged `SystemUnderTest.compact`."""
        try:
            answer = self.inner.compact(budget_units=budget_units)
        except Exception as error:
            self._failed("compact", (budget_units,), error)
            raise
        self._done("compact", (budget_units,), answer)
        return answer

    def move(self, band: int, ids: Sequence[int]) -> int | Blocked:
        """Logged `SystemUnderTest.move`."""
        args = (band, tuple(ids))
        try:
            answer = self.inner.move(band, ids)
        except Exception as error:
            self._failed("move", args, error)
            raise
        self._done("move", args, answer)
        return answer

    def pin(self, ids: Sequence[int], *, pinned: bool) -> None:
        """Logged `SystemUnderTest.pin`."""
        args = (tuple(ids), pinned)
        try:
            self.inner.pin(ids, pinned=pinned)
        except Exception as error:
            self._failed("pin", args, error)
            raise
        self._done("pin", args, None)

    def reserve_host(self, band: int, count: int) -> tuple[int, ...]:
        """Logged `SystemUnderTest.reserve_host`."""
        try:
            answer = self.inner.reserve_host(band, count)
        except Exception as error:
            self._failed("reserve_host", (band, count), error)
            raise
        self._done("reserve_host", (band, count), answer)
        return answer

    def free_host(self, ids: Sequence[int]) -> None:
        """Logged `SystemUnderTest.free_host`."""
        args = (tuple(ids),)
        try:
            self.inner.free_host(ids)
        except Exception as error:
            self._failed("free_host", args, error)
            raise
        self._done("free_host", args, None)

    def resolve(self, ids: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """Not logged: it decides nothing."""
        return self.inner.resolve(ids)

    def snapshot(self, *, units: bool = True) -> Snapshot:
        """Logged `SystemUnderTest.snapshot`."""
        answer = self.inner.snapshot(units=units)
        self._done("snapshot", (units,), answer)
        return answer

    def retire_own(self, use: Use) -> None:
        """Retire a use the system enqueued itself; not logged, since no call of the world recorded
        it.
        """
        self.inner.retire(use)
        if self._own_sink is not None:
            self._own_sink(use)

    def probe(self, call: Callable[[], object]) -> MisuseError | None:
        """Make a call that must be refused, between two snapshots; returns the refusal."""
        self.snapshot()
        self.probing = True
        try:
            call()
        except MisuseError as error:
            return error
        finally:
            self.probing = False
            self.snapshot()
        return None
