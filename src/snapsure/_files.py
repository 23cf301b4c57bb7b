"""Writing so that a crash leaves the old state or the new one, and nothing between."""

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import numpy as np

from snapsure._types import Array
from snapsure.errors import InvalidInput, StorageError

_MARK = ".partial-"
_TEMPORARY = re.compile(re.escape(_MARK) + r"[0-9a-f]{12}-(.+)")
_CHUNK = 1 << 20


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on leaving, flush it to the disk and rename it."""
    # Not the process's number: two machines that share a folder may have the same.
    temporary = path.with_name(f"{_MARK}{uuid4().hex[:12]}-{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # where nothing can be written, nothing can be removed
            temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                error.errno,
                f"no space left to write {path.name} in {path.parent}: free some and write it "
                "again; what was there before is whole",
            ) from None
        raise cannot_write(
            f"{path.name} in {path.parent}", error, "; what was there before is whole"
        ) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def write_array(path: Path, values: Array) -> None:
    """Write an array as `.npy`, whole or not at all.

    Not by `np.save`: it writes through C's own buffer, and does not hear of a disk that is full
    when that is emptied.
    """
    array = np.ascontiguousarray(values)
    with replacing(path) as file:
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(array.data)


def claim(folder: Path, mark: str, argument: str, of: str) -> bool:
    """Make a folder, or take an empty one, or one with a file `mark`; whether the mark is there.

    Raises
    ------
    InvalidInput
        If the folder holds other things: nothing of others is touched.
    """
    make_writable(folder)
    marked = (folder / mark).exists()
    if not marked:
        refuse_other_things(folder, argument, of)
    return marked


def refuse_other_things(folder: Path, argument: str, of: str) -> None:
    """Refuse a folder that holds anything."""
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInput(
            f"{argument} must be a new folder or one of {of}, got {folder} with other things in "
            "it: choose another"
        )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or say why that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(f"to {folder}", error) from None


def make_writable(folder: Path) -> None:
    """The same, trying that a file can be written there, which nobody sees."""
    make_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(f"to {folder}", error) from None


def cannot_write(what: str, error: OSError, rest: str = "") -> StorageError:
    """What to say where the system refuses to write."""
    return StorageError(
        error.errno,
        f"cannot write {what} ({error.strerror}): choose a folder that can be written to{rest}",
    )


def remove_partial(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what a crash left half-written in a folder (not below it) of files of these names."""
    for path in folder.glob(f"{_MARK}*"):
        temporary = _TEMPORARY.fullmatch(path.name)
        if temporary and names.fullmatch(temporary[1]) and path.is_file():
            path.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders, and needs no flush of them
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
