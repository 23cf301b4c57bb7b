"""A score table as one compressed file, for archives.

κ is packed as log κ/(1 − κ) in steps of 1/512, so that odds keep 0.2 % of their size near both ends
(float32 would collapse confident answers onto 1.0), each snapshot as its difference from the one
before, and bytes plane by plane. That takes a third of the space of float32.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snapsure import _files
from snapsure._logistic import sigmoid
from snapsure._logit_scores import FINAL_NUMBERS
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, UnsafeFile
from snapsure.table._table import ScoreTable

_STEPS = 512
_AGAIN = "take it from the archive again, or pack it again"
_ZERO, _ONE = -(2**15), 2**15 - 1  # κ = 0 and κ = 1, whose logit is infinite


def pack(table: ScoreTable, path: Path) -> None:
    """Write a table as one compressed file. Each snapshot's own labels are left out."""
    arrays: dict[str, Any] = {
        f"kappa.{name}": encode_kappa(table.kappa(name)) for name in table.names
    }
    arrays |= {"y_hat": shrink(table.y_hat), "epochs": shrink(table.epochs)}
    if table.y is not None:
        arrays["y"] = shrink(table.y)
    if table.final is not None:
        arrays["final"] = encode_kappa(table.final.T)
    write_arrays(path, arrays)


def shrink(numbers: Ints) -> Array:
    """Return whole numbers in as few bytes as they need."""
    low, high = numbers.min(), numbers.max()
    ranges = [np.iinfo(f"int{bits}") for bits in (8, 16, 32, 64)]
    return numbers.astype(next(one.dtype for one in ranges if one.min <= low and high <= one.max))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays as one `.npz` file that `np.load` reads; LZMA is smaller than NumPy's zlib."""
    with _files.replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def unpack(path: Path) -> ScoreTable:
    """Read what `pack` wrote; each snapshot gets the final labels."""
    try:
        _files.refuse_packed_bomb(path, _AGAIN)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            epochs, y_hat = file["epochs"], file["y_hat"]
            shape = (epochs.size, y_hat.size)
            kappas = {
                name: decode_kappa(file[f"kappa.{name}"], shape)
                for name in (key.removeprefix("kappa.") for key in file if key.startswith("kappa."))
            }
            y = file["y"] if "y" in file.files else None
            final = decode_final(file["final"], y_hat.size) if "final" in file.files else None
    except UnsafeFile:
        raise
    except Exception as error:  # damaged bytes make NumPy and zipfile raise many things
        raise CorruptFile(
            f"{path} must be a packed score table, got one that cannot be read ({error}). "
            f"{_files.instruct(_AGAIN)}"
        ) from None
    return ScoreTable(kappas, np.broadcast_to(y_hat, shape), y, epochs=epochs, final=final)


def encode_kappa(kappa: Floats) -> NDArray[np.uint8]:
    """Encode κ (T, n) as bytes that compress well."""
    with np.errstate(divide="ignore"):
        logit = np.log(kappa) - np.log1p(-kappa)
    steps = np.clip(np.rint(logit * _STEPS), _ZERO + 1, _ONE - 1).astype(np.int16)
    steps[kappa == 0], steps[kappa == 1] = _ZERO, _ONE
    changes = np.diff(steps, axis=0, prepend=np.zeros((1, steps.shape[1]), np.int16))
    changes = np.ascontiguousarray(changes)  # also of a transposed κ
    return np.ascontiguousarray(changes.view(np.uint8).reshape(-1, 2).T)


def decode_kappa(planes: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
    """Decode what `encode_kappa` encoded."""
    changes = np.ascontiguousarray(planes.T).view(np.int16).reshape(shape)
    steps = np.cumsum(changes, axis=0, dtype=np.int16)  # an overflow in diff is undone
    kappa = sigmoid(steps / _STEPS)
    kappa[steps == _ZERO], kappa[steps == _ONE] = 0, 1
    return kappa


def decode_final(planes: NDArray[np.uint8], n: int) -> Floats:
    """Decode the numbers of the final logits, (n, 5), which are encoded as rows of κ."""
    return decode_kappa(planes, (len(FINAL_NUMBERS), n)).T
