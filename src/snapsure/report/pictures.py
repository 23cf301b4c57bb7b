"""Pictures in files (PNG, SVG, PDF) of what was computed elsewhere; computes no metric."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from snapsure._display import Display
from snapsure.errors import InvalidInput
from snapsure.evaluation._result import Board, Result
from snapsure.evaluation._trajectories import Trajectories
from snapsure.metrics import RCCurve
from snapsure.report import charts
from snapsure.report.charts import HINDSIGHT, Spec
from snapsure.report.colours import COLOURS, GREEN, RED, kind_of
from snapsure.report.findings import plain
from snapsure.report.labels import FONT_SIZE, Box, Label, place

_WIDTH, _AXIS = 740, 60  # of all panels beside each other, and of an axis with its title
_COLUMNS = 3
_CURVE_POINTS = 400  # more than a screen can show
_INK = "#333333"
_POINT = 5  # half of a point's side
_CONFIG = {
    "axis": {
        "labelFontSize": FONT_SIZE,
        "titleFontSize": FONT_SIZE + 1,
        "titleFontWeight": "normal",
        "labelColor": _INK,
        "titleColor": _INK,
        "gridColor": "#e8e8e8",
        "domainColor": "#999999",
        "tickColor": "#999999",
    },
    "axisY": {"labelFlush": True},  # else a title's height depends on the numbers below it
    "legend": {"labelFontSize": FONT_SIZE + 1, "labelColor": _INK, "symbolSize": 90},
    "title": {"fontSize": FONT_SIZE + 3, "anchor": "start", "color": _INK, "subtitleColor": _INK},
    "view": {"stroke": None},
}


def save(spec: Spec, path: Path) -> None:
    """Write a picture in the format that the path's ending names."""
    Display(spec).save(path)


def own_curves(curves: Mapping[str, RCCurve]) -> Spec:
    """Risk against coverage of curves that somebody has computed, in one panel."""
    return rc_curves({"": curves})


def rc_curves(
    panels: Mapping[str, Mapping[str, RCCurve]], best: Mapping[str, RCCurve] | None = None
) -> Spec:
    """Risk against coverage, panel by panel, and below it, where given, the best in hindsight."""
    hindsight = {title: {HINDSIGHT: curve} for title, curve in (best or {}).items()}
    rows = {
        title: charts.curve_rows(
            _thinned({**curves, **hindsight.get(title, {})}), ("coverage", "risk")
        )
        for title, curves in panels.items()
    }
    top = charts.settled([row for part in rows.values() for row in part], "risk")
    names = dict.fromkeys(name for curves in panels.values() for name in curves)
    colours = {name: COLOURS[kind_of(name)] for name in [*names, *([HINDSIGHT] * bool(best))]}
    area, line = charts.rc_layers(colours, top, 10 if len(rows) == 1 else 2)
    layers = [area, line] if best else [line]
    parts = [
        {"title": title, "data": {"values": part}, "layer": layers} for title, part in rows.items()
    ]
    about = "Selective risk against coverage"
    about += f". Grey: {HINDSIGHT}, the best order in hindsight" if best else ""
    return _picture("Risk-coverage curves", about, _beside(parts, 300 if len(parts) == 1 else 220))


def trajectories(
    epochs: NDArray[np.int64],
    result: Trajectories,
    groups: tuple[str, str],
    title: str,
    areas: tuple[str, str] | None = None,
) -> Spec:
    """Mean κ and E-AURC of the surest and the least sure points along training.

    `areas` names the groups of E-AURC where they are others than those of κ.
    """
    areas = areas or groups
    along, best = plain(epochs), int(epochs[result.best])
    colours = dict(zip(groups, (GREEN, RED), strict=True))
    kappas = dict(zip(groups, (result.green_kappa, result.red_kappa), strict=True))
    legend = charts.LINE_LEGEND | {"orient": "bottom", "direction": "vertical", "offset": 4}
    means = charts.lines("mean κ", along, kappas, colours, legend)
    colours = dict(zip(areas, (GREEN, RED), strict=True))
    surest, least = (
        charts.lines("E-AURC ×10³", along, {name: values * 1e3}, colours)
        for name, values in zip(areas, (result.green_eaurc, result.red_eaurc), strict=True)
    )
    surest["layer"].append(charts.best_rule(best))
    parts = [
        means | {"title": "confidence"},
        surest | {"title": f"{areas[0]}: best at epoch {best}"},
        least | {"title": areas[1]},
    ]
    about = "Mean κ, and E-AURC within two groups of points (lower is better), along training"
    panels = _beside(parts, 220)
    # The groups of κ and of E-AURC differ: each panel has its own names.
    apart = {"color": "independent", "strokeDash": "independent"}
    return _picture(title, about, panels | {"resolve": {"scale": apart}})


