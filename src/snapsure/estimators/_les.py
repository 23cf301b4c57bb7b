"""LES, learned early stopping (beyond the paper): c(x) = σ(b + Σ w_j g_j(x_j)).

x_j are features of the snapshots and of the final logits, g_j maps each to a normal score, and a
penalised logistic regression to "was right" learns the weights w and b.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self, TypedDict

import numpy as np
from msgspec import Meta

from snapsure import _json, _validate
from snapsure._logistic import fit_logistic, logit, platt_curve, sigmoid
from snapsure._logit_scores import FINAL_NUMBERS
from snapsure._spacing import beginning, choose
from snapsure._types import Bools, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators._base import Estimator, Fitted, State, places_of
from snapsure.estimators._search import FEW, Search, count_fewer, penalties, scarcity
from snapsure.table import ScoreTable

_OF_NUMBERS = 5.0  # how much higher the penalty on the final numbers is: they resemble each other
_OF_CLASS, _MANY = 10.0, 100  # the penalty on the offset of a class; from so many errors, estimated
_LATE = 0.4  # as AES: what comes before this share of the training is early
_AGREEMENT = ("agreement", "late agreement", "weighted agreement")
_MEAN = "late mean"
_TOGETHER = 1 << 12  # examples that are mapped at once


class _Curve(TypedDict):
    """A feature, and the table that maps it to normal scores."""

    name: str
    knots: Annotated[list[float], Meta(min_length=2)]
    scores: Annotated[list[float], Meta(min_length=2)]


class _FittedLES(Fitted):
    fallback: bool
    features: list[_Curve]
    weights: list[float]
    intercept: float
    classes: list[tuple[_json.Integer, float]]


class LES(Estimator):
    """Estimate the probability of being right by a logistic regression on the snapshots' answers.

    The features, where the table has them:

    - log-odds of κ, log κ / (1 − κ), of k snapshots evenly spaced over the whole run;
    - *agreement*: the share of these snapshots that give the final label, over all of them, from
      0.4 of the training on, and weighted by their order;
    - their mean κ from 0.4 of the training on, as in AES;
    - of the final logits: entropy, margin, energy, largest logit and GEN (`ScoreTable.final`).

    Each is mapped to a normal score: by a table of at most 257 knots, a value that has the mean
    rank r among the n examples of `fit` becomes Φ⁻¹(r / (n + 1)), standardised. The table is linear
    between its knots and flat outside, so nothing extrapolates.

    The penalty on each weight w is s · w² / 2 beside the sum of log-losses, s = 30 · max(1, √(300 /
    errors)) (`errors`: of wrong and right examples the fewer), 5 s for the numbers of the final
    logits, but 0.3 for the final snapshot's own log-odds: with few errors LES shrinks towards the
    final snapshot's order. Then each predicted class gets an offset g / (penalty + i), one Newton
    step, with g = Σ (right − p) and i = Σ p (1 − p) over its examples. The penalty is s / 3; from
    100 errors on, it is one over the variance of offsets that all classes imply, Σ (g² − i) / Σ i²,
    and there are no offsets where that is not above 0. With fewer than 30 errors, LES is Platt's
    curve on the final softmax, and `fallback_` is True.

    With `passes`, an answer takes at most so many forward passes, the final snapshot's included,
    and all features are of these snapshots. The others are chosen one by one: each time the one
    whose log-odds lower the log-loss of examples left out of the fit (five folds) most, until none
    lowers it. `passes=1` uses the final snapshot alone.

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
    epochs_ : array
        The snapshots' epochs.
    features_ : list of str
        The features that differ between examples; "epoch 7" is the log-odds of that snapshot.
    coef_ : array
        The weight of each feature, in standardised normal scores (in log-odds, where `fallback_`).

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
        self._sum: _Sum | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return k and passes."""
        return {"k": self.k, "passes": self.passes}

    @property
    def fallback_(self) -> bool:
        """Whether LES is Platt's curve on the final softmax."""
        return bool(self.fitted["fallback"])

    @property
    def epochs_(self) -> Ints:
        """Epochs of the snapshots in use."""
        return np.array(self.fitted["epochs"])

    @property
    def features_(self) -> list[str]:
        """Names of the features."""
        return [curve["name"] for curve in self.fitted["features"]]

    @property
    def coef_(self) -> Floats:
        """Weight of each feature."""
        return np.array(self.fitted["weights"])

    @property
    def needs(self) -> set[str]:
        """What answers read beside κ."""
        names = {*self.features_}
        labels = {"labels"} if names.intersection(_AGREEMENT) else set()
        return labels | ({"final"} if names.intersection(FINAL_NUMBERS) else set())

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        wrong, final = table.errors, int(table.epochs[-1])
        if count_fewer(wrong) < FEW:
            # Log-odds are clipped at these ends, so this curve is the identity.
            ends = logit(np.array([0.0, 1.0])).tolist()
            curve = _Curve(name=f"epoch {final}", knots=ends, scores=ends)
            slope, intercept = platt_curve(logit(table.kappa(kappa)[-1]), wrong)
            return {
                "epochs": [final],
                "fallback": True,
                "features": [curve],
                "weights": [slope],
                "intercept": intercept,
                "classes": [],
            }

        search = self.search or Search()
        epochs = table.epochs[choose(table.epochs, self.k, 0.0)].tolist()
        if self.passes is not None and self.passes < len(epochs):
            odds = logit(table.kappa(kappa)[places_of(table, epochs)])
            named = zip((f"epoch {epoch}" for epoch in epochs), odds, strict=True)
            x = np.array([search.to_normal_scores(name, one)[2] for name, one in named])
            epochs = [epochs[i] for i in search.rows(x, wrong, self.passes)]

        curves, mapped = [], []
        for name, x in make_features(table, kappa, epochs).items():
            knots, scores, values = search.to_normal_scores(name, x)
            if knots.size > 1:
                curves.append(_Curve(name=name, knots=knots.tolist(), scores=scores.tolist()))
                mapped.append(values)
        own = f"epoch {final}"
        held = penalties([curve["name"] == own for curve in curves], wrong)
        held[:-1][[curve["name"] in FINAL_NUMBERS for curve in curves]] *= _OF_NUMBERS
        design = np.stack([*mapped, np.ones(wrong.size)], axis=1)
        weights = fit_logistic(design, (~wrong).astype(np.float64), held)
        return {
            "epochs": epochs,
            "fallback": False,
            "features": curves,
            "weights": weights[:-1].tolist(),
            "intercept": float(weights[-1]),
            "classes": _fit_classes(table.y_hat, wrong, sigmoid(design @ weights)),
        }

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        if self._sum is None or self._sum.state is not state:
            self._sum = _Sum(state)
        features = make_features(table, kappa, state["epochs"])
        missing = [name for name in self._sum.names if name not in features]
        if missing:
            raise InvalidInput(
                f"`table` must have the final numbers that LES was fitted with, got no "
                f"{missing[0]}. Make it by `score` or `from_probabilities`, or pass final=."
            )
        return sigmoid(self._sum(features, table.y_hat))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Make the estimator that `as_dict` describes."""
        state = content["fitted"]
        curves, epochs = state["features"], state["epochs"]
        known = {f"epoch {epoch}" for epoch in epochs} | {*_AGREEMENT, _MEAN, *FINAL_NUMBERS}
        for curve in curves:
            if curve["name"] not in known:
                raise CorruptFile(
                    "A saved LES must have features of its snapshots, of epochs "
                    f"{', '.join(map(str, epochs))}, got {curve['name']!r}. Save it again."
                )
            is_whole = len(curve["knots"]) == len(curve["scores"])
            with np.errstate(all="ignore"):  # huge or equal knots have no finite slopes
                if is_whole:
                    is_whole = bool(np.isfinite(cut(curve, 1.0)[2]).all())
            if not is_whole or (np.diff(curve["knots"]) <= 0).any():
                raise CorruptFile(
                    "A saved LES must have rising knots and as many scores for each feature, got "
                    f"others for {curve['name']!r}. Save it again."
                )
        numbers = [number for number, _ in state["classes"]]
        if numbers != sorted({*numbers}):
            raise CorruptFile(
                f"A saved LES must have its classes in rising order, got {numbers}. Save it again."
            )
        if len(state["weights"]) != len(curves):
            raise CorruptFile(
                f"A saved LES must have a weight for each of its {len(curves)} features, got "
                f"{len(state['weights'])}. Save it again."
            )
        return super().from_dict(content)


def make_features(table: ScoreTable, kappa: str, epochs: Sequence[int]) -> dict[str, Floats]:
    """Return each feature of some snapshots, (n,), by its name; higher is surer.

    Sums are over integers, or one row after the other: their last bit must not depend on how many
    examples there are.
    """
    places = places_of(table, epochs)
    rows = table.kappa(kappa)[places]
    features = dict(zip((f"epoch {epoch}" for epoch in epochs), logit(rows), strict=True))
    others, late = len(epochs) - 1, len(find_late(epochs))
    if others:
        agree = table.labels[places][:-1] == table.y_hat
        order = np.arange(1, others + 1)
        features["agreement"] = agree.sum(axis=0) / others
        features["weighted agreement"] = (agree * order[:, None]).sum(axis=0) / order.sum()
    if late:
        features["late agreement"] = agree[others - late :].sum(axis=0) / late
        features[_MEAN] = logit(sum(rows[others - late :], start=np.zeros(())) / (late + 1))
    if table.final is not None:
        features |= zip(FINAL_NUMBERS, logit(table.final.T), strict=True)
    return features


def find_late(epochs: Sequence[int]) -> list[int]:
    """Return the epochs from 0.4 of the training on, without the final one, which is the last."""
    begin = beginning(int(epochs[-1]), _LATE, int(epochs[0]))
    return [epoch for epoch in epochs[:-1] if epoch >= begin]


def cut(curve: _Curve, weight: float) -> tuple[Floats, Floats, Floats]:
    """Cut w · g into lines, base + slope · (x − start): below its knots, between, and above.

    As many knots are at most x as lines are below the one that x is on.
    """
    knots, scores = np.array(curve["knots"]), weight * np.array(curve["scores"])
    slope = np.diff(scores) / np.diff(knots)
    return (
        np.append(knots[0], knots),
        np.append(scores[0], scores),
        np.concatenate(([0.0], slope, [0.0])),
    )


def _fit_classes(y_hat: Ints, wrong: Bools, p: Floats) -> list[tuple[int, float]]:
    """Return each predicted class and its offset; none where classes do not differ."""
    classes, at = np.unique(y_hat, return_inverse=True)
    if classes.size == 1:
        return []
    gradient, information = np.bincount(at, ~wrong - p), np.bincount(at, p * (1 - p))
    penalty = _OF_CLASS * scarcity(wrong)
    if count_fewer(wrong) >= _MANY:
        excess = float((gradient**2 - information).sum())  # E g² = i + i² · variance of offsets
        if excess <= 0:
            return []
        penalty = float((information**2).sum()) / excess
    offsets = gradient / (penalty + information)
    return list(zip(classes.tolist(), offsets.tolist(), strict=True))


class _Sum:
    """b + Σ w_j g_j(x_j), with the tables as arrays: one input must not wait for lists."""

    def __init__(self, state: State) -> None:
        self.state, self._intercept = state, state["intercept"]
        self._classes = np.array([number for number, _ in state["classes"]], np.int64)
        self._offsets = np.array([offset for _, offset in state["classes"]])
        curves = state["features"]
        self.names = [curve["name"] for curve in curves]
        self._knots = [np.array(curve["knots"]) for curve in curves]
        lines = [cut(*each) for each in zip(curves, state["weights"], strict=True)]
        self._start, self._base, self._slope = (
            np.concatenate([np.zeros(0), *(line[part] for line in lines)]) for part in range(3)
        )
        self._first = np.cumsum([0, *(knots.size + 1 for knots in self._knots)])[:-1, None]

    def __call__(self, features: Mapping[str, Floats], y_hat: Ints) -> Floats:
        """Return the log-odds of being right."""
        z = np.full(y_hat.size, self._intercept)
        if self._classes.size:
            at = np.minimum(self._classes.searchsorted(y_hat), self._classes.size - 1)
            z += np.where(self._classes[at] == y_hat, self._offsets[at], 0.0)
        for low in range(0, y_hat.size if self.names else 0, _TOGETHER):
            some = slice(low, low + _TOGETHER)
            x = np.array([features[name][some] for name in self.names])
            pairs = zip(self._knots, x, strict=True)
            line = self._first + np.array(
                [knots.searchsorted(row, "right") for knots, row in pairs]
            )
            terms = self._base[line] + self._slope[line] * (x - self._start[line])
            # One after the other: the last bit must not depend on how many examples there are.
            z[some] += np.add.accumulate(terms, axis=0)[-1]
        return z
