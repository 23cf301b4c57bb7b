"""`evaluate`: the paper's methods and ours on every κ of a table, each against its final κ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._types import Floats
from snapsure.errors import InvalidInput
from snapsure.evaluation._judge import Judged, judge
from snapsure.evaluation._methods import FINAL, SHOWN, Method, methods_of, refuse_unknown
from snapsure.evaluation._numbers import gain, mean_interval, standard_error
from snapsure.evaluation._protocol import Protocol, Splits
from snapsure.evaluation._result import Board, Comparison, Result
from snapsure.evaluation._run import Run
from snapsure.metrics import Interval, eaurc
from snapsure.metrics._bootstrap import bootstrap_each
from snapsure.table import ScoreTable


def evaluate(
    tables: ScoreTable | Sequence[ScoreTable],
    *,
    names: Sequence[str] | None = None,
    methods: Sequence[str] = SHOWN,
    protocol: Protocol | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """How AES, PES and LES rank the points, beside the final κ, for every κ of a table.

    Methods that learn nothing are judged on all points, those that learn on the 30 % that each of
    ten random splits leaves (means over the splits, of the intervals' ends too). NLL and Brier
    score are of Platt's curve over the log-odds of the confidence, fitted on the 70 %, except where
    the method gives a probability by itself.

    Parameters
    ----------
    tables : ScoreTable or sequence of them
        With labels. Several are seeds of one training: means over them, of the intervals' ends too.
    names : sequence of str, optional
        Which κ; all if not given.
    methods : sequence of str
        Which kinds of methods.
    protocol : Protocol, optional
        `Splits(count=10, share=0.7, seed=seed)` if not given.
    resamples, level, seed
        Of the paired bootstrap over the points.

    Returns
    -------
    Comparison
        A board per κ.

    Raises
    ------
    InvalidInput
        For tables without labels, without errors or with nothing else, and for a κ or a kind of
        method that there is not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=rng.random(400) > kappa.mean(axis=0))
    >>> board = evaluate(table).boards["softmax"]
    >>> board["final"].gain.estimate, board["AES k=30"].gain.estimate > 0
    (0.0, True)
    """
    some = [tables] if isinstance(tables, ScoreTable) else list(tables)
    for table in some:
        wrong = int(table.errors.sum())
        if not 0 < wrong < table.errors.size:
            raise InvalidInput(
                f"`tables` must have right and wrong points to compare methods, got {wrong} wrong "
                f"of {table.errors.size}: score more points"
            )
    refuse_unknown(methods)
    wanted_names = list(some[0].names if names is None else names)
    for name in wanted_names:
        some[0].kappa(name)  # refuses a κ that is not there
    protocol = Splits(seed=seed) if protocol is None else protocol
    judging = Judging(protocol, _validate.count(resamples, "resamples"), level, seed)
    runs = {name: [Run(_alone(table, name)) for table in some] for name in wanted_names}
    known = methods_of(Run(some[0]), methods, alone=True)
    wanted = {name: [method for method in known if method.kappa == name] for name in runs}
    results = judging.results([(wanted[name], runs[name]) for name in runs])
    boards = {
        name: Board(name, FINAL, len(some), some[0].y_hat.size, rows)
        for name, rows in zip(runs, results, strict=True)
    }
    return Comparison(boards, None, level, judging.resamples)


def _alone(table: ScoreTable, name: str) -> ScoreTable:
    """The table of one κ, so that its rows are chosen and no others."""
    return ScoreTable(
        {name: table.kappa(name)}, table.labels, table.y, y_hat=table.y_hat, epochs=table.epochs
    )


Pair = tuple[Judged, Floats]  # what a method says of points, and their final κ


@dataclass(frozen=True)
class _Seen:
    """A method on one run: means over the parts that it was judged on."""

    numbers: dict[str, float]
    pairs: Sequence[Pair]  # of each part
    areas: Sequence[float]  # E-AURC of each part


class Judging:
    """Methods against the final κ, under one protocol."""

    def __init__(self, protocol: Protocol, resamples: int, level: float, seed: int) -> None:
        self.resamples = resamples
        self._protocol, self._level, self._seed = protocol, level, seed

    def results(
        self, boards: Sequence[tuple[Sequence[Method], Sequence[Run]]]
    ) -> list[list[Result]]:
        """Means over a board's runs, for each method; all boards resample their points at once."""
        seen = [[self._seen(methods, run) for run in runs] for methods, runs in boards]
        pairs = [pair for runs in seen for run in runs for one in run for pair in one.pairs]
        asked: list[Any] = [
            ({"score": one.score, "final": final}, one.errors) for one, final in pairs
        ]
        found = iter(bootstrap_each(eaurc, asked, self.resamples, self._level, self._seed))
        changes = [
            [[mean_interval([next(found) for _ in one.pairs]) for one in run] for run in runs]
            for runs in seen
        ]
        return [
            [
                _result(method, [run[i] for run in runs], [run[i] for run in change])
                for i, method in enumerate(methods)
            ]
            for (methods, _), runs, change in zip(boards, seen, changes, strict=True)
        ]

    def _seen(self, methods: Sequence[Method], run: Run) -> list[_Seen]:
        split: list[list[Pair]] = [[] for _ in methods]
        for learnt, judged in self._protocol.parts(run.table.y_hat.size):
            learn, rest = run.rows(learnt), run.rows(judged)
            for method, pairs in zip(methods, split, strict=True):
                pairs.append(_pair(method, learn, rest))
        return [
            self._means(method, pairs, run) for method, pairs in zip(methods, split, strict=True)
        ]

    def _means(self, method: Method, pairs: Sequence[Pair], run: Run) -> _Seen:
        probable = [one.numbers() for one, _ in pairs]
        if self._protocol.whole and not method.make().learns:
            pairs = [_pair(method, run, run)]
        ranked = [one.numbers() for one, _ in pairs]
        numbers = {key: _mean(one[key] for one in ranked) for key in ranked[0]}
        numbers |= {key: _mean(one[key] for one in probable) for key in ("nll", "brier")}
        return _Seen(numbers, pairs, [one["eaurc"] for one in ranked])


