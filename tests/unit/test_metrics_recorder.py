"""Times and engine reports: a clock that the test turns, and a schedule of the real arena."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from metrics_case import samples, value
from prometheus_client.registry import CollectorRegistry

from onearena.core.rules import UseKind
from onearena.metrics import recorder as recorder_module
from onearena.metrics.collector import broken_sums, collector_of
from onearena.metrics.embed import register
from onearena.metrics.exposition import render
from onearena.metrics.metric import KINDS, SECONDS
from onearena.metrics.recorder import Recorder
from onearena.metrics.source import Question, SnapshotSource
from onearena.stress.choices import Choices
from onearena.stress.run import RunSpec, build_rig, run_schedule


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def units(*numbers):
    return np.array(numbers, np.int64)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def recorder(clock):
    return Recorder(["state", "full"], clock=clock)


def observations(recorder, metric, label):
    """{upper bound: count}, and the sum."""
    counts, total = recorder.freeze().histograms.get((metric, label), ((), 0.0))
    bounds = (*SECONDS, float("inf"))
    return {b: n for b, n in zip(bounds, counts, strict=False) if n}, total


def test_a_wait_lasts_until_the_awaited_use_is_seen_to_end(recorder, clock):
    recorder.launched(7, UseKind.FORWARD, 2, 5, 1)
    clock.now += 1
    recorder.waited(UseKind.LOAD, 2, 5)
    recorder.waited(UseKind.FORWARD, 2, 4)  # another use, which stays open
    clock.now += 0.3
    recorder.retired(7)
    counts, total = observations(recorder, "onearena_wait_seconds", "load")
    assert counts == {0.5: 1}
    assert total == pytest.approx(0.3)
    assert observations(recorder, "onearena_wait_seconds", "forward") == ({}, 0.0)


def test_units_wait_from_the_free_until_they_are_reusable(recorder, clock):
    recorder.freed(1, units(3, 9), 2)
    clock.now += 0.02
    recorder.reusable(1, units(3, 4))  # 4 was never freed
    clock.now += 3
    recorder.reusable(1, units(9, 3))  # 3 was reusable before
    counts, total = observations(recorder, "onearena_unit_pending_seconds", "full")
    assert counts == {1e-5: 2, 0.025: 1, 5.0: 1}
    assert total == pytest.approx(3.04)
    assert observations(recorder, "onearena_unit_pending_seconds", "state") == ({}, 0.0)


def test_a_unit_beyond_all_that_were_freed_is_nobody(recorder):
    recorder.reusable(0, units(1_000_000))
    recorder.freed(0, units(), 0)
    assert recorder.freeze().histograms == {}


def test_plans_by_rung_and_copies_by_band(recorder, clock):
    recorder.planning()
    clock.now += 0.002
    recorder.planned("compact")
    recorder.launched(1, UseKind.MOVE, 0, 1, 1)
    recorder.launched(2, UseKind.FORK, 0, 2, 1)
    clock.now += 0.2
    recorder.retired(1)
    recorder.retired(2)
    recorder.retired(99)
    assert observations(recorder, "onearena_plan_seconds", "compact")[0] == {5e-3: 1}
    assert observations(recorder, "onearena_copy_seconds", "full")[0] == {0.25: 1}


def test_the_oldest_use_of_each_kind(recorder, clock):
    recorder.launched(1, UseKind.FORWARD, 0, 1, 0)
    clock.now += 1
    recorder.launched(2, UseKind.FORWARD, 0, 2, 0)
    recorder.launched(3, UseKind.SEND, -1, 0, 0)
    assert recorder.freeze().oldest == {"forward": 100.0, "send": 101.0}
    recorder.retired(1)
    assert recorder.freeze().oldest["forward"] == 101.0


def test_memory_is_bounded_and_what_is_not_measured_is_counted(recorder, monkeypatch):
    monkeypatch.setattr(recorder_module, "OPEN_MAX", 4)
    for serial in range(10):
        recorder.launched(serial, UseKind.FORWARD, 0, serial, 0)
        recorder.waited(UseKind.LOAD, 0, serial)
    assert recorder.freeze().dropped == 12
    for serial in range(10):
        recorder.retired(serial)
    for serial in range(4):
        recorder.launched(serial, UseKind.FORWARD, 0, serial, 0)
        recorder.waited(UseKind.LOAD, 0, serial)
    assert recorder.freeze().dropped == 12


def test_what_was_published_does_not_change_later(recorder):
    recorder.freed(0, units(), 1)
    frozen = recorder.freeze()
    recorder.freed(0, units(), 1)
    recorder.retracted("r1", tokens=5)
    assert frozen.histograms["onearena_unit_pending_seconds", "state"][0][0] == 1
    assert frozen.retractions == 0


def test_retractions_are_counted_and_who_it_was_is_logged(recorder, caplog):
    with caplog.at_level(logging.INFO, "onearena.metrics"):
        recorder.retracted("req-17", tokens=321)
    recorder.evicted("full", 4)
    frozen = recorder.freeze()
    assert (frozen.retractions, frozen.retracted_tokens, frozen.evicted) == (1, 321, {"full": 4})
    assert "req-17" in caplog.text
    assert "321" in caplog.text


# -- the real arena --------------------------------------------------------------------------------


def _watched(seed, steps, look, *, every=16, **settings):
    registry = CollectorRegistry()
    rig = build_rig(RunSpec(seed), Choices(seed))
    arena = rig.world.sut.inner
    source = register(arena, registry=registry, period_s=0.0, **settings)
    for at in range(steps):
        rig.world.step()
        source.tick(arena)
        if at % every == 0:
            look(registry, arena, source)
    return registry, arena, source


STATE_CODES = {"hole": 1, "live": 2, "pending": 3, "vacated": 4}


@pytest.mark.parametrize("seed", [3, 5])
def test_exported_numbers_equal_a_recount_of_the_units(seed):
    looks = []

    def recount(registry, arena, source):
        found = samples(render(registry).decode())
        whole = arena.snapshot(units=True)
        assert broken_sums(whole) == []
        total = 0
        for each in whole.bands:
            for state, code in STATE_CODES.items():
                units_now = each.states.count(code)
                labels = {"arena": "0", "band": each.name, "state": state}
                assert value(found, "onearena_band_units", **labels) == units_now
                total += units_now * each.unit_bytes
            handed = value(found, "onearena_allocated_units_total", arena="0", band=each.name)
            freed = value(found, "onearena_freed_units_total", arena="0", band=each.name)
            assert handed - freed == each.states.count(2)
        gaps = sum(v for (name, _), v in found.items() if name == "onearena_gap_bytes")
        assert total + gaps == whole.arena_bytes
        kinds = [KINDS[use.kind] for use in whole.uses]
        for kind in KINDS:
            shown = value(found, "onearena_unfinished_uses", arena="0", kind=kind)
            assert shown == kinds.count(kind)
        looks.append(total)

    _watched(seed, 200, recount)
    assert len(looks) == 13
    assert any(looks)


def test_every_pending_unit_is_measured_once_and_none_is_left_over():
    vacated = []

    def check(registry, arena, source):
        found = samples(render(registry).decode())
        for each in arena.snapshot(units=False).bands:
            key = ("onearena_unit_pending_seconds_count", {"arena": "0", "band": each.name})
            ended = found.get((key[0], frozenset(key[1].items())), 0)
            freed = value(found, "onearena_freed_units_total", arena="0", band=each.name)
            moved = sum(
                v
                for (name, labels), v in found.items()
                if name == "onearena_moves_total" and ("band", each.name) in labels
            )
            waiting = each.pending_units + each.vacated_units
            assert ended == freed + moved - waiting, each.name
            vacated.append(each.vacated_units)

    for seed in (3, 18):
        registry, _, _ = _watched(seed, 200, check, every=2)
    found = samples(render(registry).decode())
    assert any(vacated)
    waits = sum(v for (name, _), v in found.items() if name == "onearena_waits_total")
    measured = sum(v for (name, _), v in found.items() if name == "onearena_wait_seconds_count")
    assert 0 < measured <= waits


def test_fit_units_are_the_largest_demands_that_fit_on_each_rung():
    apart = []

    def check(registry, arena, source):
        fit = arena.fit_units()
        apart.append(any(none < relayout for none, _, relayout in fit))
        for band, (none, compact, relayout) in enumerate(fit):
            assert none <= compact <= relayout
            for units_more, rungs in (
                (none, ("NONE",)),
                (compact, ("NONE", "COMPACT")),
                (relayout, ("NONE", "COMPACT", "RELAYOUT")),
            ):
                demand = [0] * len(fit)
                demand[band] = units_more
                assert arena.fits(demand).rung.name in rungs
                demand[band] = units_more + 1
                rung = getattr(arena.fits(demand), "rung", None)
                assert rung is None or rung.name not in rungs

    for seed in (5, 48):
        _watched(seed, 200, check, every=8)
    assert any(apart)


def test_watching_changes_no_decision():
    class Probe:
        """As the campaign's, with a clock that runs wild."""

        def __init__(self):
            self.source = SnapshotSource(period_s=0.0, recorder=Recorder(clock=Clock()))
            self.arena = None

        def begin(self, world):
            self.arena = world.sut.inner
            self.source.recorder.begin([each.name for each in world.bands])
            self.arena.observe(self.source.recorder)
            world.reports = self.source.recorder

        def tick(self):
            self.source.ask(Question())
            self.source.ask(Question(band="full", count=5))
            self.source.ask(Question(band="no such band"))
            self.source.tick(self.arena)

        def end(self):
            self.source.finish(self.arena)

    for seed in (2, 6):
        assert run_schedule(RunSpec(seed), Probe()) == run_schedule(RunSpec(seed))


