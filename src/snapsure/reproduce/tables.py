"""The paper's tables, computed from an experiment's score tables. NumPy alone; draws nothing.

Metrics are fractions here; × 10³ is for those who print. A difference is method − baseline, below
0 is better, with a 95 % interval: bootstrap over the test points, paired. Of several networks, the
mean of estimates and of intervals' ends, which is at least as wide as the interval of the mean.
"""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure.analysis import trajectories
from snapsure.calibration import Platt
from snapsure.estimators import AES, LES, PES
from snapsure.estimators._table import best_snapshot
from snapsure.metrics import Interval, bootstrap_difference, brier, eaurc, nll
from snapsure.report.build import gain, mean_interval
from snapsure.reproduce.archive import Experiment
from snapsure.table import ScoreTable

Floats = NDArray[np.float64]
Content = dict[str, Any]

# The paper's MC-dropout is the variance; the mean stands beside it.
KAPPAS = ("softmax", "nn_distance", "mc_dropout_variance", "mc_dropout", "ensemble")
AVERAGED = (10, 30, 50)
LEARNING = ("pes", "pes_paper", "snapshot", "les")  # of table 3
SPLITS = 10
RESAMPLES = 1000


def table1(experiment: Experiment) -> Content:
    """AES with k = 10, 30, 50 against the final κ, for each κ (table 1)."""
    return {name: _aes_row(_having(experiment, name), name) for name in _names(experiment)}


def table2(experiment: Experiment) -> Content:
    """NLL and Brier score after Platt scaling, final κ and AES k = 30, half and half (table 2)."""
    return {name: _platt_row(_having(experiment, name), name) for name in _names(experiment)}


def table3(experiment: Experiment) -> Content:
    """PES over softmax response: ten 70/30 splits of each network (table 3).

    `pes` sends a new point to its layer as the layers were made, `pes_paper` as algorithm 1 has it.
    `snapshot` is the plain rival, the one snapshot that ranks the same labelled points best; `les`
    is ours.
    """
    networks = [_split_row(table) for table in _having(experiment, "softmax")]
    methods: Content = {
        method: {
            "eaurc": _mean(row[method]["eaurc"] for row in networks),
            "standard_error": _mean(row[method]["standard_error"] for row in networks),
        }
        for method in ("final", *LEARNING)
    }
    for method in LEARNING:
        methods[method]["gain"] = gain(methods[method]["eaurc"], methods["final"]["eaurc"])
        methods[method]["difference"] = mean_interval(row[method]["interval"] for row in networks)
        methods[method]["gains"] = [row[method]["gain"] for row in networks]
    return methods


def table4(experiment: Experiment) -> Content:
    """Mean and standard error over repeated trainings (the appendix's table)."""
    content: Content = {}
    for name in _names(experiment):
        tables = _having(experiment, name)
        values = {"final": [float(eaurc(table.kappa(name)[-1], table.errors)) for table in tables]}
        for k in AVERAGED:
            values[f"k{k}"] = [float(eaurc(_aes(table, name, k), table.errors)) for table in tables]
        if len(tables) > 1:
            content[name] = {
                method: {"eaurc": _mean(each), "standard_error": _standard_error(each)}
                for method, each in values.items()
            }
    return content


def saturation(experiment: Experiment) -> Content:
    """What AES gains over an exact softmax, and over one that float32 has rounded.

    In float32 confident points become exactly 1.0. Whatever an average does to them, it unties
    them: the difference of both gains is that, and no better ranking.
    """
    content: Content = {}
    for name, arithmetic in (("exact", np.float64), ("float32", np.float32)):
        final, averaged, ones, gains = [], [], [], []
        for table in _having(experiment, "softmax"):
            kappa = table.kappa("softmax").astype(arithmetic).astype(np.float64)
            final.append(float(eaurc(kappa[-1], table.errors)))
            averaged.append(float(eaurc(AES().confidence(kappa, table.epochs), table.errors)))
            ones.append(float((kappa[-1] == 1).mean()))
            gains.append(gain(averaged[-1], final[-1]))
        content[name] = {
            "ones": _mean(ones),
            "final": _mean(final),
            "k30": _mean(averaged),
            "gain": gain(_mean(averaged), _mean(final)),
            "gains": gains,
        }
    return content


def motivation(experiment: Experiment) -> Content:
    """Which epoch ranks the surer and the less sure half best, of each network (figure 2)."""
    content: Content = {}
    for name in _names(experiment):
        rows = []
        for table in _having(experiment, name):
            halves = trajectories(table.kappa(name), table.errors, 0.5)
            row: Content = {"last_epoch": int(table.epochs[-1])}
            for group, areas in (("surer", halves.green_eaurc), ("less_sure", halves.red_eaurc)):
                best = best_snapshot(areas)
                row[group] = {
                    "best_epoch": int(table.epochs[best]),
                    "best": float(areas[best]),
                    "final": float(areas[-1]),
                }
            rows.append(row)
        content[name] = rows
    return content


