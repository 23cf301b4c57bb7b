"""The numbers that scoring leaves and everything else works on: κ of every snapshot and point.

How it lies on disk: `_pieces.py`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints, Matrix
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table._pieces import (
    RESERVED,
    TABLE,
    Layout,
    described,
    layout_in,
    replacing,
    writer_of,
)
from snapsure.table._viewed import Viewed

_SUM_TOLERANCE = 1e-3
_OTHERS = 0.01  # rows whose largest logit may be another class: logits may have been rounded


class ScoreTable(Viewed):
    """κ of T snapshots for n points, with what the final snapshot predicts.

    Made by `score`, by `ScoreTable.from_probabilities`, or read by `ScoreTable.open`.

    Attributes
    ----------
    epochs : (T,) int array
        Rising.
    labels : (T, n) int array
        Each snapshot's own prediction.
    y_hat : (n,) int array
        The final classifier's prediction: κ of every snapshot is the confidence in this.
    y : (n,) int array or None
        The true labels, where known; −1 for a point that belongs to none of the classes, so that
        every answer to it is wrong.
    logits : (n, classes) array or None
        The final snapshot's, where known: what temperature scaling and MaxLogit-pNorm work on.
    provenance : dict
        What the scores are of, as `score` noted it: hashes of snapshots and inputs, settings of κ.

    Examples
    --------
    >>> probabilities = np.array([[[0.6, 0.4], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]])
    >>> table = ScoreTable.from_probabilities(probabilities, y=[0, 0])
    >>> table.kappa("softmax").tolist()
    [[0.6, 0.5], [0.9, 0.7]]
    >>> table.errors.tolist()
    [False, True]
    """

    def __init__(
        self,
        kappas: Mapping[str, ArrayLike],
        labels: ArrayLike,
        y: ArrayLike | None = None,
        *,
        y_hat: ArrayLike | None = None,
        epochs: ArrayLike | None = None,
        logits: ArrayLike | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self._kappas = {
            name: _validate.scores(kappa, f"kappas[{name!r}]", ndim=(2,))
            for name, kappa in kappas.items()
        }
        if not self._kappas:
            raise InvalidInput("`kappas` must name at least one κ, got none: pass {name: (T, n)}")
        shape = next(iter(self._kappas.values())).shape
        for name, kappa in self._kappas.items():
            _same_shape(f"kappas[{name!r}]", kappa.shape, shape)
            if kappa.min() < 0 or kappa.max() > 1:
                raise InvalidInput(
                    f"`kappas[{name!r}]` must lie in [0, 1], got {kappa.min():.6g} … "
                    f"{kappa.max():.6g}: map the score to [0, 1] first"
                )
            if name in RESERVED or not name.replace("_", "").isalnum():
                raise InvalidInput(
                    f"`kappas` must have names of letters, digits and _, and none of "
                    f"{', '.join(RESERVED)}, got {name!r}: name it otherwise"
                )
        self.labels = _validate.class_numbers(labels, "labels")
        _same_shape("labels", self.labels.shape, shape)
        self.y_hat = self.labels[-1] if y_hat is None else _validate.class_numbers(y_hat, "y_hat")
        _same_shape("y_hat", self.y_hat.shape, shape[1:])
        self.y = None if y is None else _validate.class_numbers(y, "y")
        if self.y is not None:
            _same_shape("y", self.y.shape, shape[1:])
        numbers = (
            np.arange(1, shape[0] + 1)
            if epochs is None
            else _validate.whole_numbers(epochs, "epochs")
        )
        _same_shape("epochs", numbers.shape, shape[:1])
        if (np.diff(numbers) <= 0).any():
            raise InvalidInput(
                f"`epochs` must rise, got {numbers.tolist()}: sort the snapshots by epoch"
            )
        self.epochs = numbers
        self.logits = None if logits is None else _logits(logits, self.y_hat)
        self.provenance = dict(provenance or {})

    @classmethod
    def trusted(
        cls,
        kappas: Mapping[str, Floats],
        labels: Ints,
        y_hat: Ints,
        epochs: Ints,
        logits: Floats | None,
        y: Ints | None,
    ) -> "ScoreTable":
        """A table of what this package has just computed: nothing is checked again."""
        table = cls.__new__(cls)
        table._kappas, table.labels, table.y_hat, table.epochs = dict(kappas), labels, y_hat, epochs
        table.y, table.logits, table.provenance = y, logits, {}
        return table

    def __repr__(self) -> str:
        """Names and sizes."""
        snapshots, points = self.labels.shape
        return f"<ScoreTable: {', '.join(self.names)}; {snapshots} snapshots × {points} points>"

    @property
    def names(self) -> list[str]:
        """The κ it has."""
        return list(self._kappas)

    @property
    def errors(self) -> Bools:
        """Where the final classifier is wrong, (n,)."""
        if self.y is None:
            raise InvalidInput(
                "`y` must be known to tell errors, got a table without labels: score data that has "
                "labels"
            )
        wrong: Bools = self.y_hat != self.y
        return wrong

    def kappa(self, name: str) -> Matrix:
        """κ of every snapshot, (T, n), by name."""
        if name not in self._kappas:
            raise InvalidInput(
                f"`name` must be one of {', '.join(self.names)}, got {name!r}: "
                "score that κ first, or choose one of these"
            )
        return self._kappas[name]

    def rows(self, index: ArrayLike) -> "ScoreTable":
        """The table of some of the points only."""
        at = np.asarray(index)
        return ScoreTable(
            {name: kappa[:, at] for name, kappa in self._kappas.items()},
            self.labels[:, at],
            None if self.y is None else self.y[at],
            y_hat=self.y_hat[at],
            epochs=self.epochs,
            logits=None if self.logits is None else self.logits[at],
            provenance=self.provenance,
        )

    def select(self, epochs: Iterable[int]) -> "ScoreTable":
        """The table of some of the snapshots only, the final one among them."""
        wanted = sorted({int(epoch) for epoch in epochs})
        places = np.flatnonzero(np.isin(self.epochs, wanted))
        if places.size < len(wanted) or self.epochs[-1] not in wanted:
            raise InvalidInput(
                f"`epochs` must be some of the table's {self.epochs.size}, its last "
                f"({self.epochs[-1]}) among them, got {wanted}: see .epochs"
            )
        return ScoreTable(
            {name: kappa[places] for name, kappa in self._kappas.items()},
            self.labels[places],
            self.y,
            y_hat=self.y_hat,
            epochs=self.epochs[places],
            logits=self.logits,
            provenance=self.provenance,
        )

    def with_logits(self, logits: ArrayLike) -> "ScoreTable":
        """The same table with the final snapshot's logits, (n, classes)."""
        return ScoreTable(
            self._kappas,
            self.labels,
            self.y,
            y_hat=self.y_hat,
            epochs=self.epochs,
            logits=logits,
            provenance=self.provenance,
        )

    def split(self, fraction: float, seed: int = 0) -> tuple["ScoreTable", "ScoreTable"]:
        """Cut the points at random into a `fraction` of them and the rest.

        Examples
        --------
        >>> table = ScoreTable({"softmax": np.random.rand(3, 10)}, np.zeros((3, 10), dtype=int))
        >>> [part.labels.shape for part in table.split(0.7)]
        [(3, 7), (3, 3)]
        """
        share = _validate.fraction(fraction, "fraction", open_above=True)
        n = self.y_hat.size
        cut = round(share * n)
        if not 0 < cut < n:
            raise InvalidInput(
                f"`fraction` must leave points on both sides, got {fraction} of {n}: "
                "choose another, or score more points"
            )
        some, rest = random_cut(n, cut, seed)
        return self.rows(some), self.rows(rest)

    @classmethod
    def from_kappa(
        cls,
        kappa: ArrayLike,
        errors: ArrayLike | None = None,
        epochs: ArrayLike | None = None,
        *,
        name: str = "softmax",
    ) -> "ScoreTable":
        """Make a table of a bare array of κ, of any framework.

        Parameters
        ----------
        kappa : (T, n)
            In [0, 1], the final snapshot last.
        errors : (n,), optional
            Where the final classifier is wrong. What it predicts is not known: y_hat is 0 for
            every point, and y is 0 or 1.
        epochs : (T,), optional
            1 … T if not given: give them where some of a run's snapshots are left out.
        name : str
            What κ is called.

        Examples
        --------
        >>> ScoreTable.from_kappa([[0.5, 0.6], [0.9, 0.7]], errors=[0, 1])
        <ScoreTable: softmax; 2 snapshots × 2 points>
        """
        values = _validate.scores(kappa, ndim=(2,))
        y = None if errors is None else _validate.errors(errors, values.shape).astype(np.int64)
        labels = np.zeros(values.shape, np.int64)
        return cls({name: values}, labels, y, epochs=epochs)

    @classmethod
    def from_probabilities(
        cls, probs: ArrayLike, y: ArrayLike | None = None, epochs: ArrayLike | None = None
    ) -> "ScoreTable":
        """Make a table of the softmax response from class probabilities, of any framework.

        Parameters
        ----------
        probs : (T, n, classes)
            What each snapshot gives each class, the final snapshot last.
        y : (n,), optional
            True labels, 0 … classes − 1, or −1 for points of none of the classes.
        epochs : (T,), optional
            1 … T if not given.
        """
        given = _validate.numbers(probs, "probs")
        with np.errstate(over="ignore", invalid="ignore"):  # what no sum of 1 has is refused below
            p = given.astype(np.float64)
            off = np.abs(p.sum(axis=-1) - 1) if p.ndim else p
        if p.ndim != 3 or not p.size:
            raise InvalidInput(
                f"`probs` must be (snapshots, points, classes), got shape {p.shape}: "
                "stack one array of class probabilities per snapshot"
            )
        if not (off.max() <= _SUM_TOLERANCE and p.min() >= 0):
            t, i = np.unravel_index(int(np.argmax(np.nan_to_num(off, nan=np.inf))), off.shape)
            total = sum(p[t, i].tolist())
            raise InvalidInput(
                "`probs` must be ≥ 0 and sum to 1 over the classes, "
                f"got a sum of {total:.6g} at snapshot {t}, row {i}: apply softmax first"
            )
        labels = p.argmax(axis=2)
        if y is not None:
            _validate.in_range(_validate.class_numbers(y, "y"), p.shape[2], "`y`")
        chosen = np.take_along_axis(p, labels[-1][None, :, None], axis=2)[:, :, 0]
        return cls({"softmax": np.minimum(chosen, 1.0)}, labels, y, epochs=epochs)

    def save(self, path: str | Path) -> None:
        """Write the table to a folder; one that is there is replaced, whole or not at all.

        Raises
        ------
        InvalidInput
            If scores are there that are not finished: they would be mixed with these.
        """
        epochs, shards = self.epochs.tolist(), [self.y_hat.size]
        told = described(
            self.names,
            epochs,
            shards,
            self.y is not None,
            has_logits=self.logits is not None,
            provenance=self.provenance,
        )
        with replacing(Path(path), told) as to:
            for i, epoch in enumerate(epochs):
                to.write("labels", epoch, 0, self.labels[i])
                for name, kappa in self._kappas.items():
                    to.write(name, epoch, 0, kappa[i])
            to.write("y_hat", None, 0, self.y_hat)
            if self.y is not None:
                to.write("y", None, 0, self.y)
            if self.logits is not None:
                to.write("logits", None, 0, self.logits)

    @classmethod
    def open(cls, path: str | Path) -> "ScoreTable":
        """Read a table from its folder; files are mapped, not copied, until they are stacked."""
        folder = Path(path)
        while True:
            layout = layout_in(folder)
            if layout is None:
                raise InvalidInput(
                    f"{folder} must hold a finished score table, got no {TABLE}: "
                    "check the path, or let scoring finish"
                )
            try:
                return cls._read(folder, layout)
            except CorruptFile:
                if layout_in(folder) == layout:
                    raise  # else it was replaced meanwhile

    @classmethod
    def _read(cls, folder: Path, layout: Layout) -> "ScoreTable":
        reader = writer_of(folder, layout)
        return cls(
            {name: reader.read_all(name) for name in layout["names"]},
            reader.read_all("labels"),
            reader.read_row("y", None) if layout["has_labels"] else None,
            y_hat=reader.read_row("y_hat", None),
            epochs=layout["epochs"],
            logits=reader.read_row("logits", None) if layout["has_logits"] else None,
            provenance=layout["provenance"],
        )


def _logits(value: ArrayLike, y_hat: Ints) -> Floats:
    x = _validate.logits(value)
    n = y_hat.size
    if len(x) != n:
        raise InvalidInput(
            f"`logits` must be ({n}, classes), as the table has {n} points, got shape "
            f"{x.shape}: pass the final snapshot's, of the same points"
        )
    if (x.argmax(axis=1) != y_hat).mean() > _OTHERS:
        raise InvalidInput(
            "`logits` must be those that the table's y_hat comes from, got others in more than "
            "1 % of the rows: pass the final snapshot's, of the same points"
        )
    return x


def _same_shape(name: str, got: tuple[int, ...], want: tuple[int, ...]) -> None:
    if got != want:
        raise InvalidInput(f"`{name}` must have shape {want}, got {got}: pass the same points")


def random_cut(n: int, cut: int, seed: int) -> tuple[Ints, Ints]:
    """So many of n rows at random, and the rest, each in order."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:cut]), np.sort(order[cut:])
