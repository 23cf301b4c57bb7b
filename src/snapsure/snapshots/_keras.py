"""Keras's own files: `.weights.h5`, and the weights in a `.keras`; nothing else of it is read."""

import io
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from zipfile import ZipFile

from torch import Tensor

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, StorageError, UnsafeFile, WrongArchitecture
from snapsure.snapshots._pickles import TRUST

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


def read(path: Path, *, trust: bool = False) -> dict[str, Tensor]:
    """The model's weights by their places in the file.

    What lies in other files is refused, whoever is trusted: Keras would read it from there.
    """
    import h5py
    import torch

    state: dict[str, Tensor] = {}
    try:
        with h5py.File(_opened(path, trust), "r") as file:
            arrays = _arrays(path, file)
            if not trust:
                _files.refuse_bomb(path, sum(array.nbytes for array in arrays.values()), TRUST)
            for name, array in arrays.items():
                if not name.startswith(_OPTIMIZER):
                    state[name] = torch.tensor(array[()])
    except StorageError:
        raise
    except Exception as error:  # whatever damaged bytes make h5py, zipfile, zlib or torch say
        kind = "HDF5" if path.suffix == ".h5" else "Keras"
        raise CorruptFile(
            f"{path} must be a whole {kind} file, got one that cannot be read ({error}): copy it "
            "again"
        ) from None
    return state


def _arrays(path: Path, file: Any) -> dict[str, Any]:
    """All arrays in a file, which must hold them itself."""
    import h5py

    arrays: dict[str, Any] = {}
    elsewhere: list[str] = []

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item
            if item.external or item.is_virtual:
                elsewhere.append(name)

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            elsewhere.append(name)

    file.visititems(keep)
    file.visititems_links(look)
    if elsewhere:
        raise UnsafeFile(
            f"{path} must hold all its numbers itself, got {elsewhere[0]}, which lies in another "
            "file: save the weights again, by model.save_weights(path)"
        )
    return arrays


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


def _opened(path: Path, trust: bool) -> Path | io.BytesIO:
    if path.suffix == ".h5":
        return path
    with ZipFile(path) as file:
        if not trust:
            _files.refuse_bomb(path, file.getinfo(_INSIDE).file_size, TRUST)
        return io.BytesIO(file.read(_INSIDE))
