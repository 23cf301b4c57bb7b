"""Every number of the page. Draws nothing.

The recommendation is what `evaluation.choose` finds, and so what `Predictor.fit` deploys. Curves,
thresholds and examples are of the half that nothing was fitted on.

Intervals of a risk are exact binomial ones (Clopper-Pearson, 95 %, pointwise). The bound at a
position of the slider is one-sided, at delta over the number of choices that a reader has
(positions, confidences, chapters), so it holds for whichever is chosen after looking at all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Platt, Threshold, upper_bound
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import AES, PES
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Choice, Trajectories, choose, trajectories
from snapsure.evaluation._engine import find_outcome, mean_interval
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import Interval, brier, ece, nll
from snapsure.metrics._rank import tie_groups
from snapsure.table import ScoreTable

DELTA = 0.05  # how often the promise may fail
DELTAS = (0.1, DELTA, 0.01, 0.001)
RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
POSITIONS = 200  # of the slider, in even steps of coverage
BINS = 10  # of stated probability
EXAMPLES = 12  # examples and classes listed
HINDSIGHT = "κ*"
_START = 0.8  # coverage where the slider begins if nothing can be promised
_LEAST_COVERAGE = 0.05  # below it a curve is noise
_CURVE_POINTS = 200  # what a screen can show
_RESAMPLES, _RESAMPLED = 400, 20_000_000  # of the difference; at most so many examples in all
_SHARES = (0.5, 0.8, 0.9)  # of the surer group along training: the first with enough errors …
_ENOUGH = 10  # … to rank


@dataclass(frozen=True)
class Verdict:
    """A method beside the final κ: the mean over all tables, of the intervals' ends too."""

    method: str
    passes: float
    eaurc: float
    final_eaurc: float
    gain: Interval | None  # percent less E-AURC than the final κ; None if that is 0
    difference: Interval  # of E-AURC, method − final κ

    @property
    def answer(self) -> str:
        """Better, worse, borderline, or no difference.

        Borderline: an end of the interval is 0 when written with one digit.
        """
        ends = self.difference if self.gain is None else self.gain
        if self.gain is not None and min(abs(ends.low), abs(ends.high)) < 0.05:
            return "borderline"
        return find_outcome(self.difference)


@dataclass(frozen=True)
class Recommendation:
    """What `Predictor.fit` deploys for each table, and what it accepts at an error limit."""

    kappa: str
    risk: float
    choices: Sequence[Choice]  # one per table; without a threshold where the limit is out of reach
    verdicts: Sequence[Verdict]

    @property
    def method(self) -> str:
        """The method that is deployed for most tables."""
        return Counter(choice.method for choice in self.choices).most_common(1)[0][0]

    @property
    def accepted(self) -> float | None:
        """The mean share accepted; a table that cannot promise accepts nothing."""
        return _mean_share([choice.accepted for choice in self.choices])

    @property
    def final_accepted(self) -> float | None:
        """The mean share that the final κ accepts under the same promise."""
        return _mean_share([choice.final_accepted for choice in self.choices])


@dataclass(frozen=True)
class Positions:
    """What each position of the slider does; `start` is the one of the promise."""

    coverage: Floats
    theta: Floats
    risk: Floats
    low: Floats
    high: Floats
    reviewed: Ints  # examples sent to review
    strange: Floats  # share of the accepted errors that belong to none of the classes
    bounds: dict[float, Floats]
    start: int


@dataclass(frozen=True)
class Curve:
    """Risk against coverage, thinned."""

    coverage: Floats
    risk: Floats


@dataclass(frozen=True)
class Difference(Curve):
    """Risk of a method less that of the final κ, with a 95 % band."""

    low: Floats
    high: Floats


@dataclass(frozen=True)
class Example:
    """One of the ranked examples, and its ranks, 1 being the surest."""

    at: int  # among the ranked
    before: int  # by the final κ
    now: int


