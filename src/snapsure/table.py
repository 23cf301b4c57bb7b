"""The numbers that scoring leaves and everything else works on: κ of every snapshot and point.

On disk, one `.npy` per (κ, snapshot, shard of the points), and `table.json`, which names them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _files, _validate
from snapsure.errors import CorruptFile, InvalidInput

__all__ = ["ScoreTable"]

Layout = dict[str, Any]  # what `table.json` says

_TABLE = "table.json"
_FORMAT = "snapsure scores 1"
_SUM_TOLERANCE = 1e-3
_RESERVED = ("labels", "y", "y_hat")
PLAN = "plan.json"  # what a folder of scores holds the scores of
_BESIDE = "pieces-2"  # no κ has this name
_WHOLE = re.compile(r"(?:table|plan)\.json")
_PIECE = re.compile(r"(?:all|epoch-\d{6,})\.\d{5,}\.npy|\d{5,}\.digest")


class ScoreTable:
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
        The true labels, where known.

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
    ) -> None:
        self._kappas = {
            name: _validate.kappa(kappa, f"kappas[{name!r}]", ndim=(2,)).astype(
                np.float64, copy=False
            )
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
            if name in _RESERVED or not name.replace("_", "").isalnum():
                raise InvalidInput(
                    f"`kappas` must have names of letters, digits and _, and none of "
                    f"{', '.join(_RESERVED)}, got {name!r}: name it otherwise"
                )
        self.labels = _validate.whole_numbers(labels, "labels")
        _same_shape("labels", self.labels.shape, shape)
        self.y_hat = self.labels[-1] if y_hat is None else _validate.whole_numbers(y_hat, "y_hat")
        _same_shape("y_hat", self.y_hat.shape, shape[1:])
        self.y = None if y is None else _validate.whole_numbers(y, "y")
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

    def __repr__(self) -> str:
        """Names and sizes."""
        snapshots, points = self.labels.shape
        return f"<ScoreTable: {', '.join(self.names)}; {snapshots} snapshots × {points} points>"

    @property
    def names(self) -> list[str]:
        """The κ it has."""
        return list(self._kappas)

    @property
    def errors(self) -> NDArray[np.bool_]:
        """Where the final classifier is wrong, (n,)."""
        if self.y is None:
            raise InvalidInput(
                "`y` must be known to tell errors, got a table without labels: score data that has "
                "labels"
            )
        wrong: NDArray[np.bool_] = self.y_hat != self.y
        return wrong

    def kappa(self, name: str) -> NDArray[np.float64]:
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
        order = np.random.default_rng(seed).permutation(n)
        return self.rows(np.sort(order[:cut])), self.rows(np.sort(order[cut:]))

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
            True labels, 0 … classes − 1.
        epochs : (T,), optional
            1 … T if not given.
        """
        p = _validate.numbers(probs, "probs").astype(np.float64)
        if p.ndim != 3 or not p.size:
            raise InvalidInput(
                f"`probs` must be (snapshots, points, classes), got shape {p.shape}: "
                "stack one array of class probabilities per snapshot"
            )
        off = np.abs(p.sum(axis=2) - 1)
        if not (off.max() <= _SUM_TOLERANCE and p.min() >= 0):
            t, i = np.unravel_index(int(np.argmax(np.nan_to_num(off, nan=np.inf))), off.shape)
            raise InvalidInput(
                "`probs` must be ≥ 0 and sum to 1 over the classes, "
                f"got a sum of {p[t, i].sum():.6g} at snapshot {t}, row {i}: apply softmax first"
            )
        labels = p.argmax(axis=2)
        if y is not None:
            _validate.in_range(_validate.whole_numbers(y, "y"), p.shape[2], "`y`")
        chosen = np.take_along_axis(p, labels[-1][None, :, None], axis=2)[:, :, 0]
        return cls({"softmax": np.minimum(chosen, 1.0)}, labels, y, epochs=epochs)

    def save(self, path: str | Path) -> None:
        """Write the table to a folder; one that is there is replaced, whole or not at all.

        Raises
        ------
        InvalidInput
            If scores are there that are not finished: they would be mixed with these.
        """
        folder = Path(path)
        old = _layout_in(folder)
        if old is None and (folder / PLAN).exists():
            raise InvalidInput(
                f"`path` must be a new folder or one of a finished table, got {folder}, where "
                "scoring has not ended: choose another"
            )
        new = _layout(self)
        if old is not None:  # what a save that was killed has left goes first
            new["pieces"] = "" if old["pieces"] else _BESIDE
            _files.remove_partial(folder, _WHOLE)
            _remove_pieces(folder, old.pop("other", None))
            _write_layout(folder, {**old, "other": new})
        self._write_pieces(_writer(folder, new))
        (folder / PLAN).unlink(missing_ok=True)  # the scores that it tells of are no more
        if old is not None:
            _write_layout(folder, {**new, "other": old})
            _remove_pieces(folder, old)
        _write_layout(folder, new)

    def _write_pieces(self, writer: "TableWriter") -> None:
        for i, epoch in enumerate(writer.epochs):
            writer.write("labels", epoch, 0, self.labels[i])
            for name, kappa in self._kappas.items():
                writer.write(name, epoch, 0, kappa[i])
        writer.write("y_hat", None, 0, self.y_hat)
        if self.y is not None:
            writer.write("y", None, 0, self.y)
        writer.flush()

    @classmethod
    def open(cls, path: str | Path) -> "ScoreTable":
        """Read a table from its folder; files are mapped, not copied, until they are stacked."""
        folder = Path(path)
        while True:
            layout = _layout_in(folder)
            if layout is None:
                raise InvalidInput(
                    f"{folder} must hold a finished score table, got no {_TABLE}: "
                    "check the path, or let scoring finish"
                )
            try:
                return cls._read(folder, layout)
            except CorruptFile:
                if _layout_in(folder) == layout:
                    raise  # else it was replaced meanwhile

    @classmethod
    def _read(cls, folder: Path, layout: Layout) -> "ScoreTable":
        reader = _writer(folder, layout)
        return cls(
            {name: reader.read_all(name) for name in layout["names"]},
            reader.read_all("labels"),
            reader.read_row("y", None) if layout["has_labels"] else None,
            y_hat=reader.read_row("y_hat", None),
            epochs=layout["epochs"],
        )