def boards(shown: Sequence[Board], level: float) -> Spec:
    """Gain against price, a panel per board, with the names of what is best at each price."""
    for board in shown:
        if any(row.gain is None for row in board.rows):
            raise InvalidInput(
                f"{board.name} must leave something to gain to be drawn, got an {board.measure} of "
                f"0 for {board.reference}: look at .to_frame()"
            )
    about = (
        f"Higher is better, further right costs more. Bars: {level:.0%} intervals. "
        "▼: further below than shown"
    )
    panels = {"vconcat": [_board(board) for board in shown], "spacing": 25}
    return _picture("What a better ranking costs", about, panels)


def told(board: Board) -> list[Result]:
    """Rows with a name in the picture: the best at each price, and the reference."""
    best: dict[float, Result] = {}
    for row in board.rows:
        best.setdefault(round(row.passes), row)
    chosen = [*best.values(), board[board.reference]]
    return list({row.method: row for row in chosen}.values())


def _board(board: Board) -> Spec:
    width, height = _WIDTH - _AXIS, 230
    top = charts.board_top(board)
    prices = [math.log(row.passes) for row in board.rows]
    # Room at both ends for names, also where all cost the same.
    room = max(0.5, 0.2 * (max(prices) - min(prices)))
    low, high = min(prices) - room, max(prices) + room

    def across(row: Result) -> float:
        return width * (math.log(row.passes) - low) / (high - low)

    def down(gain: float) -> float:
        return height * (1 - max(-top, gain) / (charts.MARGIN * top)) / 2

    places = [(across(row), down(row.saved.estimate)) for row in board.rows]
    points = [Box(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in places]
    bars = [
        Box(across(row) - 1, down(row.saved.high), across(row) + 1, down(row.saved.low))
        for row in board.rows
    ] + [Box(0, down(0) - 1, width, down(0) + 1)]
    names = [(_name(row, top), across(row), down(row.saved.estimate)) for row in told(board)]
    labels = place(names, points, bars, Box(0, 0, width, height))
    layers = charts.board_layers(board, {"domain": [math.exp(low), math.exp(high)]})
    return {
        "title": board.name,
        "width": width,
        "height": height,
        "layer": [*layers, *map(_text, labels)],
    }


def _name(row: Result, top: float) -> str:
    """A method's name, and its gain where its place in the picture does not tell."""
    gain = row.saved.estimate
    return row.method if gain >= -top else f"{row.method} ({gain:+.0f} %)".replace("-", "−")


def _text(label: Label) -> Spec:
    look = {"align": label.align, "baseline": "middle", "fontSize": FONT_SIZE, "color": _INK}
    return {
        "data": {"values": [{}]},
        "mark": {"type": "text", "text": label.name, **look},
        "encoding": {"x": {"value": label.x}, "y": {"value": label.y}},
    }


def _beside(parts: Sequence[Spec], height: int) -> Spec:
    """Panels in rows of at most three, as wide as one picture together."""
    width = _WIDTH // min(len(parts), _COLUMNS) - _AXIS
    panels = [part | {"width": width, "height": height} for part in parts]
    # Frames stand in line, whatever their titles and legends take.
    spacing = {"column": _AXIS + 5, "row": 90}
    return {"concat": panels, "columns": _COLUMNS, "bounds": "flush", "spacing": spacing}


def _picture(title: str, about: str, panels: Spec) -> Spec:
    return {
        "$schema": charts.SCHEMA,
        "description": about,
        "title": {"text": title, "subtitle": about, "offset": 16},
        "background": "white",
        "padding": 10,
        "config": _CONFIG,
        **panels,
    }


def _thinned(curves: Mapping[str, RCCurve]) -> dict[str, RCCurve]:
    thinned = {}
    for name, curve in curves.items():
        at = np.unique(np.linspace(0, curve.coverage.size - 1, _CURVE_POINTS).astype(np.int64))
        thinned[name] = RCCurve(*(part[at] for part in curve))
    return thinned
