"""What κ functions of the logits alone share: a pass known by them, and softmax without its loss.

With the largest logit of a row subtracted, its own weight is exactly 1 and the others are what is
missing to certainty. Sums over the others alone lose nothing, however small they are.
"""

from collections.abc import Iterator, Mapping

from torch import Tensor

from snapsure.errors import InvalidInput
from snapsure.networks._forward import Forward, Sampling


class Logits(Forward):
    """A pass of which nothing but the logits is known."""

    def embedding(self, layer: str | None) -> Tensor:
        """Refuse: only logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that reads embeddings: score with the network"
        )

    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Refuse: only logits are known."""
        raise InvalidInput(
            "κ must need logits alone, got one that samples dropout: score with the network"
        )

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """No dropout is known of."""
        return {}


def gaps(logits: Tensor) -> Tensor:
    """Logits less the largest of their row, in float64."""
    z = logits.cpu().double()  # there: not every accelerator has float64
    return z - z.amax(dim=1, keepdim=True)


def others(gap: Tensor) -> Tensor:
    """e^gap of every class but the largest, which gets 0."""
    return gap.exp().scatter(1, gap.argmax(dim=1, keepdim=True), 0)