def test_questions_are_answered_by_the_next_tick():
    registry, arena, source = _watched(5, 60, lambda *_: None)
    everything, rows, nobody = Question(), Question(band="full", count=3), Question(band="x")
    for question in (everything, rows, nobody):
        source.ask(question)
        assert question.answer is None
    source.tick(arena)
    whole = arena.snapshot(units=True)
    assert everything.answer[1] == tuple(each.states for each in whole.bands)
    full = next(each for each in whole.bands if each.name == "full")
    names = {code: name for name, code in STATE_CODES.items()}
    asked = Question(band="full", first=full.low_unit, count=1000)
    source.ask(asked)
    source.tick(arena)
    assert [row.state for row in asked.answer[1]] == [names[code] for code in full.states]
    assert [row.id for row in asked.answer[1]] == list(full.ids)
    assert nobody.answer[1] == ()
    del registry


def test_a_tick_that_is_not_due_takes_no_snapshot(clock):
    class Counting:
        taken = 0

        def snapshot(self, *, units=True):
            self.taken += 1
            from metrics_case import small_snapshot

            return small_snapshot()

    arena = Counting()
    source = SnapshotSource(period_s=0.25, clock=clock)
    for _ in range(10):
        source.tick(arena)
        clock.now += 0.1
    assert arena.taken == 4


def test_a_collector_is_shared_by_a_registry_and_by_no_other():
    first, second = CollectorRegistry(), CollectorRegistry()
    assert collector_of(first) is collector_of(first)
    assert collector_of(first) is not collector_of(second)
