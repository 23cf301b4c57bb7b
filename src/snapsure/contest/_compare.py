"""`compare`: every method on the same points, with intervals that know of seeds and of points.

Each run's points are halved: what must learn does so on one half and is judged on the other, and
the other way round; what learns nothing is judged on the same halves. Points are resampled within
halves, the same ones for all methods and for all runs of a data set; how far runs differ adds to
an interval what Student's t makes of so many. One run speaks of its points alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from snapsure import _validate
from snapsure.contest._comparison import Board, Comparison, Row
from snapsure.contest._judge import Judged, judge
from snapsure.contest._run import Run
from snapsure.errors import InvalidInput
from snapsure.metrics import Interval
from snapsure.table import ScoreTable

Floats = NDArray[np.float64]
Runs = Run | ScoreTable | Sequence[Run | ScoreTable]

ALL = "all data sets"
_SIGNIFICANT = 0.05


def compare(
    runs: Runs | Mapping[str, Runs],
    *,
    reference: str | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Rank every way to a confidence by E-AURC, with its price and with intervals.

    Parameters
    ----------
    runs : ScoreTable, Run, a sequence of them, or a mapping of data sets to these
        Several runs of a data set must be of the same points: seeds of one training.
    reference : str, optional
        The method that gains are against: the table's first κ, of the final snapshot, if not given.
    resamples, level, seed
        Of the bootstrap, and of the halves. A p-value is at least 2 / (resamples + 1).

    Returns
    -------
    Comparison
        Gains are percent of the reference's E-AURC; p-values are corrected by Holm's method.

    Raises
    ------
    InvalidInput
        For tables without labels, without errors or with nothing else, for runs of one data set
        that are of other points, and for an unknown reference.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> y = (rng.random(400) > kappa.mean(axis=0)).astype(int)
    >>> table = ScoreTable({"softmax": kappa}, np.zeros((10, 400), dtype=int), y)
    >>> board = compare(table).boards["data"]
    >>> board["AES of softmax"].gain.estimate > 0
    True
    """
    named = runs if isinstance(runs, Mapping) else {"data": runs}
    groups = {name: [_run(run) for run in _listed(some)] for name, some in named.items()}
    if not groups:
        raise InvalidInput("`runs` must hold at least one data set, got none: pass a table")
    resamples = _validate.count(resamples, "resamples")
    level = _validate.fraction(level, "level", open_above=True)
    seed = _validate.count(seed, "seed", least=0)
    judged = {
        name: _judged(name, some, resamples, seed, i)
        for i, (name, some) in enumerate(groups.items())
    }
    _refuse_few(resamples, max(len(one.methods) for one in judged.values()))
    methods = _shared(list(judged.values()))
    base = _reference(methods, reference, groups)
    boards = {name: _board(name, [one], base, level) for name, one in judged.items()}
    pooled = _board(ALL, [one.of(methods) for one in judged.values()], base, level)
    return Comparison(boards, pooled if len(boards) > 1 else None, level, resamples)


def _refuse_few(resamples: int, methods: int) -> None:
    """The least p-value, corrected for all methods, must be able to tell something."""
    least = int(2 * methods / _SIGNIFICANT)
    if resamples < least:
        raise InvalidInput(
            f"`resamples` must be at least {least} to tell {methods} methods apart, got "
            f"{resamples}: a p-value is never below 2 / (resamples + 1)"
        )


def _listed(some: Runs) -> Sequence[Run | ScoreTable]:
    return [some] if isinstance(some, Run | ScoreTable) else list(some)


def _run(run: Run | ScoreTable) -> Run:
    if isinstance(run, Run):
        return run
    if not isinstance(run, ScoreTable):
        raise InvalidInput(
            f"`runs` must be score tables or runs, got {type(run).__name__}: open a folder by "
            "ScoreTable.open"
        )
    return Run(run)


def _judged(name: str, runs: Sequence[Run], resamples: int, seed: int, index: int) -> Judged:
    if not runs:
        raise InvalidInput(f"`runs[{name!r}]` must hold at least one run, got none: pass a table")
    for i, run in enumerate(runs):
        wrong = int(run.table.errors.sum())
        if min(wrong, run.table.errors.size - wrong) < 4:
            raise InvalidInput(
                f"`runs[{name!r}]` must have at least 4 wrong and 4 right points to compare "
                f"methods, got {wrong} wrong of {run.table.errors.size} in run {i}: score more"
            )
        if not np.array_equal(run.y, runs[0].y):
            raise InvalidInput(
                f"`runs[{name!r}]` must be of the same points, got other labels in run {i} than in "
                "run 0: pass other data under another name"
            )
    return judge(runs, resamples, seed, index)


