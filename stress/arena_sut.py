"""The real arena as a system under test."""

from __future__ import annotations

from collections.abc import Sequence

from onearena.core.answers import Demand
from onearena.core.arena import Arena
from onearena.core.arena_state import ArenaOptions
from onearena.core.demand import Caller, RequestShape, ServingPolicy, price
from onearena.core.device.interface import Device
from onearena.core.errors import UsageError
from onearena.core.plan import StoragePlan
from onearena.core.sizing import PlanSettings
from onearena.stress.sut import BandFacts, Capabilities, PlanFacts


class ArenaSut(Arena):
    """`Arena` with the facts the harness may know of its plan."""

    capabilities = Capabilities(pricing=True)

    def __init__(
        self, plan: StoragePlan, device: Device, options: ArenaOptions | None = None
    ) -> None:
        settings = options or ArenaOptions()
        super().__init__(plan.geometry, device, settings)
        self.device = device
        self.plan = plan_facts(plan, settings, self.schedule_stream)
        self._pools = plan.sub_pools
        self._declaration = plan.declaration

    def price(self, shape: RequestShape, policy: ServingPolicy, caller: Caller) -> Demand:
        """`core.demand.price` over the plan's sub-pools."""
        return price(self._pools, shape, policy, caller)

    def boot(self, budget_bytes: int, request_tokens: int) -> PlanFacts | None:
        """`StoragePlan.build` for the same model and pages."""
        settings = PlanSettings(
            budget_bytes=budget_bytes, max_request_tokens=request_tokens, max_running_requests=1
        )
        try:
            plan = StoragePlan.build(self._declaration, settings, page_size=self.plan.page_size)
        except UsageError:
            return None
        return plan_facts(plan, ArenaOptions(), self.schedule_stream)

    def state_digest(self) -> str:
        """Hash of all that later calls depend on; equal on every device. O(pool)."""
        return self._state.store.digest()


def plan_facts(plan: StoragePlan, options: ArenaOptions, schedule_stream: int) -> PlanFacts:
    """What the harness may know of `plan`."""
    bands = []
    for index, (pool, band) in enumerate(zip(plan.sub_pools, plan.geometry.bands, strict=True)):
        bands.append(
            BandFacts(
                name=pool.name,
                placement=band.placement.value,
                unit_bytes=band.grid.unit_bytes,
                entries_per_unit=pool.page_size,
                origin_bytes=band.grid.origin_bytes,
                first_unit=band.grid.first_unit,
                capacity_units=band.grid.capacity_units,
                lifetime=pool.lifetime.kind.value,
                span=pool.lifetime.length,
                zero_on_hand_out=index in options.zero_bands,
            )
        )
    host: Sequence[int] = options.host_units or (0,) * len(bands)
    return PlanFacts(
        arena_bytes=plan.arena_bytes,
        bands=tuple(bands),
        host_units=tuple(host),
        schedule_stream=schedule_stream,
        model=plan.declaration.name,
        page_size=plan.page_size,
    )
