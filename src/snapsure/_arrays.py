"""Arrays in `.npy` files whose SHA-256 a manifest holds, so that corruption is detected."""

import hashlib
import io
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from snapsure import _files
from snapsure._types import Array
from snapsure.errors import CorruptFile


def write(path: Path, values: Array, *, durable: bool = True) -> str:
    """Write an array, whole or not at all, and return the SHA-256 of its file.

    `durable` is as in `_files.replacing`.

    Not by `np.save`, which writes through C's own buffer and does not notice a full disk when that
    is emptied.
    """
    array = np.ascontiguousarray(values)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    digest = hashlib.sha256(header.getvalue())
    digest.update(array.data)
    with _files.replacing(path, durable=durable) as file:
        file.write(header.getvalue())
        file.write(array.data)
    return digest.hexdigest()


def read(path: Path, sha256: str | None, remedy: str) -> Array:
    """Read an array whose file must have this SHA-256; None skips the check.

    `remedy` is an instruction for the message.
    """
    try:
        content = _files.read_bytes(path)
    except OSError as error:
        raise _corrupt(path, f"one that cannot be read ({error})", remedy) from None
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise _corrupt(path, "other bytes (its SHA-256 differs)", remedy)
    return _load(path, io.BytesIO(content), None, remedy)


def map_file(path: Path, sha256: str, remedy: str, mode: Literal["r", "c"] = "r") -> Array:
    """Check the same, and map the array: it may be larger than memory."""
    _files.check_sha256(path, sha256, remedy)
    return _load(path, path, mode, remedy)


def _load(path: Path, file: Path | BinaryIO, mode: Literal["r", "c"] | None, remedy: str) -> Array:
    try:
        values: Array = np.load(file, mmap_mode=mode, allow_pickle=False)
    except Exception as error:  # NumPy raises many kinds for damaged bytes
        raise _corrupt(path, f"one that cannot be read ({error})", remedy) from None
    return values


def _corrupt(path: Path, got: str, remedy: str) -> CorruptFile:
    return CorruptFile(f"{path} must be as it was written, got {got}. {_files.instruct(remedy)}")
