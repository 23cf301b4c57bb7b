"""κ from logits that were kept in training: without a pass through a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _files, _validate
from snapsure._spacing import choose
from snapsure.errors import InvalidInput
from snapsure.scores._base import Kappa, softmax_of
from snapsure.scores._ensemble import Ensemble, ensemble_name
from snapsure.scores._logits import Logits
from snapsure.scores._softmax import SoftmaxResponse
from snapsure.table import ScoreTable

_LABELS = "labels.npy"


class RecordedLogits:
    """Logits of the same points, epoch by epoch, in a folder; their labels beside them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def epochs(self) -> list[int]:
        """Epochs held, in order."""
        return sorted(int(path.stem[6:]) for path in self.folder.glob("epoch-*.npy"))

    def write(self, epoch: int, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Keep an epoch's logits (n, classes), which must be of the same points as the others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        known = self.folder / _LABELS
        if not known.exists():
            _files.write_array(known, labels)
        elif not np.array_equal(np.load(known), labels):
            raise InvalidInput(
                f"validation data must be the same points in the same order at every epoch, got "
                f"other labels at epoch {epoch} than in {known}: do not shuffle them, and record "
                "each training into a folder of its own"
            )
        _files.write_array(self._file(epoch), logits)

    def read(self, epoch: int) -> Tensor:
        """An epoch's logits."""
        return torch.from_numpy(np.load(self._file(epoch)))

    def labels(self) -> NDArray[np.int64]:
        """The points' labels."""
        labels: NDArray[np.int64] = np.load(self.folder / _LABELS)
        return labels

    def rewind(self, epoch: int) -> None:
        """Remove what was kept after an epoch."""
        for later in self.epochs:
            if later > epoch:
                self._file(later).unlink()

    def _file(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:06d}.npy"


def recorded(
    *networks: RecordedLogits, kappas: Kappa | Sequence[Kappa] | None = None
) -> ScoreTable:
    """The table of one training; of several, of their ensemble.

    An ensemble predicts the class of its members' mean softmax; κ is the mean of theirs in it.

    Parameters
    ----------
    networks : RecordedLogits
        One per training, of the same points.
    kappas : Kappa or sequence of them, optional
        Those that need logits alone; softmax response if not given.
    """
    wanted = _of_logits(kappas)
    epochs = _common_epochs(networks)
    y_hat = _votes([network.read(epochs[-1]) for network in networks])
    columns: dict[str, list[NDArray[np.float64]]] = {_name(each, networks): [] for each in wanted}
    labels = []
    for epoch in epochs:
        logits = [network.read(epoch) for network in networks]
        for kappa in wanted:
            values = [kappa.score(Logits(each), y_hat, None) for each in logits]
            columns[_name(kappa, networks)].append(np.mean(values, axis=0))
        labels.append(_votes(logits))
    y = networks[0].labels()
    tables = {name: np.array(rows) for name, rows in columns.items()}
    return ScoreTable(tables, np.array(labels), y, y_hat=y_hat, epochs=epochs)


def averaged_probabilities(
    *networks: RecordedLogits, k: int = 30, start: float = 0.4
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """κ (n,) and y_hat (n,) of the classifier that averages the snapshots' class probabilities.

    The snapshots are those that `AES(k, start)` averages. But y_hat is the class of the mean
    probability, and κ that mean: a classifier of its own, whose errors are its own. With several
    networks, the mean is over all snapshots of all of them.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> kept = RecordedLogits(folder.name)
    >>> for epoch, p in enumerate(([0.9, 0.1], [0.4, 0.6]), 1):  # the last one answers 1
    ...     kept.write(epoch, np.log([p]), np.array([0]))
    >>> kappa, y_hat = averaged_probabilities(kept, start=0)
    >>> kappa.round(2).tolist(), y_hat.tolist()
    ([0.65], [0])
    >>> folder.cleanup()
    """
    epochs = _common_epochs(networks)
    chosen = choose(np.array(epochs), _validate.count(k, "k"), _validate.share(start, "start"))
    passes = [(network, epochs[i]) for i in chosen for network in networks]
    mean: Any = sum(network.read(epoch).double().softmax(dim=1) for network, epoch in passes)
    y_hat: NDArray[np.int64] = mean.argmax(dim=1).numpy()
    kappa = [softmax_of(network.read(epoch), y_hat).numpy() for network, epoch in passes]
    return np.mean(kappa, axis=0), y_hat


def _common_epochs(networks: Sequence[RecordedLogits]) -> list[int]:
    epochs = networks[0].epochs
    if not epochs:
        raise InvalidInput(
            f"logits must be there of one epoch at least, got none in {networks[0].folder}: let "
            "training finish an epoch that ends with validation"
        )
    for other in networks:
        if other.epochs != epochs:
            raise InvalidInput(
                f"logits must be of the same epochs in each folder, got {len(epochs)} epochs in "
                f"{networks[0].folder} and {len(other.epochs)} or others in {other.folder}: let "
                "the trainings finish"
            )
    return epochs


def _of_logits(kappas: Kappa | Sequence[Kappa] | None) -> list[Kappa]:
    """κ functions, those refused that need more than logits."""
    if kappas is None:
        return [SoftmaxResponse()]
    wanted = [kappas] if isinstance(kappas, Kappa) else list(kappas)
    names = [kappa.name for kappa in wanted]
    if len({*names}) < len(names):
        raise InvalidInput(f"`kappas` must have different names, got {names}: score one per call")
    for kappa in wanted:
        if isinstance(kappa, Ensemble):
            raise InvalidInput(
                "`kappas` must be of one network each, got an Ensemble: pass its base, and one "
                "folder of logits per member"
            )
        if kappa.layers or kappa.sampling or kappa.prepares:
            raise InvalidInput(
                f"`kappas` must need logits alone, got {kappa.name}: score it with the network, "
                "snapsure.score"
            )
    return wanted


def _name(kappa: Kappa, networks: Sequence[RecordedLogits]) -> str:
    """As `score` names it."""
    return kappa.name if len(networks) == 1 else ensemble_name(kappa)


def _votes(logits: Sequence[Tensor]) -> NDArray[np.int64]:
    """What networks predict together: the class of their mean softmax."""
    mean = torch.stack([each.double().softmax(dim=1) for each in logits]).mean(dim=0)
    chosen: NDArray[np.int64] = mean.argmax(dim=1).numpy()
    return chosen
