"""`compare`: every method on the same examples, with intervals over seeds and examples.

The examples of each run are halved: what must learn does so on one half and is judged on the other,
and the other way round; what learns nothing is judged on the same halves. Examples are resampled
within halves, the same ones for all methods and for all runs of a data set; with fewer than 50
errors, each example is left out once instead (`metrics/_intervals.py`). How far runs differ adds to
an interval what Student's t makes of so many. The intervals of one run are of its examples alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from snapsure import _validate
from snapsure._types import Floats
from snapsure.errors import InvalidInput
from snapsure.estimators import registry
from snapsure.estimators.registry import FINAL
from snapsure.evaluation._engine import (
    AREAS,
    FEWEST,
    SIGNIFICANT,
    Candidate,
    Correction,
    Methods,
    Trial,
    bootstrap_p,
    check_table,
    correct,
    find_methods,
    find_outcome,
    list_candidates,
    percent_saved,
    try_all,
    write_verdict,
)
from snapsure.evaluation._protocol import Halves, Protocol
from snapsure.evaluation._results import Board, Comparison, Result, name_reference
from snapsure.evaluation._run import Run
from snapsure.metrics import Interval
from snapsure.metrics._intervals import FEW, bootstrap_values, jackknife_error, leave_one_out
from snapsure.metrics._parallel import LONG, map_parallel
from snapsure.table import ScoreTable

Runs = Run | ScoreTable | Sequence[Run | ScoreTable]
Key = tuple[str, str | None]  # a method and its κ

ALL = "all data sets"
# Compared on every κ; the others on the first alone. Each comparison more costs all of them power.
_ON_EVERY_KAPPA = {FINAL, "AES", "PES", "LES"}


def compare(
    runs: Runs | Mapping[str, Runs],
    *,
    reference: str = FINAL,
    kappa: str | None = None,
    methods: Methods | None = None,
    metric: str = "eaurc",
    protocol: Protocol | None = None,
    correction: Correction = "holm",
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Rank every method on the same examples, with its cost and with intervals.

    Parameters
    ----------
    runs
        Tables or runs, by data set if there are several. Several runs of a data set must be of the
        same examples: seeds of one training.
    reference, kappa
        The method that the others are compared with, and its κ: the table's first if not given.
    methods
        Registered methods by name, others, and names of the runs' other scores; all if not given.
    metric : "eaurc", "aurc" or "augrc"
        What ranks the methods. E-AURC compares a ranking with the best one of the same classifier;
        to compare classifiers with different errors, rank by AURC.
    protocol
        Which examples methods learn from and are judged on; `Halves(seed)` if not given.
    correction : "holm" or "none"
        How p-values are corrected for the number of methods.
    resamples, level, seed
        Of the bootstrap, and of the halves. A p-value is at least 2 / (resamples + 1). Intervals
        of fewer than 50 errors are of the jackknife instead, with Student's t.

    Returns
    -------
    Comparison
        A board per data set, and one over all if there are several. Gains are percent of the
        reference's metric.

    Raises
    ------
    InvalidInput
        If tables have no labels, no errors or nothing but errors; if runs of one data set are of
        different examples; or if a method or the reference is unknown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> y = (rng.random(400) > kappa.mean(axis=0)).astype(int)
    >>> table = ScoreTable({"softmax": kappa}, np.zeros((10, 400), dtype=int), y)
    >>> compare(table)["AES"].gain.estimate > 0
    True
    """
    groups = _group_runs(runs)
    resamples = _validate.count(resamples, "resamples")
    level = _validate.fraction(level, "level", open_above=True)
    seed = _validate.count(seed, "seed", least=0)
    _validate.choice(metric, tuple(AREAS), "metric")
    _validate.choice(correction, get_args(Correction), "correction")
    if kappa is None:
        kappa = next(iter(groups.values()))[0].table.names[0]
    for name, some in groups.items():
        for i, run in enumerate(some):
            check_table(run.table, [kappa], FEWEST, f"`runs[{name!r}]` (run {i})")
    protocol = Halves(seed) if protocol is None else protocol

    contests = {}
    for i, (name, some) in enumerate(groups.items()):
        every = _share_candidates([list_every_candidate(run, methods, kappa) for run in some])
        contests[name] = hold_contest(some, every, metric, protocol, resamples, (seed, i))
    shared = _share_candidates([contest.candidates for contest in contests.values()])
    keys = [candidate.key for candidate in shared]
    base = next((key for key in ((reference, kappa), (reference, None)) if key in keys), None)
    if base is None:
        raise InvalidInput(
            f"`reference` must be a method of every data set, got {reference!r} of {kappa}. Choose "
            f"one of {', '.join(dict.fromkeys(method for method, _ in keys))}."
        )
    count = max(len(contest.candidates) for contest in contests.values())
    least = int(2 * count / SIGNIFICANT)
    if resamples < least and correction != "none":
        raise InvalidInput(
            f"`resamples` must be at least {least} to compare {count} methods, got {resamples}. "
            "A p-value is never below 2 / (resamples + 1)."
        )

    boards = {
        name: make_board(name, [contest], base, kappa, level, correction)
        for name, contest in contests.items()
    }
    pooled = None
    if len(boards) > 1:
        common = [contest.select(keys) for contest in contests.values()]
        pooled = make_board(ALL, common, base, kappa, level, correction)
    return Comparison(boards, pooled)


