"""The charts of the page as Vega-Lite specifications: numbers in, JSON out. Computes nothing.

A method has one colour, that of the registry, and one dash in every chart.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from snapsure.estimators import registry
from snapsure.evaluation import Board
from snapsure.report.findings import BINS, HINDSIGHT, Findings, Recommendation, final_name, plain
from snapsure.report.tables import percent, write_limit

Spec = dict[str, Any]

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
_LEGEND = {"title": None, "orient": "top", "symbolOpacity": 1, "labelFontSize": 12}
LINE_LEGEND = {**_LEGEND, "symbolType": "stroke", "symbolSize": 300}


def kind_of(name: str) -> str:
    """Return the kind of a method or a curve by its first word: AES for "AES, calibrated"."""
    first = name.partition(" ")[0].rstrip(",")
    return first if first in COLOURS else "other"


def draw_accepted(advice: Recommendation) -> Spec:
    """Draw what is accepted and what is sent to review, recommended against the final κ."""
    final = final_name(advice.kappa)
    shares = {final: advice.final_accepted}
    if advice.method != "final":
        shares = {advice.method: advice.accepted, **shares}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "share": share or 0.0,
            "label": percent(share) if share else "cannot keep this limit",
        }
        for name, share in shares.items()
    ]
    x = _axis("share", "share of all answers", [0, 1], format="%", tickCount=5)
    y = {"field": "name", "type": "nominal", "title": None, "sort": None} | {
        "axis": {"labelFontSize": 14, "ticks": False, "domain": False, "labelPadding": 8}
    }
    whole = {**{key: x[key] for key in ("type", "scale", "axis", "title")}, "datum": 1}
    thick = {"height": {"band": 0.7}}
    inside = [row for row in rows if row["share"] > 0.3]
    outside = [row for row in rows if row["share"] <= 0.3]
    text = {"fontSize": 14, "fontWeight": 600}
    within = {**text, "align": "right", "dx": -8, "color": "white"}
    return {
        **_chart("Share of answers accepted at the error limit; the others are sent to review"),
        "height": 38 * len(rows),
        "data": {"values": plain(rows)},
        "layer": [
            _layer("bar", {**thick, "color": GUIDE, "opacity": 0.16}, x=whole, y=y),
            _layer("bar", thick, x=x, y=y, color=_colour("name", shares, None)),
            *(
                _layer("text", look, some, x=x, y=y, text={"field": "label"})
                for look, some in ((within, inside), ({**text, "align": "left", "dx": 8}, outside))
                if some
            ),
        ],
    }


def draw_risk(found: Findings, coverage: float) -> Spec:
    """Draw risk against coverage, the error limit, the chosen point, and where the slider is."""
    rows = curve_rows(found.curves)
    top = min(1.05 * max(row["risk"] for row in rows), _ZOOM * found.risk)
    layers = rc_layers([*found.curves], top, least=0.05)
    x, y = (layers[1]["encoding"][axis] for axis in ("x", "y"))

    limit = [{"risk": found.risk, "label": f"error limit {write_limit(found.risk)}"}]
    above = {"align": "left", "baseline": "bottom", "fontSize": 12, "x": 4, "dy": -3}
    layers += [
        _follow_slider(),
        _layer("rule", {"strokeWidth": 1.5, "strokeDash": _DOTTED}, limit, y=y),
        _layer("text", above, limit, y=y, text={"field": "label"}),
    ]
    if found.chosen is not None:
        at, risk = found.chosen
        chosen = [{"coverage": at, "risk": risk, "label": f"recommended: {percent(at)} accepted"}]
        colour = COLOURS[kind_of(next(iter(found.curves)))]
        side = {"align": "right", "dx": -14} if at > 0.5 else {"align": "left", "dx": 12}
        layers += [
            _layer("point", {"filled": True, "size": 110, "color": colour}, chosen, x=x, y=y),
            _layer("text", {**side, "dy": 12}, chosen, x=x, y=y, text={"field": "label"}),
        ]
    return {
        **_chart("Risk against coverage of each confidence, with the error limit"),
        "params": [{"name": "coverage", "value": coverage}],
        "data": {"values": rows},
        "layer": layers,
    }


def draw_difference(found: Findings, coverage: float) -> Spec:
    """Draw how much less risk a method has than the final κ at the same coverage."""
    fields = ("coverage", "risk", "low", "high")
    rows = _rows(found.difference, fields)
    x = _coverage(0.05)
    title = f"risk: {found.method} − {final_name(found.kappa)}"
    y = {"type": "quantitative", "title": title, "axis": {"format": "+.1%"}}
    colour = COLOURS[kind_of(found.method)]
    line = {"strokeWidth": 2, "color": colour, "strokeDash": _DASHES[kind_of(found.method)]}
    return {
        **_chart(f"{title}, with a 95 % band"),
        "params": [{"name": "coverage", "value": coverage}],
        "data": {"values": rows},
        "layer": [
            _layer(
                "area",
                {"opacity": 0.25, "color": colour},
                x=x,
                y={**y, "field": "low"},
                y2={"field": "high"},
            ),
            _layer("line", line, x=x, y={**y, "field": "risk"}),
            _zero(),
            _follow_slider(),
        ],
    }


def curve_rows(curves: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per point of each curve."""
    return [
        {"score": name, **row}
        for name, curve in curves.items()
        for row in _rows(curve, ("coverage", "risk"))
    ]


