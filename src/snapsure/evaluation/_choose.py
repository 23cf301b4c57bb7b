"""`choose`: the estimator, calibration and threshold that `Predictor.fit` deploys."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.decisions import Platt, Threshold
from snapsure.decisions._threshold import SMALLEST, infeasible, prove_threshold, validate_risk
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import LES, Estimator, Final, registry
from snapsure.estimators._base import refuse_no_table
from snapsure.estimators.registry import AVERAGED, FINAL, Method
from snapsure.evaluation._compare import hold_contest, make_board
from snapsure.evaluation._engine import Candidate, list_candidates
from snapsure.evaluation._protocol import Folds
from snapsure.evaluation._results import Board, Result, name_reference
from snapsure.evaluation._run import Run
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

Answers = Literal["final", "any"]

_LEVEL = 0.95
# Of delta, for the final softmax where another method may be chosen.
_FINAL_SHARE = 0.8
_FOLDS = 5
# Many examples have narrow intervals, and take their time to resample.
_LARGE, _RESAMPLES, _RESAMPLES_LARGE = 100_000, 1000, 200


@dataclass(frozen=True)
class Choice:
    """What `choose` found: a method ready to deploy, and why it was chosen.

    Examples
    --------
    >>> kappa = np.random.default_rng(0).random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=kappa.mean(axis=0) < 0.4)
    >>> choice = choose(table)
    >>> choice.method in [row.method for row in choice.candidates], choice.threshold
    (True, None)
    """

    method: str  # averaged weights give answers of their own, not the final network's
    kappa: str  # that it works on
    reference: str  # the κ of the final snapshot that it was compared with
    estimator: Estimator  # fitted on the examples `learn`
    calibration: Platt | None  # maps its confidence to a probability; None if it is one already
    reason: str  # why this method, in one sentence
    candidates: Sequence[Result]  # within the budget of passes, the best first
    learn: Ints  # the examples that chose and fitted the method
    rest: Ints  # the examples that nothing was fitted on
    threshold: Threshold | None = None  # keeps the promised risk; None without a risk
    accepted: float | None = None  # the share of `rest` that the threshold accepts
    # The same of the final softmax alone, if all examples test it and nothing is chosen; None if
    # they cannot promise the risk.
    final_accepted: float | None = None

    def confidence(self, table: ScoreTable) -> Floats:
        """Return the confidence that is deployed, (n,): a probability of being right."""
        score = self.estimator.confidence(self.view(table))
        return score if self.calibration is None else self.calibration.predict_proba(score)

    def view(self, table: ScoreTable) -> ScoreTable:
        """Return the table of the classifier that answers: its `y_hat` is what is deployed."""
        return table.only_averaged() if self.method == AVERAGED else table

    def promise(
        self,
        table: ScoreTable,
        risk: float | Literal["smallest"],
        delta: float = 0.05,
        *,
        risk_is_fixed: bool = True,
    ) -> "Choice":
        """Return what to deploy to promise `risk` on new examples, with its threshold.

        No label went into the final softmax, so all examples can test it: they do, at 0.8 delta.
        The examples `rest` test the chosen method at 0.2 delta. Both promises hold with probability
        1 − delta together, so the one that accepts more of `rest` is deployed ("smallest": the one
        of the smaller risk). `method` and `reason` say which.

        `table` is the one that the choice was made from. Pass `risk_is_fixed=False` if `risk` was
        chosen by looking at the examples `learn`: these cannot test anything then, and `rest` tests
        the chosen method at delta.

        Raises
        ------
        Infeasible
            If these examples cannot promise the risk.
        """
        limit = validate_risk(risk)
        delta = _validate.fraction(delta, "delta", open_above=True)
        rest = table.rows(self.rest)
        final, confidence = table.kappa(self.reference)[-1], self.confidence(rest)

        # The share of delta is fixed before any label is looked at.
        share = 0.0 if not risk_is_fixed else 1.0 if len(self.candidates) == 1 else _FINAL_SHARE
        for_final = prove_threshold(final, table.errors, limit, share * delta)
        for_method = prove_threshold(confidence, self.view(rest).errors, limit, (1 - share) * delta)
        if for_final is None and for_method is None:
            smallest = None
            if limit != SMALLEST:
                with suppress(Infeasible):
                    again = self.promise(table, SMALLEST, delta, risk_is_fixed=risk_is_fixed)
                    smallest = again.threshold
            raise infeasible(table.errors.size, limit, delta, smallest)

        def share_of_rest(threshold: Threshold | None, score: Floats) -> float:
            return 0.0 if threshold is None else float(threshold.accepts(score).mean())

        by_final = share_of_rest(for_final, final[self.rest])
        by_method = share_of_rest(for_method, confidence)
        takes_final = for_final is not None and by_final >= by_method
        if limit == SMALLEST and for_final is not None and for_method is not None:
            takes_final = for_final.risk <= for_method.risk  # type: ignore[operator]

        if for_final is not None and takes_final:
            chosen, threshold = self._deploy_final(table, for_final), for_final
            if (self.method, self.kappa) != (FINAL, self.reference):
                other = name_reference(self.method, self.kappa)
                gets = f"accepts {by_final:.1%} at this risk instead of {by_method:.1%}"
                if limit == SMALLEST and for_method is not None:
                    gets = f"can promise {for_final.risk:.3g} instead of {for_method.risk:.3g}"
                reason = (
                    f"{self.reason}; but all {table.errors.size} examples can test the final "
                    f"{self.reference}, and half of them {other}: the final {self.reference} {gets}"
                )
                chosen = replace(chosen, reason=reason)
        else:
            assert for_method is not None
            chosen, threshold = replace(self, threshold=for_method), for_method
        threshold.delta = delta

        assert threshold.risk is not None
        alone = prove_threshold(final, table.errors, threshold.risk, delta)
        return replace(
            chosen,
            accepted=by_final if takes_final else by_method,
            final_accepted=None if alone is None else share_of_rest(alone, final[self.rest]),
        )

    def _deploy_final(self, table: ScoreTable, threshold: Threshold) -> "Choice":
        """Return the final softmax with its threshold, on a probability where that keeps its order.

        The threshold was proved for the order of the final softmax. A curve that is flat or falling
        at the threshold would accept other examples: then the final softmax is deployed as it is.
        """
        estimator = Final().fit(table, self.reference)
        score = estimator.confidence(table)
        platt = Platt().fit(score[self.learn], table.errors[self.learn])
        p, accepted = platt.predict_proba(score), threshold.accepts(score)
        theta = float(p[accepted].min())
        keeps_order = platt.coef_[0] > 0 and np.array_equal(p >= theta, accepted)
        if keeps_order:
            threshold.theta = theta
        calibration = platt if keeps_order else None
        return replace(
            self,
            method=FINAL,
            kappa=self.reference,
            estimator=estimator,
            calibration=calibration,
            threshold=threshold,
        )


def choose(
    table: ScoreTable,
    *,
    kappa: str | Sequence[str] = "softmax",
    passes: int | None = None,
    risk: float | Literal["smallest"] | None = None,
    delta: float = 0.05,
    answers: Answers = "final",
    seed: int = 0,
) -> Choice:
    """Choose, fit and calibrate a method from held-out examples, and promise a risk.

    The examples are split in two halves at random. One half compares the methods by cross-fitting:
    in five folds, each judged by what was learnt on the other four, so every example counts. It
    takes LES if that has a lower AURC than the final softmax, of three passes if no method is
    significantly better. It takes another method only if that is significantly better than the
    final softmax, and LES significantly worse than the best. It fits what it takes and calibrates
    it. The other half, which nothing was fitted on, tests a threshold for it, and all examples test
    one for the final softmax. The one that accepts more is deployed (`Choice.promise`).

    Parameters
    ----------
    table : ScoreTable
        Scores of held-out examples, with labels.
    kappa : str or several
        Which κ of the table. Of several, the choice is among the methods on each; they are compared
        with the final snapshot's first one.
    passes : int, optional
        The most forward passes that an answer may take.
    risk : float or "smallest", optional
        The error rate to promise among accepted inputs; without it there is no threshold.
    delta : float
        The probability that the promise fails, over draws of the held-out examples.
    answers : "final" or "any"
        "final": every method is a confidence in the final network's answers. "any": averaged
        weights are a candidate too, with answers of their own; `reason` says what that changes.
    seed : int
        Fixes the halves and the folds that compare methods.

    Raises
    ------
    InvalidInput
        If the examples are too few to choose by, or `passes` does not allow one answer.
    Infeasible
        If the examples cannot promise the risk.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ease = rng.random(2000)
    >>> kappa = np.clip(ease + rng.normal(0, 0.3, (10, 2000)), 0.01, 0.99)
    >>> table = ScoreTable.from_kappa(kappa, errors=rng.random(2000) > ease)
    >>> choice = choose(table, risk=0.3)
    >>> choice.method
    'LES'
    >>> choice.accepted > choice.final_accepted
    True
    """
    refuse_no_table(table)
    n = table.y_hat.size
    if n < 2 * _FOLDS:
        raise InvalidInput(
            f"`table` must have at least {2 * _FOLDS} examples to choose a method, got {n}. Score "
            "more examples."
        )
    learn, rest = random_cut(n, round(0.5 * n), _validate.count(seed, "seed", least=0))
    choice = choose_estimator(table.rows(learn), kappa, passes, seed, answers)
    choice = replace(choice, learn=learn, rest=rest)
    return choice if risk is None else choice.promise(table, risk, delta)


def choose_estimator(
    table: ScoreTable,
    kappa: str | Sequence[str],
    passes: int | None,
    seed: int,
    answers: Answers = "final",
) -> Choice:
    """Compare the candidates by cross-fitting, and fit the one chosen on all examples."""
    if passes is not None:
        _validate.count(passes, "passes")
    wrong = int(table.errors.sum())
    if not 1 < wrong < table.errors.size - 1:
        raise InvalidInput(
            "`table` must have at least two right and two wrong examples in the part that chooses "
            f"a method, got {wrong} wrong of {table.errors.size}. Score more examples."
        )
    _validate.choice(answers, get_args(Answers), "answers")
    kappas = [kappa] if isinstance(kappa, str) else list(dict.fromkeys(kappa))
    if not kappas:
        raise InvalidInput(
            f"`kappa` must name at least one κ, got none. Choose among {', '.join(table.names)}."
        )
    table = table._replace(_kappas={name: table.kappa(name) for name in kappas})  # copy no other
    run = Run(table)
    candidates = [one for name in kappas for one in _list_candidates(run, name, passes)]
    if answers == "any":
        table.only_averaged()  # refuses a table without averaged weights
        candidates.append(Candidate(AVERAGED, None, is_other=True))

    # E-AURC cannot compare answers that differ.
    metric = "aurc" if answers == "any" else "eaurc"
    resamples = _RESAMPLES if table.errors.size <= _LARGE else _RESAMPLES_LARGE
    contest = hold_contest([run], candidates, metric, Folds(_FOLDS, seed), resamples, (seed, 0))
    most = float("inf") if passes is None else passes
    by_key = {
        candidate.key: candidate
        for candidate, cost in zip(candidates, contest.means["passes"], strict=True)
        if cost <= most
    }
    contest, final = contest.select([*by_key]), (FINAL, kappas[0])
    board = make_board("choice", [contest], final, kappas[0], _LEVEL, "none")
    # With few errors LES shrinks to the final softmax's order, so it need not be significantly
    # better: to ask for that loses more than it saves (experiments/choosing.py).

    def is_les(row: Result) -> bool:
        return isinstance(by_key[row.method, row.kappa].make(), LES)

    useful = [
        row
        for row in board.rows
        if row.outcome == "better" or (is_les(row) and round(row.saved.estimate, 1) > 0)
    ]
    equal = [row for row in useful if row.behind is None or row.behind.low <= 0]
    # In the board's order, the lower area first, where passes are the same.
    equal.sort(key=lambda row: (not is_les(row) and row.method != AVERAGED, round(row.passes)))
    for row in [*equal, *useful, board[final]]:
        candidate = by_key[row.method, row.kappa]
        own = table.only_averaged() if row.method == AVERAGED else table
        estimator = candidate.make().fit(own, row.kappa or own.names[0])
        # On all examples PES may need more snapshots than it did on the folds.
        if candidate.passes * len(estimator.snapshots(table.epochs)) <= most:
            break
    calibration = None
    if not estimator.calibrated:
        calibration = Platt().fit(estimator.confidence(own), own.errors)
    reason = _write_reason(board, row, passes)
    if row.method == AVERAGED:
        reason += (
            f"; {(own.y_hat != table.y_hat).mean():.1%} of the answers differ from the final "
            f"network's, and {own.errors.mean():.1%} of all are wrong instead of "
            f"{table.errors.mean():.1%}"
        )
    return Choice(
        row.method,
        row.kappa or kappas[0],
        kappas[0],
        estimator,
        calibration,
        reason,
        board.rows,
        learn=np.arange(table.errors.size),
        rest=np.arange(0),
    )


def _list_candidates(run: Run, kappa: str, passes: int | None) -> list[Candidate]:
    """List the registered methods that may be deployed, each made for so many passes."""
    each = run.passes[kappa]
    if passes is not None and passes < each:
        raise InvalidInput(
            f"`passes` must be at least {each}, which one answer of {kappa} takes, got {passes}. "
            "Allow more passes, or choose another κ."
        )
    snapshots = len(run.table.epochs) if passes is None else passes // each
    methods = []
    for method in map(registry.get, registry.names()):
        if not method.is_candidate or "averaged" in method.needs:
            continue
        if "snapshots" in method.needs and (method.passes or 0) >= snapshots:
            continue  # the same as the method without this limit
        if method.make_within and passes is not None:
            method = replace(method, make=partial(method.make_within, snapshots))
        methods.append(method)
    if snapshots == 1:
        methods = [method for method in methods if "snapshots" not in method.needs]
        if run.table.final is not None:  # from which LES learns without other snapshots
            methods.append(Method("LES", partial(LES, passes=1), needs=("labels",)))
    return list_candidates(run, methods, [kappa])


def _write_reason(board: Board, row: Result, passes: int | None) -> str:
    """Say in one sentence why this method was chosen."""
    within = "" if passes is None else f" within {passes} passes"
    final, reference = board.reference_label, board[FINAL]

    def name(one: Result) -> str:
        if one.method != FINAL:
            return board.label(one)
        return name_reference(FINAL, str(one.kappa))

    def count(one: Result) -> str:
        return "one pass" if round(one.passes) == 1 else f"{one.passes:.0f} passes"

    if row is not reference:
        claim = "answer better" if row.method == AVERAGED else "ranks right above wrong better"
        area, before = (1e3 * getattr(one, board.metric) for one in (row, reference))
        reason = (
            f"{name(row)} {claim} than {final} on these examples: {board.measure} × 10³ {area:.2f} "
            f"instead of {before:.2f} ({row.saved.estimate:.1f} % less, 95 % interval "
            f"{row.saved.low:.1f} … {row.saved.high:.1f}), in {count(row)}"
        )
        best = board.rows[0]
        if row is not best and row.behind is not None and row.behind.low <= 0:
            reason += f"; {name(best)} is best, but not significantly better, in {count(best)}"
        return reason
    others = ", ".join(name(one) for one in board.rows if one is not row)
    if not others:
        return f"{final}: there is nothing else to choose{within}"
    return f"{final} alone: {others}{within} are not significantly better on these examples"
