"""The charts of the page as Vega-Lite specifications: numbers in, JSON out. Computes nothing.

A method has one colour, that of the registry, and one dash in every chart.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from snapsure._types import Floats, Ints
from snapsure.estimators import registry
from snapsure.evaluation import Board, Trajectories
from snapsure.metrics import RCCurve
from snapsure.report.tables import write_limit

Spec = dict[str, Any]

HINDSIGHT = "κ*"
LEAST_COVERAGE = 0.05  # of the page's curves: below it they are noise
BINS = 10  # of stated probability
GUIDE = "#8a8a8a"  # lines that help to read the others
COLOURS = {name: registry.get(name).colour for name in ("AES", "PES", "LES", "final")} | {
    "other": GUIDE
}
GREEN, RED = "#2e933c", "#d1495b"  # the surest examples and the least sure ones
MARGIN = 1.08  # of a chart of gains: room for a point at the edge
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
_ACCURACY = "#8a6fb0"
_SOLID, _DASHED, _DOTTED = [1, 0], [6, 3], [2, 3]
_DASHES = {"AES": [9, 3], "PES": [2, 2], "LES": _SOLID, "final": [5, 2], "other": _SOLID}
_SHAPES = ("circle", "square", "diamond", "triangle-up", "cross")
_HEIGHT = 260
_ZOOM = 4  # error limits that the axis of risk shows
_CURVE_POINTS = 200  # what the page can show
_LEGEND = {"title": None, "orient": "top", "symbolOpacity": 1, "labelFontSize": 12}
LINE_LEGEND = {**_LEGEND, "symbolType": "stroke", "symbolSize": 300}


def find_kind(name: str) -> str:
    """Return the kind of a method or a curve by its first word: AES for "AES, calibrated"."""
    first = name.partition(" ")[0].rstrip(",")
    return first if first in COLOURS else "other"


def draw_risk(
    curves: Mapping[str, RCCurve],
    best: RCCurve,
    limit: float,
    chosen: tuple[float, float] | None,
    coverage: float,
) -> Spec:
    """Draw risk against coverage, the error limit, the chosen point, and where the slider is.

    The first curve is that of the confidence that is deployed.
    """
    rows = list_points({**curves, HINDSIGHT: best}, _CURVE_POINTS, LEAST_COVERAGE)
    top = min(1.05 * max(row["risk"] for row in rows), _ZOOM * limit)
    layers = draw_curves(list(curves), top, LEAST_COVERAGE)
    x, y = (layers[1]["encoding"][axis] for axis in ("x", "y"))

    line = [{"risk": limit, "label": f"error limit {write_limit(limit)}"}]
    above = {"align": "left", "baseline": "bottom", "fontSize": 12, "x": 4, "dy": -3}
    layers += [
        _follow_slider(),
        _layer("rule", {"strokeWidth": 1.5, "strokeDash": _DOTTED}, line, y=y),
        _layer("text", above, line, y=y, text={"field": "label"}),
    ]
    if chosen is not None:
        at, risk = chosen
        point = [{"coverage": at, "risk": risk, "label": "recommended"}]
        dot = {"filled": True, "size": 110, "opacity": 1}
        colour = COLOURS[find_kind(next(iter(curves)))]
        # Curves rise to the right, so there is room at the top, on the left of the point.
        side = {"align": "right", "dx": -5} if at > 0.4 else {"align": "left", "dx": 5}
        named = {"fontSize": 12, "baseline": "top", **side}
        layers += [
            _layer("point", {**dot, "color": colour}, point, x=x, y=y),
            _layer("text", named, point, x=x, y={"value": 2}, text={"field": "label"}),
        ]
    about = "Risk against coverage of each confidence, with the error limit"
    return _chart(about, layers, rows, coverage)


def draw_difference(difference: Any, method: str, final: str, coverage: float) -> Spec:
    """Draw the risk of a method less that of the final softmax at each coverage, with its band."""
    name = f"{method} − {final}"
    rows = _list_rows(difference._asdict(), score=name)
    x, style = _axis_of_coverage(LEAST_COVERAGE), _style("score", [name])
    labels = {"labelExpr": "datum.value ? format(datum.value, '+.1%') : '0'"}
    y = {"type": "quantitative", "title": "difference in risk", "axis": labels}
    ends: Spec = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    layers = [
        _layer("area", {"opacity": 0.25, "color": COLOURS[find_kind(method)]}, x=x, **ends),
        _layer("line", {"strokeWidth": 2}, x=x, y={**y, "field": "risk"}, **style),
        _draw_zero(),
        _follow_slider(),
    ]
    return _chart(f"Risk: {name}, with a 95 % band", layers, rows, coverage)


def list_points(
    curves: Mapping[str, RCCurve], most: int, least: float = 0.0
) -> list[dict[str, Any]]:
    """Return a row per point of each curve: at most so many, from a coverage of `least` on."""
    rows = []
    for name, curve in curves.items():
        first = int(np.searchsorted(curve.coverage, least - 1e-9))
        at = np.unique(np.linspace(first, curve.coverage.size - 1, most).astype(np.int64))
        rows += _list_rows({"coverage": curve.coverage[at], "risk": curve.risk[at]}, score=name)
    return rows


def draw_curves(names: Sequence[str], top: float, least: float = 0.0) -> list[Spec]:
    """Return the area below κ* and the curves: risk up to `top` against coverage from `least`."""
    x = _axis_of_coverage(least)
    y = _axis("risk", "risk: share of errors", [0, top], format="%")
    area = _layer("area", {"opacity": 0.2, "color": GUIDE}, x=x, y=y)
    line = _layer("line", {"strokeWidth": 2}, x=x, y=y, **_style("score", names))
    return [
        area | {"transform": [{"filter": f"datum.score === '{HINDSIGHT}'"}]},
        line | {"transform": [{"filter": f"datum.score !== '{HINDSIGHT}'"}]},
    ]


def draw_board(board: Board) -> Spec:
    """Draw gain against price."""
    about = f"Gain over {board.reference_label} against forward passes per answer"
    return _chart(about, draw_results(board, {"padding": 12}))


def find_top(board: Board) -> float:
    """Return how far a chart of gains goes, up and down."""
    return max(5.0, max(row.saved.high for row in board.rows))


def draw_results(board: Board, scale: Mapping[str, Any]) -> list[Spec]:
    """Return a line at no gain, intervals, points, and ▼ for what is below the chart.

    `scale` completes the scale of passes.
    """
    top = find_top(board)
    rows: list[dict[str, Any]] = [
        {
            **{"method": board.label(row), "kind": find_kind(row.method), "passes": row.passes},
            **{"gain": row.saved.estimate, "shown": max(row.saved.estimate, -top)},
            **{"low": max(row.saved.low, -top), "high": max(row.saved.high, -top)},
        }
        for row in board.rows
    ]
    x = {"field": "passes", "type": "quantitative", "title": "forward passes per answer"} | {
        "scale": {"type": "log", "nice": False, **scale}
    }
    y = _axis(
        "shown",
        f"% less {board.measure} than {board.reference_label}",
        [-MARGIN * top, MARGIN * top],
    )
    kinds = [kind for kind in COLOURS if any(row["kind"] == kind for row in rows)]
    colour = _style("kind", kinds, _LEGEND)["color"]
    shapes = {"domain": kinds, "range": [_SHAPES[[*COLOURS].index(kind)] for kind in kinds]}
    shape = {"field": "kind", "type": "nominal", "scale": shapes, "legend": _LEGEND}
    dot = {"filled": True, "size": 50, "opacity": 1, "tooltip": True, "clip": False}
    place = {"x": x, "y": y, "color": colour} | {
        "tooltip": [{"field": name} for name in ("method", "passes", "gain")]
    }
    ends = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
    above, below = (
        [row for row in rows if (row["gain"] < -top) == is_below] for is_below in (False, True)
    )
    layers = [
        _draw_zero(),
        _layer("rule", {"opacity": 0.45}, rows, **ends),
        _layer("point", dot, above, **place, shape=shape),
    ]
    if below:  # Vega warns of a layer without data
        layers.append(_layer("point", {**dot, "shape": "triangle-down"}, below, **place))
    return layers


def draw_training(
    epochs: Ints, groups: Trajectories, surer: float, accuracies: Floats, averaged: Sequence[int]
) -> list[tuple[str, Spec]]:
    """Draw E-AURC of both groups along the epochs, accuracy, and mean κ; each with its caption."""
    green, red = f"surest {surer:.0%}", f"least sure {1 - surer:.0%}"
    ticks = _layer(
        "tick",
        {"thickness": 2, "color": COLOURS["AES"]},
        [{"epoch": epoch} for epoch in averaged],
        x={"field": "epoch", "type": "quantitative"},
        y={"value": _HEIGHT - 4},
    )
    surest = draw_lines("E-AURC ×10³", epochs, {green: groups.green_eaurc * 1e3}, [GREEN])
    surest["layer"] += [ticks, draw_best_epoch(int(epochs[groups.best]))]
    means = {green: groups.green_kappa, red: groups.red_kappa}
    charts = {
        f"E-AURC of the {green} of the examples, lower is better. Dotted: the best epoch. "
        "Ticks: the snapshots that AES averages.": surest,
        f"E-AURC of the {red} of the examples.": draw_lines(
            "E-AURC ×10³", epochs, {red: groups.red_eaurc * 1e3}, [RED]
        ),
        "Accuracy after each epoch.": draw_lines(
            "accuracy", epochs, {"": accuracies}, [_ACCURACY], form=".1%"
        ),
        f"Mean κ of the {green} and of the {red} of the examples.": draw_lines(
            "mean κ", epochs, means, [GREEN, RED]
        ),
    }
    return [
        (caption, _chart(caption, spec["layer"], spec["data"]["values"]))
        for caption, spec in charts.items()
    ]


def draw_lines(
    title: str,
    epochs: Ints,
    lines: Mapping[str, Floats],
    colours: Sequence[str],
    legend: Spec = LINE_LEGEND,
    form: str | None = None,
) -> Spec:
    """Draw values along the epochs; the axis fits all but the first fifth of training."""
    late = np.concatenate([values[len(epochs) // 5 :] for values in lines.values()])
    room = 0.08 * np.ptp(late) or 0.01
    domain = to_plain([late.min() - room, late.max() + room])
    named = {"field": "line", "type": "nominal", "legend": legend if len(lines) > 1 else None}
    dashes = [_SOLID, _DASHED][: len(lines)]
    few = {"aria": False} if len(epochs) < 3 else False  # a line of one point cannot be seen
    line = _layer(
        "line",
        {"strokeWidth": 2, "point": few},
        x={"field": "epoch", "type": "quantitative", "title": "epoch"},
        y=_axis("value", title, domain, **({"format": form} if form else {})),
        color={**named, "scale": {"domain": list(lines), "range": list(colours)}},
        strokeDash={**named, "scale": {"domain": list(lines), "range": dashes}},
    )
    rows = [
        row
        for name, values in lines.items()
        for row in _list_rows({"epoch": epochs, "value": values}, line=name)
    ]
    return {"data": {"values": rows}, "layer": [line]}


def draw_best_epoch(epoch: int) -> Spec:
    """Draw a dotted line where the surest were ranked best."""
    x = {"field": "epoch", "type": "quantitative"}
    return _layer("rule", {"strokeDash": _DOTTED}, [{"epoch": epoch}], x=x)


def draw_reliability(bins: Mapping[str, Any]) -> Spec:
    """Draw how often answers are right against the stated probability; the diagonal is perfect."""
    rows = [row for name, each in bins.items() for row in _list_rows(each._asdict(), name=name)]
    x = _axis("stated", "stated probability of being right", [0, 1], format="%", tickCount=10)
    y = _axis("right", "share that was right", [0, 1], format="%", tickCount=5)
    # On a phone the names stand below each other.
    style = _style("name", bins, {**LINE_LEGEND, "columns": {"expr": "width < 420 ? 1 : 0"}})
    style["color"]["scale"]["range"][0] = GUIDE  # the κ that is not calibrated
    ends: Spec = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": style["color"]}
    guide = {"strokeDash": [4, 4], "strokeWidth": 1, "color": GUIDE}
    diagonal = [{"stated": end, "right": end} for end in (0, 1)]
    layers = [
        _layer("line", guide, diagonal, x=x, y=y),
        _layer("rule", {"strokeWidth": 2, "opacity": 0.45}, x=x, **ends),
        _layer("line", {"point": {"aria": False}, "strokeWidth": 2}, x=x, y=y, **style),
    ]
    about = "Share of right answers against the stated probability, in ten bins"
    return _chart(about, layers, rows)


def draw_bins(bins: Mapping[str, Any]) -> Spec:
    """Draw how many examples each bin of the reliability chart has."""
    rows = [
        {"name": name, "bin": min(int(stated * BINS), BINS - 1) / BINS, "examples": int(count)}
        for name, each in bins.items()
        for stated, count in zip(each.stated, each.examples, strict=True)
    ]
    colour = _style("name", bins, None)["color"]
    colour["scale"]["range"][0] = GUIDE
    x = {"field": "bin", "type": "ordinal", "title": "stated probability of being right, from"} | {
        "scale": {"domain": [i / BINS for i in range(BINS)]},
        "axis": {"format": ".0%", "labelAngle": 0, "labelOverlap": True},
    }
    bars = _layer(
        "bar",
        {},
        x=x,
        xOffset={"field": "name", "scale": {"domain": list(bins)}},
        y={"field": "examples", "type": "quantitative", "axis": {"tickCount": 3}},
        color=colour,
    )
    about = "Examples in each of the ten bins of stated probability"
    return _chart(about, [bars], rows) | {"height": 90}


def _chart(
    description: str,
    layers: Sequence[Spec],
    rows: Sequence[Any] | None = None,
    coverage: float | None = None,
) -> Spec:
    """Return a chart as wide as the page; with `coverage` it follows the slider from there."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **({} if rows is None else {"data": {"values": rows}}),
        **({} if coverage is None else {"params": [{"name": "coverage", "value": coverage}]}),
        "layer": layers,
    }


