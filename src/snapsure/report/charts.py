"""The report's charts as Vega-Lite specifications: data in, JSON out. Computes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from snapsure.contest._comparison import Board
from snapsure.report.findings import Curve, Findings, plain

Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name; nothing is fetched
# Mid-tones, told apart by colour-blind readers and on light and dark ground; lines differ in dash.
_COLOURS = {"AES": "#0c7bb3", "final": "#d1495b", "κ*": "#8a8a8a"}
_GREEN, _RED = "#2e933c", "#d1495b"
_KINDS = {"AES": "#0c7bb3", "PES": "#2e933c", "LES": "#d1495b", "other": "#8a8a8a"}
_HEIGHT = 260
# A chart has its description and a table; its marks would be read out as their first point.
_QUIET = {"aria": False, "clip": True}
_LEGEND = {"title": None, "orient": "top", "symbolType": "stroke", "symbolOpacity": 1}


def rc_chart(curves: Mapping[str, Curve], coverage: float) -> Spec:
    """Risk against coverage with bands, κ* below, and a rule that follows the slider."""
    rows = [
        {"score": name, "coverage": c, "risk": r, "low": low, "high": high}
        for name, curve in curves.items()
        for c, r, low, high in zip(
            *(plain(part) for part in (curve.coverage, curve.risk, curve.low, curve.high)),
            strict=True,
        )
    ]
    # The first few points have bands up to 1, which would press all else to the ground.
    settled = [row["high"] for row in rows if row["coverage"] >= 0.1 and row["score"] != "κ*"]
    top = {"scale": {"domain": [0, min(1.0, 1.15 * max(settled))]}, "axis": {"format": "%"}}
    x = {"field": "coverage", "type": "quantitative", "title": "coverage"} | {
        "axis": {"format": "%"},
        "scale": {"domain": [0, 1]},
    }
    colour = _by("score", _COLOURS)
    return {
        **_chart("Selective risk against coverage of AES and the final κ, with 95 % bands, and κ*"),
        "params": [{"name": "coverage", "value": coverage}],
        "data": {"values": rows},
        "layer": [
            {
                "transform": [{"filter": "datum.score === 'κ*'"}],
                "mark": {"type": "area", "opacity": 0.25, "color": _COLOURS["κ*"], **_QUIET},
                "encoding": {"x": x, "y": {"field": "risk", "type": "quantitative", **top}},
            },
            {
                "transform": [{"filter": "datum.score !== 'κ*'"}],
                "mark": {"type": "area", "opacity": 0.18, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", "type": "quantitative", "title": "risk", **top},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "risk", "type": "quantitative", "title": "risk", **top},
                    "color": colour,
                    "strokeDash": _dashes("score", _COLOURS),
                },
            },
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "aria": False},
                "encoding": {"x": {"datum": {"expr": "coverage"}, "type": "quantitative"}},
            },
        ],
    }


def board_chart(board: Board) -> Spec:
    """Gain against price; what is as far below the reference as the best is above, at the edge."""
    top = max(5.0, max(row.gain.high for row in board.rows))
    rows = [
        {
            "method": row.method,
            "kind": next((kind for kind in ("AES", "PES", "LES") if kind in row.method), "other"),
            "passes": row.passes,
            "gain": row.gain.estimate,
            "shown": max(row.gain.estimate, -top),
            "low": max(row.gain.low, -top),
            "high": max(row.gain.high, -top),
        }
        for row in board.rows
    ]
    x = {"field": "passes", "type": "quantitative", "title": "forward passes per answer"} | {
        "scale": {"type": "log", "nice": False, "padding": 12}
    }
    y = {"type": "quantitative", "title": f"% less E-AURC than {board.reference}"} | {
        "scale": {"domain": [-top, top]}
    }
    colour = _by("kind", _KINDS)
    return {
        **_chart(f"Gain over {board.reference} against forward passes per answer"),
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.45, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "low", **y},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50, "tooltip": True, **_QUIET},
                "encoding": {
                    "x": x,
                    "y": {"field": "shown", **y},
                    "color": colour,
                    "shape": {"field": "kind", "type": "nominal", "legend": None},
                    "tooltip": [{"field": name} for name in ("method", "passes", "gain")],
                },
            },
        ],
    }


def training_charts(found: Findings) -> list[tuple[str, Spec]]:
    """Accuracy, mean κ, and E-AURC of both groups along the epochs."""
    epochs, groups = plain(found.epochs), found.groups
    green, red = f"surest {found.surer:.0%}", f"least sure {1 - found.surer:.0%}"
    colours = {green: _GREEN, red: _RED}
    averaged = {
        "data": {"values": [{"epoch": epoch} for epoch in plain(found.averaged)]},
        "mark": {"type": "tick", "thickness": 2, "color": _COLOURS["AES"], "aria": False},
        "encoding": {"x": {"field": "epoch", "type": "quantitative"}, "y": {"value": _HEIGHT - 4}},
    }
    best = {
        "data": {"values": [{"epoch": int(found.epochs[groups.best])}]},
        "mark": {"type": "rule", "strokeDash": [2, 3], "aria": False},
        "encoding": {"x": {"field": "epoch", "type": "quantitative"}},
    }
    means = _lines("mean κ", epochs, {green: groups.green_kappa, red: groups.red_kappa}, colours)
    surest = _lines("E-AURC ×10³", epochs, {green: groups.green_eaurc * 1e3}, colours)
    least = _lines("E-AURC ×10³", epochs, {red: groups.red_eaurc * 1e3}, colours)
    accuracy = _lines("accuracy", epochs, {"accuracy": found.accuracies}, {"accuracy": "#8a6fb0"})
    surest["layer"] += [averaged, best]
    described = [
        ("Accuracy after each epoch.", accuracy),
        (f"Mean κ of the {green} and of the {red} of the points.", means),
        (
            f"E-AURC of the {green} of the points, lower is better. Dotted: where it was best. "
            "Ticks: the snapshots that AES averages.",
            surest,
        ),
        (f"E-AURC of the {red} of the points.", least),
    ]
    for words, spec in described:
        spec.update(_chart(words))
    return described


def reliability_chart(found: Findings) -> Spec:
    """How often right, against what was said; the diagonal is perfect."""
    rows = [
        {"probability": each.name, "said": said, "right": right, "points": count}
        for each in found.reliability
        for said, right, count in zip(
            plain(each.said), plain(each.right), plain(each.count), strict=True
        )
    ]
    names = [each.name for each in found.reliability]
    colours = dict(zip(names, ("#8a8a8a", "#d1495b", "#0c7bb3"), strict=True))
    axis = {"scale": {"domain": [0, 1]}, "axis": {"format": "%"}, "type": "quantitative"}
    return {
        **_chart("Share of right predictions against the probability that was stated, in ten bins"),
        "data": {"values": rows},
        "layer": [
            {
                "data": {"values": [{"said": 0, "right": 0}, {"said": 1, "right": 1}]},
                "mark": {
                    "type": "line",
                    "strokeDash": [4, 4],
                    "strokeWidth": 1,
                    "color": "#8a8a8a",
                },
                "encoding": {"x": {"field": "said", **axis}, "y": {"field": "right", **axis}},
            },
            {
                "mark": {"type": "line", "point": {"aria": False}, "strokeWidth": 2, **_QUIET},
                "encoding": {
                    "x": {"field": "said", "title": "stated probability of being right", **axis},
                    "y": {"field": "right", "title": "share that was right", **axis},
                    "color": _by("probability", colours),
                    "strokeDash": _dashes("probability", colours),
                },
            },
        ],
    }


def _chart(description: str) -> Spec:
    return {
        "$schema": _SCHEMA,
        "description": description,
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def _lines(
    title: str, epochs: Sequence[int], lines: Mapping[str, Any], colours: Mapping[str, str]
) -> Spec:
    rows = [
        {"line": name, "epoch": epoch, "value": value}
        for name, values in lines.items()
        for epoch, value in zip(epochs, plain(values), strict=True)
    ]
    shown = {name: colours[name] for name in lines}
    few = {"aria": False} if len(epochs) < 3 else False  # a line of one point would not be seen
    return {
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2, "aria": False, "point": few},
                "encoding": {
                    "x": {"field": "epoch", "type": "quantitative", "title": "epoch"},
                    "y": {"field": "value", "type": "quantitative", "title": title},
                    "color": _by("line", shown),
                    "strokeDash": _dashes("line", shown),
                },
            }
        ],
    }


def _by(field: str, colours: Mapping[str, str]) -> Spec:
    legend = _LEGEND if len(colours) > 1 else None
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "legend": legend,
    }


def _dashes(field: str, colours: Mapping[str, str]) -> Spec:
    dashes = [[1, 0], [6, 3], [2, 2]][: len(colours)]
    scale = {"domain": list(colours), "range": dashes}
    legend = _LEGEND if len(colours) > 1 else None
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}
