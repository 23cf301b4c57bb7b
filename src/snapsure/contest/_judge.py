"""All methods of the runs of one data set, judged on the halves that they did not learn from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from snapsure._logistic import logit
from snapsure.calibration import Platt
from snapsure.contest._methods import Method, errors_of, halves, methods_of
from snapsure.contest._run import Run
from snapsure.metrics import augrc, aurc, brier, eaurc, nll
from snapsure.metrics._bootstrap import paired_values

Floats = NDArray[np.float64]

# No probability is nearer to 0 or 1: one sure mistake would make a mean NLL infinite.
_LEAST = 1e-6


@dataclass(frozen=True)
class Judged:
    """Means over the runs of one data set and their halves, by method; E-AURC by resample too."""

    MEANS: ClassVar = (
        "eaurc",
        "aurc",
        "augrc",
        "nll",
        "brier",
        "error",
        "passes",
        "snapshots",
    )

    methods: Sequence[str]
    runs: int
    points: int
    each: Floats  # E-AURC of every run, (runs, methods)
    drawn: Floats  # their mean on every resample of the points, (methods, resamples)
    luck: Floats  # what a resample makes of the runs' deviations from their mean, (resamples, runs)
    eaurc: Floats
    aurc: Floats
    augrc: Floats
    nll: Floats
    brier: Floats
    error: Floats
    passes: Floats
    snapshots: Floats
    bytes: Floats | None

    def of(self, methods: Sequence[str]) -> "Judged":
        """Some of the methods only."""
        at = [self.methods.index(name) for name in methods]
        arrays = {field: getattr(self, field)[at] for field in (*self.MEANS, "drawn")}
        size = None if self.bytes is None else self.bytes[at]
        each = self.each[:, at]
        return replace(self, methods=list(methods), bytes=size, each=each, **arrays)


def judge(runs: Sequence[Run], resamples: int, seed: int, index: int) -> Judged:
    """Every method that all runs have; `index` tells this data set's luck from that of others."""
    methods = [
        method
        for method in methods_of(runs[0])
        if all(method.name in {own.name for own in methods_of(run)} for run in runs)
    ]
    each = [_judge_run(run, methods, resamples, seed) for run in runs]
    means = {field: np.mean([one[field] for one in each], axis=0) for field in Judged.MEANS}
    sizes = [run.snapshot_bytes for run in runs if run.snapshot_bytes is not None]
    kept = np.array(means["snapshots"])
    return Judged(
        methods=[method.name for method in methods],
        runs=len(runs),
        points=runs[0].table.y_hat.size,
        each=np.array([one["eaurc"] for one in each]),
        drawn=np.mean([one["drawn"] for one in each], axis=0),
        luck=_luck(len(runs), resamples, np.random.SeedSequence([seed, index])),
        bytes=kept * np.mean(sizes) if len(sizes) == len(runs) else None,
        **means,
    )


def _luck(runs: int, resamples: int, seed: np.random.SeedSequence) -> Floats:
    """Weights of the runs' deviations that give Student's t of their mean, all methods together.

    Deviations d from the mean of R runs, times these, have variance Σd² / (R (R − 1)), which is
    that of a mean, and the tails of t with R − 1 degrees of freedom: of few runs little is known.
    """
    if runs == 1:
        return np.zeros((resamples, 1))
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((resamples, runs)) / np.sqrt(runs * (runs - 1))
    luck: Floats = normal / np.sqrt(rng.chisquare(runs - 1, (resamples, 1)) / (runs - 1))
    return luck


def _judge_run(run: Run, methods: Sequence[Method], resamples: int, seed: int) -> dict[str, Floats]:
    parts = [
        _judge_half(run.rows(learn), run.rows(rest), methods, resamples, seed)
        for learn, rest in halves(run.table.y_hat.size, seed)
    ]
    return {field: np.mean([part[field] for part in parts], axis=0) for field in parts[0]}


def _stretched(score: Floats) -> Floats:
    """What Platt's curve is fitted to: log-odds of what lies in [0, 1], else itself."""
    return logit(score) if score.min() >= 0 and score.max() <= 1 else score


def _judge_half(
    learn: Run, rest: Run, methods: Sequence[Method], resamples: int, seed: int
) -> dict[str, Floats]:
    rows, scored = [], []
    for method in methods:
        fitted = method.fit(learn)
        score, errors = fitted.score(rest), errors_of(method, rest)
        p = score
        if not method.calibrated:
            known = _stretched(fitted.score(learn))
            platt = Platt().fit(known, errors_of(method, learn))
            p = platt.predict_proba(_stretched(score))
        p = np.clip(p, _LEAST, 1 - _LEAST)
        # The final snapshot is kept in any case: it makes the prediction.
        used = len(fitted.snapshots)
        kept = len({*fitted.snapshots, len(rest.table.epochs) - 1})
        passes = method.each * used + kept - used
        rows.append(
            {
                "eaurc": eaurc(score, errors),
                "aurc": aurc(score, errors),
                "augrc": augrc(score, errors),
                "nll": nll(p, errors),
                "brier": brier(p, errors),
                "error": errors.mean(),
                "passes": passes,
                "snapshots": kept if method.kept is None else method.kept,
            }
        )
        scored.append((score, errors))
    columns = {field: np.array([row[field] for row in rows]) for field in rows[0]}
    return {**columns, "drawn": paired_values(eaurc, scored, resamples, seed)}
