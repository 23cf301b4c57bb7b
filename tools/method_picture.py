"""The picture of docs/explanation/method.md, from a committed network of CIFAR-100.

`python tools/method_picture.py` draws it again; a test compares the page's numbers with `found`.
"""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snapsure import AES, eaurc
from snapsure._types import Floats, Ints
from snapsure.paper.archive import Experiment
from snapsure.report import pictures
from snapsure.report.colours import COLOURS, GREEN, RED

ROOT = Path(__file__).parent.parent
SUREST = 5000


class Found(NamedTuple):
    """What the picture shows, along the epochs."""

    epochs: Ints
    right: Floats  # mean κ of the surest points that are right
    wrong: Floats  # and of those that are wrong
    count_wrong: int
    eaurc: Floats  # of all points, by each snapshot
    aes: float


def found() -> Found:
    """κ and E-AURC of the network of seed 0; the surest points are those of the final κ."""
    table = Experiment.open(ROOT / "results" / "cifar100-cpu-full").tables[0]
    kappa, errors = table.kappa("softmax"), table.errors
    surest = np.argsort(-kappa[-1], kind="stable")[:SUREST]
    right, wrong = surest[~errors[surest]], surest[errors[surest]]
    return Found(
        table.epochs,
        kappa[:, right].mean(axis=1),
        kappa[:, wrong].mean(axis=1),
        wrong.size,
        eaurc(kappa, errors),
        eaurc(AES().confidence(table), errors),
    )


def spec(shown: Found) -> dict[str, Any]:
    """Two panels in Vega-Lite: the surest points, and what each snapshot's ranking costs."""
    kappas = {"those that are right": shown.right, "those that are wrong": shown.wrong}
    level = np.full(shown.epochs.size, 1e3 * shown.aes)
    areas = {"κ of one snapshot": 1e3 * shown.eaurc, "AES: the mean from epoch 21 on": level}
    titles = f"κ of the {SUREST:,} examples surest at the end", "E-AURC ×10³ of all examples"
    panels = [
        _panel(titles[0], "mean κ", shown.epochs, kappas, (GREEN, RED)),
        _panel(titles[1], "E-AURC ×10³", shown.epochs, areas, (COLOURS["final"], COLOURS["AES"])),
    ]
    return {
        "hconcat": panels,
        "spacing": 45,
        "background": "white",
        "padding": 10,
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
        "config": {
            "view": {"stroke": None},
            "axis": {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"},
            "legend": {"labelFontSize": 13, "labelLimit": 300, "symbolStrokeWidth": 2},
            "title": {"fontSize": 14, "anchor": "start"},
        },
    }


def _panel(
    title: str, axis: str, epochs: Ints, lines: dict[str, Floats], colours: tuple[str, str]
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
            "y": {"field": "value", "type": "quantitative", "title": axis},
            "color": {**by, "scale": {"domain": names, "range": list(colours)}},
            "strokeDash": {**by, "scale": {"domain": names, "range": [[1, 0], [6, 4]]}},
        },
    }


if __name__ == "__main__":
    path = ROOT / "docs" / "images" / "method.png"
    pictures.save(spec(found()), path)
    sys.stdout.write(f"{path}\n")
