"""Two charts of the pages, in Vega-Lite: what late training does, and what averaging gains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from snapsure import AES, eaurc
from snapsure._types import Floats, Ints
from snapsure.paper.archive import Experiment
from snapsure.report.charts import COLOURS, GREEN, GUIDE, RED

SUREST = 5000  # examples

_LOOK: dict[str, Any] = {
    "background": "white",
    "padding": 10,
    "config": {
        "view": {"stroke": None},
        "axis": {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"},
        "legend": {"labelFontSize": 13, "labelLimit": 300, "symbolStrokeWidth": 2},
        "title": {"fontSize": 14, "anchor": "start"},
    },
}


def draw_method(folder: Path) -> dict[str, Any]:
    """Draw κ of right and wrong answers along the training, and E-AURC of each snapshot."""
    table = Experiment.open(folder).tables[0]
    kappa, errors = table.kappa("softmax"), table.errors
    surest = np.argsort(-kappa[-1], kind="stable")[:SUREST]
    kappas = {
        "right answers": kappa[:, surest[~errors[surest]]].mean(axis=1),
        "wrong answers": kappa[:, surest[errors[surest]]].mean(axis=1),
    }

    area = 1e3 * eaurc(AES().confidence(table), errors)
    start = AES().snapshots(table.epochs)[0]
    areas = {
        "κ of one snapshot": 1e3 * eaurc(kappa, errors),
        f"AES: the mean from epoch {start} on": np.full(table.epochs.size, area),
    }

    title = f"κ of the {SUREST:,} examples surest at the end"
    colours = (COLOURS["final"], COLOURS["AES"])
    return {
        "hconcat": [
            _draw_lines(title, "mean κ", table.epochs, kappas, (GREEN, RED)),
            _draw_lines("E-AURC ×10³ of all examples", "", table.epochs, areas, colours),
        ],
        "spacing": 45,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
        **_LOOK,
    }


def _draw_lines(
    title: str, axis: str, epochs: Ints, lines: Mapping[str, Floats], colours: tuple[str, str]
) -> dict[str, Any]:
    rows = [
        {"line": name, "epoch": int(epoch), "value": float(value)}
        for name, values in lines.items()
        for epoch, value in zip(epochs, values, strict=True)
    ]
    names = list(lines)
    legend = {"orient": "bottom", "direction": "vertical", "title": None}
    by = {"field": "line", "legend": legend, "sort": None}
    return {
        "title": title,
        "width": 310,
        "height": 220,
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            "x": {"field": "epoch", "type": "quantitative"},
            "y": {"field": "value", "type": "quantitative", "title": axis or None},
            "color": {**by, "scale": {"domain": names, "range": list(colours)}},
            "strokeDash": {**by, "scale": {"domain": names, "range": [[1, 0], [6, 4]]}},
        },
    }


def draw_gains(tasks: Mapping[str, Sequence[float]], axis: str) -> dict[str, Any]:
    """Draw one point per training, a row per task, with a line at 0."""
    rows = [{"task": name, "gain": gain} for name, gains in tasks.items() for gain in gains]
    y = {"field": "task", "type": "nominal", "sort": list(tasks), "title": None}
    colour = {
        "condition": {"test": "datum.gain < 0", "value": RED},
        "value": COLOURS["AES"],
    }
    points = {
        "data": {"values": rows},
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.8},
        "encoding": {
            "x": {"field": "gain", "type": "quantitative", "title": axis},
            "y": {**y, "axis": {"grid": True, "labelLimit": 300}},
            "color": colour,
        },
    }
    zero = {
        "data": {"values": [{"gain": 0}]},
        "mark": {"type": "rule", "color": GUIDE, "strokeWidth": 2},
        "encoding": {"x": {"field": "gain", "type": "quantitative"}},
    }
    return {"layer": [zero, points], "width": 480, "height": 320, **_LOOK}
