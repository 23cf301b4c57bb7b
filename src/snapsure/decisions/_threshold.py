"""The threshold itself: how it is chosen, what it promises, and how it is kept on disk."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Bools
from snapsure.decisions._cost import cheapest
from snapsure.decisions._groups import NEVER, Group, Small, thetas
from snapsure.decisions._promise import Sample, smallest_risk
from snapsure.errors import Infeasible, InvalidInput
from snapsure.metrics._bootstrap import Interval
from snapsure.metrics._rank import tie_groups


class ThresholdState(TypedDict):
    """What a saved threshold holds; an infinite threshold is None."""

    theta: float | None
    coverage: float
    risk: float | None
    delta: float | None
    n: _json.Integer | None
    within: dict[str, float]
    groups: Annotated[list[tuple[str | _json.Integer, float | None]], Meta(min_length=1)] | None
    cost: Interval | None


class Threshold:
    """Accepts the points whose confidence is at least `theta`, and hands the others to a person.

    Attributes
    ----------
    theta : float
        The threshold, infinite where nothing is accepted. With groups, the highest of theirs.
    coverage : float
        Share of the points it was made from that it accepts.
    risk, delta : float or None
        The promise: the risk of what is accepted stays at or below `risk`, with probability
        1 − delta over draws of the points it was made from. None if nothing was promised.
    n : int or None
        How many points it was made from.
    within : dict of str to float
        Further risks of the same promise, by name.
    groups : dict of int or str to float, or None
        The threshold of each group, infinite for one whose points all go to a person.
    cost : Interval or None
        Expected cost per point, of a threshold chosen by costs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.random(5000)
    >>> errors = rng.random(5000) > confidence
    >>> chosen = Threshold.at_risk(confidence, errors, risk=0.2)
    >>> bool(errors[chosen.accepts(confidence)].mean() < 0.2)
    True
    """

    def __init__(
        self,
        theta: float,
        coverage: float,
        *,
        risk: float | None = None,
        delta: float | None = None,
        n: int | None = None,
        within: Mapping[str, float] | None = None,
        groups: Mapping[Group, float] | None = None,
        cost: Interval | None = None,
    ) -> None:
        self.theta, self.coverage = theta, coverage
        self.risk, self.delta, self.n = risk, delta, n
        self.within = dict(within or {})
        self.groups = None if groups is None else dict(groups)
        self.cost = cost

    def __repr__(self) -> str:
        """Threshold, coverage, and promise or cost."""
        where = f"κ ≥ {self.theta:.6g}"
        if self.groups is not None:
            where = f"one for each of {len(self.groups)} groups"
        promise = "" if self.risk is None else f", risk ≤ {self.risk:.4g} (delta {self.delta:g})"
        promise += "".join(f", of {name} ≤ {limit:.4g}" for name, limit in self.within.items())
        cost = "" if self.cost is None else f", cost {self.cost.estimate:.4g} per point"
        return f"<Threshold: {where}, coverage {self.coverage:.3g}{promise}{cost}>"

    @property
    def risk_bound(self) -> float | None:
        """What the risk stays under, with probability 1 − delta: the promised risk, no less.

        The tests behind the promise are all of that one risk. A tighter bound of the threshold that
        they chose would be one more statement about the same points, with a delta of its own.
        """
        return self.risk

    @classmethod
    def at_coverage(cls, confidence: ArrayLike, coverage: float) -> "Threshold":
        """The highest threshold that accepts at least this share of the points.

        Tied points are accepted together.
        """
        score = _validate.scores(confidence, "confidence")
        share = _validate.fraction(coverage, "coverage") * score.size
        theta, end, _ = tie_groups(score, np.zeros(score.size, dtype=np.bool_))
        at = int(np.searchsorted(end, max(1, math.ceil(share * (1 - 1e-12)))))
        return cls(float(theta[at]), float(end[at] / score.size), n=score.size)

    @classmethod
    def at_risk(
        cls,
        confidence: ArrayLike,
        errors: ArrayLike,
        risk: float,
        delta: float = 0.05,
        groups: ArrayLike | None = None,
        within: Mapping[str, tuple[ArrayLike, float]] | None = None,
        small: Small = "refuse",
    ) -> "Threshold":
        """A threshold whose risk on new points is at most `risk`, with probability 1 − delta.

        Exact binomial tests walk from the surest point on, as far as they prove the risk; half of
        delta begins at the surest points, the rest at fixed steps further down, so that a few sure
        mistakes do not end the walk (`_promise.py` has the rule and why it holds).

        Parameters
        ----------
        confidence, errors : (n,)
            Held-out points like those to come, which nothing was fitted on.
        risk : float
            The risk to promise, in (0, 1). Choose it before looking at these points: a promise
            tried at one risk after another until one fits is broken more often than delta.
        delta : float
            How often the promise may be broken, over draws of the held-out points.
        groups : (n,) of whole numbers or strings, optional
            The predicted class of each point, its site, its customer, …: each group gets a
            threshold of its own, and the promise is that ALL of them keep the risk. A group in
            which no threshold can be proved goes to a person as a whole.
        within : dict of name to (mask, limit), optional
            Further risks to keep at once: the error rate among accepted points of the mask (n,).
        small : {"refuse", "join", "review"}
            What becomes of groups with too few points to promise anything, whatever their errors:
            refuse them by name, give one threshold to all of them together, or hand all their
            points to a person.

        Raises
        ------
        Infeasible
            If no threshold can be proved (says which risk could have been), or a group is too
            small.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> confidence, site = rng.random(5000), rng.integers(0, 2, 5000)
        >>> errors = rng.random(5000) > confidence ** (site + 1)
        >>> chosen = Threshold.at_risk(confidence, errors, risk=0.2, groups=site)
        >>> chosen.groups[0] < chosen.groups[1]
        True
        >>> chosen.accepts([0.8, 0.8, 0.8], groups=[0, 1, 2])  # nobody has seen site 2
        array([ True, False, False])
        """
        score = _validate.scores(confidence, "confidence")
        wrong = _validate.errors(errors, score.shape, of="confidence")
        limit = _validate.fraction(risk, "risk", open_above=True)
        share = _validate.fraction(delta, "delta", open_above=True)
        _validate.choice(small, ("refuse", "join", "review"), "small")
        if groups is not None:
            if within:
                raise InvalidInput(
                    "`within` must be left out where `groups` are given, got both: promise the "
                    "further risks for all points, or a risk for each group"
                )
            which = _validate.groups(groups, score.shape, of="confidence")
            found = thetas(score, wrong, which, limit, share, small)
            chosen = cls(max(found.values()), 0.0, risk=limit, delta=share, groups=found)
            chosen.n, chosen.coverage = score.size, float(chosen.accepts(score, which).mean())
            return chosen
        further = _further(within or {}, score.shape)
        sample = Sample(score, wrong, limit, list(further.values()))
        last = sample.prove(sample.rungs(share)).last
        if last < 0:
            raise _infeasible(sample, limit, share)
        return cls(
            float(sample.theta[last]),
            float(sample.end[last] / sample.n),
            risk=limit,
            delta=share,
            n=sample.n,
            within={name: bound for name, (_, bound) in further.items()},
        )

    @classmethod
    def at_cost(
        cls, confidence: ArrayLike, errors: ArrayLike, *, error: float, review: float, seed: int = 0
    ) -> "Threshold":
        """The cheapest threshold: an accepted error costs `error`, a point handed on `review`.

        All may be accepted, or none (`theta` is then infinite). `cost` is what a point costs on
        average, with a 95 % bootstrap interval. The cheapest of many thresholds looks cheaper on
        the points it was chosen on than it is: resamples choose anew, and by how much their choices
        flatter themselves is added to the estimate and to the interval. This is an estimate, no
        promise: `at_risk` makes one.

        Parameters
        ----------
        confidence, errors : (n,)
            Held-out points like those to come, which nothing was fitted on.
        error, review : float
            Costs ≥ 0, in one currency.
        seed : int
            Fixes the resamples.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> confidence = rng.random(5000)
        >>> errors = rng.random(5000) > confidence
        >>> chosen = Threshold.at_cost(confidence, errors, error=5, review=1)
        >>> round(chosen.theta, 1), round(chosen.cost.estimate, 1)
        (0.8, 0.9)
        """
        score = _validate.scores(confidence, "confidence")
        wrong = _validate.errors(errors, score.shape, of="confidence")
        prices = _validate.at_least(error, 0, "error"), _validate.at_least(review, 0, "review")
        seed = _validate.count(seed, "seed", least=0)
        theta, coverage, cost = cheapest(score, wrong, *prices, seed)
        return cls(theta, coverage, n=score.size, cost=cost)

    def accepts(self, confidence: ArrayLike, groups: ArrayLike | None = None) -> Bools:
        """Which points to accept, (n,).

        With thresholds by group, `groups` has the group of each point. A group that was not there
        when the threshold was made has no promise, so none of its points is accepted.
        """
        score = _validate.scores(confidence, "confidence")
        if self.groups is None:
            if groups is not None:
                raise InvalidInput(
                    "`groups` must be left out where there is one threshold for all, got some: "
                    "give them to at_risk first"
                )
            return score >= self.theta
        if groups is None:
            raise InvalidInput(
                f"`groups` must have the group of each point, got None: there are thresholds for "
                f"{len(self.groups)} groups"
            )
        which = _validate.groups(groups, score.shape, of="confidence")
        names, at = np.unique(which, return_inverse=True)
        known, asked = type(next(iter(self.groups))), type(names[:1].tolist()[0])
        if known is not asked:
            raise InvalidInput(
                f"`groups` must be of type {known.__name__} as when the threshold was made, got "
                f"{asked.__name__}: convert them"
            )
        return score >= np.array([self.groups.get(name, NEVER) for name in names.tolist()])[at]

    def save(self, path: str | Path) -> None:
        """Write it as JSON, the promise with it."""
        _json.write(path, "Threshold", {**self.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> "Threshold":
        """Read what `save` wrote."""
        return cls.from_dict(_json.read(path, "Threshold", ThresholdState))

    def as_dict(self) -> ThresholdState:
        """Give all of it in JSON's types; an infinite threshold as None."""
        groups = self.groups and [(name, _finite(theta)) for name, theta in self.groups.items()]
        return {
            "theta": _finite(self.theta),
            "coverage": self.coverage,
            "risk": self.risk,
            "delta": self.delta,
            "n": self.n,
            "within": self.within,
            "groups": groups or None,
            "cost": self.cost,
        }

    @classmethod
    def from_dict(cls, content: ThresholdState) -> "Threshold":
        """Make what `as_dict` describes."""
        groups, cost = content["groups"], content["cost"]
        return cls(
            _from_finite(content["theta"]),
            content["coverage"],
            risk=content["risk"],
            delta=content["delta"],
            n=content["n"],
            within=content["within"],
            groups=None if groups is None else {name: _from_finite(at) for name, at in groups},
            cost=None if cost is None else Interval(*cost),
        )


