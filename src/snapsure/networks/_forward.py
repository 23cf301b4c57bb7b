"""What κ functions see of a network: one pass over a batch, and what it can be asked for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

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
