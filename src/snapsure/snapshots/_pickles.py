"""What `torch.save` wrote, read without running what came with it, unless it is trusted."""

import pickle
import re
import warnings
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo, is_zipfile

import torch

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile
from snapsure.snapshots._everyday import EVERYDAY

TRUST = "if you trust whoever made it, pass trust=True (--trust on the command line)"
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"  # how files of `torch.save` begin, since 1.6 and before


def unpickled(path: Path, *, trust: bool = False) -> Any:
    """The content of a checkpoint; mapped, not copied.

    Tensors and everyday values are made by `weights_only=True`, which runs no code. For anything
    else the file is refused; if it is trusted, it is read as `pickle` reads, with a warning.
    """
    _refuse_other_bytes(path)
    entries = _entries(path)
    if not trust:
        _files.refuse_bomb(path, sum(entry.file_size for entry in entries), TRUST)
    # PyTorch maps what a compressed entry begins with, without a word, and takes it for weights.
    mapped = bool(entries) and all(entry.compress_type == ZIP_STORED for entry in entries)
    try:
        with torch.serialization.safe_globals(EVERYDAY):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)|got <class '(.+?)'>", str(error))
        needs = (named[1] or named[2]) if named else "more than that"
    except Exception as error:  # whatever bytes that are no checkpoint make torch say
        raise _unreadable(path, error) from None
    if not trust:
        raise UnsafeFile(
            f"{path} must hold tensors and plain values alone, got a pickle that could run code on "
            f"loading (it needs {needs}): {TRUST}; or load it yourself and save its state_dict()"
        )
    warnings.warn(
        f"{path} is trusted: reading it can run any code that whoever made it put in (it needs "
        f"{needs})",
        stacklevel=2,
    )
    return _trusted(path, mapped)


def _trusted(path: Path, mapped: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=mapped)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"{path} must be of classes that can be imported here, got one that cannot ({error}): "
            "run it where the code of that training is, or load the file there and save its "
            "state_dict()"
        ) from None
    except Exception as error:  # whatever the file's own code raises
        raise _unreadable(path, error) from None


def _refuse_other_bytes(path: Path) -> None:
    """Refuse what does not begin as a checkpoint does, or lost its end."""
    with path.open("rb") as file:
        start = file.read(len(_ZIP))
    if not start:
        raise _not_whole(path, "an empty file")
    if start == _ZIP and not is_zipfile(path):
        raise _not_whole(path, "one that was cut short")
    if start != _ZIP and not start.startswith(_PICKLE):
        raise _not_whole(path, "something that torch.save does not write")


def _unreadable(path: Path, error: Exception) -> CorruptFile:
    said = " ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return _not_whole(path, f"one that cannot be read ({said})")


def _not_whole(path: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{path} must be a whole checkpoint, got {got}: copy it again, or move it away if it is "
        "none"
    )


def _entries(path: Path) -> list[ZipInfo]:
    """What a file in PyTorch's format since 1.6 is made of."""
    if not is_zipfile(path):
        return []
    try:
        with ZipFile(path) as file:
            return file.infolist()
    except Exception as error:  # whatever a damaged directory of the file makes zipfile say
        raise _unreadable(path, error) from None
