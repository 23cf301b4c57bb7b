"""The contract of κ functions.

A κ function says what it needs of the network, and turns one forward pass over a batch into one
number per row: float64, in [0, 1], higher is surer, of the class that the final classifier chose
(`y_hat`), whichever snapshot the pass is of. It sees a row's own outputs alone, so that batches
never matter. To add one: a file with a subclass, and a test that inherits `KappaContract`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """Passes with dropout: how many, at which rate, where, and what fixes the masks."""

    passes: int
    p: float | None  # None: each dropout's own
    layers: str | tuple[str, ...]  # "all", "last", or names of modules
    seed: int


class Forward(ABC):
    """What one pass over a batch gives; everything beyond the logits only if it was needed."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # (rows, classes)
        self._shared: dict[Hashable, Any] = {}

    @abstractmethod
    def embedding(self, layer: str | None) -> Tensor:
        """Input of the last linear layer that ran, or of the one named, (rows, features)."""

    @abstractmethod
    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Logits of passes with dropout, the deterministic part of the network run only once."""

    @abstractmethod
    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Names and own rates of the dropouts that a sampling switches on."""

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, made once per pass for all κ functions that ask with this key."""
        if key not in self._shared:
            self._shared[key] = make()
        value: T = self._shared[key]
        return value


class Snapshot(ABC):
    """A network with one snapshot's weights."""

    @abstractmethod
    def run(self, inputs: Any) -> Forward:
        """One pass over a batch."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of what the last pass left."""


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
    def score(self, forward: Forward, y_hat: NDArray[np.int64], prepared: Any) -> Values:
        """κ of each row."""


def softmax_of(logits: Tensor, y_hat: NDArray[np.int64]) -> Tensor:
    """Softmax of the chosen class in float64, exact near 0 and near 1.

    Near 1 it is 1 minus the sum of the other classes: in float32, or as a plain quotient, confident
    points collapse onto exactly 1.0 and become ties.
    """
    z = logits.cpu().double()  # there: not every accelerator has float64
    chosen = z.new_tensor(y_hat).long()[:, None]
    total = z.logsumexp(dim=1)
    others = z.scatter(1, chosen, -np.inf).logsumexp(dim=1)
    small = (z.gather(1, chosen)[:, 0] - total).exp()
    return small.where(small < 0.5, -(others - total).expm1()).clamp(0, 1)