def _layer(
    kind: str, look: Mapping[str, Any], rows: Sequence[Any] | None = None, **encoding: Any
) -> Spec:
    """Return a layer of marks; a screen reader reads the chart's description and its table."""
    mark = {"type": kind, "aria": False, "clip": True, **look}
    data = {} if rows is None else {"data": {"values": list(rows)}}
    return {**data, "mark": mark, "encoding": encoding}


def _axis(field: str, title: str, domain: Sequence[float], **axis: Any) -> Spec:
    scale = {"domain": list(domain), "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _axis_of_coverage(least: float) -> Spec:
    return _axis("coverage", "coverage: share accepted", [least, 1], format="%", tickCount=5)


def _follow_slider() -> Spec:
    x = {"datum": {"expr": "coverage"}, "type": "quantitative"}
    return _layer("rule", {"strokeDash": [4, 3]}, [{}], x=x)


def _draw_zero() -> Spec:
    return _layer("rule", {"color": GUIDE}, [{}], y={"datum": 0, "type": "quantitative"})


def _style(field: str, names: Iterable[str], legend: Spec | None = LINE_LEGEND) -> Spec:
    """Return the channels of colour and dash, by the kind of each name."""
    names = list(names)
    looks_of: dict[str, Mapping[str, Any]] = {"color": COLOURS, "strokeDash": _DASHES}
    return {
        channel: {
            "field": field,
            "type": "nominal",
            "legend": legend,
            "scale": {"domain": names, "range": [looks[find_kind(name)] for name in names]},
        }
        for channel, looks in looks_of.items()
    }


def _list_rows(columns: Mapping[str, Any], **constants: Any) -> list[dict[str, Any]]:
    values = zip(*map(to_plain, columns.values()), strict=True)
    return [{**constants, **dict(zip(columns, row, strict=True))} for row in values]


def to_plain(value: Any, digits: int = 6) -> Any:
    """Return numbers for JSON: rounded to what a screen shows, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): to_plain(part, digits) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [to_plain(part, digits) for part in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value
