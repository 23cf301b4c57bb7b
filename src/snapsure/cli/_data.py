"""Data that options name: arrays in files, functions that return data, text and CSV files."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from snapsure import _files
from snapsure.cli._models import call_factory
from snapsure.errors import InvalidInput, UnsafeFile

_NPY_MAGIC = b"\x93NUMPY"


def load_data(spec: str, option: str) -> Any:
    """Load an .npz file with x and, if known, y; an .npy file of inputs; or call a function."""
    if spec.endswith(".npz"):
        arrays = _load_file(spec, option)
        if "x" not in arrays:
            raise InvalidInput(
                f"{option} must hold an array x (and y), got {', '.join(arrays) or 'none'} in "
                f"{spec}. Write it by np.savez(path, x=…, y=…)."
            )
        return arrays["x"], arrays.get("y")
    if spec.endswith(".npy"):
        return _load_file(spec, option), None
    if ":" not in spec and Path(spec).is_file():
        raise InvalidInput(
            f"{option} must be an .npz or .npy file, or package.module:function, got {spec}. Write "
            "a function that reads it and returns (inputs, labels), and name that."
        )
    return call_factory(spec, option)


def load_array(spec: str, name: str, option: str) -> Any:
    """Load one more array of an .npz file, by its name."""
    arrays = _load_file(spec, option) if spec.endswith(".npz") else {}
    if name not in arrays:
        raise InvalidInput(
            f"{option} must name an array of an .npz file, got {name!r} for {spec}, which has "
            f"{', '.join(arrays) or 'none'}. Write it by np.savez(path, x=…, {name}=…)."
        )
    return arrays[name]


def _load_file(spec: str, option: str) -> Any:
    """Read an .npz file as a dictionary; map an .npy file, which stays on the disk until needed."""
    import numpy as np

    path = Path(spec)
    is_packed = path.suffix == ".npz"
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        with path.open("rb") as file:
            begin = file.read(len(_NPY_MAGIC))
            if not begin:
                raise EOFError("it is empty")
            if not (is_zipfile(file) if is_packed else begin == _NPY_MAGIC):
                # NumPy would take it for a pickle.
                raise ValueError("it is cut short, or something else")
        if not is_packed:
            return np.load(path, mmap_mode="c", allow_pickle=False)
        _files.refuse_packed_bomb(path, "write it by np.savez, which does not compress")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except UnsafeFile:
        raise
    except Exception as error:  # whatever damaged bytes make NumPy or zlib raise
        why = str(error).partition("\n")[0]
        way = "np.savez(path, x=…, y=…)" if is_packed else "np.save(path, x)"
        raise InvalidInput(
            f"{option} must be a complete {path.suffix} file, got {spec} ({why}). Check the "
            f"path, or write it by {way}."
        ) from None


def read_lines(path: Path, option: str) -> list[str]:
    """Read a text file with one entry per line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # a text may have other line ends
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{option} must be a text file with one entry per line, got {path} ({error}). Check it."
        ) from None
    return lines if lines[-1] else lines[:-1]


def read_columns(path: Path, option: str) -> dict[str, list[str]]:
    """Read the columns of a .csv file by their names."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"{option} must be a .csv file, got {path} ({why}). Check the path and its content."
        ) from None
    for i, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InvalidInput(
                f"{option} must have as many cells in every row as names in its first row, "
                f"{len(rows[0])}, got {len(row)} in row {i} of {path}. Separate cells by "
                "commas, and quote cells that have some."
            )
    names = rows[0] if rows else []
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if not names or repeated:
        got = f"{repeated[0]!r} twice" if names else "no columns"
        raise InvalidInput(
            f"{option} must name each column once in its first row, got {got} in {path}. Name "
            "each once."
        )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(names)}
