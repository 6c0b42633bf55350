"""Small charts over time as Vega-Lite specifications, from tables in long form. Pure."""

from __future__ import annotations

from typing import Any, Final

from onearena.dashboard.palette import DARK, LIGHT, STATES
from onearena.dashboard.view_model import Table

HEIGHT: Final = 220
BAND_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
REST_COLOUR: Final = "#9aa6b6"
RULE_COLOUR: Final = "#d1495b"

Spec = dict[str, Any]


def stacked(table: Table, by: str, *, at: float | None, dark: bool, states: bool) -> Spec:
    """Bytes over time, stacked by state or by band, with a rule at the moment looked at."""
    names = _names(table)
    colours = _state_colours(names, dark=dark) if states else _band_colours(names)
    area: Spec = {
        "data": {"values": _rows(table)},
        "transform": [{"calculate": f"indexof({names!r}, datum['{by}'])", "as": "order"}],
        "mark": {"type": "area", "interpolate": "step-after", "stroke": "gray", "strokeWidth": 0.5},
        "encoding": {
            "x": _number("seconds"),
            "y": _number("bytes", stack="zero", axis={"format": "~s", "title": "bytes"}),
            "color": _colour(by, names, colours),
            "order": {"field": "order", "type": "quantitative"},
            "tooltip": _tips(("seconds", ".2f"), (by, ""), ("bytes", ",")),
        },
    }
    return _layers(area, at)


def lines(table: Table, *, at: float | None = None) -> Spec:
    """Lines over time, told apart by colour and dash; columns are seconds, what, and a count."""
    x, by, y = table.columns
    names = _names(table)
    chart: Spec = {
        "data": {"values": _rows(table)},
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": _number(x),
            "y": _number(y),
            "color": _colour(by, names, _band_colours(names)),
            "strokeDash": {"field": by, "type": "nominal", "sort": names, "legend": None},
            "tooltip": _tips((x, ".2f"), (by, ""), (y, ",")),
        },
    }
    return _layers(chart, at)


def bars(table: Table) -> Spec:
    """One bar a band, each at its own scale: the share of one entry's bytes that each part has."""
    band, part, size = table.columns
    names = _names(table)
    return {
        "data": {"values": _rows(table)},
        "height": 90 + 44 * len({row[0] for row in table.rows}),
        "mark": {"type": "bar", "stroke": "gray", "strokeWidth": 0.5},
        "encoding": {
            "y": {"field": band, "type": "nominal", "title": None, "axis": {"labelLimit": 200}},
            "x": _number(
                size, stack="normalize", axis={"format": "%", "title": "share of one entry"}
            ),
            "color": _colour(part, names, _band_colours(names)),
            "tooltip": _tips((band, ""), (part, ""), (size, ",")),
        },
    }


def _layers(chart: Spec, at: float | None) -> Spec:
    layers = [chart]
    if at is not None:
        mark = {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "color": RULE_COLOUR}
        rule = {"data": {"values": [{"seconds": at}]}, "mark": mark}
        layers.append(rule | {"encoding": {"x": _number("seconds")}})
    return {"height": HEIGHT, "layer": layers}


def _rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _names(table: Table) -> list[str]:
    return list(dict.fromkeys(str(row[1]) for row in table.rows))


def _number(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", "title": field, **more}


def _colour(field: str, names: list[str], colours: list[str]) -> Spec:
    scale = {"domain": names, "range": colours}
    return {"field": field, "type": "nominal", "scale": scale, "sort": names}


def _tips(*fields: tuple[str, str]) -> list[Spec]:
    return [
        {"field": name, "type": "quantitative", "format": text}
        if text
        else {"field": name, "type": "nominal"}
        for name, text in fields
    ]


def _state_colours(names: list[str], *, dark: bool) -> list[str]:
    palette = DARK if dark else LIGHT
    return [palette.fills[STATES.index(name)] for name in names]


def _band_colours(names: list[str]) -> list[str]:
    return [
        REST_COLOUR if name == "gaps" else BAND_COLOURS[at % len(BAND_COLOURS)]
        for at, name in enumerate(names)
    ]
