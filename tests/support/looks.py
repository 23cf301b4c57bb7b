"""Every chart and picture of a few numbers made by hand, as data; words are left out.

`looks.json` holds what was last approved. After a change that you have looked at, approve it by
`python -m tests.support.looks`.
"""

import json
from pathlib import Path

import numpy as np

from snapsure.evaluation import Board, Result, Trajectories
from snapsure.metrics import Interval, RCCurve
from snapsure.report import charts, pictures
from snapsure.report.accept import Difference
from snapsure.report.sections import Bins

APPROVED = Path(__file__).with_name("looks.json")
WORDS = {"$schema", "title", "description", "text", "subtitle", "label"}


def draw_all():
    """Draw each kind of chart, also where it has an edge: few epochs, one panel, far below."""
    best = _curve(0.1)
    curves = {"AES, calibrated": _curve(0.4), "final softmax": _curve(0.5)}
    accept = {
        f"risk at {at}": charts.draw_risk(curves, best, limit, (at, 0.2), 0.6)
        for at, limit in ((0.3, 0.1), (0.4, 0.2), (0.5, 0.02))
    }
    ends = [0.1, 0.5, 1.0]
    difference = Difference(*(np.array(each) for each in (ends, [-0.1, 0, 0.1], [-0.2] * 3, ends)))
    groups = ("the surest", "the least sure")
    bins = {name: _bins(name == "raw") for name in ("raw", "AES, calibrated", "LES")}
    board = board_of(("final", 1, 0), ("AES", 30, 12), ("PES", 3, -2), ("rival", 30, -90))
    same = board_of(("final", 1, 0), ("LES", 1, 2), ("SWA", 2, -1))
    dear = board_of(("final", 100, 0), ("AES", 3000, 12))
    return {
        **accept,
        "risk without a choice": charts.draw_risk(curves, best, 0.3, None, 0.6),
        "difference": charts.draw_difference(difference, "PES", "final softmax", 0.7),
        "board": charts.draw_board(board),
        **{
            f"training of {n} epochs, {i}": spec
            for n in (2, 3, 12)
            for i, (_, spec) in enumerate(
                charts.draw_training(*_training(n), 0.8, np.linspace(0.2, 0.9, n), [n - 1, n])[:n]
            )
            if n > 2 or i == 3
        },
        "flat": charts.draw_lines("", np.arange(5), {"": np.ones(5)}, ["red"]),
        "reliability": charts.draw_reliability(bins),
        "bins": charts.draw_bins(bins),
        "one panel": pictures.draw_curves(curves),
        "four panels": pictures.draw_panels(
            dict.fromkeys("abcd", curves), dict.fromkeys("abcd", best)
        ),
        "trajectories": pictures.draw_trajectories(*_training(12), groups, ""),
        "boards": pictures.draw_boards([board, same, dear], 0.9),
    }


def prune(spec):
    """Leave out words; of data, keep the number of rows, the first and the last."""
    if isinstance(spec, list | tuple):
        return [prune(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    spec = {key: part for key, part in spec.items() if key not in WORDS or not _is_text(part)}
    if "values" in spec:
        rows = spec["values"]
        spec["values"] = {"rows": len(rows), "first": rows[0], "last": rows[-1]}
    return {key: prune(part) for key, part in spec.items()}


def leaves(spec, path=""):
    """List every number, flag and name of a specification by its path."""
    if not spec or not isinstance(spec, dict | list):
        return {path: spec}
    parts = spec.items() if isinstance(spec, dict) else enumerate(spec)
    return {
        where: leaf for key, part in parts for where, leaf in leaves(part, f"{path}/{key}").items()
    }


def _is_text(part):
    return part is None or isinstance(part, str)


def _curve(worst):
    coverage = np.linspace(0, 1, 301)[1:]
    return RCCurve(coverage, worst * coverage**2, 1 - coverage)


def _training(epochs):
    along = np.linspace(0, 1, epochs)
    surest, least = 2e-3 * (along - 0.7) ** 2, 5e-3 + 1e-3 * np.cos(3 * along)
    best = int(np.argmin(surest))
    lines = Trajectories(0.7 + along / 5, 0.3 + along / 3, surest, least, best, 0.0)
    return np.arange(1, epochs + 1), lines


def _bins(is_raw):
    stated = np.array([0.05, 0.7, 1.0]) - 0.02 * is_raw
    right = stated**2
    return Bins(stated, right, right / 2, (1 + right) / 2, np.array([1, 20, 300]))


def board_of(*methods):
    """Return a board of (method, passes, gain), with intervals from 4 below to 5 above."""
    rows = []
    for name, passes, gain in methods:
        interval = Interval(gain, gain - 4.0, gain + 5.0)
        quality = dict.fromkeys(("eaurc", "aurc", "augrc", "nll", "brier", "error"), 0.1)
        price = {"passes": passes, "snapshots": passes, "trainings": 1.0, "bytes": None}
        rows.append(
            Result(
                name,
                "softmax",
                **quality,
                **price,
                standard_error=None,
                reference_eaurc=0.1,
                difference=interval,
                gain=interval,
                gains=(gain,),
                outcome="no difference",
                verdict="",
            )
        )
    return Board("board", "final", "softmax", 1, 100, rows, 0.95, 100)


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(prune(spec))}" for name, spec in draw_all().items()]
    APPROVED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
