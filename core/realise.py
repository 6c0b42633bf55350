"""Realising demands: hand-out in place, planned moves, zeroing, forks, opportunistic compaction.

`fit` and `relayout` decide on a frozen view; this executes. Free functions over `ArenaState`;
control thread only, stream waits only: nothing here waits on the host (rule 14).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onearena.core import kernels, relayout
from onearena.core.answers import Answer, Blocked, Demand, Fits, Infeasible
from onearena.core.arena_state import ArenaState
from onearena.core.device.interface import Access, Space, Work
from onearena.core.device.interface import Touch as DeviceTouch
from onearena.core.errors import MisuseError
from onearena.core.fit_words import fits_words
from onearena.core.ledger import Touch, Units
from onearena.core.recording import settle
from onearena.core.relayout_words import plan_words
from onearena.core.rules import UseKind
from onearena.core.store import Handout
from onearena.core.uses import Grant
from onearena.core.words import (
    B_FIRST,
    B_HOLE_MAP,
    B_LEVELS,
    B_OCCUPIED_MAP,
    LIVE,
    UNIT_PINNED,
    UNIT_QUARANTINED,
    UNIT_TRANSFERS_MASK,
    UNIT_TRANSFERS_SHIFT,
    UNIT_WRITTEN,
    UnitState,
    band_header,
)


def query(state: ArenaState, demand: Demand) -> Answer:
    """Whether some layout serves the demand. Pure."""
    return fits_words(state.store.words, demand)


def allocate(state: ArenaState, demand: Demand, caller: str) -> Handout | Blocked | Infeasible:
    """Hand out the whole demand or nothing: in place, else by the cheapest plan."""
    before = state.frontiers()
    handout = state.store.allocate(demand)
    rung = "none"
    if handout is None:
        state.observe_planning()
        plan = plan_words(state.store.words, demand)
        state.observe_planned(plan.rung.name if isinstance(plan, relayout.Plan) else "refused")
        if not isinstance(plan, relayout.Plan):
            if state.promised == (state.store.epoch, demand):
                state.counters["broken_promises"] += 1
            outcome = "blocked" if isinstance(plan, Blocked) else "infeasible"
            state.counters[f"demands/{caller}/none/{outcome}"] += 1
            if isinstance(plan, Infeasible):
                state.counters[f"bound/{plan.binding_band}"] += 1
            return plan
        rung = plan.rung.name.lower()
        execute(state, plan)
        before = state.frontiers()
        handout = state.store.allocate(demand)
        assert handout is not None, f"plan {plan} was executed and demand {demand} does not fit"
    state.overgrow(before)
    state.counters[f"demands/{caller}/{rung}/fits"] += 1
    for band, count in enumerate(demand):
        state.counters[f"allocated_units/{band}"] += count
    state.remember(handout.ids.tolist(), handout.units)
    zero(state, handout)
    return handout


def grant_of(handout: Handout, demand: Demand) -> Grant:
    """Ids by band, in chain order."""
    ids, at, parts = handout.ids.tolist(), 0, []
    for count in demand:
        parts.append(tuple(ids[at : at + count]))
        at += count
    return Grant(tuple(parts))


def zero(state: ArenaState, handout: Handout) -> None:
    """Hand-out hygiene: a recorded write after the old uses and before the first writer (rule
    6).
    """
    if not state.options.zero_bands or not len(handout.ids):
        return
    touches = tuple(
        (band, units)
        for band, units in state.by_band(handout.ids.tolist(), handout.units)
        if band in state.options.zero_bands
    )
    if not touches:
        return
    accesses = tuple(
        state.unit_access(band, unit, writes=True)
        for band, units in touches
        for unit in units.tolist()
    )
    work = Work(
        UseKind.ZEROING,
        accesses,
        label="zero",
        touches=tuple(DeviceTouch(-1, a.start, a.end, True) for a in accesses),
    )
    state.run_own(UseKind.ZEROING, state.zero_stream, (), touches, work)
    for band, units in touches:
        state.store.mark_written(band, units)


# -- plans -----------------------------------------------------------------------------------------


def execute(state: ArenaState, plan: relayout.Plan) -> None:
    """Carry a plan out, band by band in its order: settle, copy, remap, let the frontier
    retreat.
    """
    assert plan.epoch == state.store.epoch, (
        f"a plan of epoch {plan.epoch} was executed at epoch {state.store.epoch}"
    )
    batches = {batch.band: batch for batch in plan.batches}
    changes = {change.band: change for change in plan.frontiers}
    for band in dict.fromkeys((*changes, *batches)):
        batch, change = batches.get(band), changes.get(band)
        if batch is not None:
            settle_units(state, band, batch.targets)
            move_units(state, band, batch.sources, batch.targets, reason=plan.rung.name.lower())
        if change is not None:
            settle_outside(state, band, change.low_unit, change.high_unit)
    for band, units in enumerate(plan.grants):
        settle_units(state, band, units)


def settle_outside(state: ArenaState, band: int, low_unit: int, high_unit: int) -> None:
    """Settle what is pending or vacated outside [low, high), so that the frontiers retreat to
    there.
    """
    here = state.store.bands[band]
    for start, end in (
        (here.low_unit, min(low_unit, here.high_unit)),
        (max(high_unit, here.low_unit), here.high_unit),
    ):
        if start < end:
            settle_units(state, band, np.arange(start, end, dtype=np.int64))


def settle_units(state: ArenaState, band: int, units: Units) -> None:
    """Settle, in stream order, every use that keeps freed or vacated `units` from being holes."""
    if not len(units):
        return
    states = state.store.states(band, units)
    waiting = units[(states == UnitState.PENDING) | (states == UnitState.VACATED)]
    before: object = None
    while len(waiting):
        keys = state.ledger.blocking(band, waiting)
        if not keys:
            break
        assert keys != before, f"units {waiting} of band {band} still wait for settled uses {keys}"
        before = keys
        for stream, ticket in keys:
            found = state.ledger.uses.get((stream, ticket))
            if found is not None:
                settle(state, found)


def move_units(
    state: ArenaState, band: int, sources: Units, targets: Units, *, reason: str
) -> None:
    """One batch: copy what was written, then remap (rules 3 and 4). Targets are holes or beyond.

    The copy waits in stream order for old writers of the source and for old uses of the target;
    sources are vacated until their readers and the copy are over.
    """
    store = state.store
    written = (store.unit_words(band, sources) & UNIT_WRITTEN) != 0
    copied_from, copied_to = sources[written], targets[written]
    _order_copy(state, band, copied_from, copied_to)
    before = state.frontiers()
    if len(copied_from):
        pairs, accesses = _copy(state, band, copied_from, copied_to)
        work = Work(UseKind.MOVE, accesses, label=f"move {reason}", pairs=pairs)
        state.run_own(
            UseKind.MOVE, state.move_stream, ((band, copied_from),), ((band, copied_to),), work
        )
        state.counters[f"moved_bytes/{band}/{reason}"] += len(copied_from) * state.size[band]
    state.counters[f"moves/{band}/{reason}"] += len(sources)
    state.hold_back(band, sources)
    ids = store.ids_of(band, sources)
    bands = np.full(len(sources), band, np.int64)
    store.move(bands, sources, targets)
    retreats = store.retreats()
    state.observe_freed(band, sources)
    state.remember(ids.tolist(), targets)
    state.overgrow(before)
    state.fence(retreats)
    state.observe_moved(band, sources, targets)


def _order_copy(state: ArenaState, band: int, sources: Units, targets: Units) -> None:
    """Make every wait of a copy from `sources` to `targets` before anything is recorded.

    A wait on the schedule stream settles, so a frontier may retreat past a target and fence it;
    hence the rows of targets beyond a frontier take their fences over again after each round.
    """
    before: object = None
    while True:
        _inherit_beyond(state, band, targets)
        needs = state.ledger.needs(
            UseKind.MOVE, state.move_stream, ((band, sources),), ((band, targets),)
        )
        assert not needs.blockers, f"move {sources} to {targets} is blocked: {needs.blockers}"
        if not needs.waits:
            return
        assert needs.waits != before, f"waits {needs.waits} of a move were made and are asked again"
        before = needs.waits
        state.make_waits(state.move_stream, needs.waits, UseKind.MOVE)


def _inherit_beyond(state: ArenaState, band: int, targets: Units) -> None:
    if not len(state.ledger.fences):
        return
    low, high = state.frontiers()[band]
    for unit in targets.tolist():
        if not low <= unit < high:
            state.ledger.overgrow(
                band, unit, unit + 1, origin=state.origin[band], size=state.size[band]
            )


def _copy(
    state: ArenaState, band: int, sources: Units, targets: Units
) -> tuple[tuple[tuple[int, int, int], ...], tuple[Access, ...]]:
    """Copy pairs (source, target, nbytes) and the accesses of one batch."""
    origin, size = state.origin[band], state.size[band]
    pairs = tuple(
        (origin + source * size, origin + target * size, size)
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True)
    )
    reads = tuple(Access(Space.ARENA, source, source + size, False) for source, _, _ in pairs)
    writes = tuple(Access(Space.ARENA, target, target + size, True) for _, target, _ in pairs)
    return pairs, (*reads, *writes)


# -- forks -----------------------------------------------------------------------------------------


def fork(state: ArenaState, ids: Sequence[int], stream: int) -> Grant | Blocked | Infeasible:
    """Copies of `ids` under new ids (rule 11); `free` of the old references is the caller's next
    step.
    """
    per_band = [0] * state.band_count
    for vid in ids:
        per_band[vid >> 26 & 31] += 1
    handout = allocate(state, tuple(per_band), "fork")
    if not isinstance(handout, Handout):
        return handout
    sources = state.store.resolve(ids)  # type: ignore[arg-type]  # the demand may have moved them
    reads: list[Touch] = []
    writes: list[Touch] = []
    pairs: tuple[tuple[int, int, int], ...] = ()
    accesses: tuple[Access, ...] = ()
    for band, new in state.by_band(handout.ids.tolist(), handout.units):
        old = sources[[vid >> 26 & 31 == band for vid in ids]]
        written = (state.store.unit_words(band, old) & UNIT_WRITTEN) != 0
        if written.any():
            more_pairs, more_accesses = _copy(state, band, old[written], new[written])
            pairs, accesses = (*pairs, *more_pairs), (*accesses, *more_accesses)
            reads.append((band, old[written]))
            writes.append((band, new[written]))
            state.store.mark_written(band, new[written])
    if pairs:
        work = Work(UseKind.FORK, accesses, label="fork", pairs=pairs)
        state.run_own(UseKind.FORK, stream, tuple(reads), tuple(writes), work)
    return grant_of(handout, tuple(per_band))


# -- moves asked for -------------------------------------------------------------------------------


def move_ids(state: ArenaState, band: int, ids: Sequence[int]) -> int:
    """Move live ids into the band's best holes, as far as there are any; returns units moved."""
    if any(vid >> 26 & 31 != band for vid in ids):
        raise MisuseError(f"an id is not of band {band}; pass ids of that band", argument="ids")
    if len(set(ids)) != len(ids):
        raise MisuseError("an id is named twice; name it once", argument="ids")
    sources = state.store.resolve(ids)  # type: ignore[arg-type]
    for unit, word in zip(sources, state.store.unit_words(band, sources).tolist(), strict=True):
        if _fixed(word):
            raise MisuseError(
                f"unit {unit} of band {band} is pinned or under a transfer and may not move",
                argument="ids",
                unit=int(unit),
            )
    holes = _holes(state, band, len(sources))
    count = min(len(sources), len(holes))
    if count:
        move_units(state, band, sources[:count], holes[:count], reason="asked")
    return count


