"""Score tables of logits that training recorded, without a pass through a network."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from snapsure import _validate
from snapsure._spacing import choose
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa, softmax_of
from snapsure.kappas._logits import Logits
from snapsure.networks._recorded import RecordedLogits
from snapsure.networks._runner import describe_logits, vote
from snapsure.scoring._plan import list_kappas
from snapsure.table import ScoreTable


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
