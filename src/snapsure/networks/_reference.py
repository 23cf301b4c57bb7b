"""Embeddings of the training examples under a snapshot, in files that many workers share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from snapsure import _arrays, _files, _json
from snapsure._types import Ints
from snapsure.errors import CorruptFile

_MANIFEST = "reference.json"
# Rows at a time, where PyTorch would copy all of them.
_BLOCK = 1 << 14


class Reference(NamedTuple):
    """Embeddings of the training examples under one snapshot, with their mean subtracted."""

    center: Tensor
    points: Tensor
    squares: Tensor  # of the distances of the points to the center
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, labels: Tensor) -> "Reference":
        """Make a reference of embeddings, in place: there may be no room for a second copy."""
        center = points.mean(dim=0)
        points -= center
        squares = torch.cat([squares_of(block) for block in torch.split(points, _BLOCK)])
        return cls(center, points, squares, labels)

    @classmethod
    def open(cls, folder: Path, device: torch.device) -> "Reference":
        """Map the files of `write_reference`: processes of a machine share them."""
        remedy = f"delete {folder} and score again"
        path = folder / _MANIFEST
        try:
            hashes = _json.load(path, "a manifest", dict[str, str], remedy)
        except FileNotFoundError:
            raise CorruptFile(
                f"{folder} must hold a reference, got none. {_files.instruct(remedy)}"
            ) from None
        # Copy-on-write, because PyTorch warns about arrays that cannot be written to.
        arrays = [
            _arrays.map_file(folder / f"{name}.npy", hashes.get(name, ""), remedy, "c")
            for name in cls._fields
        ]
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


@contextmanager
def write_reference(folder: Path, rows: int) -> Iterator[Callable[[Tensor, Ints], None]]:
    """Yield a function that takes embeddings and labels batch by batch, straight to the disk."""
    labels: list[Ints] = []
    hashes: dict[str, str] = {}
    _files.make_folder(folder)
    with _files.replacing(folder / "points.npy") as file:

        def add(points: Tensor, y: Ints) -> None:
            array = np.ascontiguousarray(points.cpu().numpy())
            if not labels:
                shape = (rows, array.shape[1])
                descr = np.lib.format.dtype_to_descr(array.dtype)
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)
            labels.append(y)

        yield add
        file.flush()
        points = torch.from_numpy(np.load(file.name, mmap_mode="r+"))
        reference = Reference.of(points, torch.from_numpy(np.concatenate(labels)))
        for name in ("center", "squares", "labels"):
            values = getattr(reference, name).numpy()
            hashes[name] = _arrays.write(folder / f"{name}.npy", values)
    hashes["points"] = _files.sha256(folder / "points.npy")
    _files.write_bytes(folder / _MANIFEST, _json.text({**hashes}))


def squares_of(points: Tensor) -> Tensor:
    """Return the squared length of each row."""
    squares: Tensor = torch.linalg.vecdot(points, points)
    return squares