def _group_runs(runs: Runs | Mapping[str, Runs]) -> dict[str, list[Run]]:
    """Return the runs by data set, and refuse those that cannot be compared."""
    named = runs if isinstance(runs, Mapping) else {"data": runs}
    if not named:
        raise InvalidInput("`runs` must hold at least one data set, got none. Pass a ScoreTable.")
    groups: dict[str, list[Run]] = {}
    for name, some in named.items():
        groups[name] = []
        for i, run in enumerate([some] if isinstance(some, Run | ScoreTable) else some):
            if not isinstance(run, Run | ScoreTable):
                raise InvalidInput(
                    f"`runs` must be score tables or runs, got {type(run).__name__}. Open a folder "
                    "with ScoreTable.open."
                )
            run = Run(run) if isinstance(run, ScoreTable) else run
            groups[name].append(run)
            if not np.array_equal(run.y, groups[name][0].y):
                raise InvalidInput(
                    f"`runs[{name!r}]` must be of the same examples, got other labels in run {i} "
                    "than in run 0. Pass other examples under another name."
                )
        if not groups[name]:
            raise InvalidInput(
                f"`runs[{name!r}]` must hold at least one run, got none. Pass a ScoreTable."
            )
    return groups


@dataclass(frozen=True)
class Contest:
    """All methods on the runs of one data set: means over runs and halves, by method.

    `replicates` has the metric on every resample of the examples. Where errors are few, it has the
    metric without each example in turn, and `t` has draws of Student's t, one per resample.
    """

    metric: str
    candidates: Sequence[Candidate]
    examples: int
    means: Mapping[str, Floats]  # each number, (methods,); bytes are NaN where unknown
    each: Floats  # the metric of every run, (runs, methods)
    replicates: Floats  # its mean over the runs, (methods, resamples) or (methods, examples)
    luck: Floats  # weights of the runs' deviations from their mean, (resamples, runs)
    t: Floats | None = None  # (resamples,)
    overlap: float = 1.0  # how often an example is judged, on average over those that are

    def select(self, keys: Sequence[Key]) -> "Contest":
        """Return the contest with some of the methods alone."""
        at = [[candidate.key for candidate in self.candidates].index(key) for key in keys]
        return replace(
            self,
            candidates=[self.candidates[i] for i in at],
            means={name: values[at] for name, values in self.means.items()},
            each=self.each[:, at],
            replicates=self.replicates[at],
        )

    def draw(self, contrast: Callable[[Floats, Floats], Floats], base: int) -> Floats:
        """Draw contrasts with method `base` under other examples and runs, (methods, resamples)."""
        area = self.means[self.metric]
        estimate = contrast(area, area[base])[:, None]
        draws = contrast(self.replicates, self.replicates[base])
        if self.t is not None:
            draws = estimate + jackknife_error(draws)[:, None] * self.t
        if self.overlap > 1:  # replicates of a part ignore that others share its examples
            draws = estimate + np.sqrt(self.overlap) * (draws - estimate)
        each = np.array([contrast(run, run[base]) for run in self.each])
        drawn: Floats = draws + (self.luck @ (each - each.mean(axis=0))).T
        return drawn


