"""What the report says about one κ of a score table, as numbers. Draws nothing.

Intervals of a risk are exact binomial ones (Clopper-Pearson, 95 %, pointwise). The guaranteed risk
is the one-sided bound at delta over the number of choices a reader has (positions of the slider,
scores, chapters), so that it holds for whichever is chosen after looking at all of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.calibration import Platt
from snapsure.errors import InvalidInput
from snapsure.estimators import AES, PES, Final
from snapsure.evaluation import Splits, evaluate
from snapsure.evaluation._numbers import best_curve
from snapsure.evaluation._result import Result
from snapsure.evaluation._trajectories import Trajectories, trajectories
from snapsure.metrics import brier, ece, nll
from snapsure.metrics._rank import tie_groups
from snapsure.table import ScoreTable
from snapsure.threshold import upper_bound

POSITIONS = 200  # of the slider, in even steps of coverage
DELTAS = (0.1, 0.05, 0.01, 0.001)
CURVE_POINTS = 200  # what a screen can show
BINS = 10
SHOWN = 12  # points and classes listed
SHARES = (0.5, 0.8, 0.9)  # of the surer group along training: the first with enough errors …
ENOUGH = 10  # … to rank
CLASS_COVERAGE = 0.8
METHODS = ("final", "AES k=30", "PES", "LES")
# Splits and resamples. A large set has narrow intervals, and a resample of it takes its time.
_LARGE, _EFFORT, _EFFORT_LARGE = 100_000, (10, 1000), (3, 200)


@dataclass(frozen=True)
class Positions:
    """What each position of the slider means: thresholds, and what they do."""

    coverage: Floats
    theta: Floats
    risk: Floats
    low: Floats
    high: Floats
    handed: Ints
    strange: Floats  # share of the accepted errors at points of none of the classes
    bounds: dict[float, Floats]


@dataclass(frozen=True)
class Curve:
    """Risk against coverage, thinned, with its band."""

    coverage: Floats
    risk: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Reliability:
    """Of one probability: how often it was right where it said so, and its errors."""

    name: str
    said: Floats
    right: Floats
    count: Ints
    nll: float
    brier: float
    ece: float


@dataclass(frozen=True)
class ClassRisk:
    """How often a class is wrong where it was accepted."""

    label: int
    accepted: int
    wrong: int
    risk: float
    low: float
    high: float


@dataclass(frozen=True)
class Layer:
    """One layer of PES fitted on all points: what cut it off, what ranks it, and how many."""

    epoch: int  # of the snapshot that ranks it
    cut_epoch: int  # of the snapshot that cut it off
    edge: float  # up to which κ of that snapshot
    points: int


@dataclass(frozen=True)
class Findings:
    """Everything that the page says about one κ."""

    kappa: str
    accuracy: float
    points: int
    epochs: Ints
    splits: int
    resamples: int
    results: dict[str, Result]
    positions: dict[str, Positions]
    curves: dict[str, Curve]
    accuracies: Floats
    groups: Trajectories
    surer: float  # share of the points in the surer group; the others are the less sure
    averaged: Ints  # epochs that AES averages
    layers: list[Layer]  # of PES, least sure first
    reliability: list[Reliability]
    mistakes: Ints  # rows, surest first
    moved: dict[str, Ints]  # rows that AES moved most, by what became of them
    classes: list[ClassRisk]
    strangers: int  # points of none of the classes …
    strange: float  # … and their share of all errors
    final: Floats
    aes: Floats


def find(table: ScoreTable, kappa: str | None = None, seed: int = 0, chapters: int = 1) -> Findings:
    """Compute a report's numbers for one κ, the table's first if none is named.

    `chapters` is how many tables the reader chooses among.
    """
    name = table.names[0] if kappa is None else kappa
    values, wrong = table.kappa(name), table.errors
    n = wrong.size
    if not 0 < int(wrong.sum()) < n or n < 10:
        raise InvalidInput(
            f"`table` must have at least ten points, right and wrong ones, got {int(wrong.sum())} "
            f"wrong of {n}: score more points"
        )
    splits, resamples = _EFFORT if n <= _LARGE else _EFFORT_LARGE
    board = evaluate(
        table,
        names=[name],
        methods=METHODS,
        protocol=Splits(splits, seed=seed),
        resamples=resamples,
        seed=seed,
    ).boards[name]
    final, aes = values[-1], AES().fit(table, name).confidence(table)
    scores = {"AES": aes, "final": final}
    choices = POSITIONS * len(scores) * chapters
    groups, surer = _groups(values, wrong)
    strange = wrong & (table.y == _validate.NO_CLASS) & (table.labels != _validate.NO_CLASS).all()
    return Findings(
        kappa=name,
        accuracy=float(1 - wrong.mean()),
        points=n,
        epochs=table.epochs,
        splits=splits,
        resamples=resamples,
        results={result.method: result for result in board.rows},
        positions={
            each: _positions(score, wrong, choices, strange) for each, score in scores.items()
        },
        curves={each: _curve(score, wrong) for each, score in scores.items()}
        | {"κ*": _thinned_best(wrong)},
        accuracies=(table.labels == table.y).mean(axis=1),
        groups=groups,
        surer=surer,
        averaged=np.array(AES().snapshots(table.epochs)),
        layers=_layers(table, name),
        reliability=_reliabilities(table, name, seed),
        mistakes=_surest(np.flatnonzero(wrong), aes),
        moved=_moved(final, aes, wrong),
        classes=_classes(aes, table.y_hat, wrong),
        strangers=int(strange.sum()),
        strange=float(strange.sum() / wrong.sum()),
        final=final,
        aes=aes,
    )


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


def _accepted(score: Floats, wrong: Bools, counts: Ints) -> tuple[Floats, Ints, Floats]:
    """Thresholds that accept at least so many, how many they accept, and errors among those."""
    theta, end, loss = tie_groups(score, wrong)
    at = np.searchsorted(end, counts)
    return theta[at].astype(np.float64), end[at], loss[at].astype(np.float64)


def _interval(errors: Floats, n: Ints, level: float = 0.95) -> tuple[Floats, Floats]:
    """Clopper-Pearson, two-sided."""
    tail = (1 - level) / 2
    high = np.array([upper_bound(int(e), int(m), tail) for e, m in zip(errors, n, strict=True)])
    right = n - errors
    low = np.array([1 - upper_bound(int(r), int(m), tail) for r, m in zip(right, n, strict=True)])
    return low, high


def _positions(score: Floats, wrong: Bools, choices: int, strange: Bools) -> Positions:
    counts = np.ceil(np.arange(1, POSITIONS + 1) / POSITIONS * score.size - 1e-9).astype(np.int64)
    theta, n, errors = _accepted(score, wrong, counts)
    low, high = _interval(errors, n)
    pairs = list(zip(errors.astype(int).tolist(), n.tolist(), strict=True))
    bounds = {
        delta: np.array([upper_bound(e, m, delta / choices) for e, m in pairs]) for delta in DELTAS
    }
    theirs = _accepted(score, strange, counts)[2] / np.maximum(errors, 1)
    handed = score.size - n
    return Positions(n / score.size, theta, errors / n, low, high, handed, theirs, bounds)


def _curve(score: Floats, wrong: Bools) -> Curve:
    counts = np.unique(np.linspace(1, score.size, CURVE_POINTS).astype(np.int64))
    _, n, errors = _accepted(score, wrong, counts)
    n, first = np.unique(n, return_index=True)
    errors = errors[first]
    low, high = _interval(errors, n)
    return Curve(n / score.size, errors / n, low, high)


def _thinned_best(wrong: Bools) -> Curve:
    """κ* has no band: it is what these points would have allowed."""
    whole = best_curve(wrong)
    at = np.unique(np.linspace(0, wrong.size - 1, CURVE_POINTS).astype(np.int64))
    risk = whole.risk[at]
    return Curve(whole.coverage[at], risk, risk, risk)


def _reliabilities(table: ScoreTable, name: str, seed: int) -> list[Reliability]:
    """κ taken as a probability, and Platt's of it and of AES, learnt on the other half."""
    fit, rest = table.split(0.5, seed)
    final, aes = Final().fit(fit, name), AES().fit(fit, name)
    probabilities = {"final κ as it is": final.confidence(rest)}
    for words, estimator in (("final κ, Platt", final), ("AES, Platt", aes)):
        platt = Platt().fit(estimator.confidence(fit), fit.errors)
        probabilities[words] = platt.predict_proba(estimator.confidence(rest))
    return [_reliability(each, p, rest.errors) for each, p in probabilities.items()]