class TableWriter:
    """The files of a table: pieces in any order, and at the end the table's own file.

    They lie in the folder itself, or in a `place` in it, beside those that they replace.
    """

    def __init__(
        self, folder: Path, epochs: Sequence[int], shards: Sequence[int], place: str = ""
    ) -> None:
        self.folder, self.epochs, self.shards = folder, list(epochs), list(shards)
        self._place = folder / place

    def file(self, name: str, epoch: int | None, shard: int) -> Path:
        """Where a piece lies."""
        stem = "all" if epoch is None else f"epoch-{epoch:06d}"
        return self._place / name / f"{stem}.{shard:05d}.npy"

    def digest_file(self, shard: int) -> Path:
        """Where it stands which inputs a shard was scored of."""
        return self._place / "inputs" / f"{shard:05d}.digest"

    def write(self, name: str, epoch: int | None, shard: int, values: NDArray[Any]) -> None:
        """Write a piece, whole or not at all."""
        path = self.file(name, epoch, shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write_array(path, values)

    def read(self, name: str, epoch: int | None, shard: int) -> NDArray[Any]:
        """Map a piece into memory, after checking that it is whole."""
        path = self.file(name, epoch, shard)
        try:
            values: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CorruptFile(
                f"{path} must be a whole piece of a score table, got one that cannot be read "
                f"({error}): delete it and score again, the rest is kept"
            ) from None
        if values.shape != (self.shards[shard],):
            raise CorruptFile(
                f"{path} must hold {self.shards[shard]} values, got shape {values.shape}: "
                "delete it and score again, the rest is kept"
            )
        return values

    def read_row(self, name: str, epoch: int | None) -> NDArray[Any]:
        """All shards of one snapshot."""
        return np.concatenate([self.read(name, epoch, i) for i in range(len(self.shards))])

    def read_all(self, name: str) -> NDArray[Any]:
        """All shards of all snapshots, (T, n)."""
        return np.stack([self.read_row(name, epoch) for epoch in self.epochs])

    def flush(self) -> None:
        """Make the folders of the pieces survive a power cut."""
        _files.flush_folder(self._place)

    def remove_partial(self, names: Sequence[str]) -> None:
        """Remove what a crash left half-written, among the pieces of these names or beside them."""
        _files.remove_partial(self.folder, _WHOLE)
        for name in (*names, *_RESERVED, "inputs"):
            _files.remove_partial(self._place / name, _PIECE)

    def finish(self, names: Sequence[str], *, has_labels: bool) -> None:
        """Write the file that makes the folder a table."""
        _write_layout(self.folder, _described(names, self.epochs, self.shards, has_labels))


def _writer(folder: Path, layout: Layout) -> TableWriter:
    return TableWriter(folder, layout["epochs"], layout["shards"], layout["pieces"])


def _layout(table: ScoreTable) -> Layout:
    epochs, shards = table.epochs.tolist(), [table.y_hat.size]
    return _described(table.names, epochs, shards, table.y is not None)


def _described(
    names: Sequence[str], epochs: list[int], shards: list[int], has_labels: bool
) -> Layout:
    return {
        "format": _FORMAT,
        "names": list(names),
        "epochs": epochs,
        "shards": shards,
        "has_labels": has_labels,
        "pieces": "",
    }


def _layout_in(folder: Path) -> Layout | None:
    """What `table.json` says, if there is one."""
    try:
        content = json.loads((folder / _TABLE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CorruptFile(f"{folder / _TABLE} must name a score table, got something else")
    return {"pieces": "", **content}


def _write_layout(folder: Path, layout: Layout) -> None:
    """Replace `table.json`.

    `pieces` is the place of its pieces; `other` describes a table of which pieces may lie in the
    other place: the one that was replaced, or one that never came to be.
    """
    _files.write_bytes(folder / _TABLE, json.dumps(layout, indent=1).encode())


def _remove_pieces(folder: Path, layout: Layout | None) -> None:
    """Remove the pieces of a table that is no more, and folders that they leave empty."""
    if layout is None:
        return
    writer = _writer(folder, layout)
    writer.remove_partial(layout["names"])
    left = {folder / layout["pieces"]} - {folder}
    for shard in range(len(writer.shards)):
        numbered = [(n, e) for n in (*layout["names"], "labels") for e in writer.epochs]
        for name, epoch in (*numbered, ("y_hat", None), ("y", None)):
            piece = writer.file(name, epoch, shard)
            piece.unlink(missing_ok=True)
            left.add(piece.parent)
        writer.digest_file(shard).unlink(missing_ok=True)
        left.add(writer.digest_file(shard).parent)
    for place in sorted(left, reverse=True):  # those below come first
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _same_shape(name: str, got: tuple[int, ...], want: tuple[int, ...]) -> None:
    if got != want:
        raise InvalidInput(f"`{name}` must have shape {want}, got {got}: pass the same points")
