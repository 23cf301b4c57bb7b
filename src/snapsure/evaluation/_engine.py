"""The engine: judge methods on examples they did not learn from, and compare with a reference.

`evaluate`, `compare`, `choose` and the report are views of it. A *candidate* is a method on one κ
of a run, or one of the run's other scores. `judge` fits it on some examples and scores others;
a `Trial` is a candidate on all parts of a run. What follows is written once, here: the gain over a
reference, its significance (with or without a correction for many comparisons) and the verdict.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from snapsure._types import Bools, Floats, Metric
from snapsure.decisions import Platt
from snapsure.errors import InvalidInput
from snapsure.estimators import LES, Estimator, Final, registry
from snapsure.estimators._search import Search
from snapsure.estimators.registry import Method
from snapsure.evaluation._protocol import Protocol
from snapsure.evaluation._results import Outcome
from snapsure.evaluation._run import Run
from snapsure.metrics import Interval, augrc, aurc, brier, eaurc, nll
from snapsure.table import ScoreTable

AREAS: dict[str, Metric] = {"eaurc": eaurc, "aurc": aurc, "augrc": augrc}
SIGNIFICANT = 0.05
FEWEST = 4  # right and wrong examples, to learn on one half and be judged on the other
# Probabilities are clipped this far from 0 and 1: one sure mistake would make a mean NLL infinite.
_LEAST = 1e-6

Methods = Sequence[str | Method]
Correction = Literal["holm", "none"]


@dataclass(frozen=True)
class Candidate:
    """A method on one κ of a run, or one of the run's other scores."""

    method: str
    kappa: str | None
    make: Callable[[], Estimator] = Final
    passes: int = 1  # per snapshot
    is_other: bool = False  # the run's other score of this name, which has its own cost

    @property
    def key(self) -> tuple[str, str | None]:
        """What distinguishes it from the other candidates of a run."""
        return self.method, self.kappa


@dataclass(frozen=True)
class Judged:
    """A candidate on examples that it did not learn from."""

    score: Floats
    errors: Bools  # of the classifier whose answers it scores
    p: Floats  # probability of being right, calibrated where the score is no probability
    passes: int
    kept: int
    trainings: float = 1.0

    @cached_property
    def numbers(self) -> dict[str, float]:
        """The metrics on these examples, and the cost."""
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


def find_methods(methods: Methods, others: Iterable[str] = ()) -> list[Method]:
    """Look up methods by name; names of a run's `others` are skipped."""
    known, own = registry.names(), set(others)
    found = []
    for method in methods:
        if isinstance(method, str) and method not in known:
            if method in own:
                continue
            every = ", ".join([*known, *sorted(own.difference(known))])
            raise InvalidInput(
                f"`methods` must be some of {every}, got {method!r}. Choose among these, or "
                "register your own method."
            )
        found.append(registry.get(method) if isinstance(method, str) else method)
    return found


def check_table(table: ScoreTable, kappas: Iterable[str], fewest: int, argument: str) -> None:
    """Refuse a table with fewer right or wrong examples, or without one of these κ."""
    wrong, n = int(table.errors.sum()), table.errors.size
    if min(wrong, n - wrong) < fewest:
        raise InvalidInput(
            f"{argument} must have at least {fewest} wrong and {fewest} right examples, got "
            f"{wrong} wrong of {n}. Score more examples."
        )
    for kappa in kappas:
        if kappa not in table.names:
            raise InvalidInput(
                f"The κ of {argument} must be one of {', '.join(table.names)}, got {kappa!r}. "
                "Choose a κ that every table has by `kappa=`, or score that one too."
            )


def list_candidates(
    run: Run, methods: Sequence[Method], kappas: Sequence[str], *, single: bool = False
) -> list[Candidate]:
    """List the methods that the run's table allows, each for every κ of `kappas` if it uses one.

    With one snapshot, methods of several snapshots are all the same as the final one. They are left
    out, unless `single` asks for them. A method whose score the run has is that score.
    """
    table = run.table
    has = {
        "labels": True,
        "snapshots": single or len(table.epochs) > 1,
        "logits": table.logits is not None,
        # A packed table may lack the snapshots' own labels.
        "snapshot labels": (table.labels != table.y_hat).any(),
    }
    found = []
    for method in methods:
        if method.name in run.others:
            found.append(Candidate(method.name, None, is_other=True))
        elif method.name in table.names or not all(has.get(need) for need in method.needs):
            continue  # the table may have "gen" as a κ
        elif method.make().of_kappa:
            found += [
                Candidate(method.name, name, method.make, run.passes[name]) for name in kappas
            ]
        else:
            found.append(Candidate(method.name, None, method.make))
    return found


