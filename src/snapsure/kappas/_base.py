"""The contract of κ functions.

A κ function turns one forward pass over a batch into one number per example: float64, in [0, 1],
higher is surer. The number is about the class that the final network predicts (`y_hat`), whichever
snapshot makes the pass. It depends on the example alone, so batches never change it.

To add a κ: write a subclass of `Kappa`, add a line to `registry.py`, and write a test that inherits
`snapsure.testing.KappaContract`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from snapsure._types import Floats, Ints
from snapsure.networks._forward import Forward, Sampling, Snapshot, exponentials


class Kappa(ABC):
    """Abstract base of κ functions.

    A subclass sets `name` and defines `settings` and `score`. A κ that compares new inputs with
    other data, such as training examples, also sets `prepares = True`, takes that data as its first
    argument, and defines `prepare` and `prepared`.

    Examples
    --------
    >>> class LargestProbability(Kappa):
    ...     name = "largest_probability"
    ...     settings = {}
    ...
    ...     def score(self, forward, y_hat, prepared):
    ...         return softmax_of(forward.logits, forward.logits.argmax(dim=1).numpy())
    >>> LargestProbability().name
    'largest_probability'
    """

    name: str
    """Column name in score tables, and in files and commands once the κ is registered."""

    prepares: ClassVar[bool] = False
    """Whether the κ runs other data through every snapshot before it can score."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments that make this κ again, in JSON's types.

        A score table stores them, and refuses to mix scores of different settings.
        """

    @property
    def layers(self) -> list[str | None]:
        """Names of the layers whose input the κ reads; None is the last linear layer."""
        return []

    @property
    def sampling(self) -> Sampling | None:
        """The passes with dropout that the κ needs."""
        return None

    def prepare(  # noqa: B027 - most κ need none
        self, snapshots: Sequence[Snapshot], folders: Sequence[Path]
    ) -> None:
        """Run other data through several snapshots, and write the results to a folder for each."""

    def prepared(self, folder: Path, device: torch.device) -> Any:
        """Read what `prepare` wrote for one snapshot; `score` gets the result."""
        return None

    @abstractmethod
    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return κ of each example."""


def softmax_of(logits: Tensor, y_hat: Ints) -> Floats:
    """Return the softmax of the chosen class in float64, exact near 0 and near 1.

    Near 1 it is 1 minus the share of the other classes. In float32, or as a plain quotient,
    confident examples collapse onto exactly 1.0 and become ties. NumPy is several times faster than
    PyTorch for a single example.
    """
    e = exponentials(logits)
    rows = np.arange(len(e))
    total = e.sum(axis=1)
    chosen = e[rows, y_hat] / total
    e[rows, y_hat] = 0
    others = e.sum(axis=1) / total
    kappa: Floats = np.where(chosen < 0.5, chosen, 1 - others)
    return kappa
