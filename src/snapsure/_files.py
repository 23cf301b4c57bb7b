"""Write files so that a crash leaves the old state or the new one, and hash them."""

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4
from zipfile import ZipFile

from snapsure.errors import CorruptFile, InvalidInput, StorageError, UnsafeFile

_MARK = ".partial-"
_TEMPORARY = re.compile(re.escape(_MARK) + r"[0-9a-f]{12}-(.+)")
# Answers of file systems without hard links, and of those that cannot flush a folder. A rename is
# the best they offer.
_NO_FLUSH = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_POSIX = os.name == "posix"  # Windows neither renames nor removes a file that is open
_RATIO, _SMALL = 100, 1 << 28  # how far a file may unpack, and the bytes that are always allowed


def check_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return a path, after refusing one that no file system takes."""
    try:
        if b"\0" not in os.fsencode(value):
            return Path(value)
        got = f"a NUL character in {value!r}"
    except UnicodeEncodeError:
        got = f"a lone surrogate in {value!r}"
    except TypeError:
        got = f"an object of type {type(value).__name__}"  # whose repr may be all of the data
    raise InvalidInput(f"`{name}` must be a path, got {got}. Check the path.")


@contextmanager
def replacing(
    path: Path, before: Callable[[], object] | None = None, *, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on exit, flush it to the disk and rename it to `path`.

    `before` runs just before the rename, and may raise to prevent it. A file that is not `durable`
    may be lost in a power cut: nobody waits for the disk.
    """
    # Not the process's number: two machines that share a folder may have the same.
    temporary = path.with_name(f"{_MARK}{uuid4().hex[:12]}-{path.name}")
    try:
        with _open_locked(temporary) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if not _POSIX:
                file.close()
            if before is not None:
                before()
            temporary.replace(path)
        if durable:
            flush_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):  # where nothing can be written, nothing can be removed
            temporary.unlink()
        if not isinstance(error, OSError) or isinstance(error, StorageError):
            raise
        what = f"{path.name} in {path.parent}"
        message = cannot_write(what, error).strerror
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message = f"No space left to write {what}. Free some and write it again."
        message = f"{message} What was there before is unchanged."
        raise StorageError(error.errno, message) from None


def _open_locked(temporary: Path) -> BinaryIO:
    """Open a new file, locked so that no other process takes it for one that a crash left."""
    while True:
        try:
            file = temporary.open("xb")  # never through a link that somebody put there
        except FileExistsError as error:
            raise cannot_write(str(temporary), error) from None
        try:
            _lock(file, blocking=True)
        except OSError:  # a file system without locks, where nobody removes temporary files
            return file
        if temporary.exists():
            return file
        file.close()  # removed as a leftover before it was locked


def _lock(file: BinaryIO, *, blocking: bool) -> bool:
    """Lock a file; return whether it is locked. Windows, which keeps open files, needs no lock."""
    if not _POSIX:
        return True
    from filelock import lock_descriptor  # here, so that commands that write nothing start faster

    return lock_descriptor(file.fileno(), blocking=blocking)


@contextmanager
def locking(folder: Path) -> Iterator[None]:
    """Be the only process that changes a folder, where the system can lock one; others wait."""
    if not _POSIX:
        yield
        return
    from filelock import lock_descriptor

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            lock_descriptor(handle, blocking=True)
        yield
    finally:
        os.close(handle)


def write_bytes(
    path: Path, content: bytes, before: Callable[[], object] | None = None, *, durable: bool = True
) -> None:
    """Write a small file whole or not at all; `before` and `durable` as in `replacing`."""
    with replacing(path, before, durable=durable) as file:
        file.write(content)


def remove_partial(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what a crash left half-written in a folder, of files with these names.

    Files that another process is writing stay, and folders below are not searched.
    """
    for path in folder.glob(f"{_MARK}*"):
        temporary = _TEMPORARY.fullmatch(path.name)
        if not temporary or not names.fullmatch(temporary[1]) or not path.is_file():
            continue
        with suppress(OSError), path.open("r+b") as file:
            if not _POSIX:
                file.close()
            if _lock(file, blocking=False):
                path.unlink()


def remove(path: Path) -> None:
    """Remove a file of ours, if it is still there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            error.errno,
            f"Cannot remove {path} ({error.strerror}), which is no longer needed. Make its folder "
            "writable, or delete it.",
        ) from None


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


