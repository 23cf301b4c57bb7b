"""PES, pointwise early stopping (algorithm 1): c(x) = i + κ(x | f^[K_i]) for x in layer i.

This corrects the pseudo-code in three places. A layer takes the q lowest examples with the ties at
its edge; the paper's `<` loses an example, and makes an empty layer under ties. The loop ends when
no example is left. A new example is assigned by the rule that made the layers (`assign="layer"`):
the paper's (`assign="paper"`) asks the snapshot that ranks a layer instead of the one that cut it
off, and one example to which that snapshot gives a high κ opens the layer to most others.
"""

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from msgspec import Meta

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints, Matrix
from snapsure.estimators._base import Estimator, Fitted, State, best_snapshot, rows_of
from snapsure.metrics import eaurc
from snapsure.table import ScoreTable

Assign = Literal["layer", "paper"]


class Layer(NamedTuple):
    """One layer: the snapshot that ranks it, and the one that cut it off from surer examples."""

    epoch: int  # of the snapshot that ranks it
    theta: float  # the largest κ that this snapshot gives to one of its examples
    cut: int  # epoch of the snapshot that cut it off: that of the layer before, or the final one
    edge: float  # the largest κ that the cutting snapshot gives to one of its examples


class _FittedPES(Fitted):
    layers: Annotated[list[Layer], Meta(min_length=1)]


class PES(Estimator):
    """Use, for each layer of confidence, the snapshot that ranks that layer best.

    Layers go from the least to the most confident examples. The confidence of an example is the
    number of its layer plus κ of the snapshot that ranks the layer, kept below the next layer's
    number: κ of exactly 1 stays below κ of 0 one layer above. Sums are float64, so within layer i
    two κ stay apart if they differ by the spacing of float64 at i (2⁻⁵¹ in layers 2 and 3).

    Parameters
    ----------
    layer : float
        Size of a layer as a share of the examples it is fitted on.
    assign : "layer" or "paper"
        How examples find their layer. "layer": the first layer whose edge is not below κ of the
        snapshot that cut it off, which assigns every example of `fit` to its own layer again.
        "paper": as algorithm 1 is written, the first whose theta is not below κ of the snapshot
        that ranks it. Examples above all edges belong to the last layer.

    Attributes
    ----------
    layers_ : list of Layer
        Named tuples (epoch, theta, cut, edge), the least confident first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> errors = rng.random(300) < 0.3
    >>> kappa = np.stack([rng.random(300), np.where(errors, 0.3, 0.7) * rng.random(300)])
    >>> table = ScoreTable.from_kappa(kappa, errors)
    >>> pes = PES().fit(table)
    >>> [layer.epoch for layer in pes.layers_]
    [1, 2, 2]
    >>> np.bincount(pes.layer_of(table)).tolist()
    [100, 100, 100]
    """

    fitted_type: ClassVar[type] = _FittedPES

    def __init__(self, layer: float = 1 / 3, assign: Assign = "layer") -> None:
        super().__init__()
        self.layer = _validate.fraction(layer, "layer")
        _validate.choice(assign, get_args(Assign), "assign")
        self.assign = assign

    @property
    def settings(self) -> dict[str, Any]:
        """Return the size of a layer, and how examples find theirs."""
        return {"layer": self.layer, "assign": self.assign}

    @property
    def layers_(self) -> list[Layer]:
        """The layers, the least confident first."""
        return [Layer(*layer) for layer in self.fitted["layers"]]

    def layer_of(self, table: ScoreTable) -> Ints:
        """Return the layer of each example, (n,), 0 for the least confident."""
        return self._layer_of(table, self.fitted["kappa"], self.layers_)

    def _learn(self, table: ScoreTable, kappa: str) -> State:
        layers = self._layers(table.kappa(kappa), table.errors, table.epochs)
        asked = {layer.epoch for layer in layers}
        if self.assign == "layer":
            asked |= {layer.cut for layer in layers[:-1]}
        return {"epochs": sorted(asked), "layers": layers}

    def _layers(self, kappa: Floats, wrong: Bools, epochs: Ints) -> list[Layer]:
        size = max(1, math.floor(self.layer * wrong.size + 1e-9))
        left, layers, cut = np.arange(wrong.size), [], len(kappa) - 1
        while left.size:
            scores = kappa[cut, left]
            edge = np.partition(scores, min(size, left.size) - 1)[min(size, left.size) - 1]
            inside = scores <= edge
            rows: Matrix = kappa[:, left[inside]]
            best = best_snapshot(eaurc(rows, wrong[left[inside]]))
            theta = float(rows[best].max())
            layers.append(Layer(int(epochs[best]), theta, int(epochs[cut]), float(edge)))
            left, cut = left[~inside], best
        return layers

    def _answer(self, table: ScoreTable, kappa: str, state: State) -> Floats:
        layers = [Layer(*layer) for layer in state["layers"]]
        at = self._layer_of(table, kappa, layers)
        ranked = rows_of(table, kappa, [layer.epoch for layer in layers])
        sums = at + ranked[at, np.arange(at.size)]
        below_next = np.where(at < len(layers) - 1, np.nextafter(at + 1.0, 0), np.inf)
        held: Floats = np.minimum(sums, below_next)
        return held

    def _layer_of(self, table: ScoreTable, kappa: str, layers: list[Layer]) -> Ints:
        found = np.full(table.y_hat.size, len(layers) - 1)
        left = np.ones(table.y_hat.size, dtype=np.bool_)
        for i, layer in enumerate(layers[:-1]):
            by_cut = self.assign == "layer"
            asked, limit = (layer.cut, layer.edge) if by_cut else (layer.epoch, layer.theta)
            inside = left & (rows_of(table, kappa, [asked])[0] <= limit)
            found[inside] = i
            left &= ~inside
        return found
