"""Data that options name: arrays in files, functions that return data, text and CSV files."""

import csv
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

from snapsure import _files
from snapsure.cli._models import call_factory
from snapsure.errors import InvalidInput, UnsafeFile

if TYPE_CHECKING:
    from snapsure.networks._data import Rows

_NPY_MAGIC = b"\x93NUMPY"


def load_data(spec: str, option: str) -> Any:
    """Load an .npz file with x and, if known, y; an .npy file of inputs; or call a function."""
    if spec.endswith(".npz"):
        return _load_npz(spec, option)
    if spec.endswith(".npy"):
        return _load_npy(spec, option), None
    if ":" not in spec and Path(spec).is_file():
        raise InvalidInput(
            f"{option} must be an .npz or .npy file, or package.module:function, got {spec}. Write "
            "a function that reads it and returns (inputs, labels), and name that."
        )
    return call_factory(spec, option)


def load_inputs(spec: str, option: str, batch_size: int | None = None) -> "Rows":
    """Load data in batches; inputs in an .npy file stay on the disk until they are needed."""
    from snapsure.networks._data import Rows

    return Rows.of(load_data(spec, option), "data", batch_size)


def load_array(spec: str, name: str, option: str) -> Any:
    """Load one more array of an .npz file, by its name."""
    arrays = _read_npz(spec, option) if spec.endswith(".npz") else {}
    if name not in arrays:
        raise InvalidInput(
            f"{option} must name an array of an .npz file, got {name!r} for {spec}, which has "
            f"{', '.join(arrays) or 'none'}. Write it by np.savez(path, x=…, {name}=…)."
        )
    return arrays[name]


def load_images(path: Path) -> Any:
    """Load the examples as pictures."""
    import numpy as np

    if path.suffix == ".npz":
        return _load_npz(str(path), "--images")[0]
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(
            f"--images must be an .npy or .npz file, got {path} ({error}). Write it by "
            "np.save(path, x)."
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
    except OSError as error:
        raise InvalidInput(
            f"{option} must be a file that can be read, got {path} ({error.strerror}). Check the "
            "path."
        ) from None
    except (ValueError, csv.Error) as error:
        raise InvalidInput(
            f"{option} must be a .csv file, got {path} ({error}). Check it."
        ) from None
    for i, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InvalidInput(
                f"{option} must have as many cells in every row as names in its first row, "
                f"{len(rows[0])}, got {len(row)} in row {i} of {path}. Check it."
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


def _load_npz(spec: str, option: str) -> tuple[Any, Any]:
    arrays = _read_npz(spec, option)
    if "x" not in arrays:
        raise InvalidInput(
            f"{option} must hold an array x (and y), got {', '.join(arrays) or 'none'} in {spec}. "
            "Write it by np.savez(path, x=…, y=…)."
        )
    return arrays["x"], arrays.get("y")


def _read_npz(spec: str, option: str) -> dict[str, Any]:
    import numpy as np

    _refuse_other_bytes(spec, option, whole=is_zipfile(spec))
    try:
        _files.refuse_packed_bomb(Path(spec), "write it by np.savez, which does not compress")
        with Path(spec).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    except UnsafeFile:
        raise
    except Exception as error:  # whatever damaged bytes make NumPy or zlib raise
        raise _not_arrays(spec, option, str(error).splitlines()[0]) from None


def _load_npy(spec: str, option: str) -> Any:
    import numpy as np

    _refuse_other_bytes(spec, option, whole=True)
    with Path(spec).open("rb") as file:
        _refuse_other_bytes(spec, option, whole=file.read(len(_NPY_MAGIC)) == _NPY_MAGIC)
    try:
        return np.load(spec, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _not_arrays(spec, option, str(error).splitlines()[0]) from None


def _refuse_other_bytes(spec: str, option: str, *, whole: bool) -> None:
    """Refuse a file that is missing or empty, or that NumPy would take for a pickle."""
    path = Path(spec)
    if not path.is_file():
        raise _not_arrays(spec, option, "there is no such file")
    if not path.stat().st_size:
        raise _not_arrays(spec, option, "it is empty")
    if not whole:
        raise _not_arrays(spec, option, "it is cut short, or something else")


def _not_arrays(spec: str, option: str, why: str) -> InvalidInput:
    kind = Path(spec).suffix
    way = "np.savez(path, x=…, y=…)" if kind == ".npz" else "np.save(path, x)"
    return InvalidInput(
        f"{option} must be a complete {kind} file, got {spec} ({why}). Write it by {way}."
    )
