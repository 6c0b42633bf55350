"""Campaigns on Ray: a lost worker loses no seed and counts none twice."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from kill9_case import comparable

from onearena.stress.campaign import Campaign
from onearena.stress.campaign_plan import Plan
from onearena.stress.engine import HereEngine
from onearena.stress.engine_ray import SEED_TRIES, RayEngine, _Runner
from onearena.stress.run import RunResult
from onearena.stress.summary import Summary

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: onearena[ray]"
    ),
]
SEEDS = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One cluster for all tests; engines join it and leave it running."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray import cloudpickle

        # Workers cannot import this file: its actors travel whole.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100_000_000,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        yield ray
        ray.shutdown()


class Told(_Runner):
    """An actor that says which process it is in."""

    def run(self, first: int, last: int) -> list[RunResult]:
        return super().run(first, last)

    def pid(self) -> int:
        return os.getpid()

    def hash(self) -> int:
        return hash("onearena")


class Watched(RayEngine):
    """Knows the processes of its first actors."""

    def start(self) -> None:
        super().start()
        self.pids = {actor: self._ray.get(actor.pid.remote()) for actor in self._idle}
        self.hashes = [self._ray.get(actor.hash.remote()) for actor in self._idle]


@pytest.mark.filterwarnings("ignore")
def test_a_lost_worker_loses_no_seed(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onearena.stress.engine_ray._Runner", Told)
    plan = Plan(60, 60 + SEEDS, "toy")
    engine = Watched(plan, 2)
    campaign = Campaign(plan, engine=engine)
    counted: list[int] = []
    killed: list[int] = []

    def note(summary: Summary, one: RunResult | None) -> None:
        if one is not None:
            counted.append(one.seed)
        running = [actor for _, actor in engine._running.values() if actor in engine.pids]
        if len(counted) >= 3 and running and not killed:
            killed.append(engine.pids[running[0]])
            os.kill(killed[0], signal.SIGKILL)

    summary = campaign.run(note)
    assert killed
    assert sum(engine._lost.values()) > 0
    assert len(set(engine.hashes)) == 2
    first = sorted(counted)
    first.remove(64)  # it ran a second time, as a check
    assert first == list(range(60, 60 + SEEDS))
    here = Campaign(plan, engine=HereEngine(plan)).run()
    assert comparable(summary.to_json()) == comparable(here.to_json())


class Deadly(_Runner):
    """Its process dies with one seed, however often that is tried."""

    def run(self, first: int, last: int) -> list[RunResult]:
        if first <= 3 < last:
            os._exit(1)
        return super().run(first, last)


@pytest.mark.filterwarnings("ignore")
def test_a_seed_that_kills_its_worker_is_a_crash_of_that_seed(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onearena.stress.engine_ray._Runner", Deadly)
    plan = Plan(1, 6, "toy", keep_going=True)
    summary = Campaign(plan, engine=RayEngine(plan, 1)).run()
    assert summary.verdicts == {"crash": 1, "pass": 4}
    assert [one.seed for one in summary.failures] == [3]
    assert f"went away {SEED_TRIES} times" in summary.failures[0].crash


@pytest.mark.filterwarnings("ignore")
def test_a_schedule_without_an_end_is_a_crash_of_its_seed(cluster: Any) -> None:
    plan = Plan(1, 2, "toy", schedule_limit_s=0.0005)
    summary = Campaign(plan, engine=RayEngine(plan, 1)).run()
    assert summary.verdicts == {"crash": 1}
    assert f"went away {SEED_TRIES} times" in summary.failures[0].crash
