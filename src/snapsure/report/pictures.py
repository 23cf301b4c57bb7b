"""Pictures for files (PNG, SVG, PDF) and notebooks. They draw numbers and compute none."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from snapsure._display import Display
from snapsure._types import Ints
from snapsure.errors import InvalidInput
from snapsure.evaluation import Board, Result, Trajectories
from snapsure.metrics import RCCurve
from snapsure.report import charts
from snapsure.report.charts import GREEN, HINDSIGHT, RED, Spec

FONT_SIZE = 11
_LETTER = 0.53 * FONT_SIZE  # the mean width of a letter, generously
_GAP = 7  # between a point's centre and its name
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


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Say whether the two share more than an edge."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def inside(self, other: "Box") -> bool:
        """Say whether it lies inside the other."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


class Label(NamedTuple):
    """A name, where it is written and from which side, and the rectangle that it fills."""

    name: str
    x: float
    y: float
    align: Literal["left", "right", "center"]
    box: Box


def save(spec: Spec, path: Path) -> None:
    """Write a picture in the format that the path's ending names."""
    Display(spec).save(path)


def draw_curves(curves: Mapping[str, RCCurve]) -> Spec:
    """Draw risk against coverage in one panel."""
    return draw_panels({"": curves})


def draw_panels(
    panels: Mapping[str, Mapping[str, RCCurve]], best: Mapping[str, RCCurve] | None = None
) -> Spec:
    """Draw risk against coverage, panel by panel, with the best ranking in hindsight if given."""
    rows = {title: charts.list_points(curves, _CURVE_POINTS) for title, curves in panels.items()}
    # The start of a curve is noise up to 1, which would flatten everything else.
    late = [row["risk"] for part in rows.values() for row in part if row["coverage"] >= 0.1]
    top = min(1.0, 1.15 * max(late)) or 1.0
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    layers = charts.draw_curves(names, top)
    about = "Selective risk against coverage"
    if best is None:
        layers = layers[1:]
    else:
        about += f". Grey: {HINDSIGHT}, the best order in hindsight"
        for title, curve in best.items():
            rows[title] += charts.list_points({HINDSIGHT: curve}, _CURVE_POINTS)
    parts = [
        {"title": title, "data": {"values": part}, "layer": layers} for title, part in rows.items()
    ]
    return _picture("Risk-coverage curves", about, _beside(parts, 300 if len(parts) == 1 else 220))


def draw_trajectories(
    epochs: Ints,
    result: Trajectories,
    groups: tuple[str, str],
    title: str,
    areas: tuple[str, str] | None = None,
) -> Spec:
    """Draw mean κ and E-AURC of the surest and the least sure examples along training.

    `areas` names the groups of E-AURC where they differ from those of κ.
    """
    areas = areas or groups
    best = int(epochs[result.best])
    kappas = dict(zip(groups, (result.green_kappa, result.red_kappa), strict=True))
    legend = charts.LINE_LEGEND | {"orient": "bottom", "direction": "vertical", "offset": 4}
    means = charts.draw_lines("mean κ", epochs, kappas, [GREEN, RED], legend)
    surest, least = (
        charts.draw_lines("E-AURC ×10³", epochs, {name: values * 1e3}, [colour])
        for name, values, colour in zip(
            areas, (result.green_eaurc, result.red_eaurc), (GREEN, RED), strict=True
        )
    )
    surest["layer"].append(charts.draw_best_epoch(best))
    parts = [
        means | {"title": "confidence"},
        surest | {"title": f"{areas[0]}: best at epoch {best}"},
        least | {"title": areas[1]},
    ]
    about = "Mean κ, and E-AURC within two groups of examples (lower is better), along training"
    panels = _beside(parts, 220)
    # The groups of κ and of E-AURC differ: each panel has its own names.
    apart = {"color": "independent", "strokeDash": "independent"}
    return _picture(title, about, panels | {"resolve": {"scale": apart}})


def draw_boards(boards: Sequence[Board], level: float) -> Spec:
    """Draw gain against price, a panel per board, and name the best at each price."""
    for board in boards:
        if any(row.gain is None for row in board.rows):
            raise InvalidInput(
                f"{board.name} cannot be drawn: {board.reference_label} has an {board.measure} of "
                "0, so there is nothing to gain. Use .to_frame() to see the numbers."
            )
    about = (
        f"Higher is better, further right costs more. Bars: {level:.0%} intervals. "
        "▼: further below than shown"
    )
    panels = {"vconcat": [_draw_board(board) for board in boards], "spacing": 25}
    return _picture("What a better ranking costs", about, panels)


def choose_rows_to_name(board: Board) -> list[Result]:
    """Choose the rows that get a name in the picture: the best at each price, the reference."""
    best: dict[float, Result] = {}
    for row in board.rows:
        best.setdefault(round(row.passes), row)
    chosen = [*best.values(), board[board.reference]]
    return list({board.label(row): row for row in chosen}.values())


def _draw_board(board: Board) -> Spec:
    width, height = _WIDTH - _AXIS, 230
    top = charts.find_top(board)
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
    names = []
    for row in choose_rows_to_name(board):
        # A gain beyond the edge is written, because its place does not show it.
        name, gain = board.label(row), row.saved.estimate
        if gain < -top:
            name = f"{name} ({gain:+.0f} %)".replace("-", "−")
        names.append((name, across(row), down(gain)))
    labels = place_labels(names, points, bars, Box(0, 0, width, height))
    layers = charts.draw_results(board, {"domain": [math.exp(low), math.exp(high)]})
    look = {"type": "text", "baseline": "middle", "fontSize": FONT_SIZE, "color": _INK}
    layers += [
        {
            "data": {"values": [{}]},
            "mark": {**look, "text": label.name, "align": label.align},
            "encoding": {"x": {"value": label.x}, "y": {"value": label.y}},
        }
        for label in labels
    ]
    return {"title": board.name, "width": width, "height": height, "layer": layers}


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


def place_labels(
    names: Sequence[tuple[str, float, float]],
    points: Sequence[Box],
    bars: Sequence[Box],
    frame: Box,
) -> list[Label]:
    """Put each name beside its point (x, y), in order.

    No name covers another or a point, nor a bar where that can be avoided. A name without room is
    left out.
    """
    labels: list[Label] = []
    for name, x, y in names:
        taken = [*points, *(label.box for label in labels)]
        free = [
            label
            for label in _try_places(name, x, y)
            if label.box.inside(frame) and not any(label.box.meets(other) for other in taken)
        ]
        clear = [label for label in free if not any(label.box.meets(bar) for bar in bars)]
        labels += (clear or free)[:1]
    return labels


def _try_places(name: str, x: float, y: float) -> Iterator[Label]:
    """Try right and left of a point, then slightly above and below; further off is ambiguous."""
    width, height = _LETTER * len(name), FONT_SIZE + 2
    for rise in (0.0, 0.6, -0.6, 1.0, -1.0):
        middle = y - rise * height
        top, bottom = middle - height / 2, middle + height / 2
        left, right = x + _GAP, x - _GAP
        yield Label(name, left, middle, "left", Box(left, top, left + width, bottom))
        yield Label(name, right, middle, "right", Box(right - width, top, right, bottom))
        yield Label(name, x, middle, "center", Box(x - width / 2, top, x + width / 2, bottom))