def hold_contest(
    runs: Sequence[Run],
    candidates: Sequence[Candidate],
    metric: str,
    protocol: Protocol,
    resamples: int,
    seeds: tuple[int, int],
) -> Contest:
    """Judge candidates that all runs have. `seeds` are of the bootstrap and of the data set."""
    n = runs[0].y.size
    # With few examples the calls are short, and threads would wait for each other.
    over: Any = map_parallel if n >= LONG else map
    trials: list[list[Trial]] = list(over(lambda run: try_all(candidates, run, protocol), runs))
    times = np.bincount(np.concatenate([rest for _, rest in protocol.parts(n)]))
    judged = min(sum(int(one.errors.sum()) for one in t.judged) for run in trials for t in run)
    errors = round(judged * np.count_nonzero(times) / times.sum())  # each example once

    def replicate(run: Sequence[Trial]) -> Floats:
        """Return the mean over the parts on every resample, or without each example."""
        area = AREAS[metric]
        parts = [
            [(one.score, one.errors) for one in part]
            for part in zip(*(trial.judged for trial in run), strict=True)
        ]
        if errors >= FEW:
            return np.mean(
                [bootstrap_values(area, part, resamples, seeds[0]) for part in parts], axis=0
            )
        mean = np.array([[trial.numbers[metric]] for trial in run])
        changes = [
            np.array([leave_one_out(area, *pair) - float(area(*pair)) for pair in part])
            for part in parts
        ]
        return mean + np.concatenate(changes, axis=1) / len(parts)

    means = {
        name: np.mean([[trial.numbers[name] for trial in run] for run in trials], axis=0)
        for name in trials[0][0].numbers
    }
    sizes = [np.nan if run.snapshot_bytes is None else run.snapshot_bytes for run in runs]
    means["bytes"] = means["snapshots"] * np.mean(sizes)
    rng = np.random.default_rng(np.random.SeedSequence(seeds))
    return Contest(
        metric,
        candidates,
        n,
        means,
        each=np.array([[trial.numbers[metric] for trial in run] for run in trials]),
        replicates=np.mean(list(over(replicate, trials)), axis=0),
        luck=_draw_luck(len(runs), resamples, rng),
        t=rng.standard_t(max(1, errors - 1), resamples) if errors < FEW else None,
        overlap=float((times**2).sum() / times.sum()),
    )


def list_every_candidate(run: Run, methods: Methods | None, kappa: str) -> list[Candidate]:
    """List what competes: methods on the reference's κ, other scores, and some on every κ."""
    chosen = registry.names() if methods is None else methods
    found = find_methods(chosen, run.others)
    candidates = list_candidates(run, found, [kappa])
    for name in run.others:
        if name not in registry.names() and (methods is None or name in chosen):
            candidates.append(Candidate(name, None, is_other=True))
    further = [
        method
        for method in found
        if method.name in _ON_EVERY_KAPPA and method.name not in run.others
    ]
    kappas = [name for name in run.table.names if name != kappa]
    return candidates + list_candidates(run, further, kappas)