def _pair(method: Method, learn: Run, rest: Run) -> Pair:
    assert method.kappa is not None
    return judge(method, learn, rest), np.array(rest.table.kappa(method.kappa)[-1])


def _result(method: Method, each: Sequence[_Seen], differences: Sequence[Interval]) -> Result:
    numbers: dict[str, Any] = {
        key: _mean(one.numbers[key] for one in each) for key in each[0].numbers
    }
    finals = [_mean(float(eaurc(final, one.errors)) for one, final in seen.pairs) for seen in each]
    final, change = _mean(finals), mean_interval(differences)
    spreads = [standard_error(one.areas) for one in each if len(one.areas) > 1]
    return Result(
        method=method.kind,
        kappa=method.kappa,
        **numbers,
        bytes=None,
        standard_error=_mean(spreads) if spreads else None,
        reference_eaurc=final,
        difference=change,
        gain=_percent(numbers["eaurc"], change, final),
        gains=tuple(gain(one.numbers["eaurc"], own) for one, own in zip(each, finals, strict=True)),
        verdict=_verdict(method, change, gain(numbers["eaurc"], final)),
    )


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _percent(ours: float, change: Interval, final: float) -> Interval | None:
    """The gain with its ends, in percent of the final κ's area."""
    saved = gain(ours, final)
    if saved is None:
        return None
    return Interval(saved, -100 * change.high / final, -100 * change.low / final)


def _verdict(method: Method, change: Interval, saved: float | None) -> str:
    """By whether the interval of the difference leaves out 0."""
    if method.kind == FINAL:
        return "the reference"
    if change.low <= 0 <= change.high or saved is None:
        return f"no significant difference from the final {method.kappa}"
    better = change.high < 0
    return f"{'better' if better else 'worse'} than the final {method.kappa} by {abs(saved):.1f} %"