def compact(state: ArenaState, budget_units: int) -> int:
    """Opportunistic moves: outermost live units of the end bands into holes further in.

    Skips pinned units, units under a transfer, and units with an unfinished writer (rule 4).
    """
    moved = 0
    for band in dict.fromkeys((0, state.band_count - 1)):
        if budget_units > moved:
            moved += _compact_band(state, band, budget_units - moved)
    return moved


def _compact_band(state: ArenaState, band: int, budget: int) -> int:
    from_high = band == 0
    holes = _holes(state, band, budget)
    sources: list[int] = []
    unit = _outermost(state, band, from_high=from_high, beyond=None)
    while unit is not None and len(sources) < len(holes):
        hole = int(holes[len(sources)])
        if (unit <= hole) if from_high else (unit >= hole):
            break
        here = np.array([unit], np.int64)
        word = int(state.store.unit_words(band, here)[0])
        movable = word & 7 == LIVE and not _fixed(word)
        if movable and not state.ledger.has_unfinished_write(band, here)[0]:
            sources.append(unit)
        unit = _outermost(state, band, from_high=from_high, beyond=unit)
    if sources:
        move_units(
            state, band, np.array(sources, np.int64), holes[: len(sources)], reason="opportunistic"
        )
    return len(sources)


def _fixed(word: int) -> bool:
    transfers = word >> UNIT_TRANSFERS_SHIFT & UNIT_TRANSFERS_MASK
    return bool(word & (UNIT_PINNED | UNIT_QUARANTINED)) or transfers > 0