def _further(
    within: Mapping[str, tuple[ArrayLike, float]], shape: tuple[int, ...]
) -> dict[str, tuple[Bools, float]]:
    found = {}
    for name, pair in within.items():
        try:
            mask, limit = pair
        except (TypeError, ValueError):
            raise InvalidInput(
                f"`within[{name!r}]` must be a mask and a limit, got {type(pair).__name__}: "
                "write (y_hat == 3, 0.01)"
            ) from None
        words = f"within[{name!r}]"
        flags = _validate.mask(mask, shape, words, of="confidence")
        found[name] = flags, _validate.fraction(limit, words, open_above=True)
    return found


def _infeasible(sample: Sample, limit: float, delta: float) -> Infeasible:
    smallest = smallest_risk(sample, delta)
    also = " beside the further risks" if len(sample.risks) > 1 else ""
    offer = "none can be promised; hold out more points"
    if smallest is not None:
        tried = sample.with_limit(smallest)
        share = sample.end[tried.prove(tried.rungs(delta)).last] / sample.n
        offer = (
            f"the smallest is about {smallest:g}, at coverage {share:.3g}; accept that, or hold "
            "out more points"
        )
    return Infeasible(
        f"`risk` must be one that {sample.n} points can promise at delta = {delta:g}{also}, got "
        f"{limit:g}: {offer}"
    )


def _finite(theta: float) -> float | None:
    return None if math.isinf(theta) else theta


def _from_finite(theta: float | None) -> float:
    return NEVER if theta is None else theta
