"""LES, learned early stopping: beyond the paper.

PES picks one snapshot per layer, AES weighs all alike; a logistic regression learns the weights.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from snapsure import _validate
from snapsure._logistic import fit_logistic, logit, platt_curve, sigmoid
from snapsure._spacing import choose
from snapsure._types import Bools, Floats, Ints
from snapsure.errors import CorruptFile
from snapsure.estimators._base import Estimator, Fitted, State, rows_of
from snapsure.estimators._search import Search, penalty, standard
from snapsure.table import ScoreTable

# With fewer errors than this, or fewer right points, k weights cannot be learnt.
_FEW = 30


class _FittedLES(Fitted):
    fallback: bool
    center: list[float]
    spread: list[Annotated[float, Meta(gt=0)]]
    weights: list[float]


class LES(Estimator):
    """Probability of being right, from a logistic regression on the snapshots' logits.

    The features are log κ / (1 − κ) of k snapshots evenly spaced over the whole run, standardised.
    The penalty beside the sum of log-losses is 10 · w² / 2 on each snapshot's weight, but 0.3 on
    the final one's: what few labels cannot tell from noise is shrunk towards Platt's curve on the
    final κ, not towards an average of all snapshots. With fewer than 30 errors (or right points) to
    learn from, it is Platt's curve, and `fallback_` says so.

    With `passes`, an answer takes so many forward passes, the final snapshot's among them: of the k
    snapshots the others are chosen one after the other, each time the one that makes the log-loss
    of points left out of the fit (five folds) least, as long as one makes it less.

    Parameters
    ----------
    k : int
        Snapshots to use; with fewer, each is used once.
    passes : int, optional
        The most snapshots that an answer may pass through; all k if not given.

    Attributes
    ----------
    fallback_ : bool
        Whether there were too few errors to learn weights.
    epochs_ : (k,) array
        The snapshots' epochs.
    coef_ : (k,) array
        Weight of each, in standardised logits (in logits, where `fallback_`).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((5, 400))
    >>> errors = rng.random(400) > kappa.mean(axis=0)
    >>> table = ScoreTable.from_kappa(kappa, errors)
    >>> p = LES().fit(table).confidence(table)
    >>> bool(p[~errors].mean() > p[errors].mean())
    True
    """

    calibrated = True
    fitted_type: ClassVar[type] = _FittedLES

    def __init__(self, k: int = 20, passes: int | None = None) -> None:
        super().__init__()
        self.k = _validate.count(k, "k")
        self.passes = None if passes is None else _validate.count(passes, "passes")
        self.search: Search | None = None  # one that others share

    @property
    def settings(self) -> dict[str, Any]:
        """How many snapshots, and how many of them an answer may pass through."""
        return {"k": self.k, "passes": self.passes}

    @property
    def fallback_(self) -> bool:
        """Whether it is Platt's curve on the final κ."""
        return bool(self.fitted["fallback"])

    @property
    def epochs_(self) -> Ints:
        """Epochs of the snapshots it uses."""
        return np.array(self.fitted["epochs"])

    @property
    def coef_(self) -> Floats:
        """Their weights."""
        return np.array(self.fitted["weights"][:-1])

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        wrong = table.errors
        fallback = not enough(wrong)
        k = 1 if fallback else self.k
        epochs = table.epochs[choose(table.epochs, k, 0.0)].tolist()
        x = logit(rows_of(table, kappa, epochs))
        if self.passes is not None and self.passes < len(epochs):
            few = (self.search or Search()).rows(x, wrong, self.passes)
            epochs, x = [epochs[i] for i in few], x[few]
        if fallback:
            center, spread = np.zeros(1), np.ones(1)
            weights = np.array(platt_curve(x[0], wrong))
        else:
            center, spread, weights = weighed(x, wrong)
        return {
            "epochs": epochs,
            "fallback": fallback,
            "center": center.tolist(),
            "spread": spread.tolist(),
            "weights": weights.tolist(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """What `as_dict` told of."""
        state = content["fitted"]
        lengths = [len(state[name]) for name in ("epochs", "center", "spread", "weights")]
        if lengths != [lengths[0]] * 3 + [lengths[0] + 1]:
            raise CorruptFile(
                "a saved LES must have a centre, a spread and a weight for each of its "
                f"{lengths[0]} snapshots, and one weight more, got {lengths[1:]}: save it again"
            )
        return super().from_dict(content)

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        x = logit(rows_of(table, kappa, state["epochs"]))
        scaled = (x.T - state["center"]) / state["spread"]
        return sigmoid(scaled @ np.array(state["weights"][:-1]) + state["weights"][-1])


def enough(wrong: Bools) -> bool:
    """Whether there are errors and right points enough to learn weights from."""
    return min(int(wrong.sum()), int((~wrong).sum())) >= _FEW


def weighed(x: Floats, wrong: Bools) -> tuple[Floats, Floats, Floats]:
    """Centre and spread of each feature, and their weights with the intercept behind them.

    The last of the features (d, n) is the final κ's own, which the small penalty is on.
    """
    center, spread = standard(x)
    features = np.vstack(((x - center) / spread, np.ones(wrong.size)))
    held = penalty(len(x), final=len(x) - 1)
    weights = fit_logistic(features.T, (~wrong).astype(np.float64), held)
    return center[:, 0], spread[:, 0], weights
