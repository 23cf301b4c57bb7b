"""A method learns on some points and is judged on others: the one place where that is done."""

from dataclasses import dataclass

import numpy as np

from snapsure._types import Bools, Floats, Metric
from snapsure.decisions import Platt
from snapsure.estimators import Estimator
from snapsure.evaluation._methods import Method, errors_of
from snapsure.evaluation._run import Run
from snapsure.metrics import augrc, aurc, brier, eaurc, nll

# No probability is nearer to 0 or 1: one sure mistake would make a mean NLL infinite.
_LEAST = 1e-6

AREAS: dict[str, Metric] = {"eaurc": eaurc, "aurc": aurc, "augrc": augrc}


@dataclass(frozen=True)
class Judged:
    """What a method says of points that it did not learn from."""

    score: Floats
    errors: Bools  # of the classifier that it speaks of
    p: Floats  # probability of being right, by Platt's curve where the score is none
    passes: int  # through a network, per answer
    kept: int  # snapshots
    trainings: float

    def numbers(self) -> dict[str, float]:
        """The metrics of these points, and the price."""
        p = np.clip(self.p, _LEAST, 1 - _LEAST)
        return {
            **{name: float(area(self.score, self.errors)) for name, area in AREAS.items()},
            "nll": float(nll(p, self.errors)),
            "brier": float(brier(p, self.errors)),
            "error": float(self.errors.mean()),
            "passes": float(self.passes),
            "snapshots": float(self.kept),
            "trainings": self.trainings,
        }


def judge(method: Method, learn: Run, rest: Run) -> Judged:
    """Fit on one run's points, score and calibrate on the other's."""
    estimator = method.make()
    score, seen = _scores(method, estimator, learn, rest)
    errors = errors_of(method, rest)
    p = score
    if not estimator.calibrated:
        p = Platt().fit(seen, errors_of(method, learn)).predict_proba(score)
    # The final snapshot is kept in any case: it makes the prediction.
    last = int(rest.table.epochs[-1])
    used = [last] if method.other else estimator.fitted["epochs"]
    kept = len({*used, last})
    passes = method.each * len(used) + kept - len(used)
    return Judged(
        score,
        errors,
        p,
        passes,
        kept if method.kept is None else method.kept,
        method.trainings,
    )


def _scores(method: Method, estimator: Estimator, learn: Run, rest: Run) -> tuple[Floats, Floats]:
    """Confidence of the points to be judged, and of those learnt from."""
    if method.other is not None:
        return rest.others[method.other][0], learn.others[method.other][0]
    estimator.fit(learn.table, method.kappa or learn.table.names[0])
    return estimator.confidence(rest.table), estimator.confidence(learn.table)