def _reliability(name: str, p: Floats, wrong: Bools) -> Reliability:
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    there = count > 0
    said = np.bincount(bins, p, minlength=BINS)[there] / count[there]
    right = np.bincount(bins, ~wrong, minlength=BINS)[there] / count[there]
    return Reliability(
        name, said, right, count[there], nll(p, wrong), brier(p, wrong), ece(p, wrong)
    )


def _surest(rows: Ints, score: Floats) -> Ints:
    return rows[np.argsort(-score[rows], kind="stable")][:SHOWN]


def _moved(final: Floats, aes: Floats, wrong: Bools) -> dict[str, Ints]:
    """Rows whose place in the ranking AES changed most, right and wrong, both ways."""
    rise = _place(aes) - _place(final)
    found = {}
    for outcome, those in (("Right", np.flatnonzero(~wrong)), ("Wrong", np.flatnonzero(wrong))):
        order = those[np.argsort(-rise[those], kind="stable")]
        found[f"{outcome}, surer by AES"] = order[rise[order] > 0][: SHOWN // 2]
        found[f"{outcome}, less sure by AES"] = order[rise[order] < 0][::-1][: SHOWN // 2]
    return found


def _place(score: Floats) -> Floats:
    """Share of points below each, ties in the middle of their places."""
    ordered = np.sort(score)
    below, upto = (np.searchsorted(ordered, score, side=side) for side in ("left", "right"))
    place: Floats = (below + upto) / (2 * score.size)
    return place


def _classes(score: Floats, y_hat: Ints, wrong: Bools) -> list[ClassRisk]:
    """Predicted classes by their risk among the surest points, the riskiest first."""
    count = np.array([int(np.ceil(CLASS_COVERAGE * score.size - 1e-9))])
    theta, _, _ = _accepted(score, wrong, count)
    accepted = score >= theta[0]
    number = np.bincount(y_hat[accepted])
    errors = np.bincount(y_hat[accepted], wrong[accepted], number.size).astype(np.float64)
    labels = np.flatnonzero(number)
    labels = labels[np.argsort(-errors[labels] / number[labels], kind="stable")][:SHOWN]
    low, high = _interval(errors[labels], number[labels])
    return [
        ClassRisk(int(label), int(number[label]), int(errors[label]), risk, below, above)
        for label, risk, below, above in zip(
            labels,
            (errors[labels] / number[labels]).tolist(),
            low.tolist(),
            high.tolist(),
            strict=True,
        )
    ]


def plain(value: Any, digits: int = 6) -> Any:
    """Numbers for a page: rounded to what matters, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): plain(part, digits) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part, digits) for part in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value