def _share_candidates(each: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """Return the candidates that all lists have, in the order of the first."""
    keys = [{candidate.key for candidate in some} for some in each]
    return [one for one in each[0] if all(one.key in some for some in keys)]


def _draw_luck(runs: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Draw weights of the runs' deviations that give Student's t of their mean, (resamples, runs).

    Deviations d from the mean of R runs, times these, have variance Σd² / (R (R − 1)), which is
    that of a mean, and the tails of t with R − 1 degrees of freedom: few runs say little.
    """
    if runs == 1:
        return np.zeros((resamples, 1))
    normal = rng.standard_normal((resamples, runs)) / np.sqrt(runs * (runs - 1))
    luck: Floats = normal / np.sqrt(rng.chisquare(runs - 1, (resamples, 1)) / (runs - 1))
    return luck


def make_board(
    name: str,
    contests: Sequence[Contest],
    reference: Key,
    kappa: str,
    level: float,
    correction: Correction = "holm",
) -> Board:
    """Rank the methods by their metric; over several data sets, by the mean of their log-ratios."""
    first = contests[0]
    base = [candidate.key for candidate in first.candidates].index(reference)
    means = {
        field: np.mean([contest.means[field] for contest in contests], axis=0)
        for field in first.means
    }
    areas = [contest.means[first.metric] for contest in contests]
    ratio = np.mean([_log_ratio(area, area[base]) for area in areas], axis=0)
    best = int(ratio.argmin())

    def draw(contrast: Callable[[Floats, Floats], Floats], beside: int) -> Floats:
        return np.mean([contest.draw(contrast, beside) for contest in contests], axis=0)

    differences = draw(np.subtract, base)
    ratios, ratios_to_best = draw(_log_ratio, base), draw(_log_ratio, best)
    p = bootstrap_p(ratios)
    corrected = correct(p, base, correction)
    p_of_best = correct(bootstrap_p(ratios_to_best), best, correction)

    area, every_run = means[first.metric], np.concatenate([one.each for one in contests])
    rows = []
    for i in np.argsort(ratio, kind="stable").tolist():
        change = _interval(ratio[i], ratios[i], level)
        behind = _interval(ratio[i] - ratio[best], ratios_to_best[i], level)
        # What is saved is what is not on top; 0 and never −0.
        saved = (change.estimate, change.high, change.low)
        gain = Interval(*(0.0 - _percent(end) for end in saved))
        outcome = "reference" if i == base else find_outcome(change, float(corrected[i]))
        verdict = write_verdict(outcome, gain.estimate, name_reference(reference[0], kappa))
        if i == best:
            verdict += "; the best here"
        elif p_of_best[i] >= SIGNIFICANT:
            verdict += "; no significant difference from the best"
        if means["error"][i] != means["error"][base]:
            verdict += f"; its classifier is wrong on {means['error'][i]:.1%}"
        numbers: dict[str, Any] = {field: float(values[i]) for field, values in means.items()}
        numbers["bytes"] = None if np.isnan(numbers["bytes"]) else numbers["bytes"]
        rows.append(
            Result(
                method=first.candidates[i].method,
                kappa=first.candidates[i].kappa,
                **numbers,
                standard_error=None,
                reference_eaurc=float(means["eaurc"][base]),
                difference=_interval(area[i] - area[base], differences[i], level),
                gain=gain,
                gains=tuple(percent_saved(run[i], run[base]) for run in every_run),
                outcome=outcome,
                verdict=verdict,
                p=float(p[i]),
                p_holm=float(corrected[i]) if correction == "holm" else None,
                behind=Interval(*map(_percent, behind)),
            )
        )
    examples = sum(contest.examples for contest in contests)
    resamples = len(first.luck)
    return Board(
        *(name, reference[0], kappa, len(every_run), examples, rows, level, resamples, first.metric)
    )


def _log_ratio(ours: Floats, base: Floats) -> Floats:
    """Return log-ratios of areas; 0, which has no logarithm, counts as a thousandth of the mean."""
    least = 1e-3 * float(np.mean(ours)) or 1.0  # all are perfect
    ratio: Floats = np.log(np.maximum(ours, least)) - np.log(np.maximum(base, least))
    return ratio


def _interval(estimate: float, draws: Floats, level: float) -> Interval:
    tail = (1 - level) / 2
    return Interval(float(estimate), *map(float, np.quantile(draws, [tail, 1 - tail])))


def _percent(log_ratio: float) -> float:
    """Return how many percent more a ratio is than 1."""
    return float(100 * np.expm1(log_ratio))
