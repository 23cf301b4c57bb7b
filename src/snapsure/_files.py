"""Writing so that a crash leaves the old state or the new one, and nothing between."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from snapsure.errors import StorageError

_MARK = ".partial-"
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
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                error.errno,
                f"no space left to write {path.name} in {path.parent}: free some and write it "
                "again; what was there before is whole",
            ) from None
        raise StorageError(
            error.errno,
            f"cannot write {path.name} in {path.parent} ({error.strerror}): choose a folder that "
            "can be written to; what was there before is whole",
        ) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def remove_partial(folder: Path) -> None:
    """Remove what a crash left half-written."""
    for path in folder.rglob(f"{_MARK}*"):
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
