"""Logits that training recorded, epoch by epoch, and score tables of them without a network."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _arrays, _files, _json, _validate
from snapsure._spacing import choose
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import Kappa, softmax_of
from snapsure.networks._forward import Logits
from snapsure.networks._runner import describe_logits, vote
from snapsure.scoring._plan import list_kappas
from snapsure.table import ScoreTable

_MANIFEST, _LABELS = "logits.json", "labels.npy"
_AGAIN = "restore it, or record the training again"
_FileName = Annotated[str, Meta(pattern=r"\A(labels|epoch-\d{6,})\.npy\Z")]


class _Manifest(TypedDict):
    """What `logits.json` holds."""

    hashes: dict[_FileName, str]


class RecordedLogits:
    """Logits of the same examples, epoch by epoch, in a folder with their labels."""

    def __init__(self, folder: str | Path, epochs: Iterable[int] | None = None) -> None:
        self.folder = Path(folder)
        self._selected = None if epochs is None else sorted({*epochs})

    @property
    def epochs(self) -> list[int]:
        """The epochs that are recorded, in order, or those selected of them."""
        if self._selected is not None:
            return self._selected
        return sorted(int(name[6:-4]) for name in self._read_hashes() if name != _LABELS)

    def select(self, epochs: Iterable[int]) -> "RecordedLogits":
        """Return some of the epochs; nothing is copied."""
        return RecordedLogits(self.folder, epochs)

    def write(self, epoch: int, logits: NDArray[np.float32], labels: Ints) -> None:
        """Record an epoch's logits (n, classes), of the same examples as the others."""
        _files.make_folder(self.folder)
        hashes = self._read_hashes()
        if _LABELS not in hashes:
            hashes[_LABELS] = _arrays.write(self.folder / _LABELS, labels)
        elif not np.array_equal(self.labels(), labels):
            raise InvalidInput(
                "Validation data must be the same examples in the same order at every epoch, got "
                f"other labels at epoch {epoch} than in {self.folder / _LABELS}. Do not shuffle "
                "them, and record each training into a folder of its own."
            )
        name = _name(epoch)
        hashes[name] = _arrays.write(self.folder / name, logits)
        self._write_hashes(hashes)

    def read(self, epoch: int) -> Tensor:
        """Read an epoch's logits."""
        return torch.from_numpy(self._read(_name(epoch)))

    def labels(self) -> Ints:
        """Read the labels of the examples."""
        return self._read(_LABELS)

    def rewind(self, epoch: int) -> None:
        """Remove what was recorded after an epoch."""
        hashes = self._read_hashes()
        later = [_name(one) for one in self.epochs if one > epoch]
        if later:
            self._write_hashes({name: sha for name, sha in hashes.items() if name not in later})
        for name in later:
            _files.remove(self.folder / name)

    def _read(self, name: str) -> Array:
        hashes = self._read_hashes()
        if name not in hashes:
            raise CorruptFile(
                f"{self.folder / _MANIFEST} must name {name}, got no hash of it. "
                f"{_files.instruct(_AGAIN)}"
            )
        return _arrays.read(self.folder / name, hashes[name], _AGAIN)

    def _read_hashes(self) -> dict[str, str]:
        path = self.folder / _MANIFEST
        try:
            return _json.load(path, "the manifest of recorded logits", _Manifest, _AGAIN)["hashes"]
        except FileNotFoundError:
            return {}

    def _write_hashes(self, hashes: dict[str, str]) -> None:
        _files.write_bytes(self.folder / _MANIFEST, _json.text({"hashes": hashes}))


def _name(epoch: int) -> str:
    return f"epoch-{epoch:06d}.npy"


def score_recorded(
    *networks: RecordedLogits, kappas: Kappa | Sequence[Kappa] | None = None
) -> ScoreTable:
    """Make the score table of one training, or of the ensemble of several.

    An ensemble predicts the class with the highest mean softmax of its members; κ is the mean of
    their κ.

    Parameters
    ----------
    networks : RecordedLogits
        One per training, of the same examples.
    kappas : Kappa or sequence of them, optional
        κ functions that need logits alone; `SoftmaxResponse()` by default.
    """
    wanted = _list_logit_kappas(kappas)
    epochs = _common_epochs(networks)
    last = [network.read(epochs[-1]) for network in networks]
    y_hat = vote(last)
    columns: dict[str, list[Floats]] = {each.name: [] for each in wanted}
    labels = []
    for epoch in epochs:
        logits = [network.read(epoch) for network in networks]
        for kappa in wanted:
            values = [kappa.score(Logits(each), y_hat, None) for each in logits]
            columns[kappa.name].append(np.mean(values, axis=0))
        labels.append(vote(logits))
    y = networks[0].labels()
    tables = {name: np.array(rows) for name, rows in columns.items()}
    final = describe_logits(last, y_hat)
    return ScoreTable(tables, np.array(labels), y, y_hat=y_hat, epochs=epochs, final=final)


def average_probabilities(
    *networks: RecordedLogits, k: int = 30, start: float = 0.4
) -> tuple[Floats, Ints]:
    """Return κ (n,) and y_hat (n,) of the mean class probabilities of the snapshots.

    The snapshots are those that `AES(k, start)` averages. But y_hat is the class with the highest
    mean probability, and κ is that mean: another classifier, with other errors. With several
    networks, the mean is over all snapshots of all of them.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> kept = RecordedLogits(folder.name)
    >>> for epoch, p in enumerate(([0.9, 0.1], [0.4, 0.6]), 1):  # the last one answers 1
    ...     kept.write(epoch, np.log([p]), np.array([0]))
    >>> kappa, y_hat = average_probabilities(kept, start=0)
    >>> kappa.round(2).tolist(), y_hat.tolist()
    ([0.65], [0])
    >>> folder.cleanup()
    """
    epochs = _common_epochs(networks)
    chosen = choose(np.array(epochs), _validate.count(k, "k"), _validate.share(start, "start"))
    passes = [(network, epochs[i]) for i in chosen for network in networks]
    mean: Any = sum(network.read(epoch).double().softmax(dim=1) for network, epoch in passes)
    y_hat: Ints = mean.argmax(dim=1).numpy()
    kappa = [softmax_of(network.read(epoch), y_hat) for network, epoch in passes]
    return np.mean(kappa, axis=0), y_hat


def _common_epochs(networks: Sequence[RecordedLogits]) -> list[int]:
    epochs = networks[0].epochs
    if not epochs:
        raise InvalidInput(
            f"Logits of at least one epoch must be recorded, got none in {networks[0].folder}. Let "
            "the training finish an epoch that ends with validation."
        )
    for other in networks:
        if other.epochs != epochs:
            raise InvalidInput(
                f"Logits must be of the same epochs in each folder, got {len(epochs)} epochs in "
                f"{networks[0].folder} and {len(other.epochs)} or others in {other.folder}. Let "
                "the trainings finish."
            )
    return epochs


def _list_logit_kappas(kappas: Kappa | Sequence[Kappa] | None) -> list[Kappa]:
    """List κ functions, after refusing those that need more than logits."""
    wanted = list_kappas(kappas)
    for kappa in wanted:
        if kappa.layers or kappa.sampling or kappa.prepares:
            raise InvalidInput(
                f"`kappas` must need logits alone, got {kappa.name}. Score it with the network, "
                "by snapsure.score."
            )
    return wanted
