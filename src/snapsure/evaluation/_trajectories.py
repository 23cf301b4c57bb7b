"""`trajectories`: what training does to confidence in easy and in hard examples (section 4)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats, Matrix
from snapsure.estimators._base import best_snapshot
from snapsure.metrics import RCCurve, eaurc, rc_curve


class Trajectories(NamedTuple):
    """Numbers along the snapshots, of the surest examples ("green") and the least sure ("red").

    Examples
    --------
    >>> kappa = [[0.6, 0.7, 0.2, 0.1], [0.8, 0.9, 0.3, 0.1]]
    >>> trajectories(kappa, errors=[False, False, True, False]).green_kappa.round(2).tolist()
    [0.65, 0.85]
    """

    green_kappa: Floats  # (T,) mean κ
    red_kappa: Floats
    green_eaurc: Floats  # (T,) E-AURC within the group
    red_eaurc: Floats
    best: int  # index of the snapshot that ranks the green group best, the latest of equals
    lost: float  # E-AURC of the final snapshot in the green group, less that of the best one


def trajectories(kappa: ArrayLike, errors: ArrayLike, fraction: float = 0.5) -> Trajectories:
    """Return mean κ and E-AURC of the surest and the least sure examples, snapshot by snapshot.

    κ of the final snapshot forms the groups, ties at their edge included. Errors are always those
    of the final classifier.

    `kappa` is (T, n), the final snapshot last, and `errors` (n,). `fraction` is the size of each
    group; the paper uses 0.01 for κ and 0.5 for E-AURC.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = np.sort(rng.random((4, 100)), axis=0)
    >>> result = trajectories(kappa, rng.random(100) < 0.2)
    >>> result.green_kappa.shape, bool(result.green_kappa[-1] > result.red_kappa[-1])
    ((4,), True)
    """
    table = _validate.scores(kappa, ndim=(2,))
    wrong = _validate.errors(errors, table.shape)
    size = max(1, round(_validate.fraction(fraction, "fraction") * wrong.size))
    final = np.sort(table[-1])
    green, red = table[-1] >= final[-size], table[-1] <= final[size - 1]
    sure: Matrix = table[:, green]
    unsure: Matrix = table[:, red]
    excess = eaurc(sure, wrong[green])
    best = best_snapshot(excess)
    return Trajectories(
        sure.mean(axis=1),
        unsure.mean(axis=1),
        excess,
        eaurc(unsure, wrong[red]),
        best,
        float(excess[-1] - excess[best]),
    )


def best_curve(errors: Bools) -> RCCurve:
    """Return the risk-coverage curve of the best order: right examples first, one by one."""
    place = np.argsort(np.argsort(errors, kind="stable"), kind="stable")
    return rc_curve(-place, errors)
