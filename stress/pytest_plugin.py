"""The pytest plugin: a campaign against an allocator of one's own, as a test.

    @pytest.mark.onearena(seeds=200)
    def test_my_pool(onearena_campaign):
        onearena_campaign(build).check()

Installed with the package (entry point `pytest11`); loading it costs no import of the harness.
`docs/your-allocator.md` has the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from onearena.stress.factory_runs import CampaignResult
    from onearena.stress.user_systems import Factory

MARKER: Final = "onearena"
SEEDS_DEFAULT: Final = 100
SEEDS_MAX: Final = 1_000_000
_LIMITS: Final[dict[str, tuple[type | tuple[type, ...], float]]] = {
    "seeds": (int, SEEDS_MAX),
    "first": (int, 1 << 62),
    "steps": (int, 100_000),
    "shrink_s": ((int, float), 3600.0),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--onearena-seeds N`: so many schedules in every test, whatever its marker says."""
    group = parser.getgroup("onearena", "stress campaigns against allocators")
    group.addoption(
        "--onearena-seeds",
        type=int,
        default=None,
        metavar="N",
        help="Schedules of each onearena campaign; overrides the markers.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    line = f"{MARKER}(seeds=100, first=0, steps=0, shrink_s=10.0): how to run onearena_campaign"
    config.addinivalue_line("markers", line)


@pytest.fixture
def onearena_campaign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Factory], CampaignResult]:
    """A function of a factory (choices -> system under test) that runs seeded schedules against it.

    Its result has `schedules`, `failures`, `reach`, and `check()`, which fails the test.
    """
    settings = _settings(request)

    def campaign(factory: Factory) -> CampaignResult:
        from onearena.stress.factory_runs import run_factory

        folder = tmp_path_factory.mktemp("onearena")
        return run_factory(factory, folder=folder, **settings)

    return campaign


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What marker and command line say, checked."""
    settings: dict[str, Any] = {"seeds": SEEDS_DEFAULT}
    marker = request.node.get_closest_marker(MARKER)
    if marker is not None:
        if marker.args:
            raise pytest.UsageError(f"{MARKER}{marker.args}: give keywords, such as seeds=100")
        settings |= marker.kwargs
    override = request.config.getoption("--onearena-seeds")
    if override is not None:
        settings["seeds"] = override
    value: Any
    for name, value in settings.items():
        if name not in _LIMITS:
            known = ", ".join(_LIMITS)
            raise pytest.UsageError(f"{MARKER}({name}=...) is not known; give {known}")
        kind, highest = _LIMITS[name]
        lowest = 1 if name == "seeds" else 0
        right = isinstance(value, kind) and not isinstance(value, bool)
        if not right or not lowest <= value <= highest:
            fix = f"give a number from {lowest} to {highest}"
            raise pytest.UsageError(f"{MARKER}({name}={value!r}) is not accepted; {fix}")
    return settings
