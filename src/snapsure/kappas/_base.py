"""The contract of κ functions.

A κ function says what it needs of the network, and turns one forward pass over a batch into one
number per row: float64, in [0, 1], higher is surer, of the class that the final classifier chose
(`y_hat`), whichever snapshot the pass is of. It sees a row's own outputs alone, so that batches
never matter. To add one: a file with a subclass, and a test that inherits `KappaContract`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapsure._types import Floats, Ints
from snapsure.networks._forward import Forward, Sampling, Snapshot, exponentials


class Kappa(ABC):
    """A κ function."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in a score table."""

    @property
    def layers(self) -> list[str | None]:
        """Layers whose input it reads (None: the last linear layer)."""
        return []

    @property
    def sampling(self) -> Sampling | None:
        """The passes with dropout that it needs."""
        return None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that its values depend on, besides network and data, in JSON's types."""

    @property
    def prepares(self) -> bool:
        """Whether it must see other data under a snapshot before it can score."""
        return False

    def prepare(  # noqa: B027 - most need none
        self, snapshots: Sequence[Snapshot], folders: Sequence[Path]
    ) -> None:
        """Work to be done once per snapshot, for several in one pass; what comes out goes to files.

        They go into the folder of each snapshot, where every worker finds them.
        """

    def prepared(self, folder: Path, device: torch.device) -> Any:
        """What lies in the folder of a snapshot; it is handed to `score`."""
        return None

    @abstractmethod
    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """κ of each row."""


def softmax_of(logits: Tensor, y_hat: Ints) -> Floats:
    """Softmax of the chosen class in float64, exact near 0 and near 1.

    Near 1 it is 1 minus the share of the other classes: in float32, or as a plain quotient,
    confident points collapse onto exactly 1.0 and become ties. In NumPy: of one row it is several
    times faster than PyTorch, whose operations each cost more than this arithmetic.
    """
    e = exponentials(logits)
    rows = np.arange(len(e))
    total = e.sum(axis=1)
    chosen = e[rows, y_hat] / total
    e[rows, y_hat] = 0
    others = e.sum(axis=1) / total
    kappa: Floats = np.where(chosen < 0.5, chosen, 1 - others)
    return kappa
