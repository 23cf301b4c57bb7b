"""One network with the mean weights of many snapshots."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from snapsure import _validate
from snapsure._spacing import choose
from snapsure.errors import InvalidInput
from snapsure.networks._data import Rows
from snapsure.networks._network import Network, private_copy
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots


def average_weights(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    data: Any = None,
    *,
    k: int = 30,
    start: float = 0.4,
) -> nn.Module:
    """Return a network whose weights are the mean over the snapshots that `AES(k, start)` averages.

    Izmailov, Podoprikhin, Garipov, Vetrov & Wilson 2018 (Averaging Weights Leads to Wider Optima
    and Better Generalization), on the snapshots of an ordinary training, without a learning rate of
    its own. Means are taken in float64, one snapshot at a time; whole numbers are those of the last
    snapshot. The statistics of batch normalisation do not follow from the mean of the weights. They
    are estimated again, by one pass over `data` in training mode
    (`torch.optim.swa_utils.update_bn`).

    It is another classifier, with other errors than the final network.

    Parameters
    ----------
    model : nn.Module
        A network of the snapshots' architecture. It is copied.
    snapshots : SnapshotStore or path
        The training's snapshots.
    data : DataLoader, Dataset, (inputs, labels) or inputs, optional
        Training examples, in an order that mixes the classes. Only batch normalisation needs them.
    k, start
        As in `AES`.

    Returns
    -------
    nn.Module
        In evaluation mode, where `model` is, or on an accelerator if there is one.

    Examples
    --------
    >>> import tempfile
    >>> from snapsure.snapshots import SnapshotStore
    >>> folder = tempfile.TemporaryDirectory()
    >>> model, store = nn.Linear(2, 1, bias=False), SnapshotStore(folder.name)
    >>> for epoch in (1, 2, 3):
    ...     store.save({"weight": torch.tensor([[epoch, 10.0]])}, epoch)
    >>> average_weights(model, store).weight.tolist()
    [[2.0, 10.0]]
    >>> folder.cleanup()
    """
    store = open_snapshots(snapshots)
    if not store.epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {store.path}. "
            "Check the path, or record some."
        )
    epochs = np.array(store.epochs)
    chosen = epochs[choose(epochs, _validate.count(k, "k"), _validate.share(start, "start"))]
    averaged = private_copy(model)
    normalises = any(isinstance(module, _BatchNorm) for module in averaged.modules())
    if normalises and data is None:
        raise InvalidInput(
            "`data` must be training examples where the model has batch normalisation, got none. "
            "Pass some: its statistics must be estimated again."
        )
    _load_mean(averaged, store, chosen.tolist())
    if normalises:
        _estimate_statistics(averaged, Rows.of(data, "data"))
    return averaged


def _load_mean(model: nn.Module, store: Snapshots, epochs: list[int]) -> None:
    """Load the mean of the weights of some snapshots."""
    sums: dict[str, Tensor] = {}
    for epoch in epochs:
        store.load_into(model, epoch)
        for name, value in _floats(model):
            part = value.cpu().double()  # on the CPU: some accelerators have no float64
            sums[name] = sums[name].add_(part) if name in sums else part.clone()
    for name, value in _floats(model):
        value.copy_(sums[name] / len(epochs))


def _floats(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the weights and buffers that have a mean, detached."""
    return [(name, x) for name, x in model.state_dict().items() if x.is_floating_point()]


def _estimate_statistics(model: nn.Module, rows: Rows) -> None:
    """Estimate the statistics of batch normalisation; random numbers are the same every time."""
    network = Network(model)
    network.probe(next(rows.batches())[0])
    # Lists, because `update_bn` takes the first element of what it is given.
    batches = ([inputs] for inputs, _ in rows.batches())
    devices = [network.device] if network.device.type == "cuda" else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            torch.manual_seed(0)  # dropout may come before a normalisation
            update_bn(batches, _Caller(network))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"`data` must give batches that have statistics, got an error ({error}). Choose a "
            "batch size that leaves no last batch of one example."
        ) from None
    model.eval()


class _Caller(nn.Module):
    """A model that takes a batch of any form as one argument, as scoring calls it."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network, self.module = network, network.module

    def forward(self, inputs: Any) -> Tensor:
        """Return the logits of a batch."""
        return self._network.run(inputs).logits
