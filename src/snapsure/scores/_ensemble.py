"""Ensemble: several networks trained alike, and the mean of their κ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from snapsure.errors import InvalidInput
from snapsure.scores._base import Forward, Kappa, Sampling, Snapshot, Values
from snapsure.scores._softmax import SoftmaxResponse
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import opened


class Ensemble(Kappa):
    """κ = mean over the members of their own κ, of the class that the ensemble chose.

    The classifier is the ensemble: y_hat is the argmax of the members' mean softmax. It is scored
    in a call of its own therefore.

    Parameters
    ----------
    stores : sequence of SnapshotStore or paths
        One per member, all with snapshots of the same epochs.
    base : Kappa
        The members' κ; softmax response by default.
    """

    def __init__(self, stores: Sequence[Snapshots | str | Path], base: Kappa | None = None) -> None:
        self.stores = [opened(store) for store in stores]
        if len(self.stores) < 2:
            raise InvalidInput(
                f"`stores` must name at least 2 members, got {len(self.stores)}: "
                "train more networks, or score the one by itself"
            )
        self.base = SoftmaxResponse() if base is None else base
        if isinstance(self.base, Ensemble):
            raise InvalidInput(
                "`base` must be the κ of one network, got an Ensemble: pass its base"
            )

    @property
    def name(self) -> str:
        """`ensemble`, or `ensemble_` and the base's."""
        return ensemble_name(self.base)

    @property
    def layers(self) -> list[str | None]:
        """The base's."""
        return self.base.layers

    @property
    def sampling(self) -> Sampling | None:
        """The base's."""
        return self.base.sampling

    @property
    def settings(self) -> dict[str, Any]:
        """The base's."""
        return {"base": self.base.name, **self.base.settings}

    @property
    def prepares(self) -> bool:
        """As the base."""
        return self.base.prepares

    def prepare(self, snapshots: Sequence[Snapshot], folders: Sequence[Path]) -> None:
        """For any members."""
        self.base.prepare(snapshots, folders)

    def prepared(self, folder: Path, device: torch.device) -> Any:
        """For one member."""
        return self.base.prepared(folder, device)

    def score(self, forward: Forward, y_hat: NDArray[np.int64], prepared: Any) -> Values:
        """Of one member; the engine takes the mean."""
        return self.base.score(forward, y_hat, prepared)


def ensemble_name(base: Kappa) -> str:
    """`ensemble`, with the base's name behind it where that is not softmax."""
    return "ensemble" if base.name == "softmax" else f"ensemble_{base.name}"