@dataclass(frozen=True)
class ClassRisk:
    """How often a predicted class is wrong where it is accepted."""

    label: int
    accepted: int
    wrong: int
    low: float
    high: float

    @property
    def risk(self) -> float:
        """The share that is wrong."""
        return self.wrong / self.accepted


@dataclass(frozen=True)
class Reliability:
    """How often a stated probability was right, bin by bin, and its losses."""

    name: str
    stated: Floats
    right: Floats
    low: Floats
    high: Floats
    count: Ints
    nll: float
    brier: float
    ece: float


@dataclass(frozen=True)
class Layer:
    """One layer of PES fitted on all examples."""

    epoch: int  # of the snapshot that ranks it
    cut_epoch: int  # of the snapshot that cut it off
    edge: float  # up to which κ of that snapshot
    examples: int


@dataclass(frozen=True)
class Findings:
    """Every number of one table's chapter."""

    kappa: str
    method: str  # that the chapter speaks of: what is recommended, or AES where that is the final κ
    risk: float
    accuracy: float
    epochs: Ints
    positions: dict[str, Positions]  # by confidence, the recommended one first
    curves: dict[str, Curve]
    chosen: tuple[float, float] | None  # coverage and risk at the recommended threshold
    difference: Difference
    accuracies: Floats
    groups: Trajectories
    surer: float  # share of the examples in the surer group
    averaged: Ints  # epochs that AES averages
    layers: list[Layer]  # of PES, least sure first
    reliability: list[Reliability]
    mistakes: list[Example]  # surest first
    moved: dict[str, list[Example]]  # those whose rank changed most
    classes: list[ClassRisk]  # at the recommended threshold, the riskiest first
    strangers: int  # examples of none of the classes …
    strange: float  # … and their share of all errors


def final_name(kappa: str) -> str:
    """Return what the page calls the final snapshot's κ."""
    return f"final {kappa}"


def refuse_few(table: ScoreTable) -> None:
    """Refuse a table with too few examples for a report."""
    wrong, n = int(table.errors.sum()), table.errors.size
    if not 1 < wrong < n - 1 or n < 20:
        raise InvalidInput(
            "`table` must have at least twenty examples with two right and two wrong ones, got "
            f"{wrong} wrong of {n}. Score more examples."
        )


def recommend(
    tables: Sequence[ScoreTable], kappas: Sequence[str], risk: float | None, seed: int
) -> Recommendation:
    """Choose a method for each table as `Predictor.fit` does, and promise one error limit.

    Without `risk` the limit is a round one, by the examples that methods learn from: the promise
    is made on the others.
    """
    if risk is not None:
        risk = _validate.fraction(risk, "risk", open_above=True)
    choices = [
        choose(table, kappa=kappa, seed=seed) for table, kappa in zip(tables, kappas, strict=True)
    ]
    if risk is None:
        risk = _round_limit(
            [
                (table.kappa(choice.kappa)[-1][choice.learn], table.errors[choice.learn])
                for table, choice in zip(tables, choices, strict=True)
            ]
        )
    promised = []
    for table, choice in zip(tables, choices, strict=True):
        try:
            promised.append(choice.promise(table, risk, DELTA))
        except Infeasible:
            promised.append(choice)
    return Recommendation(kappas[0], risk, promised, _judge(choices))


def _round_limit(examples: Sequence[tuple[Floats, Bools]]) -> float:
    """Return the largest round risk up to half of the error, or the next that can be promised."""
    error = float(np.mean([wrong.mean() for _, wrong in examples]))
    wanted = max((risk for risk in RISKS if risk <= error / 2), default=RISKS[0])
    for risk in (risk for risk in RISKS if wanted <= risk < error):
        try:
            for kappa, wrong in examples:
                Threshold.at_risk(kappa, wrong, risk, DELTA)
        except Infeasible:
            continue
        return risk
    return wanted


