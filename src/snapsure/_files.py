"""Writing so that a crash leaves the old state or the new one, and nothing between."""

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4
from zipfile import ZipFile

from snapsure.errors import InvalidInput, StorageError, UnsafeFile

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

_MARK = ".partial-"
_TEMPORARY = re.compile(re.escape(_MARK) + r"[0-9a-f]{12}-(.+)")
_CHUNK = 1 << 20
# What systems say that have no second names for a file, and that cannot flush a folder: there, a
# rename is as safe as it gets.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_TIMES, _SMALL = 100, 1 << 28  # how far a file may unpack, and what is never too much


@contextmanager
def replacing(path: Path, before: Callable[[], object] | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on leaving, flush it to the disk and rename it.

    `before` is called when nothing but the renaming is left to do, and may refuse it.
    """

    def put(temporary: Path, path: Path) -> None:
        if before is not None:
            before()
        temporary.replace(path)

    with _putting(path, put) as file:
        yield file


@contextmanager
def _putting(path: Path, put: Callable[[Path, Path], object]) -> Iterator[BinaryIO]:
    """The same, `put` being what makes the temporary file the one that is wanted."""
    # Not the process's number: two machines that share a folder may have the same.
    temporary = path.with_name(f"{_MARK}{uuid4().hex[:12]}-{path.name}")
    try:
        with ExitStack() as held:
            with _new(temporary, held) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            put(temporary, path)
        flush_folder(path.parent)
    except FileExistsError:
        temporary.unlink(missing_ok=True)
        raise
    except OSError as error:
        with suppress(OSError):  # where nothing can be written, nothing can be removed
            temporary.unlink(missing_ok=True)
        if isinstance(error, StorageError):
            raise
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


def write_bytes(path: Path, content: bytes, before: Callable[[], object] | None = None) -> None:
    """Write a small file whole or not at all."""
    with replacing(path, before) as file:
        file.write(content)


def create(path: Path, content: bytes) -> bool:
    """Write a small file whole if there is none of its name; whether there was none."""
    try:
        with _putting(path, _link) as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def _link(temporary: Path, path: Path) -> None:
    """Give a file the name that is wanted, which nothing may have."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with path.open("xb") as file:  # as exclusive, but a crash may leave half of it
            file.write(temporary.read_bytes())
            file.flush()
            os.fsync(file.fileno())
    temporary.unlink()


def _new(temporary: Path, held: ExitStack) -> BinaryIO:
    """Open a new file, which other processes know by a lock to be in use until `held` ends."""
    while True:
        try:
            file = temporary.open("xb")  # never through a link that somebody has put there
        except FileExistsError as error:
            raise cannot_write(str(temporary), error) from None
        if fcntl is None:
            return file
        handle = os.dup(file.fileno())  # the lock outlives the closing of the file
        held.callback(os.close, handle)
        with suppress(OSError):  # where there are no locks, nobody takes them
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            return file
        file.close()  # it was taken for one that a crash had left, before it was locked


def _remove_left(path: Path) -> None:
    """Remove a temporary file, unless a process is writing it, or nobody can tell."""
    if fcntl is None:
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
        return
    with suppress(OSError), path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)  # while it is locked: it may just have been made


def claim(folder: Path, mark: str, argument: str, of: str) -> bool:
    """Make a folder, or take an empty one, or one with a file `mark`; whether the mark is there.

    Raises
    ------
    InvalidInput
        If the folder holds other things: nothing of others is touched.
    """
    make_writable(folder)
    marked = (folder / mark).exists()
    if not marked and any(folder.iterdir()):
        raise other_things(folder, argument, of)
    return marked


def things_in(folder: Path, but: re.Pattern[str]) -> list[str]:
    """What a folder holds but temporary files of such names, which others may be writing."""
    if not folder.is_dir():
        return []
    written = {path.name: _TEMPORARY.fullmatch(path.name) for path in folder.iterdir()}
    return [name for name, match in written.items() if not (match and but.fullmatch(match[1]))]


def other_things(folder: Path, argument: str, of: str) -> InvalidInput:
    """What to say of a folder that holds what is not ours."""
    return InvalidInput(
        f"{argument} must be a new folder or one of {of}, got {folder} with other things in it: "
        "choose another"
    )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or say why that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(f"to {folder}", error) from None


def make_inner(folder: Path) -> None:
    """The same of a folder in one of ours."""
    refuse_link(folder)
    make_folder(folder)


def refuse_link(folder: Path) -> None:
    """Refuse a folder of ours that is a link: files elsewhere would be replaced or removed."""
    if folder.is_symlink():
        raise StorageError(
            errno.ELOOP,
            f"{folder} must be a folder of its own, got a link to elsewhere: delete it",
        )


def make_writable(folder: Path) -> None:
    """The same, trying that a file can be written there, which nobody sees."""
    make_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(f"to {folder}", error) from None


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Say in a sentence what the system refuses to write, rename or remove."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise cannot_write(what, error) from None


def cannot_write(what: str, error: OSError, rest: str = "") -> StorageError:
    """What to say where the system refuses to write."""
    return StorageError(
        error.errno,
        f"cannot write {what} ({error.strerror}): choose a folder that can be written to{rest}",
    )


def remove_partial(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what a crash left half-written in a folder (not below it) of files of these names.

    What another process is writing there stays.
    """
    for path in folder.glob(f"{_MARK}*"):
        temporary = _TEMPORARY.fullmatch(path.name)
        if temporary and names.fullmatch(temporary[1]) and path.is_file():
            _remove_left(path)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in a folder survive a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders, and needs no flush of them
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file of ours, if it is still there, or say why that cannot be."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            error.errno,
            f"cannot remove {path} ({error.strerror}), which is no longer needed: make its folder "
            "writable, or delete it",
        ) from None


def is_plain(name: object) -> bool:
    """Whether a name, which another file gives, is that of a file beside it and nowhere else."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(sign in name for sign in "/\\:\0")
    )


def refuse_bomb(path: Path, unpacked: int, way_out: str) -> None:
    """Refuse a file that would fill the memory with far more than it holds.

    Raises
    ------
    UnsafeFile
        If it unpacks to more than a hundred times its size, and more than 256 MiB.
    """
    size = path.stat().st_size
    if unpacked > max(_SMALL, _TIMES * size):
        raise UnsafeFile(
            f"{path} must unpack to at most {_TIMES} times its size, got {unpacked:,} bytes from "
            f"{size:,}, as in a file made to fill the memory: {way_out}"
        )


def refuse_packed_bomb(path: Path, way_out: str) -> None:
    """The same of a zip file, by what it says of itself."""
    with ZipFile(path) as packed:
        refuse_bomb(path, sum(entry.file_size for entry in packed.infolist()), way_out)


def content_of(path: Path) -> bytes | None:
    """The bytes of a file, if there is one."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            error.errno, f"cannot read {path} ({error.strerror}): make it a file that can be read"
        ) from None


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
