"""What a student learns from: inputs of one or two data sets, with their targets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from snapsure._types import Ints
from snapsure.networks._data import Digest, Rows, joined, to_device
from snapsure.networks._network import call, device_of
from snapsure.training._targets import Targets


class Points:
    """Rows of labelled and unlabelled inputs under one numbering, with their targets."""

    def __init__(self, rows: Sequence[Rows], targets: Sequence[Targets]) -> None:
        self._rows, self._targets = rows, targets
        self._ends = np.cumsum([part.n for part in rows])
        self.n = int(self._ends[-1])

    def take(self, index: Tensor) -> tuple[Any, Tensor]:
        """Inputs and targets of some of them, those of one set before those of the next."""
        numbers: Ints = index.numpy()
        found = []
        for i, (rows, targets) in enumerate(zip(self._rows, self._targets, strict=True)):
            begin = self._ends[i] - rows.n
            own = numbers[(numbers >= begin) & (numbers < self._ends[i])] - begin
            if own.size:
                found.append((rows.take(own), targets.take(own)))
        if len(found) == 1:
            return found[0]
        return joined([part[0] for part in found]), torch.cat([part[1] for part in found])


def classes_of(network: nn.Module, rows: Rows) -> int:
    """How many the network knows, by two points."""
    network.eval()
    inputs = rows.take(np.arange(min(2, rows.n)))
    with torch.no_grad():
        return call(network, to_device(inputs, device_of(network))).shape[1]


def inputs_digest(rows: Rows) -> list[Any]:
    """What tells inputs from all others; labels are not used."""
    digest = Digest()
    for inputs, _ in rows.batches():
        digest.add(inputs, None)
    return [rows.n, digest.hex()]
