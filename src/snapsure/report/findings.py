"""What the report says about one κ of a score table, as numbers. Draws nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Platt
from snapsure.errors import InvalidInput
from snapsure.estimators import AES, PES, Estimator, registry
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Choice, Trajectories, choose, trajectories
from snapsure.evaluation._choose import choose_effort
from snapsure.metrics import brier, ece, nll
from snapsure.report.accepting import (
    POSITIONS,
    Curve,
    Positions,
    best_of_hindsight,
    curve_of,
    interval,
    positions_of,
)
from snapsure.report.advice import AVERAGED, Results, results_of
from snapsure.report.points import ClassRisk, Point, mistakes, moved, ranks, risky_classes
from snapsure.table import ScoreTable

BINS = 10
SHARES = (0.5, 0.8, 0.9)  # of the surer group along training: the first with enough errors …
ENOUGH = 10  # … to rank


@dataclass(frozen=True)
class Reliability:
    """Of one probability: how often it was right where it said so, and its errors."""

    name: str
    said: Floats
    right: Floats
    low: Floats  # of the share that was right: 95 %
    high: Floats
    count: Ints
    nll: float
    brier: float
    ece: float


@dataclass(frozen=True)
class Layer:
    """One layer of PES fitted on all points: what cut it off, what ranks it, and how many."""

    epoch: int  # of the snapshot that ranks it
    cut_epoch: int  # of the snapshot that cut it off
    edge: float  # up to which κ of that snapshot
    points: int


@dataclass(frozen=True)
class Findings:
    """Everything that the page says about one κ.

    One half of the examples compares the methods and fits them. What is to be accepted, and the
    examples to look at, are of the other half.
    """

    kappa: str
    accuracy: float
    points: int
    epochs: Ints
    splits: int
    resamples: int
    results: Results
    score: str  # the one that the page speaks of: what is recommended, else AES
    positions: dict[str, Positions]  # what is recommended first
    curves: dict[str, Curve]
    accuracies: Floats
    groups: Trajectories
    surer: float  # share of the points in the surer group; the others are the less sure
    averaged: Ints  # epochs that AES averages
    layers: list[Layer]  # of PES, least sure first
    reliability: list[Reliability]
    mistakes: list[Point]  # surest first
    moved: dict[str, list[Point]]  # those whose rank changed most, by what became of them
    classes: list[ClassRisk]
    strangers: int  # points of none of the classes …
    strange: float  # … and their share of all errors
    unseen: Ints  # rows that nothing was fitted on


def find(
    table: ScoreTable,
    kappa: str | None = None,
    seed: int = 0,
    chapters: int = 1,
    choice: Choice | None = None,
    method: str | None = None,
) -> Findings:
    """Compute a report's numbers for one κ, the table's first if none is named.

    `chapters` is how many tables the reader chooses among, `method` the one to begin with, and
    `choice` what `choose` found, if that is known.
    """
    name = table.names[0] if kappa is None else kappa
    values, wrong = table.kappa(name), table.errors
    refuse_few(table)
    choice = choose(table, kappa=name, seed=seed) if choice is None else choice
    method = choice.method if method is None else method
    learn, rest = table.rows(choice.learn), table.rows(choice.rest)
    fitted = {
        each: registry.get(each).make().fit(learn, name)
        for each in dict.fromkeys((method, AVERAGED, FINAL))
    }
    scores = {each: estimator.confidence(rest) for each, estimator in fitted.items()}
    seen = AVERAGED if method == FINAL else method
    choices = POSITIONS * len(scores) * chapters
    groups, surer = _groups(values, wrong)
    strange = _strange(table)
    splits, resamples = choose_effort(learn.errors.size)
    order = {each: ranks(score) for each, score in scores.items()}
    return Findings(
        kappa=name,
        accuracy=float(1 - wrong.mean()),
        points=wrong.size,
        epochs=table.epochs,
        splits=splits,
        resamples=resamples,
        results=results_of(choice),
        score=seen,
        positions={
            each: positions_of(score, rest.errors, choices, _strange(rest))
            for each, score in scores.items()
        },
        curves={each: curve_of(score, rest.errors) for each, score in scores.items()}
        | {"κ*": best_of_hindsight(rest.errors)},
        accuracies=(table.labels == table.y).mean(axis=1),
        groups=groups,
        surer=surer,
        averaged=np.array(AES().snapshots(table.epochs)),
        layers=_layers(table, name),
        reliability=_reliabilities(learn, rest, {each: fitted[each] for each in (FINAL, seen)}),
        mistakes=mistakes(rest.errors, order[FINAL], order[method]),
        moved=moved(rest.errors, order[FINAL], order[seen]),
        classes=risky_classes(scores[method], rest.y_hat, rest.errors),
        strangers=int(strange.sum()),
        strange=float(strange.sum() / wrong.sum()),
        unseen=choice.rest,
    )


def refuse_few(table: ScoreTable) -> None:
    """Refuse a table of which nothing can be said."""
    wrong, n = int(table.errors.sum()), table.errors.size
    if not 0 < wrong < n or n < 10:
        raise InvalidInput(
            f"`table` must have at least ten points, right and wrong ones, got {wrong} wrong of "
            f"{n}: score more points"
        )


def _strange(table: ScoreTable) -> Bools:
    """Which errors are points of none of the classes."""
    some = (table.labels != _validate.NO_CLASS).all()
    strange: Bools = table.errors & (table.y == _validate.NO_CLASS) & some
    return strange


def _groups(values: Floats, wrong: Bools) -> tuple[Trajectories, float]:
    """Along training, the surer half and the other; or more than half, to have errors in it."""
    order = np.argsort(-values[-1], kind="stable")
    errors = {share: int(wrong[order][: round(share * wrong.size)].sum()) for share in SHARES}
    surer = next((share for share, count in errors.items() if count >= ENOUGH), SHARES[-1])
    green, red = trajectories(values, wrong, surer), trajectories(values, wrong, 1 - surer)
    return green._replace(red_kappa=red.red_kappa, red_eaurc=red.red_eaurc), surer


def _layers(table: ScoreTable, name: str) -> list[Layer]:
    pes = PES().fit(table, name)
    points = np.bincount(pes.layer_of(table), minlength=len(pes.layers_))
    return [
        Layer(layer.epoch, layer.cut, layer.edge, int(count))
        for layer, count in zip(pes.layers_, points, strict=True)
    ]


def _reliabilities(
    learn: ScoreTable, rest: ScoreTable, fitted: Mapping[str, Estimator]
) -> list[Reliability]:
    """The final κ taken as a probability, and what was learnt on the other half."""
    found = [_reliability(f"{FINAL} κ as it is", fitted[FINAL].confidence(rest), rest.errors)]
    for each, estimator in fitted.items():
        p, words = estimator.confidence(rest), f"{FINAL} κ" if each == FINAL else each
        if not estimator.calibrated:
            platt = Platt().fit(estimator.confidence(learn), learn.errors)
            p, words = platt.predict_proba(p), f"{words}, Platt"
        found.append(_reliability(words, p, rest.errors))
    return found


def _reliability(name: str, p: Floats, wrong: Bools) -> Reliability:
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    there = count > 0
    said = np.bincount(bins, p, minlength=BINS)[there] / count[there]
    errors = np.bincount(bins, wrong, minlength=BINS)[there].astype(np.float64)
    low, high = interval(errors, count[there])
    errs = nll(p, wrong), brier(p, wrong), ece(p, wrong)
    right = (count[there] - errors) / count[there]
    return Reliability(name, said, right, 1 - high, 1 - low, count[there], *errs)


def plain(value: Any, digits: int = 6) -> Any:
    """Numbers for a page: rounded to what matters, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): plain(part, digits) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part, digits) for part in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value
