"""What to use, in one sentence: the method found best, and what it accepts at a promised risk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.decisions import Threshold
from snapsure.errors import Infeasible
from snapsure.estimators import AES, LES, PES, Estimator, Final
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Result, Splits, evaluate
from snapsure.evaluation._engine import find_outcome, mean_interval, percent_saved
from snapsure.metrics import Interval
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

AVERAGED = "AES"
METHODS: dict[str, type[Estimator]] = {FINAL: Final, AVERAGED: AES, "PES": PES, "LES": LES}
# To promise, where none was asked for.
RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
DELTA = 0.05
# Splits and resamples. A large set has narrow intervals, and a resample of it takes its time.
_LARGE, _EFFORT, _EFFORT_LARGE = 100_000, (10, 1000), (3, 200)

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Advice:
    """What to use for all tables, and what it does at a promised risk."""

    method: str
    results: Results  # of all methods, over all tables
    risk: float
    accepted: list[float | None]  # share of each table's points; None: nothing can be promised …
    plain: list[float | None]  # … and by the final κ alone

    def sentences(self, kappa: str) -> list[str]:
        """The recommendation, for somebody who decides; the first says what to use."""
        if self.method == FINAL:
            return [f"Nothing here beats plain {kappa}: use it.", *self._promise(self.accepted)]
        return [
            f"Use {short(self.method)}.",
            *self._promise(self.accepted),
            self._instead(f"Plain {kappa}"),
        ]

    def _promise(self, shares: list[float | None]) -> list[str]:
        mean = _mean_share(shares)
        if mean is None:
            return [f"No risk of {percent(self.risk)} can be promised from these points."]
        return [
            f"Accept {percent(mean)} of the answers at a promised risk of "
            f"{percent(self.risk)}; hand {percent(1 - mean)} over."
        ]

    def _instead(self, plain: str) -> str:
        mean = _mean_share(self.plain)
        if mean is None:
            return f"{plain} cannot promise that risk."
        return f"{plain} would accept {percent(mean)}."


def _mean_share(shares: Sequence[float | None]) -> float | None:
    """Over tables; one that cannot promise accepts nothing. None if no table can."""
    if all(share is None for share in shares):
        return None
    return float(np.mean([share or 0.0 for share in shares]))


def percent(share: float) -> str:
    """Whole percents, and digits where these would say nothing."""
    return f"{100 * share:.2g} %" if share < 0.01 else f"{100 * share:.0f} %"


def effort(n: int) -> tuple[int, int]:
    """Splits and resamples for so many points."""
    return _EFFORT if n <= _LARGE else _EFFORT_LARGE


def short(method: str) -> str:
    """A method's name without its settings."""
    return method.partition(" ")[0]


def judged(table: ScoreTable, name: str, seed: int) -> Results:
    """Every method on one κ, beside its final snapshot."""
    splits, resamples = effort(table.errors.size)
    board = evaluate(
        table,
        kappa=name,
        methods=tuple(METHODS),
        protocol=Splits(splits, seed=seed),
        resamples=resamples,
        seed=seed,
    ).boards[name]
    return {row.method: row for row in board.rows}


def halves(table: ScoreTable, seed: int) -> tuple[ScoreTable, ScoreTable, Ints]:
    """Points to learn from, points that nothing is fitted on, as `Predictor.fit`, and which."""
    n = table.y_hat.size
    learn, rest = random_cut(n, round(0.5 * n), seed)
    return table.rows(learn), table.rows(rest), rest


def together(each: Sequence[Results]) -> Results:
    """Means over tables, of the intervals' ends too."""
    return {method: _mean([results[method] for results in each]) for method in each[0]}


def _mean(rows: Sequence[Result]) -> Result:
    ours, final = (
        float(np.mean([getattr(row, field) for row in rows]))
        for field in ("eaurc", "reference_eaurc")
    )
    difference = mean_interval(row.difference for row in rows)
    saved = percent_saved(ours, final)
    ends = None
    if saved is not None:
        ends = Interval(saved, -100 * difference.high / final, -100 * difference.low / final)
    return replace(
        rows[0],
        eaurc=ours,
        reference_eaurc=final,
        difference=difference,
        gain=ends,
        gains=tuple(value for row in rows for value in row.gains),
        passes=float(np.mean([row.passes for row in rows])),
    )


def best_of(results: Results) -> str:
    """The method with the least E-AURC of those better than the final κ by more than chance."""
    better = [name for name, row in results.items() if find_outcome(row.difference) == "better"]
    return min(better, key=lambda name: results[name].eaurc, default=FINAL)


def advise(
    tables: Sequence[ScoreTable],
    names: Sequence[str],
    each: Sequence[Results],
    risk: float | None,
    seed: int,
) -> Advice:
    """What to use for all of these tables, `names` being the κ of each.

    Every promise is by points that nothing was fitted on, and holds whichever method was chosen
    by all points.
    """
    results = together(each)
    method = best_of(results)
    parts = [halves(table, seed) for table in tables]
    if risk is None:
        learnt = [learn for learn, _, _ in parts]
        risk = _worth_promising(learnt, names)
    risk = _validate.fraction(risk, "risk", open_above=True)
    shares = {
        which: [
            _accepted(which, name, learn, rest, risk)
            for name, (learn, rest, _) in zip(names, parts, strict=True)
        ]
        for which in dict.fromkeys((method, FINAL))
    }
    return Advice(method, results, risk, shares[method], shares[FINAL])


def _worth_promising(learn: Sequence[ScoreTable], names: Sequence[str]) -> float:
    """A round risk: the largest up to half of the error, or the next that can be promised.

    By the points that methods learn from: the promise itself is made on the others.
    """
    error = float(np.mean([table.errors.mean() for table in learn]))
    wanted = max((risk for risk in RISKS if risk <= error / 2), default=RISKS[0])
    for risk in RISKS:
        if wanted <= risk < error and all(
            _promised(table.kappa(name)[-1], table, risk)
            for table, name in zip(learn, names, strict=True)
        ):
            return risk
    return wanted


def _accepted(
    method: str, name: str, learn: ScoreTable, rest: ScoreTable, risk: float
) -> float | None:
    return _promised(METHODS[method]().fit(learn, name).confidence(rest), rest, risk)


def _promised(confidence: Floats, table: ScoreTable, risk: float) -> float | None:
    """What share is accepted at a risk that is promised of these points, if it can be."""
    try:
        chosen = Threshold.at_risk(confidence, table.errors, risk, DELTA / len(METHODS))
    except Infeasible:
        return None
    return float(chosen.accepts(confidence).mean())
