"""The paper's tables, computed from an experiment's score tables. NumPy alone; draws nothing.

Metrics are fractions here; × 10³ is for those who print. A difference is method − baseline, below
0 is better, with a 95 % interval: bootstrap over the test points, paired. Of several networks, the
mean of estimates and of intervals' ends, which is at least as wide as the interval of the mean.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

from snapsure.estimators import AES, Estimator, Final, Method
from snapsure.estimators._base import best_snapshot
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Result, Run, Splits, evaluate, trajectories
from snapsure.evaluation._engine import (
    Candidate,
    Judged,
    judge,
    mean_interval,
    percent_saved,
    standard_error,
)
from snapsure.metrics import bootstrap_difference, brier, eaurc, nll
from snapsure.paper.archive import Experiment
from snapsure.table import ScoreTable

Content = dict[str, Any]

# The paper's MC-dropout is the variance; the mean stands beside it.
KAPPAS = ("softmax", "nn_distance", "mc_dropout_variance", "mc_dropout")
AVERAGED = (10, 30, 50)
COMPARED = {  # in table 3
    "aes": "AES",
    "pes": "PES",
    "pes_paper": "PES (paper)",
    "snapshot": "best snapshot",
    "les": "LES",
    "les_in_3": "LES (3 passes)",
}
SPLITS = 10
RESAMPLES = 1000

_AES = {f"k{k}": Method(f"AES (k={k})", partial(AES, k)) for k in AVERAGED}


def table1(experiment: Experiment) -> Content:
    """AES with k = 10, 30, 50 against the final κ, for each κ (table 1)."""
    content: Content = {}
    for row_name, tables, name in _rows(experiment):
        found = evaluate(tables, kappa=name, methods=(FINAL, *_AES.values()), protocol=Splits(1))
        content[row_name] = {
            "networks": len(tables),
            "final": {"eaurc": found[FINAL].eaurc},
            **{key: _told(found[method.name]) for key, method in _AES.items()},
        }
    return content


def table2(experiment: Experiment) -> Content:
    """NLL and Brier score after Platt scaling, final κ and AES k = 30, half and half (table 2)."""
    content: Content = {}
    for row_name, tables, name in _rows(experiment):
        final, averaged = (
            [_half(table, name, make, seed) for seed, table in enumerate(tables)]
            for make in (Final, AES)
        )
        content[row_name] = {"networks": len(tables)}
        for metric in (nll, brier):
            base, ours = (
                _mean(float(metric(one.p, one.errors)) for one in some)
                for some in (final, averaged)
            )
            changes = (
                bootstrap_difference(metric, b.p, a.p, a.errors, resamples=RESAMPLES)
                for a, b in zip(final, averaged, strict=True)
            )
            content[row_name][metric.__name__] = {
                "final": base,
                "k30": ours,
                "gain": percent_saved(ours, base),
                "difference": mean_interval(changes),
            }
    return content


def table3(experiment: Experiment) -> Content:
    """PES over softmax response: ten 70/30 splits of each network (table 3).

    `aes` learns nothing and is judged on the same points as what does. `pes` sends a new point to
    its layer as the layers were made, `pes_paper` as algorithm 1 has it. `snapshot` is the plain
    rival, the one snapshot that ranks the same labelled points best; `les` and `les_in_3` are ours.
    """
    found = evaluate(
        experiment.tables,
        kappa="softmax",
        methods=(FINAL, *COMPARED.values()),
        protocol=Splits(SPLITS, whole=False),
    )
    rows = {key: found[kind] for key, kind in {"final": FINAL, **COMPARED}.items()}
    return {
        key: {
            "eaurc": row.eaurc,
            "standard_error": row.standard_error,
            **({} if key == "final" else _told(row)),
        }
        for key, row in rows.items()
    }


def table4(experiment: Experiment) -> Content:
    """Mean and standard error over repeated trainings (the appendix's table)."""
    content: Content = {}
    estimators = {"final": Final(), **{f"k{k}": AES(k) for k in AVERAGED}}
    for row_name, tables, name in _rows(experiment):
        if len(tables) > 1:
            content[row_name] = {}
            for key, estimator in estimators.items():
                areas = [_area(estimator.fit(table, name), table) for table in tables]
                spread = standard_error(areas)
                content[row_name][key] = {"eaurc": _mean(areas), "standard_error": spread}
    return content


def saturation(experiment: Experiment) -> Content:
    """What AES gains over an exact softmax, and over one that float32 has rounded.

    In float32 confident points become exactly 1.0. Whatever an average does to them, it unties
    them: the difference of both gains is that, and no better ranking.
    """
    content: Content = {}
    for name, arithmetic in (("exact", np.float64), ("float32", np.float32)):
        final, averaged, ones, gains = [], [], [], []
        for table in experiment.tables:
            kappa = table.kappa("softmax").astype(arithmetic).astype(np.float64)
            rounded = ScoreTable.from_kappa(kappa, table.errors, table.epochs)
            final.append(_area(Final(), rounded))
            averaged.append(_area(AES(), rounded))
            ones.append(float((kappa[-1] == 1).mean()))
            gains.append(percent_saved(averaged[-1], final[-1]))
        content[name] = {
            "ones": _mean(ones),
            "final": _mean(final),
            "k30": _mean(averaged),
            "gain": percent_saved(_mean(averaged), _mean(final)),
            "gains": gains,
        }
    return content


def motivation(experiment: Experiment) -> Content:
    """Which epoch ranks the surer and the less sure half best, of each network (figure 2)."""
    content: Content = {}
    for row_name, tables, name in _rows(experiment):
        rows = []
        alone = [(seed,) for seed in experiment.of(name)]
        seeds = [*experiment.ensembles] if row_name == "ensemble" else alone
        for members, table in zip(seeds, tables, strict=True):
            halves = trajectories(table.kappa(name), table.errors, 0.5)
            row: Content = {"seeds": [*members], "last_epoch": int(table.epochs[-1])}
            for group, areas in (("surer", halves.green_eaurc), ("less_sure", halves.red_eaurc)):
                best = best_snapshot(areas)
                row[group] = {
                    "best_epoch": int(table.epochs[best]),
                    "best": float(areas[best]),
                    "final": float(areas[-1]),
                }
            rows.append(row)
        content[row_name] = rows
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
        "ensembles": [
            {"seeds": [*members], "test_error": float(table.errors.mean())}
            for members, table in experiment.ensembles.items()
        ],
    }


