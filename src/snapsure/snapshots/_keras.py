"""Keras's own files: `.weights.h5`, and the weights in a `.keras`; nothing else of it is read."""

import io
from pathlib import Path
from typing import Protocol, runtime_checkable
from zipfile import BadZipFile, ZipFile

from torch import Tensor

from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture

ENDS = (".weights.h5", ".keras")
_INSIDE = "model.weights.h5"  # of a `.keras`, beside a description of the model, which may run code
_OPTIMIZER = "optimizer/"


@runtime_checkable
class ReadsKeras(Protocol):
    """A model that takes Keras's own weight files, as keras.Model does."""

    def load_weights(self, filepath: str) -> None:
        """Take the weights of a `.weights.h5` or a `.keras` file."""


def is_keras(path: Path) -> bool:
    """Whether a file is Keras's, by its name."""
    return path.name.endswith(ENDS)


def read(path: Path) -> dict[str, Tensor]:
    """The model's weights by their places in the file."""
    import h5py
    import torch

    state: dict[str, Tensor] = {}

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith(_OPTIMIZER):
            state[name] = torch.tensor(item[()])

    try:
        with h5py.File(_opened(path), "r") as file:
            file.visititems(keep)
    except (OSError, BadZipFile, KeyError) as error:
        kind = "HDF5" if path.suffix == ".h5" else "Keras"
        raise CorruptFile(
            f"{path} must be a whole {kind} file, got one that cannot be read ({error}): copy it "
            "again"
        ) from None
    return state


def load_into(model: object, path: Path, epoch: int) -> None:
    """Let a Keras model take the weights, and nothing else, of a file."""
    if not isinstance(model, ReadsKeras):
        raise InvalidInput(
            f"`model` must be a Keras model for {path.name}, got {type(model).__name__}: "
            "wrap it in snapsure.integrations.keras.Classifier"
        )
    try:
        model.load_weights(str(path))
    except (KeyError, ValueError) as error:
        raise WrongArchitecture(
            f"checkpoint of epoch {epoch} ({path}) must have the architecture of `model`, got "
            f"Keras's refusal ({str(error).splitlines()[0]}): build the model that it was taken of"
        ) from None


def _opened(path: Path) -> Path | io.BytesIO:
    if path.suffix == ".h5":
        return path
    with ZipFile(path) as file:
        return io.BytesIO(file.read(_INSIDE))
