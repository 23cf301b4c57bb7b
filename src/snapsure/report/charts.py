"""The report's charts as Vega-Lite specifications: data in, JSON out. Computes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from snapsure.evaluation import Board
from snapsure.report.accepting import Curve
from snapsure.report.colours import ACCURACY, COLOURS, GREEN, GUIDE, RED, kind_of
from snapsure.report.findings import BINS, Findings, plain

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
HINDSIGHT = "κ*"
_KINDS = {kind: COLOURS[kind] for kind in ("AES", "PES", "LES", "final", "other")}
_SHAPES = dict(zip(_KINDS, ("circle", "square", "diamond", "triangle-up", "cross"), strict=True))
_HEIGHT, _LOW = 260, 90
MARGIN = 1.08  # of a chart of gains: room for a point at the edge
# A chart has its description and a table; its marks would be read out as their first point.
_QUIET = {"aria": False, "clip": True}
_LEGEND = {"title": None, "orient": "top", "symbolOpacity": 1}
LINE_LEGEND = {**_LEGEND, "symbolType": "stroke", "symbolSize": 250}


def rc_chart(curves: Mapping[str, Curve], coverage: float) -> Spec:
    """Risk against coverage with bands, κ* below, and a rule that follows the slider."""
    rows = curve_rows(curves, ("coverage", "risk", "low", "high"))
    top = settled(rows, "high")
    colours = {name: COLOURS[kind_of(name)] for name in curves}
    area, line = rc_layers(colours, top)
    band = {
        "transform": [{"filter": f"datum.score !== '{HINDSIGHT}'"}],
        "mark": {"type": "area", "opacity": 0.18, **_QUIET},
        "encoding": {
            "x": line["encoding"]["x"],
            "y": {**line["encoding"]["y"], "field": "low"},
            "y2": {"field": "high"},
            "color": line["encoding"]["color"],
        },
    }
    follower = {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "aria": False},
        "encoding": {"x": {"datum": {"expr": "coverage"}, "type": "quantitative"}},
    }
    return {
        **_chart("Selective risk against coverage of each confidence, with 95 % bands, and κ*"),
        "params": [{"name": "coverage", "value": coverage}],
        "data": {"values": rows},
        "layer": [area, band, line, follower],
    }


def curve_rows(curves: Mapping[str, Any], fields: Sequence[str]) -> list[dict[str, Any]]:
    """A row per point of each curve, with these of its fields."""
    return [
        {"score": name, **dict(zip(fields, values, strict=True))}
        for name, curve in curves.items()
        for values in zip(*(plain(getattr(curve, field)) for field in fields), strict=True)
    ]


def settled(rows: Sequence[Mapping[str, Any]], field: str) -> float:
    """How high an axis of risk goes.

    The first few points of a curve are noise up to 1, which would press all else to the ground.
    """
    high = (r[field] for r in rows if r["coverage"] >= 0.1 and r["score"] != HINDSIGHT)
    return min(1.0, 1.15 * max(high)) or 1.0


def rc_layers(colours: Mapping[str, str], top: float, ticks: int = 10) -> tuple[Spec, Spec]:
    """Of risk up to `top` against coverage: the area below κ*, and the curves."""
    x = {"field": "coverage", "type": "quantitative", "title": "coverage"} | {
        "axis": {"format": "%", "tickCount": ticks},
        "scale": {"domain": [0, 1]},
    }
    y = {"field": "risk", "type": "quantitative", "title": "risk"} | {
        "axis": {"format": "%"},
        "scale": {"domain": [0, top]},
    }
    area = {
        "transform": [{"filter": f"datum.score === '{HINDSIGHT}'"}],
        "mark": {"type": "area", "opacity": 0.25, "color": COLOURS[HINDSIGHT], **_QUIET},
        "encoding": {"x": x, "y": y},
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 2, **_QUIET},
        "encoding": {
            "x": x,
            "y": y,
            "color": _by("score", colours),
            "strokeDash": _dashes("score", colours),
        },
    }
    return area, line


def board_chart(board: Board) -> Spec:
    """Gain against price; what is as far below the reference as the best is above, at the edge."""
    return {
        **_chart(f"Gain over {board.reference_label} against forward passes per answer"),
        "layer": board_layers(board, {"padding": 12}),
    }


def board_top(board: Board) -> float:
    """How far a chart of gains goes, up and down."""
    return max(5.0, max(row.saved.high for row in board.rows))


def board_layers(board: Board, prices: Mapping[str, Any]) -> list[Spec]:
    """A line at no gain, intervals, points, and ▼ for what is below; `prices` is of x's scale."""
    top = board_top(board)
    rows = _board_rows(board, top)
    x = {"field": "passes", "type": "quantitative", "title": "forward passes per answer"} | {
        "scale": {"type": "log", "nice": False, **prices}
    }
    y = {
        "type": "quantitative",
        "title": f"% less {board.measure} than {board.reference_label}",
    } | {"scale": {"domain": [-MARGIN * top, MARGIN * top], "nice": False}}
    seen = {row["kind"] for row in rows}
    kinds = {kind: colour for kind, colour in _KINDS.items() if kind in seen}
    colour = _by("kind", kinds, _LEGEND)
    shapes = {"domain": list(kinds), "range": [_SHAPES[kind] for kind in kinds]}
    shape = {"field": "kind", "type": "nominal", "scale": shapes, "legend": _LEGEND}
    dot = {"type": "point", "filled": True, "size": 50, "opacity": 1} | {
        "tooltip": True,
        "aria": False,
    }
    place = {"x": x, "y": {"field": "shown", **y}, "color": colour} | {
        "tooltip": [{"field": name} for name in ("method", "passes", "gain")]
    }
    below = [row for row in rows if row["gain"] < -top]
    ends = {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}, "color": colour}
    return [
        {
            "data": {"values": [{}]},
            "mark": {"type": "rule", "color": GUIDE, "aria": False},
            "encoding": {"y": {"datum": 0, "type": "quantitative"}},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "rule", "opacity": 0.45, **_QUIET},
            "encoding": ends,
        },
        {
            "data": {"values": [row for row in rows if row["gain"] >= -top]},
            "mark": dot,
            "encoding": {**place, "shape": shape},
        },
        *(
            [
                {
                    "data": {"values": below},
                    "mark": {**dot, "shape": "triangle-down"},
                    "encoding": place,
                }
            ]
            if below  # a layer without data makes Vega warn of its extent
            else []
        ),
    ]