def _judge(choices: Sequence[Choice]) -> list[Verdict]:
    """Judge every method that all tables have, but the final κ."""
    tables = [{row.method: row for row in choice.candidates} for choice in choices]
    verdicts = []
    for method in tables[0]:
        rows = [table[method] for table in tables if method in table]
        if method == FINAL or len(rows) < len(tables):
            continue
        eaurc, final = (
            float(np.mean([getattr(row, field) for row in rows]))
            for field in ("eaurc", "reference_eaurc")
        )
        difference = mean_interval(row.difference for row in rows)
        gain = None
        if final > 0:
            estimate, low, high = (-100 * end / final for end in difference)
            gain = Interval(estimate, high, low)
        passes = float(np.mean([row.passes for row in rows]))
        verdicts.append(Verdict(method, passes, eaurc, final, gain, difference))
    return verdicts


def _mean_share(shares: Sequence[float | None]) -> float | None:
    if all(share is None for share in shares):
        return None
    return float(np.mean([share or 0.0 for share in shares]))


def find(
    table: ScoreTable, choice: Choice, risk: float, seed: int = 0, chapters: int = 1
) -> Findings:
    """Compute a chapter's numbers; `chapters` is how many tables the reader chooses among."""
    name, wrong = choice.kappa, table.errors
    rest = table.rows(choice.rest)
    final = final_name(name)
    first = final if choice.method == FINAL else choice.method
    method = "AES" if choice.method == FINAL else choice.method
    scores = {first: choice.confidence(rest)}
    scores.setdefault("AES", AES().fit(table, name).confidence(rest))
    scores.setdefault(final, rest.kappa(name)[-1])
    ranks = {each: rank(score) for each, score in scores.items()}

    threshold = choice.threshold or Threshold.at_coverage(scores[first], _START)
    accepted = threshold.accepts(scores[first])
    chosen = None
    if choice.threshold is not None:
        chosen = float(accepted.mean()), float(rest.errors[accepted].mean())

    strange = _find_strange(table)
    choices = POSITIONS * len(scores) * chapters
    groups, surer = _find_groups(table.kappa(name), wrong)
    return Findings(
        kappa=name,
        method=method,
        risk=risk,
        accuracy=float(1 - wrong.mean()),
        epochs=table.epochs,
        positions={
            each: find_positions(
                score, rest.errors, strange[choice.rest], choices, choice.accepted or _START
            )
            for each, score in scores.items()
        },
        curves={each: find_curve(score, rest.errors) for each, score in scores.items()}
        | {HINDSIGHT: _find_best_curve(rest.errors)},
        chosen=chosen,
        difference=find_difference(scores[method], scores[final], rest.errors, seed),
        accuracies=(table.labels == table.y).mean(axis=1),
        groups=groups,
        surer=surer,
        averaged=np.array(AES().snapshots(table.epochs)),
        layers=_find_layers(table, name),
        reliability=_find_reliability(table, choice, scores),
        mistakes=_find_mistakes(rest.errors, ranks[final], ranks[first]),
        moved=_find_moved(rest.errors, ranks[final], ranks[method]),
        classes=find_classes(accepted, rest.y_hat, rest.errors),
        strangers=int(strange.sum()),
        strange=float(strange.sum() / wrong.sum()),
    )


def accept(score: Floats, wrong: Bools, counts: Ints) -> tuple[Floats, Ints, Floats]:
    """Return thresholds that accept at least so many, how many they accept, and their errors."""
    theta, end, loss = tie_groups(score, wrong)
    at = np.searchsorted(end, counts)
    return theta[at].astype(np.float64), end[at], loss[at].astype(np.float64)


_upper_bounds = np.vectorize(upper_bound, otypes=[np.float64])


