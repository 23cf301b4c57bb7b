"""The recommendation: what `fit` deploys from the same table, and what that accepts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from snapsure import _validate
from snapsure.decisions import Threshold
from snapsure.errors import Infeasible
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Choice, Result
from snapsure.evaluation._engine import find_outcome, mean_interval, percent_saved
from snapsure.metrics import Interval
from snapsure.table import ScoreTable

AVERAGED = "AES"
# Risks to promise if none is given.
RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
DELTA = 0.05

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Advice:
    """What to use for all tables, and what each table accepts at a promised risk."""

    method: str
    results: Results  # of every candidate, means over all tables
    risk: float
    choices: Sequence[Choice]  # what `fit` deploys from each table, with its promise if possible

    @property
    def accepted(self) -> list[float | None]:
        """Share of each table's examples that is accepted; None if the risk cannot be promised."""
        return [choice.accepted for choice in self.choices]

    @property
    def plain(self) -> list[float | None]:
        """The same for the final κ."""
        return [choice.final_accepted for choice in self.choices]

    def sentences(self, kappa: str) -> list[str]:
        """Write the recommendation; the first sentence says what to use."""
        accepted, plain = _mean_share(self.accepted), _mean_share(self.plain)
        promise = f"No risk of {percent(self.risk)} can be promised from these examples."
        if accepted is not None:
            promise = (
                f"Accept {percent(accepted)} of the answers at a promised risk of "
                f"{percent(self.risk)}; send {percent(1 - accepted)} to review."
            )
        if self.method == FINAL:
            return [f"Nothing here beats the final {kappa}: use it.", promise]
        instead = f"The final {kappa} cannot promise that risk."
        if plain is not None:
            instead = f"The final {kappa} would accept {percent(plain)}."
        return [f"Use {self.method}.", promise, instead]


def _mean_share(shares: Sequence[float | None]) -> float | None:
    """Average over tables; one that cannot promise accepts nothing. None if no table can."""
    if all(share is None for share in shares):
        return None
    return float(np.mean([share or 0.0 for share in shares]))


def percent(share: float) -> str:
    """Write whole percents, with digits where these would say nothing."""
    return f"{100 * share:.2g} %" if share < 0.01 else f"{100 * share:.0f} %"


def results_of(choice: Choice) -> Results:
    """Return what chose the method: the result of every candidate, by name."""
    return {row.method: row for row in choice.candidates}


def advise(tables: Sequence[ScoreTable], choices: Sequence[Choice], risk: float | None) -> Advice:
    """Recommend what `fit` deploys from these tables; from several, what most of them deploy."""
    if risk is None:
        learn = [
            (choice.kappa, table.rows(choice.learn))
            for table, choice in zip(tables, choices, strict=True)
        ]
        risk = _choose_risk(learn)
    risk = _validate.fraction(risk, "risk", open_above=True)
    promised = []
    for table, choice in zip(tables, choices, strict=True):
        try:
            promised.append(choice.promise(table, risk, DELTA))
        except Infeasible:
            promised.append(choice)
    results = _average([results_of(choice) for choice in choices])
    shared = (choice.method if choice.method in results else FINAL for choice in choices)
    ((method, _),) = Counter(shared).most_common(1)
    return Advice(method, results, risk, promised)


def _average(each: Sequence[Results]) -> Results:
    """Average results over tables, ends of intervals included."""
    shared = [method for method in each[0] if all(method in results for results in each)]
    averages = {}
    for method in shared:
        rows = [results[method] for results in each]
        ours, final = (
            float(np.mean([getattr(row, field) for row in rows]))
            for field in ("eaurc", "reference_eaurc")
        )
        difference = mean_interval(row.difference for row in rows)
        saved = percent_saved(ours, final)
        gain = None
        if saved is not None:
            gain = Interval(saved, -100 * difference.high / final, -100 * difference.low / final)
        averages[method] = replace(
            rows[0],
            eaurc=ours,
            reference_eaurc=final,
            difference=difference,
            gain=gain,
            gains=tuple(value for row in rows for value in row.gains),
            outcome="reference" if method == FINAL else find_outcome(difference),
            passes=float(np.mean([row.passes for row in rows])),
        )
    return averages


def _choose_risk(learn: Sequence[tuple[str, ScoreTable]]) -> float:
    """Choose a round risk: the largest up to half of the error, or the next that is possible.

    It looks at the examples that methods learn from: the promise itself is made on the others.
    """
    error = float(np.mean([table.errors.mean() for _, table in learn]))
    wanted = max((risk for risk in RISKS if risk <= error / 2), default=RISKS[0])
    for risk in RISKS:
        if wanted <= risk < error and all(_can_promise(*each, risk) for each in learn):
            return risk
    return wanted


def _can_promise(kappa: str, table: ScoreTable, risk: float) -> bool:
    try:
        Threshold.at_risk(table.kappa(kappa)[-1], table.errors, risk, DELTA)
    except Infeasible:
        return False
    return True
