"""Files that end with the SHA-256 of what is before it, so that a flipped bit is told.

Other tools read them as if it were not there: NumPy an array, PyTorch what it has saved. Files of
earlier versions, which have none, are read as they are.
"""

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from snapsure import _files
from snapsure._types import Array
from snapsure.errors import CorruptFile

_MARK = b"\0snapsure sha256 "
_SEAL = len(_MARK) + hashlib.sha256().digest_size
_CHUNK = 1 << 20


class Sealed(NamedTuple):
    """An array, and the SHA-256 of its file but for the seal."""

    values: Array
    sha256: str


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """As `_files.replacing`, with a seal at the end."""
    with _files.replacing(path) as file:
        yield file
        file.flush()
        with Path(file.name).open("rb") as written:
            digest = hashlib.file_digest(written, "sha256")
        file.write(_MARK + digest.digest())


def write_array(path: Path, values: Array) -> None:
    """Write an array as `.npy`, whole or not at all.

    Not by `np.save`: it writes through C's own buffer, and does not hear of a disk that is full
    when that is emptied.
    """
    array = np.ascontiguousarray(values)
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, np.lib.format.header_data_from_array_1_0(array))
    digest = hashlib.sha256(start.getvalue())
    digest.update(array.data)
    with _files.replacing(path) as file:
        file.write(start.getvalue())
        file.write(array.data)
        file.write(_MARK + digest.digest())


def read_array(path: Path, remedy: str) -> Sealed:
    """Read what `write_array` wrote.

    Raises
    ------
    CorruptFile
        If it is not as it was written; `remedy` is what to do.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error, remedy) from None
    body, told = _parts(content)
    found = hashlib.sha256(body).digest()
    _compare(path, told, found, remedy)
    try:
        values: Array = np.load(io.BytesIO(body), allow_pickle=False)
    except Exception as error:  # damaged bytes make NumPy say many things
        raise _unreadable(path, error, remedy) from None
    return Sealed(values, found.hex())


def map_array(path: Path, remedy: str, mode: Literal["r", "c"] = "r") -> Array:
    """The same, mapped into memory after one pass over the file: it may be larger than memory."""
    check(path, remedy)
    try:
        values: Array = np.load(path, mmap_mode=mode, allow_pickle=False)
    except Exception as error:
        raise _unreadable(path, error, remedy) from None
    return values


def check(path: Path, remedy: str) -> None:
    """Refuse a file that is not as it was written."""
    try:
        with path.open("rb") as file:
            told, length = _seal_of(file)
            digest, left = hashlib.sha256(), length
            while told is not None and left:
                chunk = file.read(min(left, _CHUNK))
                digest.update(chunk)
                left -= len(chunk)
    except OSError as error:
        raise _unreadable(path, error, remedy) from None
    _compare(path, told, digest.digest(), remedy)


def sha256(path: Path, remedy: str) -> str:
    """What the seal says; of a file without one, of all of it."""
    try:
        with path.open("rb") as file:
            told, _ = _seal_of(file)
        return _files.sha256(path) if told is None else told.hex()
    except OSError as error:
        raise _unreadable(path, error, remedy) from None


def _parts(content: bytes) -> tuple[bytes | memoryview, bytes | None]:
    """What was written, and what the seal says of it."""
    if content[-_SEAL : len(_MARK) - _SEAL] != _MARK:
        return content, None
    return memoryview(content)[:-_SEAL], content[len(_MARK) - _SEAL :]


def _seal_of(file: BinaryIO) -> tuple[bytes | None, int]:
    """What the seal says, and how many bytes it says it of, which are read next."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - _SEAL))
    _, told = _parts(file.read())
    file.seek(0)
    return told, size if told is None else size - _SEAL


def _compare(path: Path, told: bytes | None, found: bytes, remedy: str) -> None:
    if told is not None and told != found:
        raise CorruptFile(
            f"{path} must be as it was written, got other bytes (its SHA-256 differs): {remedy}"
        )


def _unreadable(path: Path, error: Exception, remedy: str) -> CorruptFile:
    return CorruptFile(
        f"{path} must be as it was written, got one that cannot be read ({error}): {remedy}"
    )