def bound_risk(wrong: Floats | Ints, n: Ints, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the two-sided Clopper-Pearson interval of error rates."""
    tail, errors = (1 - level) / 2, wrong.astype(np.int64)
    return 1 - _upper_bounds(n - errors, n, tail), _upper_bounds(errors, n, tail)


def find_positions(
    score: Floats, wrong: Bools, strange: Bools, choices: int, promised: float
) -> Positions:
    """Compute what each position accepts; a bound holds for each of so many choices at once.

    The position nearest to the coverage that is promised is moved onto it.
    """
    n = score.size
    counts = np.ceil(np.arange(1, POSITIONS + 1) / POSITIONS * n - 1e-9).astype(np.int64)
    start = min(max(round(promised * POSITIONS), 1), POSITIONS) - 1
    counts[start] = max(1, round(promised * n))
    theta, accepted, errors = accept(score, wrong, counts)
    low, high = bound_risk(errors, accepted)
    return Positions(
        coverage=accepted / n,
        theta=theta,
        risk=errors / accepted,
        low=low,
        high=high,
        reviewed=n - accepted,
        strange=accept(score, strange, counts)[2] / np.maximum(errors, 1),
        bounds={
            delta: _upper_bounds(errors.astype(np.int64), accepted, delta / choices)
            for delta in DELTAS
        },
        start=start,
    )


def find_curve(score: Floats, wrong: Bools) -> Curve:
    """Compute risk against coverage."""
    least = max(1, int(np.ceil(_LEAST_COVERAGE * score.size)))
    counts = np.unique(np.linspace(least, score.size, _CURVE_POINTS).astype(np.int64))
    _, n, errors = accept(score, wrong, counts)
    n, first = np.unique(n, return_index=True)
    return Curve(n / score.size, errors[first] / n)


def _find_best_curve(wrong: Bools) -> Curve:
    curve = best_curve(wrong)
    least = int(_LEAST_COVERAGE * wrong.size)
    at = np.unique(np.linspace(least, wrong.size - 1, _CURVE_POINTS).astype(np.int64))
    return Curve(curve.coverage[at], curve.risk[at])


def find_difference(ours: Floats, final: Floats, wrong: Bools, seed: int) -> Difference:
    """Compute the difference of two risks at the same coverage, with a paired bootstrap band."""
    coverage = np.linspace(_LEAST_COVERAGE, 1, 96)
    groups = []
    for score in (ours, final):
        order = np.argsort(-score, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(score[order])), wrong.size - 1)
        groups.append((order, ends))

    def differ(weight: Ints) -> Floats:
        risks = []
        for order, ends in groups:
            # Tied examples are accepted in proportion, which is the mean over their orders.
            accepted = np.append(0, np.cumsum(weight[order])[ends])
            errors = np.append(0, np.cumsum(weight[order] * wrong[order])[ends])
            risks.append(np.interp(coverage * wrong.size, accepted, errors))
        difference: Floats = (risks[0] - risks[1]) / (coverage * wrong.size)
        return difference

    rng = np.random.default_rng(seed)
    resamples = int(min(_RESAMPLES, max(50, _RESAMPLED // wrong.size)))
    drawn = [
        differ(np.bincount(rng.integers(0, wrong.size, wrong.size), minlength=wrong.size))
        for _ in range(resamples)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return Difference(coverage, differ(np.ones(wrong.size, np.int64)), low, high)


def rank(score: Floats) -> Floats:
    """Rank examples, 1 the surest; equals share the middle of their places."""
    ordered = np.sort(-score)
    above, upto = (np.searchsorted(ordered, -score, side=side) for side in ("left", "right"))
    ranks: Floats = (above + upto + 1) / 2
    return ranks


def _find_mistakes(wrong: Bools, before: Floats, now: Floats) -> list[Example]:
    rows = np.flatnonzero(wrong)
    return _examples(rows[np.argsort(now[rows], kind="stable")][:EXAMPLES], before, now)


def _find_moved(wrong: Bools, before: Floats, now: Floats) -> dict[str, list[Example]]:
    rise = before - now
    moved = {}
    for outcome, rows in (("Right", np.flatnonzero(~wrong)), ("Wrong", np.flatnonzero(wrong))):
        order = rows[np.argsort(-rise[rows], kind="stable")]
        up, down = order[rise[order] > 0], order[rise[order] < 0][::-1]
        moved[f"{outcome}, moved up"] = _examples(up[: EXAMPLES // 2], before, now)
        moved[f"{outcome}, moved down"] = _examples(down[: EXAMPLES // 2], before, now)
    return moved


def _examples(rows: Iterable[int], before: Floats, now: Floats) -> list[Example]:
    return [Example(int(row), int(before[row]), int(now[row])) for row in rows]


def find_classes(accepted: Bools, y_hat: Ints, wrong: Bools) -> list[ClassRisk]:
    """Compute the risk of each predicted class among the accepted, the riskiest first."""
    number = np.bincount(y_hat[accepted])
    errors = np.bincount(y_hat[accepted], wrong[accepted], number.size)
    labels = np.flatnonzero(number)
    labels = labels[np.argsort(-errors[labels] / number[labels], kind="stable")][:EXAMPLES]
    low, high = bound_risk(errors[labels], number[labels])
    return [
        ClassRisk(int(label), int(number[label]), int(errors[label]), float(below), float(above))
        for label, below, above in zip(labels, low, high, strict=True)
    ]


def _find_strange(table: ScoreTable) -> Bools:
    """Find the errors at examples of none of the classes."""
    known = (table.labels != _validate.NO_CLASS).all()
    strange: Bools = table.errors & (table.y == _validate.NO_CLASS) & known
    return strange


def _find_groups(kappa: Floats, wrong: Bools) -> tuple[Trajectories, float]:
    """Follow the surer half and the other along training; more than half if it has few errors."""
    order = np.argsort(-kappa[-1], kind="stable")
    errors = {share: int(wrong[order][: round(share * wrong.size)].sum()) for share in _SHARES}
    surer = next((share for share, count in errors.items() if count >= _ENOUGH), _SHARES[-1])
    green, red = trajectories(kappa, wrong, surer), trajectories(kappa, wrong, 1 - surer)
    return green._replace(red_kappa=red.red_kappa, red_eaurc=red.red_eaurc), surer


def _find_layers(table: ScoreTable, kappa: str) -> list[Layer]:
    pes = PES().fit(table, kappa)
    counts = np.bincount(pes.layer_of(table), minlength=len(pes.layers_))
    return [
        Layer(layer.epoch, layer.cut, layer.edge, int(count))
        for layer, count in zip(pes.layers_, counts, strict=True)
    ]


def _find_reliability(
    table: ScoreTable, choice: Choice, scores: Mapping[str, Floats]
) -> list[Reliability]:
    """Compare the final κ read as a probability, the same calibrated, and the deployed one."""
    learn, rest = table.rows(choice.learn), table.rows(choice.rest)
    final = final_name(choice.kappa)
    kappa = rest.kappa(choice.kappa)[-1]
    platt = Platt().fit(learn.kappa(choice.kappa)[-1], learn.errors)
    stated = {f"{final}, as it is": kappa, f"{final}, calibrated": platt.predict_proba(kappa)}
    if choice.method == FINAL:
        aes = AES().fit(table, choice.kappa)
        calibration = Platt().fit(aes.confidence(learn), learn.errors)
        stated["AES, calibrated"] = calibration.predict_proba(scores["AES"])
    else:
        stated[choice.method] = choice.confidence(rest)
    return [_bin(name, p, rest.errors) for name, p in stated.items()]


def _bin(name: str, p: Floats, wrong: Bools) -> Reliability:
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    used = count > 0
    count = count[used]
    errors = np.bincount(bins, wrong, minlength=BINS)[used]
    low, high = bound_risk(errors, count)
    return Reliability(
        name,
        stated=np.bincount(bins, p, minlength=BINS)[used] / count,
        right=(count - errors) / count,
        low=1 - high,
        high=1 - low,
        count=count,
        nll=nll(p, wrong),
        brier=brier(p, wrong),
        ece=ece(p, wrong),
    )


def plain(value: Any, digits: int = 6) -> Any:
    """Return numbers for JSON: rounded to what a screen shows, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): plain(part, digits) for key, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part, digits) for part in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}")
    return value.item() if isinstance(value, np.generic) else value
