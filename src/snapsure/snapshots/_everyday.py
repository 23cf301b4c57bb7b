"""What everyday checkpoints hold beside tensors, and what making it cannot do harm.

`torch.load(weights_only=True)` makes nothing but what is on PyTorch's list, and on this one:
values, by constructors that run nothing of the file's. Names of modules are those that pickles
have, of other versions of NumPy and Python too.
"""

import argparse
import datetime
import decimal
import pathlib
import types
import uuid
from typing import Any

import numpy as np

_SCALAR: Any = np._core.multiarray.scalar  # type: ignore[attr-defined]
_ARRAY: Any = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
_PATHS = ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath")
_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)

_DEFAULTS = (bool, dict, float, int, list, str, tuple)  # what a `defaultdict` is of


def _plain_dict(*default: Any) -> dict[Any, Any]:
    """In the place of a `defaultdict`, which PyTorch would not fill."""
    return {}


def _plain_list(*content: Any) -> list[Any]:
    """In the place of a `deque`, which PyTorch would not fill."""
    return []


EVERYDAY: list[Any] = [
    argparse.Namespace,
    types.SimpleNamespace,
    (_plain_dict, "collections.defaultdict"),
    (_plain_list, "collections.deque"),
    decimal.Decimal,
    uuid.UUID,
    frozenset,
    range,
    slice,
    *_DEFAULTS,
    *_TIMES,
    np.dtype,
    np.ndarray,
    *(getattr(np.dtypes, name) for name in np.dtypes.__all__ if not name.startswith("Object")),
    *((_SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *((_ARRAY, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *(
        (getattr(pathlib, name), f"{module}.{name}")
        for module in ("pathlib", "pathlib._local")
        for name in _PATHS
    ),
    (pathlib.PureWindowsPath, "pathlib.WindowsPath"),  # which exists on Windows alone
    (pathlib.PureWindowsPath, "pathlib._local.WindowsPath"),
]