def _shared(judged: Sequence[Judged]) -> list[str]:
    """What all data sets have, in the order of the first."""
    return [name for name in judged[0].methods if all(name in one.methods for one in judged)]


def _reference(
    methods: Sequence[str], wanted: str | None, groups: Mapping[str, Sequence[Run]]
) -> str:
    if wanted is None:
        wanted = next(iter(groups.values()))[0].table.names[0]
    if wanted not in methods:
        raise InvalidInput(
            f"`reference` must be a method of every data set, got {wanted!r}: choose one of "
            f"{', '.join(methods)}"
        )
    return wanted


def _board(name: str, judged: Sequence[Judged], reference: str, level: float) -> Board:
    """Methods in order; of several data sets, by the mean of their log-ratios."""
    methods = judged[0].methods
    base = methods.index(reference)
    ratio = np.mean([_log_ratio(one.eaurc, one.eaurc[base]) for one in judged], axis=0)
    drawn = np.mean([_drawn_ratio(one, base) for one in judged], axis=0)
    best = int(ratio.argmin())
    p = _p_values(drawn)
    corrected = _holm(p, base)
    from_best = _holm(_p_values(drawn - drawn[best]), best)
    means = {
        field: np.mean([getattr(one, field) for one in judged], axis=0) for field in Judged.MEANS
    }
    known = [one.bytes for one in judged if one.bytes is not None]
    size = np.mean(known, axis=0) if len(known) == len(judged) else None
    rows = []
    for i in np.argsort(ratio, kind="stable").tolist():
        gain = _percent(-ratio[i], -drawn[i], level, sign=-1)
        behind = _percent(ratio[i] - ratio[best], drawn[i] - drawn[best], level, sign=1)
        numbers = {field: float(values[i]) for field, values in means.items()}
        verdict = _verdict(gain, corrected[i], None if i == base else reference)
        if i == best:
            verdict += "; the best here"
        elif from_best[i] >= _SIGNIFICANT:
            verdict += "; cannot be told from the best"
        if numbers["error"] != means["error"][base]:
            verdict += f"; of a classifier that is wrong in {numbers['error']:.1%}"
        rows.append(
            Row(
                method=methods[i],
                bytes=None if size is None else float(size[i]),
                gain=gain,
                p=float(p[i]),
                p_holm=float(corrected[i]),
                behind=behind,
                verdict=verdict,
                **numbers,
            )
        )
    counted = sum(one.runs for one in judged), sum(one.points for one in judged)
    return Board(name, reference, *counted, rows)


def _drawn_ratio(judged: Judged, base: int) -> Floats:
    """Log-ratios under other points and other runs, (methods, resamples)."""
    each = np.array([_log_ratio(run, run[base]) for run in judged.each])
    other_runs: Floats = judged.luck @ (each - each.mean(axis=0))
    return _log_ratio(judged.drawn, judged.drawn[base]) + other_runs.T


def _log_ratio(ours: Floats, base: Floats) -> Floats:
    """Of a perfect ranking, as if it had a thousandth of the mean E-AURC: 0 has no logarithm."""
    least = 1e-3 * float(np.mean(ours)) or 1.0  # all are perfect
    ratio: Floats = np.log(np.maximum(ours, least)) - np.log(np.maximum(base, least))
    return ratio


def _percent(estimate: float, drawn: Floats, level: float, *, sign: int) -> Interval:
    """100 (1 − e^−x) for what is saved, 100 (e^x − 1) for what is on top."""
    tail = (1 - level) / 2
    ends = (estimate, *np.quantile(drawn, [tail, 1 - tail]))
    return Interval(*(0.0 + float(100 * sign * np.expm1(sign * end)) for end in ends))  # no -0.0


def _p_values(drawn: Floats) -> Floats:
    """Twice the share of resamples on the rarer side of 0, counting the data themselves."""
    below, above = (drawn <= 0).sum(axis=1), (drawn >= 0).sum(axis=1)
    p: Floats = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + drawn.shape[1]))
    return p


def _holm(p: Floats, reference: int) -> Floats:
    """Holm (1979): the smallest p times how many there are, the next times one fewer, rising."""
    corrected = np.ones_like(p)
    others = [i for i in np.argsort(p, kind="stable") if i != reference]
    reached = 0.0
    for rank, i in enumerate(others):
        reached = max(reached, min(1.0, float(p[i]) * (len(others) - rank)))
        corrected[i] = reached
    return corrected


def _verdict(gain: Interval, p: float, reference: str | None) -> str:
    if reference is None:
        return "the reference"
    if p >= _SIGNIFICANT:
        return f"cannot be told from {reference}"
    better = gain.estimate > 0
    return f"{'better' if better else 'worse'} than {reference} by {abs(gain.estimate):.1f} %"
