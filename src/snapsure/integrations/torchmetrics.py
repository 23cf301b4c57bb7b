"""AURC, E-AURC and AUGRC for torchmetrics: updated by batches, gathered over all processes.

Areas do not add up over batches, so each metric keeps all examples (16 bytes each), and `compute`
returns exactly what the function returns for all of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torchmetrics import Metric

from snapsure import _validate
from snapsure._types import Array, Floats, Optimal, Ties
from snapsure.errors import InvalidInput
from snapsure.metrics import augrc, aurc, eaurc

__all__ = ["AUGRC", "AURC", "EAURC"]


class _Area(Metric):
    """Keeps examples, and computes a function of (κ, losses) of all of them.

    The state holds the bits of float64 as int64: a network's `.to(torch.bfloat16)` does not round
    them, and a device without float64 can store them.
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    plot_lower_bound = 0.0

    kappa_bits: list[Tensor]
    losses_bits: list[Tensor]

    def __init__(self, area: Callable[[ArrayLike, ArrayLike], float], **options: Any) -> None:
        super().__init__(**options)
        area([0.0], [0])  # refuses wrong options now, not at the end of an epoch
        self._area = area
        self.add_state("kappa_bits", [], dist_reduce_fx="cat")
        self.add_state("losses_bits", [], dist_reduce_fx="cat")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the state: a process without examples gathers an empty tensor of it."""
        return torch.int64

    def set_dtype(self, dst_type: str | torch.dtype) -> "_Area":
        """Leave the state unchanged: rounded scores would become ties."""
        return self

    def update(self, kappa: ArrayLike | Tensor, losses: ArrayLike | Tensor) -> None:
        """Add examples: their κ (n,), and 0/1 errors or any loss ≥ 0 (n,).

        A batch that the function refuses, also an empty one, leaves the metric unchanged.
        """
        given = _validate.numbers(kappa, "kappa")
        scores = _validate.kappa(given)
        if (scores != given).any():  # they became ranks, which differ between batches
            raise InvalidInput(
                f"`kappa` must be exact in float64, got {given.dtype} values that are not. "
                "Rank or rescale the scores first."
            )
        loss = _validate.losses(losses, scores.shape)
        self._area(scores, loss)  # refuses e.g. losses for the integral
        self.kappa_bits.append(_to_bits(scores).to(self.device))
        self.losses_bits.append(_to_bits(loss).to(self.device))

    def compute(self) -> Tensor:
        """Compute the area of all examples of all processes; there must be at least one."""
        area = self._area(_from_bits(self.kappa_bits), _from_bits(self.losses_bits))
        dtype = torch.float32 if self.device.type == "mps" else torch.float64  # it has no float64
        return torch.tensor(area, dtype=dtype, device=self.device)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw a value, or a list of values over steps; this needs matplotlib."""
        return self._plot(val, ax)


class AURC(_Area):
    """Area under the risk-coverage curve: `snapsure.aurc` over all batches and processes.

    Parameters
    ----------
    ties : "expected" or "threshold"
        Average over all orders of tied examples, or accept them together.
    **options
        Options of `torchmetrics.Metric`, such as `dist_sync_on_step`.

    Examples
    --------
    >>> metric = AURC()
    >>> metric.update(torch.tensor([0.9, 0.8]), torch.tensor([True, False]))
    >>> metric.update(torch.tensor([0.7, 0.6]), torch.tensor([False, False]))
    >>> metric.compute()
    tensor(0.5208, dtype=torch.float64)
    """

    def __init__(self, *, ties: Ties = "expected", **options: Any) -> None:
        super().__init__(partial(aurc, ties=ties), **options)


class EAURC(_Area):
    """Excess AURC over the best order in hindsight: `snapsure.eaurc`.

    `ties` and options as for `AURC`; `optimal="integral"` takes the paper's integral for the area
    of the best order (0/1 errors only).

    Examples
    --------
    >>> metric = EAURC()
    >>> metric.update(torch.tensor([0.9, 0.8, 0.2]), torch.tensor([1, 0, 0]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    def __init__(
        self, *, ties: Ties = "expected", optimal: Optimal = "exact", **options: Any
    ) -> None:
        super().__init__(partial(eaurc, ties=ties, optimal=optimal), **options)


class AUGRC(_Area):
    """Area under the generalised risk-coverage curve: `snapsure.augrc`.

    `ties` and options as for `AURC`.

    Examples
    --------
    >>> metric = AUGRC()
    >>> metric.update(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 0, 0, 0]))
    >>> metric.compute()
    tensor(0.2500, dtype=torch.float64)
    """

    def __init__(self, *, ties: Ties = "expected", **options: Any) -> None:
        super().__init__(partial(augrc, ties=ties), **options)


def _to_bits(values: Array) -> Tensor:
    return torch.from_numpy(values.astype(np.float64).view(np.int64))


def _from_bits(bits: list[Tensor] | Tensor) -> Floats:
    if isinstance(bits, Tensor):  # gathered over processes
        bits = [bits]
    whole = torch.cat([torch.empty(0, dtype=torch.int64), *(part.cpu() for part in bits)])
    values: Floats = whole.numpy().view(np.float64)
    return values