def claim(folder: Path, mark: str, argument: str, of: str) -> bool:
    """Make a folder, or take an empty one or one with a file `mark`; return whether it has it."""
    make_writable(folder)
    marked = (folder / mark).exists()
    if not marked and any(folder.iterdir()):
        raise other_things(folder, argument, of)
    return marked


def things_in(folder: Path, but: re.Pattern[str]) -> list[str]:
    """List what a folder holds, except temporary files of such names, which others may write."""
    if not folder.is_dir():
        return []
    names = {path.name: _TEMPORARY.fullmatch(path.name) for path in folder.iterdir()}
    return [name for name, match in names.items() if not (match and but.fullmatch(match[1]))]


def other_things(folder: Path, argument: str, of: str) -> InvalidInput:
    """Make the error for a folder that holds files that are not ours."""
    return InvalidInput(
        f"{argument} must be a new folder or one of {of}, got {folder} with other things in it. "
        "Choose another folder."
    )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    with writing(f"to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def make_inner(folder: Path) -> None:
    """Make a folder inside one of ours."""
    refuse_link(folder)
    make_folder(folder)


def make_writable(folder: Path) -> None:
    """Make a folder, and check that a file can be written there."""
    make_folder(folder)
    with writing(f"to {folder}"), tempfile.TemporaryFile(dir=folder):
        pass


def refuse_link(folder: Path) -> None:
    """Refuse a folder of ours that is a link: files elsewhere would be replaced or removed."""
    if folder.is_symlink() or is_special(folder):
        got = "a link" if folder.is_symlink() else "a pipe, a socket or a device"
        raise StorageError(
            errno.ELOOP, f"{folder} must be a folder of its own, got {got}. Delete it."
        )


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn the system's refusal to write, rename or remove `what` into a `StorageError`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise cannot_write(what, error) from None


def cannot_write(what: str, error: OSError) -> StorageError:
    """Make the error for what the system refuses to write."""
    message = f"Cannot write {what} ({error.strerror}). Choose a folder that you can write to."
    return StorageError(error.errno, message)


def is_plain(name: object) -> bool:
    """Say whether a name, which a file gives, is that of a file beside it and nowhere else."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not any(sign in name for sign in "/\\:\0")
    )


def refuse_bomb(path: Path, unpacked: int, remedy: str) -> None:
    """Refuse a file made to fill the memory: one that unpacks to far more than its size."""
    size = path.stat().st_size
    if unpacked > max(_SMALL, _RATIO * size):
        raise UnsafeFile(
            f"{path} must unpack to at most {_RATIO} times its size, got {unpacked:,} bytes from "
            f"{size:,}, which could fill the memory. {instruct(remedy)}"
        )


def refuse_packed_bomb(path: Path, remedy: str) -> None:
    """Refuse such a zip file, by the sizes in its directory."""
    with open_file(path) as file, ZipFile(file) as packed:
        refuse_bomb(path, sum(entry.file_size for entry in packed.infolist()), remedy)


def is_special(path: Path) -> bool:
    """Say whether a path is a pipe, a socket or a device: reading one may wait, or never end."""
    try:
        mode = path.stat().st_mode  # one look: another process may replace the file meanwhile
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def open_file(path: Path) -> BufferedReader:
    """Open a file to read it."""
    if is_special(path):
        raise OSError(errno.EINVAL, "a pipe, a socket or a device")
    return path.open("rb")


def read_bytes(path: Path) -> bytes:
    """Read a file."""
    with open_file(path) as file:
        return file.read()


def content_of(path: Path) -> bytes | None:
    """Read a file, if there is one."""
    try:
        return read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            error.errno, f"Cannot read {path} ({error.strerror}). Make it a readable file."
        ) from None


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's bytes."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, expected: object, remedy: str) -> None:
    """Refuse a file whose bytes are not those that its folder's manifest has the hash of."""
    try:
        got = "other bytes (SHA-256 differs)" if sha256(path) != expected else None
    except OSError as error:
        got = f"a file that cannot be read ({error.strerror})"
    if got:
        raise CorruptFile(f"{path} must be as it was written, got {got}. {instruct(remedy)}")


def instruct(remedy: str) -> str:
    """Make a sentence of an instruction."""
    return f"{remedy[:1].upper()}{remedy[1:]}."
