"""Energy: how large the logits are together, a score made to tell foreign inputs."""

from typing import Any

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.kappas._base import Kappa
from snapsure.kappas._squash import squash
from snapsure.networks._forward import Forward


class Energy(Kappa):
    """κ = squash(T ln Σ e^{z/T}), the negative free energy of the logits z.

    Liu, Wang, Owens & Li 2020 (Energy-based Out-of-distribution Detection), who use T = 1. It does
    not speak of y_hat, and a constant added to all logits of a row, which leaves the softmax as it
    is, raises it. `squash` (`kappas/_squash.py`) maps it to [0, 1] without changing an order.

    Parameters
    ----------
    temperature : float
        T, above 0; near 0 it is the largest logit.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from snapsure.kappas._logits import Logits
    >>> logits = torch.tensor([[0.5, 0.5], [2.0, 6.0]]).log()  # energies ln 1 = 0 and ln 8
    >>> Energy().score(Logits(logits), np.array([0, 1]), None).round(3).tolist()
    [0.5, 0.838]
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self._temperature = _validate.positive(temperature, "temperature")

    @property
    def name(self) -> str:
        """`energy`."""
        return "energy"

    @property
    def settings(self) -> dict[str, Any]:
        """The temperature."""
        return {"temperature": self._temperature}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """The logits' log-sum-exp, mapped to [0, 1]."""
        z = forward.logits.cpu().double()
        energy = self._temperature * (z / self._temperature).logsumexp(dim=1)
        values: Floats = squash(energy).numpy()
        return values
