"""The outcome of an experiment in a few megabytes: what tables and figures are computed from.

A folder with `experiment.json` (recipe, and what became of each training) and score tables packed
as `seed-0.npz` … and `ensemble.npz`. Reading it takes NumPy alone.

κ is packed as its distance to the nearer of 0 and 1 (negative: below 1), so that float32 does not
collapse confident points onto 1.0; of its mantissa twelve bits are kept, and bytes are laid out
plane by plane, which is what makes the files small. The tables are computed from what was packed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table import ScoreTable

Floats = NDArray[np.float64]

_ABOUT = "experiment.json"
_ENSEMBLE = "ensemble.npz"
_BITS_DROPPED = np.uint32(11)  # of the 23 that float32 keeps


@dataclass(frozen=True)
class Experiment:
    """Networks of one recipe on one data set, and the ensemble of them if there are several."""

    about: Mapping[str, Any]  # "dataset", "scale", "recipe", "networks"
    tables: Sequence[ScoreTable]
    ensemble: ScoreTable | None

    @staticmethod
    def open(folder: Path) -> "Experiment":
        """Read a folder that `save` wrote."""
        path = folder / _ABOUT
        if not path.is_file():
            raise InvalidInput(
                f"--from must be a folder with {_ABOUT}, got none in {folder}: check the path, or "
                "let the experiment finish"
            )
        about = json.loads(path.read_text())
        tables = [unpack(folder / _seed(i)) for i in range(len(about["networks"]))]
        several = (folder / _ENSEMBLE).exists()
        return Experiment(about, tables, unpack(folder / _ENSEMBLE) if several else None)

    def save(self, folder: Path) -> None:
        """Write it; what makes the folder one comes last."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _ABOUT).unlink(missing_ok=True)
        for i, table in enumerate(self.tables):
            pack(table, folder / _seed(i))
        if self.ensemble is not None:
            pack(self.ensemble, folder / _ENSEMBLE)
        _files.write_bytes(folder / _ABOUT, (json.dumps(self.about, indent=1) + "\n").encode())


def pack(table: ScoreTable, path: Path) -> None:
    """Write a table as one compressed file. Each snapshot's own labels are left out."""
    arrays: dict[str, Any] = {f"kappa.{name}": _packed(table.kappa(name)) for name in table.names}
    arrays["y_hat"] = table.y_hat.astype(np.int16)
    arrays["epochs"] = table.epochs.astype(np.int32)
    if table.y is not None:
        arrays["y"] = table.y.astype(np.int16)
    with _files.replacing(path) as file:
        np.savez_compressed(file, **arrays)


def unpack(path: Path) -> ScoreTable:
    """Read what `pack` wrote; each snapshot's labels are the final ones."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, BadZipFile) as error:
        raise CorruptFile(
            f"{path} must be a packed score table, got one that cannot be read ({error}): "
            "take it from the archive again, or pack it again"
        ) from None
    epochs, y_hat = arrays["epochs"], arrays["y_hat"]
    shape = (epochs.size, y_hat.size)
    kappas = {
        name.removeprefix("kappa."): _unpacked(planes, shape)
        for name, planes in arrays.items()
        if name.startswith("kappa.")
    }
    labels = np.broadcast_to(y_hat, shape)
    return ScoreTable(kappas, labels, arrays.get("y"), epochs=epochs)


def _packed(kappa: Floats) -> NDArray[np.uint8]:
    distance = np.where(kappa < 0.5, kappa, kappa - 1).astype(np.float32)
    distance[kappa == 1] = -np.finfo(np.float32).smallest_subnormal  # a sign, where 0 has none
    bits = distance.view(np.uint32)
    half = np.uint32(1) << (_BITS_DROPPED - np.uint32(1))
    rounded = (bits + half) >> _BITS_DROPPED << _BITS_DROPPED
    small = (bits & np.uint32(0x7F800000)) == 0  # subnormal: nothing to round
    planes = np.where(small, bits, rounded).view(np.uint8).reshape(-1, 4).T
    return np.ascontiguousarray(planes)


def _unpacked(planes: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
    distance = np.ascontiguousarray(planes.T).view(np.float32).reshape(shape).astype(np.float64)
    return np.where(distance < 0, 1 + distance, distance)


def _seed(i: int) -> str:
    return f"seed-{i}.npz"