def about(experiment: Experiment) -> Content:
    """How well the networks fit their training set, and how often they err."""
    last = [history[-1] for history in experiment.about["networks"]]
    return {
        "dataset": experiment.about["dataset"],
        "scale": experiment.about["scale"],
        "networks": len(experiment.tables),
        "test_points": int(experiment.tables[0].y_hat.size),
        "training_accuracy": [entry["training_accuracy"] for entry in last],
        "test_error": [float(table.errors.mean()) for table in experiment.tables],
        "ensemble_error": (
            None if experiment.ensemble is None else float(experiment.ensemble.errors.mean())
        ),
    }


def published() -> Content:
    """The paper's numbers, E-AURC × 10³."""
    text = resources.files("snapsure.reproduce").joinpath("published.json").read_text()
    content: Content = json.loads(text)
    return content


def _aes_row(tables: Sequence[ScoreTable], name: str) -> Content:
    final = [float(eaurc(table.kappa(name)[-1], table.errors)) for table in tables]
    row: Content = {"networks": len(tables), "final": {"eaurc": _mean(final)}}
    for k in AVERAGED:
        differences = [
            _difference(eaurc, _aes(table, name, k), table.kappa(name)[-1], table)
            for table in tables
        ]
        areas = [base + change.estimate for base, change in zip(final, differences, strict=True)]
        row[f"k{k}"] = {
            "eaurc": _mean(areas),
            "gain": gain(_mean(areas), _mean(final)),
            "difference": mean_interval(differences),
            "gains": [gain(area, base) for area, base in zip(areas, final, strict=True)],
        }
    return row


def _platt_row(tables: Sequence[ScoreTable], name: str) -> Content:
    judged: list[tuple[Floats, Floats, ScoreTable]] = []
    for seed, table in enumerate(tables):
        fit, rest = table.split(0.5, seed)
        final_p = _platt(fit.kappa(name)[-1], fit.errors, rest.kappa(name)[-1])
        averaged_p = _platt(_aes(fit, name, 30), fit.errors, _aes(rest, name, 30))
        judged.append((final_p, averaged_p, rest))
    row: Content = {"networks": len(tables)}
    for metric in (nll, brier):
        final = _mean(float(metric(base, rest.errors)) for base, _, rest in judged)
        ours = _mean(float(metric(p, rest.errors)) for _, p, rest in judged)
        changes = [_difference(metric, p, base, rest) for base, p, rest in judged]
        row[metric.__name__] = {
            "final": final,
            "k30": ours,
            "gain": gain(ours, final),
            "difference": mean_interval(changes),
        }
    return row


def _split_row(table: ScoreTable) -> Content:
    """Ten splits of one network: each method's area, and its difference from the final κ."""
    areas: dict[str, list[float]] = {method: [] for method in ("final", *LEARNING)}
    changes: dict[str, list[Interval]] = {method: [] for method in LEARNING}
    for seed in range(SPLITS):
        fit, rest = table.split(0.7, seed)
        seen, new = fit.kappa("softmax"), rest.kappa("softmax")
        scores = {
            "final": new[-1],
            "pes": PES().fit(seen, fit.errors).confidence(new),
            "pes_paper": PES(assign="paper").fit(seen, fit.errors).confidence(new),
            "snapshot": new[best_snapshot(eaurc(seen, fit.errors))],
            "les": LES().fit(seen, fit.errors, fit.epochs).confidence(new),
        }
        for method, score in scores.items():
            areas[method].append(float(eaurc(score, rest.errors)))
            if method != "final":
                changes[method].append(_difference(eaurc, score, new[-1], rest))
    row: Content = {
        method: {"eaurc": _mean(each), "standard_error": _standard_error(each)}
        for method, each in areas.items()
    }
    for method, intervals in changes.items():
        row[method]["gain"] = gain(row[method]["eaurc"], row["final"]["eaurc"])
        row[method]["interval"] = mean_interval(intervals)
    return row


def _names(experiment: Experiment) -> list[str]:
    return [name for name in KAPPAS if _having(experiment, name)]


def _having(experiment: Experiment, name: str) -> list[ScoreTable]:
    """The tables with a κ: the networks', or the ensemble's."""
    every = [*experiment.tables, *([experiment.ensemble] if experiment.ensemble else [])]
    return [table for table in every if name in table.names]


def _aes(table: ScoreTable, name: str, k: int) -> Floats:
    return AES(k).confidence(table.kappa(name), table.epochs)


def _platt(seen: Floats, errors: NDArray[np.bool_], new: Floats) -> Floats:
    """A probability; never quite 0 or 1, as scikit-learn clips, so that NLL stays finite."""
    least = np.finfo(np.float64).eps
    return np.clip(Platt().fit(seen, errors).predict_proba(new), least, 1 - least)


def _difference(
    metric: Callable[..., Any], ours: Floats, final: Floats, table: ScoreTable
) -> Interval:
    return bootstrap_difference(metric, ours, final, table.errors, resamples=RESAMPLES)


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
