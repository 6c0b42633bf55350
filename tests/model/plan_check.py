"""Carry a plan out on a model of the bytes and check what a plan promises.

The model knows who owns which bytes and which content lies where; it shares nothing with the
planner but the plan and the view.
"""

from __future__ import annotations

from onearena.core.relayout import Plan, Waits
from onearena.core.view import ArenaView


def check_plan(view: ArenaView, plan: Plan) -> None:
    """Assert every promise of ``plan``; see the steps below."""
    assert plan.epoch == view.epoch
    bands = view.bands
    grids = [band.grid for band in bands]
    frontiers = [(band.low_unit, band.high_unit) for band in bands]
    changes = {change.band: (change.low_unit, change.high_unit) for change in plan.frontiers}
    batches = {batch.band: batch for batch in plan.batches}
    assert len(changes) == len(plan.frontiers)
    assert len(batches) == len(plan.batches)
    order = [change.band for change in plan.frontiers]
    assert [band for band in order if band in batches] == [
        batch.band for batch in plan.batches if batch.band in order
    ], "batches and frontiers run in different orders"
    content = {
        (index, unit): (index, unit) for index, band in enumerate(bands) for unit in band.handed_out
    }
    copied = 0
    left_bytes: set[tuple[int, int]] = set()
    for index in order + [band for band in batches if band not in changes]:
        band, grid = bands[index], grids[index]
        low, high = frontiers[index]
        new_low, new_high = changes.get(index, (low, high))
        # Step 1: the frontier grows over bytes that no other band holds now.
        ranges = [pair for pair in ((low, high), (new_low, new_high)) if pair[0] < pair[1]]
        hull = (min(a for a, _ in ranges), max(b for _, b in ranges)) if ranges else (0, 0)
        for other, (its_low, its_high) in enumerate(frontiers):
            if other == index or its_low == its_high or hull[0] == hull[1]:
                continue
            for part in ranges:
                start, end = grid.start(part[0]), grid.start(part[1])
                its = grids[other].start(its_low), grids[other].start(its_high)
                assert end <= its[0] or its[1] <= start, f"band {index} grows into {other}"
        # Step 2: the batch copies from live, movable units to cells inside that hold nothing.
        if index in batches:
            batch = batches[index]
            sources, targets = batch.sources.tolist(), batch.targets.tolist()
            assert len(sources) == len(set(sources)) == len(targets) == len(set(targets)) > 0
            assert not set(sources) & set(targets), "a batch reads bytes it writes"
            settles = False
            for source, target in zip(sources, targets, strict=True):
                assert (index, source) in content, f"{source} of band {index} is not live"
                assert source not in band.fixed, f"{source} of band {index} is fixed"
                assert not new_low <= source < new_high, "needless move"
                assert new_low <= target < new_high
                assert (index, target) not in content
                assert target not in band.fixed
                content[index, target] = content.pop((index, source))
                start, end = grid.start(target), grid.end(target)
                settles |= target in band.unsettled or any(
                    start < grids[other].end(unit) and grids[other].start(unit) < end
                    for other, unit in left_bytes
                )
                copied += grid.unit_bytes
            assert (batch.waits is Waits.SETTLE) == settles
        # Step 3: the frontier retreats past nothing that is live or under a transfer.
        for unit in range(low, high):
            if not new_low <= unit < new_high:
                assert (index, unit) not in content, f"frontier passes live {unit} of {index}"
                assert unit not in band.fixed, f"frontier passes fixed {unit} of band {index}"
                if unit in band.unsettled or unit in band.handed_out:
                    left_bytes.add((index, unit))
        frontiers[index] = (new_low, new_high)
    assert copied == plan.copied_bytes
    written = [(batch.band, unit) for batch in plan.batches for unit in batch.targets.tolist()]
    written += [(index, unit) for index, units in enumerate(plan.grants) for unit in units.tolist()]
    again = sum(unit in bands[index].unsettled for index, unit in written)
    passed = sum(unit in bands[index].unsettled for index, unit in left_bytes)
    assert again + passed == plan.waits, (again, passed, plan.waits)
    assert sorted(content.values()) == sorted(
        (index, unit) for index, band in enumerate(bands) for unit in band.handed_out
    ), "content was lost"
    # The demand has its cells: inside, free, and distinct.
    held = set(content)
    for index, units in enumerate(plan.grants):
        assert units.size == plan.demand[index]
        for unit in units.tolist():
            assert frontiers[index][0] <= unit < frontiers[index][1]
            assert (index, unit) not in held
            assert unit not in bands[index].fixed
            held.add((index, unit))
    # Bands keep the chain order, inside [0, S), and end bands keep their anchor.
    cursor = 0
    for index, (low, high) in enumerate(frontiers):
        if low < high:
            assert grids[index].first_unit <= low
            assert high <= grids[index].end_unit
            assert grids[index].start(low) >= cursor, f"band {index} overlaps the one below"
            cursor = grids[index].start(high)
    assert frontiers[0][0] == grids[0].first_unit
    if len(bands) > 1:
        assert frontiers[-1][1] == grids[-1].end_unit
    # Fences: exactly the bytes of unsettled units and copy sources that were left outside.
    fenced = {
        (fence.band, unit)
        for fence in plan.fenced
        for unit in range(
            grids[fence.band].first_at_or_after(fence.start_bytes),
            grids[fence.band].last_ending_by(fence.end_bytes),
        )
    }
    assert fenced == left_bytes
    free = sum(
        high - low - sum(1 for owner, _ in held if owner == index) - len(bands[index].freed_fixed)
        for index, (low, high) in enumerate(frontiers)
    )
    assert free == plan.holes_left
