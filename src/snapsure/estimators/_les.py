"""LES, learned early stopping (beyond the paper): c(x) = σ(Σ w_j logit κ(x | f^[j]) + b).

PES picks one snapshot per layer and AES weighs all alike; LES learns the weights from labels.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from snapsure import _json, _validate
from snapsure._logistic import fit_logistic, logit, platt_curve, sigmoid
from snapsure._spacing import choose
from snapsure._types import Bools, Floats, Ints
from snapsure.errors import CorruptFile
from snapsure.estimators._base import Estimator, Fitted, State, rows_of
from snapsure.estimators._search import Search, penalty, standard
from snapsure.table import ScoreTable

# Errors, and right examples, that it takes to learn weights.
_FEW = 30


class _FittedLES(Fitted):
    fallback: bool
    center: list[float]
    spread: list[Annotated[float, Meta(gt=0)]]
    weights: list[float]


class LES(Estimator):
    """Estimate the probability of being right by a logistic regression on the snapshots' κ.

    The features are the log-odds of κ, log κ / (1 − κ), of k snapshots evenly spaced over the whole
    run, standardised. The penalty on each weight w is 10 · w² / 2 beside the sum of log-losses, but
    0.3 · w² / 2 for the final snapshot: with few labels LES shrinks towards Platt's curve on the
    final κ, not towards an average of all snapshots. With fewer than 30 errors (or right examples)
    to learn from, LES is Platt's curve on the final κ, and `fallback_` is True.

    With `passes`, an answer takes at most so many forward passes, the final snapshot's included.
    The other snapshots are chosen one by one: each time the one that lowers the log-loss of
    examples left out of the fit (five folds) most, until none lowers it.

    Parameters
    ----------
    k : int
        Snapshots to use; with fewer, each is used once.
    passes : int, optional
        The most forward passes per answer; k if not given.

    Attributes
    ----------
    fallback_ : bool
        Whether there were too few errors to learn weights from.
    epochs_ : (k,) array
        The snapshots' epochs.
    coef_ : (k,) array
        Weight of each, in standardised log-odds (in log-odds, where `fallback_`).

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
        self.search: Search | None = None  # to share with others on the same examples

    @property
    def settings(self) -> dict[str, Any]:
        """Return k and passes."""
        return {"k": self.k, "passes": self.passes}

    @property
    def fallback_(self) -> bool:
        """Whether LES is Platt's curve on the final κ."""
        return bool(self.fitted["fallback"])

    @property
    def epochs_(self) -> Ints:
        """Epochs of the snapshots in use."""
        return np.array(self.fitted["epochs"])

    @property
    def coef_(self) -> Floats:
        """Weight of each of these snapshots."""
        return np.array(self.fitted["weights"][:-1])

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        wrong = table.errors
        fallback = not has_enough_errors(wrong)
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
            center, spread, weights = fit_weights(x, wrong)
        return {
            "epochs": epochs,
            "fallback": fallback,
            "center": center.tolist(),
            "spread": spread.tolist(),
            "weights": weights.tolist(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make the estimator that `as_dict` describes."""
        state = content["fitted"]
        lengths = [len(state[name]) for name in ("epochs", "center", "spread", "weights")]
        if lengths != [lengths[0]] * 3 + [lengths[0] + 1]:
            raise CorruptFile(
                "A saved LES must have a centre, a spread and a weight for each of its "
                f"{lengths[0]} snapshots, and one weight more, got {lengths[1:]}. Save it again."
            )
        return super().from_dict(content)

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        x = logit(rows_of(table, kappa, state["epochs"]))
        scaled = (x.T - state["center"]) / state["spread"]
        return sigmoid(scaled @ np.array(state["weights"][:-1]) + state["weights"][-1])


class _FittedStack(Fitted):
    names: list[str]
    stacked: list[_json.Integer]
    les: _FittedLES


class StackedLES(Estimator):
    """Use LES on every κ of a table at once, with a few snapshots of each.

    Parameters
    ----------
    each : int
        Snapshots of each κ.
    """

    calibrated = True
    of_kappa: ClassVar[bool] = False
    fitted_type: ClassVar[type] = _FittedStack

    def __init__(self, each: int = 5) -> None:
        super().__init__()
        self.each = _validate.count(each, "each")

    @property
    def settings(self) -> dict[str, Any]:
        """Return how many snapshots of each κ it uses."""
        return {"each": self.each}

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        epochs = table.epochs[choose(table.epochs, self.each, 0.0)].tolist()
        rows = self._stack(table, table.names, epochs)
        les = LES(len(rows)).fit(ScoreTable.from_kappa(rows, table.errors))
        used = epochs[-1:] if les.fallback_ else epochs
        return {"epochs": used, "names": list(table.names), "stacked": epochs, "les": les.fitted}

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        rows = self._stack(table, state["names"], state["stacked"])
        les = LES.from_dict({"settings": {"k": len(rows)}, "fitted": state["les"]})
        return les.confidence(ScoreTable.from_kappa(rows))

    def _stack(self, table: ScoreTable, names: Sequence[str], epochs: Sequence[int]) -> Floats:
        # The first κ comes last: LES shrinks towards its final snapshot, or falls back to it.
        return np.vstack([rows_of(table, name, epochs) for name in reversed(names)])


def has_enough_errors(wrong: Bools) -> bool:
    """Say whether there are enough errors and right examples to learn weights from."""
    return min(int(wrong.sum()), int((~wrong).sum())) >= _FEW


def fit_weights(x: Floats, wrong: Bools) -> tuple[Floats, Floats, Floats]:
    """Return the centre and spread of each feature, and their weights with the intercept last.

    The last of the features (d, n) belongs to the final κ, and has the small penalty.
    """
    center, spread = standard(x)
    features = np.vstack(((x - center) / spread, np.ones(wrong.size)))
    held = penalty(len(x), final=len(x) - 1)
    weights = fit_logistic(features.T, (~wrong).astype(np.float64), held)
    return center[:, 0], spread[:, 0], weights
