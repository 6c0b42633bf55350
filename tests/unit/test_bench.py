"""`onearena bench`: what it measures is what it says, and a bad file to compare is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onearena.core.store import Store
from onearena.stress import bench, bench_cases
from onearena.stress.bench_cases import Measurement
from onearena.stress.cli import run


def _row(name: str, band_units: int, holes_percent: int, median: float) -> Measurement:
    return Measurement(
        name=name,
        band_units=band_units,
        holes_percent=holes_percent,
        unit="us",
        median=median,
        p10=median,
        p90=median,
        elapsed_median=median,
        samples=1,
    )


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("holes", [False, True])
def test_bands_have_the_size_and_the_holes_they_are_named_for(*, bands: int, holes: bool) -> None:
    store, live = bench_cases._filled(bands, 10_000, holes=holes)
    for band, ids in zip(store.bands, live, strict=True):
        assert band.high_unit - band.low_unit == 10_000
        assert band.hole_units == (4_000 if holes else 0)
        assert store.references(ids).tolist() == [1] * (6_000 if holes else 10_000)


def test_cycles_leave_bands_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[Store] = []
    filled = bench_cases._filled

    def remembered(bands: int, band_units: int, *, holes: bool) -> object:
        store, live = filled(bands, band_units, holes=holes)
        stores.append(store)
        return store, live

    monkeypatch.setattr(bench_cases, "_filled", remembered)
    monkeypatch.setattr(bench_cases, "SAMPLE_SECONDS", 1e-5)
    cases = [*bench_cases._cycles(3, (10_000,), 2, holes=True)]
    cases += bench_cases._moves(10_000, 2, holes=True)
    for store in stores:
        for band in store.bands:
            assert (band.live_units, band.hole_units) == (6_000, 4_000)
    assert [case.name for case in cases] == [
        "allocate+free 1 units, 3 bands",
        "allocate+free 64 units, 3 bands",
        "allocate+free 4096 units, 3 bands",
        "move bookkeeping, batch",
    ]
    assert all(0 < case.p10 <= case.median <= case.p90 for case in cases)


def test_aims_take_the_worst_size_and_the_ratio_of_the_outer_sizes() -> None:
    rows = []
    for holes in (0, 40):
        for units, factor in ((10, 1.0), (100, 4.0), (1000, 1.5)):
            rows.append(_row("allocate+free 1 units, one band", units, holes, 2.0 * factor))
            rows.append(_row("allocate+free 1 units, 3 bands", units, holes, 5.0))
            rows.append(_row("bulk free", units, holes, 10.0 * factor))
    found = {aim.name: (aim.limit, aim.measured, aim.met) for aim in bench.aims_of(rows)}
    assert found == {
        "allocate+free 1 units, one band, worst size": (5.0, 8.0, False),
        "allocate+free 1 units, 3 bands, worst size": (15.0, 5.0, True),
        "allocate+free 1 units, one band, 0% holes: 1,000 against 10 units": (1.3, 1.5, False),
        "allocate+free 1 units, 3 bands, 0% holes: 1,000 against 10 units": (1.3, 1.0, True),
        "allocate+free 1 units, one band, 40% holes: 1,000 against 10 units": (2.0, 1.5, True),
        "allocate+free 1 units, 3 bands, 40% holes: 1,000 against 10 units": (2.0, 1.0, True),
        "bulk free, 0% holes, worst size": (20.0, 40.0, False),
        "bulk free, 40% holes, worst size": (40.0, 40.0, True),
    }


def test_report_compares_with_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "QUICK_SIZES", (500, 1_000))
    monkeypatch.setattr(bench, "QUICK_SAMPLES", 3)
    monkeypatch.setattr(bench_cases, "SAMPLE_SECONDS", 1e-5)
    # (Queries and plans have tests of their own, and sizes that they need.)
    monkeypatch.setattr("onearena.stress.bench_fit.measure_fit", lambda *_, **__: [])
    assert run(["bench", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["version"] == bench.REPORT_VERSION
    assert {row["holes_percent"] for row in report["measurements"]} == {0, 40}
    for row in report["measurements"]:
        row["median"] *= 2
    old = tmp_path / "old.json"
    old.write_text(json.dumps(report), encoding="utf-8")
    assert run(["bench", "--quick", "--json", "--compare", str(old)]) == 0
    again = json.loads(capsys.readouterr().out)
    medians = {(r["name"], r["band_units"], r["holes_percent"]): r for r in again["measurements"]}
    for row in report["measurements"]:
        new = medians[row["name"], row["band_units"], row["holes_percent"]]
        assert new["ratio_to_old"] == round(new["median"] / row["median"], 3)
    assert run(["bench", "--quick", "--compare", str(old)]) == 0
    assert "new / old" in capsys.readouterr().out


_ROW = (
    '{"version": 1, "measurements": '
    '[{"name": "x", "band_units": 1, "holes_percent": 0, "median": %s}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 99, "measurements": []}',
        '{"version": 1, "measurements": [{"name": "x"}]}',
        '{"version": 1, "measurements": 3}',
        '{"version": 1, "measurements": [{"name": "x", "band_units": 1, "holes_percent": 0}]}',
        _ROW % '"fast"',
        _ROW % "NaN",
        _ROW % "-1",
        "[" * 100_000,
    ],
)
def test_a_bad_file_to_compare_is_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.json"
    old.write_text(text, encoding="utf-8")
    assert run(["bench", "--quick", "--compare", str(old)]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("onearena: --compare: ")
    assert complaint.count("\n") == 1
    assert run(["bench", "--compare", str(tmp_path / "absent.json")]) == 2
