"""Choose a threshold on the confidence: by coverage, by a promised risk, or by cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict, cast

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Array, Bools, Floats, Ints
from snapsure.decisions._log import Frame, read_log
from snapsure.decisions._promise import Sample, find_smallest, min_examples, prove_together
from snapsure.errors import Infeasible, InvalidInput
from snapsure.metrics import Interval
from snapsure.metrics._rank import tie_groups

Group = int | str
Small = Literal["refuse", "join", "review"]
GroupsAre = Literal["given", "classes"]
Risk = float | Literal["smallest"]
SMALLEST: Final = "smallest"  # in place of a risk

_NAMED = 5  # small groups that a message names
_RESAMPLES, _LEVEL = 1000, 0.95
_STEPS = 1000  # thresholds that a resample chooses from
_Theta = float | Literal["inf", "-inf"]


class ThresholdState(TypedDict):
    """What a saved threshold holds; an infinite threshold is text.

    Examples
    --------
    >>> Threshold.at_coverage([0.2, 0.4, 0.6, 0.8], 0.5).as_dict()["theta"]
    0.6
    """

    theta: _Theta
    coverage: float
    risk: float | None
    delta: float | None
    n: _json.Integer | None
    within: dict[str, float]
    groups: Annotated[list[tuple[str | int, _Theta]], Meta(min_length=1)] | None
    groups_are: GroupsAre
    cost: Interval | None


@dataclass(eq=False, repr=False)
class Threshold:
    """Accepts answers whose confidence is at least `theta`, and sends the others to review.

    Attributes
    ----------
    theta : float
        The threshold, infinite where nothing is accepted. With groups, the highest of theirs.
    coverage : float
        The share of the held-out examples that it accepts.
    risk, delta : float or None
        The promise: the risk of accepted answers is at most `risk`, with probability 1 − delta over
        draws of the held-out examples. None if nothing is promised. No smaller risk is promised: a
        tighter bound would be another statement about the same examples, with a delta of its own.
    n : int or None
        The number of held-out examples.
    within : dict of str to float
        Further risks of the same promise, by name.
    groups : dict of int or str to float, or None
        The threshold of each group, infinite for a group that goes to review as a whole.
    groups_are : {"given", "classes"}
        Whether a predictor must be given the group of each input, or takes its predicted class.
    cost : Interval or None
        The expected cost per example, if the threshold was chosen by cost.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.random(5000)
    >>> errors = rng.random(5000) > confidence
    >>> chosen = Threshold.at_risk(confidence, errors, risk=0.2)
    >>> bool(errors[chosen.accepts(confidence)].mean() < 0.2)
    True
    """

    theta: float
    coverage: float
    _: KW_ONLY
    risk: float | None = None
    delta: float | None = None
    n: int | None = None
    within: dict[str, float] = field(default_factory=dict)
    groups: dict[Group, float] | None = None
    groups_are: GroupsAre = "given"
    cost: Interval | None = None

    def __post_init__(self) -> None:
        if any(math.isnan(one) for one in (self.theta, *(self.groups or {}).values())):
            raise InvalidInput("`theta` must be a number, got NaN. Pass a confidence.")
        self.within, self.groups = dict(self.within), self.groups and dict(self.groups)

    def __repr__(self) -> str:
        """Show the threshold, its coverage, and its promise or cost."""
        where = f"κ ≥ {self.theta:.6g}"
        if self.groups is not None:
            where = f"one for each of {len(self.groups)} groups"
        promise = "" if self.risk is None else f", risk ≤ {self.risk:.4g} (delta {self.delta:g})"
        promise += "".join(f", of {name} ≤ {limit:.4g}" for name, limit in self.within.items())
        cost = "" if self.cost is None else f", cost {self.cost.estimate:.4g} per example"
        return f"<Threshold: {where}, coverage {self.coverage:.3g}{promise}{cost}>"

    @classmethod
    def at_coverage(cls, confidence: ArrayLike, coverage: float) -> "Threshold":
        """Choose the highest threshold that accepts at least this share of the examples.

        Tied examples are accepted together.
        """
        score = _validate.scores(confidence, "confidence")
        share = _validate.fraction(coverage, "coverage") * score.size
        theta, end, _ = tie_groups(score, np.zeros(score.size, dtype=np.bool_))
        # A share such as 0.30000000000000004 must not take one example more.
        at = int(np.searchsorted(end, max(1, math.ceil(share * (1 - 1e-12)))))
        return cls(float(theta[at]), float(end[at] / score.size), n=score.size)

    @classmethod
    def at_risk(
        cls,
        confidence: ArrayLike,
        errors: ArrayLike,
        risk: Risk,
        delta: float = 0.05,
        groups: ArrayLike | None = None,
        within: Mapping[str, tuple[ArrayLike, float]] | None = None,
        small: Small = "refuse",
        groups_are: GroupsAre = "given",
    ) -> "Threshold":
        """Choose a threshold that keeps a risk on new examples, with probability 1 − delta.

        Exact binomial tests walk from the most confident example down, as far as they prove the
        risk. Half of delta starts at the most confident examples and the rest at fixed steps
        further down, so that a few confident mistakes do not end the walk (`_promise.py` has the
        rule and its proof).

        Parameters
        ----------
        confidence, errors : (n,)
            Held-out examples like those to come, which nothing was fitted on.
        risk : float or "smallest"
            The risk to promise, in (0, 1). Choose it before you look at these examples: a promise
            tried at one risk after another until one fits is broken more often than delta.
            "smallest" promises the smallest risk that these examples can, found by a rule of its
            own that accounts for the search; it accepts few of them.
        delta : float
            How often the promise may be broken, over draws of the held-out examples.
        groups : (n,) of whole numbers or strings, optional
            The predicted class, site or customer of each example: each group gets its own
            threshold, and the promise is that ALL of them keep the risk. A group in which no
            threshold can be proved goes to review as a whole.
        within : dict of name to (mask, limit), optional
            Further risks to keep at once: the error rate among accepted examples of the mask (n,).
        small : {"refuse", "join", "review"}
            What to do with groups that are too small to promise anything, whatever their errors:
            raise an error that names them, give all of them one common threshold, or send all
            their examples to review.
        groups_are : {"given", "classes"}
            "classes" if `groups` are the predicted classes: a predictor then finds them itself.
            Otherwise it must be given the group of each input.

        Raises
        ------
        Infeasible
            If no threshold can be proved (`possible` is the smallest risk that can be promised, by
            `risk="smallest"`), or a group is too small.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> confidence, site = rng.random(5000), rng.integers(0, 2, 5000)
        >>> errors = rng.random(5000) > confidence ** (site + 1)
        >>> chosen = Threshold.at_risk(confidence, errors, risk=0.2, groups=site)
        >>> chosen.groups[0] < chosen.groups[1]
        True
        >>> chosen.accepts([0.8, 0.8, 0.8], groups=[0, 1, 2])  # site 2 is unknown
        array([ True, False, False])
        """
        score = _validate.scores(confidence, "confidence")
        wrong = _validate.errors(errors, score.shape, of="confidence")
        limit = validate_risk(risk)
        delta = _validate.fraction(delta, "delta", open_above=True)
        _validate.choice(small, ("refuse", "join", "review"), "small")
        if groups is not None and within:
            raise InvalidInput(
                "`within` must be left out where `groups` are given, got both. Promise further "
                "risks for all examples, or one risk for each group."
            )
        if limit == SMALLEST and (groups is not None or within):
            raise InvalidInput(
                "`risk` must be a number where `groups` or `within` are given, got 'smallest'. "
                "Write the risk to promise, such as 0.05."
            )

        if groups is not None and limit != SMALLEST:
            which = _validate.groups(groups, score.shape, of="confidence")
            _validate.choice(groups_are, ("given", "classes"), "groups_are")
            if groups_are == "classes" and which.dtype.kind == "U":
                raise InvalidInput(
                    f"`groups` must be numbers of classes, got strings such as {str(which[0])!r}. "
                    'Pass the predicted labels, or groups_are="given".'
                )
            thetas = _prove_groups(score, wrong, which, limit, delta, small)
            chosen = cls(max(thetas.values()), 0.0, risk=limit, delta=delta, n=score.size)
            chosen.groups, chosen.groups_are = thetas, groups_are
            chosen.coverage = float(chosen.accepts(score, which).mean())
            return chosen

        further = _validate_within(within or {}, score.shape)
        proved = prove_threshold(score, wrong, limit, delta, list(further.values()))
        if proved is None:
            smallest = None if within else prove_threshold(score, wrong, SMALLEST, delta)
            also = " beside the further risks" if within else ""
            raise infeasible(score.size, limit, delta, smallest, also)
        proved.within = {name: bound for name, (_, bound) in further.items()}
        return proved

    @classmethod
    def from_frame(
        cls,
        frame: Frame,
        *,
        confidence: str,
        correct: str,
        risk: Risk,
        delta: float = 0.05,
        group: str | None = None,
        small: Small = "refuse",
    ) -> "Threshold":
        """Choose a threshold that promises a risk, from a log of any system.

        Parameters
        ----------
        frame : dict of columns, or a table of pandas or polars
            One row per answer. Strings are read as numbers.
        confidence, correct : str
            The columns of the confidence and of whether the answer was right: 1 or 0, true or
            false. Rows where that is empty are left out.
        risk, delta, small
            As in `at_risk`.
        group : str, optional
            The column of a group, such as a country: each group gets its own threshold.

        Examples
        --------
        >>> frame = {"score": [i / 400 for i in range(400)], "ok": [i > 20 for i in range(400)]}
        >>> chosen = Threshold.from_frame(frame, confidence="score", correct="ok", risk=0.05)
        >>> chosen.coverage > 0.9
        True
        """
        log = read_log(frame, confidence, correct, group)
        known = ~np.isnan(log.errors)
        if not known.any():
            raise InvalidInput(
                f"{correct!r} must be 1 (right) or 0 (wrong) in some rows, got none in "
                f"{known.size} rows. Label a random sample of the answers."
            )
        groups = None if log.groups is None else log.groups[known]
        return cls.at_risk(
            log.confidence[known], log.errors[known], risk, delta, groups=groups, small=small
        )

    @classmethod
    def at_cost(
        cls, confidence: ArrayLike, errors: ArrayLike, *, error: float, review: float, seed: int = 0
    ) -> "Threshold":
        """Choose the cheapest threshold: an accepted error costs `error`, a review costs `review`.

        It may accept all examples, or none (`theta` is then infinite). `cost` is the expected cost
        per example, with a 95 % bootstrap interval. The cheapest of many thresholds looks cheaper
        on the examples it was chosen on than it is: each resample chooses again, and the mean
        optimism of these choices is added to the estimate and to the interval. This is an estimate,
        not a promise: for that, use `at_risk`.

        `confidence` and `errors` are as for `at_risk`. Costs are ≥ 0, in one currency. `seed` fixes
        the resamples.

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
        error = _validate.at_least(error, 0, "error")
        review = _validate.at_least(review, 0, "review")
        if not math.isfinite(score.size * max(error, review)):
            raise InvalidInput(
                f"`error` and `review` must be costs whose sum over {score.size} examples is a "
                f"number, got {error:g} and {review:g}. Use a larger unit of money."
            )
        seed = _validate.count(seed, "seed", least=0)

        # Accepting none comes first: of equals, the threshold that accepts fewest is chosen.
        n = score.size
        theta, end, loss = tie_groups(score, wrong)
        accepted, mistakes = np.append(0, end), np.append(0, loss.astype(np.int64))
        costs = (error * mistakes + review * (n - accepted)) / n
        at = int(np.argmin(costs))

        resampled, optimism = _resample_costs(accepted, mistakes, at, error, review, seed)
        low, high = np.quantile(resampled, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]) + optimism
        return cls(
            float(theta[at - 1]) if at else math.inf,
            float(accepted[at] / n),
            n=n,
            cost=Interval(float(costs[at]) + optimism, float(low), float(high)),
        )

    def accepts(self, confidence: ArrayLike, groups: ArrayLike | None = None) -> Bools:
        """Return which answers to accept, (n,).

        With thresholds by group, `groups` holds the group of each answer. A group that was not
        among the held-out examples has no promise, so none of its answers is accepted.
        """
        score = _validate.scores(confidence, "confidence")
        if self.groups is None:
            if groups is not None:
                raise InvalidInput(
                    "`groups` must be left out where all answers share one threshold, got some. "
                    "Pass them to `at_risk` first."
                )
            return score >= self.theta

        if groups is None:
            raise InvalidInput(
                "`groups` must hold the group of each answer, got None. There are thresholds for "
                f"{len(self.groups)} groups."
            )
        which = _validate.groups(groups, score.shape, of="confidence")
        names, at = np.unique(which, return_inverse=True)
        known, got = type(next(iter(self.groups))), type(names[:1].tolist()[0])
        if known is not got:
            raise InvalidInput(
                f"`groups` must be of type {known.__name__} as in `at_risk`, got {got.__name__}. "
                "Convert them."
            )
        return score >= np.array([self.groups.get(name, math.inf) for name in names.tolist()])[at]

    def save(self, path: str | Path) -> None:
        """Write it as JSON, with its promise."""
        _json.write(path, "Threshold", {**self.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> "Threshold":
        """Read what `save` wrote."""
        return cls.from_dict(_json.read(path, "Threshold", ThresholdState))

    def as_dict(self) -> ThresholdState:
        """Return all of it in JSON's types."""
        groups = self.groups and [(name, _encode(theta)) for name, theta in self.groups.items()]
        content = {**vars(self), "theta": _encode(self.theta), "groups": groups or None}
        return cast(ThresholdState, content)

    @classmethod
    def from_dict(cls, state: ThresholdState) -> "Threshold":
        """Restore what `as_dict` returned."""
        content: dict[str, Any] = {**state, "theta": float(state["theta"])}
        if content["groups"] is not None:
            content["groups"] = {name: float(theta) for name, theta in content["groups"]}
        if content["cost"] is not None:
            content["cost"] = Interval(*content["cost"])
        return cls(**content)


def _encode(theta: float) -> _Theta:
    """Write infinity as text."""
    return theta if math.isfinite(theta) else "inf" if theta > 0 else "-inf"


def _validate_within(
    within: Mapping[str, tuple[ArrayLike, float]], shape: tuple[int, ...]
) -> dict[str, tuple[Bools, float]]:
    further = {}
    for name, pair in within.items():
        argument = f"within[{name!r}]"
        try:
            mask, limit = pair
        except (TypeError, ValueError):
            raise InvalidInput(
                f"`{argument}` must be a mask and a limit, got {type(pair).__name__}. Write e.g. "
                "(y_hat == 3, 0.01)."
            ) from None
        flags = _validate.mask(mask, shape, argument, of="confidence")
        further[name] = flags, _validate.fraction(limit, argument, open_above=True)
    return further


def validate_risk(risk: Risk) -> Risk:
    """Return a risk in (0, 1), or "smallest"."""
    return risk if risk == SMALLEST else _validate.fraction(risk, "risk", open_above=True)


def prove_threshold(
    score: Floats,
    wrong: Bools,
    risk: Risk,
    delta: float,
    within: Sequence[tuple[Bools, float]] = (),
) -> Threshold | None:
    """Return the threshold that promises a risk, or the smallest; None if nothing is proved.

    A delta of 0 proves nothing.
    """
    if delta == 0:
        return None
    if risk == SMALLEST:
        sample = Sample(score, wrong, limit=0.5)
        risk, at = find_smallest(sample, delta)
    else:
        sample = Sample(score, wrong, risk, within)
        at = sample.prove(sample.rungs(delta)).last
    if at < 0:
        return None
    theta, coverage = float(sample.theta[at]), float(sample.end[at] / sample.n)
    return Threshold(theta, coverage, risk=risk, delta=delta, n=sample.n)


def infeasible(
    n: int, risk: float | str, delta: float, smallest: Threshold | None, also: str = ""
) -> Infeasible:
    """Return the error for a risk that cannot be promised, with the smallest that can."""
    remedy = "Hold out more examples."
    if smallest is not None:
        remedy = (
            f'Use risk="smallest" (--risk smallest) to promise {smallest.risk:g}, which accepts '
            f"{smallest.coverage:.1%} of them, or hold out more examples."
        )
    return Infeasible(
        f"`risk` must be one that {n} {'example' if n == 1 else 'examples'} can promise at "
        f"delta = {delta:g}{also}, got {risk}. {remedy}",
        possible=None if smallest is None else smallest.risk,
    )


def _prove_groups(
    score: Floats, wrong: Bools, groups: Array, limit: float, delta: float, small: Small
) -> dict[Group, float]:
    """Return the threshold of each group, under one promise for all of them at once."""
    names, which = np.unique(groups, return_inverse=True)
    sets = _join_small_groups(names, np.bincount(which), limit, delta, small)

    # Collect the rows of each set in one pass; groups in no set go to review.
    set_of_group = np.full(names.size, len(sets))
    for i, members in enumerate(sets):
        set_of_group[members] = i
    set_of_row = set_of_group[which]
    order = np.argsort(set_of_row, kind="stable")
    ends = np.searchsorted(set_of_row[order], np.arange(len(sets)), side="right")
    rows = np.split(order, ends)[: len(sets)]

    samples = [Sample(score[part], wrong[part], limit) for part in rows]
    thetas: dict[Group, float] = dict.fromkeys(names.tolist(), math.inf)
    for members, sample, proof in zip(sets, samples, prove_together(samples, delta), strict=True):
        if proof.last >= 0:
            thetas |= dict.fromkeys(names[members].tolist(), float(sample.theta[proof.last]))
    if all(math.isinf(theta) for theta in thetas.values()):
        raise Infeasible(
            f"`risk` must be one that some group can promise at delta = {delta:g} for all "
            f"{len(sets)} together, got {limit:g}. Use a higher risk, or hold out more examples."
        )
    return thetas


def _join_small_groups(
    names: Array, sizes: Ints, limit: float, delta: float, small: Small
) -> list[Ints]:
    """Return which groups share a threshold. It depends on their sizes alone, never on an error."""
    least = min_examples(limit, delta / names.size) + 1
    is_small = sizes < least
    large = [np.array([i]) for i in np.flatnonzero(~is_small)]
    rest = np.flatnonzero(is_small)
    if not rest.size or (small == "review" and large):
        return large
    enough = min_examples(limit, delta / (len(large) + 1)) + 1
    if small == "join" and sizes[rest].sum() >= enough:
        return [*large, rest]

    counts = [f"{sizes[i]} in {names[i].item()!r}" for i in rest[:_NAMED]]
    if rest.size > _NAMED:
        counts.append(f"too few in {rest.size - _NAMED} more")
    remedy = {
        "refuse": 'Hold out more examples, or pass small="join" (one threshold for all of them) or '
        'small="review" (all their examples go to review).',
        "join": 'Together they are still too few; hold out more examples, or pass small="review".',
        "review": "No group has enough; hold out more examples.",
    }[small]
    raise Infeasible(
        f"`groups` must each have at least {least} examples to promise a risk of {limit:g} at "
        f"delta = {delta:g} for {names.size} groups, got {', '.join(counts)}. {remedy}"
    )


def _resample_costs(
    accepted: Ints, mistakes: Ints, at: int, error: float, review: float, seed: int
) -> tuple[Floats, float]:
    """Return the cost of threshold `at` on resamples, and the optimism of choosing it.

    Optimism (Efron 1983): each resample chooses its cheapest threshold again. That threshold costs
    more on the examples themselves than on the resample; the mean difference is the optimism. The
    same difference for threshold `at` is subtracted: it is 0 on average, and removes most noise.
    """
    n = int(accepted[-1])
    steps = np.linspace(0, accepted.size - 1, _STEPS).astype(np.int64)
    candidates = np.unique(np.append(steps, at))
    own = np.searchsorted(candidates, at)
    m, k = accepted[candidates], mistakes[candidates]
    wrong, right = np.diff(k), np.diff(m) - np.diff(k)
    cells = np.concatenate([wrong, right]) / n
    full = error * k + review * (n - m)

    rng = np.random.Generator(np.random.SFC64(seed))
    resampled, optimism = np.empty(_RESAMPLES), 0.0
    for i in range(_RESAMPLES):
        draws = rng.multinomial(n, cells)
        k_drawn = np.append(0, np.cumsum(draws[: wrong.size]))
        m_drawn = k_drawn + np.append(0, np.cumsum(draws[wrong.size :]))
        costs = error * k_drawn + review * (n - m_drawn)
        best = int(np.argmin(costs))
        gap = (full[best] - costs[best]) - (full[own] - costs[own])
        optimism += float(gap) / n / _RESAMPLES
        resampled[i] = costs[own] / n
    return resampled, optimism
