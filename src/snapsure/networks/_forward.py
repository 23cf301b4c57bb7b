"""What a κ function asks of a network, and what one pass over a batch offers it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from torch import Tensor

from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput

T = TypeVar("T")


@dataclass(frozen=True)
class Sampling:
    """Passes with dropout: how many, at which rate, in which layers, and the seed of the masks.

    Examples
    --------
    >>> Sampling(passes=20, p=None, layers="last", seed=0).passes
    20
    """

    passes: int
    p: float | None  # None: each dropout's own rate
    layers: str | tuple[str, ...]  # "all", "last", or names of modules
    seed: int


class Forward(ABC):
    """The result of one pass over a batch. Only what a κ function declared is available.

    Examples
    --------
    A κ function receives a `Forward` in its `score` method:

    >>> from snapsure.kappas import Kappa
    >>> class LargestLogit(Kappa):
    ...     name = "largest_logit"
    ...     settings = {}
    ...
    ...     def score(self, forward, y_hat, prepared):
    ...         return forward.logits.amax(dim=1).double().sigmoid().numpy()
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits  # (rows, classes)
        self._shared: dict[Hashable, Any] = {}

    @abstractmethod
    def embedding(self, layer: str | None) -> Tensor:
        """Return the input of a layer, (rows, features); None means the last linear layer."""

    @abstractmethod
    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Yield logits of passes with dropout. The deterministic part of the network runs once."""

    @abstractmethod
    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Return the name and rate of each dropout that a sampling switches on."""

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, computed once per pass for all κ functions with this key."""
        if key not in self._shared:
            self._shared[key] = make()
        value: T = self._shared[key]
        return value


class Logits(Forward):
    """A pass of which only the logits are known."""

    def embedding(self, layer: str | None) -> Tensor:
        """Refuse, because only the logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that reads embeddings. Score with the network."
        )

    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Refuse, because only the logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that samples dropout. Score with the network."
        )

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Return no rates, because no dropout is known."""
        return {}


class Snapshot(ABC):
    """A network with the weights of one snapshot.

    Examples
    --------
    A κ function that reads other data receives snapshots in its `prepare` method:

    >>> def prepare(self, snapshots, folders):
    ...     for snapshot, folder in zip(snapshots, folders):
    ...         logits = snapshot.run(self.reference).logits
    ...         np.save(folder / "logits.npy", logits.cpu().numpy())
    ...         snapshot.forget()
    """

    @abstractmethod
    def run(self, inputs: Any) -> Forward:
        """Run one pass over a batch."""

    @abstractmethod
    def forget(self) -> None:
        """Free what the last pass stored."""


class Reader(Protocol):
    """The part of a κ function that a network needs to know (see `snapsure.kappas.Kappa`)."""

    @property
    def name(self) -> str:
        """The name of its column."""

    @property
    def layers(self) -> list[str | None]:
        """Layers whose input it reads."""

    @property
    def sampling(self) -> Sampling | None:
        """Passes with dropout that it needs."""

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return κ of each row."""


def exponentials(logits: Tensor) -> Floats:
    """Return e^(logit − largest logit of the row): softmax before the division by its sum."""
    # On the CPU, because some accelerators have no float64; contiguous, because sums depend on
    # the order in memory.
    z: Floats = np.ascontiguousarray(logits.cpu().double().numpy())
    e: Floats = np.exp(z - z.max(axis=1, keepdims=True))
    return e
