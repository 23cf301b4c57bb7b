"""Keras's own files: `.weights.h5`, and the weights in a `.keras`; nothing else of it is read."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, StorageError, UnsafeFile, WrongArchitecture
from snapsure.snapshots._pickles import TRUST

ENDS = (".weights.h5", ".keras")
_INSIDE = "model.weights.h5"  # in a `.keras`, beside a description of the model, which may run code


def is_keras(path: Path) -> bool:
    """Say whether a file is Keras's, by its name."""
    return path.name.endswith(ENDS)


def read(path: Path, *, trust: bool) -> dict[str, Tensor]:
    """Read the model's weights by their places in the file.

    A file that refers to other files is refused, even if it is trusted: Keras would read those.
    """
    import h5py

    try:
        source: Path | io.BytesIO = path
        if path.suffix != ".h5":
            with ZipFile(path) as packed:
                if not trust:
                    _files.refuse_bomb(path, packed.getinfo(_INSIDE).file_size, TRUST)
                source = io.BytesIO(packed.read(_INSIDE))
        with h5py.File(source, "r") as file:
            arrays = _find_arrays(path, file)
            if not trust:
                _files.refuse_bomb(path, sum(array.nbytes for array in arrays.values()), TRUST)
            return {
                name: torch.tensor(array[()])
                for name, array in arrays.items()
                if not name.startswith("optimizer/")
            }
    except StorageError:
        raise
    except Exception as error:  # damaged bytes make h5py, zipfile, zlib and torch raise many things
        kind = "HDF5" if path.suffix == ".h5" else "Keras"
        raise CorruptFile(
            f"{path} must be a whole {kind} file, got one that cannot be read ({error}). Copy it "
            "again."
        ) from None


def _find_arrays(path: Path, file: Any) -> dict[str, Any]:
    """Find all arrays in a file, which must hold them itself."""
    import h5py

    arrays: dict[str, Any] = {}
    elsewhere: list[str] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = item
            if item.external or item.is_virtual:
                elsewhere.append(name)

    def visit_link(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            elsewhere.append(name)

    file.visititems(visit)
    file.visititems_links(visit_link)
    if elsewhere:
        raise UnsafeFile(
            f"{path} must hold all its numbers itself, got {elsewhere[0]}, which refers to another "
            "file. Save the weights again by model.save_weights(path)."
        )
    return arrays


def load_into(model: Any, path: Path, epoch: int) -> None:
    """Let a Keras model take the weights, and nothing else, of a file."""
    if not hasattr(model, "load_weights"):
        raise InvalidInput(
            f"`model` must be a Keras model for {path.name}, got {type(model).__name__}. Wrap it "
            "in snapsure.integrations.keras.Classifier."
        )
    try:
        model.load_weights(str(path))
    except (KeyError, ValueError) as error:
        raise WrongArchitecture(
            f"Checkpoint of epoch {epoch} ({path}) must have the architecture of `model`, got "
            f"Keras's refusal ({str(error).splitlines()[0]}). Build the model that it was taken of."
        ) from None
