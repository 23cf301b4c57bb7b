"""Embeddings of the training points under a snapshot, in files that many workers map and share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from snapsure import _files, _sealed
from snapsure._types import Ints

# Rows at a time, where PyTorch would make a copy of all.
_BLOCK = 1 << 14


class Reference(NamedTuple):
    """Embeddings of the training points under one snapshot, about their mean."""

    center: Tensor
    points: Tensor
    squares: Tensor  # of the points' distances to the center
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, labels: Tensor) -> "Reference":
        """Embeddings as they come, moved in place: there may be no room for a second copy."""
        center = points.mean(dim=0)
        points -= center
        squares = torch.cat([squares_of(block) for block in torch.split(points, _BLOCK)])
        return cls(center, points, squares, labels)

    @classmethod
    def open(cls, folder: Path, device: torch.device) -> "Reference":
        """Map what `written` left: it may be larger than memory, and is shared on a machine."""
        # Copy-on-write, because PyTorch warns of arrays that cannot be written to.
        again = f"delete {folder} and score again"
        arrays = (_sealed.map_array(folder / f"{name}.npy", again, "c") for name in cls._fields)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


@contextmanager
def written(folder: Path, rows: int) -> Iterator[Callable[[Tensor, Ints], None]]:
    """Take embeddings and labels batch by batch, straight to the disk."""
    labels: list[Ints] = []
    _files.make_folder(folder)
    with _sealed.replacing(folder / "points.npy") as file:

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
            _sealed.write_array(folder / f"{name}.npy", getattr(reference, name).numpy())


def squares_of(points: Tensor) -> Tensor:
    """Squared length of each row."""
    squares: Tensor = torch.linalg.vecdot(points, points)
    return squares
