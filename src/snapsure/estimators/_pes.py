"""PES, pointwise early stopping: algorithm 1 of the paper.

Two repairs of its pseudo-code. The layer takes the q lowest points with the ties at its edge, where
the paper's `<` loses a point, and an empty layer under ties. The loop ends when nothing is left.
"""

import math
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure.estimators._table import best_snapshot, fitted, read_json, table_of, write_json
from snapsure.metrics import eaurc


class PES:
    """Confidence from, layer by layer, the snapshot that ranks that layer best.

    Layers go from the least to the most confident points. A point belongs to the first layer whose
    snapshot gives it no more than the layer's threshold; its confidence is the number of the layer
    plus its κ there.

    Parameters
    ----------
    layer : float
        Size of a layer as a share of the points it is fitted on.

    Attributes
    ----------
    layers_ : list of (snapshot index, theta)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(300) < 0.3
    >>> kappa = np.stack([rng.random(300), np.where(errors, 0.3, 0.7) * rng.random(300)])
    >>> pes = PES().fit(kappa, errors)
    >>> [snapshot for snapshot, theta in pes.layers_]
    [0, 1, 1]
    """

    def __init__(self, layer: float = 1 / 3) -> None:
        self.layer = _validate.fraction(layer, "layer")
        self.layers_: list[tuple[int, float]] | None = None
        self._snapshots: int | None = None

    def fit(self, kappa: ArrayLike, errors: ArrayLike) -> "PES":
        """Choose layers, snapshots and thresholds on held-out points.

        Parameters
        ----------
        kappa : (T, n)
            κ of every snapshot, the final one last.
        errors : (n,)
            Where the final classifier is wrong.
        """
        table = table_of(kappa)
        wrong = _validate.errors(errors, table.shape)
        size = max(1, math.floor(self.layer * wrong.size + 1e-9))
        left, layers, j = np.arange(wrong.size), [], len(table) - 1
        while left.size:
            scores = table[j, left]
            edge = np.partition(scores, min(size, left.size) - 1)[min(size, left.size) - 1]
            inside = scores <= edge
            rows = table[:, left[inside]]
            excess = eaurc(rows, wrong[left[inside]])
            j = best_snapshot(excess)
            layers.append((j, float(rows[j].max())))
            left = left[~inside]
        self.layers_, self._snapshots = layers, len(table)
        return self

    def confidence(self, kappa: ArrayLike) -> NDArray[np.float64]:
        """Layer plus κ, (n,): an order, not a probability."""
        layers = fitted(self.layers_, "PES")
        table = table_of(kappa, self._snapshots)
        result = np.full(table.shape[1], np.nan)
        for i, (j, theta) in enumerate(layers):
            final = i == len(layers) - 1
            here = np.isnan(result) & (final | (table[j] <= theta))
            result[here] = i + table[j, here]
        return result

    def save(self, path: str | Path) -> None:
        """Write the fitted layers as JSON."""
        layers = fitted(self.layers_, "PES")
        content = {"layer": self.layer, "layers": layers, "snapshots": self._snapshots}
        write_json(path, "PES", content)

    @classmethod
    def load(cls, path: str | Path) -> "PES":
        """Read what `save` wrote."""
        content = read_json(path, "PES")
        pes = cls(content["layer"])
        pes.layers_ = [(int(j), float(theta)) for j, theta in content["layers"]]
        pes._snapshots = content["snapshots"]
        return pes
