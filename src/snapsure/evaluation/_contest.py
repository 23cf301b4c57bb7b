"""All methods of the runs of one data set, on the same points and the same resamples of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from snapsure._types import Floats
from snapsure.evaluation._judge import AREAS, judge
from snapsure.evaluation._methods import Method, methods_of
from snapsure.evaluation._protocol import Protocol
from snapsure.evaluation._run import Run
from snapsure.metrics._bootstrap import bootstrap_values
from snapsure.metrics._parallel import LONG, map_parallel


@dataclass(frozen=True)
class Contest:
    """Means over the runs of one data set and their halves, by method; one by resample too."""

    MEANS: ClassVar = (
        "eaurc",
        "aurc",
        "augrc",
        "nll",
        "brier",
        "error",
        "passes",
        "snapshots",
        "trainings",
    )

    metric: str  # which of the areas methods are ranked by
    methods: Sequence[str]
    kappas: Sequence[str | None]  # which each works on
    runs: int
    points: int
    each: Floats  # that metric of every run, (runs, methods)
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
    trainings: Floats
    bytes: Floats | None

    @property
    def ranked(self) -> Floats:
        """What methods are ranked by."""
        values: Floats = getattr(self, self.metric)
        return values

    def of(self, methods: Sequence[str]) -> "Contest":
        """Some of the methods only."""
        at = [self.methods.index(name) for name in methods]
        arrays = {field: getattr(self, field)[at] for field in (*self.MEANS, "drawn")}
        size = None if self.bytes is None else self.bytes[at]
        each = self.each[:, at]
        kappas = [self.kappas[i] for i in at]
        return replace(self, methods=list(methods), kappas=kappas, bytes=size, each=each, **arrays)


def contest(
    runs: Sequence[Run],
    kinds: Sequence[str],
    protocol: Protocol,
    resamples: int,
    seed: int,
    index: int,
    metric: str,
) -> Contest:
    """Every method that all runs have; `index` tells this data set's luck from that of others."""
    names = [{method.name for method in methods_of(run, kinds)} for run in runs]

    def shared() -> list[Method]:
        return [one for one in methods_of(runs[0], kinds) if all(one.name in own for own in names)]

    def of_run(run: Run) -> dict[str, Floats]:
        # With methods of its own: those of one list share what they find, and not between threads.
        return _of_run(run, shared(), protocol, resamples, seed, metric)

    # Of few points the calls are short, and threads would wait for each other: slower than one.
    long = runs[0].table.y_hat.size >= LONG
    methods, each = shared(), map_parallel(of_run, runs) if long else [of_run(run) for run in runs]
    means = {field: np.mean([one[field] for one in each], axis=0) for field in Contest.MEANS}
    sizes = [run.snapshot_bytes for run in runs if run.snapshot_bytes is not None]
    kept = np.array(means["snapshots"])
    return Contest(
        metric=metric,
        methods=[method.name for method in methods],
        kappas=[method.kappa for method in methods],
        runs=len(runs),
        points=runs[0].table.y_hat.size,
        each=np.array([one[metric] for one in each]),
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


def _of_run(
    run: Run,
    methods: Sequence[Method],
    protocol: Protocol,
    resamples: int,
    seed: int,
    metric: str,
) -> dict[str, Floats]:
    parts = [
        _of_part(run.rows(learn), run.rows(rest), methods, resamples, seed, metric)
        for learn, rest in protocol.parts(run.table.y_hat.size)
    ]
    return {field: np.mean([part[field] for part in parts], axis=0) for field in parts[0]}


def _of_part(
    learn: Run, rest: Run, methods: Sequence[Method], resamples: int, seed: int, metric: str
) -> dict[str, Floats]:
    judged = [judge(method, learn, rest) for method in methods]
    numbers = [each.numbers() for each in judged]
    columns = {field: np.array([row[field] for row in numbers]) for field in numbers[0]}
    scored = [(each.score, each.errors) for each in judged]
    return {**columns, "drawn": bootstrap_values(AREAS[metric], scored, resamples, seed)}
