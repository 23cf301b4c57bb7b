"""What the options of the command line name: data, networks, κ functions, executors, tables."""

import csv
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from snapsure import _files
from snapsure.errors import InvalidInput, SnapsureError
from snapsure.table import ScoreTable

# By their names in tables. Those that refer to training data get it as their first argument.
KAPPAS: dict[str, tuple[str, dict[str, str]]] = {
    "softmax": ("SoftmaxResponse", {}),
    "nn_distance": ("NNDistance", {}),
    "mc_dropout": ("MCDropout", {}),
    "mc_dropout_variance": ("MCDropout", {"statistic": "variance"}),
    "mc_dropout_entropy": ("MCDropout", {"statistic": "entropy"}),
    "mc_dropout_mutual_information": ("MCDropout", {"statistic": "mutual_information"}),
    "entropy": ("Entropy", {}),
    "margin": ("Margin", {}),
    "energy": ("Energy", {}),
    "max_logit": ("MaxLogit", {}),
    "doctor": ("Doctor", {}),
    "deep_knn": ("DeepKNN", {}),
}
_REFER = ("nn_distance", "deep_knn")
_EXECUTORS = ("local", "ray")
_SOURCE = "source.json"


def kappas(names: list[str], reference: str | None) -> list[Any]:
    """κ functions by their names; those that refer to training data get it."""
    from snapsure import scores

    unknown = [name for name in names if name not in KAPPAS]
    if unknown:
        raise InvalidInput(
            f"--kappa must be one of {', '.join(KAPPAS)}, got {unknown[0]!r}: choose among these"
        )
    asking = [name for name in names if name in _REFER]
    if asking and reference is None:
        raise InvalidInput(
            f"--reference must name the training data for {asking[0]}, got none: add "
            "--reference SPEC"
        )
    given = [data_of(reference, "--reference")] if asking and reference is not None else []
    made = []
    for name in names:
        kind, options = KAPPAS[name]
        made.append(getattr(scores, kind)(*(given if name in _REFER else ()), **options))
    return made


def contest_runs(tables: list[Path], source: Path | None, *, apart: bool = False) -> Any:
    """Runs by data set: a packed contest's, or tables, those with the same labels together."""
    from snapsure.evaluation import Run
    from snapsure.evaluation._run import passes_of

    if (source is None) == (not tables):
        raise InvalidInput(
            "compare must be given tables or --from, got "
            f"{'both' if tables else 'neither'}: name one of them"
        )
    if source is not None:
        from snapsure.evaluation._archive import open_contest

        return open_contest(source)
    refuse_twice(tables)
    groups: dict[str, list[Run]] = {}
    for path in tables:
        table = ScoreTable.open(path)
        run = Run(table, passes=passes_of(table))
        same = (n for n, some in groups.items() if not apart and np.array_equal(some[0].y, run.y))
        groups.setdefault(next(same, str(path)), []).append(run)
    return groups


def refuse_twice(tables: list[Path]) -> None:
    if len(set(tables)) < len(tables):
        given = " ".join(map(str, tables))
        raise InvalidInput(f"TABLES must be different folders, got {given}: name each once")


def executor(name: str, address: str | None) -> Any:
    from snapsure.scoring import LocalExecutor, RayExecutor

    if name not in _EXECUTORS:
        raise InvalidInput(
            f"--executor must be one of {', '.join(_EXECUTORS)}, got {name!r}: choose among these"
        )
    if name == "ray":
        return RayExecutor(address)
    if address is not None:
        raise InvalidInput(
            f"--address must come with --executor ray, got {address!r} alone: add that"
        )
    return LocalExecutor()


def search_here() -> None:
    """Let modules of the working folder be imported before all others."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def named(spec: str, option: str) -> Any:
    """What package.module:name gives when called, the working folder being searched first."""
    return _tried(spec, option, found(spec, option))


def found(spec: str, option: str) -> Any:
    """What package.module:name is, the working folder being searched first."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise InvalidInput(f"{option} must be package.module:name, got {spec!r}: write both")
    search_here()
    return _tried(spec, option, lambda: getattr(importlib.import_module(module), name))


def _tried(spec: str, option: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SnapsureError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{option} must name a function to call, got {spec!r}, which raised "
            f"{type(error).__name__} ({error}): try it in Python first"
        ) from None


def lines(path: Path, option: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{option} must be a text file with one per line, got {path} ({error}): check it"
        ) from None


def columns(path: Path, option: str) -> dict[str, list[str]]:
    """The columns of a .csv by their names."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidInput(f"{option} must be a .csv, got {path} ({error}): check it") from None
    for i, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InvalidInput(
                f"{option} must have as many cells in every row as names in its first, "
                f"{len(rows[0])}, got {len(row)} in row {i} of {path}: check it"
            )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0] if rows else [])}


def images_of(path: Path) -> Any:
    """Pictures of the points."""
    if path.suffix == ".npz":
        return data_of(str(path), "--images")[0]
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"--images must be .npy or .npz, got {path} ({error})") from None


def inputs_of(spec: str, option: str) -> Any:
    """Data as `data_of`, or inputs alone from an .npy file, which is not read at once."""
    if not spec.endswith(".npy"):
        from snapsure.networks._data import Rows

        return Rows.of(data_of(spec, option), "data")
    try:
        return np.load(spec, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"{option} must be an .npy file, got {spec} ({error})") from None


def note_source(table: Path, model: str, snapshots: Path) -> None:
    """Leave beside the scores what they were made with, for `snapsure fit`."""
    content = {"model": model, "snapshots": str(snapshots.resolve())}
    _files.write_bytes(table / _SOURCE, json.dumps(content, indent=1).encode())


def source_of(table: Path, given: str | None, name: str) -> str:
    """What an option says, or what the table was scored with."""
    if given is not None:
        return given
    try:
        return str(json.loads((table / _SOURCE).read_bytes())[name])
    except (OSError, ValueError, KeyError):
        raise InvalidInput(
            f"--{name} must be given where the table does not say it (`snapsure score` leaves "
            f"{_SOURCE} in it), got none in {table}: add --{name}"
        ) from None


def data_of(spec: str, option: str) -> Any:
    """Data by function, or from an .npz file with x and, if known, y."""
    if not spec.endswith(".npz"):
        return named(spec, option)
    try:
        with np.load(spec, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, TypeError, BadZipFile) as error:
        raise InvalidInput(f"{option} must be an .npz file, got {spec} ({error})") from None
    if "x" not in arrays:
        raise InvalidInput(
            f"{option} must hold an array x (and y), got {', '.join(arrays)} in {spec}: rename them"
        )
    return (arrays["x"], arrays.get("y"))
