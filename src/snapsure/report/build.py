"""Computes what reports show; draws nothing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure import _validate
from snapsure.calibration import Platt
from snapsure.errors import InvalidInput
from snapsure.estimators import AES, LES, PES
from snapsure.metrics import (
    Interval,
    RCCurve,
    bootstrap_difference,
    brier,
    eaurc,
    nll,
    rc_curve,
)
from snapsure.table import ScoreTable

Floats = NDArray[np.float64]
Fit = Callable[[ScoreTable, str], Callable[[ScoreTable, str], Floats]]

FIT_SHARE = 0.7


@dataclass(frozen=True)
class Method:
    """A way to one confidence: `fit` learns on one table and gives a function of another."""

    name: str
    fit: Fit
    learns: bool  # from held-out errors
    calibrated: bool = False


@dataclass(frozen=True)
class Result:
    """How a method does on one κ. E-AURC as a fraction; `difference` is method − final κ."""

    kappa: str
    method: str
    eaurc: float
    final_eaurc: float  # of the final κ on the same points
    improvement: float | None  # percent; None where the final κ is perfect
    difference: Interval
    nll: float
    brier: float
    gains: tuple[float | None, ...] = ()  # of each table, where several were averaged

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {**asdict(self), "difference": self.difference._asdict()}


def _final(table: ScoreTable, name: str) -> Callable[[ScoreTable, str], Floats]:
    return lambda other, name: other.kappa(name)[-1]


def _aes(k: int) -> Fit:
    return lambda table, name: (
        lambda other, name: AES(k).confidence(other.kappa(name), other.epochs)
    )


def _pes(table: ScoreTable, name: str) -> Callable[[ScoreTable, str], Floats]:
    pes = PES().fit(table.kappa(name), table.errors)
    return lambda other, name: pes.confidence(other.kappa(name))


def _les(table: ScoreTable, name: str) -> Callable[[ScoreTable, str], Floats]:
    les = LES().fit(table.kappa(name), table.errors, table.epochs)
    return lambda other, name: les.confidence(other.kappa(name))


METHODS = [
    Method("final", _final, learns=False),
    Method("AES k=10", _aes(10), learns=False),
    Method("AES k=30", _aes(30), learns=False),
    Method("AES k=50", _aes(50), learns=False),
    Method("PES", _pes, learns=True),
    Method("LES", _les, learns=True, calibrated=True),
]


def evaluate(
    table: ScoreTable,
    *,
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    splits: int = 10,
    seed: int = 0,
    resamples: int = 1000,
) -> list[Result]:
    """Every method on every κ of a table, or those named.

    Methods that learn nothing are judged on all points, those that learn on the 30 % that each of
    `splits` random 70/30 splits leaves (means over the splits, of the intervals' ends too). NLL and
    Brier score are of Platt's curve, fitted on the 70 %, except where the method gives a
    probability by itself.
    """
    if not 0 < int(table.errors.sum()) < table.errors.size:
        raise InvalidInput(
            f"`table` must have right and wrong points to compare methods, got "
            f"{int(table.errors.sum())} wrong of {table.errors.size}: score more points"
        )
    parts = [table.split(FIT_SHARE, seed + i) for i in range(_validate.count(splits, "splits"))]
    return [
        _judge(method, table, name, parts, seed, resamples)
        for name in (table.names if names is None else names)
        for method in METHODS
        if methods is None or method.name in methods
    ]


def average(results: Sequence[Sequence[Result]]) -> list[Result]:
    """Mean of the same results on several tables (seeds): of the ends of the intervals too."""
    return [_average(rows) for rows in zip(*results, strict=True)]


def best_curve(errors: NDArray[np.bool_]) -> RCCurve:
    """The risk-coverage curve of κ*: one point per place, where κ* itself has but two scores."""
    place = np.argsort(np.argsort(errors, kind="stable"), kind="stable")
    return rc_curve(-place, errors)


def _average(rows: Sequence[Result]) -> Result:
    ours = float(np.mean([row.eaurc for row in rows]))
    final = float(np.mean([row.final_eaurc for row in rows]))
    return Result(
        rows[0].kappa,
        rows[0].method,
        ours,
        final,
        gain(ours, final),
        mean_interval([row.difference for row in rows]),
        float(np.mean([row.nll for row in rows])),
        float(np.mean([row.brier for row in rows])),
        tuple(row.improvement for row in rows),
    )


def gain(ours: float, final: float) -> float | None:
    """Percent; None where there is nothing to gain."""
    return 100 * (1 - ours / final) if final > 0 else None


def mean_interval(intervals: Iterable[Interval]) -> Interval:
    """Mean of the estimates, and of the ends."""
    return Interval(*(float(np.mean(ends)) for ends in zip(*intervals, strict=True)))


def _judge(
    method: Method,
    table: ScoreTable,
    name: str,
    parts: list[tuple[ScoreTable, ScoreTable]],
    seed: int,
    resamples: int,
) -> Result:
    pairs, probabilities = [], []
    for fit, rest in parts:
        confidence = method.fit(fit, name)
        score = confidence(rest, name)
        pairs.append((score, rest.kappa(name)[-1], rest.errors))
        if method.calibrated:
            p = score
        else:
            p = Platt().fit(confidence(fit, name), fit.errors).predict_proba(score)
        probabilities.append((p, rest.errors))
    if not method.learns:
        pairs = [(method.fit(table, name)(table, name), table.kappa(name)[-1], table.errors)]
    intervals = [
        bootstrap_difference(eaurc, *pair, resamples=resamples, seed=seed) for pair in pairs
    ]
    ours = float(np.mean([eaurc(score, errors) for score, _, errors in pairs]))
    final = float(np.mean([eaurc(score, errors) for _, score, errors in pairs]))
    return Result(
        name,
        method.name,
        ours,
        final,
        gain(ours, final),
        mean_interval(intervals),
        float(np.mean([nll(p, errors) for p, errors in probabilities])),
        float(np.mean([brier(p, errors) for p, errors in probabilities])),
    )