def judge(candidate: Candidate, learn: Run, rest: Run, search: Search | None = None) -> Judged:
    """Fit a candidate on the examples of `learn`; score and calibrate those of `rest`.

    `search` is shared by candidates that search for few passes: each continues the last one's.
    """
    if candidate.is_other:
        known, ours = learn.others[candidate.method], rest.others[candidate.method]
        platt = Platt().fit(known.kappa, known.y_hat != learn.y)
        p, errors = platt.predict_proba(ours.kappa), ours.y_hat != rest.y
        return Judged(ours.kappa, errors, p, ours.passes, ours.kept, ours.trainings)

    estimator = candidate.make()
    if isinstance(estimator, LES):
        estimator.search = search
    estimator.fit(learn.table, candidate.kappa or learn.table.names[0])
    p = score = estimator.confidence(rest.table)
    if not estimator.calibrated:
        platt = Platt().fit(estimator.confidence(learn.table), learn.table.errors)
        p = platt.predict_proba(score)
    # The final snapshot always answers, so it is kept and passed even if the score ignores it.
    used = estimator.fitted["epochs"]
    kept = len({*used, int(rest.table.epochs[-1])})
    passes = candidate.passes * len(used) + kept - len(used)
    return Judged(score, rest.table.errors, p, passes, kept)


def judge_all(candidates: Iterable[Candidate], learn: Run, rest: Run) -> list[Judged]:
    """Judge every candidate on the same examples."""
    search = Search()
    return [judge(candidate, learn, rest, search) for candidate in candidates]


class Trial(NamedTuple):
    """A candidate on the parts of one run."""

    judged: Sequence[Judged]
    numbers: Mapping[str, float]  # means over the parts


def try_all(candidates: Sequence[Candidate], run: Run, protocol: Protocol) -> list[Trial]:
    """Judge every candidate on every part of a run."""
    parts = [
        judge_all(candidates, run.rows(learn), run.rows(rest))
        for learn, rest in protocol.parts(run.y.size)
    ]
    return [
        Trial(judged, mean_numbers(one.numbers for one in judged))
        for judged in zip(*parts, strict=True)
    ]


def mean_numbers(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Average numbers by their names."""
    several = list(each)
    return {name: float(np.mean([one[name] for one in several])) for name in several[0]}


def percent_saved(ours: float, reference: float) -> float | None:
    """Return how many percent of the reference's area are saved; None if that area is 0."""
    return 100 * (1 - ours / reference) if reference > 0 else None


def mean_interval(intervals: Iterable[Interval]) -> Interval:
    """Average estimates and ends: at least as wide as the interval of the mean."""
    return Interval(*(float(np.mean(ends)) for ends in zip(*intervals, strict=True)))


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of some values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def bootstrap_p(draws: Floats) -> Floats:
    """Return two-sided p-values of differences (methods, resamples), the data counted as one."""
    below, above = (draws <= 0).sum(axis=1), (draws >= 0).sum(axis=1)
    p: Floats = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + draws.shape[1]))
    return p


def correct(p: Floats, reference: int, correction: Correction) -> Floats:
    """Correct p-values for as many comparisons as there are; the reference's is 1.

    Holm (1979): the smallest p times the number of comparisons, the next times one fewer, and so
    on, none below the one before.
    """
    order = [i for i in np.argsort(p, kind="stable") if i != reference]
    times = np.arange(len(order), 0, -1) if correction == "holm" else 1
    corrected = np.ones_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * times))
    return corrected


def find_outcome(change: Interval, p: float | None = None) -> Outcome:
    """Say whether a method is significantly better or worse than the reference.

    `change` compares its metric with the reference's, below 0 is better. Significance is by the
    p-value where there is one, else by whether the interval excludes 0.
    """
    if p is None:
        return "better" if change.high < 0 else "worse" if change.low > 0 else "no difference"
    if p >= SIGNIFICANT:
        return "no difference"
    return "better" if change.estimate < 0 else "worse"


def write_verdict(outcome: Outcome, saved: float | None, reference: str, of: str = "") -> str:
    """Write the outcome in words; `saved` is the gain in percent, `of` what it is a part of."""
    if outcome == "reference":
        return "the reference"
    if outcome == "no difference" or saved is None:
        return f"no significant difference from {reference}"
    return f"{outcome} than {reference} by {abs(saved):.1f} %{of}"
