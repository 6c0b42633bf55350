"""The order oracle against the slow reference on random traces: same verdicts, pairs and edges."""

from __future__ import annotations

import pytest
from order_compare import compare
from order_traces import random_trace

from onearena.core.device.interface import Space

SEEDS_PER_BLOCK = 100


@pytest.mark.parametrize("block", range(6))
def test_equals_reference_on_random_traces(block: int) -> None:
    racy = 0
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        trace = random_trace(seed)
        assert trace.accesses >= 100
        result = compare(trace.records, sweep_always=seed % 2 == 1)
        assert not result.differences, f"seed {seed}: {result.differences}"
        if trace.leak == 0.0:
            assert not result.findings, f"seed {seed}: the generator ordered everything"
        racy += bool(result.findings)
    assert 0.3 <= racy / SEEDS_PER_BLOCK <= 0.7


def test_equals_reference_with_exempt_ranges_inside_the_arena() -> None:
    """Exempt bytes in the middle of an access leave several pieces of it to check."""
    exempt = {
        Space.ARENA: ((-4_096, 0), (40, 56), (56, 60), (150, 400), (390, 410)),
        Space.HOST: ((100, 101),),
        Space.BUFFER: ((0, 64),),
    }
    split = 0
    for seed in range(20_000, 20_100):
        result = compare(random_trace(seed).records, exempt)
        assert not result.differences, f"seed {seed}: {result.differences}"
        split += bool(result.findings)
    assert split >= 10


def test_traces_reach_what_they_should() -> None:
    """Every need, rule, space and table cell kind turns up among the races of few traces."""
    needs, rules, spaces, cells = set(), set(), set(), set()
    for seed in range(300):
        for item in compare(random_trace(seed).records).findings:
            if not hasattr(item, "edge"):
                rules.add("8")
                continue
            needs.add((item.edge[0], item.edge[5] is None))
            rules.add(item.rule)
            spaces.add(item.space)
            if item.cell is not None:
                cells.add((item.cell[0], item.cell[3]))
    assert needs == {
        ("event", True),
        ("event", False),
        ("retire", True),
        ("retire", False),
        ("transfer_end", True),
    }
    assert rules == {"6", "7", "8", "9"}
    assert spaces == {Space.ARENA, Space.HOST, Space.TABLE, Space.BUFFER}
    assert len(cells) == 6
