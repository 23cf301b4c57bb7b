"""MaxLogit-pNorm: the largest logit, in units of all of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.estimators._logits import Floats, log_odds, softmax_response
from snapsure.estimators._table import EQUAL, fitted, read_json, write_json
from snapsure.metrics import aurc


class MaxLogitPNorm:
    """Confidence = max (z − z̄) / ‖z − z̄‖ₚ of the final logits z, z̄ their mean over the classes.

    Cattelan & Silva 2024 (How to Fix a Broken Confidence Estimator). p has the least AURC on
    held-out points among 0, 1, …, 9, the grid of the authors' own code, the smallest of equals. As
    theirs, it falls back to the softmax response unless that is worse.

    ‖·‖₀ counts the logits that are not 0, so p = 0 gives the centred maximum over the number of
    classes. A temperature would divide every confidence by the same number, so none is fitted; the
    paper's variants that need one (softmax of the normalised logits) are left out. Of two classes
    the centred logits are ±a, and all p > 0 give the same to every point: it falls back.

    Parameters
    ----------
    grid : sequence of float
        The p to choose from, each ≥ 0.

    Attributes
    ----------
    p_ : float or None
        The p chosen; None where it has fallen back to the softmax response.

    Examples
    --------
    >>> logits = [[9.0, 8.0, 0.0], [2.0, 0.0, 0.0], [3.0, 0.0, 0.0], [8.0, 6.5, 0.0]]
    >>> model = MaxLogitPNorm().fit(logits, errors=[1, 0, 0, 1])
    >>> model.p_
    1.0
    >>> model.confidence(logits).round(3).tolist()
    [0.294, 0.5, 0.5, 0.328]
    """

    def __init__(self, grid: Sequence[float] = tuple(range(10))) -> None:
        self.grid = [_validate.at_least(p, 0, "grid") for p in grid]
        if not self.grid:
            raise InvalidInput("`grid` must hold at least one p, got none: leave it out")
        self._p: tuple[float | None] | None = None  # what is in it may be None, too

    @property
    def p_(self) -> float | None:
        """The p chosen, None for the softmax response."""
        (p,) = fitted(self._p, "MaxLogitPNorm")
        return None if p is None else float(p)

    def fit(self, logits: ArrayLike, errors: ArrayLike) -> "MaxLogitPNorm":
        """Choose p on held-out points.

        Parameters
        ----------
        logits : (n, classes)
            Of the final snapshot.
        errors : (n,)
            Where the final classifier is wrong.
        """
        z = _validate.logits(logits)
        wrong = _validate.errors(errors, z.shape[:1], of="logits")
        areas = np.array([aurc(_normalised(z, p), wrong) for p in self.grid])
        better = z.shape[1] > 2 and areas.min() < aurc(log_odds(z), wrong) - EQUAL
        equals = np.flatnonzero(areas <= areas.min() + EQUAL)
        self._p = (min(self.grid[i] for i in equals) if better else None,)
        return self

    def confidence(self, logits: ArrayLike) -> Floats:
        """The largest normalised logit, (n,): an order, not a probability."""
        z = _validate.logits(logits)
        return softmax_response(z) if self.p_ is None else _normalised(z, self.p_)

    def save(self, path: str | Path) -> None:
        """Write p as JSON."""
        write_json(path, "MaxLogitPNorm", {"grid": self.grid, "p": self.p_})

    @classmethod
    def load(cls, path: str | Path) -> "MaxLogitPNorm":
        """Read what `save` wrote."""
        content = read_json(path, "MaxLogitPNorm", "p")
        model = cls(content["grid"])
        model._p = (content["p"],)
        return model


def _normalised(z: Floats, p: float) -> Floats:
    """Confidences; 0 for a row of equal logits, which favours nothing."""
    centred = z - z.mean(axis=1, keepdims=True)
    size = np.abs(centred)
    scale = size.max(axis=1)
    flat = scale == 0
    scale[flat] = 1
    if p == 0:
        norm = np.count_nonzero(size, axis=1).astype(np.float64)
    else:
        norm = scale * ((size / scale[:, None]) ** p).sum(axis=1) ** (1 / p)
    norm[flat] = 1
    confidence: Floats = centred.max(axis=1) / norm
    return confidence
