"""What tells rows of data from all others."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapsure._types import Ints


class Digest:
    """What tells rows from all others: type, shape and content of inputs and labels, by batch."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, inputs: Any, labels: Ints | None) -> None:
        """The next batch."""
        _update(self._hash, (inputs, labels))

    def hex(self) -> str:
        """The digest of all batches so far."""
        return self._hash.hexdigest()


def _update(digest: Any, part: Any) -> None:
    """Add names, types, shapes and contents."""
    if isinstance(part, Mapping):
        for key, below in part.items():
            digest.update(repr(key).encode())
            _update(digest, below)
    elif isinstance(part, tuple | list) and not is_words(part):
        for below in part:
            _update(digest, below)
    elif isinstance(part, Tensor):
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(part, np.ndarray) and not part.dtype.hasobject:
        digest.update(f"{part.dtype}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    else:
        digest.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())


def is_words(part: Any) -> bool:
    """Whether this is a column of strings, as the default collate leaves them."""
    return isinstance(part, tuple | list) and len(part) > 0 and isinstance(part[0], str)
