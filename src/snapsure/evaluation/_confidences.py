"""How sure each method is of each point, by what it learnt from other points."""

from collections.abc import Sequence

import numpy as np

from snapsure import _validate
from snapsure._types import Floats
from snapsure.errors import InvalidInput
from snapsure.evaluation._judge import judge
from snapsure.evaluation._methods import SHOWN, Method, methods_of, refuse_unknown
from snapsure.evaluation._protocol import Halves
from snapsure.evaluation._run import Run
from snapsure.table import ScoreTable

_FEWEST = 4  # right and wrong points


def confidences(
    table: ScoreTable,
    *,
    names: Sequence[str] | None = None,
    methods: Sequence[str] = SHOWN,
    seed: int = 0,
) -> dict[str, Floats]:
    """The probability of being right that each method gives each point of a table.

    The points are halved. What a method learns, and Platt's curve that makes its confidence a
    probability, are fitted on one half and answer for the other, and the other way round: no point
    is judged by what it was fitted on.

    Parameters
    ----------
    table : ScoreTable
        With labels.
    names : sequence of str, optional
        Which κ; all if not given.
    methods : sequence of str
        Which kinds of methods, as for `evaluate`.
    seed : int
        Of the halves.

    Returns
    -------
    dict of str to (n,) array
        By method and κ, such as `"AES k=30 of softmax"`; `"final of softmax"` is the final
        snapshot's own κ, calibrated.

    Raises
    ------
    InvalidInput
        For a table with fewer than 4 right or 4 wrong points, and for a κ or a kind of method that
        there is not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=rng.random(400) > kappa.mean(axis=0))
    >>> {name: p.shape for name, p in confidences(table, methods=["final", "LES"]).items()}
    {'final of softmax': (400,), 'LES of softmax': (400,)}
    """
    wrong, n = int(table.errors.sum()), table.errors.size
    if min(wrong, n - wrong) < _FEWEST:
        raise InvalidInput(
            f"`table` must have at least {_FEWEST} wrong and {_FEWEST} right points to fit on one "
            f"half and answer for the other, got {wrong} wrong of {n}: score more points"
        )
    refuse_unknown(methods)
    for name in names or ():
        table.kappa(name)  # refuses a κ that is not there
    wanted = table.names if names is None else names
    halves = Halves(_validate.count(seed, "seed", least=0)).parts(n)
    run = Run(table)
    parts = [(run.rows(learn), run.rows(rest), rest) for learn, rest in halves]

    def column(method: Method) -> Floats:
        p = np.empty(n)
        for learn, rest, rows in parts:
            p[rows] = judge(method, learn, rest).p
        return p

    found = [one for one in methods_of(run, methods, alone=True) if one.kappa in wanted]
    order = sorted(found, key=lambda one: (wanted.index(one.kappa), methods.index(one.kind)))
    return {f"{one.kind} of {one.kappa}": column(one) for one in order}