def rc_layers(names: Iterable[str], top: float, ticks: int = 10, least: float = 0.0) -> list[Spec]:
    """Return the area below κ* and the curves: risk up to `top` against coverage from `least`."""
    x = _coverage(least, ticks)
    y = _axis("risk", "risk: share of errors", [0, top], format="%")
    methods = [name for name in names if name != HINDSIGHT]
    colour, dash = _colour("score", methods), _dash("score", methods)
    area = _layer("area", {"opacity": 0.2, "color": GUIDE}, x=x, y=y)
    line = _layer("line", {"strokeWidth": 2}, x=x, y=y, color=colour, strokeDash=dash)
    return [
        area | {"transform": [{"filter": f"datum.score === '{HINDSIGHT}'"}]},
        line | {"transform": [{"filter": f"datum.score !== '{HINDSIGHT}'"}]},
    ]


def draw_board(board: Board) -> Spec:
    """Draw gain against price."""
    return {
        **_chart(f"Gain over {board.reference_label} against forward passes per answer"),
        "layer": board_layers(board, {"padding": 12}),
    }


def board_top(board: Board) -> float:
    """Return how far a chart of gains goes, up and down."""
    return max(5.0, max(row.saved.high for row in board.rows))


def board_layers(board: Board, scale: Mapping[str, Any]) -> list[Spec]:
    """Return a line at no gain, intervals, points, and ▼ for what is below the chart.

    `scale` completes the scale of passes.
    """
    top = board_top(board)
    rows: list[dict[str, Any]] = [
        {
            **{"method": board.label(row), "kind": kind_of(row.method), "passes": row.passes},
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
    colour = _colour("kind", kinds, _LEGEND)
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
        _zero(),
        _layer("rule", {"opacity": 0.45}, rows, **ends),
        _layer("point", dot, above, **place, shape=shape),
    ]
    if below:  # Vega warns of a layer without data
        layers.append(_layer("point", {**dot, "shape": "triangle-down"}, below, **place))
    return layers


def draw_training(found: Findings) -> list[tuple[str, Spec]]:
    """Draw E-AURC of both groups along the epochs, accuracy, and mean κ; each with its caption."""
    epochs, groups = plain(found.epochs), found.groups
    green, red = f"surest {found.surer:.0%}", f"least sure {1 - found.surer:.0%}"
    surest = draw_lines("E-AURC ×10³", epochs, {green: groups.green_eaurc * 1e3}, [GREEN])
    averaged = [{"epoch": epoch} for epoch in plain(found.averaged)]
    tick = {"thickness": 2, "color": COLOURS["AES"]}
    at = {"x": {"field": "epoch", "type": "quantitative"}, "y": {"value": _HEIGHT - 4}}
    surest["layer"] += [
        _layer("tick", tick, averaged, **at),
        draw_best_epoch(int(found.epochs[groups.best])),
    ]
    least = draw_lines("E-AURC ×10³", epochs, {red: groups.red_eaurc * 1e3}, [RED])
    accuracy = draw_lines("accuracy", epochs, {"": found.accuracies}, [_ACCURACY], form=".1%")
    means = {green: groups.green_kappa, red: groups.red_kappa}
    charts = {
        f"E-AURC of the {green} of the examples, lower is better. Dotted: the best epoch. "
        "Ticks: the snapshots that AES averages.": surest,
        f"E-AURC of the {red} of the examples.": least,
        "Accuracy after each epoch.": accuracy,
        f"Mean κ of the {green} and of the {red} of the examples.": draw_lines(
            "mean κ", epochs, means, [GREEN, RED]
        ),
    }
    return [(caption, {**spec, **_chart(caption)}) for caption, spec in charts.items()]


def draw_lines(
    title: str,
    epochs: Sequence[int],
    lines: Mapping[str, Any],
    colours: Sequence[str],
    legend: Spec = LINE_LEGEND,
    form: str = "",
) -> Spec:
    """Draw values along the epochs; the axis fits all but the first fifth of training."""
    rows = [
        {"line": name, "epoch": epoch, "value": value}
        for name, values in lines.items()
        for epoch, value in zip(epochs, plain(values), strict=True)
    ]
    settled = epochs[0] + 0.2 * (epochs[-1] - epochs[0])
    late = [row["value"] for row in rows if row["epoch"] >= settled]
    room = 0.08 * (max(late) - min(late)) or 0.01
    y = _axis("value", title, plain([min(late) - room, max(late) + room]), format=form)
    named = {"field": "line", "type": "nominal", "legend": legend if len(lines) > 1 else None}
    dashes = [_SOLID, _DASHED][: len(lines)]
    few = {"aria": False} if len(epochs) < 3 else False  # a line of one point cannot be seen
    line = _layer(
        "line",
        {"strokeWidth": 2, "point": few},
        x={"field": "epoch", "type": "quantitative", "title": "epoch"},
        y=y,
        color={**named, "scale": {"domain": list(lines), "range": list(colours)}},
        strokeDash={**named, "scale": {"domain": list(lines), "range": dashes}},
    )
    return {"data": {"values": rows}, "layer": [line]}


def draw_best_epoch(epoch: int) -> Spec:
    """Draw a dotted line where the surest were ranked best."""
    x = {"field": "epoch", "type": "quantitative"}
    return _layer("rule", {"strokeDash": _DOTTED}, [{"epoch": epoch}], x=x)


def draw_reliability(found: Findings) -> Spec:
    """Draw how often answers are right against the stated probability; the diagonal is perfect."""
    fields = ("stated", "right", "low", "high", "count")
    rows = [{"name": each.name, **row} for each in found.reliability for row in _rows(each, fields)]
    x = _axis("stated", "stated probability of being right", [0, 1], format="%")
    y = _axis("right", "share that was right", [0, 1], format="%")
    diagonal = [{"stated": end, "right": end} for end in (0, 1)]
    colour, dash = _style_reliability(found)
    low, high = {**y, "field": "low"}, {"field": "high"}
    line = {"point": {"aria": False}, "strokeWidth": 2}
    return {
        **_chart("Share of right answers against the stated probability, in ten bins"),
        "data": {"values": rows},
        "layer": [
            _layer(
                "line", {"strokeDash": [4, 4], "strokeWidth": 1, "color": GUIDE}, diagonal, x=x, y=y
            ),
            _layer("rule", {"strokeWidth": 2, "opacity": 0.45}, x=x, y=low, y2=high, color=colour),
            _layer("line", line, x=x, y=y, color=colour, strokeDash=dash),
        ],
    }


def draw_bins(found: Findings) -> Spec:
    """Draw how many examples each bin of the reliability chart has."""
    rows = [
        {"name": each.name, "bin": min(int(stated * BINS), BINS - 1) / BINS, "examples": count}
        for each in found.reliability
        for stated, count in zip(plain(each.stated), plain(each.count), strict=True)
    ]
    colour, _ = _style_reliability(found)
    x = {"field": "bin", "type": "ordinal", "title": "stated probability of being right, from"} | {
        "scale": {"domain": [i / BINS for i in range(BINS)]},
        "axis": {"format": ".0%", "labelAngle": 0, "labelOverlap": True},
    }
    bars = _layer(
        "bar",
        {},
        rows,
        x=x,
        xOffset={"field": "name", "scale": {"domain": colour["scale"]["domain"]}},
        y={"field": "examples", "type": "quantitative", "axis": {"tickCount": 3}},
        color={**colour, "legend": None},
    )
    return {
        **_chart("Examples in each of the ten bins of stated probability"),
        "height": 90,
        **bars,
    }


def _style_reliability(found: Findings) -> tuple[Spec, Spec]:
    """Return colours and dashes; the κ that is not calibrated is grey."""
    names = [each.name for each in found.reliability]
    # On a phone the names stand below each other.
    legend = {**LINE_LEGEND, "columns": {"expr": "width < 420 ? 1 : 0"}}
    colour = _colour("name", names, legend)
    colour["scale"]["range"][0] = COLOURS["other"]
    return colour, {**_dash("name", names), "legend": legend}


def _chart(description: str) -> Spec:
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
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


def _coverage(least: float, ticks: int = 10) -> Spec:
    return _axis("coverage", "coverage: share accepted", [least, 1], format="%", tickCount=ticks)


def _follow_slider() -> Spec:
    x = {"datum": {"expr": "coverage"}, "type": "quantitative"}
    return _layer("rule", {"strokeDash": [4, 3]}, [{}], x=x)


def _zero() -> Spec:
    return _layer("rule", {"color": GUIDE}, [{}], y={"datum": 0, "type": "quantitative"})


def _rows(columns: Any, fields: Sequence[str]) -> list[dict[str, Any]]:
    values = (plain(getattr(columns, field)) for field in fields)
    return [dict(zip(fields, row, strict=True)) for row in zip(*values, strict=True)]


def _colour(field: str, names: Iterable[str], legend: Spec | None = LINE_LEGEND) -> Spec:
    names = list(names)
    scale = {"domain": names, "range": [COLOURS[kind_of(name)] for name in names]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _dash(field: str, names: Iterable[str]) -> Spec:
    names = list(names)
    scale = {"domain": names, "range": [_DASHES[kind_of(name)] for name in names]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": LINE_LEGEND}
