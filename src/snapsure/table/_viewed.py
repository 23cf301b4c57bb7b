"""A score table as people look at it: a data frame, or its first points in a notebook."""

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np

from snapsure import _display, _validate
from snapsure._types import Array, Floats, Ints
from snapsure.errors import InvalidInput


class Viewed(ABC):
    """What can be looked at point by point."""

    epochs: Ints
    labels: Ints
    y_hat: Ints
    y: Ints | None

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The κ it has."""

    @abstractmethod
    def kappa(self, name: str) -> Floats:
        """κ of every snapshot, (T, n), by name."""

    def to_frame(self, snapshots: Literal["final", "all"] = "final") -> Any:
        """The points as a `pandas.DataFrame`.

        Parameters
        ----------
        snapshots : "final" or "all"
            κ of the final snapshot, one row per point: (n, columns), the index is `row`. Or of
            all, one row per snapshot and point: (T · n, columns), the index is `epoch` and `row`.

        Returns
        -------
        pandas.DataFrame
            Columns: `y` and `wrong`, where labels are known; `y_hat`, the final classifier's
            prediction; `label`, the snapshot's own, with `snapshots="all"`; one per κ, by its name.

        Examples
        --------
        >>> from snapsure import ScoreTable
        >>> probabilities = [[[0.6, 0.4], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]]
        >>> table = ScoreTable.from_probabilities(probabilities, y=[0, 0])
        >>> table.to_frame()
             y  y_hat  wrong  softmax
        row
        0    0      0  False      0.9
        1    0      1   True      0.7
        >>> table.to_frame("all").loc[1, "softmax"].tolist()
        [0.6, 0.5]
        """
        _validate.choice(snapshots, ("final", "all"), "snapshots")
        rows = np.arange(self.y_hat.size)
        if snapshots == "final":
            columns = self._columns() | {name: self.kappa(name)[-1] for name in self._own_names()}
            return _display.to_frame(columns).rename_axis("row")
        each = {name: np.tile(column, self.epochs.size) for name, column in self._columns().items()}
        each |= {"label": self.labels.ravel()}
        each |= {name: self.kappa(name).ravel() for name in self._own_names()}
        index = {"epoch": np.repeat(self.epochs, rows.size), "row": np.tile(rows, self.epochs.size)}
        return _display.to_frame(index | each).set_index(["epoch", "row"])

    def _columns(self) -> dict[str, Array]:
        """What there is of every point, whatever the snapshot."""
        if self.y is None:
            return {"y_hat": self.y_hat}
        return {"y": self.y, "y_hat": self.y_hat, "wrong": self.y_hat != self.y}

    def _own_names(self) -> list[str]:
        taken = {"epoch", "row", "label", "wrong"} & {*self.names}
        if taken:
            raise InvalidInput(
                f"a κ must have a name that no other column has, got {min(taken)!r}: name it "
                "otherwise"
            )
        return self.names

    def _repr_html_(self) -> str:
        return _display.to_html("score table", self)
