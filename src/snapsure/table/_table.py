"""The score table: κ of every snapshot and example. `_pieces.py` has its layout on disk."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _display, _files, _validate
from snapsure._logit_scores import FINAL_NUMBERS, final_numbers
from snapsure._types import Array, Bools, Floats, Ints, Matrix
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table._pieces import (
    RESERVED,
    TABLE,
    Pieces,
    list_columns,
    make_layout,
    read_layout,
    replace_table,
)

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

_SUM_TOLERANCE = 1e-3
# The share of examples whose largest logit may be another class: logits may have been rounded.
_LOGIT_TOLERANCE = 0.01


class Averaged(NamedTuple):
    """What the averaged weights of a training's snapshots answer to n examples.

    Attributes
    ----------
    labels : (n,) int array
        Its own predictions.
    kappa : (n,) array
        Its softmax of these.
    final_kappa : (n,) array
        Its softmax of the final classifier's predictions, `ScoreTable.y_hat`.

    Examples
    --------
    >>> averaged = Averaged(np.array([0, 1]), np.array([0.9, 0.6]), np.array([0.9, 0.4]))
    >>> table = ScoreTable({"softmax": [[0.8, 0.7]]}, [[0, 0]], averaged=averaged)
    >>> (table.averaged.labels == table.y_hat).tolist()
    [True, False]
    """

    labels: Ints
    kappa: Floats
    final_kappa: Floats


class ScoreTable:
    """κ of T snapshots for n examples, with the predictions of the final snapshot.

    `score` and `ScoreTable.from_probabilities` make one, `ScoreTable.open` reads one.

    Attributes
    ----------
    epochs : (T,) int array
        The epoch of each snapshot, rising.
    labels : (T, n) int array
        Each snapshot's own prediction.
    y_hat : (n,) int array
        The final classifier's prediction: κ of every snapshot is the confidence in this.
    y : (n,) int array or None
        The true labels, where known; −1 for an example that belongs to none of the classes, so
        every answer to it is wrong.
    logits : (n, classes) array or None
        The logits of the final snapshot, where known: for temperature scaling and MaxLogit-pNorm.
    final : (n, 5) array or None
        Five numbers of the final logits, where known: entropy, margin, energy, max_logit and gen,
        as the κ functions of these names define them. LES learns from them.
    averaged : Averaged or None
        What the averaged weights of the snapshots answer, where `score` was asked for it.
    provenance : dict
        What was scored, as `score` recorded it: hashes of snapshots and inputs, settings of κ, the
        number of classes.

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
        final: ArrayLike | None = None,
        averaged: Averaged | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self._kappas = {
            name: _validate.scores(kappa, f"kappas[{name!r}]", ndim=(2,))
            for name, kappa in kappas.items()
        }
        if not self._kappas:
            raise InvalidInput("`kappas` must name at least one κ, got none. Pass {name: (T, n)}.")
        shape = next(iter(self._kappas.values())).shape
        for name, kappa in self._kappas.items():
            _check_shape(f"kappas[{name!r}]", kappa, shape)
            _check_bounds(f"kappas[{name!r}]", kappa, "Map the score to [0, 1] first.")
            if name in RESERVED or not name.replace("_", "").isalnum():
                raise InvalidInput(
                    "`kappas` must have names of letters, digits and _, other than "
                    f"{', '.join(RESERVED)}, got {name!r}. Choose another name."
                )

        self.labels = _validate.class_numbers(labels, "labels")
        _check_shape("labels", self.labels, shape)
        self.y_hat = self.labels[-1] if y_hat is None else _validate.class_numbers(y_hat, "y_hat")
        _check_shape("y_hat", self.y_hat, shape[1:])
        self.y = None if y is None else _validate.class_numbers(y, "y")
        if self.y is not None:
            _check_shape("y", self.y, shape[1:])

        if epochs is None:
            epochs = np.arange(1, shape[0] + 1)
        self.epochs = _validate.whole_numbers(epochs, "epochs")
        _check_shape("epochs", self.epochs, shape[:1])
        if (np.diff(self.epochs) <= 0).any():
            raise InvalidInput(
                f"`epochs` must rise, got {self.epochs.tolist()}. Sort the snapshots by epoch."
            )
        self.logits = None if logits is None else _validate_logits(logits, self.y_hat)
        self.final = None
        if final is not None:
            self.final = _validate.scores(final, "final", ndim=(2,))
            _check_shape("final", self.final, (shape[1], len(FINAL_NUMBERS)))
            remedy = f"Pass κ of the final snapshot: {', '.join(FINAL_NUMBERS)}."
            _check_bounds("final", self.final, remedy)
        elif self.logits is not None:
            self.final = final_numbers(self.logits, self.y_hat)
        self.averaged = None
        if averaged is not None:
            self.averaged = Averaged(
                _validate.class_numbers(averaged.labels, "averaged.labels"),
                *(_validate.scores(kappa, "averaged.kappa") for kappa in averaged[1:]),
            )
            for name, column in self.averaged._asdict().items():
                _check_shape(f"averaged.{name}", column, shape[1:])
        self.provenance = dict(provenance or {})

    @classmethod
    def trusted(
        cls,
        kappas: Mapping[str, Floats],
        labels: Ints,
        y_hat: Ints,
        epochs: Ints,
        *,
        y: Ints | None,
        logits: Floats | None,
        final: Floats | None,
    ) -> "ScoreTable":
        """Make a table of arrays that this package has just computed, without checks."""
        arrays = {"labels": labels, "y_hat": y_hat, "epochs": epochs, "y": y, "logits": logits}
        table = cls.__new__(cls)
        vars(table).update(arrays, _kappas=kappas, final=final, averaged=None, provenance={})
        return table

    @classmethod
    def from_kappa(
        cls,
        kappa: ArrayLike,
        errors: ArrayLike | None = None,
        epochs: ArrayLike | None = None,
        *,
        name: str = "softmax",
    ) -> "ScoreTable":
        """Make a table from an array of κ, from any framework.

        Parameters
        ----------
        kappa : (T, n)
            In [0, 1], the final snapshot last.
        errors : (n,), optional
            1 where the final classifier is wrong. Its predictions are unknown: y_hat is 0 for every
            example, and y is 0 or 1.
        epochs : (T,), optional
            1 … T by default. Pass them if some snapshots of a run are left out.
        name : str
            The name of κ.

        Examples
        --------
        >>> ScoreTable.from_kappa([[0.5, 0.6], [0.9, 0.7]], errors=[0, 1])
        <ScoreTable: softmax; 2 snapshots × 2 examples>
        """
        values = _validate.scores(kappa, ndim=(2,))
        y = None if errors is None else _validate.errors(errors, values.shape).astype(np.int64)
        return cls({name: values}, np.zeros(values.shape, np.int64), y, epochs=epochs)

    @classmethod
    def from_probabilities(
        cls, probs: ArrayLike, y: ArrayLike | None = None, epochs: ArrayLike | None = None
    ) -> "ScoreTable":
        """Make a table of the softmax response from class probabilities, from any framework.

        Parameters
        ----------
        probs : (T, n, classes)
            The class probabilities of each snapshot, the final snapshot last.
        y : (n,), optional
            True labels, 0 … classes − 1, or −1 for examples of none of the classes.
        epochs : (T,), optional
            1 … T by default.
        """
        values = _validate.numbers(probs, "probs")
        with np.errstate(over="ignore", invalid="ignore"):  # sums other than 1 are refused below
            p = values.astype(np.float64)
            off = np.abs(p.sum(axis=-1) - 1) if p.ndim else p
        if p.ndim != 3 or not p.size:
            raise InvalidInput(
                f"`probs` must be (snapshots, examples, classes), got shape {p.shape}. "
                "Stack one array of class probabilities per snapshot."
            )
        if not (off.max() <= _SUM_TOLERANCE and p.min() >= 0):
            t, i = np.unravel_index(int(np.argmax(np.nan_to_num(off, nan=np.inf))), off.shape)
            raise InvalidInput(
                "`probs` must be ≥ 0 and sum to 1 over the classes, got a sum of "
                f"{sum(p[t, i].tolist()):.6g} at snapshot {t}, row {i}. Apply softmax first."
            )
        if y is not None:
            _validate.in_range(_validate.class_numbers(y, "y"), p.shape[2], "`y`")

        labels = p.argmax(axis=2)
        kappa = np.take_along_axis(p, labels[-1][None, :, None], axis=2)[:, :, 0]
        log_p = np.log(np.maximum(p[-1], np.finfo(np.float64).tiny))  # logits, but for a constant
        final = final_numbers(log_p, labels[-1])
        return cls(
            {"softmax": np.minimum(kappa, 1.0)},
            labels,
            y,
            epochs=epochs,
            final=final,
            provenance={"classes": p.shape[2]},
        )

    def __repr__(self) -> str:
        """Show the names of κ and the sizes."""
        snapshots, examples = self.labels.shape
        return f"<ScoreTable: {', '.join(self.names)}; {snapshots} snapshots × {examples} examples>"

    @property
    def names(self) -> list[str]:
        """The names of its κ."""
        return list(self._kappas)

    @property
    def errors(self) -> Bools:
        """Where the final classifier is wrong, (n,)."""
        if self.y is None:
            raise InvalidInput(
                "`y` must be known to compute errors, got a table without labels. Score data that "
                "has labels."
            )
        wrong: Bools = self.y_hat != self.y
        return wrong

    def kappa(self, name: str) -> Matrix:
        """Return κ of every snapshot, (T, n), by name."""
        if name not in self._kappas:
            raise InvalidInput(
                f"`kappa` must be one that the table has, {', '.join(self.names)}, got {name!r}. "
                "Choose one of these, or score that κ first."
            )
        return self._kappas[name]

    def rows(self, index: ArrayLike) -> "ScoreTable":
        """Return the table of some of the examples, by their numbers or a mask."""
        at = np.arange(self.y_hat.size)[np.asarray(index)]
        if at.ndim != 1 or not at.size:
            raise InvalidInput(
                f"`index` must choose some of the examples, got shape {at.shape}. Pass their "
                "numbers, or a mask."
            )
        return self._replace(
            _kappas={name: kappa.take(at, axis=1) for name, kappa in self._kappas.items()},
            labels=self.labels.take(at, axis=1),
            averaged=self.averaged and Averaged(*(column[at] for column in self.averaged)),
            **{name: column[at] for name, column in self._columns().items() if name != "averaged"},
        )

    def select(self, epochs: Iterable[int]) -> "ScoreTable":
        """Return the table of some of the snapshots, which must include the final one."""
        wanted = sorted({int(epoch) for epoch in epochs})
        at = np.flatnonzero(np.isin(self.epochs, wanted))
        if at.size < len(wanted) or self.epochs[-1] not in wanted:
            raise InvalidInput(
                f"`epochs` must be some of the table's {self.epochs.size} and include its last "
                f"({self.epochs[-1]}), got {wanted}. See `.epochs`."
            )
        return self._replace(
            _kappas={name: kappa[at] for name, kappa in self._kappas.items()},
            labels=self.labels[at],
            epochs=self.epochs[at],
        )

    def only_averaged(self) -> "ScoreTable":
        """Return the table of the averaged weights alone, as if they were the only snapshot.

        Raises
        ------
        InvalidInput
            If averaged weights were not scored.
        """
        if self.averaged is None:
            raise InvalidInput(
                "`table` must have scores of averaged weights, got none. Score with average=True "
                "(--average on the command line)."
            )
        labels, kappa, _ = self.averaged
        return ScoreTable({"softmax": kappa[None]}, labels[None], self.y, epochs=self.epochs[-1:])

    def with_logits(self, logits: ArrayLike) -> "ScoreTable":
        """Return the same table with the final snapshot's logits, (n, classes)."""
        checked = _validate_logits(logits, self.y_hat)
        return self._replace(logits=checked, final=final_numbers(checked, self.y_hat))

    def split(self, fraction: float, seed: int = 0) -> tuple["ScoreTable", "ScoreTable"]:
        """Split the examples at random into a `fraction` of them and the rest.

        Examples
        --------
        >>> table = ScoreTable({"softmax": np.random.rand(3, 10)}, np.zeros((3, 10), dtype=int))
        >>> [part.labels.shape for part in table.split(0.7)]
        [(3, 7), (3, 3)]
        """
        n = self.y_hat.size
        size = round(_validate.fraction(fraction, "fraction", open_above=True) * n)
        if not 0 < size < n:
            raise InvalidInput(
                f"`fraction` must leave examples on both sides, got {fraction} of {n}. "
                "Use another, or score more examples."
            )
        some, rest = random_cut(n, size, seed)
        return self.rows(some), self.rows(rest)

    def _columns(self) -> dict[str, Array]:
        """Return what it has once per example, by the names of its files."""
        averaged = None if self.averaged is None else np.column_stack(self.averaged)
        columns = {"y_hat": self.y_hat, "y": self.y, "logits": self.logits, "final": self.final}
        columns["averaged"] = averaged
        return {name: column for name, column in columns.items() if column is not None}

    def _replace(self, **changes: Any) -> "ScoreTable":
        """Return this table with other arrays. What was checked as a whole is not checked again."""
        table = copy.copy(self)
        table.provenance = dict(self.provenance)
        vars(table).update(changes)
        return table

    def to_frame(self, snapshots: Literal["final", "all"] = "final") -> "pandas.DataFrame":
        """Return the examples as a `pandas.DataFrame`.

        Parameters
        ----------
        snapshots : "final" or "all"
            "final": κ of the final snapshot, one row per example, indexed by `row`. "all": one row
            per snapshot and example, indexed by `epoch` and `row`.

        Returns
        -------
        pandas.DataFrame
            Columns: `y` and `wrong`, where labels are known; `y_hat`, the final classifier's
            prediction; with "all", `label`, the snapshot's own; and one column per κ, by its name.

        Examples
        --------
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
        if taken := {"epoch", "row", "label", "wrong"} & {*self.names}:
            raise InvalidInput(
                f"A κ must not share its name with another column, got {min(taken)!r}. "
                "Choose another name."
            )
        columns: dict[str, Array] = {"y_hat": self.y_hat}
        if self.y is not None:
            columns = {"y": self.y, "y_hat": self.y_hat, "wrong": self.errors}
        if snapshots == "final":
            columns |= {name: kappa[-1] for name, kappa in self._kappas.items()}
            return _display.to_frame(columns).rename_axis("row")

        times, n = self.labels.shape
        index = {"epoch": np.repeat(self.epochs, n), "row": np.tile(np.arange(n), times)}
        columns = {name: np.tile(column, times) for name, column in columns.items()}
        columns |= {"label": self.labels.ravel()}
        columns |= {name: kappa.ravel() for name, kappa in self._kappas.items()}
        return _display.to_frame(index | columns).set_index(["epoch", "row"])

    def _repr_html_(self) -> str:
        return _display.to_html("score table", self)

    def save(self, path: str | Path) -> None:
        """Write the table to a folder. A table that is there is replaced, completely or not at all.

        Raises
        ------
        InvalidInput
            If the folder holds unfinished scores, which would be mixed with these.
        """
        epochs, columns = self.epochs.tolist(), self._columns()
        layout = make_layout(self.names, epochs, [self.y_hat.size], columns, self.provenance)
        with replace_table(_files.check_path(path, "path"), layout) as writer:
            for i, epoch in enumerate(epochs):
                for name, values in {"labels": self.labels, **self._kappas}.items():
                    writer.write(name, epoch, 0, values[i])
            for name, column in columns.items():
                writer.write(name, None, 0, column)

    @classmethod
    def open(cls, path: str | Path) -> "ScoreTable":
        """Read a table from its folder; files are memory-mapped until they are stacked."""
        folder = _files.check_path(path, "path")
        while True:
            layout = read_layout(folder)
            if layout is None or not layout["finished"]:
                got = f"no {TABLE}" if layout is None else "scores that are not finished"
                raise InvalidInput(
                    f"{folder} must hold a finished score table, got {got}. "
                    "Check the path, or let scoring finish."
                )
            reader = Pieces(folder, layout)
            try:
                columns: dict[str, Any] = {
                    name: reader.read_row(name, None) for name in list_columns(layout)
                }
                logits, averaged = columns.pop("logits", None), columns.pop("averaged", None)
                if averaged is not None:
                    labels, kappa, final_kappa = averaged.T
                    columns["averaged"] = Averaged(labels.astype(np.int64), kappa, final_kappa)
                table = cls(
                    {name: reader.read_all(name) for name in layout["names"]},
                    reader.read_all("labels"),
                    epochs=layout["epochs"],
                    provenance=layout["provenance"],
                    **columns,
                )
                # These may be of some rows of a table, whose share of other classes is its own.
                table.logits = None if logits is None else _validate.logits(logits)
                return table
            except CorruptFile:
                if read_layout(folder) == layout:
                    raise  # otherwise another process has replaced the table: read that one


def _validate_logits(value: ArrayLike, y_hat: Ints) -> Floats:
    logits = _validate.logits(value)
    n = y_hat.size
    if len(logits) != n:
        raise InvalidInput(
            f"`logits` must be ({n}, classes), one row per example, got shape {logits.shape}. "
            "Pass those of the final snapshot, for the same examples."
        )
    if (logits.argmax(axis=1) != y_hat).mean() > _LOGIT_TOLERANCE:
        raise InvalidInput(
            "`logits` must be those that `y_hat` comes from, got another class in more than "
            f"{_LOGIT_TOLERANCE:.0%} of the rows. Pass those of the final snapshot, for the same "
            "examples."
        )
    return logits


def _check_bounds(name: str, array: Array, remedy: str) -> None:
    if array.min() < 0 or array.max() > 1:
        raise InvalidInput(
            f"`{name}` must be between 0 and 1, got {array.min():.6g} … {array.max():.6g}. {remedy}"
        )


def _check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidInput(
            f"`{name}` must have shape {shape}, got {array.shape}. Pass the same examples."
        )


def name_classes(table: ScoreTable, classes: Sequence[str]) -> list[str]:
    """Return names for the classes of a table, as many as it has, where that is known."""
    names, count = _validate.class_names(classes), table.provenance.get("classes")
    columns = (table.labels, table.y, table.averaged and table.averaged.labels)
    least = 1 + max(int(column.max()) for column in columns if column is not None)
    if len(names) < least or (isinstance(count, int) and len(names) != count):
        raise InvalidInput(
            f"`classes` must name all classes of the table, {count or f'{least} or more'}, got "
            f"{len(names)} names. Give all of them, in order."
        )
    return names


def random_cut(n: int, size: int, seed: int) -> tuple[Ints, Ints]:
    """Return `size` of n rows at random, and the rest, both in order."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:size]), np.sort(order[size:])
