"""Averaged weights: one network with the mean weights of many snapshots, and what it answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from snapsure import _validate
from snapsure._spacing import choose
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas._base import softmax_of
from snapsure.networks._data import Digest, Rows, row_count
from snapsure.networks._network import Network, copy_network
from snapsure.networks._runner import Runner, vote
from snapsure.scoring._plan import Plan
from snapsure.snapshots._base import Snapshots, refuse_missing
from snapsure.snapshots._store import open_snapshots, refuse_empty


def average_weights(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    reference: Any = None,
    *,
    start: float = 0.4,
) -> nn.Module:
    """Return a network whose weights are the mean over the snapshots of a training.

    Izmailov, Podoprikhin, Garipov, Vetrov & Wilson 2018 (Averaging Weights Leads to Wider Optima
    and Better Generalization), on the snapshots of an ordinary training, without a learning rate of
    its own: w = mean of w_t over all snapshots from epoch ⌊start · T⌋ on. Means are taken in
    float64, one snapshot at a time; whole numbers are those of the last snapshot. The statistics of
    batch normalisation do not follow from the mean of the weights. They are estimated again, by one
    pass over `reference` in training mode (`torch.optim.swa_utils.update_bn`).

    It is another classifier than the final network, with answers of its own, in one forward pass.
    `score(..., average=True)` scores both.

    Parameters
    ----------
    model : nn.Module
        A network of the snapshots' architecture. It is copied.
    snapshots : SnapshotStore or path
        The training's snapshots.
    reference : DataLoader, Dataset, (inputs, labels) or inputs, optional
        Training examples, in an order that mixes the classes. Only batch normalisation needs them.
    start : float
        The fraction of the training that the average begins at.

    Returns
    -------
    nn.Module
        In evaluation mode, where `model` is, or on an accelerator if there is one.

    Raises
    ------
    InvalidInput
        If the model has batch normalisation and there is no `reference`, there are no snapshots, or
        they are an `Ensemble`.

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
    store = open_snapshots(snapshots, model)
    if len(store.members) > 1:
        raise InvalidInput(
            f"`snapshots` must be of one training, got an ensemble of {len(store.members)}. "
            "Average each of them alone."
        )
    refuse_empty(store)
    epochs = np.array(store.epochs)
    chosen = epochs[choose(epochs, epochs.size, _validate.share(start, "start"))]
    averaged = copy_network(model)
    needs_reference = check_reference(averaged, reference)
    _load_mean(averaged, store, chosen.tolist())
    if needs_reference:
        _estimate_statistics(averaged, Rows.of(reference, "reference"))
    return averaged


def check_reference(model: nn.Module, reference: Any) -> bool:
    """Return whether averaged weights need training examples, and refuse to be without."""
    normalises = any(isinstance(module, _BatchNorm) for module in model.modules())
    if normalises and reference is None:
        raise InvalidInput(
            "`reference` must be training examples where the model has batch normalisation, got "
            "none. Pass some (--reference train.npz): averaged weights need new statistics."
        )
    return normalises


def _load_mean(model: nn.Module, store: Snapshots, epochs: list[int]) -> None:
    """Load the mean of the weights of some snapshots."""
    sums: dict[str, Tensor] = {}
    # On the CPU: some accelerators have no float64.
    runner = Runner(model, [store], epochs, device=torch.device("cpu"))
    for _, state in runner.states(epochs):
        for name, value in state.items():
            if value.is_floating_point():
                known = sums.get(name)
                sums[name] = (
                    value.to(torch.float64, copy=True) if known is None else known.add_(value)
                )
    means = {name: total / len(epochs) for name, total in sums.items()}
    model.load_state_dict({**state, **means})


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
            f"`reference` must give batches that have statistics, got an error ({error}). Choose a "
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


class AveragedWeights(Snapshots):
    """Averaged weights as a training of one snapshot, in memory: what runners and predictors take.

    Its epoch is the last one of the training.
    """

    def __init__(self, model: nn.Module, snapshots: Snapshots, reference: Any = None) -> None:
        network = average_weights(model, snapshots, reference)
        self.path, self._epoch = snapshots.path, snapshots.epochs[-1]
        self._state = {name: x.cpu() for name, x in network.state_dict().items()}
        digest = Digest()
        digest.add(self._state, None)
        self._sha256 = digest.hex()

    @property
    def epochs(self) -> list[int]:
        return [self._epoch]

    def load(self, epoch: int) -> dict[str, Tensor]:
        refuse_missing(epoch, self.epochs, self.path)
        return dict(self._state)

    def sha256(self, epoch: int) -> str:
        return self._sha256


def describe_average(reference: Any) -> dict[str, Any]:
    """Return what averaged weights depend on beside the snapshots: training examples, if any."""
    rows = None if reference is None else Rows.of(reference, "reference")
    return {"reference": rows and rows.identity()}


def add_average(
    plan: Plan,
    model: nn.Module,
    snapshots: Snapshots,
    reference: Any,
    advance: Callable[[int], None],
) -> None:
    """Score a plan's examples with averaged weights, unless that is done; `advance` counts rows.

    Per example: the network's own label, κ of that label, and κ of the final network's label.
    """
    layout, about = plan.table.layout, describe_average(reference)
    if layout["has_averaged"] and layout["provenance"].get("average") == about:
        try:
            for shard in range(len(plan.bounds)):
                plan.table.read("averaged", None, shard)
            return
        except CorruptFile:
            pass  # scored again, like any other piece
    if layout["has_averaged"]:
        layout["has_averaged"] = False
        plan.save()  # no manifest names a piece that is being replaced

    averaged, way = AveragedWeights(model, snapshots, reference), plan.way or "eager"
    runner = Runner(model, [averaged], averaged.epochs, name=plan.data.name, way=way)
    runner.load(averaged.epochs)
    for shard, (low, high) in enumerate(plan.bounds):
        y_hat = plan.table.read("y_hat", None, shard)
        columns, at = [], 0
        for inputs, _ in plan.data.batches(low, high):
            (logits,) = runner.logits(averaged.epochs, inputs)
            final, labels = y_hat[at : at + row_count(inputs)], vote([logits])
            kappas = softmax_of(logits, labels), softmax_of(logits, final)
            columns.append(np.column_stack((labels, *kappas)))
            at += row_count(inputs)
            advance(row_count(inputs))
        plan.table.write("averaged", None, shard, np.concatenate(columns))
    layout["has_averaged"] = True
    layout["provenance"]["average"] = about
