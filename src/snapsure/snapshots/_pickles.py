"""Read what `torch.save` wrote without running code in it, unless the file is trusted."""

import argparse
import datetime
import decimal
import pathlib
import pickle
import re
import threading
import types
import uuid
import warnings
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo, is_zipfile

import numpy as np
import torch

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile

TRUST = "if you trust its author, pass trust=True (--trust on the command line)"
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"  # first bytes of `torch.save`'s files, since 1.6 and before


def _make_dict(*default: Any) -> dict[Any, Any]:
    """Stand in for `defaultdict`, which PyTorch would not fill."""
    return {}


def _make_list(*content: Any) -> list[Any]:
    """Stand in for `deque`, which PyTorch would not fill."""
    return []


# Values that many checkpoints hold beside tensors, whose constructors run nothing of the file's:
# `torch.load(weights_only=True)` makes these and those of PyTorch's own list. Names of modules are
# those in pickles of all versions of NumPy and Python.
_SAFE: list[Any] = [
    *(bool, dict, float, frozenset, int, list, range, slice, str, tuple),
    *(argparse.Namespace, types.SimpleNamespace, decimal.Decimal, uuid.UUID),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
    (_make_dict, "collections.defaultdict"),
    (_make_list, "collections.deque"),
    *(np.dtype, np.ndarray),
    *(getattr(np.dtypes, name) for name in np.dtypes.__all__ if not name.startswith("Object")),
    *(
        (getattr(np._core.multiarray, name), f"numpy.{core}.multiarray.{name}")  # type: ignore[attr-defined]
        for name in ("scalar", "_reconstruct")
        for core in ("core", "_core")
    ),
    *(
        (getattr(pathlib, name), f"{module}.{name}")
        for module in ("pathlib", "pathlib._local")
        for name in ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath")
    ),
    (pathlib.PureWindowsPath, "pathlib.WindowsPath"),  # which exists on Windows alone
    (pathlib.PureWindowsPath, "pathlib._local.WindowsPath"),
]
_safe = threading.Lock()  # PyTorch has one list for all threads, and each would end the others'


def read_pickle(path: Path, *, trust: bool, numbers: bool = True) -> Any:
    """Read the content of a checkpoint into memory, or without the numbers of its tensors.

    Tensors and everyday values are read with `weights_only=True`, which runs no code. A file that
    needs anything else is refused, or, if it is trusted, unpickled with a warning.
    """
    entries = _list_entries(path)
    if not trust:
        _files.refuse_bomb(path, sum(entry.file_size for entry in entries), TRUST)
    # Never mapped where they are used: a training may write the file again. PyTorch takes the bytes
    # of a compressed entry for numbers.
    packed = not entries or any(entry.compress_type != ZIP_STORED for entry in entries)
    mapped = not numbers and not packed

    try:
        with _safe, torch.serialization.safe_globals(_SAFE):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+)|got <class '(.+?)'>", str(error))
        needs = (name[1] or name[2]) if name else "more than that"
    except Exception as error:  # bytes that are no checkpoint make PyTorch raise many things
        raise _unreadable(path, error) from None

    if not trust:
        raise UnsafeFile(
            f"{path} must hold tensors and plain values alone, got a pickle that could run code "
            f"on loading (it needs {needs}). {_files.instruct(TRUST)} Or load it yourself and "
            "save its state_dict()."
        )
    warnings.warn(
        f"{path} is trusted: reading it can run any code that its author put in (it needs {needs})",
        stacklevel=2,
    )
    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=mapped)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"{path} must hold classes that can be imported here, got one that cannot ({error}). "
            "Run this where the code of that training is, or load the file there and save its "
            "state_dict()."
        ) from None
    except Exception as error:  # whatever the file's own code raises
        raise _unreadable(path, error) from None


def _list_entries(path: Path) -> list[ZipInfo]:
    """List the parts of a file in PyTorch's format since 1.6; an older one has none."""
    with path.open("rb") as file:
        start = file.read(len(_ZIP))
    if start.startswith(_PICKLE):
        return []
    if start != _ZIP:
        something = "something that torch.save does not write"
        raise _not_whole(path, something if start else "an empty file")
    if not is_zipfile(path):
        raise _not_whole(path, "one that was cut short")
    try:
        with ZipFile(path) as packed:
            return packed.infolist()
    except Exception as error:  # a damaged directory makes zipfile raise many things
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> CorruptFile:
    said = " ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return _not_whole(path, f"one that cannot be read ({said})")


def _not_whole(path: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{path} must be a whole checkpoint, got {got}. Wait if it is still being written; else "
        "copy it again, or move it away if it is none."
    )