def _holes(state: ArenaState, band: int, count: int) -> Units:
    """Up to `count` holes, from the band's origin end outwards. O(count log units)."""
    words, head = state.store.words, band_header(band)
    first, levels = int(words[head + B_FIRST]), int(words[head + B_LEVELS])
    here = state.store.bands[band]
    found: list[int] = []
    if band and band == state.band_count - 1:
        bit = here.high_unit - first - 1
        while len(found) < count and bit >= 0:
            bit = int(kernels.map_last(words, head + B_HOLE_MAP, levels, bit))
            if bit < 0 or bit + first < here.low_unit:
                break
            found.append(bit + first)
            bit -= 1
    else:
        bit = here.low_unit - first if here.has_units else -1
        while bit >= 0 and len(found) < count:
            bit = int(kernels.map_first(words, head + B_HOLE_MAP, levels, bit))
            if bit < 0 or bit + first >= here.high_unit:
                break
            found.append(bit + first)
            bit += 1
    return np.array(found, np.int64)


def _outermost(state: ArenaState, band: int, *, from_high: bool, beyond: int | None) -> int | None:
    """The next occupied unit from the outer frontier inwards, after unit `beyond`."""
    words, head = state.store.words, band_header(band)
    first, levels = int(words[head + B_FIRST]), int(words[head + B_LEVELS])
    here = state.store.bands[band]
    if not here.has_units:
        return None
    if from_high:
        bit = (here.high_unit if beyond is None else beyond) - first - 1
        bit = int(kernels.map_last(words, head + B_OCCUPIED_MAP, levels, bit)) if bit >= 0 else -1
    else:
        bit = (here.low_unit if beyond is None else beyond + 1) - first
        bit = int(kernels.map_first(words, head + B_OCCUPIED_MAP, levels, bit))
    return bit + first if bit >= 0 and here.low_unit <= bit + first < here.high_unit else None


__all__ = ["Fits", "allocate", "compact", "execute", "fork", "grant_of", "move_ids", "query"]
