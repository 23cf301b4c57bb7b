"""`compare`: every method on the same points, with intervals that know of seeds and of points.

Each run's points are halved: what must learn does so on one half and is judged on the other, and
the other way round; what learns nothing is judged on the same halves. Points are resampled within
halves, the same ones for all methods and for all runs of a data set; how far runs differ adds to
an interval what Student's t makes of so many. One run speaks of its points alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.evaluation._board import SIGNIFICANT, board
from snapsure.evaluation._contest import Contest, contest
from snapsure.evaluation._judge import AREAS
from snapsure.evaluation._methods import RANKED, refuse_unknown
from snapsure.evaluation._protocol import Halves, Protocol
from snapsure.evaluation._result import Comparison
from snapsure.evaluation._run import Run
from snapsure.table import ScoreTable

Runs = Run | ScoreTable | Sequence[Run | ScoreTable]

ALL = "all data sets"


def compare(
    runs: Runs | Mapping[str, Runs],
    *,
    reference: str | None = None,
    methods: Sequence[str] = RANKED,
    metric: str = "eaurc",
    protocol: Protocol | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Rank every way to a confidence, with its price and with intervals.

    Parameters
    ----------
    runs : ScoreTable, Run, a sequence of them, or a mapping of data sets to these
        Several runs of a data set must be of the same points: seeds of one training.
    reference : str, optional
        The method that gains are against: the table's first κ, of the final snapshot, if not given.
    methods : sequence of str
        Which kinds of methods.
    metric : "eaurc", "aurc" or "augrc"
        What they are ranked by. E-AURC is against a classifier's own best order: to tell
        classifiers with different errors apart, rank by AURC.
    protocol : Protocol, optional
        Which points methods learn from and are judged on; `Halves(seed)` if not given.
    resamples, level, seed
        Of the bootstrap, and of the halves. A p-value is at least 2 / (resamples + 1).

    Returns
    -------
    Comparison
        Gains are percent of the reference's metric; p-values are corrected by Holm's method.

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
    for name, some in groups.items():
        _refuse_unlike(name, some)
    refuse_unknown(methods)
    if metric not in AREAS:
        raise InvalidInput(
            f"`metric` must be one of {', '.join(AREAS)}, got {metric!r}: choose one"
        )
    protocol = Halves(seed) if protocol is None else protocol
    found = {
        name: contest(some, methods, protocol, resamples, seed, i, metric)
        for i, (name, some) in enumerate(groups.items())
    }
    _refuse_few(resamples, max(len(one.methods) for one in found.values()))
    shared = _shared(list(found.values()))
    base = _reference(shared, reference, groups)
    boards = {name: board(name, [one], base, level) for name, one in found.items()}
    pooled = board(ALL, [one.of(shared) for one in found.values()], base, level)
    return Comparison(boards, pooled if len(boards) > 1 else None, level, resamples)


def _refuse_few(resamples: int, methods: int) -> None:
    """The least p-value, corrected for all methods, must be able to tell something."""
    least = int(2 * methods / SIGNIFICANT)
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


def _refuse_unlike(name: str, runs: Sequence[Run]) -> None:
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


def _shared(found: Sequence[Contest]) -> list[str]:
    """What all data sets have, in the order of the first."""
    return [name for name in found[0].methods if all(name in one.methods for one in found)]


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
