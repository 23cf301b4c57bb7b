"""AES, averaged early stopping: section 5.2 of the paper."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure._spacing import choose
from snapsure.estimators._table import epochs_of, table_of


class AES:
    """Confidence = mean of κ over k snapshots evenly spaced from the fraction `start` to the end.

    Needs no labels. With fewer snapshots than asked for, each is used once.

    Parameters
    ----------
    k : int
        Snapshots to average.
    start : float
        Where to begin, in [0, 1); the paper's 0.4 leaves out the first two fifths of training.

    Examples
    --------
    >>> kappa = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6], [0.5, 0.5]])
    >>> AES(k=2).confidence(kappa).tolist()  # of epochs 2 and 5
    [0.35, 0.65]
    """

    def __init__(self, k: int = 30, start: float = 0.4) -> None:
        self.k = _validate.count(k, "k")
        self.start = _validate.share(start, "start")

    def snapshots(self, epochs: ArrayLike) -> NDArray[np.int64]:
        """Indices of the snapshots that are averaged."""
        known = epochs_of(epochs, np.size(epochs))
        return choose(known, self.k, self.start)

    def confidence(self, kappa: ArrayLike, epochs: ArrayLike | None = None) -> NDArray[np.float64]:
        """Mean κ of each point.

        Parameters
        ----------
        kappa : (T, n)
            κ of every snapshot, the final one last.
        epochs : (T,), optional
            Their epochs; 1 … T if not given.
        """
        table = table_of(kappa)
        chosen = self.snapshots(epochs_of(epochs, len(table)))
        mean: NDArray[np.float64] = table[chosen].mean(axis=0)
        return mean