def _board_rows(board: Board, top: float) -> list[dict[str, Any]]:
    return [
        {
            "method": board.label(row),
            "kind": kind_of(row.method),
            "passes": row.passes,
            "gain": row.saved.estimate,
            "shown": max(row.saved.estimate, -top),
            "low": max(row.saved.low, -top),
            "high": max(row.saved.high, -top),
        }
        for row in board.rows
    ]


def training_charts(found: Findings) -> list[tuple[str, Spec]]:
    """E-AURC of both groups along the epochs; accuracy, and mean κ."""
    epochs, groups = plain(found.epochs), found.groups
    green, red = f"surest {found.surer:.0%}", f"least sure {1 - found.surer:.0%}"
    colours = {green: GREEN, red: RED}
    averaged = {
        "data": {"values": [{"epoch": epoch} for epoch in plain(found.averaged)]},
        "mark": {"type": "tick", "thickness": 2, "color": COLOURS["AES"], "aria": False},
        "encoding": {"x": {"field": "epoch", "type": "quantitative"}, "y": {"value": _HEIGHT - 4}},
    }
    best = best_rule(int(found.epochs[groups.best]))
    means = lines("mean κ", epochs, {green: groups.green_kappa, red: groups.red_kappa}, colours)
    surest = lines("E-AURC ×10³", epochs, {green: groups.green_eaurc * 1e3}, colours)
    least = lines("E-AURC ×10³", epochs, {red: groups.red_eaurc * 1e3}, colours)
    accuracy = lines("accuracy", epochs, {"accuracy": found.accuracies}, {"accuracy": ACCURACY})
    surest["layer"] += [averaged, best]
    described = [
        (
            f"E-AURC of the {green} of the points, lower is better. Dotted: where it was best. "
            "Ticks: the snapshots that AES averages.",
            surest,
        ),
        (f"E-AURC of the {red} of the points.", least),
        ("Accuracy after each epoch.", accuracy),
        (f"Mean κ of the {green} and of the {red} of the points.", means),
    ]
    for words, spec in described:
        spec.update(_chart(words))
    return described