def published() -> Content:
    """The paper's numbers, E-AURC × 10³."""
    text = resources.files("snapsure.paper").joinpath("published.json").read_text()
    content: Content = json.loads(text)
    return content


def _told(result: Result) -> Content:
    return {
        "eaurc": result.eaurc,
        "gain": None if result.gain is None else result.gain.estimate,
        "difference": result.difference,
        "gains": list(result.gains),
    }


def _half(table: ScoreTable, name: str, make: type[Estimator], seed: int) -> Judged:
    """A method calibrated on one half of the examples, on the other."""
    run = Run(table)
    ((learn, rest),) = Splits(1, 0.5, seed).parts(table.y_hat.size)
    return judge(Candidate(make.__name__, name, make), run.rows(learn), run.rows(rest))


def _rows(experiment: Experiment) -> Iterator[tuple[str, Sequence[ScoreTable], str]]:
    """A row of a table: its name, the score tables it is of, and the κ in them."""
    for name in KAPPAS:
        if tables := experiment.of(name):
            yield name, [*tables.values()], name
    if ensembles := [*experiment.ensembles.values()]:
        yield "ensemble", ensembles, ensembles[0].names[0]


def _area(estimator: Estimator, table: ScoreTable) -> float:
    return float(eaurc(estimator.confidence(table), table.errors))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
