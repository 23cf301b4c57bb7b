"""Which estimator to deploy: the one that the evaluation finds best, within so many passes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from snapsure.decisions import Platt
from snapsure.errors import InvalidInput
from snapsure.estimators import AES, LES, PES, BestSnapshot, Estimator, Final
from snapsure.evaluation._evaluate import Judging
from snapsure.evaluation._methods import FINAL, Method
from snapsure.evaluation._protocol import Splits
from snapsure.evaluation._result import Result
from snapsure.evaluation._run import Run, passes_of
from snapsure.table import ScoreTable

_RESAMPLES, _LEVEL = 1000, 0.95


@dataclass(frozen=True)
class Choice:
    """An estimator, fitted, and why it and no other."""

    estimator: Estimator
    calibration: Platt | None
    reason: str
    candidates: list[Result]  # those that could be afforded, the best first


def choose(table: ScoreTable, kappa: str, passes: int | None, seed: int) -> Choice:
    """Judge the candidates by ten splits of the points, and fit the one chosen on all of them.

    Another than the final snapshot must be better by more than chance: its interval of the
    difference in E-AURC leaves out 0.
    """
    wrong = int(table.errors.sum())
    if not 1 < wrong < table.errors.size - 1:
        raise InvalidInput(
            f"`table` must have right and wrong points to choose an estimator by, got {wrong} "
            f"wrong of {table.errors.size}: score more points"
        )
    run = Run(table, passes=passes_of(table))
    judging = Judging(Splits(seed=seed), _RESAMPLES, _LEVEL, seed)
    methods = _methods(run, kappa, passes)
    names = [method.name for method in methods]
    judged = dict(zip(names, judging.results([(methods, [run])])[0], strict=True))
    most = float("inf") if passes is None else passes
    afforded = {name: result for name, result in judged.items() if result.passes <= most}
    better = {name: one for name, one in afforded.items() if one.difference.high < 0}
    for best in [*sorted(better, key=lambda name: better[name].eaurc), FINAL]:
        method = next(method for method in methods if method.name == best)
        estimator = method.make().fit(table, kappa)
        # On all points PES may ask for more snapshots than it did on the splits.
        if method.each * len(estimator.snapshots(table.epochs)) <= most:
            break
    calibration = None
    if not estimator.calibrated:
        calibration = Platt().fit(estimator.confidence(table), table.errors)
    ranked = sorted(afforded.values(), key=lambda one: one.eaurc)
    return Choice(estimator, calibration, _reason(afforded, best, kappa, passes), ranked)


def _methods(run: Run, kappa: str, passes: int | None) -> list[Method]:
    run.table.kappa(kappa)  # refuses a κ that is not there
    price = run.passes[kappa]
    most = len(run.table.epochs) if passes is None else passes // price
    if passes is not None and passes < price:
        raise InvalidInput(
            f"`passes` must allow one answer of {kappa}, which takes {price}, got {passes}: raise "
            "it, or choose another κ"
        )
    found = [Method(FINAL, FINAL, kappa, Final, price)]
    if len(run.table.epochs) > 1 and most > 1:
        found += [
            Method("AES", "AES", kappa, partial(AES, min(30, most)), price),
            Method("LES", "LES", kappa, partial(LES, passes=most), price),
            Method("PES", "PES", kappa, PES, price),
            Method("best snapshot", "best snapshot", kappa, BestSnapshot, price),
        ]
    return found


def _reason(judged: Mapping[str, Result], best: str, kappa: str, passes: int | None) -> str:
    """Why this one, in a sentence."""
    within = "" if passes is None else f" within {passes} passes"
    if best != FINAL:
        one = judged[best]
        return (
            f"{best} ranks right from wrong better than the final {kappa}: E-AURC × 10³ "
            f"{1e3 * one.eaurc:.2f} instead of {1e3 * one.reference_eaurc:.2f} "
            f"({one.saved.estimate:.1f} % less, 95 % interval {one.saved.low:.1f} … "
            f"{one.saved.high:.1f}), in {one.passes:.0f} passes"
        )
    others = [name for name in judged if name != FINAL]
    if not others:
        return f"the final {kappa}: there is nothing else to choose{within}"
    return (
        f"the final {kappa} alone: {', '.join(others)}{within} are not significantly better on "
        "these points"
    )