def reliability_chart(found: Findings) -> Spec:
    """How often right, against what was said, with intervals; the diagonal is perfect."""
    fields = ("said", "right", "low", "high", "count")
    rows = [
        {"probability": each.name, **dict(zip(fields, values, strict=True))}
        for each in found.reliability
        for values in zip(*(plain(getattr(each, field)) for field in fields), strict=True)
    ]
    colours = _reliability_colours(found)
    axis = {"scale": {"domain": [0, 1]}, "axis": {"format": "%"}, "type": "quantitative"}
    x = {"field": "said", "title": "stated probability of being right", **axis}
    y = {"title": "share that was right", **axis}
    colour = _by("probability", colours)
    return {
        **_chart("Share of right predictions against the probability that was stated, in ten bins"),
        "data": {"values": rows},
        "layer": [
            {
                "data": {"values": [{"said": 0, "right": 0}, {"said": 1, "right": 1}]},
                "mark": {"type": "line", "strokeDash": [4, 4], "strokeWidth": 1, "color": GUIDE},
                "encoding": {"x": {"field": "said", **axis}, "y": {"field": "right", **axis}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.45, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", **y},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "line", "point": {"aria": False}, "strokeWidth": 2, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "right", **y},
                    "color": colour,
                    "strokeDash": _dashes("probability", colours),
                },
            },
        ],
    }


def bins_chart(found: Findings) -> Spec:
    """How many points each bin of the reliability chart has."""
    rows = [
        {"probability": each.name, "bin": min(int(said * BINS), BINS - 1) / BINS, "points": count}
        for each in found.reliability
        for said, count in zip(plain(each.said), plain(each.count), strict=True)
    ]
    colours = _reliability_colours(found)
    edges = [i / BINS for i in range(BINS)]
    return {
        **_chart("Points in each of the ten bins of stated probability"),
        "height": _LOW,
        "data": {"values": rows},
        "mark": {"type": "bar", "aria": False},
        "encoding": {
            "x": {
                "field": "bin",
                "type": "ordinal",
                "title": "stated probability of being right, from",
                "scale": {"domain": edges},
                "axis": {"format": ".0%", "labelAngle": 0, "labelOverlap": True},
            },
            "xOffset": {
                "field": "probability",
                "scale": {"domain": list(colours)},
            },
            "y": {"field": "points", "type": "quantitative", "axis": {"tickCount": 3}},
            "color": _by("probability", colours, None),
        },
    }


def _reliability_colours(found: Findings) -> dict[str, str]:
    kinds = ("other", "final", found.score)
    return {each.name: COLOURS[kind] for each, kind in zip(found.reliability, kinds, strict=True)}


def _chart(description: str) -> Spec:
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def lines(
    title: str,
    epochs: Sequence[int],
    lines: Mapping[str, Any],
    colours: Mapping[str, str],
    legend: Spec = LINE_LEGEND,
) -> Spec:
    """Values along the epochs, each line in its colour; a legend if there are several."""
    rows = [
        {"line": name, "epoch": epoch, "value": value}
        for name, values in lines.items()
        for epoch, value in zip(epochs, plain(values), strict=True)
    ]
    shown = legend if len(lines) > 1 else None
    few = {"aria": False} if len(epochs) < 3 else False  # a line of one point would not be seen
    return {
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2, "aria": False, "point": few},
                "encoding": {
                    "x": {"field": "epoch", "type": "quantitative", "title": "epoch"},
                    "y": {"field": "value", "type": "quantitative", "title": title},
                    "color": _by("line", colours, shown),
                    "strokeDash": _dashes("line", colours, shown),
                },
            }
        ],
    }


def best_rule(epoch: int) -> Spec:
    """A dotted line where the surest were ranked best."""
    return {
        "data": {"values": [{"epoch": epoch}]},
        "mark": {"type": "rule", "strokeDash": [2, 3], "aria": False},
        "encoding": {"x": {"field": "epoch", "type": "quantitative"}},
    }


def _by(field: str, colours: Mapping[str, str], legend: Spec | None = LINE_LEGEND) -> Spec:
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _dashes(field: str, colours: Mapping[str, str], legend: Spec | None = LINE_LEGEND) -> Spec:
    dashes = [[1, 0], [6, 3], [2, 2]]
    scale = {"domain": list(colours), "range": [dashes[i % 3] for i in range(len(colours))]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}
