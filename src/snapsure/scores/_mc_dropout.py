"""MC-dropout: how much the answer's probability moves when units are dropped at random."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure import _validate
from snapsure.scores._base import Forward, Kappa, Values, softmax_of


class MCDropout(Kappa):
    """κ = 1 − 4v, v the variance of softmax[y_hat] over passes with dropout.

    Each pass is one thinned network, the same for all rows: masks are drawn as for a batch of one
    row, from a generator seeded by `seed`, so neither batch size nor row order changes a value, and
    all rows are compared under the same noise. The part of the network before the first dropout is
    run once.

    Parameters
    ----------
    passes : int
        How many, at least 2.
    p : float or None
        The dropout rate of every `nn.Dropout`; None keeps each module's own. Modules whose own rate
        is 0 stay off.
    seed : int
        Fixes the masks.
    """

    def __init__(self, passes: int = 100, p: float | None = 0.5, *, seed: int = 0) -> None:
        self._passes = _validate.count(passes, "passes", least=2)
        self._p = None if p is None else _validate.fraction(p, "p", open_above=True)
        self._seed = _validate.count(seed, "seed", least=0)

    @property
    def name(self) -> str:
        """`mc_dropout`."""
        return "mc_dropout"

    @property
    def stochastic(self) -> bool:
        """It is."""
        return True

    @property
    def settings(self) -> dict[str, Any]:
        """Passes, rate and seed."""
        return {"passes": self._passes, "p": self._p, "seed": self._seed}

    def score(self, forward: Forward, y_hat: NDArray[np.int64], prepared: Any) -> Values:
        """1 − 4 × variance, by Welford's update: no pass is kept."""
        mean = squares = None
        for i, logits in enumerate(forward.samples(self._passes, self._p, self._seed), 1):
            value = softmax_of(logits, y_hat)
            if mean is None or squares is None:
                mean, squares = value, value.new_zeros(value.shape)
            else:
                step = value - mean
                mean = mean + step / i
                squares = squares + step * (value - mean)
        assert squares is not None
        values: Values = (1 - 4 * squares / self._passes).clamp(0, 1).cpu().numpy()
        return values
