"""What a predictor is put together from: a network, a κ function, an estimator, rows of inputs."""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import DataLoader, Dataset

from snapsure.decisions import Threshold
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator
from snapsure.kappas import (
    GEN,
    Doctor,
    Energy,
    Entropy,
    Kappa,
    Margin,
    MaxLogit,
    MCDropout,
    SoftmaxResponse,
)
from snapsure.networks._data import Rows
from snapsure.networks._factory import imported
from snapsure.snapshots._base import Snapshots
from snapsure.table import ScoreTable

_KAPPAS: dict[str, type[Kappa]] = {
    "softmax": SoftmaxResponse,
    "entropy": Entropy,
    "margin": Margin,
    "energy": Energy,
    "max_logit": MaxLogit,
    "doctor": Doctor,
    "gen": GEN,
}


def refuse_others(model: Any, estimator: Any, threshold: Any) -> None:
    """Refuse what is of another kind than asked for."""
    if not isinstance(model, nn.Module | str):
        raise InvalidInput(
            f"`model` must be a torch.nn.Module or package.module:factory, got "
            f"{type(model).__name__}: pass the network, or what makes it as a string"
        )
    if not isinstance(estimator, Estimator):
        raise InvalidInput(
            f"`estimator` must be an Estimator such as AES(), got {estimator!r}: make one"
        )
    if threshold is not None and not isinstance(threshold, Threshold):
        raise InvalidInput(
            f"`threshold` must be a Threshold, got {type(threshold).__name__}: make one by "
            "Threshold.at_risk or .at_coverage"
        )


def made(factory: str) -> nn.Module:
    """What package.module:name gives when called."""
    module, _, name = factory.partition(":")
    try:
        model = getattr(imported(module), name)()
    except Exception as error:
        raise InvalidInput(
            f"`model` must name a function that makes the network, as package.module:name, got "
            f"{factory!r}, which raised {type(error).__name__} ({error}): try it in Python first"
        ) from None
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"`model` must name a function that makes the network, got {factory!r}, which gave "
            f"{type(model).__name__}: return a torch.nn.Module"
        )
    return model


def rows_of(data: Any) -> Rows:
    """Inputs in batches; of a tuple all are inputs, of a data set labels are left aside."""
    if isinstance(data, Rows | DataLoader | Dataset) or type(data).__module__.startswith(
        "datasets"
    ):
        return Rows.of(data, "batch")
    return Rows.of((data, None), "batch")


def settled(estimator: Estimator, snapshots: Snapshots, kappa: Kappa | None) -> Estimator:
    """The estimator with its epochs: one that learns nothing may not have been fitted."""
    if estimator.is_fitted:
        return estimator
    if estimator.learns:
        estimator.fitted  # noqa: B018 - refuses one that is not fitted
    name = "softmax" if kappa is None else kappa.name
    epochs = snapshots.epochs
    if not epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}: "
            "check the path, or record some"
        )
    any_point = ScoreTable.from_kappa(np.zeros((len(epochs), 1)), epochs=epochs, name=name)
    return copy.copy(estimator).fit(any_point, name)


def named_kappa(name: str) -> Kappa:
    """A κ function by its name, with its usual settings."""
    if name in _KAPPAS:
        return _KAPPAS[name]()
    if name.startswith("mc_dropout"):
        statistic: Any = name.removeprefix("mc_dropout").removeprefix("_") or "mean"
        return MCDropout(statistic=statistic)
    raise InvalidInput(
        f"`estimator` must be fitted on a κ of a new input's own passes ({', '.join(_KAPPAS)}, "
        f"mc_dropout), got {name}: fit it on one of these, or pass `kappa`"
    )


def made_kappa(name: str, settings: Mapping[str, Any]) -> Kappa:
    """A κ function by its name and settings."""
    if name in _KAPPAS:
        return _KAPPAS[name](**settings)
    return MCDropout(**settings) if name.startswith("mc_dropout") else named_kappa(name)


def deployable(kappa: Kappa) -> Kappa:
    """The same, unless it must see training data first."""
    if kappa.prepares:
        raise InvalidInput(
            f"`kappa` must need nothing but a new input's own passes, got {kappa.name}, which "
            "refers to training data: fit the estimator on softmax, or another"
        )
    return kappa


def refuse_other_snapshots(table: ScoreTable, snapshots: Snapshots) -> None:
    """Refuse snapshots that the table's scores are not of, where it says of which they are."""
    known: Mapping[str, Any] = table.provenance
    if "snapshots" not in known:
        return
    for member, hashes in zip(snapshots.members, known["snapshots"], strict=False):
        for epoch, hashed in zip(known["epochs"], hashes, strict=True):
            if epoch not in member or member.sha256(epoch) != hashed:
                raise InvalidInput(
                    f"`snapshots` must be those that the table was scored with, got another of "
                    f"epoch {epoch} in {member.path}: name the same folder, or score again"
                )
    if len(snapshots.members) != len(known["snapshots"]):
        raise InvalidInput(
            f"`snapshots` must be those that the table was scored with, got "
            f"{len(snapshots.members)} members for {len(known['snapshots'])}: name the same"
        )
