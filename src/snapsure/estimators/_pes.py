"""PES, pointwise early stopping: algorithm 1 of the paper.

Three repairs of its pseudo-code. The layer takes the q lowest points with the ties at its edge,
where the paper's `<` loses a point, and an empty layer under ties. The loop ends when nothing is
left. And a new point is sent to its layer by the rule that made the layers, `assign="layer"`: the
paper's, `assign="paper"`, asks the snapshot that ranks a layer instead of the one that cut it off,
and one point to which that snapshot gives a high κ opens the layer to most others.
"""

import math
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _validate
from snapsure.estimators._table import (
    Kappa,
    best_snapshot,
    fitted,
    read_json,
    table_of,
    write_json,
)
from snapsure.metrics import eaurc

Assign = Literal["layer", "paper"]

_FORMAT = 2  # files of format 1 have no edges


class Layer(NamedTuple):
    """One layer: the snapshot that ranks it, and what cut it off from the surer points."""

    snapshot: int  # that ranks it
    theta: float  # the largest κ that this snapshot gives to one of its points
    cut: int  # the snapshot that cut it off: the one that ranks the layer before, or the final one
    edge: float  # the largest κ that the cutting snapshot gives to one of its points


class PES:
    """Confidence from, layer by layer, the snapshot that ranks that layer best.

    Layers go from the least to the most confident points. The confidence of a point is the number
    of its layer plus κ of the snapshot that ranks the layer, held below the next layer's number: κ
    of exactly 1 stays below κ of 0 one layer above. Sums are float64, so that within layer i two κ
    remain apart if they differ by the spacing of float64 at i (2⁻⁵¹ in layers 2 and 3).

    Parameters
    ----------
    layer : float
        Size of a layer as a share of the points it is fitted on.
    assign : "layer" or "paper"
        Which layer a point belongs to: the first whose edge is not below κ of the snapshot that cut
        the layer off, which gives every point of `fit` its own layer again; or, to the letter of
        algorithm 1, the first whose theta is not below κ of the snapshot that ranks it. Points
        above all belong to the last.

    Attributes
    ----------
    layers_ : list of Layer
        Named tuples (snapshot, theta, cut, edge), the least confident first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(300) < 0.3
    >>> kappa = np.stack([rng.random(300), np.where(errors, 0.3, 0.7) * rng.random(300)])
    >>> pes = PES().fit(kappa, errors)
    >>> [layer.snapshot for layer in pes.layers_]
    [0, 1, 1]
    >>> np.bincount(pes.layer_of(kappa)).tolist()
    [100, 100, 100]
    """

    def __init__(self, layer: float = 1 / 3, assign: Assign = "layer") -> None:
        self.layer = _validate.fraction(layer, "layer")
        _validate.choice(assign, get_args(Assign), "assign")
        self.assign = assign
        self.layers_: list[Layer] | None = None
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
        left, layers, cut = np.arange(wrong.size), [], len(table) - 1
        while left.size:
            scores = table[cut, left]
            edge = np.partition(scores, min(size, left.size) - 1)[min(size, left.size) - 1]
            inside = scores <= edge
            rows = table[:, left[inside]]
            best = best_snapshot(eaurc(rows, wrong[left[inside]]))
            layers.append(Layer(best, float(rows[best].max()), cut, float(edge)))
            left, cut = left[~inside], best
        self.layers_, self._snapshots = layers, len(table)
        return self

    def layer_of(self, kappa: ArrayLike) -> NDArray[np.int64]:
        """The layer of each point, (n,), 0 for the least confident."""
        layers: list[Layer] = fitted(self.layers_, "PES")
        return self._layer_of(table_of(kappa, self._snapshots), layers)

    def confidence(self, kappa: ArrayLike) -> NDArray[np.float64]:
        """Layer plus κ, (n,): an order, not a probability."""
        layers: list[Layer] = fitted(self.layers_, "PES")
        table = table_of(kappa, self._snapshots)
        at = self._layer_of(table, layers)
        ranked_by = np.array([layer.snapshot for layer in layers])
        sums = at + table[ranked_by[at], np.arange(at.size)]
        below_next = np.where(at < len(layers) - 1, np.nextafter(at + 1.0, 0), np.inf)
        held: NDArray[np.float64] = np.minimum(sums, below_next)
        return held

    def _layer_of(self, table: Kappa, layers: list[Layer]) -> NDArray[np.int64]:
        found = np.full(table.shape[1], len(layers) - 1)
        left = np.ones(table.shape[1], dtype=np.bool_)
        for i, layer in enumerate(layers[:-1]):
            if self.assign == "layer":
                inside = left & (table[layer.cut] <= layer.edge)
            else:
                inside = left & (table[layer.snapshot] <= layer.theta)
            found[inside] = i
            left &= ~inside
        return found

    @property
    def snapshots_(self) -> list[int]:
        """Places of the snapshots whose κ an answer asks for."""
        layers: list[Layer] = fitted(self.layers_, "PES")
        asked = {layer.snapshot for layer in layers}
        if self.assign == "layer":
            asked |= {layer.cut for layer in layers[:-1]}
        return sorted(asked)

    def save(self, path: str | Path) -> None:
        """Write the fitted layers as JSON."""
        layers = fitted(self.layers_, "PES")
        content = {
            "layer": self.layer,
            "assign": self.assign,
            "layers": [layer._asdict() for layer in layers],
            "snapshots": self._snapshots,
        }
        write_json(path, "PES", content, version=_FORMAT)

    @classmethod
    def load(cls, path: str | Path) -> "PES":
        """Read what `save` wrote; a file of an earlier version must be fitted and saved again."""
        content = read_json(path, "PES", version=_FORMAT)
        pes = cls(content["layer"], content["assign"])
        pes.layers_ = [Layer(**layer) for layer in content["layers"]]
        pes._snapshots = content["snapshots"]
        return pes
